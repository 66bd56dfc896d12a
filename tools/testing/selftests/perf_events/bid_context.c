// SPDX-License-Identifier: GPL-2.0
/*
 * Samples where the kernel can look at least: while the task itself holds its
 * address space for writing, in the middle of mmap, munmap, fork, exec and exit,
 * in softirqs and NMIs nested in each other, with many events at once, and while
 * CPUs come and go. Nothing hangs, no frame is wrong, and one that is not
 * resolved says why.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define ALL_FOUR (BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN)
#define EVENTS 64

static struct bid_maps maps;
static char program[PATH_MAX];

/* Loads */

static void load_maps(void *arg)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *p;

	(void)arg;
	for (int i = 0; i < 8; i++) {
		p = mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
		if (p == MAP_FAILED)
			return;
		p[page] = 1;
		mprotect(p + page, page, PROT_READ);
		munmap(p + 4 * page, page);
		munmap(p, 16 * page);
	}
}

static void load_fork(void *arg)
{
	pid_t pid = fork();

	(void)arg;
	if (!pid) {
		load_maps(NULL);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void load_exec(void *arg)
{
	char * const argv[] = { "bid_prog", "end", NULL };
	pid_t pid = fork();

	(void)arg;
	if (!pid) {
		execv(program, argv);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
}

static void load_all(void *arg)
{
	bid_load_user(arg);
	load_maps(arg);
	bid_load_faults(arg);
	bid_load_sleep(arg);
}

/* A function of the kernel as an event. */
static int attr_kprobe(struct perf_event_attr *attr, const char *function)
{
	char text[16] = "";
	int fd = open("/sys/bus/event_source/devices/kprobe/type", O_RDONLY | O_CLOEXEC);

	bid_attr_init(attr, 0, 0);
	if (fd < 0)
		return 1;
	if (read(fd, text, sizeof(text) - 1) <= 0)
		text[0] = '\0';
	close(fd);
	attr->type = strtoul(text, NULL, 10);
	attr->config1 = (__u64)function;
	attr->sample_period = 1;
	return 0;
}

/* In the middle of a change of the address space */

FIXTURE(change)
{
	struct bid_tool t;
};

struct place {
	const char	*function;	/* or else */
	const char	*tracepoint;
	const char	*filter;
	void		(*load)(void *arg);
	bool		everyone;	/* or of the task: inheriting a kprobe takes long */
};

FIXTURE_VARIANT(change)
{
	struct place at;
};

FIXTURE_VARIANT_ADD(change, lock_taken) {
	.at = {
		.tracepoint = "mmap_lock/mmap_lock_acquire_returned", .load = load_maps,
		.filter = "write == 1 && success == 1",
	},
};

FIXTURE_VARIANT_ADD(change, lock_given) {
	.at = {
		.tracepoint = "mmap_lock/mmap_lock_released", .load = load_maps,
	},
};

FIXTURE_VARIANT_ADD(change, mmap) {
	.at = {
		.function = "mmap_region", .load = load_maps,
	},
};

FIXTURE_VARIANT_ADD(change, mprotect) {
	.at = {
		.function = "mprotect_fixup", .load = load_maps,
	},
};

FIXTURE_VARIANT_ADD(change, munmap) {
	.at = {
		.function = "do_vmi_align_munmap", .load = load_maps,
	},
};

FIXTURE_VARIANT_ADD(change, page_tables) {
	.at = {
		.function = "free_pgtables", .load = load_maps,
	},
};

FIXTURE_VARIANT_ADD(change, page_fault) {
	.at = {
		.tracepoint = "exceptions/page_fault_user", .load = bid_load_faults,
	},
};

FIXTURE_VARIANT_ADD(change, fault_handled) {
	.at = {
		.function = "handle_mm_fault", .load = bid_load_faults,
	},
};

FIXTURE_VARIANT_ADD(change, fork) {
	.at = {
		.function = "dup_mmap", .load = load_fork, .everyone = true,
	},
};

FIXTURE_VARIANT_ADD(change, exec) {
	.at = {
		.function = "setup_arg_pages", .load = load_exec, .everyone = true,
	},
};

FIXTURE_VARIANT_ADD(change, exec_begins) {
	.at = {
		.function = "begin_new_exec", .load = load_exec, .everyone = true,
	},
};

FIXTURE_VARIANT_ADD(change, exit) {
	.at = {
		.function = "exit_mmap", .load = load_fork, .everyone = true,
	},
};

FIXTURE_VARIANT_ADD(change, scheduler) {
	.at = {
		.tracepoint = "sched/sched_waking", .load = load_fork,
	},
};

FIXTURE_SETUP(change)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_helper_path(program, sizeof(program), "bid_sha1"))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(change)
{
	bid_tool_close(&self->t);
}

static int open_change(struct bid_tool *t, const struct place *at, bool defer)
{
	struct perf_event_attr attr;
	int ret;

	if (at->function)
		ret = attr_kprobe(&attr, at->function);
	else
		ret = bid_attr_tracepoint(&attr, at->tracepoint, 0);
	if (ret)
		return ret;
	attr.sample_type = ALL_FOUR | BID_ORIGIN;
	attr.inherit = !at->everyone;
	if (defer)
		bid_attr_defer(&attr);
	ret = bid_tool_open(t, &attr, &maps, at->everyone ? -1 : 0, BID_EACH_CPU, 256);
	if (ret)
		return at->function && errno == ENOENT ? 1 : -1;
	t->check.pid = getpid();
	t->check.flags = BID_LOOSE | BID_EXITS;
	for (size_t cpu = 0; at->filter && cpu < t->nr; cpu++)
		if (ioctl(t->e[cpu].fd, PERF_EVENT_IOC_SET_FILTER, at->filter))
			return bid_fail("%s: %s", at->filter, strerror(errno));
	return 0;
}

static int collect(struct bid_tool *t, void (*load)(void *arg), unsigned long want)
{
	return bid_collect_fn(t->e, t->nr, bid_tool_record, t, load, NULL,
			      &t->check.stats.samples, want);
}

TEST_F_TIMEOUT(change, immediate, BID_TIMEOUT_S)
{
	struct bid_stats *st = &self->t.check.stats;
	int ret = open_change(&self->t, &variant->at, false);

	if (ret > 0)
		SKIP(return, "no such place in this kernel");
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, collect(&self->t, variant->at.load, 20)) TH_LOG("%s", bid_error);
	TH_LOG("%lu samples, %lu of %lu frames in files resolved, %lu BUSY, %lu NO_MM", st->samples,
	       st->file_resolved, st->file_frames, st->user[PERF_BUILD_ID_OFFSET_BUSY],
	       st->user[PERF_BUILD_ID_OFFSET_NO_MM]);
}

TEST_F_TIMEOUT(change, deferred, BID_TIMEOUT_S)
{
	struct bid_stats *st = &self->t.check.stats;
	int ret = open_change(&self->t, &variant->at, true);

	if (ret > 0)
		SKIP(return, "no such place in this kernel");
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, collect(&self->t, variant->at.load, 20)) TH_LOG("%s", bid_error);
	/* what is not deferred is everyone's that is exiting */
	if (!variant->at.everyone)
		EXPECT_EQ(st->file_frames, st->file_resolved);
	/* an exit defers nothing */
	if (variant->at.load != load_fork && variant->at.load != load_exec)
		EXPECT_GT(st->deferred, 0);
}

/* Everything at once, on every CPU */

static const struct kind {
	const char	*tracepoint;	/* or else */
	__u64		config;
	unsigned int	period;
} kinds[] = {
	{ .tracepoint = "nmi/nmi_handler", .period = 1 },
	{ .tracepoint = "irq/softirq_entry", .period = 1 },
	{ .tracepoint = "timer/hrtimer_expire_entry", .period = 1 },
	{ .tracepoint = "irq_vectors/local_timer_entry", .period = 1 },
	{ .tracepoint = "raw_syscalls/sys_enter", .period = 3 },
	{ .config = PERF_COUNT_SW_CPU_CLOCK, .period = BID_PERIOD_NS },
	{ .config = PERF_COUNT_SW_PAGE_FAULTS, .period = 1 },
	{ .config = PERF_COUNT_SW_CONTEXT_SWITCHES, .period = 1 },
};

#define KINDS BID_ARRAY_SIZE(kinds)

static int attr_of_kind(struct perf_event_attr *attr, unsigned int nr)
{
	const struct kind *kind = &kinds[nr % KINDS];
	int ret = 0;

	if (kind->tracepoint)
		ret = bid_attr_tracepoint(attr, kind->tracepoint, ALL_FOUR);
	else
		bid_attr_init(attr, kind->config, ALL_FOUR);
	attr->sample_period = kind->period;
	attr->sample_type |= BID_ORIGIN;
	return ret;
}

FIXTURE(many)
{
	struct bid_tool t[EVENTS];
	bool stop;
};

FIXTURE_SETUP(many)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_quiet_console(true)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(many)
{
	for (int i = 0; i < EVENTS; i++)
		bid_tool_close(&self->t[i]);
	EXPECT_EQ(0, bid_quiet_console(false)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_state_zero()) TH_LOG("%s", bid_error);
}

static int open_many(struct bid_tool *t, int nr, pid_t pid, int cpu)
{
	struct perf_event_attr attr;

	for (int i = 0; i < nr; i++) {
		int ret = attr_of_kind(&attr, i);

		if (ret)
			return ret;
		if (i / KINDS % 2)
			bid_attr_defer(&attr);
		if (bid_tool_open(&t[i], &attr, &maps, pid, cpu, 16))
			return -1;
		t[i].check.pid = getpid();
		t[i].check.flags = BID_LOOSE | BID_EXITS;
	}
	return 0;
}

static int drain_many(struct bid_tool *t, int nr)
{
	for (int i = 0; i < nr; i++)
		if (bid_tool_drain(&t[i]))
			return -1;
	return 0;
}

/* Until every kind has had so many samples. */
static int run_many(struct bid_tool *t, int nr, unsigned long want)
{
	__u64 deadline = bid_now_ns() + BID_DEADLINE_S * 1000000000ull;

	for (int i = 0; i < nr; i++)
		if (bid_tool_enable(&t[i]))
			return -1;
	for (int i = 0; i < nr;) {
		if (t[i].check.stats.samples >= want) {
			i++;
			continue;
		}
		load_all(NULL);
		if (drain_many(t, nr))
			return -1;
		if (bid_now_ns() > deadline)
			return bid_fail("%lu samples of event %d", t[i].check.stats.samples, i);
	}
	for (int i = 0; i < nr; i++)
		if (bid_tool_disable(&t[i]))
			return -1;
	return drain_many(t, nr);
}

TEST_F_TIMEOUT(many, nested, BID_TIMEOUT_S)
{
	pthread_t thread;
	int ret;

	if (access("/proc/sysrq-trigger", W_OK))
		SKIP(return, "no way to cause an NMI");
	ASSERT_EQ(0, pthread_create(&thread, NULL, bid_thread_nmis, &self->stop));
	usleep(10000);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ret = open_many(self->t, KINDS, -1, BID_EACH_CPU);
	if (!ret)
		EXPECT_EQ(0, run_many(self->t, KINDS, 20)) TH_LOG("%s", bid_error);
	__atomic_store_n(&self->stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
}

/* How many NMIs the CPUs have had; < 0: nobody knows. */
static long count_nmis(void)
{
	char line[512], *number, *end;
	FILE *f = fopen("/proc/interrupts", "re");
	long sum = -1;

	while (f && fgets(line, sizeof(line), f)) {
		number = strstr(line, "NMI:");
		if (!number)
			continue;
		sum = 0;
		for (number += 4;; number = end) {
			long n = strtol(number, &end, 10);

			if (end == number)
				break;
			sum += n;
		}
	}
	if (f)
		fclose(f);
	return sum;
}

static void *thread_compute(void *arg)
{
	while (!__atomic_load_n((bool *)arg, __ATOMIC_RELAXED))
		;
	return NULL;
}

/*
 * From outside of the machine they come at any time, whatever a CPU does: one of
 * them computes.
 */
TEST_F_TIMEOUT(many, nmis_from_outside, BID_TIMEOUT_S)
{
	long before = count_nmis();
	pthread_t thread;
	int ret;

	sleep(1);
	if (before < 0 || count_nmis() - before < 3)
		SKIP(return, "nobody sends NMIs");
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ret = open_many(self->t, KINDS, -1, BID_EACH_CPU);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, pthread_create(&thread, NULL, thread_compute, &self->stop));
	EXPECT_EQ(0, run_many(self->t, KINDS, 50)) TH_LOG("%s", bid_error);
	__atomic_store_n(&self->stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	EXPECT_GT(self->t[0].check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], 0);
	TH_LOG("%lu samples in NMIs, %lu of %lu frames in files resolved",
	       self->t[0].check.stats.samples, self->t[0].check.stats.file_resolved,
	       self->t[0].check.stats.file_frames);
}

/* Nobody sends NMIs, and with PREEMPT_RT softirqs have threads of their own. */
static bool is_of_others(const struct kind *kind)
{
	if (!kind->tracepoint)
		return false;
	if (!strcmp(kind->tracepoint, "irq/softirq_entry"))
		return bid_preempt_rt();
	return !strcmp(kind->tracepoint, "nmi/nmi_handler");
}

TEST_F_TIMEOUT(many, events, BID_TIMEOUT_S)
{
	int ret;

	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ret = open_many(self->t, EVENTS, 0, -1);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	for (int i = 0; i < EVENTS; i++)
		ASSERT_EQ(0, bid_tool_enable(&self->t[i])) TH_LOG("%s", bid_error);
	for (int i = 0; i < 20; i++) {
		load_all(NULL);
		ASSERT_EQ(0, drain_many(self->t, EVENTS)) TH_LOG("%s", bid_error);
	}
	/* all of a kind have seen the same */
	for (int i = 0; i < EVENTS; i++) {
		if (is_of_others(&kinds[i % KINDS]))
			continue;
		EXPECT_GT(self->t[i].check.stats.samples, 0) TH_LOG("event %d", i);
	}
}

/* CPUs come and go */

static int put_cpu(const char *path, bool online)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = fd < 0 || write(fd, online ? "1" : "0", 1) != 1;

	if (fd >= 0)
		close(fd);
	return ret ? bid_fail("%s: %s", path, strerror(errno)) : 0;
}

TEST_F_TIMEOUT(many, cpu_hotplug, BID_TIMEOUT_S)
{
	const char *path = "/sys/devices/system/cpu/cpu1/online";
	int ret = 0;

	if (access(path, W_OK))
		SKIP(return, "no CPU that could go");
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	for (int i = 0; !ret && i < 4; i++) {
		ret = open_many(self->t, 2 * KINDS, -1, BID_EACH_CPU);
		for (unsigned int k = 0; !ret && k < 2 * KINDS; k++)
			ret = bid_tool_enable(&self->t[k]);
		load_all(NULL);
		ret = ret ?: put_cpu(path, false);
		load_all(NULL);
		ret = ret ?: drain_many(self->t, 2 * KINDS);
		/* half of the time the CPU is back before the events are gone */
		if (i % 2)
			ret = ret ?: put_cpu(path, true);
		load_all(NULL);
		ret = ret ?: drain_many(self->t, 2 * KINDS);
		for (unsigned int k = 0; k < 2 * KINDS; k++)
			bid_tool_close(&self->t[k]);
		put_cpu(path, true);
	}
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	EXPECT_EQ(0, ret) TH_LOG("%s", bid_error);
}

TEST_HARNESS_MAIN
