// SPDX-License-Identifier: GPL-2.0
/*
 * perf_event_open() with the build ID sample bits: who may ask for what, what
 * is refused, and that no way of opening and closing leaves anything behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define NOBODY 65534

static struct bid_maps maps;

/* A short recording, checked. */
static int record(__u64 sample_type, unsigned long want)
{
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps };
	struct bid_event e;
	int ret;

	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, sample_type);
	if (bid_event_open(&e, &attr, 0, -1, -1, BID_RING_PAGES))
		return -1;
	ret = bid_collect(&e, &c, bid_load_user, NULL,
			  &c.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], want);
	bid_event_close(&e);
	return ret;
}

static int still_works(void)
{
	return record(BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN, 100);
}

FIXTURE(open)
{
	struct perf_event_attr attr;
};

FIXTURE_SETUP(open)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	bid_attr_init(&self->attr, PERF_COUNT_SW_CPU_CLOCK, BID_BITS);
}

FIXTURE_TEARDOWN(open)
{
}

TEST_F(open, kinds_of_event)
{
	__u64 configs[] = {
		PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK,
		PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_CONTEXT_SWITCHES,
		PERF_COUNT_SW_CPU_MIGRATIONS, PERF_COUNT_SW_DUMMY,
	};

	for (size_t i = 0; i < BID_ARRAY_SIZE(configs); i++) {
		self->attr.config = configs[i];
		EXPECT_EQ(0, bid_open_errno(&self->attr, 0, -1, -1));
		EXPECT_EQ(0, bid_open_errno(&self->attr, -1, 0, -1));
	}
}

/* The first published size of the attr is enough for the bits. */
TEST_F(open, oldest_attr)
{
	self->attr.size = PERF_ATTR_SIZE_VER0;
	EXPECT_EQ(0, bid_open_errno(&self->attr, 0, -1, -1));
}

/* A counter, not a sampling event, may have the bits as it may have any. */
TEST_F(open, without_a_period)
{
	self->attr.sample_period = 0;
	EXPECT_EQ(0, bid_open_errno(&self->attr, 0, -1, -1));
}

TEST_F(open, unknown_bits)
{
	for (int bit = 27; bit < 64; bit++) {
		self->attr.sample_type = 1ULL << bit;
		EXPECT_EQ(EINVAL, bid_open_errno(&self->attr, 0, -1, -1)) TH_LOG("bit %d", bit);
		self->attr.sample_type |= BID_BITS;
		EXPECT_EQ(EINVAL, bid_open_errno(&self->attr, 0, -1, -1)) TH_LOG("bit %d", bit);
	}
}

/* sample_max_stack above the sysctl: refused as for CALLCHAIN. */
TEST_F(open, max_stack_above_sysctl)
{
	long max;
	int old;

	ASSERT_EQ(0, bid_sysctl_get("kernel/perf_event_max_stack", &max)) TH_LOG("%s", bid_error);
	self->attr.sample_max_stack = max + 1;
	self->attr.sample_type = PERF_SAMPLE_CALLCHAIN;
	old = bid_open_errno(&self->attr, 0, -1, -1);
	EXPECT_EQ(EOVERFLOW, old);
	self->attr.sample_type = BID_CHAIN;
	EXPECT_EQ(old, bid_open_errno(&self->attr, 0, -1, -1));
	self->attr.sample_type = BID_CHAIN | PERF_SAMPLE_CALLCHAIN;
	EXPECT_EQ(old, bid_open_errno(&self->attr, 0, -1, -1));
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
}

/* An event with the new callchain bit holds callchain buffers, and lets go. */
TEST_F(open, holds_callchain_buffers)
{
	__u64 types[] = { BID_CHAIN, BID_BITS, BID_CHAIN | PERF_SAMPLE_CALLCHAIN };
	long max;

	ASSERT_EQ(0, bid_sysctl_get("kernel/perf_event_max_stack", &max)) TH_LOG("%s", bid_error);
	for (size_t i = 0; i < BID_ARRAY_SIZE(types); i++) {
		int fd;

		ASSERT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
		self->attr.sample_type = types[i];
		fd = bid_open(&self->attr, 0, -1, -1);
		ASSERT_GE(fd, 0);
		EXPECT_EQ(-EBUSY, bid_sysctl_set("kernel/perf_event_max_stack", max));
		close(fd);
		EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	}
}

/* Opens that fail, each for one reason. */
struct bad_open {
	const char *what;
	struct perf_event_attr attr;
	pid_t pid;
	int cpu, group_fd;
};

/* The errno of the i-th, negative; 0 when there are no more. */
static int make_bad(struct bad_open *bad, int i)
{
	bid_attr_init(&bad->attr, PERF_COUNT_SW_CPU_CLOCK, BID_BITS | PERF_SAMPLE_CALLCHAIN);
	bad->pid = 0;
	bad->cpu = -1;
	bad->group_fd = -1;

	switch (i) {
	case 0:
		bad->what = "read_format";
		bad->attr.read_format = PERF_FORMAT_MAX;
		return -EINVAL;
	case 1:
		bad->what = "group_fd";
		bad->group_fd = 1000000;
		return -EBADF;
	case 2:
		bad->what = "pid";
		bad->pid = 0x7ffffff0;
		return -ESRCH;
	case 3:
		bad->what = "cpu";
		bad->pid = -1;
		bad->cpu = 1000000;
		return -EINVAL;
	case 4:
		bad->what = "software event";
		bad->attr.config = PERF_COUNT_SW_MAX;
		return -ENOENT;
	case 5:
		bad->what = "type";
		bad->attr.type = 0x7ffffff0;
		return -ENOENT;
	case 6:
		bad->what = "user registers";
		bad->attr.sample_type |= PERF_SAMPLE_REGS_USER;
		return -EINVAL;
	case 7:
		bad->what = "clock";
		bad->attr.use_clockid = 1;
		bad->attr.clockid = 12345;
		return -EINVAL;
	case 8:
		bad->what = "user stack size";
		bad->attr.sample_type |= PERF_SAMPLE_STACK_USER;
		bad->attr.sample_stack_user = 65535;
		return -EINVAL;
	case 9:
		bad->what = "period";
		bad->attr.sample_period = 1ULL << 63;
		return -EINVAL;
	case 10:
		bad->what = "sigtrap";
		bad->attr.sigtrap = 1;
		return -EINVAL;
	default:
		return 0;
	}
}

TEST_F_TIMEOUT(open, failures_leave_nothing, BID_TIMEOUT_S)
{
	struct bad_open bad;
	int want;

	for (int i = 0; (want = make_bad(&bad, i)); i++) {
		for (int n = 0; n < 20; n++)
			EXPECT_EQ(-want, bid_open_errno(&bad.attr, bad.pid, bad.cpu, bad.group_fd))
				TH_LOG("%s", bad.what);
	}
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, still_works()) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
}

/* A member that its leader does not take: the event exists and is undone. */
TEST_F(open, failed_group_leaves_nothing)
{
	int leader;

	leader = bid_open(&self->attr, 0, -1, -1);
	ASSERT_GE(leader, 0);
	self->attr.pinned = 1;
	for (int n = 0; n < 50; n++)
		EXPECT_EQ(EINVAL, bid_open_errno(&self->attr, 0, -1, leader));
	close(leader);
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, still_works()) TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(open, open_and_close_a_thousand_times, BID_TIMEOUT_S)
{
	__u64 types[] = { BID_IP, BID_CHAIN, BID_BITS,
			  BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN };

	self->attr.disabled = 0;
	for (int i = 0; i < 1000; i++) {
		self->attr.sample_type = types[i % BID_ARRAY_SIZE(types)];
		ASSERT_EQ(0, bid_open_errno(&self->attr, i & 1 ? 0 : -1, i & 1 ? -1 : 0, -1));
	}
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, still_works()) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
}

/* Children inherit events and die, before and after their parent's is closed. */
TEST_F_TIMEOUT(open, inherit_and_close, BID_TIMEOUT_S)
{
	self->attr.inherit = 1;
	self->attr.disabled = 0;
	for (int i = 0; i < 40; i++) {
		int fd = bid_open(&self->attr, 0, -1, -1);
		pid_t pid;

		ASSERT_GE(fd, 0);
		pid = fork();
		ASSERT_GE(pid, 0);
		if (!pid) {
			close(fd);
			bid_load_user(NULL);
			_exit(0);
		}
		if (i & 1)
			close(fd);
		ASSERT_EQ(pid, waitpid(pid, NULL, 0));
		if (!(i & 1))
			close(fd);
	}
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, still_works()) TH_LOG("%s", bid_error);
}

/* First and last events come and go on all CPUs while others sample. */
TEST_F_TIMEOUT(open, all_at_once, BID_TIMEOUT_S)
{
	__u64 types[] = { BID_IP, BID_CHAIN, BID_BITS,
			  BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN };
	pid_t pids[6];
	int status;

	for (size_t i = 0; i < BID_ARRAY_SIZE(pids); i++) {
		pids[i] = fork();
		ASSERT_GE(pids[i], 0);
		for (int round = 0; !pids[i] && round < 15; round++) {
			if (!record(types[(i + round) % BID_ARRAY_SIZE(types)], 3))
				continue;
			TH_LOG("%s", bid_error);
			_exit(1);
		}
		if (!pids[i])
			_exit(0);
	}
	for (size_t i = 0; i < BID_ARRAY_SIZE(pids); i++) {
		ASSERT_EQ(pids[i], waitpid(pids[i], &status, 0));
		EXPECT_EQ(0, status);
	}
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, still_works()) TH_LOG("%s", bid_error);
}

/* A CPU goes away with its event and comes back without. */

static int set_online(int cpu, bool online)
{
	char path[64];
	int fd, ret;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return bid_fail("%s: %s", path, strerror(errno));
	ret = write(fd, online ? "1" : "0", 1) == 1 ? 0 : bid_fail("%s: %s", path, strerror(errno));
	close(fd);
	return ret;
}

TEST_F_TIMEOUT(open, cpu_goes_away, BID_TIMEOUT_S)
{
	self->attr.disabled = 0;
	for (int i = 0; i < 3; i++) {
		int fd = bid_open(&self->attr, -1, 1, -1);

		if (fd < 0)
			SKIP(return, "no second CPU");
		if (set_online(1, false)) {
			close(fd);
			SKIP(return, "%s", bid_error);
		}
		EXPECT_EQ(ENODEV, bid_open_errno(&self->attr, -1, 1, -1));
		/* before or after its event is closed */
		if (i & 1)
			close(fd);
		EXPECT_EQ(0, set_online(1, true)) TH_LOG("%s", bid_error);
		if (!(i & 1))
			close(fd);
		EXPECT_EQ(0, bid_open_errno(&self->attr, -1, 1, -1));
	}
	EXPECT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, still_works()) TH_LOG("%s", bid_error);
}

/* Permissions */

FIXTURE(unprivileged)
{
	struct perf_event_attr attr;
};

FIXTURE_VARIANT(unprivileged)
{
	long paranoid;
};

FIXTURE_VARIANT_ADD(unprivileged, paranoid_2) {
	.paranoid = 2,
};

FIXTURE_VARIANT_ADD(unprivileged, paranoid_1) {
	.paranoid = 1,
};

FIXTURE_VARIANT_ADD(unprivileged, paranoid_0) {
	.paranoid = 0,
};

FIXTURE_VARIANT_ADD(unprivileged, paranoid_minus_1) {
	.paranoid = -1,
};

FIXTURE_SETUP(unprivileged)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_sysctl_set("kernel/perf_event_paranoid", variant->paranoid))
		TH_LOG("%s", bid_error);
	/* the first event and the last of a kind are slow: this is neither, and stays */
	bid_attr_init(&self->attr, PERF_COUNT_SW_CPU_CLOCK, BID_BITS);
	ASSERT_GE(bid_open(&self->attr, 0, -1, -1), 0);
	ASSERT_EQ(0, setgroups(0, NULL));
	ASSERT_EQ(0, setresgid(NOBODY, NOBODY, NOBODY));
	ASSERT_EQ(0, setresuid(NOBODY, NOBODY, NOBODY));
}

FIXTURE_TEARDOWN(unprivileged)
{
}

static void attr_exclude(struct perf_event_attr *attr, int combo)
{
	attr->exclude_kernel = !!(combo & 1);
	attr->exclude_callchain_kernel = !!(combo & 2);
	attr->exclude_callchain_user = !!(combo & 4);
	attr->exclude_user = !!(combo & 8);
	attr->exclude_hv = !!(combo & 1);
}

/* The new bits ask for what the bits they stand for ask, no more and no less. */
TEST_F(unprivileged, same_errno)
{
	struct {
		__u64 old, new;
	} pairs[] = {
		{ PERF_SAMPLE_IP, BID_IP },
		{ PERF_SAMPLE_CALLCHAIN, BID_CHAIN },
		{ PERF_SAMPLE_CALLCHAIN, BID_BITS },
		{ PERF_SAMPLE_CALLCHAIN, BID_CHAIN | PERF_SAMPLE_CALLCHAIN },
		{ PERF_SAMPLE_CALLCHAIN, BID_IP | PERF_SAMPLE_CALLCHAIN },
		{ PERF_SAMPLE_CALLCHAIN, BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN },
	};

	for (int combo = 0; combo < 16; combo++) {
		for (size_t i = 0; i < BID_ARRAY_SIZE(pairs); i++) {
			for (int cpu = -1; cpu <= 0; cpu++) {
				pid_t pid = cpu < 0 ? 0 : -1;
				int old;

				bid_attr_init(&self->attr, PERF_COUNT_SW_CPU_CLOCK, pairs[i].old);
				attr_exclude(&self->attr, combo);
				old = bid_open_errno(&self->attr, pid, cpu, -1);
				self->attr.sample_type = pairs[i].new;
				EXPECT_EQ(old, bid_open_errno(&self->attr, pid, cpu, -1))
					TH_LOG("exclude %#x, sample_type %#llx", combo,
					       (unsigned long long)pairs[i].new);
			}
		}
	}
}

/* The rule that the table above compares with, in one case of each kind. */
TEST_F(unprivileged, kernel_callchains_need_permission)
{
	int refused = variant->paranoid > 1 ? EACCES : 0;

	bid_attr_init(&self->attr, PERF_COUNT_SW_CPU_CLOCK, BID_CHAIN);
	EXPECT_EQ(refused, bid_open_errno(&self->attr, 0, -1, -1));
	self->attr.exclude_kernel = 1;
	EXPECT_EQ(refused, bid_open_errno(&self->attr, 0, -1, -1));
	self->attr.exclude_callchain_kernel = 1;
	EXPECT_EQ(0, bid_open_errno(&self->attr, 0, -1, -1));
	self->attr.sample_type = BID_IP;
	self->attr.exclude_callchain_kernel = 0;
	EXPECT_EQ(0, bid_open_errno(&self->attr, 0, -1, -1));
	self->attr.exclude_kernel = 0;
	EXPECT_EQ(refused, bid_open_errno(&self->attr, 0, -1, -1));
}

/* What may be had without privilege shows nothing of the kernel. */
TEST_F_TIMEOUT(unprivileged, sees_no_kernel, BID_TIMEOUT_S)
{
	__u64 configs[] = { PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK,
			    PERF_COUNT_SW_PAGE_FAULTS };
	__u64 types[] = { BID_BITS, BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN };
	struct bid_check c = {
		.attr = &self->attr, .maps = &maps, .flags = BID_NO_KERNEL | BID_LOOSE,
	};
	struct bid_event e;

	for (size_t i = 0; i < BID_ARRAY_SIZE(configs) * BID_ARRAY_SIZE(types); i++) {
		__u64 config = configs[i / BID_ARRAY_SIZE(types)];
		bool faults = config == PERF_COUNT_SW_PAGE_FAULTS;

		memset(&c.stats, 0, sizeof(c.stats));
		bid_attr_init(&self->attr, config, types[i % BID_ARRAY_SIZE(types)]);
		self->attr.exclude_kernel = 1;
		self->attr.exclude_callchain_kernel = 1;
		ASSERT_EQ(0, bid_event_open(&e, &self->attr, 0, -1, -1, 8))
			TH_LOG("%s", bid_error);
		ASSERT_EQ(0, bid_collect(&e, &c, faults ? bid_load_faults : bid_load_kernel, NULL,
					 &c.stats.samples, 100)) TH_LOG("%s", bid_error);
		EXPECT_EQ(0, c.stats.kernel);
		EXPECT_GE(c.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], 50);
		bid_event_close(&e);
	}
}

TEST_HARNESS_MAIN
