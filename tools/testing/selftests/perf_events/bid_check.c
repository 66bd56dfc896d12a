// SPDX-License-Identifier: GPL-2.0
/*
 * Reading PERF_RECORD_SAMPLE and PERF_RECORD_CALLCHAIN_DEFERRED without trusting
 * them, and judging their (build ID, file offset) entries by the memory map of
 * the sampled process.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bid_common.h"

/* The parser */

struct cursor {
	const __u8	*pos, *end;
	bool		bad;
};

static const void *take(struct cursor *c, size_t len)
{
	const void *p = c->pos;

	if (c->bad || len > (size_t)(c->end - c->pos)) {
		c->bad = true;
		return NULL;
	}
	c->pos += len;
	return p;
}

/* An array whose length came out of the record. */
static const void *take_array(struct cursor *c, __u64 nr, size_t size)
{
	if (nr > (size_t)(c->end - c->pos) / size) {
		c->bad = true;
		return NULL;
	}
	return take(c, nr * size);
}

static __u64 take_u64(struct cursor *c)
{
	const __u64 *p = take(c, sizeof(*p));

	return p ? *p : 0;
}

static void take_pair(struct cursor *c, __u32 *a, __u32 *b)
{
	const __u32 *p = take(c, 2 * sizeof(*p));

	if (!p)
		return;
	*a = p[0];
	if (b)
		*b = p[1];
}

static void parse_ids(struct cursor *c, __u64 type, struct bid_sample *s)
{
	if (type & PERF_SAMPLE_IDENTIFIER)
		s->identifier = take_u64(c);
	if (type & PERF_SAMPLE_IP)
		s->ip = take_u64(c);
	if (type & PERF_SAMPLE_TID)
		take_pair(c, &s->pid, &s->tid);
	if (type & PERF_SAMPLE_TIME)
		s->time = take_u64(c);
	if (type & PERF_SAMPLE_ADDR)
		take_u64(c);
	if (type & PERF_SAMPLE_ID)
		s->id = take_u64(c);
	if (type & PERF_SAMPLE_STREAM_ID)
		take_u64(c);
	if (type & PERF_SAMPLE_CPU)
		take_pair(c, &s->cpu, NULL);
	if (type & PERF_SAMPLE_PERIOD)
		take_u64(c);
}

static void parse_read(struct cursor *c, __u64 format, struct bid_sample *s)
{
	size_t times = !!(format & PERF_FORMAT_TOTAL_TIME_ENABLED) +
		       !!(format & PERF_FORMAT_TOTAL_TIME_RUNNING);
	size_t each = 1 + !!(format & PERF_FORMAT_ID) + !!(format & PERF_FORMAT_LOST);
	__u64 nr = 1;

	s->read = (const void *)c->pos;
	if (format & PERF_FORMAT_GROUP)
		nr = take_u64(c);
	take_array(c, times, sizeof(__u64));
	take_array(c, nr, each * sizeof(__u64));
	s->nr_read = (const __u64 *)c->pos - s->read;
}

static void parse_raw(struct cursor *c, struct bid_sample *s)
{
	const __u32 *size = take(c, sizeof(*size));

	if (!size)
		return;
	s->raw_size = *size;
	take(c, *size);
}

static void parse_branches(struct cursor *c, __u64 type, struct bid_sample *s)
{
	s->nr_branches = take_u64(c);
	if (type & PERF_SAMPLE_BRANCH_HW_INDEX)
		take_u64(c);
	take_array(c, s->nr_branches, sizeof(struct perf_branch_entry));
	if (type & PERF_SAMPLE_BRANCH_COUNTERS)
		take_array(c, s->nr_branches, sizeof(__u64));
}

static const __u64 *parse_regs(struct cursor *c, __u64 mask, __u64 *abi)
{
	*abi = take_u64(c);
	return *abi ? take_array(c, __builtin_popcountll(mask), sizeof(__u64)) : NULL;
}

/* Where the task was in user mode: the IP, or the only register that was asked for. */
static void parse_regs_user(struct cursor *c, const struct perf_event_attr *attr,
			    struct bid_sample *s)
{
	s->regs_user = parse_regs(c, attr->sample_regs_user, &s->regs_user_abi);
	if (s->regs_user && attr->sample_regs_user == BID_REG_IP)
		s->user_ip = *s->regs_user;
}

static void find_user_ip(const struct perf_event_attr *attr, struct bid_sample *s)
{
	if (attr->sample_type & PERF_SAMPLE_IP &&
	    (s->hdr->misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_USER)
		s->user_ip = s->ip;
}

static void parse_stack(struct cursor *c, struct bid_sample *s)
{
	__u64 dyn;

	s->stack_size = take_u64(c);
	if (!s->stack_size)
		return;
	s->stack = take_array(c, s->stack_size, 1);
	dyn = take_u64(c);
	if (dyn > s->stack_size)
		c->bad = true;
}

static void parse_values(struct cursor *c, __u64 type)
{
	static const __u64 bits[] = {
		PERF_SAMPLE_PHYS_ADDR, PERF_SAMPLE_CGROUP,
		PERF_SAMPLE_DATA_PAGE_SIZE, PERF_SAMPLE_CODE_PAGE_SIZE,
	};

	for (size_t i = 0; i < BID_ARRAY_SIZE(bits); i++)
		if (type & bits[i])
			take_u64(c);
}

static void parse_build_ids(struct cursor *c, __u64 type, struct bid_sample *s)
{
	if (type & BID_IP)
		s->bid = take(c, sizeof(*s->bid));
	if (type & BID_CHAIN) {
		s->nr_entries = take_u64(c);
		s->entries = take_array(c, s->nr_entries, sizeof(*s->entries));
	}
	if (type & PERF_SAMPLE_AUX)
		take_array(c, take_u64(c), 1);
}

static int parsed(const struct cursor *c, const struct perf_event_header *hdr)
{
	if (c->bad)
		return bid_fail("a field of the record goes past its %u bytes", hdr->size);
	if (c->pos != c->end)
		return bid_fail("%zd of the record's %u bytes are no field's",
				(ssize_t)(c->end - c->pos), hdr->size);
	return 0;
}

int bid_parse_sample(const struct perf_event_header *hdr,
		     const struct perf_event_attr *attr, struct bid_sample *s)
{
	__u64 type = attr->sample_type, abi;
	struct cursor c = {
		.pos = (const __u8 *)(hdr + 1),
		.end = (const __u8 *)hdr + hdr->size,
	};

	memset(s, 0, sizeof(*s));
	s->hdr = hdr;
	parse_ids(&c, type, s);
	if (type & PERF_SAMPLE_READ)
		parse_read(&c, attr->read_format, s);
	if (type & PERF_SAMPLE_CALLCHAIN) {
		s->nr_ips = take_u64(&c);
		s->ips = take_array(&c, s->nr_ips, sizeof(__u64));
	}
	if (type & PERF_SAMPLE_RAW)
		parse_raw(&c, s);
	if (type & PERF_SAMPLE_BRANCH_STACK)
		parse_branches(&c, attr->branch_sample_type, s);
	if (type & PERF_SAMPLE_REGS_USER)
		parse_regs_user(&c, attr, s);
	if (type & PERF_SAMPLE_STACK_USER)
		parse_stack(&c, s);
	if (type & PERF_SAMPLE_WEIGHT_TYPE)
		take_u64(&c);
	if (type & PERF_SAMPLE_DATA_SRC)
		take_u64(&c);
	if (type & PERF_SAMPLE_TRANSACTION)
		take_u64(&c);
	if (type & PERF_SAMPLE_REGS_INTR)
		parse_regs(&c, attr->sample_regs_intr, &abi);
	parse_values(&c, type);
	parse_build_ids(&c, type, s);
	find_user_ip(attr, s);
	return parsed(&c, hdr);
}

static void parse_sample_id(struct cursor *c, __u64 type, struct bid_deferred *d)
{
	if (type & PERF_SAMPLE_TID)
		take_pair(c, &d->pid, &d->tid);
	if (type & PERF_SAMPLE_TIME)
		d->time = take_u64(c);
	if (type & PERF_SAMPLE_ID)
		d->id = take_u64(c);
	if (type & PERF_SAMPLE_STREAM_ID)
		d->stream_id = take_u64(c);
	if (type & PERF_SAMPLE_CPU)
		take_pair(c, &d->cpu, NULL);
	if (type & PERF_SAMPLE_IDENTIFIER)
		d->identifier = take_u64(c);
}

int bid_parse_deferred(const struct perf_event_header *hdr,
		       const struct perf_event_attr *attr, struct bid_deferred *d)
{
	struct cursor c = {
		.pos = (const __u8 *)(hdr + 1),
		.end = (const __u8 *)hdr + hdr->size,
	};

	memset(d, 0, sizeof(*d));
	d->hdr = hdr;
	d->cookie = take_u64(&c);
	d->nr = take_u64(&c);
	if (hdr->misc & PERF_RECORD_MISC_CALLCHAIN_BUILD_ID)
		d->entries = take_array(&c, d->nr, sizeof(*d->entries));
	else
		d->ips = take_array(&c, d->nr, sizeof(*d->ips));
	if (attr->sample_id_all)
		parse_sample_id(&c, attr->sample_type, d);
	return parsed(&c, hdr);
}

/* The check */

#define HIGH_HALF(x)	((long long)(x) < 0)

bool bid_is_context(__u64 ip)
{
	return ip >= (__u64)PERF_CONTEXT_MAX;
}

/* What holds for every entry, whatever it stands for. */
int bid_check_entry(const struct perf_sample_build_id_offset *e)
{
	const struct perf_build_id *id = &e->build_id;

	if (id->status >= PERF_BUILD_ID_OFFSET_MAX)
		return bid_fail("status %u", id->status);
	if (id->__reserved)
		return bid_fail("reserved bytes are %#x", id->__reserved);
	if (id->status == PERF_BUILD_ID_OFFSET_RESOLVED ?
	    !id->size || id->size > BID_SIZE_MAX : id->size)
		return bid_fail("size %u with status %u", id->size, id->status);
	for (size_t i = id->size; i < BID_SIZE_MAX; i++)
		if (id->data[i])
			return bid_fail("byte %zu after an ID of %u is %#x", i, id->size,
					id->data[i]);
	return 0;
}

/* One code address as the sample has it: resolved, plain (IP, CALLCHAIN), or both. */
struct frame {
	const struct perf_sample_build_id_offset	*e;
	bool						has_ip;
	__u64						ip;
	const struct bid_maps				*maps;
	bool						faultable;	/* resolved at leisure */
};

/* The region of a callchain that is over. */
#define REGION_END	1

static bool same_id(const struct perf_build_id *id, const struct bid_map *m)
{
	return id->size == m->id_size && !memcmp(id->data, m->id, sizeof(m->id));
}

static bool resolves_to(const struct perf_sample_build_id_offset *e, const struct bid_map *m)
{
	return (m->kind == BID_MAP_FILE || m->kind == BID_MAP_VDSO) &&
	       same_id(&e->build_id, m) &&
	       e->offset >= m->offset && e->offset - m->offset < m->end - m->start;
}

/* Without the address all that can be said is that some mapping explains it. */
static int check_resolved_anywhere(const struct frame *f)
{
	for (size_t i = 0; i < f->maps->nr; i++)
		if (resolves_to(f->e, &f->maps->map[i]))
			return 0;
	return bid_fail("no mapping has an ID of %u bytes %02x%02x.. at offset %#llx",
			f->e->build_id.size, f->e->build_id.data[0], f->e->build_id.data[1],
			ULL(f->e->offset));
}

static int check_resolved(const struct frame *f, const struct bid_map *m)
{
	const struct perf_sample_build_id_offset *e = f->e;
	__u64 offset;

	if (!m)
		return bid_fail("%#llx is in no mapping and came back resolved, offset %#llx",
				ULL(f->ip), ULL(e->offset));
	if (m->kind != BID_MAP_FILE && m->kind != BID_MAP_VDSO)
		return bid_fail("%#llx is in no file and came back resolved", ULL(f->ip));
	if (!same_id(&e->build_id, m))
		return bid_fail("%#llx: ID of %u bytes %02x%02x.., %s has %d: %02x%02x..",
				ULL(f->ip), e->build_id.size, e->build_id.data[0],
				e->build_id.data[1], m->path, m->id_size, m->id[0], m->id[1]);
	offset = m->offset + f->ip - m->start;
	if (e->offset != offset)
		return bid_fail("%#llx in %s: offset %#llx, not %#llx", ULL(f->ip), m->path,
				ULL(e->offset), ULL(offset));
	return 0;
}

/* A user address that was not resolved: is the status the truth? */
static int check_unresolved(const struct frame *f, const struct bid_map *m, bool loose)
{
	__u8 status = f->e->build_id.status;
	bool ok;

	if (status == PERF_BUILD_ID_OFFSET_BUSY || status == PERF_BUILD_ID_OFFSET_NO_MEMORY ||
	    (!m && loose))
		return 0;
	switch (m ? m->kind : BID_MAP_ANON) {
	case BID_MAP_FILE:
		ok = status == PERF_BUILD_ID_OFFSET_FAULT ||
		     (status == PERF_BUILD_ID_OFFSET_NO_BUILD_ID && !m->id_size);
		break;
	case BID_MAP_VDSO:
		ok = status == PERF_BUILD_ID_OFFSET_NO_BUILD_ID && !m->id_size;
		break;
	case BID_MAP_SHARED_ANON:
		ok = status == PERF_BUILD_ID_OFFSET_ANON ||
		     status == PERF_BUILD_ID_OFFSET_NO_BUILD_ID;
		break;
	default:
		ok = status == PERF_BUILD_ID_OFFSET_ANON;
	}
	if (ok)
		return 0;
	return bid_fail("%#llx in %s (ID of %d bytes) has status %u", ULL(f->e->offset),
			m ? m->path : "no mapping", m ? m->id_size : 0, status);
}

/*
 * Statuses that a user address may have when it is looked at once, at once; or
 * at leisure, when there is nothing to wait for any more.
 */
static int check_user_status(const struct bid_check *c, const struct frame *f)
{
	bool unreadable = f->faultable && c->flags & BID_UNREADABLE;

	switch (f->e->build_id.status) {
	case PERF_BUILD_ID_OFFSET_RESOLVED:
	case PERF_BUILD_ID_OFFSET_ANON:
	case PERF_BUILD_ID_OFFSET_NO_BUILD_ID:
		return 0;
	case PERF_BUILD_ID_OFFSET_FAULT:
		if (!f->faultable || unreadable)
			return 0;
		return bid_fail("%#llx was not read in", ULL(f->e->offset));
	case PERF_BUILD_ID_OFFSET_BUSY:
		/* what ends a task for want of memory ends its wait, too */
		if (!f->faultable || unreadable)
			return 0;
		return bid_fail("%#llx was not waited for", ULL(f->e->offset));
	case PERF_BUILD_ID_OFFSET_NO_MEMORY:
		if (unreadable)
			return 0;
		return bid_fail("no memory for %#llx", ULL(f->e->offset));
	case PERF_BUILD_ID_OFFSET_NO_MM:
		return f->maps ? bid_fail("NO_MM for a task that has one") : 0;
	default:
		return bid_fail("user address %#llx has status %u", ULL(f->e->offset),
				f->e->build_id.status);
	}
}

static int check_high_half(const struct frame *f)
{
	__u8 status = f->e->build_id.status;

	if (status != PERF_BUILD_ID_OFFSET_ANON && status != PERF_BUILD_ID_OFFSET_KERNEL &&
	    status != PERF_BUILD_ID_OFFSET_BUSY && status != PERF_BUILD_ID_OFFSET_NO_MM)
		return bid_fail("%#llx, in the kernel's half, has status %u",
				ULL(f->e->offset), status);
	return 0;
}

static void count_user(struct bid_check *c, const struct frame *f, const struct bid_map *m)
{
	bool resolved = f->e->build_id.status == PERF_BUILD_ID_OFFSET_RESOLVED;
	bool in_focus = m ? m == c->focus : false;

	c->stats.user[f->e->build_id.status]++;
	if (!c->shares && (resolved || (m && m->id_size))) {
		c->stats.file_frames++;
		c->stats.file_resolved += resolved;
	}
	if (c->focus && resolved && !f->has_ip)
		in_focus = resolves_to(f->e, c->focus);
	c->stats.focus[f->e->build_id.status] += in_focus;
	c->stats.focus_frames += in_focus;
}

static int check_user(struct bid_check *c, struct frame f)
{
	bool resolved = f.e->build_id.status == PERF_BUILD_ID_OFFSET_RESOLVED;
	bool loose = c->flags & BID_LOOSE;
	const struct bid_map *m = NULL;
	int ret = 0;

	if (!resolved) {
		if (f.has_ip && f.ip != f.e->offset)
			return bid_fail("unresolved %#llx became %#llx", ULL(f.ip),
					ULL(f.e->offset));
		f.ip = f.e->offset;
		if (HIGH_HALF(f.ip)) {
			c->stats.user[f.e->build_id.status]++;
			return check_high_half(&f);
		}
		/* behind a planted marker it may be taken for what the marker says */
		if (c->flags & BID_PLANTED && f.e->build_id.status == PERF_BUILD_ID_OFFSET_KERNEL)
			return 0;
	} else if (f.has_ip && HIGH_HALF(f.ip)) {
		return bid_fail("%#llx, in the kernel's half, came back resolved", ULL(f.ip));
	}
	if (check_user_status(c, &f))
		return -1;

	if (f.maps && (f.has_ip || !resolved)) {
		m = bid_maps_find(f.maps, f.ip);
		if (!resolved)
			ret = check_unresolved(&f, m, loose);
		else if (m || !loose)
			ret = check_resolved(&f, m);
	} else if (f.maps && !loose) {
		ret = check_resolved_anywhere(&f);
	}
	if (!ret)
		count_user(c, &f, m);
	return ret;
}

static int check_kernel(struct bid_check *c, const struct frame *f)
{
	if (c->flags & BID_NO_KERNEL)
		return bid_fail("kernel address %#llx is seen", ULL(f->e->offset));
	if (f->e->build_id.status != PERF_BUILD_ID_OFFSET_KERNEL)
		return bid_fail("kernel address %#llx has status %u", ULL(f->e->offset),
				f->e->build_id.status);
	if (f->has_ip && f->ip != f->e->offset)
		return bid_fail("kernel address %#llx became %#llx", ULL(f->ip), ULL(f->e->offset));
	c->stats.kernel++;
	return 0;
}

/* A made-up return address that reads like a marker: it must not resolve. */
static int check_planted_marker(const struct frame *f)
{
	__u8 status = f->e->build_id.status;

	if (f->e->offset != f->ip)
		return bid_fail("planted %#llx became %#llx", ULL(f->ip), ULL(f->e->offset));
	return status == PERF_BUILD_ID_OFFSET_CONTEXT ? 0 : check_high_half(f);
}

static int check_marker(const struct bid_check *c, const struct frame *f, __u64 *region)
{
	__u64 marker = f->e->offset;

	if (f->e->build_id.status != PERF_BUILD_ID_OFFSET_CONTEXT)
		return bid_fail("marker %#llx has status %u", ULL(f->ip), f->e->build_id.status);
	if (f->has_ip && f->ip != marker)
		return bid_fail("marker %#llx became %#llx", ULL(f->ip), ULL(marker));
	if (marker != (__u64)PERF_CONTEXT_KERNEL && marker != (__u64)PERF_CONTEXT_USER &&
	    (marker != (__u64)PERF_CONTEXT_USER_DEFERRED || !c->attr->defer_callchain))
		return bid_fail("marker %#llx", ULL(marker));
	if (marker == (__u64)PERF_CONTEXT_KERNEL &&
	    (c->attr->exclude_callchain_kernel || c->flags & BID_NO_KERNEL))
		return bid_fail("kernel frames although they are excluded");
	if (marker != (__u64)PERF_CONTEXT_KERNEL && c->attr->exclude_callchain_user)
		return bid_fail("user frames although they are excluded");
	*region = marker;
	return 0;
}

static int check_cookie(const struct frame *f)
{
	if (f->e->build_id.status != PERF_BUILD_ID_OFFSET_DEFERRED)
		return bid_fail("cookie %#llx has status %u", ULL(f->e->offset),
				f->e->build_id.status);
	if (f->has_ip && f->ip != f->e->offset)
		return bid_fail("cookie %#llx became %#llx", ULL(f->ip), ULL(f->e->offset));
	return f->e->offset ? 0 : bid_fail("a cookie of 0");
}

static int check_chain_entry(struct bid_check *c, const struct frame *f, __u64 *region)
{
	bool marker = f->has_ip ? bid_is_context(f->ip) :
				  f->e->build_id.status == PERF_BUILD_ID_OFFSET_CONTEXT;

	if (bid_check_entry(f->e))
		return -1;
	if (*region == (__u64)PERF_CONTEXT_USER_DEFERRED) {
		*region = REGION_END;
		return check_cookie(f);
	}
	if (*region == REGION_END)
		return bid_fail("something follows the cookie");
	if (marker && *region == (__u64)PERF_CONTEXT_USER && c->flags & BID_PLANTED)
		return f->has_ip ? check_planted_marker(f) : 0;
	if (marker)
		return check_marker(c, f, region);
	if (*region == (__u64)PERF_CONTEXT_USER)
		return check_user(c, *f);
	if (*region == (__u64)PERF_CONTEXT_KERNEL)
		return check_kernel(c, f);
	return bid_fail("a frame before any marker");
}

/* Says where in a callchain it was that something went wrong. */
static int fail_at(const char *what, __u64 i, __u64 nr)
{
	char why[sizeof(bid_error)];

	memcpy(why, bid_error, sizeof(why));
	return bid_fail("%s %llu of %llu: %.400s", what, ULL(i), ULL(nr), why);
}

/* Fewer entries than addresses is right only where one more did not fit. */
static int check_chain_length(struct bid_check *c, const struct bid_sample *s)
{
	size_t rest = s->hdr->size - s->stack_size;

	if (s->nr_entries > BID_MAX_ENTRIES)
		return bid_fail("%llu entries", ULL(s->nr_entries));
	if (!s->ips || s->nr_entries == s->nr_ips)
		return 0;
	if (s->nr_entries > s->nr_ips)
		return bid_fail("%llu entries for %llu addresses", ULL(s->nr_entries),
				ULL(s->nr_ips));
	if (!(c->flags & BID_DEEP))
		return bid_fail("%llu entries for %llu addresses in %u bytes",
				ULL(s->nr_entries), ULL(s->nr_ips), s->hdr->size);
	if (rest + 2 * sizeof(*s->entries) < BID_RECORD_MAX)
		return bid_fail("clamped to %llu entries of %llu with %zu bytes to spare",
				ULL(s->nr_entries), ULL(s->nr_ips), BID_RECORD_MAX - rest);
	c->stats.clamped++;
	return 0;
}

/* A task that runs programs, as the one whose maps we know does. */
static bool must_defer(const struct bid_check *c, const struct bid_maps *maps)
{
	return c->attr->defer_callchain && maps && !(c->flags & BID_EXITS);
}

static int check_chain(struct bid_check *c, const struct bid_sample *s,
		       const struct bid_maps *maps)
{
	__u64 region = 0;

	if (check_chain_length(c, s))
		return -1;
	for (__u64 i = 0; i < s->nr_entries; i++) {
		struct frame f = {
			.e = &s->entries[i],
			.has_ip = s->ips,
			.ip = s->ips ? s->ips[i] : 0,
			.maps = maps,
		};

		if (check_chain_entry(c, &f, &region))
			return fail_at("entry", i, s->nr_entries);
	}
	if (region == (__u64)PERF_CONTEXT_USER_DEFERRED)
		return bid_fail("no cookie after its marker");
	if (region != REGION_END && must_defer(c, maps) && !c->attr->exclude_callchain_user)
		return bid_fail("the user part is not deferred");
	return 0;
}

static int check_bid(struct bid_check *c, const struct bid_sample *s,
		     const struct bid_maps *maps)
{
	struct frame f = {
		.e = s->bid,
		.has_ip = c->attr->sample_type & PERF_SAMPLE_IP,
		.ip = s->ip,
		.maps = maps,
	};

	if (bid_check_entry(s->bid))
		return -1;
	switch (s->hdr->misc & PERF_RECORD_MISC_CPUMODE_MASK) {
	case PERF_RECORD_MISC_USER:
		if (must_defer(c, maps) ||
		    (c->attr->defer_callchain &&
		     s->bid->build_id.status == PERF_BUILD_ID_OFFSET_DEFERRED)) {
			f.has_ip = false;
			return check_cookie(&f);
		}
		return check_user(c, f);
	case PERF_RECORD_MISC_KERNEL:
		return check_kernel(c, &f);
	default:
		return bid_fail("a sample with misc %#x", s->hdr->misc);
	}
}

/* The innermost user frame of a sample in user mode is its instruction pointer. */
static int check_innermost(const struct bid_sample *s)
{
	if ((s->hdr->misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_USER)
		return 0;
	if (s->nr_entries < 2 || s->entries[0].offset != (__u64)PERF_CONTEXT_USER)
		return 0;
	if (memcmp(s->bid, &s->entries[1], sizeof(*s->bid)))
		return bid_fail("IP (%u, %#llx) and innermost frame (%u, %#llx) differ",
				s->bid->build_id.status, ULL(s->bid->offset),
				s->entries[1].build_id.status, ULL(s->entries[1].offset));
	return 0;
}

/* Those that the maps are of. */
static const struct bid_maps *maps_of(const struct bid_check *c, __u32 pid)
{
	bool ours = !c->pid && !c->nr_pids;

	ours |= c->pid && c->pid == (pid_t)pid;
	for (size_t i = 0; !ours && i < c->nr_pids; i++)
		ours = c->pids[i] == (pid_t)pid;
	return ours ? c->maps : NULL;
}

__u64 bid_sample_cookie(const struct bid_sample *s)
{
	__u64 n = s->nr_entries;

	if (s->bid && s->bid->build_id.status == PERF_BUILD_ID_OFFSET_DEFERRED)
		return s->bid->offset;
	if (n && s->entries[n - 1].build_id.status == PERF_BUILD_ID_OFFSET_DEFERRED)
		return s->entries[n - 1].offset;
	n = s->nr_ips;
	if (n >= 2 && s->ips[n - 2] == (__u64)PERF_CONTEXT_USER_DEFERRED)
		return s->ips[n - 1];
	return 0;
}

/* All that a sample says of its user part is one cookie. */
static int check_one_cookie(const struct bid_sample *s)
{
	__u64 cookie = bid_sample_cookie(s), n = s->nr_entries;

	if (!cookie)
		return 0;
	if (n && s->entries[n - 1].build_id.status == PERF_BUILD_ID_OFFSET_DEFERRED &&
	    s->entries[n - 1].offset != cookie)
		return bid_fail("cookies %#llx and %#llx", ULL(cookie),
				ULL(s->entries[n - 1].offset));
	n = s->nr_ips;
	if (n >= 2 && s->ips[n - 2] == (__u64)PERF_CONTEXT_USER_DEFERRED &&
	    s->ips[n - 1] != cookie)
		return bid_fail("cookies %#llx and %#llx", ULL(cookie), ULL(s->ips[n - 1]));
	return 0;
}

/*
 * Whether a sample shares its interrupt: the task has not gone on since the last one.
 * Nor has it if it was in one long system call all the time: that is left out, too.
 */
static void find_shared(struct bid_check *c, const struct bid_sample *s)
{
	__u64 *last = &c->last[s->cpu % BID_CPUS_MAX], where = ~(__u64)s->tid;

	c->shares = false;
	if (!s->regs_user || c->attr->sample_regs_user != BID_REGS_ALL)
		return;
	for (int i = 0; i < __builtin_popcountll(BID_REGS_ALL); i++)
		where = (where ^ s->regs_user[i]) * 0x100000001b3ULL;
	c->shares = where == *last;
	c->stats.shared += c->shares;
	*last = where;
}

int bid_check_sample(struct bid_check *c, const struct bid_sample *s)
{
	const struct bid_maps *maps = maps_of(c, s->pid);

	find_shared(c, s);
	if (s->bid && check_bid(c, s, maps))
		return -1;
	if (s->entries && check_chain(c, s, maps))
		return -1;
	if (s->bid && s->entries && check_innermost(s))
		return -1;
	if (check_one_cookie(s))
		return -1;
	c->stats.samples++;
	return c->each ? c->each(s, c->each_arg) : 0;
}

int bid_check_frame(const struct bid_check *check, __u32 pid,
		    const struct perf_sample_build_id_offset *e, __u64 ip)
{
	struct bid_check c = *check;	/* the frame was counted when it came */
	struct frame f = {
		.e = e, .has_ip = true, .ip = ip, .maps = maps_of(check, pid), .faultable = true,
	};

	if (bid_check_entry(e))
		return -1;
	if (f.maps)
		return check_user(&c, f);
	/* in a file at least the place in the page is the same */
	if (e->build_id.status == PERF_BUILD_ID_OFFSET_RESOLVED ?
	    (e->offset ^ ip) % sysconf(_SC_PAGESIZE) : e->offset != ip)
		return bid_fail("%#llx became %#llx", ULL(ip), ULL(e->offset));
	return 0;
}

int bid_check_deferred(struct bid_check *c, const struct bid_deferred *d)
{
	const struct bid_maps *maps = maps_of(c, d->pid);
	unsigned int misc = PERF_RECORD_MISC_USER;

	if (d->entries)
		misc |= PERF_RECORD_MISC_CALLCHAIN_BUILD_ID;
	if (d->hdr->misc != misc)
		return bid_fail("misc %#x", d->hdr->misc);
	if (!d->cookie)
		return bid_fail("a deferred callchain without cookie");
	if (d->nr > BID_MAX_ENTRIES)
		return bid_fail("%llu entries", ULL(d->nr));
	c->shares = false;
	for (__u64 i = 0; d->entries && i < d->nr; i++) {
		struct frame f = { .e = &d->entries[i], .maps = maps, .faultable = true };

		if (bid_check_entry(f.e) || check_user(c, f))
			return fail_at("frame", i, d->nr);
	}
	c->stats.deferred++;
	return c->each_deferred ? c->each_deferred(d, c->each_arg) : 0;
}

/* What the debug kernel fills memory with that is free, new, or a variable. */
static bool is_poison(__u64 value)
{
	static const __u8 poison[] = { 0x6b, 0x5a, 0xaa, 0xbb, 0xcc };

	for (size_t i = 0; i < BID_ARRAY_SIZE(poison); i++)
		if (value == poison[i] * 0x0101010101010101ULL)
			return true;
	return false;
}

/* Such bytes are legitimate only in what is copied from elsewhere. */
static int check_poison(const struct perf_event_header *hdr, const struct perf_event_attr *attr,
			unsigned int flags)
{
	const __u64 copied = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_REGS_INTR | PERF_SAMPLE_RAW |
			     PERF_SAMPLE_STACK_USER;
	const __u64 *word = (const __u64 *)hdr;

	if (attr->sample_type & copied || flags & BID_MADE_UP)
		return 0;
	for (size_t i = 1; i < hdr->size / sizeof(*word); i++)
		if (is_poison(word[i]))
			return bid_fail("word %zu of a record of type %u is %#llx", i, hdr->type,
					(unsigned long long)word[i]);
	return 0;
}

int bid_check_record(const struct perf_event_header *hdr, void *check)
{
	struct bid_check *c = check;
	struct bid_deferred d;
	struct bid_sample s;

	if (check_poison(hdr, c->attr, c->flags))
		return -1;
	switch (hdr->type) {
	case PERF_RECORD_SAMPLE:
		if (bid_parse_sample(hdr, c->attr, &s))
			return -1;
		return bid_check_sample(c, &s);
	case PERF_RECORD_LOST:
		c->stats.lost += ((const __u64 *)(hdr + 1))[1];
		c->stats.lost_records++;
		return 0;
	case PERF_RECORD_CALLCHAIN_DEFERRED:
		if (!c->attr->defer_output)
			return bid_fail("a deferred record that nobody asked for");
		if (bid_parse_deferred(hdr, c->attr, &d))
			return -1;
		return bid_check_deferred(c, &d);
	default:
		c->stats.others++;
		return hdr->type < PERF_RECORD_MAX ? 0 : bid_fail("record of type %u", hdr->type);
	}
}

unsigned int bid_resolved_percent(const struct bid_stats *st)
{
	return st->file_frames ? 100 * st->file_resolved / st->file_frames : 0;
}

const char *bid_resolved_text(const struct bid_stats *st)
{
	static char text[128];

	snprintf(text, sizeof(text), "%lu of %lu resolved, of all %lu BUSY, %lu FAULT",
		 st->file_resolved, st->file_frames, st->user[PERF_BUILD_ID_OFFSET_BUSY],
		 st->user[PERF_BUILD_ID_OFFSET_FAULT]);
	return text;
}
