// SPDX-License-Identifier: GPL-2.0
/*
 * Files that the kernel has to wait for, which it can do for a deferred
 * callchain and cannot in the sample: on a disk, below an overlay, on a file
 * system that answers late or never. And files that change while the answer is
 * pending: replaced, cut short, written over, unmapped.
 *
 * The callchains are made up, so that nothing but the unwinder's answer brings
 * the files into memory.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#ifdef __x86_64__

#define ROUNDS 40
#define ID_SIZE 20
#define PAGES 3

static struct bid_maps maps;

/* A file of three pages: headers and note in the first, "code" in the last. */

static int write_elf(int fd, __u8 id)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *image = malloc(PAGES * page);
	ssize_t n;

	if (!image)
		return bid_fail("no memory");
	bid_make_elf(image, PAGES * page, id);
	n = pwrite(fd, image, PAGES * page, 0);
	free(image);
	return n == (ssize_t)(PAGES * page) && !fsync(fd) ? 0 :
	       bid_fail("writing the file: %s", strerror(errno));
}

static bool first_page_resident(int fd)
{
	size_t page = sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
	unsigned char vec = 1;

	if (p == MAP_FAILED)
		return true;
	if (mincore(p, page, &vec))
		vec = 1;
	munmap(p, page);
	return vec & 1;
}

static void evict(int fd)
{
	for (int i = 0; i < 100 && first_page_resident(fd); i++) {
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (i)
			usleep(1000);
	}
}

static void *map_code(int fd)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, (PAGES - 1) * page);
}

static int make_dir(char *path, size_t size, const char *name)
{
	if (bid_helper_path(path, size, "."))
		return -1;
	snprintf(path + strlen(path) - 1, size - strlen(path) + 1, "%s.XXXXXX", name);
	return mkdtemp(path) ? 0 : bid_fail("%s: %s", path, strerror(errno));
}

/* A file system in a process, which serves one file as slowly as it is told to. */

struct fuse {
	pid_t		pid;
	int		fd;
	char		dir[PATH_MAX], file[PATH_MAX + 8];
	/* shared with the process */
	struct {
		int	delay_us;
		int	broken;		/* reads fail */
		int	reads;
		char	image[PAGES * 4096];
	} *s;
};

static void fuse_reply(int fd, __u64 unique, int error, const void *data, size_t len)
{
	char buf[sizeof(struct fuse_out_header) + PAGES * 4096];
	struct fuse_out_header *out = (void *)buf;

	out->len = sizeof(*out) + len;
	out->error = -error;
	out->unique = unique;
	if (len)
		memcpy(out + 1, data, len);
	if (write(fd, buf, out->len) < 0 && errno == ENODEV)
		_exit(0);
}

static void fuse_attr(struct fuse_attr *attr, __u64 node)
{
	memset(attr, 0, sizeof(*attr));
	attr->ino = node;
	attr->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755;
	attr->nlink = 1;
	attr->size = node == FUSE_ROOT_ID ? 0 : PAGES * 4096;
	attr->blksize = 4096;
}

static void fuse_read(struct fuse *f, const struct fuse_in_header *in)
{
	const struct fuse_read_in *arg = (const void *)(in + 1);
	size_t size = arg->size;

	__atomic_fetch_add(&f->s->reads, 1, __ATOMIC_RELAXED);
	usleep(__atomic_load_n(&f->s->delay_us, __ATOMIC_RELAXED));
	if (__atomic_load_n(&f->s->broken, __ATOMIC_RELAXED)) {
		fuse_reply(f->fd, in->unique, EIO, NULL, 0);
		return;
	}
	if (arg->offset >= sizeof(f->s->image))
		size = 0;
	else if (size > sizeof(f->s->image) - arg->offset)
		size = sizeof(f->s->image) - arg->offset;
	fuse_reply(f->fd, in->unique, 0, f->s->image + arg->offset, size);
}

static void fuse_answer(struct fuse *f, const struct fuse_in_header *in)
{
	struct fuse_init_out init = {
		.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
		.max_write = 4096,
	};
	struct fuse_entry_out entry = { .nodeid = 2, .entry_valid = 3600, .attr_valid = 3600 };
	struct fuse_attr_out attr = { .attr_valid = 3600 };
	struct fuse_open_out open = { .open_flags = FOPEN_KEEP_CACHE };

	switch (in->opcode) {
	case FUSE_INIT:
		fuse_reply(f->fd, in->unique, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		fuse_attr(&entry.attr, 2);
		fuse_reply(f->fd, in->unique, 0, &entry, sizeof(entry));
		break;
	case FUSE_GETATTR:
		fuse_attr(&attr.attr, in->nodeid);
		fuse_reply(f->fd, in->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		fuse_reply(f->fd, in->unique, 0, &open, sizeof(open));
		break;
	case FUSE_READ:
		fuse_read(f, in);
		break;
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
		fuse_reply(f->fd, in->unique, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		fuse_reply(f->fd, in->unique, EOPNOTSUPP, NULL, 0);
	}
}

static void fuse_serve(struct fuse *f)
{
	static char buf[FUSE_MIN_READ_BUFFER + 65536];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		ssize_t len = read(f->fd, buf, sizeof(buf));

		if (len < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue;
		if (len < (ssize_t)sizeof(struct fuse_in_header))
			_exit(0);
		fuse_answer(f, (void *)buf);
	}
}

/* 1 if there is no FUSE. */
static int fuse_start(struct fuse *f)
{
	char options[128];

	f->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (f->fd < 0) {
		bid_fail("no FUSE: %s", strerror(errno));
		return 1;
	}
	snprintf(f->dir, sizeof(f->dir), "/tmp/bid_fuse.XXXXXX");
	if (!mkdtemp(f->dir))
		return bid_fail("%s: %s", f->dir, strerror(errno));
	f->s = mmap(NULL, sizeof(*f->s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (f->s == MAP_FAILED)
		return bid_fail("mmap: %s", strerror(errno));
	bid_make_elf(f->s->image, sizeof(f->s->image), 0xf5);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", f->fd);
	if (mount("bid_fuse", f->dir, "fuse", MS_NOSUID | MS_NODEV, options)) {
		bid_fail("no FUSE: %s", strerror(errno));
		rmdir(f->dir);
		return 1;
	}
	f->pid = fork();
	if (!f->pid)
		fuse_serve(f);
	snprintf(f->file, sizeof(f->file), "%s/elf", f->dir);
	return 0;
}

static void fuse_stop(struct fuse *f)
{
	if (f->pid <= 0)
		return;
	/* ends what still waits, whoever has the device open */
	umount2(f->dir, MNT_FORCE);
	kill(f->pid, SIGKILL);
	waitpid(f->pid, NULL, 0);
	close(f->fd);
	umount2(f->dir, MNT_DETACH);
	rmdir(f->dir);
	f->pid = 0;
}

/* What the tests have in common */

FIXTURE(cold)
{
	struct bid_tool deferred, immediate;
	struct bid_task task;
	struct fuse fuse;
	char dir[PATH_MAX], file[PATH_MAX + 16], lower[PATH_MAX + 16], overlay[64];
	char *code;
	int fd;
};

FIXTURE_SETUP(cold)
{
	int ret = bid_deferred_ready();

	self->fd = -1;
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	/* where the tests are there may be a disk under the files */
	if (make_dir(self->dir, sizeof(self->dir), "bid_cold")) {
		self->dir[0] = '\0';
		SKIP(return, "no directory beside the test: %s", bid_error);
	}
	snprintf(self->file, sizeof(self->file), "%s/elf", self->dir);
	self->fd = open(self->file, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
	ASSERT_GE(self->fd, 0);
	ASSERT_EQ(0, write_elf(self->fd, 0xc0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(cold)
{
	bid_task_kill(&self->task);
	bid_tool_close(&self->deferred);
	bid_tool_close(&self->immediate);
	if (self->fd >= 0)
		close(self->fd);
	if (self->code)
		munmap(self->code, sysconf(_SC_PAGESIZE));
	fuse_stop(&self->fuse);
	if (self->overlay[0]) {
		umount2(self->overlay, MNT_DETACH);
		rmdir(self->overlay);
	}
	if (self->dir[0]) {
		unlink(self->file);
		snprintf(self->file, sizeof(self->file), "%s/other", self->dir);
		unlink(self->file);
		rmdir(self->dir);
	}
}

/* What came of the planted address, by status. */
static unsigned long planted[2][BID_STATUS_NR];
static __u64 planted_address;
static __u64 planted_offset;
static struct perf_build_id planted_id;

static int count_planted(const struct perf_sample_build_id_offset *e, bool deferred)
{
	bool resolved = e->build_id.status == PERF_BUILD_ID_OFFSET_RESOLVED;

	if (e->offset != (resolved ? planted_offset : planted_address))
		return bid_fail("planted %#llx became %#llx, status %u",
				(unsigned long long)planted_address,
				(unsigned long long)e->offset, e->build_id.status);
	planted[deferred][e->build_id.status]++;
	planted_id = e->build_id;
	return 0;
}

/* The frame after the system call */
static int each_deferred(const struct bid_deferred *d, void *arg)
{
	(void)arg;
	if (d->nr != 2)
		return bid_fail("%llu frames", (unsigned long long)d->nr);
	return count_planted(&d->entries[1], true);
}

static int each_immediate(const struct bid_sample *s, void *arg)
{
	(void)arg;
	if (s->nr_entries != 3)
		return bid_fail("%llu entries", (unsigned long long)s->nr_entries);
	return count_planted(&s->entries[2], false);
}

/* 1 if there is no such system call to sample. */
static int open_tools(struct bid_tool *deferred, struct bid_tool *immediate, const char *call,
		      pid_t pid)
{
	struct perf_event_attr attr;
	int ret = bid_attr_tracepoint(&attr, call, BID_BITS | PERF_SAMPLE_IP | BID_ORIGIN);

	if (ret)
		return ret;
	attr.exclude_callchain_kernel = 1;
	memset(planted, 0, sizeof(planted));
	if (immediate && bid_tool_open(immediate, &attr, NULL, pid, -1, BID_RING_PAGES))
		return -1;
	bid_attr_defer(&attr);
	if (bid_tool_open(deferred, &attr, NULL, pid, -1, BID_RING_PAGES))
		return -1;
	deferred->each_deferred = each_deferred;
	if (immediate) {
		immediate->each = each_immediate;
		if (bid_tool_enable(immediate))
			return -1;
	}
	return bid_tool_enable(deferred);
}

static void plant_in(const void *code)
{
	planted_address = (__u64)code + 0x123;
	planted_offset = (PAGES - 1) * sysconf(_SC_PAGESIZE) + 0x123;
}

/* A getppid() that seems to be called from the file. */
static void call_from_file(void)
{
	struct bid_planted frame;

	bid_plant(&frame, &planted_address, 1);
	bid_planted_call(&frame, __NR_getppid, 0, 0, 0);
}

static int sample_cold(struct bid_tool *deferred, struct bid_tool *immediate, int fd, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		evict(fd);
		if (first_page_resident(fd))
			return bid_fail("the file stays in memory");
		call_from_file();
		if (bid_tool_drain(deferred) || (immediate && bid_tool_drain(immediate)))
			return -1;
	}
	return 0;
}

/* In a directory of the machine's, below an overlay, on a slow file system. */

static int test_cold(struct __test_metadata *_metadata, struct bid_tool *deferred,
		     struct bid_tool *immediate, const char *path, char **code, int rounds)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret;

	ASSERT_GE(fd, 0);
	*code = map_code(fd);
	ASSERT_TRUE(*code != MAP_FAILED);
	evict(fd);
	if (first_page_resident(fd)) {
		close(fd);
		bid_fail("the file stays in memory");
		return 1;
	}
	plant_in(*code);
	ret = open_tools(deferred, immediate, "syscalls/sys_enter_getppid", 0);
	if (ret) {
		close(fd);
		return ret;
	}
	EXPECT_EQ(0, sample_cold(deferred, immediate, fd, rounds)) TH_LOG("%s", bid_error);
	TH_LOG("cold: immediate %lu FAULT, %lu BUSY, %lu resolved; deferred %lu resolved of %d",
	       planted[0][PERF_BUILD_ID_OFFSET_FAULT], planted[0][PERF_BUILD_ID_OFFSET_BUSY],
	       planted[0][PERF_BUILD_ID_OFFSET_RESOLVED],
	       planted[1][PERF_BUILD_ID_OFFSET_RESOLVED], rounds);
	EXPECT_EQ(0, bid_tool_paired(deferred, BID_FULL, rounds)) TH_LOG("%s", bid_error);
	EXPECT_EQ(rounds, planted[1][PERF_BUILD_ID_OFFSET_RESOLVED]);
	EXPECT_EQ(0, planted[0][PERF_BUILD_ID_OFFSET_RESOLVED]);
	EXPECT_GE(planted[0][PERF_BUILD_ID_OFFSET_FAULT], 1);
	close(fd);
	return 0;
}

TEST_F_TIMEOUT(cold, beside_the_test, BID_TIMEOUT_S)
{
	int ret = test_cold(_metadata, &self->deferred, &self->immediate, self->file,
			    &self->code, ROUNDS);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	EXPECT_EQ(0, ret) TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(cold, below_an_overlay, BID_TIMEOUT_S)
{
	char options[2 * PATH_MAX + 32], path[128];
	int ret;

	snprintf(self->overlay, sizeof(self->overlay), "/tmp/bid_overlay.XXXXXX");
	ASSERT_TRUE(!!mkdtemp(self->overlay));
	snprintf(options, sizeof(options), "lowerdir=%s:/", self->dir);
	if (mount("bid_overlay", self->overlay, "overlay", MS_RDONLY, options))
		SKIP(return, "no overlay: %s", strerror(errno));
	snprintf(path, sizeof(path), "%s/elf", self->overlay);
	ret = test_cold(_metadata, &self->deferred, &self->immediate, path, &self->code, ROUNDS);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	EXPECT_EQ(0, ret) TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(cold, on_slow_fuse, BID_TIMEOUT_S)
{
	__u64 start = bid_now_ns();
	int ret = fuse_start(&self->fuse);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->fuse.s->delay_us = 100000;
	ret = test_cold(_metadata, &self->deferred, &self->immediate, self->fuse.file,
			&self->code, 10);
	ASSERT_LE(ret, 0) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, ret) TH_LOG("%s", bid_error);
	/* it was waited for */
	EXPECT_GE(bid_now_ns() - start, 10 * 100000000ull);
	EXPECT_GE(self->fuse.s->reads, 10);
}

/* A file that cannot be read has no readable build ID, for as long as that is so. */
TEST_F_TIMEOUT(cold, on_broken_fuse, BID_TIMEOUT_S)
{
	int ret = fuse_start(&self->fuse), fd;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	fd = open(self->fuse.file, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(fd, 0) TH_LOG("%s", strerror(errno));
	self->code = map_code(fd);
	ASSERT_TRUE(self->code != MAP_FAILED);
	plant_in(self->code);
	self->fuse.s->broken = 1;
	ret = open_tools(&self->deferred, NULL, "syscalls/sys_enter_getppid", 0);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->deferred.check.flags = BID_UNREADABLE;
	EXPECT_EQ(0, sample_cold(&self->deferred, NULL, fd, 5)) TH_LOG("%s", bid_error);
	EXPECT_EQ(5, planted[1][PERF_BUILD_ID_OFFSET_NO_BUILD_ID])
		TH_LOG("%lu FAULT", planted[1][PERF_BUILD_ID_OFFSET_FAULT]);
	/* and it is read when it can be */
	self->fuse.s->broken = 0;
	EXPECT_EQ(0, sample_cold(&self->deferred, NULL, fd, 5)) TH_LOG("%s", bid_error);
	EXPECT_EQ(5, planted[1][PERF_BUILD_ID_OFFSET_RESOLVED]);
	EXPECT_EQ(0, bid_tool_paired(&self->deferred, BID_FULL, 10)) TH_LOG("%s", bid_error);
	close(fd);
}

/* A socket can be mapped, too. Its data is not for us to read, nor to wait for. */
TEST_F_TIMEOUT(cold, on_a_socket, BID_TIMEOUT_S)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int listener = socket(AF_INET, SOCK_STREAM, 0), to, from, ret;
	size_t size = PAGES * sysconf(_SC_PAGESIZE);
	socklen_t len = sizeof(addr);
	char sent[1000] = "", got[1000];
	char *map;

	ASSERT_GE(listener, 0);
	ASSERT_EQ(0, bind(listener, (void *)&addr, len)) TH_LOG("%s", strerror(errno));
	ASSERT_EQ(0, listen(listener, 1));
	ASSERT_EQ(0, getsockname(listener, (void *)&addr, &len));
	to = socket(AF_INET, SOCK_STREAM, 0);
	ASSERT_GE(to, 0);
	ASSERT_EQ(0, connect(to, (void *)&addr, len)) TH_LOG("%s", strerror(errno));
	from = accept(listener, NULL, NULL);
	ASSERT_GE(from, 0);
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, from, 0);
	if (map == MAP_FAILED)
		SKIP(return, "sockets cannot be mapped: %s", strerror(errno));

	plant_in(map);
	ret = open_tools(&self->deferred, NULL, "syscalls/sys_enter_getppid", 0);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->deferred.check.flags = BID_UNREADABLE;

	/* once with nothing to read, which would not end, and with something */
	for (int i = 0; i < 2; i++) {
		call_from_file();
		ASSERT_EQ(0, bid_tool_drain(&self->deferred)) TH_LOG("%s", bid_error);
		EXPECT_EQ(i + 1, planted[1][PERF_BUILD_ID_OFFSET_NO_BUILD_ID]);
		if (!i)
			ASSERT_EQ(sizeof(sent), write(to, sent, sizeof(sent)));
	}
	EXPECT_EQ(sizeof(got), recv(from, got, sizeof(got), MSG_DONTWAIT));

	munmap(map, size);
	close(from);
	close(to);
	close(listener);
}

/* A task that waits for a file system that is gone ends. */
static void child_calls(void *arg)
{
	(void)arg;
	call_from_file();
	_exit(7);
}

TEST_F_TIMEOUT(cold, on_dead_fuse, BID_TIMEOUT_S)
{
	int ret = fuse_start(&self->fuse), fd, status = 0;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	fd = open(self->fuse.file, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(fd, 0) TH_LOG("%s", strerror(errno));
	self->code = map_code(fd);
	ASSERT_TRUE(self->code != MAP_FAILED);
	plant_in(self->code);
	close(fd);
	self->fuse.s->delay_us = 50000000;
	ASSERT_EQ(0, bid_task_fork(&self->task, child_calls, NULL)) TH_LOG("%s", bid_error);
	ret = open_tools(&self->deferred, NULL, "syscalls/sys_enter_getppid", self->task.pid);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->deferred.check.flags = BID_UNREADABLE;
	ASSERT_EQ(0, bid_task_tell(&self->task)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 5000 && !__atomic_load_n(&self->fuse.s->reads, __ATOMIC_RELAXED); i++)
		usleep(1000);
	ASSERT_GE(self->fuse.s->reads, 1);
	usleep(50000);
	EXPECT_EQ(0, waitpid(self->task.pid, &status, WNOHANG));
	fuse_stop(&self->fuse);
	ASSERT_EQ(0, bid_task_wait(&self->task, &status)) TH_LOG("%s", bid_error);
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(7, WEXITSTATUS(status));
	ASSERT_EQ(0, bid_tool_drain(&self->deferred)) TH_LOG("%s", bid_error);
	EXPECT_EQ(1, planted[1][PERF_BUILD_ID_OFFSET_NO_BUILD_ID]);
}

/* What changes while the task is in the system call */

FIXTURE(change)
{
	struct bid_tool deferred;
	char dir[PATH_MAX], file[PATH_MAX + 16], other[PATH_MAX + 16];
	char *code;
	int pipe[2];
};

struct change {
	const char	*file, *other;
	char		*code;
	int		go;
	int		(*fn)(const struct change *c);
	int		ret;
};

static int do_rename(const struct change *c)
{
	return rename(c->other, c->file);
}

static int do_unlink(const struct change *c)
{
	return unlink(c->file);
}

static int do_truncate(const struct change *c)
{
	return truncate(c->file, 0);
}

/* The page of the code stays, the note is a hole. */
static int do_hole(const struct change *c)
{
	return truncate(c->file, 0) || truncate(c->file, PAGES * sysconf(_SC_PAGESIZE));
}

/* An ELF header that sends the reader far away. */
static int do_garbage(const struct change *c)
{
	int fd = open(c->file, O_RDWR | O_CLOEXEC);
	Elf64_Ehdr eh;
	int ret;

	ret = pread(fd, &eh, sizeof(eh), 0) != sizeof(eh);
	eh.e_phoff = 0x7ffffffffffff000;
	eh.e_phnum = 0xffff;
	ret |= pwrite(fd, &eh, sizeof(eh), 0) != sizeof(eh);
	close(fd);
	return ret;
}

static int do_write_over(const struct change *c)
{
	int fd = open(c->file, O_RDWR | O_CLOEXEC);
	int ret = write_elf(fd, 0x22);

	close(fd);
	return ret;
}

static int do_unmap(const struct change *c)
{
	return munmap(c->code, sysconf(_SC_PAGESIZE));
}

static int do_map_other(const struct change *c)
{
	size_t page = sysconf(_SC_PAGESIZE);
	int fd = open(c->other, O_RDONLY | O_CLOEXEC);
	void *p = mmap(c->code, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd,
		       (PAGES - 1) * page);

	close(fd);
	return p == c->code ? 0 : -1;
}

static int do_map_nothing(const struct change *c)
{
	void *p = mmap(c->code, sysconf(_SC_PAGESIZE), PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	return p == c->code ? 0 : -1;
}

static int do_protect(const struct change *c)
{
	return mprotect(c->code, sysconf(_SC_PAGESIZE), PROT_NONE);
}

FIXTURE_VARIANT(change)
{
	int (*fn)(const struct change *c);
	__u64 statuses;
	__u8 id;
	bool disk;
};

#define ON(status) (1ULL << PERF_BUILD_ID_OFFSET_##status)

FIXTURE_VARIANT_ADD(change, replaced) {
	.fn = do_rename, .statuses = ON(RESOLVED), .id = 0x11,
};

FIXTURE_VARIANT_ADD(change, replaced_on_disk) {
	.fn = do_rename, .statuses = ON(RESOLVED), .id = 0x11, .disk = true,
};

FIXTURE_VARIANT_ADD(change, unlinked) {
	.fn = do_unlink, .statuses = ON(RESOLVED), .id = 0x11,
};

FIXTURE_VARIANT_ADD(change, truncated) {
	.fn = do_truncate, .statuses = ON(NO_BUILD_ID) | ON(FAULT),
};

FIXTURE_VARIANT_ADD(change, truncated_on_disk) {
	.fn = do_truncate, .statuses = ON(NO_BUILD_ID) | ON(FAULT), .disk = true,
};

FIXTURE_VARIANT_ADD(change, made_a_hole) {
	.fn = do_hole, .statuses = ON(NO_BUILD_ID),
};

FIXTURE_VARIANT_ADD(change, garbage) {
	.fn = do_garbage, .statuses = ON(NO_BUILD_ID) | ON(FAULT),
};

FIXTURE_VARIANT_ADD(change, written_over) {
	.fn = do_write_over, .statuses = ON(RESOLVED), .id = 0x22,
};

FIXTURE_VARIANT_ADD(change, unmapped) {
	.fn = do_unmap, .statuses = ON(ANON),
};

/* The callchain is that of the return: what is mapped there then. */
FIXTURE_VARIANT_ADD(change, other_file_mapped) {
	.fn = do_map_other, .statuses = ON(RESOLVED), .id = 0x22,
};

FIXTURE_VARIANT_ADD(change, nothing_mapped) {
	.fn = do_map_nothing, .statuses = ON(ANON),
};

FIXTURE_VARIANT_ADD(change, protected) {
	.fn = do_protect, .statuses = ON(RESOLVED), .id = 0x11,
};

FIXTURE_SETUP(change)
{
	int ret = bid_deferred_ready(), fd;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	snprintf(self->dir, sizeof(self->dir), "/tmp/bid_change.XXXXXX");
	if (variant->disk && make_dir(self->dir, sizeof(self->dir), "bid_change")) {
		self->dir[0] = '\0';
		SKIP(return, "no directory beside the test: %s", bid_error);
	}
	if (!variant->disk)
		ASSERT_TRUE(!!mkdtemp(self->dir));
	snprintf(self->file, sizeof(self->file), "%s/elf", self->dir);
	snprintf(self->other, sizeof(self->other), "%s/other", self->dir);
	fd = open(self->other, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, write_elf(fd, 0x22)) TH_LOG("%s", bid_error);
	close(fd);
	fd = open(self->file, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, write_elf(fd, 0x11)) TH_LOG("%s", bid_error);
	self->code = map_code(fd);
	ASSERT_TRUE(self->code != MAP_FAILED);
	if (variant->disk)
		evict(fd);
	close(fd);
	ASSERT_EQ(0, pipe2(self->pipe, O_CLOEXEC));
}

FIXTURE_TEARDOWN(change)
{
	bid_tool_close(&self->deferred);
	if (!self->dir[0])
		return;
	unlink(self->file);
	unlink(self->other);
	rmdir(self->dir);
}

static void *thread_change(void *arg)
{
	struct change *c = arg;

	usleep(50000);
	c->ret = c->fn(c);
	if (write(c->go, "", 1) != 1)
		c->ret = -1;
	return NULL;
}

/* A read() that seems to be called from the file, and during which that changes. */
TEST_F_TIMEOUT(change, while_pending, BID_TIMEOUT_S)
{
	struct change c = {
		.file = self->file, .other = self->other, .code = self->code,
		.go = self->pipe[1], .fn = variant->fn,
	};
	struct bid_planted frame;
	pthread_t thread;
	char byte;
	int ret = open_tools(&self->deferred, NULL, "syscalls/sys_enter_read", 0);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->deferred.check.flags = BID_UNREADABLE;
	plant_in(self->code);
	bid_plant(&frame, &planted_address, 1);
	ASSERT_EQ(0, pthread_create(&thread, NULL, thread_change, &c));
	EXPECT_EQ(1, bid_planted_call(&frame, __NR_read, self->pipe[0], (long)&byte, 1));
	ASSERT_EQ(0, bid_tool_disable(&self->deferred)) TH_LOG("%s", bid_error);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, c.ret);
	ASSERT_EQ(0, bid_tool_drain(&self->deferred)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->deferred, BID_FULL, 1)) TH_LOG("%s", bid_error);
	EXPECT_TRUE(variant->statuses & (1ULL << planted_id.status))
		TH_LOG("status %u", planted_id.status);
	if (planted_id.status == PERF_BUILD_ID_OFFSET_RESOLVED) {
		EXPECT_EQ(ID_SIZE, planted_id.size);
		EXPECT_EQ(variant->id, planted_id.data[0]);
	}
}

/* An address space that is changed all the time is waited for. */

static bool stop;

TEST_F_TIMEOUT(cold, busy_address_space, BID_TIMEOUT_S)
{
	pthread_t threads[2];
	struct bid_stats *st;
	int ret;

	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, bid_thread_map_and_unmap, &stop));
	usleep(20000);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	self->code = map_code(self->fd);
	ASSERT_TRUE(self->code != MAP_FAILED);
	plant_in(self->code);
	ret = open_tools(&self->deferred, &self->immediate, "syscalls/sys_enter_getppid", 0);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	for (int i = 0; i < 1000; i++) {
		call_from_file();
		if (i % 50 == 49) {
			ASSERT_EQ(0, bid_tool_drain(&self->deferred)) TH_LOG("%s", bid_error);
			ASSERT_EQ(0, bid_tool_drain(&self->immediate)) TH_LOG("%s", bid_error);
		}
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	st = &self->deferred.check.stats;
	TH_LOG("immediate: %lu resolved, %lu BUSY; deferred: %lu resolved",
	       planted[0][PERF_BUILD_ID_OFFSET_RESOLVED], planted[0][PERF_BUILD_ID_OFFSET_BUSY],
	       planted[1][PERF_BUILD_ID_OFFSET_RESOLVED]);
	EXPECT_EQ(1000, planted[1][PERF_BUILD_ID_OFFSET_RESOLVED]);
	EXPECT_EQ(st->file_frames, st->file_resolved);
	EXPECT_EQ(0, bid_tool_paired(&self->deferred, BID_FULL, 1000)) TH_LOG("%s", bid_error);
}

/* A memory cgroup at its limit */

#define CGROUP "/sys/fs/cgroup"
#define LIMIT (4 << 20)

static int write_word(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : write(fd, word, strlen(word));
	int ret = len < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return ret;
}

static int cold_fd;

/* Has the file read in again and again, with less memory left each time. */
static void child_at_limit(void *arg)
{
	const size_t step = 8 * sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 2 * LIMIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)arg;
	if (write_word(CGROUP "/bid_memory/cgroup.procs", "0") || p == MAP_FAILED)
		_exit(3);
	madvise(p, 2 * LIMIT, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < 2 * LIMIT; at += step) {
		evict(cold_fd);
		call_from_file();
		memset(p + at, 1, step);
	}
}

/* It is killed in the end, here or there. Nothing is lost, and nothing made up. */
TEST_F_TIMEOUT(cold, memory_cgroup_at_its_limit, BID_TIMEOUT_S)
{
	unsigned long records = 0;
	int ret, status = 0;
	char limit[32];

	if (write_word(CGROUP "/cgroup.subtree_control", "+memory") ||
	    (mkdir(CGROUP "/bid_memory", 0755) && errno != EEXIST))
		SKIP(return, "no memory cgroups");
	snprintf(limit, sizeof(limit), "%d", LIMIT);
	ASSERT_EQ(0, write_word(CGROUP "/bid_memory/memory.max", limit));
	write_word(CGROUP "/bid_memory/memory.swap.max", "0");
	self->code = map_code(self->fd);
	ASSERT_TRUE(self->code != MAP_FAILED);
	plant_in(self->code);
	cold_fd = self->fd;
	ASSERT_EQ(0, bid_task_fork(&self->task, child_at_limit, NULL)) TH_LOG("%s", bid_error);
	ret = open_tools(&self->deferred, NULL, "syscalls/sys_enter_getppid", self->task.pid);
	if (ret > 0)
		SKIP(goto out, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->deferred.check.flags = BID_UNREADABLE;
	ASSERT_EQ(0, bid_task_tell(&self->task)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_task_wait(&self->task, &status)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_drain(&self->deferred)) TH_LOG("%s", bid_error);
	for (int i = 0; i < BID_STATUS_NR; i++)
		records += planted[1][i];
	TH_LOG("%lu records: %lu resolved, %lu FAULT, %lu NO_MEMORY, %lu NO_BUILD_ID; %s %d",
	       records, planted[1][PERF_BUILD_ID_OFFSET_RESOLVED],
	       planted[1][PERF_BUILD_ID_OFFSET_FAULT], planted[1][PERF_BUILD_ID_OFFSET_NO_MEMORY],
	       planted[1][PERF_BUILD_ID_OFFSET_NO_BUILD_ID],
	       WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) :
	       WEXITSTATUS(status));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(0, bid_tool_paired(&self->deferred, BID_FULL, records)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, planted[1][PERF_BUILD_ID_OFFSET_NO_BUILD_ID]);
	EXPECT_GE(planted[1][PERF_BUILD_ID_OFFSET_RESOLVED], 10);
	EXPECT_LE(records - planted[1][PERF_BUILD_ID_OFFSET_RESOLVED], 1);
out:
	bid_task_kill(&self->task);
	rmdir(CGROUP "/bid_memory");
}

#endif /* __x86_64__ */

TEST_HARNESS_MAIN
