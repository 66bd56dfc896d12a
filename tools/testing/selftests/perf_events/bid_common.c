// SPDX-License-Identifier: GPL-2.0
/*
 * Events, rings, maps, loads and children for the bid_* tests; the parser and
 * the check of samples are in bid_check.c.
 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bid_common.h"

char bid_error[512];

int bid_fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(bid_error, sizeof(bid_error), fmt, args);
	va_end(args);
	return -1;
}

/*
 * Both bits refused with EINVAL where the same attr without them is accepted:
 * a kernel without the feature. Anything else that fails is a failure.
 */
int bid_ready(void)
{
	struct perf_event_attr attr;
	int base, ip, chain;

	if (geteuid()) {
		bid_fail("needs root");
		return 1;
	}

	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_TID);
	if (access("/proc/sys/kernel/perf_event_paranoid", F_OK)) {
		bid_fail("the kernel has no perf events");
		return 1;
	}
	base = bid_open_errno(&attr, 0, -1, -1);
	if (base)
		return bid_fail("an ordinary event does not open: %s", strerror(base));

	attr.sample_type = PERF_SAMPLE_TID | BID_IP;
	ip = bid_open_errno(&attr, 0, -1, -1);
	attr.sample_type = PERF_SAMPLE_TID | BID_CHAIN;
	chain = bid_open_errno(&attr, 0, -1, -1);
	if (ip == EINVAL && chain == EINVAL) {
		bid_fail("the kernel has no CONFIG_PERF_BUILD_ID_OFFSET");
		return 1;
	}
	if (ip || chain)
		return bid_fail("BUILD_ID_OFFSET gives %d, CALLCHAIN_BUILD_ID_OFFSET %d",
				ip, chain);
	return 0;
}

bool bid_preempt_rt(void)
{
	struct utsname name;

	return !uname(&name) && strstr(name.version, "PREEMPT_RT");
}

/* Events */

void bid_attr_init(struct perf_event_attr *attr, __u64 config, __u64 sample_type)
{
	memset(attr, 0, sizeof(*attr));
	attr->type = PERF_TYPE_SOFTWARE;
	attr->size = sizeof(*attr);
	attr->config = config;
	attr->sample_type = sample_type;
	attr->disabled = 1;
	if (config == PERF_COUNT_SW_CPU_CLOCK || config == PERF_COUNT_SW_TASK_CLOCK)
		attr->sample_period = BID_PERIOD_NS;
	else
		attr->sample_period = 1;
}

void bid_attr_apart(struct perf_event_attr *attr)
{
	if (!BID_REGS_ALL)
		return;
	attr->sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_CPU;
	attr->sample_regs_user = BID_REGS_ALL;
}

/* name is "sched/sched_switch"; 1 if there is no such tracepoint. */
int bid_attr_tracepoint(struct perf_event_attr *attr, const char *name, __u64 sample_type)
{
	char path[PATH_MAX], text[32] = "";
	ssize_t len;
	int fd;

	if (access("/sys/kernel/tracing/events", F_OK))
		mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	snprintf(path, sizeof(path), "/sys/kernel/tracing/events/%s/id", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		bid_fail("no tracepoint %s: %s", name, strerror(errno));
		return 1;
	}
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return bid_fail("%s: unreadable", path);

	bid_attr_init(attr, strtoull(text, NULL, 10), sample_type);
	attr->type = PERF_TYPE_TRACEPOINT;
	attr->sample_period = 1;
	return 0;
}

int bid_open(const struct perf_event_attr *attr, pid_t pid, int cpu, int group_fd)
{
	return syscall(__NR_perf_event_open, attr, pid, cpu, group_fd, PERF_FLAG_FD_CLOEXEC);
}

int bid_open_errno(const struct perf_event_attr *attr, pid_t pid, int cpu, int group_fd)
{
	int fd = bid_open(attr, pid, cpu, group_fd);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

int bid_event_open(struct bid_event *e, const struct perf_event_attr *attr,
		   pid_t pid, int cpu, int group_fd, size_t pages)
{
	int fd = bid_open(attr, pid, cpu, group_fd);

	if (fd < 0)
		return bid_fail("perf_event_open(sample_type %#llx, pid %d, cpu %d): %s",
				(unsigned long long)attr->sample_type, pid, cpu, strerror(errno));
	return bid_event_from_fd(e, attr, fd, pages);
}

/* Takes over fd; no ring if pages is 0. */
int bid_event_from_fd(struct bid_event *e, const struct perf_event_attr *attr,
		      int fd, size_t pages)
{
	size_t page_size = sysconf(_SC_PAGESIZE);
	int prot = PROT_READ | (attr->write_backward ? 0 : PROT_WRITE);

	memset(e, 0, sizeof(*e));
	e->attr = *attr;
	e->fd = fd;
	if (ioctl(e->fd, PERF_EVENT_IOC_ID, &e->id))
		return bid_fail("PERF_EVENT_IOC_ID: %s", strerror(errno));
	if (!pages)
		return 0;

	e->data_size = pages * page_size;
	e->page = mmap(NULL, e->data_size + page_size, prot, MAP_SHARED, e->fd, 0);
	if (e->page == MAP_FAILED) {
		e->page = NULL;
		return bid_fail("mmap of the ring: %s", strerror(errno));
	}
	return 0;
}

void bid_event_close(struct bid_event *e)
{
	if (e->page)
		munmap(e->page, e->data_size + sysconf(_SC_PAGESIZE));
	if (e->fd > 0)
		close(e->fd);
	e->page = NULL;
	e->fd = -1;
}

int bid_event_enable(struct bid_event *e)
{
	return ioctl(e->fd, PERF_EVENT_IOC_ENABLE, 0) ?
	       bid_fail("PERF_EVENT_IOC_ENABLE: %s", strerror(errno)) : 0;
}

int bid_event_disable(struct bid_event *e)
{
	return ioctl(e->fd, PERF_EVENT_IOC_DISABLE, 0) ?
	       bid_fail("PERF_EVENT_IOC_DISABLE: %s", strerror(errno)) : 0;
}

static void ring_copy(const struct bid_event *e, __u64 pos, void *to, size_t len)
{
	const char *data = (const char *)e->page + e->page->data_offset;
	size_t at = pos % e->data_size;
	size_t first = len < e->data_size - at ? len : e->data_size - at;

	memcpy(to, data + at, first);
	memcpy((char *)to + first, data, len - first);
}

/* Hands every record to fn, whole and in one piece; stops where fn fails. */
int bid_drain(struct bid_event *e, bid_record_fn fn, void *arg)
{
	static __u64 record[65536 / sizeof(__u64)];
	struct perf_event_header *hdr = (void *)record;
	__u64 head = __atomic_load_n(&e->page->data_head, __ATOMIC_ACQUIRE);
	__u64 tail = e->page->data_tail;
	int ret = 0;

	if (head - tail > e->data_size)
		return bid_fail("%llu bytes in a ring of %zu",
				(unsigned long long)(head - tail), e->data_size);

	while (!ret && tail < head) {
		ring_copy(e, tail, hdr, sizeof(*hdr));
		if (hdr->size < sizeof(*hdr) || hdr->size % 8 || hdr->size > head - tail)
			return bid_fail("record of type %u has size %u, %llu are left",
					hdr->type, hdr->size,
					(unsigned long long)(head - tail));
		ring_copy(e, tail, record, hdr->size);
		tail += hdr->size;
		ret = fn(hdr, arg);
	}
	__atomic_store_n(&e->page->data_tail, tail, __ATOMIC_RELEASE);
	return ret;
}

__u64 bid_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static int collect_pass(struct bid_event *e, size_t nr, bid_record_fn fn, void *arg)
{
	for (size_t i = 0; i < nr; i++)
		if (bid_drain(&e[i], fn, arg))
			return -1;
	return 0;
}

int bid_collect_fn(struct bid_event *e, size_t nr, bid_record_fn fn, void *fn_arg,
		   void (*load)(void *arg), void *arg,
		   const unsigned long *counter, unsigned long want)
{
	__u64 deadline = bid_now_ns() + BID_DEADLINE_S * 1000000000ull;

	for (size_t i = 0; i < nr; i++)
		if (bid_event_enable(&e[i]))
			return -1;
	while (*counter < want) {
		load(arg);
		if (collect_pass(e, nr, fn, fn_arg))
			return -1;
		if (*counter < want && bid_now_ns() > deadline)
			return bid_fail("%lu of %lu after %d s", *counter, want, BID_DEADLINE_S);
	}
	for (size_t i = 0; i < nr; i++)
		if (bid_event_disable(&e[i]))
			return -1;
	return collect_pass(e, nr, fn, fn_arg);
}

int bid_collect_many(struct bid_event *e, size_t nr, struct bid_check *c,
		     void (*load)(void *arg), void *arg,
		     const unsigned long *counter, unsigned long want)
{
	return bid_collect_fn(e, nr, bid_check_record, c, load, arg, counter, want);
}

int bid_collect(struct bid_event *e, struct bid_check *c, void (*load)(void *arg),
		void *arg, const unsigned long *counter, unsigned long want)
{
	return bid_collect_many(e, 1, c, load, arg, counter, want);
}

/* Build IDs */

static int note_build_id(const __u8 *note, size_t size, size_t align, __u8 *id)
{
	while (size >= sizeof(Elf64_Nhdr)) {
		const Elf64_Nhdr *hdr = (const void *)note;
		size_t name = (hdr->n_namesz + align - 1) & ~(align - 1);
		size_t desc = (hdr->n_descsz + align - 1) & ~(align - 1);
		const __u8 *data = note + sizeof(*hdr);

		if (name > size - sizeof(*hdr) || hdr->n_descsz > size - sizeof(*hdr) - name)
			return 0;
		if (hdr->n_type == NT_GNU_BUILD_ID && hdr->n_namesz == sizeof("GNU") &&
		    !memcmp(data, "GNU", sizeof("GNU")) &&
		    hdr->n_descsz && hdr->n_descsz <= BID_SIZE_MAX) {
			memcpy(id, data + name, hdr->n_descsz);
			return hdr->n_descsz;
		}
		if (sizeof(*hdr) + name + desc > size)
			return 0;
		note += sizeof(*hdr) + name + desc;
		size -= sizeof(*hdr) + name + desc;
	}
	return 0;
}

static bool phdr_read(const __u8 *image, size_t size, size_t i, Elf64_Phdr *ph)
{
	const Elf64_Ehdr *eh = (const void *)image;
	const Elf32_Ehdr *eh32 = (const void *)image;
	bool is64 = eh->e_ident[EI_CLASS] == ELFCLASS64;
	size_t entry = is64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
	size_t base = is64 ? eh->e_phoff : eh32->e_phoff;
	size_t nr = is64 ? eh->e_phnum : eh32->e_phnum;
	const Elf32_Phdr *ph32;

	if (i >= nr || base > size || (size - base) / entry <= i)
		return false;
	if (is64) {
		memcpy(ph, image + base + i * entry, entry);
		return true;
	}
	ph32 = (const void *)(image + base + i * entry);
	ph->p_type = ph32->p_type;
	ph->p_offset = ph32->p_offset;
	ph->p_filesz = ph32->p_filesz;
	ph->p_align = ph32->p_align;
	return true;
}

int bid_image_build_id(const void *image, size_t size, __u8 *id)
{
	const Elf64_Ehdr *eh = image;
	Elf64_Phdr ph;
	int ret;

	memset(id, 0, BID_SIZE_MAX);
	if (size < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG) ||
	    (eh->e_type != ET_EXEC && eh->e_type != ET_DYN))
		return 0;

	for (size_t i = 0; phdr_read(image, size, i, &ph); i++) {
		if (ph.p_type != PT_NOTE || ph.p_offset > size || ph.p_filesz > size - ph.p_offset)
			continue;
		ret = note_build_id((const __u8 *)image + ph.p_offset, ph.p_filesz,
				    ph.p_align == 8 ? 8 : 4, id);
		if (ret)
			return ret;
	}
	return 0;
}

int bid_file_build_id(int fd, __u8 *id)
{
	struct stat st;
	void *image;
	int ret;

	memset(id, 0, BID_SIZE_MAX);
	if (fstat(fd, &st))
		return bid_fail("fstat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return 0;
	image = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (image == MAP_FAILED)
		return bid_fail("mmap of a file: %s", strerror(errno));
	ret = bid_image_build_id(image, st.st_size, id);
	munmap(image, st.st_size);
	return ret;
}

/* Maps */

static int maps_text(pid_t pid, char *text, size_t size)
{
	char path[64];
	size_t len = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return bid_fail("%s: %s", path, strerror(errno));
	while ((n = read(fd, text + len, size - 1 - len)) > 0)
		len += n;
	close(fd);
	text[len] = '\0';
	if (n < 0 || len == size - 1)
		return bid_fail("%s: too long or unreadable", path);
	return 0;
}

static enum bid_map_kind map_kind(const struct bid_map *m)
{
	if (!strcmp(m->path, "[vdso]"))
		return BID_MAP_VDSO;
	if (!strncmp(m->path, "[vvar", 5) || !strcmp(m->path, "[vsyscall]") ||
	    !strcmp(m->path, "[uprobes]"))
		return BID_MAP_SPECIAL;
	if (!strncmp(m->path, "/dev/zero", 9) || !strncmp(m->path, "[anon_shmem", 11))
		return BID_MAP_SHARED_ANON;
	return m->inode ? BID_MAP_FILE : BID_MAP_ANON;
}

/* Through map_files where that works: it finds deleted files and memfds too. */
static int map_build_id(struct bid_map *m, pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", pid,
		 (unsigned long long)m->start, (unsigned long long)m->end);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		fd = open(m->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return bid_fail("%s: %s", m->path, strerror(errno));
	m->id_size = bid_file_build_id(fd, m->id);
	close(fd);
	return m->id_size < 0 ? -1 : 0;
}

static int map_fill(struct bid_maps *maps, struct bid_map *m, pid_t pid)
{
	m->kind = map_kind(m);
	if (m->kind == BID_MAP_VDSO) {
		/* the same image in every process of our kind */
		m->id_size = bid_image_build_id((void *)getauxval(AT_SYSINFO_EHDR),
						m->end - m->start, m->id);
		return 0;
	}
	if (m->kind != BID_MAP_FILE || !strncmp(m->path, "anon_inode:", 11))
		return 0;

	for (struct bid_map *o = maps->map; o < m; o++) {
		if (o->kind == BID_MAP_FILE && o->inode == m->inode &&
		    o->major == m->major && o->minor == m->minor) {
			m->id_size = o->id_size;
			memcpy(m->id, o->id, sizeof(m->id));
			return 0;
		}
	}
	return map_build_id(m, pid);
}

int bid_maps_read(struct bid_maps *maps, pid_t pid)
{
	static char text[1 << 18];
	char *line, *save = NULL;

	maps->nr = 0;
	pid = pid ?: getpid();
	if (maps_text(pid, text, sizeof(text)))
		return -1;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		struct bid_map *m = &maps->map[maps->nr];
		char perms[5] = "";

		if (maps->nr == BID_MAPS_MAX)
			return bid_fail("more than %d maps", BID_MAPS_MAX);
		memset(m, 0, sizeof(*m));
		if (sscanf(line, "%llx-%llx %4s %llx %x:%x %lu %127[^\n]", &m->start, &m->end,
			   perms, &m->offset, &m->major, &m->minor, &m->inode, m->path) < 7)
			return bid_fail("no map: %s", line);
		m->exec = perms[2] == 'x';
		maps->nr++;
	}
	for (size_t i = 0; i < maps->nr; i++)
		if (map_fill(maps, &maps->map[i], pid))
			return -1;
	return 0;
}

const struct bid_map *bid_maps_find(const struct bid_maps *maps, __u64 addr)
{
	for (size_t i = 0; i < maps->nr; i++)
		if (addr >= maps->map[i].start && addr < maps->map[i].end)
			return &maps->map[i];
	return NULL;
}

const struct bid_map *bid_maps_exec(const struct bid_maps *maps, const char *name)
{
	for (size_t i = 0; i < maps->nr; i++)
		if (maps->map[i].exec && strstr(maps->map[i].path, name))
			return &maps->map[i];
	return NULL;
}

/* Loads */

/* Each leaves something to do after the call: a frame of its own. */
static unsigned long load_calls;

static void load_inner(unsigned long n)
{
	bid_spin(n);
	load_calls++;
}

static void load_middle(unsigned long n)
{
	load_inner(n);
	load_calls++;
}

static void load_outer(unsigned long n)
{
	load_middle(n);
	load_calls++;
}

void bid_load_user(void *arg)
{
	(void)arg;
	for (int i = 0; i < 16; i++)
		load_outer(20000);
}

void bid_load_kernel(void *arg)
{
	static char buf[16384];
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	(void)arg;
	for (int i = 0; i < 16; i++) {
		load_outer(20000);
		if (fd >= 0 && read(fd, buf, sizeof(buf)) > 0)
			load_calls++;
	}
	if (fd >= 0)
		close(fd);
}

void bid_load_faults(void *arg)
{
	size_t page = sysconf(_SC_PAGESIZE), nr = 16;
	char *p = mmap(NULL, nr * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)arg;
	if (p == MAP_FAILED)
		return;
	madvise(p, nr * page, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < nr; i++)
		p[i * page] = 1;
	munmap(p, nr * page);
}

void bid_load_sleep(void *arg)
{
	(void)arg;
	for (int i = 0; i < 8; i++) {
		load_outer(100);
		usleep(50);
	}
}

/* Children */

int bid_helper_path(char *path, size_t size, const char *name)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (len < 0)
		return bid_fail("/proc/self/exe: %s", strerror(errno));
	self[len] = '\0';
	if ((size_t)snprintf(path, size, "%s/%s", dirname(self), name) >= size)
		return bid_fail("the path of %s is too long", name);
	if (access(path, R_OK))
		return bid_fail("%s: %s", path, strerror(errno));
	return 0;
}

/* In the child: waits for the word, then becomes the program. */
static void child_main(const char *path, int exec_fd, const char *next, int go, int ready)
{
	char fd_text[16], byte;
	char *argv[4] = { "bid_prog", fd_text, (char *)next, NULL };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(fd_text, sizeof(fd_text), "%d", ready);
	if (read(go, &byte, 1) != 1)
		_exit(1);
	if (path)
		execv(path, argv);
	else
		fexecve(exec_fd, argv, environ);
	_exit(2);
}

int bid_child_fork(struct bid_child *c, const char *path, int exec_fd, const char *next)
{
	int go[2], ready[2];

	if (pipe2(go, O_CLOEXEC) || pipe(ready))
		return bid_fail("pipe: %s", strerror(errno));
	c->pid = fork();
	if (c->pid < 0)
		return bid_fail("fork: %s", strerror(errno));
	if (!c->pid) {
		close(go[1]);
		close(ready[0]);
		child_main(path, exec_fd, next, go[0], ready[1]);
	}
	close(go[0]);
	close(ready[1]);
	c->go = go[1];
	c->ready = ready[0];
	return 0;
}

int bid_child_wait_ready(struct bid_child *c)
{
	char byte;

	if (read(c->ready, &byte, 1) != 1)
		return bid_fail("the child program did not start");
	return 0;
}

int bid_child_exec(struct bid_child *c)
{
	if (write(c->go, "", 1) != 1)
		return bid_fail("the child is gone");
	return bid_child_wait_ready(c);
}

void bid_child_kill(struct bid_child *c)
{
	if (c->pid <= 0)
		return;
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->go);
	close(c->ready);
	c->pid = 0;
}

int bid_copy_file(int to, const char *from)
{
	char buf[65536];
	int fd = open(from, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return bid_fail("%s: %s", from, strerror(errno));
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		if (write(to, buf, n) != n)
			break;
	close(fd);
	return n ? bid_fail("copying %s: %s", from, strerror(errno)) : 0;
}

/* What the kernel says that there is because of events */

#define STATE_PATH "/sys/kernel/debug/perf_build_id_offset/state"

static ssize_t read_state(char *text, size_t size)
{
	ssize_t len;
	int fd = open(STATE_PATH, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return bid_fail("%s: %s", STATE_PATH, strerror(errno));
	len = read(fd, text, size - 1);
	close(fd);
	text[len > 0 ? len : 0] = '\0';
	return len > 0 ? len : bid_fail("%s: unreadable", STATE_PATH);
}

/* The last of an event goes a moment after its file. */
int bid_state_zero(void)
{
	__u64 deadline = bid_now_ns() + BID_DEADLINE_S * 1000000000ull;
	char text[512], *value;

	if (access(STATE_PATH, F_OK))
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (access(STATE_PATH, F_OK))
		return 0;
	for (;;) {
		if (read_state(text, sizeof(text)) < 0)
			return -1;
		value = strpbrk(text, "123456789");
		if (!value)
			return 0;
		if (bid_now_ns() > deadline)
			return bid_fail("something is left:\n%s", text);
		usleep(20000);
	}
}

/* Sysctls */

#define SYSCTLS_MAX 8

static struct {
	char	name[64];
	long	value;
} sysctls_saved[SYSCTLS_MAX];

static int sysctls_nr;
static pid_t sysctls_owner;

int bid_sysctl_get(const char *name, long *value)
{
	char path[128], text[32] = "";
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return bid_fail("%s: %s", path, strerror(errno));
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return bid_fail("%s: unreadable", path);
	*value = strtol(text, NULL, 10);
	return 0;
}

int bid_sysctl_set(const char *name, long value)
{
	char path[128], text[32];
	int fd, len, ret = 0;

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	len = snprintf(text, sizeof(text), "%ld\n", value);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, len) != len)
		ret = -errno;
	if (fd >= 0)
		close(fd);
	if (ret)
		bid_fail("%s = %ld: %s", path, value, strerror(-ret));
	return ret;
}

/*
 * The sysctl that sizes the callchain buffers is refused with EBUSY for as
 * long as an event uses them: writing back what it holds tells whether the
 * count has come back to zero. Buffers may be held on to for a moment.
 */
int bid_callchain_buffers_free(void)
{
	__u64 deadline = bid_now_ns() + BID_DEADLINE_S * 1000000000ull;
	long value;
	int ret;

	if (bid_sysctl_get("kernel/perf_event_max_stack", &value))
		return -1;
	do {
		ret = bid_sysctl_set("kernel/perf_event_max_stack", value);
		if (ret)
			usleep(10000);
	} while (ret == -EBUSY && bid_now_ns() < deadline);
	return ret;
}

static void sysctls_restore(void)
{
	long now;

	if (getpid() != sysctls_owner)
		return;
	for (int i = 0; i < sysctls_nr; i++)
		if (!bid_sysctl_get(sysctls_saved[i].name, &now) && now != sysctls_saved[i].value)
			for (int try = 0; try < 300; try++) {
				if (!bid_sysctl_set(sysctls_saved[i].name, sysctls_saved[i].value))
					break;
				usleep(10000);
			}
}

/*
 * Tests run in children that may be killed; what they change is put back by
 * the process that started them.
 */
__attribute__((constructor))
static void sysctls_save(void)
{
	static const char * const names[] = {
		"kernel/perf_event_max_contexts_per_stack",
		"kernel/perf_event_max_sample_rate",
		"kernel/perf_event_max_stack",
		"kernel/perf_event_paranoid",
	};

	sysctls_owner = getpid();
	for (size_t i = 0; i < BID_ARRAY_SIZE(names); i++) {
		if (bid_sysctl_get(names[i], &sysctls_saved[sysctls_nr].value))
			continue;
		snprintf(sysctls_saved[sysctls_nr++].name, sizeof(sysctls_saved[0].name),
			 "%s", names[i]);
	}
	atexit(sysctls_restore);
}

/* Asking for backtraces of all CPUs sends them an NMI. */
void *bid_thread_nmis(void *arg)
{
	int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);
	bool *stop = arg;

	while (fd >= 0 && !__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		if (write(fd, "l", 1) != 1)
			break;
		usleep(20000);
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

int bid_quiet_console(bool quiet)
{
	static char saved[64];
	int fd = open("/proc/sys/kernel/printk", O_RDWR | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return bid_fail("printk: %s", strerror(errno));
	if (quiet) {
		len = read(fd, saved, sizeof(saved) - 1);
		lseek(fd, 0, SEEK_SET);
		/* not errors: they are what the tests are there to show */
		len = len > 0 ? write(fd, "4", 1) : len;
	} else {
		len = write(fd, saved, strlen(saved));
	}
	close(fd);
	return len > 0 ? 0 : bid_fail("printk: %s", strerror(errno));
}

void *bid_thread_map_and_unmap(void *arg)
{
	size_t page = sysconf(_SC_PAGESIZE);
	bool *stop = arg;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		char *p = mmap(NULL, 16 * page, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			break;
		p[0] = 1;
		mprotect(p + page, page, PROT_READ);
		munmap(p, 16 * page);
	}
	return NULL;
}
