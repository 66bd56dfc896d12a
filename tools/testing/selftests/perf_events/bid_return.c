// SPDX-License-Identifier: GPL-2.0
/*
 * What may happen to a task between a sample whose user part is deferred and its
 * return to user mode, which need not come: exec, exit, a fatal signal, fork, a
 * signal handler, a restarted system call, a long wait. And tasks that have no
 * user mode to return to.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define THREADS 4
#define CALLS 50

static struct bid_maps maps;
static unsigned long calls;

static void load_calls(unsigned long n)
{
	for (; n; n--)
		syscall(__NR_getppid);
}

static void descend(long depth, void (*fn)(void *arg), void *arg)
{
	if (depth)
		descend(depth - 1, fn, arg);
	else
		fn(arg);
	calls++;
}

/* The recursion in a callchain: the longest run of one and the same frame. */
static unsigned long longest_run(const struct bid_deferred *d)
{
	unsigned long run = 1, best = 0;

	for (__u64 i = 1; i < d->nr; i++) {
		run = memcmp(&d->entries[i], &d->entries[i - 1], sizeof(*d->entries)) ? 1 : run + 1;
		best = run > best ? run : best;
	}
	return best;
}

/* A tool that belongs to the task and its children, or is CPU-wide. */

FIXTURE(between)
{
	struct perf_event_attr attr;
	struct bid_tool t, second;
	struct bid_task task;
	struct bid_child child;
};

FIXTURE_VARIANT(between)
{
	bool cpu_wide;
};

FIXTURE_VARIANT_ADD(between, of_the_task) {
	.cpu_wide = false,
};

FIXTURE_VARIANT_ADD(between, cpu_wide) {
	.cpu_wide = true,
};

FIXTURE_SETUP(between)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(between)
{
	bid_task_kill(&self->task);
	bid_child_kill(&self->child);
	bid_tool_close(&self->t);
	bid_tool_close(&self->second);
}

/* 1 if there is no such tracepoint. */
static int attr_of(struct perf_event_attr *attr, const char *tracepoint, __u64 sample_type)
{
	int ret = bid_attr_tracepoint(attr, tracepoint, sample_type | PERF_SAMPLE_REGS_USER |
				      PERF_SAMPLE_IP);

	attr->sample_regs_user = BID_REG_IP;
	bid_attr_defer(attr);
	return ret;
}

static int open_tool(struct bid_tool *t, struct perf_event_attr *attr, pid_t pid, bool cpu_wide)
{
	attr->inherit = !cpu_wide;
	if (bid_tool_open(t, attr, &maps, cpu_wide ? -1 : pid, BID_EACH_CPU, 2 * BID_RING_PAGES))
		return -1;
	t->only = pid;
	t->check.pid = pid;
	return bid_tool_enable(t);
}

/* Starts fn() in a child that is sampled on the tracepoint. */
static int start(struct bid_tool *t, struct bid_task *task, const char *tracepoint,
		 bool cpu_wide, void (*fn)(void *arg))
{
	struct perf_event_attr attr;
	int ret = attr_of(&attr, tracepoint, BID_BITS);

	if (ret)
		return ret;
	if (bid_task_fork(task, fn, task) || open_tool(t, &attr, task->pid, cpu_wide))
		return -1;
	return bid_task_tell(task);
}

static int finish(struct bid_tool *t, struct bid_task *task)
{
	return bid_task_wait(task, NULL) || bid_tool_disable(t) || bid_tool_drain(t) ? -1 : 0;
}

static unsigned long book_samples(struct bid_tool *t)
{
	struct bid_pairs p;

	bid_tool_pairs(t, BID_FULL, &p);
	return p.samples;
}

/* Reads what comes until the task has had so many samples. */
static int wait_for_samples(struct bid_tool *t, unsigned long nr)
{
	__u64 deadline = bid_now_ns() + BID_DEADLINE_S * 1000000000ull;

	while (book_samples(t) < nr) {
		if (bid_now_ns() > deadline)
			return bid_fail("%lu of %lu samples", book_samples(t), nr);
		usleep(1000);
		if (bid_tool_drain(t))
			return -1;
	}
	return 0;
}

/* Exec */

/* Only what the old program had in its address space is right. */
static void become_other(void *arg)
{
	struct bid_task *task = arg;
	char path[PATH_MAX], fd[16];
	char * const argv[] = { "bid_prog", fd, NULL };

	snprintf(fd, sizeof(fd), "%d", dup(task->out));
	if (!bid_helper_path(path, sizeof(path), "bid_sha1"))
		execv(path, argv);
	_exit(3);
}

static int through_exec(struct bid_tool *t, struct bid_task *task, const char *tracepoint,
			bool cpu_wide)
{
	int ret = start(t, task, tracepoint, cpu_wide, become_other);

	if (ret)
		return ret;
	ret = bid_task_listen(task);
	usleep(10000);
	bid_task_kill(task);
	return ret || finish(t, task) ? -1 : 0;
}

TEST_F_TIMEOUT(between, exec_called, BID_TIMEOUT_S)
{
	int ret = through_exec(&self->t, &self->task, "syscalls/sys_enter_execve",
			       variant->cpu_wide);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 1)) TH_LOG("%s", bid_error);
	EXPECT_EQ(100, bid_resolved_percent(&self->t.check.stats));
}

TEST_F_TIMEOUT(between, exec_prepared, BID_TIMEOUT_S)
{
	int ret = through_exec(&self->t, &self->task, "sched/sched_prepare_exec",
			       variant->cpu_wide);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 1)) TH_LOG("%s", bid_error);
	EXPECT_EQ(100, bid_resolved_percent(&self->t.check.stats));
}

/* Asked for when the new program's address space is there: all of it is new. */
TEST_F_TIMEOUT(between, exec_done, BID_TIMEOUT_S)
{
	int ret;

	memset(&maps, 0, sizeof(maps));
	ret = start(&self->t, &self->task, "sched/sched_process_exec", variant->cpu_wide,
		    become_other);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_task_listen(&self->task)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, self->task.pid)) TH_LOG("%s", bid_error);
	bid_task_kill(&self->task);
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 1)) TH_LOG("%s", bid_error);
}

/*
 * One tool asks before, another one after, in one and the same system call. The
 * second gets the callchain of the old program or that of the new one, and not
 * the old one's addresses looked up in the new one's address space.
 */

struct kept {
	__u64		ip;
	__u64		record[65536 / sizeof(__u64)];
};

static struct kept kept;
static struct bid_maps old_maps;

static int keep_sample(const struct bid_sample *s, void *arg)
{
	((struct kept *)arg)->ip = s->user_ip;
	return 0;
}

static int keep_record(const struct bid_deferred *d, void *arg)
{
	memcpy(((struct kept *)arg)->record, d->hdr, d->hdr->size);
	return 0;
}

/* Is this a callchain of the program with these maps, which was at ip? */
static bool belongs_to(const struct bid_tool *t, const struct bid_maps *program, __u64 ip)
{
	struct bid_check c = { .attr = &t->attr, .maps = program };
	struct bid_deferred d;

	return !bid_parse_deferred((const void *)kept.record, &t->attr, &d) && d.nr &&
	       !bid_check_deferred(&c, &d) && !bid_check_frame(&c, d.pid, &d.entries[0], ip);
}

TEST_F_TIMEOUT(between, exec_before_and_after, BID_TIMEOUT_S)
{
	struct perf_event_attr before, after;
	char old[PATH_MAX], next[PATH_MAX];
	struct kept asked = {};
	struct bid_pairs p;
	int ret = attr_of(&before, "sched/sched_prepare_exec", PERF_SAMPLE_CALLCHAIN);

	if (!ret)
		ret = attr_of(&after, "sched/sched_process_exec", BID_BITS);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	/* not PIE, both of them: one's addresses are in the other, too */
	ASSERT_EQ(0, bid_helper_path(old, sizeof(old), "bid_nopie")) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_helper_path(next, sizeof(next), "bid_far")) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_child_fork(&self->child, old, -1, next)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_child_exec(&self->child)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&old_maps, self->child.pid)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, open_tool(&self->t, &before, self->child.pid, variant->cpu_wide))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, open_tool(&self->second, &after, self->child.pid, variant->cpu_wide))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, kill(self->child.pid, SIGUSR1));
	ASSERT_EQ(0, bid_child_wait_ready(&self->child)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_disable(&self->t)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_disable(&self->second)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, self->child.pid)) TH_LOG("%s", bid_error);

	self->t.check.maps = NULL;
	self->t.each = keep_sample;
	self->t.each_arg = &asked;
	EXPECT_EQ(0, bid_tool_drain(&self->t)) TH_LOG("%s", bid_error);
	bid_tool_pairs(&self->t, BID_PLAIN, &p);
	EXPECT_EQ(1, p.pairs);
	EXPECT_EQ(0, p.unanswered + p.repeated + p.differ);

	self->second.check.maps = NULL;
	self->second.each = keep_sample;
	self->second.each_deferred = keep_record;
	self->second.each_arg = &kept;
	EXPECT_EQ(0, bid_tool_drain(&self->second)) TH_LOG("%s", bid_error);
	bid_tool_pairs(&self->second, BID_FULL, &p);
	EXPECT_EQ(1, p.pairs);
	EXPECT_EQ(0, p.unanswered + p.repeated);
	EXPECT_TRUE(belongs_to(&self->second, &old_maps, asked.ip) ||
		    belongs_to(&self->second, &maps, kept.ip)) TH_LOG("%s", bid_error);
}

/* An exec that fails returns to the old program like any system call. */
static void fail_to_become(void *arg)
{
	char * const argv[] = { "nothing", NULL };

	(void)arg;
	for (int i = 0; i < CALLS; i++)
		execv("/nonexistent/nothing", argv);
}

TEST_F_TIMEOUT(between, exec_failed, BID_TIMEOUT_S)
{
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_execve", variant->cpu_wide,
			fail_to_become);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, CALLS)) TH_LOG("%s", bid_error);
}

/* Exit */

static void end_at_once(void *arg)
{
	(void)arg;
	_exit(0);
}

TEST_F_TIMEOUT(between, exit_group, BID_TIMEOUT_S)
{
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_exit_group",
			variant->cpu_wide, end_at_once);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 1)) TH_LOG("%s", bid_error);
}

static void *thread_nothing(void *arg)
{
	return arg;
}

static void end_threads(void *arg)
{
	pthread_t thread;

	(void)arg;
	for (int i = 0; i < THREADS; i++)
		if (!pthread_create(&thread, NULL, thread_nothing, NULL))
			pthread_join(thread, NULL);
}

TEST_F_TIMEOUT(between, exit_of_a_thread, BID_TIMEOUT_S)
{
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_exit", variant->cpu_wide,
			end_threads);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, THREADS)) TH_LOG("%s", bid_error);
}

/* Signals that end the task, where it waits in a system call. */

static void wait_in_read(void *arg)
{
	bid_task_listen(arg);
}

TEST_F_TIMEOUT(between, killed, BID_TIMEOUT_S)
{
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_read", variant->cpu_wide,
			wait_in_read);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, wait_for_samples(&self->t, 1)) TH_LOG("%s", bid_error);
	EXPECT_NE(0, bid_tool_paired(&self->t, BID_FULL, 1));
	ASSERT_EQ(0, kill(self->task.pid, SIGKILL));
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 1)) TH_LOG("%s", bid_error);
	EXPECT_EQ(100, bid_resolved_percent(&self->t.check.stats));
}

static void *thread_wait(void *arg)
{
	wait_in_read(arg);
	return NULL;
}

static void wait_in_threads(void *arg)
{
	pthread_t thread;

	for (int i = 1; i < THREADS; i++)
		pthread_create(&thread, NULL, thread_wait, arg);
	wait_in_read(arg);
}

TEST_F_TIMEOUT(between, killed_with_threads, BID_TIMEOUT_S)
{
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_read", variant->cpu_wide,
			wait_in_threads);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->t.check.flags = BID_LOOSE;
	ASSERT_EQ(0, wait_for_samples(&self->t, THREADS)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, kill(self->task.pid, SIGKILL));
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, THREADS)) TH_LOG("%s", bid_error);
}

/* Fork and vfork: every task has its own cookies and its own callchains. */

static void fork_many(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid) {
			load_calls(5);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
}

static void vfork_many(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++) {
		pid_t pid = vfork();

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

/* All system calls of the task and its children. */
static int sample_all_calls(struct bid_tool *t, struct bid_task *task, bool cpu_wide,
			    void (*fn)(void *arg))
{
	int ret = start(t, task, "raw_syscalls/sys_enter", cpu_wide, fn);

	if (ret)
		return ret;
	t->check.flags = BID_LOOSE;
	if (!cpu_wide) {
		/* the children, too, which have the same programs mapped */
		t->only = 0;
		t->check.pid = 0;
	}
	return finish(t, task);
}

TEST_F_TIMEOUT(between, fork, BID_TIMEOUT_S)
{
	int ret = sample_all_calls(&self->t, &self->task, variant->cpu_wide, fork_many);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, variant->cpu_wide ? 40 : 100))
		TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(between, vfork, BID_TIMEOUT_S)
{
	int ret = sample_all_calls(&self->t, &self->task, variant->cpu_wide, vfork_many);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 40)) TH_LOG("%s", bid_error);
}

/* Threads of one process have stacks of their own. */

struct depths {
	__u32		tid[THREADS];
	unsigned long	seen[THREADS];
};

#define DEPTH(i) (4 + 3 * (i))

static void call_50(void *arg)
{
	(void)arg;
	load_calls(CALLS);
}

static void *thread_descend(void *arg)
{
	static struct depths *depths;
	static int next;
	int i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);

	depths = arg;
	depths->tid[i] = syscall(__NR_gettid);
	descend(DEPTH(i), call_50, NULL);
	return NULL;
}

static int each_depth(const struct bid_deferred *d, void *arg)
{
	struct depths *depths = arg;

	for (int i = 0; i < THREADS; i++) {
		if (depths->tid[i] != d->tid)
			continue;
		if (longest_run(d) != DEPTH(i))
			return bid_fail("thread %d: %lu frames of recursion, not %d", i,
					longest_run(d), DEPTH(i));
		depths->seen[i]++;
		return 0;
	}
	return bid_fail("a record of task %u", d->tid);
}

TEST_F_TIMEOUT(between, threads, BID_TIMEOUT_S)
{
	static struct depths depths;
	pthread_t thread[THREADS];
	int ret = attr_of(&self->attr, "syscalls/sys_enter_getppid", BID_BITS);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, open_tool(&self->t, &self->attr, getpid(), variant->cpu_wide))
		TH_LOG("%s", bid_error);
	self->t.check.flags = BID_LOOSE;
	self->t.each_deferred = each_depth;
	self->t.each_arg = &depths;
	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, thread_descend, &depths));
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ASSERT_EQ(0, bid_tool_disable(&self->t)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_drain(&self->t)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, THREADS * CALLS)) TH_LOG("%s", bid_error);
	for (int i = 0; i < THREADS; i++)
		EXPECT_EQ(CALLS, depths.seen[i]);
}

/* A signal handler, on the task's stack and on its own. */

#define SIGNAL_DEPTH 7

static void on_usr1(int sig)
{
	(void)sig;
	load_calls(1);
	calls++;
}

static void raise_usr1(void *arg)
{
	(void)arg;
	for (int i = 0; i < CALLS; i++)
		syscall(__NR_tgkill, getpid(), syscall(__NR_gettid), SIGUSR1);
	calls++;
}

static int each_handler(const struct bid_deferred *d, void *arg)
{
	(void)arg;
	if (longest_run(d) != SIGNAL_DEPTH)
		return bid_fail("%lu frames of recursion below the handler", longest_run(d));
	return 0;
}

TEST_F_TIMEOUT(between, signal_handler, BID_TIMEOUT_S)
{
	int ret = attr_of(&self->attr, "syscalls/sys_enter_getppid", BID_BITS);
	struct sigaction sa = { .sa_handler = on_usr1 };
	static char altstack[65536];
	stack_t ss = { .ss_sp = altstack, .ss_size = sizeof(altstack) };

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, sigaltstack(&ss, NULL));
	for (int alt = 0; alt < 2; alt++) {
		sa.sa_flags = alt ? SA_ONSTACK : 0;
		ASSERT_EQ(0, sigaction(SIGUSR1, &sa, NULL));
		ASSERT_EQ(0, open_tool(&self->t, &self->attr, getpid(), variant->cpu_wide))
			TH_LOG("%s", bid_error);
		self->t.each_deferred = each_handler;
		descend(SIGNAL_DEPTH, raise_usr1, NULL);
		ASSERT_EQ(0, bid_tool_disable(&self->t)) TH_LOG("%s", bid_error);
		ASSERT_EQ(0, bid_tool_drain(&self->t)) TH_LOG("stack %d: %s", alt, bid_error);
		EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, CALLS)) TH_LOG("%s", bid_error);
		bid_tool_close(&self->t);
	}
}

/*
 * The system call that a handler returns with puts other registers in place of
 * those that it was called with: the callchain is that of where it goes to.
 */
TEST_F_TIMEOUT(between, return_of_a_handler, BID_TIMEOUT_S)
{
	int ret = attr_of(&self->attr, "syscalls/sys_enter_rt_sigreturn", BID_BITS);
	struct sigaction sa = { .sa_handler = on_usr1 };
	struct bid_pairs p;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, sigaction(SIGUSR1, &sa, NULL));
	ASSERT_EQ(0, open_tool(&self->t, &self->attr, getpid(), variant->cpu_wide))
		TH_LOG("%s", bid_error);
	self->t.each_deferred = each_handler;
	descend(SIGNAL_DEPTH, raise_usr1, NULL);
	ASSERT_EQ(0, bid_tool_disable(&self->t)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_drain(&self->t)) TH_LOG("%s", bid_error);
	bid_tool_pairs(&self->t, BID_FULL, &p);
	EXPECT_EQ(CALLS, p.pairs);
	EXPECT_EQ(0, p.unanswered);
	EXPECT_EQ(0, p.repeated);
	TH_LOG("%lu records begin where the handler was called from", p.differ);
}

/* A read() that a signal interrupts and the kernel restarts is called twice. */
static void read_with_handler(void *arg)
{
	struct sigaction sa = { .sa_handler = on_usr1, .sa_flags = SA_RESTART };

	sigaction(SIGUSR1, &sa, NULL);
	descend(SIGNAL_DEPTH, wait_in_read, arg);
}

TEST_F_TIMEOUT(between, restarted, BID_TIMEOUT_S)
{
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_read", variant->cpu_wide,
			read_with_handler);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->t.each_deferred = each_handler;
	for (int i = 1; i <= 5; i++) {
		ASSERT_EQ(0, wait_for_samples(&self->t, i)) TH_LOG("%s", bid_error);
		usleep(20000);
		ASSERT_EQ(0, kill(self->task.pid, SIGUSR1));
	}
	ASSERT_EQ(0, wait_for_samples(&self->t, 6)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_task_tell(&self->task)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 6)) TH_LOG("%s", bid_error);
	EXPECT_EQ(6, book_samples(&self->t));
}

/* ... without a handler, too. */
TEST_F_TIMEOUT(between, stopped, BID_TIMEOUT_S)
{
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_read", variant->cpu_wide,
			wait_in_read);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, wait_for_samples(&self->t, 1)) TH_LOG("%s", bid_error);
	usleep(20000);
	ASSERT_EQ(0, kill(self->task.pid, SIGSTOP));
	ASSERT_EQ(self->task.pid, waitpid(self->task.pid, NULL, WUNTRACED));
	ASSERT_EQ(0, kill(self->task.pid, SIGCONT));
	ASSERT_EQ(0, wait_for_samples(&self->t, 2)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_task_tell(&self->task)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 2)) TH_LOG("%s", bid_error);
}

/* The record comes when the task does. */

struct times {
	__u64 asked, answered;
};

static int each_asked(const struct bid_sample *s, void *arg)
{
	((struct times *)arg)->asked = s->time;
	return 0;
}

static int each_answered(const struct bid_deferred *d, void *arg)
{
	((struct times *)arg)->answered = d->time;
	return 0;
}

TEST_F_TIMEOUT(between, blocked_for_seconds, BID_TIMEOUT_S)
{
	struct times times = {};
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_read", variant->cpu_wide,
			wait_in_read);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->t.each = each_asked;
	self->t.each_deferred = each_answered;
	self->t.each_arg = &times;
	ASSERT_EQ(0, wait_for_samples(&self->t, 1)) TH_LOG("%s", bid_error);
	usleep(2500000);
	ASSERT_EQ(0, bid_tool_drain(&self->t)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, times.answered);
	ASSERT_EQ(0, bid_task_tell(&self->task)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, finish(&self->t, &self->task)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, 1)) TH_LOG("%s", bid_error);
	EXPECT_GT(times.answered, times.asked + 2000000000);
}

/* A tool that goes while something is pending leaves nothing behind. */
TEST_F_TIMEOUT(between, tool_gone, BID_TIMEOUT_S)
{
	int ret = start(&self->t, &self->task, "syscalls/sys_enter_read", variant->cpu_wide,
			wait_in_read);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, wait_for_samples(&self->t, 1)) TH_LOG("%s", bid_error);
	bid_tool_close(&self->t);
	ASSERT_EQ(0, bid_task_tell(&self->task)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_task_wait(&self->task, &ret)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
}

/* A task that never returns to user mode */

struct uring {
	int			fd;
	struct io_uring_params	p;
	char			*sq, *cq;
	struct io_uring_sqe	*sqes;
};

static int uring_open(struct uring *u, unsigned int flags)
{
	memset(u, 0, sizeof(*u));
	u->p.flags = flags;
	u->p.sq_thread_idle = 2000;
	u->fd = syscall(__NR_io_uring_setup, 8, &u->p);
	if (u->fd < 0) {
		bid_fail("no io_uring: %s", strerror(errno));
		return 1;
	}
	u->sq = mmap(NULL, u->p.sq_off.array + 8 * sizeof(__u32), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_POPULATE, u->fd, IORING_OFF_SQ_RING);
	u->cq = mmap(NULL, u->p.cq_off.cqes + 16 * sizeof(struct io_uring_cqe),
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd, IORING_OFF_CQ_RING);
	u->sqes = mmap(NULL, 8 * sizeof(*u->sqes), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_POPULATE, u->fd, IORING_OFF_SQES);
	return u->sq == MAP_FAILED || u->cq == MAP_FAILED || u->sqes == MAP_FAILED ?
	       bid_fail("mmap of io_uring: %s", strerror(errno)) : 0;
}

/* One operation that does nothing, for a worker to do. */
static void uring_nop(struct uring *u)
{
	__u32 *tail = (__u32 *)(u->sq + u->p.sq_off.tail);
	__u32 *array = (__u32 *)(u->sq + u->p.sq_off.array);
	__u32 *cq_head = (__u32 *)(u->cq + u->p.cq_off.head);
	__u32 *cq_tail = (__u32 *)(u->cq + u->p.cq_off.tail);
	struct io_uring_sqe *sqe = &u->sqes[*tail & 7];

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_NOP;
	sqe->flags = IOSQE_ASYNC;
	array[*tail & 7] = *tail & 7;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	syscall(__NR_io_uring_enter, u->fd, 1, 1, IORING_ENTER_GETEVENTS |
		(u->p.flags & IORING_SETUP_SQPOLL ? IORING_ENTER_SQ_WAKEUP : 0), NULL, 0);
	__atomic_store_n(cq_head, __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

/* Whether the thread is called iou-... */
static bool is_worker(__u32 tid)
{
	char path[64], comm[32] = "";
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%u/comm", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, comm, sizeof(comm) - 1);
	close(fd);
	return len > 4 && !strncmp(comm, "iou-", 4);
}

static int each_worker(const struct bid_sample *s, void *arg)
{
	unsigned long *workers = arg;

	if (s->tid == s->pid || !is_worker(s->tid))
		return 0;
	++*workers;
	if (bid_sample_cookie(s))
		return bid_fail("worker %u has a cookie", s->tid);
	for (__u64 i = 0; i < s->nr_entries; i++)
		if (s->entries[i].offset == (__u64)PERF_CONTEXT_USER ||
		    s->entries[i].offset == (__u64)PERF_CONTEXT_USER_DEFERRED)
			return bid_fail("worker %u has a user part", s->tid);
	return 0;
}

static void load_uring(void *arg)
{
	for (int i = 0; i < 10; i++)
		uring_nop(arg);
	usleep(1000);
}

TEST_F_TIMEOUT(between, user_workers, BID_TIMEOUT_S)
{
	unsigned int flags[] = { 0, IORING_SETUP_SQPOLL };

	for (size_t i = 0; i < BID_ARRAY_SIZE(flags); i++) {
		unsigned long workers = 0;
		struct uring u;
		int ret;

		bid_attr_init(&self->attr, PERF_COUNT_SW_CONTEXT_SWITCHES, BID_BITS);
		bid_attr_defer(&self->attr);
		ASSERT_EQ(0, open_tool(&self->t, &self->attr, getpid(), variant->cpu_wide))
			TH_LOG("%s", bid_error);
		self->t.check.flags = BID_EXITS | BID_LOOSE;
		self->t.each = each_worker;
		self->t.each_arg = &workers;
		ret = uring_open(&u, flags[i]);
		if (ret > 0)
			SKIP(return, "%s", bid_error);
		ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
		EXPECT_EQ(0, bid_collect_fn(self->t.e, self->t.nr, bid_tool_record, &self->t,
					    load_uring, &u, &workers, 20)) TH_LOG("%s", bid_error);
		close(u.fd);
		bid_tool_close(&self->t);
	}
}

/* A uretprobe has its own return address on the stack. */

static int open_uretprobe(const char *path, __u64 offset)
{
	struct perf_event_attr attr;
	char text[32] = "";
	ssize_t len;
	int fd = open("/sys/bus/event_source/devices/uprobe/type", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return -1;
	bid_attr_init(&attr, 1, 0);	/* a return probe */
	attr.type = strtoul(text, NULL, 10);
	attr.config1 = (__u64)path;
	attr.config2 = offset;
	attr.sample_period = 0;
	attr.disabled = 0;
	return bid_open(&attr, 0, -1, -1);
}

struct trampoline {
	const struct bid_map	*map;
	unsigned long		seen;
};

static int each_trampoline(const struct bid_deferred *d, void *arg)
{
	struct trampoline *t = arg;
	unsigned long here = 0;

	for (__u64 i = 0; i < d->nr; i++)
		here += d->entries[i].build_id.status == PERF_BUILD_ID_OFFSET_ANON &&
			d->entries[i].offset >= t->map->start && d->entries[i].offset < t->map->end;
	if (here != 1)
		return bid_fail("%lu frames in the trampoline", here);
	t->seen++;
	return 0;
}

TEST_F_TIMEOUT(between, uretprobe, BID_TIMEOUT_S)
{
	int ret = attr_of(&self->attr, "syscalls/sys_enter_getppid", BID_BITS), fd;
	struct trampoline trampoline = {};
	const struct bid_map *m;
	char path[PATH_MAX];
	bid_lib_call_fn call;
	void *dl;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_helper_path(path, sizeof(path), "bid_lib.so")) TH_LOG("%s", bid_error);
	dl = dlopen(path, RTLD_NOW);
	ASSERT_TRUE(!!dl) TH_LOG("%s", dlerror());
	call = (bid_lib_call_fn)dlsym(dl, "bid_lib_call");
	ASSERT_TRUE(!!call);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	m = bid_maps_find(&maps, (__u64)call);
	ASSERT_TRUE(!!m);
	fd = open_uretprobe(path, m->offset + ((__u64)call - m->start));
	if (fd < 0)
		SKIP(return, "no uretprobes: %s", strerror(errno));
	call(call_50, NULL);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	trampoline.map = bid_maps_exec(&maps, "[uprobes]");
	ASSERT_TRUE(!!trampoline.map);
	ASSERT_EQ(0, open_tool(&self->t, &self->attr, getpid(), variant->cpu_wide))
		TH_LOG("%s", bid_error);
	self->t.each_deferred = each_trampoline;
	self->t.each_arg = &trampoline;
	call(call_50, NULL);
	ASSERT_EQ(0, bid_tool_disable(&self->t)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_drain(&self->t)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t, BID_FULL, CALLS)) TH_LOG("%s", bid_error);
	EXPECT_EQ(CALLS, trampoline.seen);
	close(fd);
}

TEST_HARNESS_MAIN
