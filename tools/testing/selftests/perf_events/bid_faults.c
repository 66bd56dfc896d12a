// SPDX-License-Identifier: GPL-2.0
/*
 * Allocations that fail, one after the other: where an event is opened or its
 * ring mapped, the call fails and nothing is left; where a callchain is resolved
 * before the return to user mode, the record still comes, and says so. Needs
 * CONFIG_FAILSLAB, CONFIG_FAIL_PAGE_ALLOC and CONFIG_FAULT_INJECTION_DEBUG_FS.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define ALL_FOUR (BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN)
#define NTH_MAX 1000

static const struct setting {
	const char	*path;
	const char	*value, *otherwise;
} settings[] = {
	{ "/sys/kernel/debug/failslab/ignore-gfp-wait", "N", "Y" },
	{ "/sys/kernel/debug/failslab/verbose", "0", "2" },
	{ "/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N", "Y" },
	{ "/sys/kernel/debug/fail_page_alloc/min-order", "0", "1" },
	{ "/sys/kernel/debug/fail_page_alloc/verbose", "0", "2" },
};

static int apply(bool ours)
{
	for (size_t i = 0; i < BID_ARRAY_SIZE(settings); i++) {
		const char *value = ours ? settings[i].value : settings[i].otherwise;
		int fd = open(settings[i].path, O_WRONLY | O_CLOEXEC);

		if (fd < 0 || write(fd, value, 1) != 1)
			return bid_fail("%s: %s", settings[i].path, strerror(errno));
		close(fd);
	}
	return 0;
}

/* From now on, the nth allocation of this task fails; 0: none. */
static int nth_fd = -1;

static int fail_nth(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	return pwrite(nth_fd, text, len, 0) == len ? 0 : bid_fail("fail-nth: %s", strerror(errno));
}

/* Whether it has come to that; none fails after this. */
static int has_failed(void)
{
	char text[16] = "";

	if (pread(nth_fd, text, sizeof(text) - 1, 0) <= 0)
		return bid_fail("fail-nth: %s", strerror(errno));
	if (atoi(text))
		return fail_nth(0) ? -1 : 0;
	return 1;
}

FIXTURE(faults)
{
	struct bid_event e;
	struct bid_tool t;
};

FIXTURE_SETUP(faults)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	if (access(settings[0].path, F_OK))
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (nth_fd < 0 || access(settings[0].path, W_OK))
		SKIP(return, "the kernel cannot let allocations fail");
	ASSERT_EQ(0, apply(true)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(faults)
{
	if (nth_fd >= 0 && !access(settings[0].path, W_OK))
		EXPECT_EQ(0, apply(false)) TH_LOG("%s", bid_error);
	bid_event_close(&self->e);
	bid_tool_close(&self->t);
	EXPECT_EQ(0, bid_state_zero()) TH_LOG("%s", bid_error);
}

/* The first event, which everything that exists because of events comes with. */
static int open_failing(const struct perf_event_attr *attr, unsigned int *failed)
{
	for (unsigned int n = 1; n < NTH_MAX; n++) {
		int fd, error, injected;

		if (fail_nth(n))
			return -1;
		fd = bid_open(attr, 0, -1, -1);
		error = errno;
		injected = has_failed();
		if (fd >= 0)
			close(fd);
		if (injected < 0)
			return -1;
		if (!injected)
			return fd >= 0 ? 0 : bid_fail("no failure, and %s", strerror(error));
		if (fd < 0 && error != ENOMEM)
			return bid_fail("allocation %u fails with %s", n, strerror(error));
		if (bid_state_zero())
			return -1;
		*failed += fd < 0;
	}
	return bid_fail("still failing after %d allocations", NTH_MAX);
}

TEST_F_TIMEOUT(faults, open, 4 * BID_TIMEOUT_S)
{
	struct perf_event_attr attr;
	unsigned int failed = 0;

	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, ALL_FOUR);
	bid_attr_defer(&attr);
	EXPECT_EQ(0, open_failing(&attr, &failed)) TH_LOG("%s", bid_error);
	TH_LOG("%u opens failed", failed);
	/* the event and its buffers: some for each CPU */
	EXPECT_GT(failed, 5);
}

static int map_failing(struct bid_event *e, unsigned int *failed)
{
	size_t size = 5 * sysconf(_SC_PAGESIZE);

	for (unsigned int n = 1; n < NTH_MAX; n++) {
		int injected;
		void *p;

		if (fail_nth(n))
			return -1;
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
		injected = has_failed();
		if (p != MAP_FAILED)
			munmap(p, size);
		if (injected <= 0)
			return injected;
		*failed += p == MAP_FAILED;
	}
	return bid_fail("still failing after %d allocations", NTH_MAX);
}

TEST_F_TIMEOUT(faults, ring, BID_TIMEOUT_S)
{
	struct perf_event_attr attr;
	unsigned int failed = 0;

	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, ALL_FOUR);
	ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, 0)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_event_enable(&self->e)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, map_failing(&self->e, &failed)) TH_LOG("%s", bid_error);
	EXPECT_GT(failed, 3);
}

/* Frames of deferred callchains for which there was no memory */
static unsigned long no_memory;

static int each_deferred(const struct bid_deferred *d, void *arg)
{
	(void)arg;
	for (__u64 i = 0; d->entries && i < d->nr; i++)
		no_memory += d->entries[i].build_id.status == PERF_BUILD_ID_OFFSET_NO_MEMORY;
	return 0;
}

/* Every system call is sampled, the one that lets an allocation fail included. */
TEST_F_TIMEOUT(faults, before_the_return, BID_TIMEOUT_S)
{
	struct perf_event_attr attr;
	int ret = bid_attr_tracepoint(&attr, "raw_syscalls/sys_enter", ALL_FOUR);
	struct bid_pairs pairs;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	bid_attr_defer(&attr);
	ASSERT_EQ(0, bid_tool_open(&self->t, &attr, NULL, 0, -1, 256)) TH_LOG("%s", bid_error);
	self->t.check.flags = BID_LOOSE | BID_EXITS | BID_UNREADABLE;
	self->t.check.pid = -1;
	self->t.each_deferred = each_deferred;
	ASSERT_EQ(0, bid_tool_enable(&self->t)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(0, fail_nth(1 + i % 10)) TH_LOG("%s", bid_error);
		syscall(__NR_getppid);
		syscall(__NR_getppid);
		ASSERT_GE(has_failed(), 0) TH_LOG("%s", bid_error);
	}
	ASSERT_EQ(0, bid_tool_disable(&self->t)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_drain(&self->t)) TH_LOG("%s", bid_error);
	bid_tool_pairs(&self->t, BID_FULL, &pairs);
	TH_LOG("%lu cookies, %lu pairs, %lu frames without memory", pairs.cookies, pairs.pairs,
	       no_memory);
	EXPECT_GT(no_memory, 0);
	EXPECT_EQ(0, pairs.unasked);
	EXPECT_EQ(0, pairs.repeated);
	/* the one that is in the system call that disables the event */
	EXPECT_LE(pairs.unanswered, 1);
}

TEST_HARNESS_MAIN
