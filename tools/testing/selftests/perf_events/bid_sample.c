// SPDX-License-Identifier: GPL-2.0
/*
 * PERF_SAMPLE_BUILD_ID_OFFSET and PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET in the
 * sample record: alone, together, beside the addresses they stand for, and
 * beside every other sample bit.
 */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "kselftest_harness.h"
#include "bid_common.h"

static struct bid_maps maps;

/* The new bits, with and without what they describe. */

FIXTURE(bits)
{
	struct bid_event e;
};

FIXTURE_VARIANT(bits)
{
	__u64 sample_type;
};

FIXTURE_VARIANT_ADD(bits, ip_alone) {
	.sample_type = BID_IP,
};

FIXTURE_VARIANT_ADD(bits, chain_alone) {
	.sample_type = BID_CHAIN,
};

FIXTURE_VARIANT_ADD(bits, both) {
	.sample_type = BID_BITS,
};

FIXTURE_VARIANT_ADD(bits, ip_with_ip) {
	.sample_type = BID_IP | PERF_SAMPLE_IP,
};

FIXTURE_VARIANT_ADD(bits, ip_with_callchain) {
	.sample_type = BID_IP | PERF_SAMPLE_CALLCHAIN,
};

FIXTURE_VARIANT_ADD(bits, chain_with_ip) {
	.sample_type = BID_CHAIN | PERF_SAMPLE_IP,
};

FIXTURE_VARIANT_ADD(bits, chain_with_callchain) {
	.sample_type = BID_CHAIN | PERF_SAMPLE_CALLCHAIN,
};

FIXTURE_VARIANT_ADD(bits, both_with_ip) {
	.sample_type = BID_BITS | PERF_SAMPLE_IP,
};

FIXTURE_VARIANT_ADD(bits, both_with_callchain) {
	.sample_type = BID_BITS | PERF_SAMPLE_CALLCHAIN,
};

FIXTURE_VARIANT_ADD(bits, all_four) {
	.sample_type = BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN,
};

FIXTURE_SETUP(bits)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(bits)
{
	bid_event_close(&self->e);
}

/* One event and a load that computes: most of what is in a file resolves. */
TEST_F_TIMEOUT(bits, user_load, BID_TIMEOUT_S)
{
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps };

	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, variant->sample_type);
	bid_attr_apart(&attr);
	attr.exclude_kernel = 1;
	ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&self->e, &c, bid_load_user, NULL, &c.stats.samples, 300))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&self->e, &c, bid_load_user, NULL, &c.stats.file_frames, 300))
		TH_LOG("%s", bid_error);
	EXPECT_EQ(0, c.stats.lost);
	EXPECT_GE(bid_resolved_percent(&c.stats), BID_MOST)
		TH_LOG("%s", bid_resolved_text(&c.stats));
}

/* Samples in the kernel too: its addresses are passed over. */
TEST_F_TIMEOUT(bits, kernel_load, BID_TIMEOUT_S)
{
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps };

	bid_attr_init(&attr, PERF_COUNT_SW_TASK_CLOCK, variant->sample_type);
	ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&self->e, &c, bid_load_kernel, NULL, &c.stats.kernel, 20))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&self->e, &c, bid_load_kernel, NULL, &c.stats.samples, 200))
		TH_LOG("%s", bid_error);
	/* how many of them are in user mode is up to how fast the kernel is */
	EXPECT_EQ(0, bid_collect(&self->e, &c, bid_load_kernel, NULL,
				 &c.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], 20))
		TH_LOG("%s", bid_error);
}

/* Where nothing else is in the way, 99 of 100 resolve. */
TEST(nothing_else_in_the_way)
{
	int ret = bid_ready();
	struct bid_event e;
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps };

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, BID_BITS);
	bid_attr_apart(&attr);
	attr.sample_period *= 4;
	attr.exclude_kernel = 1;
	ASSERT_EQ(0, bid_event_open(&e, &attr, 0, -1, -1, BID_RING_PAGES)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&e, &c, bid_load_user, NULL, &c.stats.samples, 400))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&e, &c, bid_load_user, NULL, &c.stats.file_frames, 400))
		TH_LOG("%s", bid_error);
	EXPECT_GE(bid_resolved_percent(&c.stats), 99)
		TH_LOG("%s", bid_resolved_text(&c.stats));
}

/* What is excluded stays out, and what is not is there. */

FIXTURE(exclude)
{
	struct bid_event e;
};

FIXTURE_VARIANT(exclude)
{
	bool chain_user, chain_kernel, user, kernel;
};

FIXTURE_VARIANT_ADD(exclude, callchain_user) {
	.chain_user = true,
};

FIXTURE_VARIANT_ADD(exclude, callchain_kernel) {
	.chain_kernel = true,
};

FIXTURE_VARIANT_ADD(exclude, both_callchains) {
	.chain_user = true, .chain_kernel = true,
};

FIXTURE_VARIANT_ADD(exclude, user) {
	.user = true,
};

FIXTURE_VARIANT_ADD(exclude, kernel) {
	.kernel = true,
};

FIXTURE_VARIANT_ADD(exclude, kernel_and_its_callchain) {
	.kernel = true, .chain_kernel = true,
};

FIXTURE_SETUP(exclude)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(exclude)
{
	bid_event_close(&self->e);
}

static int each_excluded(const struct bid_sample *s, void *arg)
{
	const struct perf_event_attr *attr = arg;
	int mode = s->hdr->misc & PERF_RECORD_MISC_CPUMODE_MASK;

	if (attr->exclude_user && mode == PERF_RECORD_MISC_USER)
		return bid_fail("a sample in user mode");
	if (attr->exclude_kernel && mode == PERF_RECORD_MISC_KERNEL)
		return bid_fail("a sample in the kernel");
	if (attr->exclude_callchain_user && attr->exclude_callchain_kernel && s->nr_entries)
		return bid_fail("%llu entries in an empty callchain",
				(unsigned long long)s->nr_entries);
	return 0;
}

TEST_F_TIMEOUT(exclude, holds, BID_TIMEOUT_S)
{
	__u64 types[] = { BID_BITS, BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN };
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps };

	for (size_t i = 0; i < BID_ARRAY_SIZE(types); i++) {
		memset(&c.stats, 0, sizeof(c.stats));
		bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, types[i]);
		attr.exclude_callchain_user = variant->chain_user;
		attr.exclude_callchain_kernel = variant->chain_kernel;
		attr.exclude_user = variant->user;
		attr.exclude_kernel = variant->kernel;
		c.each = each_excluded;
		c.each_arg = &attr;
		ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
			TH_LOG("%s", bid_error);
		ASSERT_EQ(0, bid_collect(&self->e, &c, bid_load_kernel, NULL,
					 &c.stats.samples, 150)) TH_LOG("%s", bid_error);
		EXPECT_EQ(0, bid_collect(&self->e, &c, bid_load_kernel, NULL,
					 &c.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED],
					 variant->chain_user ? 30 : 150)) TH_LOG("%s", bid_error);
		if (variant->kernel)
			EXPECT_EQ(0, c.stats.kernel);
		bid_event_close(&self->e);
	}
}

/* Every other bit beside the new ones. */

FIXTURE(beside)
{
	struct bid_event e;
};

FIXTURE_VARIANT(beside)
{
	__u64 sample_type;
	const char *tracepoint;
};

FIXTURE_VARIANT_ADD(beside, identifier) {
	.sample_type = PERF_SAMPLE_IDENTIFIER,
};

FIXTURE_VARIANT_ADD(beside, tid) {
	.sample_type = PERF_SAMPLE_TID,
};

FIXTURE_VARIANT_ADD(beside, time) {
	.sample_type = PERF_SAMPLE_TIME,
};

FIXTURE_VARIANT_ADD(beside, addr) {
	.sample_type = PERF_SAMPLE_ADDR,
};

FIXTURE_VARIANT_ADD(beside, read) {
	.sample_type = PERF_SAMPLE_READ,
};

FIXTURE_VARIANT_ADD(beside, id) {
	.sample_type = PERF_SAMPLE_ID,
};

FIXTURE_VARIANT_ADD(beside, cpu) {
	.sample_type = PERF_SAMPLE_CPU,
};

FIXTURE_VARIANT_ADD(beside, period) {
	.sample_type = PERF_SAMPLE_PERIOD,
};

FIXTURE_VARIANT_ADD(beside, stream_id) {
	.sample_type = PERF_SAMPLE_STREAM_ID,
};

FIXTURE_VARIANT_ADD(beside, raw) {
	.sample_type = PERF_SAMPLE_RAW,
};

FIXTURE_VARIANT_ADD(beside, branch_stack) {
	.sample_type = PERF_SAMPLE_BRANCH_STACK,
};

FIXTURE_VARIANT_ADD(beside, regs_user) {
	.sample_type = PERF_SAMPLE_REGS_USER,
};

FIXTURE_VARIANT_ADD(beside, stack_user) {
	.sample_type = PERF_SAMPLE_STACK_USER,
};

FIXTURE_VARIANT_ADD(beside, weight) {
	.sample_type = PERF_SAMPLE_WEIGHT,
};

FIXTURE_VARIANT_ADD(beside, weight_struct) {
	.sample_type = PERF_SAMPLE_WEIGHT_STRUCT,
};

FIXTURE_VARIANT_ADD(beside, data_src) {
	.sample_type = PERF_SAMPLE_DATA_SRC,
};

FIXTURE_VARIANT_ADD(beside, transaction) {
	.sample_type = PERF_SAMPLE_TRANSACTION,
};

FIXTURE_VARIANT_ADD(beside, regs_intr) {
	.sample_type = PERF_SAMPLE_REGS_INTR,
};

FIXTURE_VARIANT_ADD(beside, phys_addr) {
	.sample_type = PERF_SAMPLE_PHYS_ADDR,
};

FIXTURE_VARIANT_ADD(beside, cgroup) {
	.sample_type = PERF_SAMPLE_CGROUP,
};

FIXTURE_VARIANT_ADD(beside, data_page_size) {
	.sample_type = PERF_SAMPLE_DATA_PAGE_SIZE,
};

FIXTURE_VARIANT_ADD(beside, code_page_size) {
	.sample_type = PERF_SAMPLE_CODE_PAGE_SIZE,
};

/* all but BRANCH_STACK, CGROUP and AUX, which the machine may not have */
FIXTURE_VARIANT_ADD(beside, everything) {
	.sample_type = (PERF_SAMPLE_WEIGHT_STRUCT * 2 - 1) & ~(PERF_SAMPLE_WEIGHT |
		PERF_SAMPLE_BRANCH_STACK | PERF_SAMPLE_CGROUP | PERF_SAMPLE_AUX),
};

FIXTURE_VARIANT_ADD(beside, raw_of_a_tracepoint) {
	.sample_type = PERF_SAMPLE_RAW,
	.tracepoint = "sched/sched_switch",
};

FIXTURE_SETUP(beside)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(beside)
{
	bid_event_close(&self->e);
}

static void attr_beside(struct perf_event_attr *attr, __u64 sample_type)
{
	attr->sample_type = sample_type;
	attr->read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_LOST |
			    PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	attr->branch_sample_type = sample_type & PERF_SAMPLE_BRANCH_STACK ?
				   PERF_SAMPLE_BRANCH_ANY | PERF_SAMPLE_BRANCH_USER : 0;
	attr->sample_regs_user = sample_type & PERF_SAMPLE_REGS_USER ? BID_REGS_ALL : 0;
	attr->sample_regs_intr = sample_type & PERF_SAMPLE_REGS_INTR ? BID_REGS_ALL : 0;
	attr->sample_stack_user = sample_type & PERF_SAMPLE_STACK_USER ? 1024 : 0;
}

/* The other field is there, and holds what it always did. */
static int each_beside(const struct bid_sample *s, void *arg)
{
	const struct bid_event *e = arg;
	__u64 type = e->attr.sample_type;

	if (type & PERF_SAMPLE_TID && s->pid != (__u32)getpid())
		return bid_fail("pid %u", s->pid);
	if (type & PERF_SAMPLE_ID && s->id != e->id)
		return bid_fail("ID %llu", (unsigned long long)s->id);
	if (type & PERF_SAMPLE_IDENTIFIER && s->identifier != e->id)
		return bid_fail("identifier %llu", (unsigned long long)s->identifier);
	if (type & PERF_SAMPLE_READ && (s->nr_read != 6 || s->read[0] != 1 || s->read[4] != e->id))
		return bid_fail("READ has %zu values", s->nr_read);
	if (type & PERF_SAMPLE_REGS_USER && s->regs_user_abi == PERF_SAMPLE_REGS_ABI_NONE)
		return bid_fail("no user registers");
	if (type & PERF_SAMPLE_STACK_USER && s->stack_size != e->attr.sample_stack_user)
		return bid_fail("a stack of %llu", (unsigned long long)s->stack_size);
	if (type & PERF_SAMPLE_RAW && e->attr.type == PERF_TYPE_TRACEPOINT && s->raw_size < 16)
		return bid_fail("raw data of %u", s->raw_size);
	return 0;
}

TEST_F_TIMEOUT(beside, parses, BID_TIMEOUT_S)
{
	__u64 with[] = { BID_IP, BID_CHAIN, BID_BITS,
			 BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN };
	void (*load)(void *arg) = variant->tracepoint ? bid_load_sleep : bid_load_user;
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps };

	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, 0);
	if (variant->tracepoint) {
		int ret = bid_attr_tracepoint(&attr, variant->tracepoint, 0);

		if (ret > 0)
			SKIP(return, "%s", bid_error);
		ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	}

	for (size_t i = 0; i < BID_ARRAY_SIZE(with); i++) {
		int base;

		attr_beside(&attr, variant->sample_type);
		base = bid_open_errno(&attr, 0, -1, -1);
		attr.sample_type |= with[i];
		if (base) {
			/* refused without the new bits: refused alike with them */
			ASSERT_EQ(base, bid_open_errno(&attr, 0, -1, -1));
			TH_LOG("not on this machine: %s", strerror(base));
			continue;
		}
		memset(&c.stats, 0, sizeof(c.stats));
		c.each = each_beside;
		c.each_arg = &self->e;
		ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
			TH_LOG("%s", bid_error);
		ASSERT_EQ(0, bid_collect(&self->e, &c, load, NULL, &c.stats.samples, 40))
			TH_LOG("with %#llx: %s", (unsigned long long)with[i], bid_error);
		/* a tracepoint's IP is the kernel's */
		if (!variant->tracepoint || with[i] & BID_CHAIN)
			EXPECT_EQ(0, bid_collect(&self->e, &c, load, NULL,
						 &c.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED],
						 20)) TH_LOG("%s", bid_error);
		bid_event_close(&self->e);
	}
}

/* Other records carry sample_id as before: the new bits add nothing to it. */

static int check_comm(const struct perf_event_header *hdr, void *arg)
{
	unsigned long *comms = arg;
	/* TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER */
	size_t want = sizeof(*hdr) + 2 * sizeof(__u32) + 8 + 6 * sizeof(__u64);

	if (hdr->type != PERF_RECORD_COMM)
		return 0;
	if (hdr->size != want)
		return bid_fail("PERF_RECORD_COMM of %u bytes, not %zu", hdr->size, want);
	++*comms;
	return 0;
}

static void rename_self(void *arg)
{
	(void)arg;
	prctl(PR_SET_NAME, "bid", 0, 0, 0);
	bid_load_user(NULL);
}

TEST(sample_id_all)
{
	struct perf_event_attr attr;
	unsigned long comms = 0;
	struct bid_event e;
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, BID_BITS | PERF_SAMPLE_TID |
		      PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID |
		      PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER);
	attr.comm = 1;
	attr.sample_id_all = 1;
	ASSERT_EQ(0, bid_event_open(&e, &attr, 0, -1, -1, BID_RING_PAGES)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_collect_fn(&e, 1, check_comm, &comms, rename_self, NULL, &comms, 3))
		TH_LOG("%s", bid_error);
	bid_event_close(&e);
}

TEST_HARNESS_MAIN
