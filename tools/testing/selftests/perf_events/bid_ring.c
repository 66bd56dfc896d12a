// SPDX-License-Identifier: GPL-2.0
/*
 * The ways of getting records out: a ring that overflows loses whole records
 * and counts them, a ring that is written backwards, a ring that two events
 * share.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define ALL_FOUR (BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN)

static struct bid_maps maps;

FIXTURE(ring)
{
	struct perf_event_attr attr;
	struct bid_check check;
	struct bid_event e, second;
};

FIXTURE_VARIANT(ring)
{
	__u64 sample_type;
};

FIXTURE_VARIANT_ADD(ring, both_bits) {
	.sample_type = BID_BITS,
};

FIXTURE_VARIANT_ADD(ring, all_four) {
	.sample_type = ALL_FOUR,
};

FIXTURE_SETUP(ring)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	bid_attr_init(&self->attr, PERF_COUNT_SW_PAGE_FAULTS, variant->sample_type);
	self->check.attr = &self->attr;
	self->check.maps = &maps;
	self->check.flags = BID_LOOSE;
}

FIXTURE_TEARDOWN(ring)
{
	bid_event_close(&self->e);
	bid_event_close(&self->second);
}

/* Every page fault is a sample, in the ring or counted as lost. */
TEST_F_TIMEOUT(ring, overflow_is_counted, BID_TIMEOUT_S)
{
	struct {
		__u64 value, lost;
	} count;
	struct bid_stats *st = &self->check.stats;

	self->attr.read_format = PERF_FORMAT_LOST;
	ASSERT_EQ(0, bid_event_open(&self->e, &self->attr, 0, -1, -1, 1)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_event_enable(&self->e)) TH_LOG("%s", bid_error);
	for (int i = 0; i < 50; i++)
		bid_load_faults(NULL);
	ASSERT_EQ(0, bid_drain(&self->e, bid_check_record, &self->check)) TH_LOG("%s", bid_error);
	EXPECT_GT(st->samples, 0);
	/* the record that says how many were lost comes with the next sample */
	bid_load_faults(NULL);
	ASSERT_EQ(0, bid_event_disable(&self->e)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_drain(&self->e, bid_check_record, &self->check)) TH_LOG("%s", bid_error);
	ASSERT_EQ((ssize_t)sizeof(count), read(self->e.fd, &count, sizeof(count)));
	EXPECT_GT(count.lost, 100);
	EXPECT_EQ(count.value, st->samples + count.lost)
		TH_LOG("%lu samples", st->samples);
	EXPECT_GE(st->lost_records, 1);
	EXPECT_LE(st->lost, count.lost);
	EXPECT_GT(st->lost, 100);
	EXPECT_GT(st->user[PERF_BUILD_ID_OFFSET_RESOLVED], 10);
}

/* A reader that keeps up loses nothing. */
TEST_F_TIMEOUT(ring, nothing_lost, BID_TIMEOUT_S)
{
	struct bid_stats *st = &self->check.stats;
	struct {
		__u64 value, lost;
	} count;

	self->attr.read_format = PERF_FORMAT_LOST;
	ASSERT_EQ(0, bid_event_open(&self->e, &self->attr, 0, -1, -1, 256))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_collect(&self->e, &self->check, bid_load_faults, NULL,
				 &st->samples, 500)) TH_LOG("%s", bid_error);
	ASSERT_EQ((ssize_t)sizeof(count), read(self->e.fd, &count, sizeof(count)));
	EXPECT_EQ(0, count.lost);
	EXPECT_EQ(count.value, st->samples);
	EXPECT_EQ(0, st->lost_records);
}

/* Backwards: the newest record stands at the head, the oldest is overwritten. */
static int read_backward(const struct bid_event *e, struct bid_check *c)
{
	static __u64 record[65536 / sizeof(__u64)];
	struct perf_event_header *hdr = (void *)record;
	const char *data = (const char *)e->page + e->page->data_offset;
	__u64 head = __atomic_load_n(&e->page->data_head, __ATOMIC_ACQUIRE);
	size_t done = 0;

	while (done + sizeof(*hdr) <= e->data_size) {
		for (size_t i = 0; i < sizeof(*hdr); i++)
			((char *)hdr)[i] = data[(head + done + i) % e->data_size];
		if (!hdr->size)
			break;		/* never written */
		if (hdr->size < sizeof(*hdr) || hdr->size % 8)
			return bid_fail("record of %u bytes", hdr->size);
		if (done + hdr->size > e->data_size)
			break;		/* its end is overwritten */
		for (size_t i = 0; i < hdr->size; i++)
			((char *)record)[i] = data[(head + done + i) % e->data_size];
		if (bid_check_record(hdr, c))
			return -1;
		done += hdr->size;
	}
	return 0;
}

TEST_F_TIMEOUT(ring, written_backward, BID_TIMEOUT_S)
{
	struct bid_stats *st = &self->check.stats;

	self->attr.write_backward = 1;
	ASSERT_EQ(0, bid_event_open(&self->e, &self->attr, 0, -1, -1, 16))
		TH_LOG("%s", bid_error);
	for (int round = 0; round < 10; round++) {
		ASSERT_EQ(0, bid_event_enable(&self->e)) TH_LOG("%s", bid_error);
		for (int i = 0; i < 20; i++)
			bid_load_faults(NULL);
		ASSERT_EQ(0, ioctl(self->e.fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 1));
		ASSERT_EQ(0, read_backward(&self->e, &self->check)) TH_LOG("%s", bid_error);
		ASSERT_EQ(0, ioctl(self->e.fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 0));
	}
	EXPECT_GE(st->samples, 300);
	EXPECT_GE(st->user[PERF_BUILD_ID_OFFSET_RESOLVED], 300);
}

/* Two events, two kinds of sample, one ring. */

struct shared {
	struct bid_event *e[2];
	struct bid_check c[2];
	unsigned long smaller;
};

static int check_shared(const struct perf_event_header *hdr, void *arg)
{
	struct shared *sh = arg;
	__u64 id = *(const __u64 *)(hdr + 1);

	if (hdr->type != PERF_RECORD_SAMPLE)
		return 0;
	for (int i = 0; i < 2; i++) {
		unsigned long *other = &sh->c[!i].stats.samples;
		unsigned long *mine = &sh->c[i].stats.samples;

		if (sh->e[i]->id != id)
			continue;
		if (bid_check_record(hdr, &sh->c[i]))
			return -1;
		sh->smaller = *mine < *other ? *mine : *other;
		return 0;
	}
	return bid_fail("a sample of event %llu", (unsigned long long)id);
}

static void load_both(void *arg)
{
	bid_load_user(arg);
	bid_load_faults(arg);
}

TEST_F_TIMEOUT(ring, shared_by_two_events, BID_TIMEOUT_S)
{
	struct perf_event_attr other = self->attr;
	struct shared sh = { .e = { &self->e, &self->second } };

	bid_attr_init(&other, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP |
		      PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_TIME | BID_IP);
	self->attr.sample_type |= PERF_SAMPLE_IDENTIFIER;
	ASSERT_EQ(0, bid_event_open(&self->e, &self->attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_event_open(&self->second, &other, 0, -1, -1, 0)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, ioctl(self->second.fd, PERF_EVENT_IOC_SET_OUTPUT, self->e.fd));
	ASSERT_EQ(0, bid_event_enable(&self->second)) TH_LOG("%s", bid_error);
	sh.c[0] = self->check;
	sh.c[1] = self->check;
	sh.c[1].attr = &other;
	ASSERT_EQ(0, bid_collect_fn(&self->e, 1, check_shared, &sh, load_both, NULL,
				    &sh.smaller, 100)) TH_LOG("%s", bid_error);
	EXPECT_GE(sh.c[0].stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], 50);
	/* how many of the clock's are in user mode is up to how fast the kernel is */
	EXPECT_EQ(0, bid_collect_fn(&self->e, 1, check_shared, &sh, load_both, NULL,
				    &sh.c[1].stats.user[PERF_BUILD_ID_OFFSET_RESOLVED], 20))
		TH_LOG("%s", bid_error);
}

/* An event with an old sample type is not touched by one with a new one. */
TEST_F_TIMEOUT(ring, beside_an_old_event, BID_TIMEOUT_S)
{
	struct perf_event_attr other = self->attr;
	struct shared sh = { .e = { &self->e, &self->second } };

	bid_attr_init(&other, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_IDENTIFIER |
		      PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN);
	self->attr.sample_type |= PERF_SAMPLE_IDENTIFIER;
	ASSERT_EQ(0, bid_event_open(&self->e, &self->attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_event_open(&self->second, &other, 0, -1, -1, 0)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, ioctl(self->second.fd, PERF_EVENT_IOC_SET_OUTPUT, self->e.fd));
	ASSERT_EQ(0, bid_event_enable(&self->second)) TH_LOG("%s", bid_error);
	sh.c[0] = self->check;
	sh.c[1] = self->check;
	sh.c[1].attr = &other;
	ASSERT_EQ(0, bid_collect_fn(&self->e, 1, check_shared, &sh, load_both, NULL,
				    &sh.smaller, 200)) TH_LOG("%s", bid_error);
}

/*
 * Two events that one page fault overflows, one after the other and with what
 * the first one found out.
 */
TEST_F_TIMEOUT(ring, same_fault_twice, BID_TIMEOUT_S)
{
	struct bid_stats *st = &self->check.stats;
	struct bid_event e[2];

	ASSERT_EQ(0, bid_event_open(&self->e, &self->attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_event_open(&self->second, &self->attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	e[0] = self->e;
	e[1] = self->second;
	ASSERT_EQ(0, bid_collect_many(e, 2, &self->check, bid_load_faults, NULL,
				      &st->samples, 300)) TH_LOG("%s", bid_error);
	EXPECT_GE(st->user[PERF_BUILD_ID_OFFSET_RESOLVED], 100);
}

static int open_shared(struct shared *sh, const struct perf_event_attr *first,
		       const struct perf_event_attr *second)
{
	sh->smaller = 0;
	memset(sh->c, 0, sizeof(sh->c));
	sh->c[0].attr = first;
	sh->c[1].attr = second;
	sh->c[0].flags = BID_LOOSE;
	sh->c[1].flags = BID_LOOSE;
	if (bid_event_open(sh->e[0], first, 0, -1, -1, BID_RING_PAGES) ||
	    bid_event_open(sh->e[1], second, 0, -1, -1, 0))
		return -1;
	if (ioctl(sh->e[1]->fd, PERF_EVENT_IOC_SET_OUTPUT, sh->e[0]->fd))
		return bid_fail("PERF_EVENT_IOC_SET_OUTPUT: %s", strerror(errno));
	return bid_event_enable(sh->e[1]);
}

/* A number of faults; every record must belong to its event and parse. */
static int sample_shared(struct shared *sh, const struct perf_event_attr *first,
			 const struct perf_event_attr *second)
{
	int ret = open_shared(sh, first, second);

	if (!ret)
		ret = bid_event_enable(sh->e[0]);
	for (int i = 0; !ret && i < 20; i++) {
		bid_load_faults(NULL);
		ret = bid_drain(sh->e[0], check_shared, sh);
	}
	bid_event_close(sh->e[1]);
	bid_event_close(sh->e[0]);
	if (!ret && sh->smaller < 100)
		ret = bid_fail("%lu samples of one event", sh->smaller);
	return ret;
}

/*
 * The same with other sample types: each record has what its own event asks
 * for. Kernels have got that wrong for two software events of any sample types;
 * where two old ones show it, the new ones have no say in it.
 */
TEST_F_TIMEOUT(ring, same_fault_other_types, BID_TIMEOUT_S)
{
	__u64 types[] = {
		PERF_SAMPLE_IDENTIFIER | BID_IP,
		PERF_SAMPLE_IDENTIFIER | BID_CHAIN,
		PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN,
		PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP,
	};
	struct perf_event_attr other = self->attr, control = self->attr;
	struct shared sh = { .e = { &self->e, &self->second } };

	self->attr.sample_type |= PERF_SAMPLE_IDENTIFIER;
	control.sample_type = types[2];
	other.sample_type = types[3];
	if (sample_shared(&sh, &control, &other) || sample_shared(&sh, &other, &control))
		SKIP(return, "the kernel mixes up old sample types: %s", bid_error);

	for (size_t i = 0; i < BID_ARRAY_SIZE(types); i++) {
		other.sample_type = types[i];
		EXPECT_EQ(0, sample_shared(&sh, &self->attr, &other))
			TH_LOG("%#llx second: %s", (unsigned long long)types[i], bid_error);
		EXPECT_EQ(0, sample_shared(&sh, &other, &self->attr))
			TH_LOG("%#llx first: %s", (unsigned long long)types[i], bid_error);
	}
}

/* A BPF program decides which samples there are, and changes none of them. */

static int load_bpf(int ret)
{
	struct bpf_insn prog[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = ret },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_PERF_EVENT,
		.insns = (__u64)prog,
		.insn_cnt = BID_ARRAY_SIZE(prog),
		.license = (__u64)"GPL",
	};

	return syscall(__NR_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
}

TEST_F_TIMEOUT(ring, passed_by_bpf, BID_TIMEOUT_S)
{
	struct bid_stats *st = &self->check.stats;

	for (int ret = 0; ret <= 1; ret++) {
		int fd = load_bpf(ret);

		ASSERT_GE(fd, 0);
		self->attr.config = PERF_COUNT_SW_CPU_CLOCK;
		self->attr.sample_period = BID_PERIOD_NS;
		bid_attr_apart(&self->attr);
		ASSERT_EQ(0, bid_event_open(&self->e, &self->attr, 0, -1, -1, BID_RING_PAGES))
			TH_LOG("%s", bid_error);
		ASSERT_EQ(0, ioctl(self->e.fd, PERF_EVENT_IOC_SET_BPF, fd));
		close(fd);
		if (ret) {
			ASSERT_EQ(0, bid_collect(&self->e, &self->check, bid_load_user, NULL,
						 &st->samples, 100)) TH_LOG("%s", bid_error);
			EXPECT_GE(bid_resolved_percent(st), BID_MOST)
				TH_LOG("%s", bid_resolved_text(st));
		} else {
			ASSERT_EQ(0, bid_event_enable(&self->e)) TH_LOG("%s", bid_error);
			for (int i = 0; i < 20; i++)
				bid_load_user(NULL);
			ASSERT_EQ(0, bid_drain(&self->e, bid_check_record, &self->check))
				TH_LOG("%s", bid_error);
			EXPECT_EQ(0, st->samples);
		}
		bid_event_close(&self->e);
	}
}

/* Waking up the reader, with the record complete when it looks. */
TEST_F_TIMEOUT(ring, poll, BID_TIMEOUT_S)
{
	struct bid_stats *st = &self->check.stats;
	struct pollfd pfd;

	self->attr.wakeup_events = 8;
	ASSERT_EQ(0, bid_event_open(&self->e, &self->attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_event_enable(&self->e)) TH_LOG("%s", bid_error);
	pfd.fd = self->e.fd;
	pfd.events = POLLIN;
	for (int i = 0; i < 5; i++) {
		bid_load_faults(NULL);
		ASSERT_EQ(1, poll(&pfd, 1, 5000));
		EXPECT_TRUE(pfd.revents & POLLIN);
		ASSERT_EQ(0, bid_drain(&self->e, bid_check_record, &self->check))
			TH_LOG("%s", bid_error);
	}
	EXPECT_GE(st->samples, 5 * 8);
}

TEST_HARNESS_MAIN
