// SPDX-License-Identifier: GPL-2.0
/*
 * Every cookie in a sample finds its one record, and every record a sample, on
 * two CPUs full of processes that fork, exec, fault and call the kernel; and
 * where records get lost, nothing is paired wrongly.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define WORKERS		4
#define COOKIES		(BID_SLOWER > 1 ? 30000 : 150000)
#define DEADLINE_S	(4 * BID_DEADLINE_S)
#define RING_PAGES	4096

static struct bid_maps maps;
static pid_t workers[WORKERS];
/* Shared with the workers */
static struct {
	int order;		/* 0: go on, 1: wait, 2: end */
	int no_exec;
} *control;

/* The load */

static void touch_pages(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return;
	for (int i = 0; i < 8; i++)
		p[i * page] = 1;
	munmap(p, 8 * page);
}

static void use_pipe(void)
{
	int fd[2];
	char byte;

	if (pipe2(fd, O_CLOEXEC))
		return;
	for (int i = 0; i < 4; i++)
		if (write(fd[1], "", 1) != 1 || read(fd[0], &byte, 1) != 1)
			break;
	close(fd[0]);
	close(fd[1]);
}

static void fork_child(void)
{
	pid_t pid = fork();

	if (!pid) {
		touch_pages();
		for (int i = 0; i < 4; i++)
			syscall(__NR_getppid);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void spawn(const char *path)
{
	char * const argv[] = { "bid_prog", "end", NULL };
	pid_t pid = vfork();

	if (!pid) {
		execv(path, argv);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
}

static void work(const char *path)
{
	for (unsigned int round = 0;; round++) {
		int order = __atomic_load_n(&control->order, __ATOMIC_RELAXED);

		if (order == 2)
			_exit(0);
		if (order == 1) {
			usleep(1000);
			continue;
		}
		for (int i = 0; i < 16; i++)
			syscall(__NR_getppid);
		touch_pages();
		use_pipe();
		if (round % 8 == 0)
			fork_child();
		if (round % 128 == 64 && !__atomic_load_n(&control->no_exec, __ATOMIC_RELAXED))
			spawn(path);
	}
}

static int start_workers(void)
{
	static char path[PATH_MAX];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (control == MAP_FAILED)
		return bid_fail("mmap: %s", strerror(errno));
	__atomic_store_n(&control->order, 1, __ATOMIC_RELAXED);
	if (bid_helper_path(path, sizeof(path), "bid_sha1"))
		return -1;
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = fork();
		if (workers[i] < 0)
			return bid_fail("fork: %s", strerror(errno));
		if (!workers[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			dup2(null, STDOUT_FILENO);
			dup2(null, STDERR_FILENO);
			work(path);
		}
	}
	close(null);
	return bid_maps_read(&maps, workers[0]);
}

static void end_workers(void)
{
	__atomic_store_n(&control->order, 2, __ATOMIC_RELAXED);
	for (int i = 0; i < WORKERS; i++)
		if (workers[i] > 0)
			waitpid(workers[i], NULL, 0);
	memset(workers, 0, sizeof(workers));
}

/* The set: on each CPU one event that gets the records, and three that sample. */

enum { OUTPUT, CALLS, FAULTS, CLOCK, TOOLS };

static bool execs[BID_EXECS];
static unsigned long nr_execs;

FIXTURE(load)
{
	struct bid_tool t[TOOLS];
	unsigned long lost;
};

FIXTURE_SETUP(load)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, start_workers()) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(load)
{
	if (control)
		end_workers();
	for (int i = TOOLS - 1; i >= 0; i--)
		bid_tool_close(&self->t[i]);
}

static void attr_of_tool(struct perf_event_attr *attr, int tool, bool defer)
{
	bid_attr_defer(attr);
	attr->sample_type |= PERF_SAMPLE_REGS_USER;
	attr->sample_regs_user = BID_REG_IP;
	attr->read_format = PERF_FORMAT_LOST;
	attr->exclude_callchain_kernel = tool == CALLS;
	attr->defer_callchain = defer && tool != OUTPUT;
	attr->defer_output = defer && tool == OUTPUT;
	attr->comm = tool == OUTPUT;
}

/* All samples and records are in the first tool's rings and in its book. */
static int open_set(struct bid_tool *t, size_t pages, bool defer)
{
	__u64 type = BID_BITS | PERF_SAMPLE_IP;
	struct perf_event_attr attr[TOOLS];
	int ret;

	bid_attr_init(&attr[OUTPUT], PERF_COUNT_SW_DUMMY, type);
	bid_attr_init(&attr[FAULTS], PERF_COUNT_SW_PAGE_FAULTS, type);
	bid_attr_init(&attr[CLOCK], PERF_COUNT_SW_CPU_CLOCK, type);
	attr[CLOCK].sample_period = 1000000;
	ret = bid_attr_tracepoint(&attr[CALLS], "raw_syscalls/sys_enter", type);
	for (int i = 0; !ret && i < TOOLS; i++) {
		attr_of_tool(&attr[i], i, defer);
		ret = bid_tool_open(&t[i], &attr[i], &maps, -1, BID_EACH_CPU, i ? 0 : pages);
		t[i].check.pids = workers;
		t[i].check.nr_pids = WORKERS;
		t[i].check.flags = BID_LOOSE | BID_EXITS;
		t[i].check.each_arg = &t[OUTPUT];
		t[i].execs = execs;
		for (size_t cpu = 0; !ret && i && cpu < t[i].nr; cpu++)
			if (ioctl(t[i].e[cpu].fd, PERF_EVENT_IOC_SET_OUTPUT, t[OUTPUT].e[cpu].fd))
				ret = bid_fail("PERF_EVENT_IOC_SET_OUTPUT: %s", strerror(errno));
	}
	return ret;
}

static int record_of_set(const struct perf_event_header *hdr, void *arg)
{
	struct bid_tool *t = arg;
	const __u64 *first = (const __u64 *)(hdr + 1);

	if (hdr->type == PERF_RECORD_COMM && hdr->misc & PERF_RECORD_MISC_COMM_EXEC) {
		execs[*first >> 32 & (BID_EXECS - 1)] = true;	/* pid, tid */
		nr_execs++;
	}
	if (hdr->type != PERF_RECORD_SAMPLE)
		return bid_tool_record(hdr, &t[OUTPUT]);
	for (int i = 0; i < TOOLS; i++)
		for (size_t cpu = 0; cpu < t[i].nr; cpu++)
			if (t[i].e[cpu].id == *first)
				return bid_tool_record(hdr, &t[i]);
	return bid_fail("a sample of event %llu", (unsigned long long)*first);
}

static int drain_set(struct bid_tool *t)
{
	for (size_t i = 0; i < t->nr; i++)
		if (bid_drain(&t->e[i], record_of_set, t))
			return -1;
	return 0;
}

/* The most that is in a ring, in per cent of it. */
static unsigned int fullest(const struct bid_tool *t)
{
	unsigned int most = 0;

	for (size_t i = 0; i < t->nr; i++) {
		const struct perf_event_mmap_page *page = t->e[i].page;
		__u64 used = __atomic_load_n(&page->data_head, __ATOMIC_RELAXED) - page->data_tail;
		unsigned int percent = 100 * used / t->e[i].data_size;

		most = percent > most ? percent : most;
	}
	return most;
}

static int enable_set(struct bid_tool *t)
{
	for (int i = 0; i < TOOLS; i++)
		if (bid_tool_enable(&t[i]))
			return -1;
	return 0;
}

static int disable_set(struct bid_tool *t)
{
	for (int i = TOOLS - 1; i >= 0; i--)
		if (bid_tool_disable(&t[i]))
			return -1;
	return 0;
}

static unsigned long count_lost(struct bid_tool *t)
{
	struct {
		__u64 value, lost;
	} count;
	unsigned long lost = 0;

	for (int i = 0; i < TOOLS; i++)
		for (size_t cpu = 0; cpu < t[i].nr; cpu++)
			if (read(t[i].e[cpu].fd, &count, sizeof(count)) == sizeof(count))
				lost += count.lost;
	return lost;
}

static unsigned long samples_of(const struct bid_tool *t)
{
	unsigned long nr = 0;

	for (int i = 0; i < TOOLS; i++)
		nr += t[i].check.stats.samples;
	return nr;
}

/* Lets the load go on until there are so many; the rings never fill up. */
static int run_load(struct bid_tool *t, unsigned long samples, size_t cookies)
{
	__u64 deadline = bid_now_ns() + DEADLINE_S * 1000000000ull;

	/* the reader comes before those that write */
	setpriority(PRIO_PROCESS, 0, -20);
	while (samples_of(t) < samples || t->book.nr < cookies) {
		__atomic_store_n(&control->order, fullest(t) > 15, __ATOMIC_RELAXED);
		if (drain_set(t))
			return -1;
		if (bid_now_ns() > deadline)
			return bid_fail("%lu samples, %zu cookies after %d s", samples_of(t),
					t->book.nr, DEADLINE_S);
		usleep(2000);
	}
	return 0;
}

TEST_F_TIMEOUT(load, pairs, DEADLINE_S + 30)
{
	struct bid_tool *t = self->t;
	struct bid_stats *st = &t[OUTPUT].check.stats;
	__u64 start = bid_now_ns();
	struct bid_pairs p;
	int ret = open_set(t, RING_PAGES, true);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, enable_set(t)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, run_load(t, COOKIES, COOKIES)) TH_LOG("%s", bid_error);
	end_workers();
	ASSERT_EQ(0, disable_set(t)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, drain_set(t)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, count_lost(t));
	EXPECT_EQ(0, st->lost);

	bid_tool_pairs(t, BID_FULL, &p);
	TH_LOG("%lu samples (%lu calls, %lu faults, %lu clock) in %llu s", samples_of(t),
	       t[CALLS].check.stats.samples, t[FAULTS].check.stats.samples,
	       t[CLOCK].check.stats.samples,
	       (unsigned long long)(bid_now_ns() - start) / 1000000000);
	TH_LOG("%lu with a cookie, %lu cookies, %lu records, %lu pairs, %lu from another CPU",
	       p.samples, p.cookies, st->deferred, p.pairs, p.moved);
	TH_LOG("%lu frames in files, %lu resolved", st->file_frames, st->file_resolved);
	TH_LOG("first frames: %lu agree, %lu differ; %lu in %lu execs", p.agree, p.differ,
	       p.in_exec, nr_execs);
	EXPECT_GE(p.pairs, COOKIES - 100);
	EXPECT_EQ(0, p.unasked);
	EXPECT_EQ(0, p.repeated);
	EXPECT_EQ(0, p.differ) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, p.strays);
	EXPECT_GE(nr_execs, COOKIES / 15000);
	EXPECT_LE(p.in_exec, nr_execs);
	EXPECT_GE(p.agree, COOKIES - 100 - nr_execs);
	/* tasks that are still where they asked: in a wait, when the events went off */
	EXPECT_EQ(p.last, p.unanswered);
	EXPECT_LE(p.unanswered, 20);
	EXPECT_EQ(st->file_frames, st->file_resolved);
	EXPECT_GT(st->file_frames, COOKIES);
}

/* The same load, resolved in the sample: what deferring is to be compared to. */
TEST_F_TIMEOUT(load, immediate, DEADLINE_S + 30)
{
	unsigned long frames = 0, resolved = 0, busy = 0, fault = 0;
	struct bid_tool *t = self->t;
	int ret = open_set(t, RING_PAGES, false);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, enable_set(t)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, run_load(t, COOKIES / 5, 0)) TH_LOG("%s", bid_error);
	end_workers();
	ASSERT_EQ(0, disable_set(t)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, drain_set(t)) TH_LOG("%s", bid_error);
	for (int i = 0; i < TOOLS; i++) {
		frames += t[i].check.stats.file_frames;
		resolved += t[i].check.stats.file_resolved;
		busy += t[i].check.stats.user[PERF_BUILD_ID_OFFSET_BUSY];
		fault += t[i].check.stats.user[PERF_BUILD_ID_OFFSET_FAULT];
	}
	TH_LOG("%lu samples, %lu frames in files of ours, %lu resolved; %lu BUSY, %lu FAULT",
	       samples_of(t), frames, resolved, busy, fault);
	EXPECT_EQ(0, t[OUTPUT].check.stats.deferred);
	EXPECT_EQ(0, t[OUTPUT].book.nr);
	EXPECT_GT(resolved, frames / 10);
}

/* Tools that come and go while callchains are pending leave nothing behind. */
TEST_F_TIMEOUT(load, tools_come_and_go, BID_TIMEOUT_S)
{
	struct bid_tool *t = self->t;
	unsigned long records = 0;

	__atomic_store_n(&control->order, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < 40; i++) {
		int ret = open_set(t, 64, i & 1);

		if (ret > 0)
			SKIP(return, "%s", bid_error);
		ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
		ASSERT_EQ(0, enable_set(t)) TH_LOG("%s", bid_error);
		usleep(10000);
		ASSERT_EQ(0, drain_set(t)) TH_LOG("%s", bid_error);
		records += t[OUTPUT].check.stats.deferred;
		for (int k = i & 2 ? 0 : TOOLS - 1; k >= 0 && k < TOOLS; k += i & 2 ? 1 : -1)
			bid_tool_close(&t[k]);
	}
	EXPECT_GT(records, 100);
	end_workers();
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
}

/* Rings that are far too small */
TEST_F_TIMEOUT(load, losses, BID_TIMEOUT_S)
{
	struct bid_tool *t = self->t;
	struct bid_stats *st = &t[OUTPUT].check.stats;
	unsigned long lost;
	struct bid_pairs p;
	int ret = open_set(t, 2, true);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, enable_set(t)) TH_LOG("%s", bid_error);
	/* the word of an exec might be lost, too */
	__atomic_store_n(&control->no_exec, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&control->order, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < 200; i++) {
		usleep(20000);
		ASSERT_EQ(0, drain_set(t)) TH_LOG("%s", bid_error);
	}
	end_workers();
	ASSERT_EQ(0, disable_set(t)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, drain_set(t)) TH_LOG("%s", bid_error);
	lost = count_lost(t);
	bid_tool_pairs(t, BID_FULL, &p);
	TH_LOG("%lu lost; %lu samples, %lu records, %lu pairs, %lu samples and %lu records alone",
	       lost, samples_of(t), st->deferred, p.pairs, p.unanswered, p.unasked);
	EXPECT_GT(lost, 100);
	EXPECT_GT(st->lost, 0);
	EXPECT_LE(st->lost, lost);
	EXPECT_GT(p.pairs, 0);
	EXPECT_EQ(0, p.repeated);
	EXPECT_EQ(0, p.differ) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, p.strays);
	/* a loss for each that is alone, but for the tasks that are still in a wait */
	EXPECT_LE(p.unanswered + p.unasked, lost + 20);
	EXPECT_EQ(st->file_frames, st->file_resolved);
}

TEST_HARNESS_MAIN
