// SPDX-License-Identifier: GPL-2.0
/*
 * The judge on trial: records made by hand, right ones and wrong ones, through
 * the parser and the check that the other bid_* tests rely on. Needs no kernel
 * feature.
 */
#include <string.h>
#include <sys/auxv.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#define TYPE (PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | BID_BITS)

struct record {
	struct perf_event_header		hdr;
	__u64					ip;
	__u64					nr_ips;
	__u64					ips[4];
	struct perf_sample_build_id_offset	bid;
	__u64					nr_entries;
	struct perf_sample_build_id_offset	entries[4];
};

struct trial {
	struct perf_event_attr	attr;
	struct bid_maps		maps;
	struct bid_check	check;
	struct record		r;
};

FIXTURE(judge)
{
	struct trial t;
};

static void set_entry(struct perf_sample_build_id_offset *e, __u8 status, __u64 offset)
{
	memset(e, 0, sizeof(*e));
	e->build_id.status = status;
	e->offset = offset;
}

static void set_resolved(struct perf_sample_build_id_offset *e, const struct bid_map *m, __u64 ip)
{
	set_entry(e, PERF_BUILD_ID_OFFSET_RESOLVED, m->offset + ip - m->start);
	e->build_id.size = m->id_size;
	memcpy(e->build_id.data, m->id, m->id_size);
}

/* Mappings: a file with an ID, a gap, one without, anonymous memory. */
FIXTURE_SETUP(judge)
{
	static const struct bid_map map[] = {
		{ .start = 0x1000, .end = 0x3000, .offset = 0x5000, .kind = BID_MAP_FILE,
		  .id_size = 5, .id = { 1, 2, 3, 4, 5 } },
		{ .start = 0x4000, .end = 0x5000, .kind = BID_MAP_FILE },
		{ .start = 0x5000, .end = 0x6000, .kind = BID_MAP_ANON },
	};
	__u64 ips[] = { (__u64)PERF_CONTEXT_USER, 0x1800, 0x4800, 0x5800 };

	memcpy(self->t.maps.map, map, sizeof(map));
	self->t.maps.nr = BID_ARRAY_SIZE(map);
	self->t.attr.sample_type = TYPE;
	self->t.check.attr = &self->t.attr;
	self->t.check.maps = &self->t.maps;
	self->t.r.hdr.type = PERF_RECORD_SAMPLE;
	self->t.r.hdr.misc = PERF_RECORD_MISC_USER;
	self->t.r.hdr.size = sizeof(self->t.r);
	self->t.r.ip = ips[1];
	self->t.r.nr_ips = 4;
	memcpy(self->t.r.ips, ips, sizeof(ips));
	self->t.r.nr_entries = 4;
	set_entry(&self->t.r.entries[0], PERF_BUILD_ID_OFFSET_CONTEXT, ips[0]);
	set_resolved(&self->t.r.entries[1], &self->t.maps.map[0], ips[1]);
	set_entry(&self->t.r.entries[2], PERF_BUILD_ID_OFFSET_NO_BUILD_ID, ips[2]);
	set_entry(&self->t.r.entries[3], PERF_BUILD_ID_OFFSET_ANON, ips[3]);
	self->t.r.bid = self->t.r.entries[1];
}

FIXTURE_TEARDOWN(judge)
{
}

static int judge(struct trial *t)
{
	return bid_check_record(&t->r.hdr, &t->check);
}

TEST_F(judge, takes_what_is_right)
{
	EXPECT_EQ(0, judge(&self->t)) TH_LOG("%s", bid_error);
	EXPECT_EQ(1, self->t.check.stats.samples);
	EXPECT_EQ(2, self->t.check.stats.user[PERF_BUILD_ID_OFFSET_RESOLVED]);
	EXPECT_EQ(1, self->t.check.stats.user[PERF_BUILD_ID_OFFSET_ANON]);
}

TEST_F(judge, takes_busy)
{
	set_entry(&self->t.r.entries[1], PERF_BUILD_ID_OFFSET_BUSY, 0x1800);
	self->t.r.bid = self->t.r.entries[1];
	EXPECT_EQ(0, judge(&self->t)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_resolved_percent(&self->t.check.stats));
}

/* A sample whose task has not gone on since the last one does not count for the share. */
TEST_F(judge, tells_apart_what_shares_an_interrupt)
{
	struct {
		struct perf_event_header		hdr;
		__u32					cpu, reserved;
		__u64					abi;
		__u64					regs[__builtin_popcountll(BID_REGS_ALL)];
		struct perf_sample_build_id_offset	bid;
	} r = { .hdr = self->t.r.hdr, .abi = 2, .bid = self->t.r.bid };
	struct bid_stats *st = &self->t.check.stats;

	r.hdr.size = sizeof(r);
	self->t.attr.sample_type = BID_IP;
	bid_attr_apart(&self->t.attr);
	EXPECT_EQ(0, bid_check_record(&r.hdr, &self->t.check)) TH_LOG("%s", bid_error);
	set_entry(&r.bid, PERF_BUILD_ID_OFFSET_BUSY, 0x1800);
	EXPECT_EQ(0, bid_check_record(&r.hdr, &self->t.check)) TH_LOG("%s", bid_error);
	EXPECT_EQ(1, st->shared);
	EXPECT_EQ(100, bid_resolved_percent(st));
	/* the first one there */
	r.cpu = 1;
	EXPECT_EQ(0, bid_check_record(&r.hdr, &self->t.check)) TH_LOG("%s", bid_error);
	EXPECT_EQ(50, bid_resolved_percent(st));
	r.regs[0]++;
	EXPECT_EQ(0, bid_check_record(&r.hdr, &self->t.check)) TH_LOG("%s", bid_error);
	EXPECT_EQ(33, bid_resolved_percent(st));
	EXPECT_EQ(1, st->shared);
}

/* Every field cut or padded: the record does not parse. */
TEST_F(judge, refuses_a_wrong_size)
{
	for (size_t size = sizeof(self->t.r.hdr); size < sizeof(self->t.r); size += 8) {
		self->t.r.hdr.size = size;
		EXPECT_NE(0, judge(&self->t)) TH_LOG("%zu bytes", size);
	}
	self->t.r.hdr.size = sizeof(self->t.r);
	self->t.r.nr_entries = 3;
	EXPECT_NE(0, judge(&self->t));
	self->t.r.nr_entries = 5;
	EXPECT_NE(0, judge(&self->t));
	self->t.r.nr_entries = -1ULL / 32 + 2;
	EXPECT_NE(0, judge(&self->t));
	self->t.r.nr_entries = 4;
	self->t.r.nr_ips = -1ULL / 8 + 5;
	EXPECT_NE(0, judge(&self->t));
}

/* The same address as IP and innermost frame, resolved as if in the first file. */
static void resolve_at(struct trial *t, __u64 ip)
{
	t->r.ip = ip;
	t->r.ips[1] = ip;
	set_resolved(&t->r.entries[1], &t->maps.map[0], ip);
	t->r.bid = t->r.entries[1];
}

/* Each case is one thing wrong: its name, or NULL when there are no more. */
static const char *spoil(struct trial *t, int which)
{
	struct perf_sample_build_id_offset *e = t->r.entries;

	switch (which) {
	case 0:
		e[1].offset++;
		return "offset";
	case 1:
		e[1].build_id.data[4]++;
		return "ID";
	case 2:
		e[1].build_id.size = 20;
		return "padded size";
	case 3:
		e[1].build_id.size = 4;
		e[1].build_id.data[4] = 0;
		return "short size";
	case 4:
		e[1].build_id.data[19] = 1;
		return "bytes after the ID";
	case 5:
		e[2].build_id.data[0] = 1;
		return "bytes of an unresolved ID";
	case 6:
		e[2].build_id.size = 1;
		return "size of an unresolved ID";
	case 7:
		e[1].build_id.size = 21;
		return "size 21";
	case 8:
		e[1].build_id.size = 0;
		memset(e[1].build_id.data, 0, BID_SIZE_MAX);
		return "size 0";
	case 9:
		e[1].build_id.__reserved = 0x100;
		return "reserved bytes";
	case 10:
		e[2].build_id.status = PERF_BUILD_ID_OFFSET_MAX;
		return "unknown status";
	case 11:
		e[2].build_id.status = PERF_BUILD_ID_OFFSET_DEFERRED;
		return "DEFERRED";
	case 12:
		e[2].build_id.status = PERF_BUILD_ID_OFFSET_NO_MEMORY;
		return "NO_MEMORY";
	case 13:
		e[2].build_id.status = PERF_BUILD_ID_OFFSET_NO_MM;
		return "NO_MM";
	case 14:
		e[2].build_id.status = PERF_BUILD_ID_OFFSET_KERNEL;
		return "KERNEL for a user address";
	case 15:
		e[2].build_id.status = PERF_BUILD_ID_OFFSET_ANON;
		return "ANON for a file";
	case 16:
		e[3].build_id.status = PERF_BUILD_ID_OFFSET_NO_BUILD_ID;
		return "NO_BUILD_ID for no file";
	case 17:
		e[3].offset++;
		return "unresolved address";
	case 18:
		e[0].build_id.status = PERF_BUILD_ID_OFFSET_ANON;
		return "marker's status";
	case 19:
		e[0].offset = (__u64)PERF_CONTEXT_KERNEL;
		return "marker";
	case 20:
		t->r.bid.offset++;
		return "IP's offset";
	case 21:
		set_entry(&t->r.bid, PERF_BUILD_ID_OFFSET_BUSY, t->r.ip);
		return "IP unlike the innermost frame";
	case 22:
		resolve_at(t, 0x5800);
		return "resolved in no file";
	case 23:
		resolve_at(t, 0xfff);
		return "resolved just below";
	case 24:
		resolve_at(t, 0x3000);
		return "resolved just past";
	case 25:
		resolve_at(t, 0xffffffff81000000);
		return "resolved in the kernel's half";
	case 26:
		t->r.hdr.misc = PERF_RECORD_MISC_KERNEL;
		return "user IP in kernel mode";
	case 27:
		t->attr.exclude_callchain_user = 1;
		return "excluded user frames";
	default:
		return NULL;
	}
}

TEST_F(judge, refuses_what_is_wrong)
{
	struct trial right = self->t;
	const char *name;
	int nr;

	for (nr = 0; (name = spoil(&self->t, nr)); nr++) {
		EXPECT_NE(0, judge(&self->t)) TH_LOG("%s", name);
		self->t = right;
	}
	EXPECT_EQ(28, nr);
}

/* Without the addresses the offset must be explained by some mapping. */
TEST_F(judge, refuses_unexplained_offset)
{
	struct {
		struct perf_event_header		hdr;
		struct perf_sample_build_id_offset	bid;
	} r = { .hdr = self->t.r.hdr, .bid = self->t.r.bid };

	r.hdr.size = sizeof(r);
	self->t.attr.sample_type = BID_IP;
	EXPECT_EQ(0, bid_check_record(&r.hdr, &self->t.check)) TH_LOG("%s", bid_error);
	r.bid.offset = 0x7000;
	EXPECT_NE(0, bid_check_record(&r.hdr, &self->t.check));
	r.bid.offset = 0x4fff;
	EXPECT_NE(0, bid_check_record(&r.hdr, &self->t.check));
}

/* What nobody has written to looks like an address. */
TEST_F(judge, refuses_poison)
{
	struct record *r = &self->t.r;

	r->ips[3] = 0x6b6b6b6b6b6b6b6a;
	set_entry(&r->entries[3], PERF_BUILD_ID_OFFSET_ANON, r->ips[3]);
	EXPECT_EQ(0, judge(&self->t)) TH_LOG("%s", bid_error);
	r->ips[3]++;
	r->entries[3].offset++;
	EXPECT_NE(0, judge(&self->t));
}

/* Kernel frames: passed over, and refused where they may not be seen. */
TEST_F(judge, kernel_frames)
{
	struct record *r = &self->t.r;

	r->hdr.misc = PERF_RECORD_MISC_KERNEL;
	r->ip = 0xffffffff81001000;
	set_entry(&r->bid, PERF_BUILD_ID_OFFSET_KERNEL, r->ip);
	r->ips[0] = (__u64)PERF_CONTEXT_KERNEL;
	set_entry(&r->entries[0], PERF_BUILD_ID_OFFSET_CONTEXT, r->ips[0]);
	r->ips[1] = r->ip;
	r->entries[1] = r->bid;
	r->ips[2] = (__u64)PERF_CONTEXT_USER;
	set_entry(&r->entries[2], PERF_BUILD_ID_OFFSET_CONTEXT, r->ips[2]);
	EXPECT_EQ(0, judge(&self->t)) TH_LOG("%s", bid_error);
	self->t.check.flags = BID_NO_KERNEL;
	EXPECT_NE(0, judge(&self->t));
	self->t.check.flags = 0;
	self->t.attr.exclude_callchain_kernel = 1;
	EXPECT_NE(0, judge(&self->t));
	self->t.attr.exclude_callchain_kernel = 0;
	r->entries[1].build_id.status = PERF_BUILD_ID_OFFSET_ANON;
	EXPECT_NE(0, judge(&self->t));
}

/* Deferred: a cookie in the sample, the frames in a record of their own. */

struct deferred_record {
	struct perf_event_header		hdr;
	__u64					cookie, nr;
	struct perf_sample_build_id_offset	entries[3];
	__u32					pid, tid;
	__u64					identifier;
};

static void defer_trial(struct trial *t)
{
	struct record *r = &t->r;

	t->attr.defer_callchain = 1;
	t->attr.defer_output = 1;
	r->ips[0] = (__u64)PERF_CONTEXT_KERNEL;
	r->ips[1] = 0xffffffff81001000;
	r->ips[2] = (__u64)PERF_CONTEXT_USER_DEFERRED;
	r->ips[3] = 0x300000001;
	set_entry(&r->entries[0], PERF_BUILD_ID_OFFSET_CONTEXT, r->ips[0]);
	set_entry(&r->entries[1], PERF_BUILD_ID_OFFSET_KERNEL, r->ips[1]);
	set_entry(&r->entries[2], PERF_BUILD_ID_OFFSET_CONTEXT, r->ips[2]);
	set_entry(&r->entries[3], PERF_BUILD_ID_OFFSET_DEFERRED, r->ips[3]);
	r->bid = r->entries[3];
}

static const char *spoil_cookie(struct trial *t, int which)
{
	struct perf_sample_build_id_offset *e = t->r.entries;

	switch (which) {
	case 0:
		t->attr.defer_callchain = 0;
		return "deferred though nobody asked";
	case 1:
		e[3].offset++;
		return "cookie unlike that of CALLCHAIN";
	case 2:
		t->r.bid.offset++;
		return "IP's cookie";
	case 3:
		e[3].build_id.status = PERF_BUILD_ID_OFFSET_ANON;
		return "cookie's status";
	case 4:
		set_resolved(&t->r.bid, &t->maps.map[0], t->r.ip);
		return "IP not deferred";
	case 5:
		e[2].offset = (__u64)PERF_CONTEXT_USER;
		t->r.ips[2] = e[2].offset;
		return "cookie after another marker";
	case 6:
		t->r.nr_entries = 3;
		t->r.hdr.size -= sizeof(e[3]);
		return "no cookie";
	case 7:
		t->r.nr_entries = 2;
		t->r.hdr.size -= 2 * sizeof(e[3]);
		return "nothing of the user part";
	case 8:
		t->r.bid.offset = 0;
		e[3].offset = 0;
		t->r.ips[3] = 0;
		return "cookie of 0";
	default:
		return NULL;
	}
}

TEST_F(judge, deferred_sample)
{
	struct trial right;
	const char *name;
	int nr;

	defer_trial(&self->t);
	right = self->t;
	EXPECT_EQ(0, judge(&self->t)) TH_LOG("%s", bid_error);
	for (nr = 0; (name = spoil_cookie(&self->t, nr)); nr++) {
		EXPECT_NE(0, judge(&self->t)) TH_LOG("%s", name);
		self->t = right;
	}
	EXPECT_EQ(9, nr);
}

static void make_deferred(struct deferred_record *d, const struct trial *t)
{
	memset(d, 0, sizeof(*d));
	d->hdr.type = PERF_RECORD_CALLCHAIN_DEFERRED;
	d->hdr.misc = PERF_RECORD_MISC_USER | PERF_RECORD_MISC_CALLCHAIN_BUILD_ID;
	d->hdr.size = sizeof(*d);
	d->cookie = 0x300000001;
	d->nr = 3;
	memcpy(d->entries, &t->r.entries[1], sizeof(d->entries));
}

static const char *spoil_deferred(struct deferred_record *d, int which)
{
	switch (which) {
	case 0:
		d->hdr.misc = PERF_RECORD_MISC_USER;
		return "entries taken for addresses";
	case 1:
		d->hdr.misc = PERF_RECORD_MISC_CALLCHAIN_BUILD_ID;
		return "not of user mode";
	case 2:
		d->hdr.size -= 8;
		return "short trailer";
	case 3:
		d->nr = 2;
		return "fewer entries";
	case 4:
		d->nr = 4;
		return "more entries";
	case 5:
		d->nr = -1ULL / 32 + 4;
		return "far more entries";
	case 6:
		d->cookie = 0;
		return "no cookie";
	case 7:
		set_entry(&d->entries[0], PERF_BUILD_ID_OFFSET_FAULT, 0x1800);
		return "FAULT";
	case 8:
		set_entry(&d->entries[0], PERF_BUILD_ID_OFFSET_BUSY, 0x1800);
		return "BUSY";
	case 9:
		set_entry(&d->entries[0], PERF_BUILD_ID_OFFSET_NO_MEMORY, 0x1800);
		return "NO_MEMORY";
	case 10:
		set_entry(&d->entries[0], PERF_BUILD_ID_OFFSET_ANON, 0x1800);
		return "ANON for a file";
	case 11:
		d->entries[0].offset = 0x7000;
		return "unexplained offset";
	case 12:
		set_entry(&d->entries[0], PERF_BUILD_ID_OFFSET_CONTEXT, (__u64)PERF_CONTEXT_USER);
		return "a marker";
	case 13:
		d->entries[2].build_id.__reserved = 1;
		return "reserved bytes";
	default:
		return NULL;
	}
}

TEST_F(judge, deferred_record)
{
	struct deferred_record d;
	const char *name;
	int nr;

	self->t.attr.sample_type = TYPE | PERF_SAMPLE_TID | PERF_SAMPLE_IDENTIFIER;
	self->t.attr.sample_id_all = 1;
	make_deferred(&d, &self->t);
	EXPECT_NE(0, bid_check_record(&d.hdr, &self->t.check)) TH_LOG("not asked for");
	self->t.attr.defer_output = 1;
	EXPECT_EQ(0, bid_check_record(&d.hdr, &self->t.check)) TH_LOG("%s", bid_error);
	EXPECT_EQ(1, self->t.check.stats.deferred);
	for (nr = 0; (name = spoil_deferred(&d, nr)); nr++) {
		EXPECT_NE(0, bid_check_record(&d.hdr, &self->t.check)) TH_LOG("%s", name);
		make_deferred(&d, &self->t);
	}
	EXPECT_EQ(14, nr);
	self->t.check.flags = BID_UNREADABLE;
	set_entry(&d.entries[0], PERF_BUILD_ID_OFFSET_NO_MEMORY, 0x1800);
	EXPECT_EQ(0, bid_check_record(&d.hdr, &self->t.check)) TH_LOG("%s", bid_error);
}

/* The book of cookies */

struct asked {
	struct perf_event_header		hdr;
	__u64					ip;
	__u32					pid, tid;
	__u64					time;
	struct perf_sample_build_id_offset	bid;
};

/* A sample at ip whose user part is deferred. */
static int ask(struct bid_tool *t, __u64 cookie, __u64 ip, __u32 tid)
{
	struct asked a = {
		.hdr = { PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, sizeof(a) },
		.ip = ip, .pid = 1, .tid = tid, .time = cookie,
	};

	set_entry(&a.bid, PERF_BUILD_ID_OFFSET_DEFERRED, cookie);
	return bid_tool_record(&a.hdr, t);
}

/* The record for it, of a callchain that begins at ip. */
static int answer(struct bid_tool *t, __u64 cookie, __u64 ip, __u32 tid)
{
	struct {
		struct perf_event_header		hdr;
		__u64					cookie, nr;
		struct perf_sample_build_id_offset	entry;
		__u32					pid, tid;
		__u64					time;
	} r = {
		.hdr = { PERF_RECORD_CALLCHAIN_DEFERRED,
			 PERF_RECORD_MISC_USER | PERF_RECORD_MISC_CALLCHAIN_BUILD_ID, sizeof(r) },
		.cookie = cookie, .nr = 1, .pid = 1, .tid = tid,
	};

	set_resolved(&r.entry, &t->check.maps->map[0], ip);
	return bid_tool_record(&r.hdr, t);
}

TEST_F(judge, book_of_cookies)
{
	static struct bid_tool t;
	struct bid_pairs p;

	self->t.attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | BID_IP;
	self->t.attr.defer_callchain = 1;
	self->t.attr.defer_output = 1;
	self->t.attr.sample_id_all = 1;
	ASSERT_EQ(0, bid_tool_init(&t, &self->t.attr, &self->t.maps)) TH_LOG("%s", bid_error);

	/* many enough for the book to grow */
	for (__u64 cookie = 1; cookie <= 2000; cookie++) {
		ASSERT_EQ(0, ask(&t, cookie, 0x1800, 7)) TH_LOG("%s", bid_error);
		ASSERT_EQ(0, answer(&t, cookie, 0x1800, 7)) TH_LOG("%s", bid_error);
	}
	EXPECT_EQ(0, bid_tool_paired(&t, BID_FULL, 2000)) TH_LOG("%s", bid_error);
	EXPECT_NE(0, bid_tool_paired(&t, BID_FULL, 2001));
	EXPECT_NE(0, bid_tool_paired(&t, BID_PLAIN, 2000));

	/* again, with another sample for the first, and one at another place */
	EXPECT_EQ(0, ask(&t, 1, 0x1800, 7));
	EXPECT_EQ(0, bid_tool_paired(&t, BID_FULL, 2000)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, ask(&t, 1, 0x1900, 7));
	EXPECT_NE(0, bid_tool_paired(&t, BID_FULL, 2000));

	EXPECT_EQ(0, ask(&t, 3001, 0x1800, 7));
	EXPECT_EQ(0, ask(&t, 3002, 0x1800, 7));
	EXPECT_EQ(0, answer(&t, 3003, 0x1800, 7));
	EXPECT_EQ(0, answer(&t, 2, 0x1800, 7));
	EXPECT_EQ(0, ask(&t, 3004, 0x1800, 7));
	EXPECT_EQ(0, answer(&t, 3004, 0x1900, 7));
	bid_tool_pairs(&t, BID_FULL, &p);
	EXPECT_EQ(2004, p.cookies);
	EXPECT_EQ(2000, p.pairs);	/* one twice, one that differs */
	EXPECT_EQ(2, p.unanswered);
	EXPECT_EQ(0, p.last);		/* the task came back */
	EXPECT_EQ(1, p.unasked);
	EXPECT_EQ(1, p.repeated);
	EXPECT_EQ(1, p.differ);
	EXPECT_EQ(1, p.strays);

	/* a cookie belongs to one task */
	EXPECT_NE(0, ask(&t, 3004, 0x1800, 8));
	EXPECT_NE(0, answer(&t, 3004, 0x1800, 8));
	bid_tool_close(&t);
}

/* What the tests take for the truth about files, on files whose ID is known. */
TEST(build_ids_of_programs)
{
	struct {
		const char *name;
		int size;
		__u8 id[BID_SIZE_MAX];
	} files[] = {
		{ "bid_id8", 8, { 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef } },
		{ "bid_id5", 5, { 0x50, 0x60, 0x70, 0x80, 0x90 } },
		{ "bid_id1", 1, { 0x2a } },
		{ "bid_none", 0 },
		{ "bid_id24", 0 },
	};

	for (size_t i = 0; i < BID_ARRAY_SIZE(files); i++) {
		char path[4096];
		__u8 id[BID_SIZE_MAX];
		FILE *f;

		ASSERT_EQ(0, bid_helper_path(path, sizeof(path), files[i].name))
			TH_LOG("%s", bid_error);
		f = fopen(path, "r");
		ASSERT_TRUE(!!f);
		EXPECT_EQ(files[i].size, bid_file_build_id(fileno(f), id));
		EXPECT_EQ(0, memcmp(files[i].id, id, sizeof(id))) TH_LOG("%s", files[i].name);
		fclose(f);
	}
}

TEST_HARNESS_MAIN
