// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel remembers the build IDs of files, and must not remember too well:
 * whichever way a file's note is changed, the next sample says what is in the
 * file then. Nor does it hold on to what it knows: file systems are unmounted,
 * memory is given back. A program that was never sampled before is known from its
 * first instruction on, and a file also while its mapping is copied by fork(). What
 * cannot be read is not asked for all the time.
 *
 *   BID_CHANGES=N	how often each file is changed (default: 30)
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#ifdef __x86_64__

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

#define PAGES		4
#define PLACE		0xabd	/* in the last page: where callchains point to */
#define SETTLED_US	150000	/* a file that changed a moment ago is not remembered */
#define DEBUG		"/sys/kernel/debug/perf_build_id_offset/"

static size_t page;

/* Places for files */

enum where { TMPFS, EXT4, XFS, BTRFS, OVERLAY, BESIDE, MEMFD };

static struct place {
	char	dir[PATH_MAX];
	char	top[PATH_MAX + 8];	/* of the overlay */
	char	path[PATH_MAX + 32], next[PATH_MAX + 32];
	bool	mounted, overlaid;
	int	loop;			/* 0: none */
	int	image;			/* what is behind it */
	int	memfd;			/* 0: none */
} place;

#define EXT4_SIZE	(8 << 20)

static const struct disk {
	const char	*type, *options;
	off_t		size;		/* what is not written takes no memory */
} disks[] = {
	/* a journal would go on writing when the disk has gone */
	[EXT4] = { "ext4", "-q -F -b 1024 -I 256 -O ^has_journal", EXT4_SIZE },
	[XFS] = { "xfs", "-q -f", 300 << 20 },
	[BTRFS] = { "btrfs", "-q -f", 128 << 20 },
};

static int make_file_system(const struct disk *disk, const char *device)
{
	char command[256];
	int ret;

	snprintf(command, sizeof(command), "PATH=$PATH:/usr/sbin:/sbin mkfs.%s %s %s >&2",
		 disk->type, disk->options, device);
	ret = system(command);
	if (WIFEXITED(ret) && WEXITSTATUS(ret) == 127)
		return bid_fail("no mkfs.%s", disk->type), 1;
	return ret ? bid_fail("mkfs.%s: status %#x", disk->type, ret) : 0;
}

/* In a file that has no name. 1: there are no loop devices, or it is a file system of none */
static int mount_disk(const struct disk *disk)
{
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), nr, ret;
	char device[32];

	if (control < 0)
		return bid_fail("no loop devices"), 1;
	nr = ioctl(control, LOOP_CTL_GET_FREE);
	close(control);
	snprintf(device, sizeof(device), "/dev/loop%d", nr);
	place.loop = open(device, O_RDWR | O_CLOEXEC);
	place.image = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	if (place.loop < 0 || place.image < 0 || ftruncate(place.image, disk->size) ||
	    ioctl(place.loop, LOOP_SET_FD, place.image))
		return bid_fail("%s: %s", device, strerror(errno));
	ret = make_file_system(disk, device);
	if (ret)
		return ret;
	if (mount(device, place.dir, disk->type, 0, NULL))
		return bid_fail("no %s: %s", disk->type, strerror(errno)), errno == ENODEV ? 1 : -1;
	place.mounted = true;
	return 0;
}

static int mount_tmpfs(void)
{
	if (mount("bid", place.dir, "tmpfs", 0, NULL))
		return bid_fail("tmpfs: %s", strerror(errno));
	place.mounted = true;
	return 0;
}

/* What a container has. 1: there is no overlayfs */
static int mount_overlay(void)
{
	static const char * const dirs[] = { "lower", "upper", "work", "top" };
	char options[4 * PATH_MAX];

	if (mount_tmpfs())
		return -1;
	for (unsigned int i = 0; i < BID_ARRAY_SIZE(dirs); i++) {
		snprintf(place.top, sizeof(place.top), "%s/%s", place.dir, dirs[i]);
		mkdir(place.top, 0755);
	}
	snprintf(options, sizeof(options), "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work",
		 place.dir, place.dir, place.dir);
	if (mount("bid", place.top, "overlay", 0, options))
		return bid_fail("no overlay: %s", strerror(errno)), errno == ENODEV ? 1 : -1;
	place.overlaid = true;
	return 0;
}

static int mount_where(enum where where)
{
	switch (where) {
	case TMPFS:
		return mount_tmpfs();
	case EXT4:
	case XFS:
	case BTRFS:
		return mount_disk(&disks[where]);
	case OVERLAY:
		return mount_overlay();
	default:
		return 0;
	}
}

static int unmount_from(const char *dir, bool *mounted)
{
	for (int i = 0; *mounted && umount(dir); i++) {
		if (errno != EBUSY || i == 100 * BID_DEADLINE_S)
			return bid_fail("umount: %s", strerror(errno));
		usleep(10000);
	}
	*mounted = false;
	return 0;
}

static int unmount(void)
{
	return unmount_from(place.top, &place.overlaid) || unmount_from(place.dir, &place.mounted);
}

static int place_end(void)
{
	int ret = 0;

	if (place.memfd > 0)
		close(place.memfd);
	if (place.dir[0]) {
		unlink(place.next);
		unlink(place.path);
		ret = unmount();
		if (place.loop > 0) {
			ioctl(place.loop, LOOP_CLR_FD);
			close(place.loop);
			close(place.image);
		}
		rmdir(place.dir);
	}
	return ret;
}

static int place_find(enum where where)
{
	char beside[PATH_MAX];
	const char *dir;
	int ret;

	memset(&place, 0, sizeof(place));
	page = sysconf(_SC_PAGESIZE);
	if (where == MEMFD) {
		place.memfd = memfd_create("bid", MFD_CLOEXEC | MFD_EXEC);
		snprintf(place.path, sizeof(place.path), "/proc/self/fd/%d", place.memfd);
		return place.memfd < 0 ? bid_fail("memfd: %s", strerror(errno)) : 0;
	}
	if (bid_helper_path(beside, sizeof(beside), "."))
		return -1;
	snprintf(place.dir, sizeof(place.dir), "%.4000s/bid_fresh.XXXXXX",
		 where == BESIDE ? beside : "/tmp");
	if (!mkdtemp(place.dir))
		return bid_fail("%s: %s", place.dir, strerror(errno));
	ret = mount_where(where);
	dir = place.overlaid ? place.top : place.dir;
	snprintf(place.path, sizeof(place.path), "%s/file", dir);
	snprintf(place.next, sizeof(place.next), "%s/next", dir);
	return ret;
}

/* What a fixture has begun when it skips or fails is not torn down. */
static int place_make(enum where where)
{
	int ret = place_find(where);

	if (ret)
		place_end();
	return ret;
}

/* The file: its ID is 20 times one byte; 0: it has none. */

static char *map;

static int open_file(const char *path, int flags)
{
	return open(path, O_RDWR | O_CLOEXEC | flags, 0755);
}

static int write_file(const char *path, int flags, __u8 id)
{
	static char image[PAGES * 4096];
	int fd = open_file(path, O_CREAT | flags), ret = -1;

	bid_make_elf(image, PAGES * page, id);
	if (fd >= 0 && pwrite(fd, image, PAGES * page, 0) == (ssize_t)(PAGES * page))
		ret = 0;
	if (fd >= 0)
		close(fd);
	return ret ? bid_fail("%s: %s", path, strerror(errno)) : 0;
}

/* Maps the file at map, if that is anywhere already. */
static int map_file(void)
{
	int fd = open(place.path, O_RDONLY | O_CLOEXEC);

	map = mmap(map, PAGES * page, PROT_READ | PROT_EXEC, MAP_PRIVATE | (map ? MAP_FIXED : 0),
		   fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		return 0;
	map = NULL;
	return bid_fail("mmap: %s", strerror(errno));
}

static int unmap_file(void)
{
	int ret = map ? munmap(map, PAGES * page) : 0;

	map = NULL;
	return ret;
}

/* Where the ID is in the file. */
static size_t id_at(void)
{
	static char image[4096];

	bid_make_elf(image, sizeof(image), 1);
	return (char *)memchr(image + 128, 1, sizeof(image) - 128) - image;
}

/* Samples: a system call that is called from the file, and what is read off its callchains. */

#define SYSCALLS	0		/* in the task */
#define CLOCK		1		/* in a timer's interrupt */
#define EVENTS		2

struct seen {
	unsigned long	frames, resolved, unresolved;
	__u8		id;		/* what is right */
	bool		strict;		/* there is no excuse */
	const char	*after;		/* which change */
};

FIXTURE(fresh)
{
	struct bid_event	e[EVENTS];
	struct seen		seen;
};

FIXTURE_VARIANT(fresh)
{
	enum where	where;
	bool		defer;
};

FIXTURE_VARIANT_ADD(fresh, tmpfs) {
	.where = TMPFS,
};

FIXTURE_VARIANT_ADD(fresh, tmpfs_deferred) {
	.where = TMPFS, .defer = true,
};

FIXTURE_VARIANT_ADD(fresh, ext4) {
	.where = EXT4,
};

FIXTURE_VARIANT_ADD(fresh, ext4_deferred) {
	.where = EXT4, .defer = true,
};

FIXTURE_VARIANT_ADD(fresh, xfs) {
	.where = XFS,
};

FIXTURE_VARIANT_ADD(fresh, btrfs) {
	.where = BTRFS,
};

FIXTURE_VARIANT_ADD(fresh, overlay) {
	.where = OVERLAY,
};

FIXTURE_VARIANT_ADD(fresh, beside) {
	.where = BESIDE,
};

FIXTURE_VARIANT_ADD(fresh, beside_deferred) {
	.where = BESIDE, .defer = true,
};

FIXTURE_VARIANT_ADD(fresh, memfd) {
	.where = MEMFD,
};

FIXTURE_VARIANT_ADD(fresh, memfd_deferred) {
	.where = MEMFD, .defer = true,
};

static int open_events(struct bid_event *e, bool defer)
{
	struct perf_event_attr attr[EVENTS];
	char filter[32];
	int ret = bid_attr_tracepoint(&attr[SYSCALLS], "raw_syscalls/sys_enter", BID_CHAIN);

	if (ret)
		return ret;
	bid_attr_init(&attr[CLOCK], PERF_COUNT_SW_CPU_CLOCK, BID_CHAIN);
	attr[CLOCK].sample_period = BID_PERIOD_NS / 5;
	for (int i = 0; i < EVENTS; i++) {
		attr[i].exclude_callchain_kernel = 1;
		if (defer)
			bid_attr_defer(&attr[i]);
		if (bid_event_open(&e[i], &attr[i], 0, -1, -1, BID_RING_PAGES))
			return -1;
	}
	snprintf(filter, sizeof(filter), "id == %d", __NR_getrandom);
	if (ioctl(e[SYSCALLS].fd, PERF_EVENT_IOC_SET_FILTER, filter))
		return bid_fail("%s: %s", filter, strerror(errno));
	return bid_event_enable(&e[SYSCALLS]) || bid_event_enable(&e[CLOCK]);
}

FIXTURE_SETUP(fresh)
{
	int ret = variant->defer ? bid_deferred_ready() : bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ret = place_make(variant->where);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, write_file(place.path, 0, 1)) TH_LOG("%s", bid_error);
	ret = open_events(self->e, variant->defer);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(fresh)
{
	for (int i = 0; i < EVENTS; i++)
		bid_event_close(&self->e[i]);
	unmap_file();
	EXPECT_EQ(0, place_end()) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_state_zero()) TH_LOG("%s", bid_error);
}

static int judge_entry(const struct perf_sample_build_id_offset *e, struct seen *seen)
{
	__u64 offset = (PAGES - 1) * page + PLACE;
	unsigned int status = e->build_id.status;

	if (status == PERF_BUILD_ID_OFFSET_RESOLVED ? e->offset != offset :
						      e->offset != (__u64)map + offset)
		return 0;
	seen->frames++;
	if (status == PERF_BUILD_ID_OFFSET_RESOLVED) {
		seen->resolved++;
		for (int i = 0; i < BID_SIZE_MAX; i++)
			if (!seen->id || e->build_id.data[i] != seen->id)
				return bid_fail("after %s: byte %d is %u and not %u", seen->after,
						i, e->build_id.data[i], seen->id);
		return 0;
	}
	if (status == PERF_BUILD_ID_OFFSET_NO_BUILD_ID && !seen->id)
		return 0;
	seen->unresolved++;
	if (seen->strict || (status != PERF_BUILD_ID_OFFSET_BUSY &&
			     status != PERF_BUILD_ID_OFFSET_FAULT))
		return bid_fail("after %s: status %u", seen->after, status);
	return 0;
}

struct judge {
	const struct perf_event_attr	*attr;
	struct seen			*seen;
};

static int judge_record(const struct perf_event_header *hdr, void *arg)
{
	const struct perf_sample_build_id_offset *entries = NULL;
	struct judge *judge = arg;
	struct bid_deferred d;
	struct bid_sample s;
	__u64 nr = 0;

	if (hdr->type == PERF_RECORD_SAMPLE) {
		if (bid_parse_sample(hdr, judge->attr, &s))
			return -1;
		entries = s.entries;
		nr = s.nr_entries;
	} else if (hdr->type == PERF_RECORD_CALLCHAIN_DEFERRED) {
		if (bid_parse_deferred(hdr, judge->attr, &d))
			return -1;
		entries = d.entries;
		nr = entries ? d.nr : 0;
	}
	for (__u64 i = 0; i < nr; i++)
		if (judge_entry(&entries[i], judge->seen))
			return -1;
	return 0;
}

/* A system call from the file */
static long call_from_file(long nr, long a, long b, long c)
{
	__u64 ret[2] = { (__u64)map + (PAGES - 1) * page + PLACE, (__u64)bid_planted_return };
	struct bid_planted frames[2];

	bid_plant(frames, ret, 2);
	return bid_planted_call(frames, nr, a, b, c);
}

/* What the samples of one say has to be right now. */
static int look(struct bid_event *e, struct seen *seen)
{
	unsigned long before = seen->frames;
	static char random[1 << 16];

	call_from_file(__NR_getrandom, (long)random, sizeof(random), 0);
	for (int i = 0; i < EVENTS; i++) {
		struct judge judge = { .attr = &e[i].attr, .seen = seen };

		if (bid_drain(&e[i], judge_record, &judge))
			return -1;
	}
	return seen->frames > before ? 0 : bid_fail("after %s: no frame", seen->after);
}

/* Changes. Each makes the file's ID seen->id, or takes it away and makes that 0. */

static int write_id(__u8 id)
{
	char bytes[BID_SIZE_MAX];
	int fd = open_file(place.path, 0), ret;

	memset(bytes, id, sizeof(bytes));
	ret = pwrite(fd, bytes, sizeof(bytes), id_at()) != sizeof(bytes);
	close(fd);
	return ret ? bid_fail("pwrite: %s", strerror(errno)) : 0;
}

static char *map_shared(void)
{
	int fd = open_file(place.path, 0);
	char *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	return p;
}

static int write_mapped(__u8 id)
{
	char *p = map_shared();

	if (p == MAP_FAILED)
		return bid_fail("a shared mapping: %s", strerror(errno));
	memset(p + id_at(), id, BID_SIZE_MAX);
	munmap(p, page);
	return 0;
}

static int in_another_process(int (*change)(__u8 id), __u8 id)
{
	pid_t pid = fork();
	int status = -1;

	if (!pid)
		_exit(change(id) != 0);
	waitpid(pid, &status, 0);
	return status ? bid_fail("another process could not change it") : 0;
}

static int cut_and_write(__u8 id)
{
	return truncate(place.path, 0) ? -1 : write_file(place.path, 0, id);
}

static int write_other(__u8 id)
{
	return write_file(place.path, O_TRUNC, id);
}

static int replace(__u8 id)
{
	if (write_file(place.next, O_TRUNC, id) || rename(place.next, place.path))
		return bid_fail("rename: %s", strerror(errno));
	return map_file();
}

static int remove_and_make(__u8 id)
{
	unlink(place.path);
	return write_file(place.path, O_EXCL, id) || map_file();
}

/* Read again from where it is kept. */
static int write_and_evict(__u8 id)
{
	int fd;

	if (write_id(id))
		return -1;
	fd = open(place.path, O_RDONLY | O_CLOEXEC);
	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	return 0;
}

static int punch(__u8 id)
{
	int fd = open_file(place.path, 0);
	int ret = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, page);

	(void)id;
	/* 9p has no holes to be punched */
	if (ret && errno == EOPNOTSUPP) {
		char zeroes[4096] = "";

		ret = pwrite(fd, zeroes, page, 0) != (ssize_t)page;
	}
	close(fd);
	return ret ? bid_fail("a hole: %s", strerror(errno)) : 0;
}

static int cut(__u8 id)
{
	(void)id;
	return truncate(place.path, 0) ? bid_fail("truncate: %s", strerror(errno)) : 0;
}

static const struct change {
	const char	*name;
	int		(*change)(__u8 id);
	bool		takes;		/* the ID away: the file is to be made anew */
	bool		named;		/* what has no name cannot be replaced */
	bool		elsewhere;
} changes[] = {
	{ .name = "a write", .change = write_id },
	{ .name = "a write elsewhere", .change = write_id, .elsewhere = true },
	{ .name = "a write to a mapping", .change = write_mapped },
	{ .name = "a write to a mapping elsewhere", .change = write_mapped, .elsewhere = true },
	{ .name = "truncating and writing", .change = cut_and_write },
	{ .name = "opening with O_TRUNC", .change = write_other },
	{ .name = "rename", .change = replace, .named = true },
	{ .name = "unlink", .change = remove_and_make, .named = true },
	{ .name = "a write and eviction", .change = write_and_evict },
	{ .name = "punching a hole", .change = punch, .takes = true },
	{ .name = "truncating", .change = cut, .takes = true },
};

static int make_anew(__u8 id)
{
	return write_file(place.path, 0, id);
}

static int change(const struct change *c, struct bid_event *e, struct seen *seen)
{
	__u8 id = seen->id % 200 + 1;
	int ret;

	seen->after = c->name;
	ret = c->elsewhere ? in_another_process(c->change, id) : c->change(id);
	seen->id = c->takes ? 0 : id;
	if (ret || look(e, seen))
		return -1;
	if (!c->takes)
		return 0;
	seen->id = id;
	return make_anew(id) || look(e, seen);
}

static unsigned int random_number(void)
{
	static unsigned int nr = 1;

	nr = nr * 1103515245 + 12345;
	return nr >> 16;
}

/* What is known is from before the change, at times. */
static int remember(struct bid_event *e, struct seen *seen)
{
	usleep(SETTLED_US);
	return look(e, seen) || look(e, seen);
}

/* Whether the kernel remembers files there. */
static bool is_remembered(enum where where)
{
	return where != BESIDE && where != MEMFD;
}

/* Whether it does, or can look at the file when there is a sample. */
static bool can_be_known(enum where where, bool defer)
{
	return is_remembered(where) || defer || !bid_preempt_rt();
}

TEST_F_TIMEOUT(fresh, changed_in_every_way, 4 * BID_TIMEOUT_S)
{
	const char *wanted = getenv("BID_CHANGES");
	unsigned int nr = wanted ? strtoul(wanted, NULL, 0) : 30;
	struct seen *seen = &self->seen;

	*seen = (struct seen){ .id = 1, .strict = variant->defer, .after = "nothing" };
	ASSERT_EQ(0, map_file()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, remember(self->e, seen)) TH_LOG("%s", bid_error);
	for (unsigned int i = 0; i < nr; i++) {
		/* all of them in turn, and then any */
		unsigned int which = i < BID_ARRAY_SIZE(changes) ? i : random_number();
		const struct change *c = &changes[which % BID_ARRAY_SIZE(changes)];

		if (c->named && variant->where == MEMFD)
			continue;
		ASSERT_EQ(0, change(c, self->e, seen)) TH_LOG("%s", bid_error);
		if (i < BID_ARRAY_SIZE(changes) || random_number() % 2)
			ASSERT_EQ(0, remember(self->e, seen)) TH_LOG("%s", bid_error);
	}
	TH_LOG("%lu frames, %lu resolved, %lu could not be looked up", seen->frames,
	       seen->resolved, seen->unresolved);
	EXPECT_TRUE(can_be_known(variant->where, variant->defer) ? seen->resolved > nr :
		    !seen->resolved) TH_LOG("%lu resolved", seen->resolved);
}

/* Who has mapped the file can change it at any time. */
TEST_F_TIMEOUT(fresh, changed_while_mapped, BID_TIMEOUT_S)
{
	struct seen *seen = &self->seen;
	unsigned long mapped;
	char *shared;

	*seen = (struct seen){ .id = 1, .strict = variant->defer, .after = "nothing" };
	ASSERT_EQ(0, map_file()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, remember(self->e, seen)) TH_LOG("%s", bid_error);
	shared = map_shared();
	ASSERT_NE(MAP_FAILED, shared);
	seen->after = "a write to what stays mapped";
	mapped = seen->resolved;
	EXPECT_TRUE(mapped || !is_remembered(variant->where));
	for (int i = 0; i < 10; i++) {
		if (i % 2)
			ASSERT_EQ(0, remember(self->e, seen)) TH_LOG("%s", bid_error);
		seen->id = i + 2;
		memset(shared + id_at(), seen->id, BID_SIZE_MAX);
		ASSERT_EQ(0, look(self->e, seen)) TH_LOG("%s", bid_error);
	}
	mapped = seen->resolved - mapped;
	munmap(shared, page);
	ASSERT_EQ(0, remember(self->e, seen)) TH_LOG("%s", bid_error);
	/* meanwhile the file is remembered nowhere */
	EXPECT_TRUE(can_be_known(MEMFD, variant->defer) ? seen->resolved > 10 : !mapped)
		TH_LOG("%lu resolved, %lu while it was mapped", seen->resolved, mapped);
}

/* What is kept in debugfs; -1: the kernel does not say. */
static long debug_value(const char *file, const char *name)
{
	char path[PATH_MAX], line[128];
	long value = -1, read;
	FILE *f;

	if (access(DEBUG, F_OK))
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	snprintf(path, sizeof(path), DEBUG "%s", file);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)) &&
		    sscanf(line + strlen(name), " %ld", &read) == 1)
			value = read;
	if (f)
		fclose(f);
	return value;
}

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len = write(fd, text, strlen(text));

	close(fd);
	return len > 0 ? 0 : bid_fail("%s: %s", path, strerror(errno));
}

static bool is_cached(enum where where)
{
	return is_remembered(where) && debug_value("counters", "hits") >= 0;
}

/* Known at the first sample, and from what was remembered when it was mapped. */
TEST_F_TIMEOUT(fresh, comes_from_the_cache, BID_TIMEOUT_S)
{
	struct seen *seen = &self->seen;
	long hits, left;

	if (!is_cached(variant->where))
		SKIP(return, "not remembered here");
	*seen = (struct seen){ .id = 1, .strict = true, .after = "nothing" };
	usleep(SETTLED_US);
	ASSERT_EQ(0, map_file()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, write_text(DEBUG "counters", "1")) TH_LOG("%s", bid_error);
	hits = debug_value("counters", "hits");
	left = debug_value("counters", "left_to_reader");
	for (int i = 0; i < 20; i++)
		ASSERT_EQ(0, look(self->e, seen)) TH_LOG("%s", bid_error);
	hits = debug_value("counters", "hits") - hits;
	left = debug_value("counters", "left_to_reader") - left;
	EXPECT_EQ(0, write_text(DEBUG "counters", "0")) TH_LOG("%s", bid_error);
	TH_LOG("%lu frames, %ld found in the cache, %ld not", seen->frames, hits, left);
	/* a deferred callchain is resolved once, for all events */
	EXPECT_GE(variant->defer ? EVENTS * hits : hits, (long)seen->frames);
}

/* A file system goes while events are there that know its files. */
TEST_F_TIMEOUT(fresh, is_unmounted, BID_TIMEOUT_S)
{
	struct seen *seen = &self->seen;

	if (variant->where == BESIDE || variant->where == MEMFD)
		SKIP(return, "not a file system of its own");
	*seen = (struct seen){ .id = 1, .strict = variant->defer, .after = "nothing" };
	ASSERT_EQ(0, map_file()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, remember(self->e, seen)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, unmap_file());
	EXPECT_EQ(0, unmount()) TH_LOG("%s", bid_error);
}

/* Memory is given back when it is asked for, and what was known is learnt anew. */
TEST_F_TIMEOUT(fresh, gives_memory_back, BID_TIMEOUT_S)
{
	struct seen *seen = &self->seen;

	if (!is_cached(variant->where))
		SKIP(return, "not remembered here");
	*seen = (struct seen){ .id = 1, .strict = variant->defer, .after = "nothing" };
	for (int i = 0; i < 3; i++) {
		/* a mapping that was there before may be remembered without */
		ASSERT_EQ(0, map_file()) TH_LOG("%s", bid_error);
		ASSERT_EQ(0, remember(self->e, seen)) TH_LOG("%s", bid_error);
		EXPECT_GT(debug_value("state", "cache_chunks"), 0);
		/* a tick in a library would have that remembered again */
		ASSERT_EQ(0, bid_event_disable(&self->e[CLOCK])) TH_LOG("%s", bid_error);
		ASSERT_EQ(0, write_text("/proc/sys/vm/drop_caches", "2")) TH_LOG("%s", bid_error);
		EXPECT_EQ(0, debug_value("state", "cache_chunks"));
		ASSERT_EQ(0, bid_event_enable(&self->e[CLOCK])) TH_LOG("%s", bid_error);
		seen->after = "dropping caches";
		ASSERT_EQ(0, look(self->e, seen)) TH_LOG("%s", bid_error);
		ASSERT_EQ(0, unmap_file());
	}
}

/* A disk that does not answer: behind the file system there is nothing for a while. */

static int lose_image(char *saved, size_t size)
{
	int fd = open(place.path, O_RDONLY | O_CLOEXEC);

	sync();
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	if (pread(place.image, saved, size, 0) != (ssize_t)size || ftruncate(place.image, 0))
		return bid_fail("the image: %s", strerror(errno));
	return 0;
}

static int restore_image(const char *saved, size_t size)
{
	return pwrite(place.image, saved, size, 0) == (ssize_t)size ? 0 :
	       bid_fail("the image: %s", strerror(errno));
}

/* Samples the file again and again, for so long and so often, or until it is resolved. */
static int look_for(struct bid_event *e, struct seen *seen, unsigned int ms, unsigned long frames)
{
	__u64 end = bid_now_ns() + ms * 1000000ull;

	while ((bid_now_ns() < end || seen->frames < frames) && !seen->resolved) {
		if (look(e, seen))
			return -1;
		usleep(5000);
	}
	return 0;
}

/* What cannot be read is not read for each sample, and found when it can be. */
TEST_F_TIMEOUT(fresh, is_left_alone_while_it_cannot_be_read, BID_TIMEOUT_S)
{
	const size_t size = EXT4_SIZE;
	struct seen *seen = &self->seen;
	char *saved = malloc(size);
	__u64 start;
	long tries;

	if (variant->where != EXT4 || variant->defer || !is_cached(variant->where))
		SKIP(return, "nothing is behind it, or each callchain has to be resolved");
	ASSERT_TRUE(!!saved);
	*seen = (struct seen){ .id = 1, .after = "the disk has gone" };
	usleep(SETTLED_US);
	ASSERT_EQ(0, lose_image(saved, size)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, write_text(DEBUG "counters", "1")) TH_LOG("%s", bid_error);
	tries = debug_value("counters", "unreadable");
	start = bid_now_ns();
	ASSERT_EQ(0, map_file()) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, look_for(self->e, seen, 500, 10)) TH_LOG("%s", bid_error);
	tries = debug_value("counters", "unreadable") - tries;
	TH_LOG("%lu frames, none resolved, %ld tries", seen->frames, tries);
	EXPECT_EQ(0, seen->resolved);
	EXPECT_GE(tries, 1);
	/* one now, one a second later */
	EXPECT_LE(tries, 1 + (long)((bid_now_ns() - start) / 1000000000));

	seen->after = "the disk has come back";
	EXPECT_EQ(0, restore_image(saved, size)) TH_LOG("%s", bid_error);
	start = bid_now_ns();
	EXPECT_EQ(0, look_for(self->e, seen, 1000 * BID_DEADLINE_S, 1)) TH_LOG("%s", bid_error);
	TH_LOG("resolved after %llu ms", (bid_now_ns() - start) / 1000000);
	EXPECT_GE(seen->resolved, 1);
	EXPECT_EQ(0, write_text(DEBUG "counters", "0")) TH_LOG("%s", bid_error);
	free(saved);
}

/* The mapping is write-locked: the task itself is about to unlock it. */
TEST_F_TIMEOUT(fresh, is_known_while_the_mapping_is_changed, BID_TIMEOUT_S)
{
	struct seen *seen = &self->seen;
	struct perf_event_attr attr;
	struct bid_event e;
	int ret;

	if (!is_cached(variant->where) || variant->defer)
		SKIP(return, "not remembered here, or looked at later");
	ret = bid_attr_tracepoint(&attr, "mmap_lock/mmap_lock_released", BID_CHAIN);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	if (bid_preempt_rt())
		SKIP(return, "locks do not tell who has them");
	*seen = (struct seen){ .id = 1, .after = "nothing" };
	ASSERT_EQ(0, map_file()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, remember(self->e, seen)) TH_LOG("%s", bid_error);

	*seen = (struct seen){ .id = 1, .strict = true, .after = "a change of the mapping" };
	attr.exclude_callchain_kernel = 1;
	ASSERT_EQ(0, bid_event_open(&e, &attr, 0, -1, -1, BID_RING_PAGES)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, ioctl(e.fd, PERF_EVENT_IOC_SET_FILTER, "write == 1"));
	EXPECT_EQ(0, bid_event_enable(&e)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 10; i++) {
		struct judge judge = { .attr = &attr, .seen = seen };
		pid_t pid = call_from_file(__NR_fork, 0, 0, 0);

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
		EXPECT_EQ(0, call_from_file(__NR_mprotect, (long)map, PAGES * page,
					    i % 2 ? PROT_READ | PROT_EXEC : PROT_READ));
		ASSERT_EQ(0, bid_drain(&e, judge_record, &judge)) TH_LOG("%s", bid_error);
	}
	bid_event_close(&e);
	TH_LOG("%lu frames, all resolved", seen->frames);
	/* two address spaces, and one */
	EXPECT_GE(seen->frames, 30);
}

/* A program that nobody has sampled before */

struct start {
	const struct bid_map	*code;
	unsigned long		frames, resolved;
};

static int each_of_start(const struct bid_sample *s, void *arg)
{
	struct start *start = arg;
	const struct perf_sample_build_id_offset *e = s->bid;

	if (s->ip < start->code->start || s->ip >= start->code->end)
		return 0;
	start->frames++;
	start->resolved += e->build_id.status == PERF_BUILD_ID_OFFSET_RESOLVED;
	if (start->frames != start->resolved)
		return bid_fail("frame %lu has status %u", start->frames, e->build_id.status);
	return 0;
}

TEST_F_TIMEOUT(fresh, knows_a_new_program, BID_TIMEOUT_S)
{
	struct bid_check check = { .each = each_of_start, .flags = BID_LOOSE };
	static struct bid_maps maps;
	struct perf_event_attr attr;
	struct start start = {};
	char path[PATH_MAX];
	struct bid_child c;
	struct bid_event e;
	long hits;
	int fd;

	if (!is_cached(variant->where))
		SKIP(return, "not remembered here");
	ASSERT_EQ(0, bid_helper_path(path, sizeof(path), "bid_sha1")) TH_LOG("%s", bid_error);
	fd = open_file(place.path, O_TRUNC);
	ASSERT_EQ(0, bid_copy_file(fd, path)) TH_LOG("%s", bid_error);
	fdatasync(fd);
	close(fd);
	usleep(SETTLED_US);
	ASSERT_EQ(0, bid_child_fork(&c, place.path, -1, NULL)) TH_LOG("%s", bid_error);
	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, BID_IP | PERF_SAMPLE_IP | PERF_SAMPLE_TID);
	attr.disabled = 0;
	ASSERT_EQ(0, write_text(DEBUG "counters", "1")) TH_LOG("%s", bid_error);
	hits = debug_value("counters", "hits");
	EXPECT_EQ(0, bid_event_open(&e, &attr, c.pid, -1, -1, 256)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, write_text("/proc/sys/vm/drop_caches", "3")) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_child_exec(&c)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_maps_read(&maps, c.pid)) TH_LOG("%s", bid_error);
	start.code = bid_maps_exec(&maps, "file");
	check.attr = &e.attr;
	check.maps = &maps;
	check.pid = c.pid;
	check.each_arg = &start;
	EXPECT_TRUE(!!start.code);
	for (int i = 0; start.code && i < 100 && start.frames < 100; i++) {
		usleep(50000);
		EXPECT_EQ(0, bid_drain(&e, bid_check_record, &check)) TH_LOG("%s", bid_error);
	}
	EXPECT_EQ(0, bid_event_disable(&e)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_drain(&e, bid_check_record, &check)) TH_LOG("%s", bid_error);
	hits = debug_value("counters", "hits") - hits;
	EXPECT_EQ(0, write_text(DEBUG "counters", "0")) TH_LOG("%s", bid_error);
	TH_LOG("%lu samples in the program, %lu resolved, %ld from what was remembered",
	       start.frames, start.resolved, hits);
	EXPECT_GT(start.frames, 0);
	EXPECT_EQ(start.frames, start.resolved);
	/* all of them, the first one included: nobody was asked for the file */
	EXPECT_GE(hits, (long)start.frames);
	bid_event_close(&e);
	bid_child_kill(&c);
}

#else

TEST(no_callchains)
{
	SKIP(return, "callchains are only made up on x86-64");
}

#endif

TEST_HARNESS_MAIN
