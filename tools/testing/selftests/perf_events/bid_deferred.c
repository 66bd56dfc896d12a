// SPDX-License-Identifier: GPL-2.0
/*
 * attr.defer_callchain and attr.defer_output: what the sample has in place of
 * its user part, what PERF_RECORD_CALLCHAIN_DEFERRED looks like, and which
 * events get one.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define OLD_BITS (PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN)
#define ALL_FOUR (BID_BITS | OLD_BITS)
#define CALLS 200

static struct bid_maps maps;

static void load_calls(unsigned long n)
{
	for (; n; n--)
		syscall(__NR_getppid);
}

/* A sample of user mode for every getppid(). */
static int attr_getppid(struct perf_event_attr *attr, __u64 sample_type)
{
	int ret = bid_attr_tracepoint(attr, "syscalls/sys_enter_getppid", sample_type);

	bid_attr_defer(attr);
	return ret;
}

/* The callchains of a number of cookies, in both forms. */

#define CHAINS 256
#define FRAMES 64

struct chain {
	__u64					cookie;
	__u64					nr[BID_FORMS];
	__u64					ips[FRAMES];
	struct perf_sample_build_id_offset	entries[FRAMES];
};

static struct chain chains[CHAINS];

static int keep_chain(const struct bid_deferred *d, void *arg)
{
	size_t nr = d->nr < FRAMES ? d->nr : FRAMES;
	struct chain *c = chains;

	(void)arg;
	while (c < chains + CHAINS && c->cookie && c->cookie != d->cookie)
		c++;
	if (c == chains + CHAINS)
		return 0;
	c->cookie = d->cookie;
	c->nr[d->entries ? BID_FULL : BID_PLAIN] = d->nr;
	if (d->entries)
		memcpy(c->entries, d->entries, nr * sizeof(*d->entries));
	else
		memcpy(c->ips, d->ips, nr * sizeof(*d->ips));
	return 0;
}

/* Both forms say the same of every frame. */
static int compare_chains(struct bid_check *check, unsigned long want)
{
	unsigned long same = 0;

	for (struct chain *c = chains; c < chains + CHAINS && c->cookie; c++) {
		if (!c->nr[BID_PLAIN] && !c->nr[BID_FULL])
			continue;
		if (c->nr[BID_PLAIN] != c->nr[BID_FULL])
			return bid_fail("%llu addresses and %llu entries",
					(unsigned long long)c->nr[BID_PLAIN],
					(unsigned long long)c->nr[BID_FULL]);
		for (__u64 i = 0; i < c->nr[BID_FULL] && i < FRAMES; i++)
			if (bid_check_frame(check, getpid(), &c->entries[i], c->ips[i]))
				return -1;
		same++;
	}
	return same >= want ? 0 : bid_fail("%lu callchains in both forms", same);
}

/* The forms */

FIXTURE(form)
{
	struct perf_event_attr attr;
	struct bid_tool t;
};

FIXTURE_VARIANT(form)
{
	__u64 sample_type;
};

FIXTURE_VARIANT_ADD(form, ip_alone) {
	.sample_type = BID_IP,
};

FIXTURE_VARIANT_ADD(form, chain_alone) {
	.sample_type = BID_CHAIN,
};

FIXTURE_VARIANT_ADD(form, both) {
	.sample_type = BID_BITS,
};

FIXTURE_VARIANT_ADD(form, ip_with_ip) {
	.sample_type = BID_IP | PERF_SAMPLE_IP,
};

FIXTURE_VARIANT_ADD(form, ip_with_callchain) {
	.sample_type = BID_IP | OLD_BITS,
};

FIXTURE_VARIANT_ADD(form, chain_with_callchain) {
	.sample_type = BID_CHAIN | OLD_BITS,
};

FIXTURE_VARIANT_ADD(form, all_four) {
	.sample_type = ALL_FOUR,
};

FIXTURE_SETUP(form)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(form)
{
	bid_tool_close(&self->t);
}

/* Every sample of user mode is answered, with what the event asked for. */
TEST_F_TIMEOUT(form, faults, BID_TIMEOUT_S)
{
	bool old = variant->sample_type & PERF_SAMPLE_CALLCHAIN;
	struct bid_tool *t = &self->t;
	struct bid_pairs plain;

	bid_attr_init(&self->attr, PERF_COUNT_SW_PAGE_FAULTS, variant->sample_type);
	bid_attr_defer(&self->attr);
	ASSERT_EQ(0, bid_tool_open(t, &self->attr, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	t->check.flags = BID_LOOSE;
	t->each_deferred = keep_chain;
	ASSERT_EQ(0, bid_collect_fn(t->e, t->nr, bid_tool_record, t, bid_load_faults, NULL,
				    &t->check.stats.samples, 200)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(t, BID_FULL, 200)) TH_LOG("%s", bid_error);
	EXPECT_EQ(100, bid_resolved_percent(&t->check.stats));
	bid_tool_pairs(t, BID_PLAIN, &plain);
	if (!old) {
		EXPECT_EQ(plain.unanswered, plain.cookies);
		return;
	}
	EXPECT_EQ(0, bid_tool_paired(t, BID_PLAIN, 200)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, compare_chains(&t->check, 150)) TH_LOG("%s", bid_error);
}

/*
 * ... and so is every sample that an interrupt takes, in user mode and not. The
 * last one may be from the system call that disables the event.
 */
TEST_F_TIMEOUT(form, clock, BID_TIMEOUT_S)
{
	int forms = variant->sample_type & PERF_SAMPLE_CALLCHAIN ? BID_FORMS : 1;
	struct bid_tool *t = &self->t;
	struct bid_pairs p;

	bid_attr_init(&self->attr, PERF_COUNT_SW_CPU_CLOCK, variant->sample_type);
	bid_attr_defer(&self->attr);
	ASSERT_EQ(0, bid_tool_open(t, &self->attr, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	t->check.flags = BID_LOOSE;
	/* how many samples that takes is up to how fast the kernel is */
	ASSERT_EQ(0, bid_collect_fn(t->e, t->nr, bid_tool_record, t, bid_load_kernel, NULL,
				    &t->check.stats.deferred, 100 * forms)) TH_LOG("%s", bid_error);
	bid_tool_pairs(t, BID_FULL, &p);
	EXPECT_GE(p.pairs, 90);
	EXPECT_LE(p.unanswered, 1);
	EXPECT_EQ(p.last, p.unanswered);
	EXPECT_EQ(0, p.unasked + p.repeated + p.strays);
	EXPECT_EQ(0, p.differ) TH_LOG("%s", bid_error);
	EXPECT_EQ(100, bid_resolved_percent(&t->check.stats));
}

/* The trailer, whole and absent: the parser knows the length of either. */
static int each_trailer(const struct bid_deferred *d, void *arg)
{
	const struct bid_tool *t = arg;
	struct timespec now;

	if (!t->attr.sample_id_all)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (d->pid != (__u32)getpid() || d->tid != (__u32)syscall(__NR_gettid))
		return bid_fail("a record of %u/%u", d->pid, d->tid);
	if (d->id != t->e[0].id || d->stream_id != t->e[0].id || d->identifier != t->e[0].id)
		return bid_fail("IDs %llu, %llu, %llu, not %llu", (unsigned long long)d->id,
				(unsigned long long)d->stream_id,
				(unsigned long long)d->identifier, (unsigned long long)t->e[0].id);
	if (d->cpu >= sysconf(_SC_NPROCESSORS_CONF))
		return bid_fail("CPU %u", d->cpu);
	if (!d->time || d->time > now.tv_sec * 1000000000ull + now.tv_nsec)
		return bid_fail("time %llu", (unsigned long long)d->time);
	return 0;
}

TEST_F_TIMEOUT(form, trailer, BID_TIMEOUT_S)
{
	struct bid_tool *t = &self->t;

	for (int all = 0; all < 2; all++) {
		bid_attr_init(&self->attr, PERF_COUNT_SW_PAGE_FAULTS, variant->sample_type |
			      PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID);
		bid_attr_defer(&self->attr);
		self->attr.sample_id_all = all;
		self->attr.use_clockid = 1;
		self->attr.clockid = CLOCK_MONOTONIC;
		ASSERT_EQ(0, bid_tool_open(t, &self->attr, &maps, 0, -1, BID_RING_PAGES))
			TH_LOG("%s", bid_error);
		t->check.flags = BID_LOOSE;
		t->each_deferred = each_trailer;
		t->each_arg = t;
		ASSERT_EQ(0, bid_collect_fn(t->e, t->nr, bid_tool_record, t, bid_load_faults, NULL,
					    &t->check.stats.samples, 50)) TH_LOG("%s", bid_error);
		EXPECT_EQ(0, bid_tool_paired(t, BID_FULL, 50)) TH_LOG("%s", bid_error);
		bid_tool_close(t);
	}
}

/* Beside fields that take what room they find. */
TEST_F_TIMEOUT(form, beside_the_user_stack, BID_TIMEOUT_S)
{
	struct bid_tool *t = &self->t;

	bid_attr_init(&self->attr, PERF_COUNT_SW_PAGE_FAULTS, variant->sample_type |
		      PERF_SAMPLE_STACK_USER | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_REGS_INTR |
		      PERF_SAMPLE_RAW | PERF_SAMPLE_READ);
	self->attr.sample_stack_user = 65528;
	self->attr.sample_regs_user = BID_REG_IP;
	self->attr.sample_regs_intr = BID_REG_IP;
	bid_attr_defer(&self->attr);
	ASSERT_EQ(0, bid_tool_open(t, &self->attr, &maps, 0, -1, 1024)) TH_LOG("%s", bid_error);
	t->check.flags = BID_LOOSE;
	ASSERT_EQ(0, bid_collect_fn(t->e, t->nr, bid_tool_record, t, bid_load_faults, NULL,
				    &t->check.stats.samples, 50)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(t, BID_FULL, 50)) TH_LOG("%s", bid_error);
}

/* Who gets them */

FIXTURE(event)
{
	struct perf_event_attr attr, other;
	struct bid_tool t[2];
};

FIXTURE_SETUP(event)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ret = attr_getppid(&self->attr, ALL_FOUR);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->other = self->attr;
}

FIXTURE_TEARDOWN(event)
{
	bid_tool_close(&self->t[0]);
	bid_tool_close(&self->t[1]);
}

/* Enables the tools, makes the calls, disables and drains the tools. */
static int run_tools(struct bid_tool *t, size_t nr, void (*load)(void *arg), void *arg)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < nr; i++)
		ret = bid_tool_enable(&t[i]);
	if (!ret)
		load(arg);
	for (size_t i = 0; !ret && i < nr; i++)
		ret = bid_tool_disable(&t[i]) || bid_tool_drain(&t[i]);
	return ret ? -1 : 0;
}

static void load_200(void *arg)
{
	(void)arg;
	load_calls(CALLS);
}

/* An event without the new bits gets what it always did, and that alone. */
TEST_F_TIMEOUT(event, old_form, BID_TIMEOUT_S)
{
	struct bid_pairs pairs;

	self->other.sample_type &= ~BID_BITS;
	ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(&self->t[1], &self->other, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	self->t[1].each_deferred = keep_chain;
	ASSERT_EQ(0, run_tools(self->t, 2, load_200, NULL)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t[0], BID_FULL, CALLS)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t[0], BID_PLAIN, CALLS)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t[1], BID_PLAIN, CALLS)) TH_LOG("%s", bid_error);
	bid_tool_pairs(&self->t[1], BID_FULL, &pairs);
	EXPECT_EQ(pairs.cookies, pairs.unanswered);
	EXPECT_EQ(CALLS, pairs.cookies);
}

/* ... to the byte, whatever else there is. */
static int each_old(const struct bid_deferred *d, void *arg)
{
	struct {
		struct perf_event_header	hdr;
		__u64				cookie, nr;
	} want = {
		.hdr = { .type = PERF_RECORD_CALLCHAIN_DEFERRED, .misc = PERF_RECORD_MISC_USER },
		.cookie = d->cookie,
		.nr = d->nr,
	};

	(void)arg;
	want.hdr.size = sizeof(want) + d->nr * sizeof(__u64);
	if (memcmp(d->hdr, &want, sizeof(want)))
		return bid_fail("type %u, misc %#x, size %u for %llu addresses", d->hdr->type,
				d->hdr->misc, d->hdr->size, (unsigned long long)d->nr);
	for (__u64 i = 0; i < d->nr; i++)
		if (!bid_maps_find(&maps, d->ips[i]))
			return bid_fail("frame %llu is %#llx", (unsigned long long)i,
					(unsigned long long)d->ips[i]);
	return keep_chain(d, arg);
}

TEST_F_TIMEOUT(event, old_form_alone, BID_TIMEOUT_S)
{
	self->other.sample_type = OLD_BITS;
	self->other.sample_id_all = 0;
	ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->other, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	self->t[0].each_deferred = each_old;
	ASSERT_EQ(0, run_tools(self->t, 1, load_200, NULL)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t[0], BID_PLAIN, CALLS)) TH_LOG("%s", bid_error);
	EXPECT_EQ(CALLS, self->t[0].check.stats.deferred);
}

/* One samples, another one that counts nothing gets the records. */
TEST_F_TIMEOUT(event, dummy, BID_TIMEOUT_S)
{
	__u64 bits[] = { BID_IP, BID_CHAIN, BID_BITS };

	for (size_t i = 0; i < BID_ARRAY_SIZE(bits) * BID_ARRAY_SIZE(bits); i++) {
		struct bid_pairs p;

		bid_attr_init(&self->other, PERF_COUNT_SW_DUMMY, bits[i / 3]);
		bid_attr_defer(&self->other);
		self->other.defer_callchain = 0;
		self->attr.sample_type = BID_ORIGIN | PERF_SAMPLE_IP | bits[i % 3];
		self->attr.defer_output = 0;
		ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, 0, -1, BID_RING_PAGES))
			TH_LOG("%s", bid_error);
		ASSERT_EQ(0, bid_tool_open(&self->t[1], &self->other, &maps, 0, -1,
					   BID_RING_PAGES)) TH_LOG("%s", bid_error);
		ASSERT_EQ(0, run_tools(self->t, 2, load_200, NULL)) TH_LOG("%s", bid_error);
		bid_tool_pairs(&self->t[1], BID_FULL, &p);
		EXPECT_EQ(CALLS, p.unasked);
		EXPECT_EQ(0, p.repeated);
		EXPECT_EQ(CALLS, self->t[1].check.stats.deferred);
		bid_tool_pairs(&self->t[0], BID_FULL, &p);
		EXPECT_EQ(CALLS, p.unanswered);
		/* the cookies of the one are the cookies of the other */
		for (size_t k = 0; k < self->t[0].book.slots; k++) {
			__u64 cookie = self->t[0].book.slot[k].cookie;
			size_t l = 0;

			while (cookie && l < self->t[1].book.slots &&
			       self->t[1].book.slot[l].cookie != cookie)
				l++;
			ASSERT_LT(l, self->t[1].book.slots);
		}
		bid_tool_close(&self->t[0]);
		bid_tool_close(&self->t[1]);
	}
}

/* An event that only wants the records asks for none. */
TEST_F_TIMEOUT(event, output_without_request, BID_TIMEOUT_S)
{
	self->attr.defer_callchain = 0;
	ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, run_tools(self->t, 1, load_200, NULL)) TH_LOG("%s", bid_error);
	EXPECT_EQ(CALLS, self->t[0].check.stats.samples);
	EXPECT_EQ(0, self->t[0].check.stats.deferred);
	EXPECT_EQ(0, self->t[0].book.nr);
	EXPECT_GE(self->t[0].check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], CALLS);
}

/*
 * The records are side-band records, and CPU-wide events get those only if they
 * are known to want some: defer_output must be enough for that.
 */
TEST_F_TIMEOUT(event, cpu_wide, BID_TIMEOUT_S)
{
	__u64 types[] = { BID_IP, BID_CHAIN, BID_BITS, ALL_FOUR };

	for (size_t i = 0; i < BID_ARRAY_SIZE(types); i++) {
		self->attr.sample_type = types[i] | BID_ORIGIN | PERF_SAMPLE_IP;
		ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, -1, BID_EACH_CPU,
					   BID_RING_PAGES)) TH_LOG("%s", bid_error);
		self->t[0].check.pid = getpid();
		ASSERT_EQ(0, run_tools(self->t, 1, load_200, NULL)) TH_LOG("%s", bid_error);
		EXPECT_EQ(0, bid_tool_paired(&self->t[0], BID_FULL, CALLS)) TH_LOG("%s", bid_error);
		bid_tool_close(&self->t[0]);
	}
}

/* The same with nothing new about it. */
TEST(cpu_wide_old_bits)
{
	struct perf_event_attr attr;
	struct bid_tool t = {};
	int ret;

	if (geteuid())
		SKIP(return, "needs root");
	ret = attr_getppid(&attr, OLD_BITS);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(&t, &attr, NULL, -1, BID_EACH_CPU, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, run_tools(&t, 1, load_200, NULL)) TH_LOG("%s", bid_error);
	if (!t.book.nr)
		SKIP(goto out, "the kernel does not defer callchains");
	EXPECT_EQ(0, bid_tool_paired(&t, BID_PLAIN, CALLS)) TH_LOG("%s", bid_error);
out:
	bid_tool_close(&t);
}

/* From one CPU to another between the sample and the return to user mode */

static void migrate(void *arg)
{
	(void)arg;
	for (int i = 0; i < CALLS; i++) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(i & 1, &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
}

FIXTURE(migration)
{
	struct perf_event_attr attr;
	struct bid_tool t[3];
};

FIXTURE_SETUP(migration)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ret = bid_attr_tracepoint(&self->attr, "syscalls/sys_enter_sched_setaffinity",
				  BID_BITS | PERF_SAMPLE_IP);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	bid_attr_defer(&self->attr);
}

FIXTURE_TEARDOWN(migration)
{
	for (int i = 0; i < 3; i++)
		bid_tool_close(&self->t[i]);
}

/* A tool that is CPU-wide, one for the task wherever it is, one for it on each CPU. */
TEST_F_TIMEOUT(migration, finds_every_tool, BID_TIMEOUT_S)
{
	struct bid_pairs p;

	ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, -1, BID_EACH_CPU,
				   BID_RING_PAGES)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(&self->t[1], &self->attr, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(&self->t[2], &self->attr, &maps, 0, BID_EACH_CPU,
				   BID_RING_PAGES)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, run_tools(self->t, 3, migrate, NULL)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(0, bid_tool_paired(&self->t[i], BID_FULL, CALLS))
			TH_LOG("tool %d: %s", i, bid_error);
		bid_tool_pairs(&self->t[i], BID_FULL, &p);
		EXPECT_GT(p.moved, CALLS / 2);
	}
}

/* Several events */

static void load_calls_and_faults(void *arg)
{
	for (int i = 0; i < 10; i++) {
		bid_load_faults(arg);
		load_calls(CALLS / 10);
	}
}

/* Tools of which each asks for something else: to each the answers to its questions. */
TEST_F_TIMEOUT(event, two_tools, BID_TIMEOUT_S)
{
	struct bid_pairs p[2];

	bid_attr_init(&self->other, PERF_COUNT_SW_PAGE_FAULTS, BID_BITS | PERF_SAMPLE_IP);
	bid_attr_defer(&self->other);
	self->attr.sample_type = BID_CHAIN | PERF_SAMPLE_IP | BID_ORIGIN;
	ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, -1, BID_EACH_CPU,
				   4 * BID_RING_PAGES)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(&self->t[1], &self->other, &maps, -1, BID_EACH_CPU,
				   4 * BID_RING_PAGES)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 2; i++) {
		self->t[i].check.pid = getpid();
		self->t[i].check.flags = BID_LOOSE;
	}
	ASSERT_EQ(0, run_tools(self->t, 2, load_calls_and_faults, NULL)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 2; i++) {
		bid_tool_pairs(&self->t[i], BID_FULL, &p[i]);
		EXPECT_EQ(0, p[i].unanswered);
		EXPECT_EQ(0, p[i].repeated);
		EXPECT_EQ(0, p[i].differ);
	}
	EXPECT_EQ(CALLS, p[0].pairs);
	EXPECT_GE(p[1].pairs, 160);
	TH_LOG("records of the other tool's cookies: %lu of %lu, %lu of %lu", p[0].unasked,
	       p[0].cookies, p[1].unasked, p[1].cookies);
}

/* One for the task and one for the CPUs: one record for each. */
TEST_F_TIMEOUT(event, of_task_and_of_cpu, BID_TIMEOUT_S)
{
	ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(&self->t[1], &self->attr, &maps, -1, BID_EACH_CPU,
				   BID_RING_PAGES)) TH_LOG("%s", bid_error);
	self->t[1].check.pid = getpid();
	ASSERT_EQ(0, run_tools(self->t, 2, load_200, NULL)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(0, bid_tool_paired(&self->t[i], BID_FULL, CALLS))
			TH_LOG("%s", bid_error);
		EXPECT_EQ(0, bid_tool_paired(&self->t[i], BID_PLAIN, CALLS))
			TH_LOG("%s", bid_error);
		EXPECT_EQ(2 * CALLS, self->t[i].check.stats.deferred);
	}
}

/* Two events, one ring: a record for each, which says whose it is. */
static int record_of_two(const struct perf_event_header *hdr, void *arg)
{
	struct bid_tool *t = arg;
	const __u64 *first = (const __u64 *)(hdr + 1);
	const __u64 *end = (const __u64 *)((const char *)hdr + hdr->size);
	__u64 id = hdr->type == PERF_RECORD_SAMPLE ? *first : end[-1];

	for (int i = 0; i < 2; i++)
		if (t[i].e[0].id == id)
			return bid_tool_record(hdr, &t[i]);
	return bid_fail("a record of type %u of event %llu", hdr->type, (unsigned long long)id);
}

TEST_F_TIMEOUT(event, two_in_one_ring, BID_TIMEOUT_S)
{
	struct bid_tool *t = self->t;
	struct bid_pairs p;

	bid_attr_init(&self->other, PERF_COUNT_SW_PAGE_FAULTS, BID_BITS | PERF_SAMPLE_IP);
	bid_attr_defer(&self->other);
	ASSERT_EQ(0, bid_tool_open(&t[0], &self->attr, &maps, 0, -1, 4 * BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(&t[1], &self->other, &maps, 0, -1, 0)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, ioctl(t[1].e[0].fd, PERF_EVENT_IOC_SET_OUTPUT, t[0].e[0].fd));
	t[0].check.flags = BID_LOOSE;
	t[1].check.flags = BID_LOOSE;
	ASSERT_EQ(0, bid_tool_enable(&t[0])) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_enable(&t[1])) TH_LOG("%s", bid_error);
	load_calls_and_faults(NULL);
	ASSERT_EQ(0, bid_tool_disable(&t[1])) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_disable(&t[0])) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_drain(&t[0].e[0], record_of_two, t)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 2; i++) {
		bid_tool_pairs(&t[i], BID_FULL, &p);
		EXPECT_EQ(0, p.unanswered);
		EXPECT_EQ(0, p.repeated);
		EXPECT_EQ(0, p.differ);
		EXPECT_GE(p.pairs, 160);
	}
	bid_tool_pairs(&t[0], BID_FULL, &p);
	EXPECT_GE(p.unasked, 160);
}

/* A group: the leader and the member, each asked for and answered. */
TEST_F_TIMEOUT(event, group, BID_TIMEOUT_S)
{
	struct bid_tool *t = self->t;
	int fd;

	ASSERT_EQ(0, bid_tool_open(&t[0], &self->attr, &maps, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(&t[1], &self->attr, &maps, 0, -1, 0)) TH_LOG("%s", bid_error);
	bid_event_close(&t[1].e[0]);
	fd = bid_open(&self->attr, 0, -1, t[0].e[0].fd);
	ASSERT_GE(fd, 0) TH_LOG("%s", strerror(errno));
	ASSERT_EQ(0, bid_event_from_fd(&t[1].e[0], &self->attr, fd, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, run_tools(t, 2, load_200, NULL)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 2; i++)
		EXPECT_EQ(0, bid_tool_paired(&t[i], BID_FULL, CALLS)) TH_LOG("%s", bid_error);
}

/* The children's samples and records come to the parent's event. */
static void child_calls(void *arg)
{
	(void)arg;
	load_calls(CALLS);
}

static void fork_and_call(void *arg)
{
	struct bid_task task;

	(void)arg;
	for (int i = 0; i < 3; i++)
		if (!bid_task_fork(&task, child_calls, NULL)) {
			bid_task_tell(&task);
			bid_task_wait(&task, NULL);
		}
}

TEST_F_TIMEOUT(event, inherited, BID_TIMEOUT_S)
{
	self->attr.inherit = 1;
	ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, 0, BID_EACH_CPU,
				   4 * BID_RING_PAGES)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, run_tools(self->t, 1, fork_and_call, NULL)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t[0], BID_FULL, 3 * CALLS)) TH_LOG("%s", bid_error);
}

/* Deep stacks */

static unsigned long calls;

static void descend(long depth, unsigned long n)
{
	if (depth)
		descend(depth - 1, n);
	else
		load_calls(n);
	calls++;
}

struct deepest {
	__u64	nr[BID_FORMS];
	__u64	records;
};

static int each_deep(const struct bid_deferred *d, void *arg)
{
	struct deepest *deep = arg;
	int form = d->entries ? BID_FULL : BID_PLAIN;

	if (deep->nr[form] && deep->nr[form] != d->nr)
		return bid_fail("%llu frames, then %llu", (unsigned long long)deep->nr[form],
				(unsigned long long)d->nr);
	deep->nr[form] = d->nr;
	deep->records++;
	return keep_chain(d, arg);
}

static void load_deep(void *arg)
{
	descend(*(long *)arg, 20);
}

/* Deeper than the unwinder goes: the innermost frames, the same in both forms. */
TEST_F_TIMEOUT(event, deeper_than_the_unwinder, BID_TIMEOUT_S)
{
	struct deepest deep = {};
	long depth = 3000;

	ASSERT_EQ(0, bid_tool_open(&self->t[0], &self->attr, &maps, 0, -1, 4 * BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	self->t[0].each_deferred = each_deep;
	self->t[0].each_arg = &deep;
	ASSERT_EQ(0, run_tools(self->t, 1, load_deep, &depth)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_tool_paired(&self->t[0], BID_FULL, 20)) TH_LOG("%s", bid_error);
	EXPECT_EQ(40, deep.records);
	EXPECT_EQ(deep.nr[BID_PLAIN], deep.nr[BID_FULL]);
	EXPECT_GE(deep.nr[BID_FULL], 127);
	EXPECT_LT(deep.nr[BID_FULL], BID_MAX_ENTRIES);
	EXPECT_EQ(0, compare_chains(&self->t[0].check, 20)) TH_LOG("%s", bid_error);
	TH_LOG("%llu frames", (unsigned long long)deep.nr[BID_FULL]);
}

/* The stack is walked once, for events that differ in how much they want. */
TEST_F_TIMEOUT(event, two_limits, BID_TIMEOUT_S)
{
	struct deepest deep[2] = {};
	unsigned int limits[] = { 2, 100 };
	long depth = 200;

	self->attr.sample_type = BID_CHAIN | BID_ORIGIN;
	for (int i = 0; i < 2; i++) {
		self->attr.sample_max_stack = limits[i];
		ASSERT_EQ(0, bid_tool_open(&self->t[i], &self->attr, &maps, 0, -1,
					   4 * BID_RING_PAGES)) TH_LOG("%s", bid_error);
		self->t[i].each_deferred = each_deep;
		self->t[i].each_arg = &deep[i];
	}
	ASSERT_EQ(0, run_tools(self->t, 2, load_deep, &depth)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 2; i++)
		EXPECT_EQ(0, bid_tool_paired(&self->t[i], BID_FULL, 20)) TH_LOG("%s", bid_error);
	EXPECT_GE(deep[0].nr[BID_FULL], depth);
	EXPECT_EQ(deep[0].nr[BID_FULL], deep[1].nr[BID_FULL]);
}

/* What is not deferred */

/* Kernel threads have no cookie. */
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
	unsigned long *kthreads = arg;

	if (s->pid && !pid_is_kthread(s->pid))
		return 0;
	if (bid_sample_cookie(s))
		return bid_fail("kernel thread %u has a cookie", s->pid);
	++*kthreads;
	return 0;
}

static void load_wait(void *arg)
{
	(void)arg;
	usleep(2000);
}

TEST_F_TIMEOUT(event, kernel_threads, BID_TIMEOUT_S)
{
	struct bid_tool *t = &self->t[0];
	unsigned long kthreads = 0;

	bid_attr_init(&self->attr, PERF_COUNT_SW_CONTEXT_SWITCHES, BID_BITS | PERF_SAMPLE_IP);
	bid_attr_defer(&self->attr);
	ASSERT_EQ(0, bid_tool_open(t, &self->attr, NULL, -1, BID_EACH_CPU, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	t->each = each_kthread;
	t->each_arg = &kthreads;
	EXPECT_EQ(0, bid_collect_fn(t->e, t->nr, bid_tool_record, t, load_wait, NULL, &kthreads,
				    50)) TH_LOG("%s", bid_error);
}

/* A sample in an NMI, asked for there. */

static bool stop;

static int each_ours(const struct bid_sample *s, void *arg)
{
	unsigned long *ours = arg;

	*ours += s->pid == (__u32)getpid() && bid_sample_cookie(s);
	return 0;
}

TEST_F_TIMEOUT(event, nmi, BID_TIMEOUT_S)
{
	int ret = bid_attr_tracepoint(&self->attr, "nmi/nmi_handler", BID_BITS);
	struct bid_tool *t = &self->t[0];
	unsigned long ours = 0;
	struct bid_pairs p;
	pthread_t thread;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	if (access("/proc/sysrq-trigger", W_OK))
		SKIP(return, "no way to cause an NMI");
	bid_attr_defer(&self->attr);
	self->attr.sample_type |= PERF_SAMPLE_REGS_USER;
	self->attr.sample_regs_user = BID_REG_IP;
	ASSERT_EQ(0, bid_quiet_console(true)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, pthread_create(&thread, NULL, bid_thread_nmis, &stop));
	usleep(10000);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_open(t, &self->attr, &maps, -1, BID_EACH_CPU, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	t->check.pid = getpid();
	t->check.flags = BID_LOOSE;
	t->each = each_ours;
	t->each_arg = &ours;
	EXPECT_EQ(0, bid_collect_fn(t->e, t->nr, bid_tool_record, t, bid_load_user, NULL, &ours,
				    20)) TH_LOG("%s", bid_error);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, bid_quiet_console(false)) TH_LOG("%s", bid_error);
	bid_tool_pairs(t, BID_FULL, &p);
	EXPECT_GE(p.pairs, 10);
	EXPECT_EQ(0, p.repeated);
	EXPECT_EQ(0, p.differ);
	/* at the ends of the recording, on one CPU and not yet or no more on another */
	EXPECT_LE(p.unanswered, 3);
	EXPECT_LE(p.unasked, 3);
}

TEST_HARNESS_MAIN
