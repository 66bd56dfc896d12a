// SPDX-License-Identifier: GPL-2.0
/*
 * Callchains that are deeper than a record holds, and return addresses that
 * somebody made up.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define ALL_FOUR (BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN)
#define MAX_STACK "kernel/perf_event_max_stack"
#define MAX_CONTEXTS "kernel/perf_event_max_contexts_per_stack"

static struct bid_maps maps;
static unsigned long calls;

/* Deep stacks */

/* Not a tail call: there is something left to do when it comes back. */
static void descend(long depth, unsigned long n)
{
	if (depth)
		descend(depth - 1, n);
	else
		bid_spin(n);
	calls++;
}

static void load_deep(void *arg)
{
	descend(*(long *)arg, 200000);
}

FIXTURE(deep)
{
	struct bid_event e, second;
};

FIXTURE_SETUP(deep)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(deep)
{
	bid_event_close(&self->e);
	bid_event_close(&self->second);
}

struct depth {
	unsigned long	limit;		/* frames, markers not counted */
	unsigned long	reached;	/* samples at the limit */
};

static int each_depth(const struct bid_sample *s, void *arg)
{
	struct depth *d = arg;
	unsigned long frames = 0;

	for (__u64 i = 0; i < s->nr_entries; i++)
		frames += s->entries[i].build_id.status != PERF_BUILD_ID_OFFSET_CONTEXT;
	if (frames > d->limit)
		return bid_fail("%lu frames, the limit is %lu", frames, d->limit);
	d->reached += frames == d->limit;
	return 0;
}

/* sample_max_stack, for the new bit alone and with CALLCHAIN. */
TEST_F_TIMEOUT(deep, sample_max_stack, BID_TIMEOUT_S)
{
	__u64 types[] = { BID_CHAIN, ALL_FOUR };
	unsigned int limits[] = { 1, 2, 16, 100 };
	long depth = 200;

	for (size_t i = 0; i < BID_ARRAY_SIZE(types) * BID_ARRAY_SIZE(limits); i++) {
		struct depth d = { .limit = limits[i / BID_ARRAY_SIZE(types)] };
		struct perf_event_attr attr;
		struct bid_check c = {
			.attr = &attr, .maps = &maps, .each = each_depth, .each_arg = &d,
		};

		bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, types[i % BID_ARRAY_SIZE(types)]);
		attr.sample_max_stack = d.limit;
		attr.exclude_kernel = 1;
		ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
			TH_LOG("%s", bid_error);
		ASSERT_EQ(0, bid_collect(&self->e, &c, load_deep, &depth, &d.reached, 40))
			TH_LOG("limit %lu: %s", d.limit, bid_error);
		bid_event_close(&self->e);
	}
}

/* The limit of the sysctl, which is what sample_max_stack is by default. */
TEST_F_TIMEOUT(deep, default_limit, BID_TIMEOUT_S)
{
	struct depth d = {};
	struct perf_event_attr attr;
	struct bid_check c = {
		.attr = &attr, .maps = &maps, .each = each_depth, .each_arg = &d,
	};
	long depth = 300, max;

	ASSERT_EQ(0, bid_sysctl_get(MAX_STACK, &max)) TH_LOG("%s", bid_error);
	ASSERT_GT(depth, max);
	d.limit = max;
	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, BID_CHAIN);
	ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&self->e, &c, load_deep, &depth, &d.reached, 60))
		TH_LOG("%s", bid_error);
}

/*
 * With the sysctl raised the callchain is longer than a record can hold. The
 * record stays whole and the innermost frames are the ones that are kept.
 */
FIXTURE(clamp)
{
	struct bid_event e, second;
	long depth;
};

FIXTURE_VARIANT(clamp)
{
	__u64 sample_type;
	__u32 stack;
	long depth;
};

FIXTURE_VARIANT_ADD(clamp, chain_alone) {
	.sample_type = BID_CHAIN,
};

FIXTURE_VARIANT_ADD(clamp, both_bits) {
	.sample_type = BID_BITS,
};

FIXTURE_VARIANT_ADD(clamp, all_four) {
	.sample_type = ALL_FOUR,
};

/* Even what CALLCHAIN has is too long. */
FIXTURE_VARIANT_ADD(clamp, no_room_at_all) {
	.sample_type = ALL_FOUR, .depth = 9000,
};

FIXTURE_VARIANT_ADD(clamp, with_user_stack) {
	.sample_type = BID_BITS | PERF_SAMPLE_STACK_USER, .stack = 65528,
};

/* None is asked for: its size is all there is of it, and the rest comes behind that. */
FIXTURE_VARIANT_ADD(clamp, with_user_stack_of_none) {
	.sample_type = BID_BITS | PERF_SAMPLE_STACK_USER | PERF_SAMPLE_WEIGHT,
};

FIXTURE_VARIANT_ADD(clamp, all_four_with_user_stack) {
	.sample_type = ALL_FOUR | PERF_SAMPLE_STACK_USER | PERF_SAMPLE_REGS_USER,
	.stack = 65528,
};

FIXTURE_VARIANT_ADD(clamp, many_fields) {
	.sample_type = ALL_FOUR | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR |
		       PERF_SAMPLE_READ | PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD |
		       PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER |
		       PERF_SAMPLE_STACK_USER | PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC |
		       PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TRANSACTION |
		       PERF_SAMPLE_REGS_INTR | PERF_SAMPLE_PHYS_ADDR |
		       PERF_SAMPLE_DATA_PAGE_SIZE | PERF_SAMPLE_CODE_PAGE_SIZE,
	.stack = 4096,
};

FIXTURE_SETUP(clamp)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	self->depth = variant->depth ?: 3000;
	ASSERT_EQ(0, bid_sysctl_set(MAX_STACK, self->depth + 500)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(clamp)
{
	bid_event_close(&self->e);
	bid_event_close(&self->second);
}

static void clamp_attr(struct perf_event_attr *attr, __u64 sample_type, __u32 stack)
{
	bid_attr_init(attr, PERF_COUNT_SW_CPU_CLOCK, sample_type);
	attr->sample_period = 2000000;
	attr->sample_stack_user = stack;
	attr->sample_regs_user = sample_type & PERF_SAMPLE_REGS_USER ? 1 : 0;
	attr->sample_regs_intr = sample_type & PERF_SAMPLE_REGS_INTR ? 1 : 0;
	attr->read_format = sample_type & PERF_SAMPLE_READ ?
			    PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_LOST : 0;
}

/* How many samples came out as full as a record can be. */
static int each_full(const struct bid_sample *s, void *arg)
{
	unsigned long *full = arg;
	size_t rest = s->hdr->size - s->stack_size;

	if (s->hdr->size > BID_RECORD_MAX)
		return bid_fail("a record of %u bytes", s->hdr->size);
	*full += rest + 2 * sizeof(*s->entries) >= BID_RECORD_MAX;
	return 0;
}

TEST_F_TIMEOUT(clamp, record_stays_whole, BID_TIMEOUT_S)
{
	unsigned long full = 0;
	struct perf_event_attr attr;
	struct bid_check c = {
		.attr = &attr, .maps = &maps, .flags = BID_DEEP,
		.each = each_full, .each_arg = &full,
	};

	clamp_attr(&attr, variant->sample_type, variant->stack);
	ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, 512)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&self->e, &c, load_deep, &self->depth, &full, 20))
		TH_LOG("%s", bid_error);
	if (variant->sample_type & PERF_SAMPLE_CALLCHAIN)
		EXPECT_GE(c.stats.clamped, 15);
}

TEST_F_TIMEOUT(clamp, two_events, BID_TIMEOUT_S)
{
	unsigned long full = 0;
	struct perf_event_attr attr;
	struct bid_check c = {
		.attr = &attr, .maps = &maps, .flags = BID_DEEP,
		.each = each_full, .each_arg = &full,
	};
	struct bid_event e[2];

	clamp_attr(&attr, variant->sample_type, variant->stack);
	ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, 512)) TH_LOG("%s", bid_error);
	attr.config = PERF_COUNT_SW_TASK_CLOCK;
	ASSERT_EQ(0, bid_event_open(&self->second, &attr, 0, -1, -1, 512)) TH_LOG("%s", bid_error);
	e[0] = self->e;
	e[1] = self->second;
	ASSERT_EQ(0, bid_collect_many(e, 2, &c, load_deep, &self->depth, &full, 40))
		TH_LOG("%s", bid_error);
}

/* Made-up return addresses */

#ifdef __x86_64__

#define PLANTED_MAX 40

struct planted_frame {
	__u64	next;
	__u64	ret;
};

struct plant {
	struct planted_frame	frames[PLANTED_MAX];
	__u64			want[PLANTED_MAX];	/* bit per status that is right */
	size_t			nr;
	unsigned long		seen;
};

/*
 * Spins with the frame pointer on the chain that it is given: from the label
 * bid_planted_loop to bid_planted_end the unwinder sees what we made.
 */
__asm__(".pushsection .text\n"
	".globl bid_planted_spin\n"
	".type bid_planted_spin, @function\n"
	"bid_planted_spin:\n"
	"	push %rbp\n"
	"	mov %rdi, %rbp\n"
	"bid_planted_loop:\n"
	"	dec %rsi\n"
	"	jnz bid_planted_loop\n"
	"bid_planted_end:\n"
	"	pop %rbp\n"
	"	ret\n"
	".size bid_planted_spin, . - bid_planted_spin\n"
	".popsection\n");

#define ON(status)	(1ULL << PERF_BUILD_ID_OFFSET_##status)
#define NOWHERE		(ON(ANON) | ON(BUSY))
#define FILE_OK		(ON(RESOLVED) | ON(BUSY))
#define KERNEL_HALF	(ON(KERNEL) | ON(ANON) | ON(BUSY))
#define MARKER		(KERNEL_HALF | ON(CONTEXT))

static void plant(struct plant *p, __u64 ret, __u64 want)
{
	if (p->nr)
		p->frames[p->nr - 1].next = (__u64)&p->frames[p->nr];
	p->frames[p->nr].next = 0;
	p->frames[p->nr].ret = ret;
	p->want[p->nr++] = want;
}

static void load_planted(void *arg)
{
	struct plant *p = arg;

	bid_planted_spin(p->frames, 3000000);
}

static bool in_planted_loop(const struct perf_sample_build_id_offset *e)
{
	const struct bid_map *m = bid_maps_find(&maps, (__u64)bid_planted_loop);
	__u64 ip = e->offset;

	if (e->build_id.status == PERF_BUILD_ID_OFFSET_RESOLVED) {
		if (memcmp(e->build_id.data, m->id, sizeof(m->id)))
			return false;
		ip += m->start - m->offset;
	}
	return ip >= (__u64)bid_planted_loop && ip < (__u64)bid_planted_end;
}

/* In the loop the chain is: marker, IP, then the planted ones in their order. */
static int each_planted(const struct bid_sample *s, void *arg)
{
	struct plant *p = arg;

	if (s->nr_entries < 2 || !in_planted_loop(&s->entries[1]))
		return 0;
	if (s->nr_entries != 2 + p->nr)
		return bid_fail("%llu entries of %zu planted",
				(unsigned long long)s->nr_entries, p->nr);
	for (size_t i = 0; i < p->nr; i++) {
		const struct perf_sample_build_id_offset *e = &s->entries[2 + i];

		if (!(p->want[i] & (1ULL << e->build_id.status)))
			return bid_fail("planted %#llx has status %u",
					(unsigned long long)p->frames[i].ret, e->build_id.status);
		if (e->build_id.status && e->offset != p->frames[i].ret)
			return bid_fail("planted %#llx became %#llx",
					(unsigned long long)p->frames[i].ret,
					(unsigned long long)e->offset);
	}
	p->seen++;
	return 0;
}

FIXTURE(planted)
{
	struct bid_event e;
	struct plant plant;
	size_t page;
	char lib[PATH_MAX];
	int fd;
};

FIXTURE_VARIANT(planted)
{
	__u64 sample_type;
};

FIXTURE_VARIANT_ADD(planted, chain_alone) {
	.sample_type = BID_CHAIN,
};

FIXTURE_VARIANT_ADD(planted, all_four) {
	.sample_type = ALL_FOUR,
};

FIXTURE_SETUP(planted)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->page = sysconf(_SC_PAGESIZE);
	ASSERT_EQ(0, bid_helper_path(self->lib, sizeof(self->lib), "bid_lib.so"))
		TH_LOG("%s", bid_error);
	self->fd = open(self->lib, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(self->fd, 0);
}

FIXTURE_TEARDOWN(planted)
{
	bid_event_close(&self->e);
	close(self->fd);
}

/*
 * Maps two pages of the library with two pages of nothing on either side, too
 * little for a ring to be put there, and reads the note.
 */
static char *map_island(int fd, size_t page)
{
	char *at = mmap(NULL, 64 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *island = at + 30 * page;

	if (at == MAP_FAILED || munmap(island - 2 * page, 6 * page))
		return NULL;
	if (mmap(island, 2 * page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
		 fd, 0) != island)
		return NULL;
	__asm__ volatile("" : : "r"(island[0]), "r"(island[page]));
	return island;
}

static int sample_planted(struct bid_event *e, struct plant *p, __u64 sample_type)
{
	struct perf_event_attr attr;
	struct bid_check c = {
		.attr = &attr, .maps = &maps, .flags = BID_PLANTED,
		.each = each_planted, .each_arg = p,
	};

	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, sample_type);
	attr.exclude_kernel = 1;
	if (bid_event_open(e, &attr, 0, -1, -1, BID_RING_PAGES) || bid_maps_read(&maps, 0))
		return -1;
	return bid_collect(e, &c, load_planted, p, &p->seen, 100);
}

TEST_F_TIMEOUT(planted, around_a_mapping, BID_TIMEOUT_S)
{
	char *island = map_island(self->fd, self->page);
	__u64 start = (__u64)island, end = start + 2 * self->page;

	ASSERT_TRUE(!!island);
	plant(&self->plant, start - 1, NOWHERE);
	plant(&self->plant, start, FILE_OK);
	plant(&self->plant, end - 1, FILE_OK);
	plant(&self->plant, end, NOWHERE);
	plant(&self->plant, start - self->page, NOWHERE);
	plant(&self->plant, end + self->page, NOWHERE);
	plant(&self->plant, start + 0x123, FILE_OK);
	plant(&self->plant, end + 1, NOWHERE);
	/* and again, now that the answer for the mapping may be remembered */
	plant(&self->plant, start - 1, NOWHERE);
	plant(&self->plant, end, NOWHERE);
	EXPECT_EQ(0, sample_planted(&self->e, &self->plant, variant->sample_type))
		TH_LOG("%s", bid_error);
}

/* The address below a mapping comes first: nothing is remembered yet. */
TEST_F_TIMEOUT(planted, below_first, BID_TIMEOUT_S)
{
	char *island = map_island(self->fd, self->page);

	ASSERT_TRUE(!!island);
	plant(&self->plant, (__u64)island - 1, NOWHERE);
	EXPECT_EQ(0, sample_planted(&self->e, &self->plant, variant->sample_type))
		TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(planted, in_no_mapping, BID_TIMEOUT_S)
{
	__u64 values[] = { 0x1234, 0, 1, 0xfff, 0x10000, 0x00007ffffffff000, 0x00007fffffffffff };

	for (size_t i = 0; i < BID_ARRAY_SIZE(values); i++)
		plant(&self->plant, values[i], NOWHERE);
	EXPECT_EQ(0, sample_planted(&self->e, &self->plant, variant->sample_type))
		TH_LOG("%s", bid_error);
}

static int each_empty(const struct bid_sample *s, void *arg)
{
	struct plant *p = arg;

	p->seen++;
	return s->nr_entries ?
	       bid_fail("%llu entries", (unsigned long long)s->nr_entries) : 0;
}

/*
 * Without room for the marker none of the frames are stored, and a walk that stops
 * only when there are enough of them goes round for ever: this test would not end.
 */
TEST_F_TIMEOUT(planted, ring_without_a_marker, BID_TIMEOUT_S)
{
	struct perf_event_attr attr;
	struct bid_check c = {
		.attr = &attr, .maps = &maps, .flags = BID_PLANTED,
		.each = each_empty, .each_arg = &self->plant,
	};
	long before;

	ASSERT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_sysctl_get(MAX_CONTEXTS, &before)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_sysctl_set(MAX_CONTEXTS, 0)) TH_LOG("%s", bid_error);
	plant(&self->plant, 0x1234, NOWHERE);
	plant(&self->plant, 0x1234, NOWHERE);
	self->plant.frames[1].next = (__u64)&self->plant.frames[0];
	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, variant->sample_type);
	attr.exclude_kernel = 1;
	ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_collect(&self->e, &c, load_planted, &self->plant, &self->plant.seen, 20))
		TH_LOG("%s", bid_error);

	/* the tests that follow have markers */
	bid_event_close(&self->e);
	ASSERT_EQ(0, bid_callchain_buffers_free()) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_sysctl_set(MAX_CONTEXTS, before)) TH_LOG("%s", bid_error);
}

/* In a mapping that is there but is nobody's file. */
TEST_F_TIMEOUT(planted, in_data, BID_TIMEOUT_S)
{
	char *heap = malloc(64);
	char *none = mmap(NULL, self->page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_TRUE(!!heap);
	ASSERT_TRUE(none != MAP_FAILED);
	plant(&self->plant, (__u64)&heap, NOWHERE);
	plant(&self->plant, (__u64)heap, NOWHERE);
	plant(&self->plant, (__u64)none, NOWHERE);
	/* a file's, although not its code */
	plant(&self->plant, (__u64)&maps, NOWHERE | FILE_OK);
	plant(&self->plant, (__u64)"", FILE_OK);
	EXPECT_EQ(0, sample_planted(&self->e, &self->plant, variant->sample_type))
		TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(planted, not_the_users_half, BID_TIMEOUT_S)
{
	__u64 values[] = {
		0xffffffff81000000, 0xffffffffff600000, 0xffff888000000000, 0xffffc90000001000,
		0xffff800000000000, 0xffffffffffffefff, 0xfffffffffffff000,
	};
	__u64 holes[] = { 0x0000800000000000, 0x0100000000001234, 0x7fffffffffffffff };

	for (size_t i = 0; i < BID_ARRAY_SIZE(values); i++)
		plant(&self->plant, values[i], KERNEL_HALF);
	/* non-canonical, not the kernel's either */
	for (size_t i = 0; i < BID_ARRAY_SIZE(holes); i++)
		plant(&self->plant, holes[i], NOWHERE);
	plant(&self->plant, 0x8000000000000000, KERNEL_HALF);
	plant(&self->plant, 0xffff7fffffffffff, KERNEL_HALF);
	EXPECT_EQ(0, sample_planted(&self->e, &self->plant, variant->sample_type))
		TH_LOG("%s", bid_error);
}

/* Return addresses that read like the markers of a callchain. */
TEST_F_TIMEOUT(planted, markers, BID_TIMEOUT_S)
{
	__u64 values[] = {
		PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_CONTEXT_HV, PERF_CONTEXT_GUEST,
		PERF_CONTEXT_GUEST_KERNEL, PERF_CONTEXT_GUEST_USER, PERF_CONTEXT_USER_DEFERRED,
		PERF_CONTEXT_MAX, -1ULL, -4000ULL,
	};
	char *island = map_island(self->fd, self->page);

	ASSERT_TRUE(!!island);
	for (size_t i = 0; i < BID_ARRAY_SIZE(values); i++) {
		plant(&self->plant, values[i], MARKER);
		/* What follows may be taken for another kind, never for another place. */
		plant(&self->plant, 0x1234, NOWHERE | ON(KERNEL));
		plant(&self->plant, (__u64)island, FILE_OK | ON(KERNEL));
	}
	EXPECT_EQ(0, sample_planted(&self->e, &self->plant, variant->sample_type))
		TH_LOG("%s", bid_error);
}

#endif /* __x86_64__ */

TEST_HARNESS_MAIN
