// SPDX-License-Identifier: GPL-2.0
/*
 * Who is sampled and where the sample is taken: tasks, CPUs, children that
 * inherit, programs that exec, threads, groups, kernel threads, and samples
 * from interrupts, exceptions, the scheduler and NMIs.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define ALL_FOUR (BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN)
#define WHO (PERF_SAMPLE_TID | PERF_SAMPLE_CPU)
#define CPUS_MAX 64
#define TASKS 4

static struct bid_maps maps;

/* Every CPU has an event and a ring of its own. */

struct cpus {
	struct bid_event	e[CPUS_MAX];
	size_t			nr;
};

static int cpus_open(struct cpus *cpus, const struct perf_event_attr *attr, pid_t pid)
{
	long conf = sysconf(_SC_NPROCESSORS_CONF);

	cpus->nr = 0;
	for (long cpu = 0; cpu < conf && cpus->nr < CPUS_MAX; cpu++) {
		if (bid_event_open(&cpus->e[cpus->nr], attr, pid, cpu, -1, BID_RING_PAGES)) {
			if (errno == ENODEV)	/* not online */
				continue;
			return -1;
		}
		cpus->nr++;
	}
	return cpus->nr ? 0 : bid_fail("no CPU");
}

static void cpus_close(struct cpus *cpus)
{
	for (size_t i = 0; i < cpus->nr; i++)
		bid_event_close(&cpus->e[i]);
	cpus->nr = 0;
}

/* How many samples each of a few tasks got. */
struct by_task {
	__u32		pid[TASKS];
	unsigned long	samples[TASKS];
	unsigned long	smallest;	/* of samples[] */
	bool		threads;
};

static int each_by_task(const struct bid_sample *s, void *arg)
{
	struct by_task *by = arg;
	__u32 id = by->threads ? s->tid : s->pid;

	by->smallest = ULONG_MAX;
	for (int i = 0; i < TASKS; i++) {
		by->samples[i] += by->pid[i] == id;
		if (by->samples[i] < by->smallest)
			by->smallest = by->samples[i];
	}
	return 0;
}

FIXTURE(target)
{
	struct perf_event_attr attr;
	struct bid_check check;
	struct bid_child child;
	struct cpus cpus;
};

FIXTURE_SETUP(target)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	bid_attr_init(&self->attr, PERF_COUNT_SW_CPU_CLOCK, ALL_FOUR | WHO);
	self->check.attr = &self->attr;
	self->check.maps = &maps;
}

FIXTURE_TEARDOWN(target)
{
	cpus_close(&self->cpus);
	bid_child_kill(&self->child);
}

static void load_mixed(void *arg)
{
	bid_load_user(arg);
	usleep(2000);
}

/* Counts the samples of the test itself and of the idle task. */
struct cpu_wide {
	unsigned long self, idle, smaller;
};

static int each_cpu_wide(const struct bid_sample *s, void *arg)
{
	struct cpu_wide *n = arg;

	n->self += s->pid == (__u32)getpid();
	n->idle += !s->pid;
	n->smaller = n->self < n->idle ? n->self : n->idle;
	if (s->pid)
		return 0;
	if (s->bid->build_id.status != PERF_BUILD_ID_OFFSET_KERNEL)
		return bid_fail("the idle task's IP has status %u", s->bid->build_id.status);
	for (__u64 i = 0; i < s->nr_entries; i++)
		if (s->entries[i].offset == (__u64)PERF_CONTEXT_USER)
			return bid_fail("the idle task has user frames");
	return 0;
}

TEST_F_TIMEOUT(target, cpu_wide, BID_TIMEOUT_S)
{
	struct cpu_wide n = {};

	self->check.pid = getpid();
	self->check.each = each_cpu_wide;
	self->check.each_arg = &n;
	ASSERT_EQ(0, cpus_open(&self->cpus, &self->attr, -1)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, self->cpus.nr, &self->check,
				      load_mixed, NULL, &n.smaller, 100)) TH_LOG("%s", bid_error);
	EXPECT_GE(self->check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], 100);
}

/* Kernel threads have no user part, whoever's memory they run on. */
struct kthreads {
	unsigned long	samples;
	char		is_kthread[1 << 16];	/* 0: not known, 1: no, 2: yes */
};

static bool pid_is_kthread(__u32 pid)
{
	char path[64], byte;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, &byte, 1);
	close(fd);
	return !len;
}

static int each_kthread(const struct bid_sample *s, void *arg)
{
	struct kthreads *k = arg;
	char *known = &k->is_kthread[s->pid % sizeof(k->is_kthread)];

	if (!*known)
		*known = pid_is_kthread(s->pid) ? 2 : 1;
	if (*known != 2 || !s->pid)
		return 0;
	k->samples++;
	if (s->bid->build_id.status != PERF_BUILD_ID_OFFSET_KERNEL &&
	    s->bid->build_id.status != PERF_BUILD_ID_OFFSET_NO_MM)
		return bid_fail("kernel thread %u: status %u", s->pid, s->bid->build_id.status);
	for (__u64 i = 0; i < s->nr_entries; i++)
		if (s->entries[i].offset == (__u64)PERF_CONTEXT_USER)
			return bid_fail("kernel thread %u has user frames", s->pid);
	return 0;
}

TEST_F_TIMEOUT(target, kernel_threads, BID_TIMEOUT_S)
{
	static struct kthreads k;

	self->attr.config = PERF_COUNT_SW_CONTEXT_SWITCHES;
	self->attr.sample_period = 1;
	self->check.pid = getpid();
	self->check.each = each_kthread;
	self->check.each_arg = &k;
	ASSERT_EQ(0, cpus_open(&self->cpus, &self->attr, -1)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, self->cpus.nr, &self->check,
				      load_mixed, NULL, &k.samples, 20)) TH_LOG("%s", bid_error);
}

/* Children inherit the event; they run what we have mapped. */
TEST_F_TIMEOUT(target, inherited_over_fork, BID_TIMEOUT_S)
{
	struct by_task by = {};
	pid_t pids[TASKS];

	bid_attr_apart(&self->attr);
	self->attr.inherit = 1;
	self->attr.exclude_kernel = 1;
	self->attr.disabled = 0;
	self->check.each = each_by_task;
	self->check.each_arg = &by;
	self->check.flags = BID_LOOSE;
	ASSERT_EQ(0, cpus_open(&self->cpus, &self->attr, 0)) TH_LOG("%s", bid_error);
	for (int i = 0; i < TASKS; i++) {
		pids[i] = fork();
		ASSERT_GE(pids[i], 0);
		while (!pids[i])
			bid_load_user(NULL);
		by.pid[i] = pids[i];
	}
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, self->cpus.nr, &self->check,
				      load_mixed, NULL, &by.smallest, 40)) TH_LOG("%s", bid_error);
	for (int i = 0; i < TASKS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	EXPECT_GE(bid_resolved_percent(&self->check.stats), BID_MOST)
		TH_LOG("%s", bid_resolved_text(&self->check.stats));
}

static void *thread_main(void *arg)
{
	struct by_task *by = arg;
	static int next;

	by->pid[__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)] = syscall(__NR_gettid);
	while (!__atomic_load_n(&by->threads, __ATOMIC_RELAXED))
		usleep(1000);
	while (__atomic_load_n(&by->threads, __ATOMIC_RELAXED))
		bid_load_user(NULL);
	return NULL;
}

TEST_F_TIMEOUT(target, threads, BID_TIMEOUT_S)
{
	static struct by_task by;
	pthread_t threads[TASKS];

	self->attr.inherit = 1;
	self->check.each = each_by_task;
	self->check.each_arg = &by;
	ASSERT_EQ(0, cpus_open(&self->cpus, &self->attr, 0)) TH_LOG("%s", bid_error);
	for (int i = 0; i < TASKS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, thread_main, &by));
	for (int i = 0; i < TASKS; i++)
		while (!__atomic_load_n(&by.pid[i], __ATOMIC_RELAXED))
			usleep(1000);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	__atomic_store_n(&by.threads, true, __ATOMIC_RELAXED);
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, self->cpus.nr, &self->check,
				      load_mixed, NULL, &by.smallest, 40)) TH_LOG("%s", bid_error);
	__atomic_store_n(&by.threads, false, __ATOMIC_RELAXED);
	for (int i = 0; i < TASKS; i++)
		pthread_join(threads[i], NULL);
	EXPECT_GE(self->check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], TASKS * 40);
}

/* The events of a cgroup: everyone in it, nobody else. */

static int each_in_cgroup(const struct bid_sample *s, void *arg)
{
	(void)arg;
	return s->pid == (__u32)getpid() ? 0 : bid_fail("a sample of process %u", s->pid);
}

static int write_pid(int dir, const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
	int ret = fd < 0 || dprintf(fd, "%d\n", getpid()) < 0;

	if (fd >= 0)
		close(fd);
	return ret ? bid_fail("%s: %s", name, strerror(errno)) : 0;
}

static int open_in_cgroup(const struct perf_event_attr *attr, int dir, int cpu)
{
	return syscall(__NR_perf_event_open, attr, dir, cpu, -1,
		       PERF_FLAG_PID_CGROUP | PERF_FLAG_FD_CLOEXEC);
}

FIXTURE(cgroup)
{
	struct perf_event_attr attr;
	struct bid_check check;
	struct cpus cpus;
	char root[64], path[128];
	bool mounted, made;
	int dir;
};

FIXTURE_SETUP(cgroup)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	strcpy(self->root, "/tmp/bid_cgroup.XXXXXX");
	ASSERT_TRUE(!!mkdtemp(self->root));
	self->dir = -1;
	self->mounted = !mount("cgroup", self->root, "cgroup", 0, "perf_event") ||
			!mount("cgroup2", self->root, "cgroup2", 0, NULL);
	if (!self->mounted)
		return;
	snprintf(self->path, sizeof(self->path), "%s/bid_test", self->root);
	self->made = !mkdir(self->path, 0755);
	EXPECT_TRUE(self->made);
	self->dir = open(self->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

FIXTURE_TEARDOWN(cgroup)
{
	cpus_close(&self->cpus);
	if (self->dir >= 0)
		EXPECT_EQ(0, write_pid(self->dir, "../cgroup.procs")) TH_LOG("%s", bid_error);
	if (self->made)
		EXPECT_EQ(0, rmdir(self->path));
	if (self->mounted)
		EXPECT_EQ(0, umount2(self->root, MNT_DETACH));
	rmdir(self->root);
}

TEST_F_TIMEOUT(cgroup, resolves, BID_TIMEOUT_S)
{
	struct perf_event_attr old;
	int fd;

	if (!self->mounted)
		SKIP(return, "no cgroups");
	ASSERT_GE(self->dir, 0);
	ASSERT_EQ(0, write_pid(self->dir, "cgroup.procs")) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	bid_attr_init(&old, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | WHO);
	fd = open_in_cgroup(&old, self->dir, 0);
	if (fd < 0)
		SKIP(return, "no cgroup events, with or without the bits: %s", strerror(errno));
	close(fd);

	bid_attr_init(&self->attr, PERF_COUNT_SW_CPU_CLOCK, ALL_FOUR | WHO);
	self->check.attr = &self->attr;
	self->check.maps = &maps;
	self->check.each = each_in_cgroup;
	for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN) && cpu < CPUS_MAX; cpu++) {
		fd = open_in_cgroup(&self->attr, self->dir, cpu);
		ASSERT_GE(fd, 0) TH_LOG("%s", strerror(errno));
		ASSERT_EQ(0, bid_event_from_fd(&self->cpus.e[cpu], &self->attr, fd, BID_RING_PAGES))
			TH_LOG("%s", bid_error);
		self->cpus.nr++;
	}
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, self->cpus.nr, &self->check, load_mixed,
				      NULL, &self->check.stats.samples, 200))
		TH_LOG("%s", bid_error);
	EXPECT_GE(self->check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], 200);
}

static void load_wait(void *arg)
{
	(void)arg;
	usleep(5000);
}

/* From before exec: the program's own build ID, then that of the next program. */
TEST_F_TIMEOUT(target, exec, BID_TIMEOUT_S)
{
	char first[PATH_MAX], next[PATH_MAX];
	struct bid_event *e = self->cpus.e;

	ASSERT_EQ(0, bid_helper_path(first, sizeof(first), "bid_sha1")) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_helper_path(next, sizeof(next), "bid_md5")) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_child_fork(&self->child, first, -1, next)) TH_LOG("%s", bid_error);

	self->attr.exclude_kernel = 1;
	self->attr.enable_on_exec = 1;
	self->check.flags = BID_LOOSE;
	ASSERT_EQ(0, bid_event_open(e, &self->attr, self->child.pid, -1, -1, BID_RING_PAGES * 4))
		TH_LOG("%s", bid_error);
	self->cpus.nr = 1;
	ASSERT_EQ(0, bid_child_exec(&self->child)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, self->child.pid)) TH_LOG("%s", bid_error);
	self->check.focus = bid_maps_exec(&maps, "/bid_sha1");
	ASSERT_TRUE(!!self->check.focus);
	EXPECT_EQ(0, bid_collect(e, &self->check, load_wait, NULL,
				 &self->check.stats.focus[PERF_BUILD_ID_OFFSET_RESOLVED], 100))
		TH_LOG("%s", bid_error);

	ASSERT_EQ(0, bid_event_enable(e)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, kill(self->child.pid, SIGUSR1));
	ASSERT_EQ(0, bid_child_wait_ready(&self->child)) TH_LOG("%s", bid_error);
	/* what the first program left in the ring is judged by its own maps */
	ASSERT_EQ(0, bid_event_disable(e)) TH_LOG("%s", bid_error);
	self->check.maps = NULL;
	ASSERT_EQ(0, bid_drain(e, bid_check_record, &self->check)) TH_LOG("%s", bid_error);
	self->check.maps = &maps;
	ASSERT_EQ(0, bid_maps_read(&maps, self->child.pid)) TH_LOG("%s", bid_error);
	self->check.focus = bid_maps_exec(&maps, "/bid_md5");
	ASSERT_TRUE(!!self->check.focus);
	ASSERT_EQ(16, self->check.focus->id_size);
	memset(&self->check.stats, 0, sizeof(self->check.stats));
	EXPECT_EQ(0, bid_collect(e, &self->check, load_wait, NULL,
				 &self->check.stats.focus[PERF_BUILD_ID_OFFSET_RESOLVED], 100))
		TH_LOG("%s", bid_error);
}

/* A group that reads all its counters in every sample. */

struct group {
	__u64 ids[3];
	int nr;
};

static int each_group(const struct bid_sample *s, void *arg)
{
	struct group *g = arg;

	/* nr, enabled, running, then value, ID and lost of each */
	if (s->nr_read != 3 + 3 * 3 || s->read[0] != 3)
		return bid_fail("READ has %zu values, %llu counters", s->nr_read,
				(unsigned long long)s->read[0]);
	for (int i = 0; i < 3; i++)
		if (s->read[3 + 3 * i + 1] != g->ids[i])
			return bid_fail("READ: counter %d has ID %llu", i,
					(unsigned long long)s->read[3 + 3 * i + 1]);
	return 0;
}

TEST_F_TIMEOUT(target, group_with_read, BID_TIMEOUT_S)
{
	__u64 configs[] = {
		PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK, PERF_COUNT_SW_PAGE_FAULTS,
	};
	struct group g = {};

	self->attr.sample_type |= PERF_SAMPLE_READ;
	self->attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_LOST |
				 PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	self->check.each = each_group;
	self->check.each_arg = &g;
	for (int i = 0; i < 3; i++) {
		struct bid_event *e = &self->cpus.e[i];

		self->attr.config = configs[i];
		self->attr.disabled = !i;	/* members follow their leader */
		if (configs[i] == PERF_COUNT_SW_PAGE_FAULTS)
			self->attr.sample_period = 1;
		ASSERT_EQ(0, bid_event_open(e, &self->attr, 0, -1, i ? self->cpus.e[0].fd : -1,
					    BID_RING_PAGES)) TH_LOG("%s", bid_error);
		g.ids[i] = e->id;
		self->cpus.nr++;
	}
	self->check.flags = BID_LOOSE;
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, 3, &self->check, bid_load_user, NULL,
				      &self->check.stats.samples, 300)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, 3, &self->check, bid_load_faults, NULL,
				      &self->check.stats.samples, 500)) TH_LOG("%s", bid_error);
	EXPECT_GE(self->check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], 300);
}

/* Code that moves while it is sampled: perhaps not resolved, never wrong. */

static bool stop;

TEST_F_TIMEOUT(target, busy_address_space, BID_TIMEOUT_S)
{
	pthread_t threads[2];

	self->attr.inherit = 1;
	self->check.flags = BID_LOOSE;
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, bid_thread_map_and_unmap, &stop));
	usleep(20000);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, cpus_open(&self->cpus, &self->attr, 0)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, self->cpus.nr, &self->check, bid_load_user,
				      NULL, &self->check.stats.samples, 600))
		TH_LOG("%s", bid_error);
	/* how many of each is up to who holds the lock, and may be next to none */
	TH_LOG("%lu user frames resolved, %lu BUSY",
	       self->check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED],
	       self->check.stats.user[PERF_BUILD_ID_OFFSET_BUSY]);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Two files take turns behind the code that runs. */
struct turns {
	char	*at;
	int	fd[2];
	off_t	offset;
	size_t	page;
	struct bid_map map[2];
	unsigned long seen[2], smaller;
};

static void *thread_take_turns(void *arg)
{
	struct turns *t = arg;

	for (int i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i ^= 1) {
		if (mmap(t->at, t->page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
			 t->fd[i], t->offset) == MAP_FAILED)
			break;
		usleep(300);
	}
	return NULL;
}

static int each_turn(const struct bid_sample *s, void *arg)
{
	const struct perf_sample_build_id_offset *e = s->bid;
	struct turns *t = arg;

	if (s->ip < (__u64)t->at || s->ip >= (__u64)t->at + t->page)
		return 0;
	if (e->build_id.status == PERF_BUILD_ID_OFFSET_BUSY)
		return 0;
	if (e->build_id.status != PERF_BUILD_ID_OFFSET_RESOLVED)
		return bid_fail("%#llx has status %u", (unsigned long long)s->ip,
				e->build_id.status);
	if (e->offset != t->offset + (s->ip - (__u64)t->at))
		return bid_fail("%#llx has offset %#llx", (unsigned long long)s->ip,
				(unsigned long long)e->offset);
	for (int i = 0; i < 2; i++) {
		if (e->build_id.size != t->map[i].id_size ||
		    memcmp(e->build_id.data, t->map[i].id, BID_SIZE_MAX))
			continue;
		t->seen[i]++;
		t->smaller = t->seen[0] < t->seen[1] ? t->seen[0] : t->seen[1];
		return 0;
	}
	return bid_fail("%#llx has neither file's build ID", (unsigned long long)s->ip);
}

static void load_turns(void *arg)
{
	bid_lib_spin_fn spin = *(bid_lib_spin_fn *)arg;

	for (int i = 0; i < 16; i++)
		spin(50000);
}

TEST_F_TIMEOUT(target, files_take_turns, BID_TIMEOUT_S)
{
	const char * const libs[] = { "bid_lib.so", "bid_lib2.so" };
	struct turns t = { .page = sysconf(_SC_PAGESIZE) };
	char path[PATH_MAX];
	const struct bid_map *m;
	pthread_t thread;
	bid_lib_spin_fn spin;
	void *dl = NULL;

	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, bid_helper_path(path, sizeof(path), libs[i])) TH_LOG("%s", bid_error);
		t.fd[i] = open(path, O_RDONLY | O_CLOEXEC);
		ASSERT_GE(t.fd[i], 0);
		t.map[i].id_size = bid_file_build_id(t.fd[i], t.map[i].id);
		ASSERT_GT(t.map[i].id_size, 0);
		dl = dlopen(path, RTLD_NOW);
		ASSERT_TRUE(!!dl) TH_LOG("%s", dlerror());
	}
	spin = (bid_lib_spin_fn)dlsym(dl, "bid_lib_spin");
	ASSERT_TRUE(!!spin);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	m = bid_maps_find(&maps, (__u64)spin);
	ASSERT_TRUE(!!m);
	t.offset = m->offset + (((__u64)spin & ~(t.page - 1)) - m->start);
	t.at = mmap(NULL, t.page, PROT_READ | PROT_EXEC, MAP_PRIVATE, t.fd[0], t.offset);
	ASSERT_TRUE(t.at != MAP_FAILED);
	spin = (bid_lib_spin_fn)(t.at + ((__u64)spin & (t.page - 1)));

	self->attr.exclude_kernel = 1;
	self->check.maps = NULL;
	self->check.each = each_turn;
	self->check.each_arg = &t;
	ASSERT_EQ(0, bid_event_open(&self->cpus.e[0], &self->attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	self->cpus.nr = 1;
	ASSERT_EQ(0, pthread_create(&thread, NULL, thread_take_turns, &t));
	EXPECT_EQ(0, bid_collect(&self->cpus.e[0], &self->check, load_turns, &spin,
				 &t.smaller, 50)) TH_LOG("%s", bid_error);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}

/* Samples in different contexts of the kernel */

FIXTURE(context)
{
	struct bid_event e;
};

FIXTURE_VARIANT(context)
{
	__u64 config;
	const char *tracepoint;
	void (*load)(void *arg);
};

FIXTURE_VARIANT_ADD(context, cpu_clock) {
	.config = PERF_COUNT_SW_CPU_CLOCK, .load = bid_load_kernel,
};

FIXTURE_VARIANT_ADD(context, task_clock) {
	.config = PERF_COUNT_SW_TASK_CLOCK, .load = bid_load_kernel,
};

FIXTURE_VARIANT_ADD(context, page_faults) {
	.config = PERF_COUNT_SW_PAGE_FAULTS, .load = bid_load_faults,
};

FIXTURE_VARIANT_ADD(context, context_switches) {
	.config = PERF_COUNT_SW_CONTEXT_SWITCHES, .load = bid_load_sleep,
};

FIXTURE_VARIANT_ADD(context, sched_switch) {
	.tracepoint = "sched/sched_switch", .load = bid_load_sleep,
};

FIXTURE_VARIANT_ADD(context, timer_interrupt) {
	.tracepoint = "irq_vectors/local_timer_entry", .load = bid_load_user,
};

FIXTURE_VARIANT_ADD(context, system_call) {
	.tracepoint = "raw_syscalls/sys_enter", .load = bid_load_sleep,
};

FIXTURE_SETUP(context)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(context)
{
	bid_event_close(&self->e);
}

static bool is_clock(const struct perf_event_attr *attr)
{
	return attr->type == PERF_TYPE_SOFTWARE && (attr->config == PERF_COUNT_SW_CPU_CLOCK ||
						    attr->config == PERF_COUNT_SW_TASK_CLOCK);
}

TEST_F_TIMEOUT(context, resolves, BID_TIMEOUT_S)
{
	__u64 types[] = { ALL_FOUR, BID_BITS };
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps, .flags = BID_LOOSE };

	bid_attr_init(&attr, variant->config, 0);
	if (variant->tracepoint) {
		int ret = bid_attr_tracepoint(&attr, variant->tracepoint, 0);

		if (ret > 0)
			SKIP(return, "%s", bid_error);
		ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	}
	for (size_t i = 0; i < BID_ARRAY_SIZE(types); i++) {
		attr.sample_type = types[i];
		if (is_clock(&attr))
			bid_attr_apart(&attr);
		memset(&c.stats, 0, sizeof(c.stats));
		ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
			TH_LOG("%s", bid_error);
		ASSERT_EQ(0, bid_collect(&self->e, &c, variant->load, NULL,
					 &c.stats.samples, 200)) TH_LOG("%s", bid_error);
		EXPECT_GE(bid_resolved_percent(&c.stats), BID_MOST)
			TH_LOG("%s", bid_resolved_text(&c.stats));
		bid_event_close(&self->e);
	}
}

/* In an NMI: asking for backtraces of all CPUs sends them one. */
TEST_F_TIMEOUT(target, nmi, BID_TIMEOUT_S)
{
	struct cpu_wide n = {};
	pthread_t thread;
	int ret;

	ret = bid_attr_tracepoint(&self->attr, "nmi/nmi_handler", ALL_FOUR | WHO);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	if (access("/proc/sysrq-trigger", W_OK))
		SKIP(return, "no way to cause an NMI");
	ASSERT_EQ(0, bid_quiet_console(true)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, pthread_create(&thread, NULL, bid_thread_nmis, &stop));
	usleep(10000);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	self->check.pid = getpid();
	self->check.each = each_cpu_wide;
	self->check.each_arg = &n;
	self->check.flags = BID_LOOSE;
	ASSERT_EQ(0, cpus_open(&self->cpus, &self->attr, -1)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_collect_many(self->cpus.e, self->cpus.nr, &self->check, bid_load_user,
				      NULL, &n.self, 20)) TH_LOG("%s", bid_error);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, bid_quiet_console(false)) TH_LOG("%s", bid_error);
	TH_LOG("%lu samples, %lu user frames resolved, %lu BUSY", self->check.stats.samples,
	       self->check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED],
	       self->check.stats.user[PERF_BUILD_ID_OFFSET_BUSY]);
}

TEST_HARNESS_MAIN
