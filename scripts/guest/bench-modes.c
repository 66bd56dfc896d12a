// SPDX-License-Identifier: GPL-2.0
/*
 * bench-modes.c: the ways to have samples that the bench compares: events with this
 * or that in their samples, and events with BPF programs that ask for the user stack
 * in build IDs; and what comes of them.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

#define RING_PAGES	1024
#define PLACE		0x123

const struct mode bench_modes[] = {
	{ .name = "nothing" },
	{ .name = "tid", .sampled = true },
	{ .name = "chain", .sampled = true, .sample_type = PERF_SAMPLE_CALLCHAIN },
	{ .name = "chain_deferred", .sampled = true, .sample_type = PERF_SAMPLE_CALLCHAIN,
	  .defer = true },
	{ .name = "bid", .sampled = true, .sample_type = BID_CHAIN },
	{ .name = "bid_deferred", .sampled = true, .sample_type = BID_CHAIN, .defer = true },
	{ .name = "bpf_empty", .sampled = true, .bpf = BPF_EMPTY },
	{ .name = "bpf_dropped", .sampled = true, .bpf = BPF_DROPS },
	{ .name = "bpf", .sampled = true, .bpf = BPF_DELIVERS },
	{ .name = "bpf_sleepable", .sampled = true, .bpf = BPF_DELIVERS, .sleepable = true },
};

const size_t bench_nr_modes = BID_ARRAY_SIZE(bench_modes);

const char *const bench_where[NR_WHERE] = {
	[IN_CALL] = "system call", [IN_PROBE] = "uprobe", [IN_TIMER] = "timer", [IN_NMI] = "NMI",
};

/* Files and callchains */

static const char *dsos[DSOS_MAX];

void bench_map_files(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *image = malloc(page);

	for (int i = 0; i < DSOS_MAX; i++) {
		char path[] = "bench.XXXXXX";
		int fd = mkstemp(path);

		bid_make_elf(image, page, i + 1);
		if (fd < 0 || write(fd, image, page) != (ssize_t)page || fsync(fd))
			err(1, "%s", path);
		/* one that can be written to is not known as well as a program is */
		close(fd);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		unlink(path);
		dsos[i] = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		if (dsos[i] == MAP_FAILED)
			err(1, "mmap");
		/* apart: neighbours may become one mapping, and are not as in life */
		mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		close(fd);
	}
	free(image);
	/* nor one that was written a moment ago */
	usleep(200000);
}

bool bench_resident(void)
{
	for (int i = 0; i < DSOS_MAX; i++) {
		unsigned char there;

		if (mincore((void *)dsos[i], sysconf(_SC_PAGESIZE), &there))
			err(1, "mincore");
		if (there & 1)
			return true;
	}
	return false;
}

const struct bid_planted *bench_plant(struct bid_planted *frames, int depth, int nr_dsos,
				      bool alternating)
{
	__u64 ret[DEPTH_MAX] = {};
	int nr = depth - 1;

	for (int i = 0; i < nr; i++)
		ret[i] = (__u64)dsos[alternating ? i % nr_dsos : i * nr_dsos / nr] + PLACE;
	bid_plant(frames, ret, nr);
	return nr ? frames : NULL;
}

/* A loop and an instruction to probe, whose callers are the frames. */
void bench_spin(const struct bid_planted *frames, unsigned long n);
void bench_probed(const struct bid_planted *frames);
extern const char bench_probe[], __executable_start[];
__asm__(".pushsection .text\n"
	".type bench_spin, @function\n"
	"bench_spin:\n"
	"	push %rbp\n"
	"	mov %rdi, %rbp\n"
	"1:	dec %rsi\n"
	"	jnz 1b\n"
	"	pop %rbp\n"
	"	ret\n"
	".size bench_spin, . - bench_spin\n"
	".type bench_probed, @function\n"
	"bench_probed:\n"
	"	push %rbp\n"
	"	mov %rdi, %rbp\n"
	"bench_probe:\n"
	"	nop\n"
	"	pop %rbp\n"
	"	ret\n"
	".size bench_probed, . - bench_probed\n"
	".popsection\n");

void bench_trigger(enum where where, const struct bid_planted *chain)
{
	if (where == IN_CALL)
		bid_planted_call(chain, __NR_getppid, 0, 0, 0);
	else if (where == IN_PROBE)
		bench_probed(chain);
	else
		bench_spin(chain, 1000000);
}

/* BPF */

#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOVE(d, s)		INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define LOAD(d, i)		INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ADD(d, i)		INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define MAP(d, fd)		INSN(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_FD, 0, fd), \
				INSN(0, 0, 0, 0, 0)
#define CALL(f)			INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##f)
#define EXIT()			INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

/* The task, as a sample has it, and the stack */
struct delivered {
	__u64				pid_tgid;
	struct bpf_stack_build_id	frames[DEPTH_MAX];
};

/* What the kernel keeps in front of each, rounded up to 8. */
struct ring_header {
	__u32	len, page;
};

static int sys_bpf(int cmd, union bpf_attr *attr)
{
	return syscall(__NR_bpf, cmd, attr, sizeof(*attr));
}

static int create_map(int type, int key_size, int value_size, int entries)
{
	union bpf_attr attr = {
		.map_type = type, .key_size = key_size, .value_size = value_size,
		.max_entries = entries,
	};
	int fd = sys_bpf(BPF_MAP_CREATE, &attr);

	if (fd < 0)
		err(1, "BPF_MAP_CREATE");
	return fd;
}

/*
 * Notes the task, asks for the stack, both in an array, as there is no room for them on
 * the program's own stack, and hands over what is used of it. Readers are not woken up,
 * as those of an event are not before its ring is half full.
 */
static int load_program(const struct bench_ring *r, int type)
{
	const struct bpf_insn look[] = {
		MOVE(6, 1),
		INSN(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0),
		MOVE(2, 10),
		ADD(2, -4),
		MAP(1, r->map),
		CALL(map_lookup_elem),
		INSN(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 1, 0),
		EXIT(),
		MOVE(7, 0),
		CALL(get_current_pid_tgid),
		INSN(BPF_STX | BPF_MEM | BPF_DW, 7, 0, 0, 0),
		MOVE(1, 6),
		MOVE(2, 7),
		ADD(2, offsetof(struct delivered, frames)),
		LOAD(3, sizeof(((struct delivered *)0)->frames)),
		LOAD(4, BPF_F_USER_STACK | BPF_F_USER_BUILD_ID),
		CALL(get_stack),
	}, deliver[] = {
		INSN(BPF_JMP | BPF_JSGT | BPF_K, 0, 0, 2, 0),
		LOAD(0, 0),
		EXIT(),
		MAP(1, r->ring),
		MOVE(2, 7),
		MOVE(3, 0),
		ADD(3, offsetof(struct delivered, frames)),
		LOAD(4, BPF_RB_NO_WAKEUP),
		CALL(ringbuf_output),
	}, end[] = {
		/* no sample */
		LOAD(0, 0),
		EXIT(),
	};
	struct bpf_insn text[BID_ARRAY_SIZE(look) + BID_ARRAY_SIZE(deliver) + BID_ARRAY_SIZE(end)];
	struct bpf_insn *to = text;
	static char log[65536];
	union bpf_attr attr = {
		.prog_type = type, .insns = (__u64)text, .license = (__u64)"GPL",
		.log_buf = (__u64)log, .log_size = sizeof(log), .log_level = 1,
		.prog_flags = r->mode->sleepable ? BPF_F_SLEEPABLE : 0,
	};
	int fd;

	if (r->mode->bpf != BPF_EMPTY)
		to = mempcpy(to, look, sizeof(look));
	if (r->mode->bpf == BPF_DELIVERS)
		to = mempcpy(to, deliver, sizeof(deliver));
	to = mempcpy(to, end, sizeof(end));
	attr.insn_cnt = to - text;
	fd = sys_bpf(BPF_PROG_LOAD, &attr);
	if (fd < 0)
		err(1, "BPF_PROG_LOAD: %s", log);
	return fd;
}

static void attach_program(struct bench_ring *r, enum where where)
{
	const size_t page = sysconf(_SC_PAGESIZE), size = RING_PAGES * page;
	static const int types[NR_WHERE] = {
		[IN_CALL] = BPF_PROG_TYPE_TRACEPOINT, [IN_PROBE] = BPF_PROG_TYPE_KPROBE,
		[IN_TIMER] = BPF_PROG_TYPE_PERF_EVENT, [IN_NMI] = BPF_PROG_TYPE_TRACEPOINT,
	};

	if (r->mode->bpf != BPF_EMPTY)
		r->map = create_map(BPF_MAP_TYPE_ARRAY, 4, sizeof(struct delivered), 1);
	if (r->mode->bpf == BPF_DELIVERS) {
		r->ring = create_map(BPF_MAP_TYPE_RINGBUF, 0, 0, size);
		r->consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, r->ring, 0);
		/* the data is there twice, so that each record is in one piece */
		r->producer = mmap(NULL, page + 2 * size, PROT_READ, MAP_SHARED, r->ring, page);
		if (r->consumer == MAP_FAILED || r->producer == MAP_FAILED)
			err(1, "mmap of the ring of BPF");
	}
	r->program = load_program(r, types[where]);
	if (ioctl(r->e.fd, PERF_EVENT_IOC_SET_BPF, r->program))
		err(1, "PERF_EVENT_IOC_SET_BPF");
}

static void detach_program(struct bench_ring *r)
{
	const size_t page = sysconf(_SC_PAGESIZE);

	if (r->mode->bpf == BPF_DELIVERS) {
		munmap(r->consumer, page);
		munmap((void *)r->producer, page + 2 * RING_PAGES * page);
		close(r->ring);
	}
	if (r->mode->bpf != BPF_EMPTY)
		close(r->map);
	close(r->program);
}

static void drain_bpf(struct bench_ring *r, struct tally *t)
{
	const size_t page = sysconf(_SC_PAGESIZE), size = RING_PAGES * page;
	const char *data = (const char *)r->producer + page;
	__u64 head = bench_head(r);

	while (r->tail < head) {
		const struct ring_header *h = (const void *)(data + r->tail % size);
		const struct delivered *d = (const void *)(h + 1);
		size_t nr = (h->len - offsetof(struct delivered, frames)) / sizeof(d->frames[0]);

		if (h->len & (BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT))
			errx(1, "an unfinished record in the ring of BPF");
		t->samples++;
		t->frames += nr;
		for (size_t i = 0; i < nr; i++)
			t->resolved += d->frames[i].status == BPF_STACK_BUILD_ID_VALID;
		r->tail += sizeof(*h) + (h->len + 7) / 8 * 8;
	}
	__atomic_store_n(r->consumer, r->tail, __ATOMIC_RELEASE);
}

/* Events */

static void attr_uprobe(struct perf_event_attr *attr, __u64 sample_type)
{
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "r");

	bid_attr_init(attr, 0, sample_type);
	if (!f || fscanf(f, "%u", &attr->type) != 1)
		err(1, "the type of uprobes");
	fclose(f);
	attr->sample_period = 1;
	attr->uprobe_path = (__u64)"/proc/self/exe";
	attr->probe_offset = bench_probe - __executable_start;
}

static void attr_tracepoint(struct perf_event_attr *attr, const char *name, __u64 sample_type)
{
	if (bid_attr_tracepoint(attr, name, sample_type))
		errx(1, "%s", bid_error);
}

static void make_attr(struct perf_event_attr *attr, const struct mode *mode, enum where where)
{
	switch (where) {
	case IN_CALL:
		attr_tracepoint(attr, "syscalls/sys_enter_getppid", mode->sample_type);
		break;
	case IN_PROBE:
		attr_uprobe(attr, mode->sample_type);
		break;
	case IN_NMI:
		attr_tracepoint(attr, "nmi/nmi_handler", mode->sample_type);
		break;
	default:
		bid_attr_init(attr, PERF_COUNT_SW_CPU_CLOCK, mode->sample_type);
	}
	attr->sample_type |= PERF_SAMPLE_TID;
	attr->exclude_callchain_kernel = 1;
	attr->defer_callchain = mode->defer;
	attr->defer_output = mode->defer;
}

bool bench_delivers(const struct mode *mode)
{
	return mode->sampled && (mode->bpf == NO_BPF || mode->bpf == BPF_DELIVERS);
}

bool bench_open(struct bench_ring *r, const struct mode *mode, enum where where)
{
	struct perf_event_attr attr;
	int fd;

	memset(r, 0, sizeof(*r));
	r->mode = mode;
	if (!mode->sampled)
		return where == IN_CALL;
	/*
	 * Of programs that may sleep, there are some for tracepoints of system calls, too,
	 * but what they get as bpf_get_stack() is the one that must not.
	 */
	if (mode->sleepable && where != IN_PROBE)
		return false;
	make_attr(&attr, mode, where);
	fd = bid_open(&attr, 0, -1, -1);
	/* the stock kernel, where there is no such sample */
	if (fd < 0 && errno == EINVAL && mode->sample_type & BID_BITS)
		return false;
	if (fd < 0 || bid_event_from_fd(&r->e, &attr, fd, RING_PAGES))
		err(1, "%s", mode->name);
	if (mode->bpf)
		attach_program(r, where);
	return true;
}

void bench_close(struct bench_ring *r)
{
	if (r->mode->sampled)
		bid_event_close(&r->e);
	if (r->mode->bpf)
		detach_program(r);
}

void bench_enable(struct bench_ring *r, bool on)
{
	if (r->mode->sampled && (on ? bid_event_enable(&r->e) : bid_event_disable(&r->e)))
		errx(1, "%s", bid_error);
}

__u64 bench_head(const struct bench_ring *r)
{
	if (r->producer)
		return __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);
	return r->e.page ? __atomic_load_n(&r->e.page->data_head, __ATOMIC_ACQUIRE) : 0;
}

static void count_entries(struct tally *t, const struct perf_sample_build_id_offset *e, __u64 nr)
{
	for (__u64 i = 0; i < nr; i++) {
		unsigned int status = e[i].build_id.status;

		if (status == PERF_BUILD_ID_OFFSET_CONTEXT || status == PERF_BUILD_ID_OFFSET_KERNEL ||
		    status == PERF_BUILD_ID_OFFSET_DEFERRED)
			continue;
		if (status >= BID_STATUS_NR)
			errx(1, "a frame has status %u", status);
		t->frames++;
		t->resolved += status == PERF_BUILD_ID_OFFSET_RESOLVED;
		t->status[status]++;
	}
}

struct drain {
	const struct perf_event_attr	*attr;
	struct tally			*t;
};

static int count_record(const struct perf_event_header *hdr, void *arg)
{
	struct drain *drain = arg;
	struct tally *t = drain->t;
	struct bid_deferred deferred;
	struct bid_sample sample;

	switch (hdr->type) {
	case PERF_RECORD_SAMPLE:
		if (bid_parse_sample(hdr, drain->attr, &sample))
			return -1;
		t->samples++;
		/* samples of one stay in the kernel have one callchain */
		t->announced += bid_sample_cookie(&sample) != t->cookie;
		t->cookie = bid_sample_cookie(&sample);
		count_entries(t, sample.entries, sample.nr_entries);
		return 0;
	case PERF_RECORD_CALLCHAIN_DEFERRED:
		if (bid_parse_deferred(hdr, drain->attr, &deferred))
			return -1;
		t->came++;
		count_entries(t, deferred.entries, deferred.entries ? deferred.nr : 0);
		return 0;
	case PERF_RECORD_LOST:
		t->lost += ((const __u64 *)(hdr + 1))[1];
		return 0;
	}
	return 0;
}

void bench_drain(struct bench_ring *r, struct tally *t)
{
	struct drain drain = { &r->e.attr, t };

	if (r->mode->bpf == BPF_DELIVERS)
		drain_bpf(r, t);
	else if (r->e.page && bid_drain(&r->e, count_record, &drain))
		errx(1, "%s: %s", r->mode->name, bid_error);
}
