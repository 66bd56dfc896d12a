// SPDX-License-Identifier: GPL-2.0
/*
 * bench.c: run in the guest by bench-kernel.sh.
 *
 * What a system call costs that is sampled on its way in, by what the sample has,
 * how deep its callchain is and how many files that goes through. Where the
 * guest's clock counts instructions (QEMU -icount shift=0), the nanoseconds are
 * instructions. Prints one JSON object a line; what the kernel does not offer is
 * left out.
 *
 *   bench MODE FILES  only this one, at depth 30 through so many files by turns,
 *                     between two calls of getpgrp()
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

#include "bid_common.h"

#define CALLS		2000
#define ROUNDS		5
#define RING_PAGES	4096
#define DEPTH_MAX	127
#define DSOS_MAX	20
#define PLACE		0x123

static const struct mode {
	const char	*name;
	bool		sampled;
	__u64		sample_type;
	bool		defer;
	bool		bpf;
} modes[] = {
	{ .name = "nothing" },
	{ .name = "tid", .sampled = true },
	{ .name = "chain", .sampled = true, .sample_type = PERF_SAMPLE_CALLCHAIN },
	{ .name = "bid", .sampled = true, .sample_type = BID_CHAIN },
	{ .name = "chain_deferred", .sampled = true, .sample_type = PERF_SAMPLE_CALLCHAIN,
	  .defer = true },
	{ .name = "bid_deferred", .sampled = true, .sample_type = BID_CHAIN, .defer = true },
	{ .name = "bpf_build_id", .sampled = true, .bpf = true },
};

/* Callchains that are made up, through files in the working directory */

static const char *dsos[DSOS_MAX];

static void map_dsos(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *image = malloc(page);

	for (int i = 0; i < DSOS_MAX; i++) {
		char path[] = "bench.XXXXXX";
		int fd = mkstemp(path);

		bid_make_elf(image, page, i + 1);
		if (fd < 0 || write(fd, image, page) != (ssize_t)page)
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

/* In frames[], which is on the stack. The innermost frame is the system call's own. */
static const struct bid_planted *plant(struct bid_planted *frames, int depth, int nr_dsos,
				       bool alternating)
{
	__u64 ret[DEPTH_MAX] = {};
	int nr = depth - 1;

	for (int i = 0; i < nr; i++)
		ret[i] = (__u64)dsos[alternating ? i % nr_dsos : i * nr_dsos / nr] + PLACE;
	bid_plant(frames, ret, nr);
	return nr ? frames : NULL;
}

/* bpf_get_stack() with build IDs, into a map, and no sample. */

#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })

static int sys_bpf(int cmd, union bpf_attr *attr)
{
	return syscall(__NR_bpf, cmd, attr, sizeof(*attr));
}

static int load_program(void)
{
	const int size = DEPTH_MAX * sizeof(struct bpf_stack_build_id);
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = size, .max_entries = 1,
	};
	int map = sys_bpf(BPF_MAP_CREATE, &attr);
	const struct bpf_insn program[] = {
		INSN(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0),
		INSN(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
		INSN(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
		INSN(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map),
		INSN(0, 0, 0, 0, 0),
		INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem),
		INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 5, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_X, 2, 0, 0, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, size),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0,
		     BPF_F_USER_STACK | BPF_F_USER_BUILD_ID),
		INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_stack),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0),
		INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	static char log[16384];

	if (map < 0)
		err(1, "BPF_MAP_CREATE");
	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_TRACEPOINT;
	attr.insns = (__u64)program;
	attr.insn_cnt = BID_ARRAY_SIZE(program);
	attr.license = (__u64)"GPL";
	attr.log_buf = (__u64)log;
	attr.log_size = sizeof(log);
	attr.log_level = 1;
	map = sys_bpf(BPF_PROG_LOAD, &attr);
	if (map < 0)
		err(1, "BPF_PROG_LOAD: %s", log);
	return map;
}

static bool open_mode(struct bid_event *e, const struct mode *mode)
{
	static int program = -1;
	struct perf_event_attr attr;
	int fd;

	if (bid_attr_tracepoint(&attr, "raw_syscalls/sys_enter", mode->sample_type))
		errx(1, "%s", bid_error);
	attr.sample_type |= PERF_SAMPLE_TID;
	attr.exclude_callchain_kernel = 1;
	attr.defer_callchain = mode->defer;
	attr.defer_output = mode->defer;
	fd = bid_open(&attr, 0, -1, -1);
	if (fd < 0 && errno == EINVAL)
		return false;
	if (fd < 0 || bid_event_from_fd(e, &attr, fd, RING_PAGES))
		err(1, "%s", mode->name);
	if (mode->bpf) {
		program = program < 0 ? load_program() : program;
		if (ioctl(fd, PERF_EVENT_IOC_SET_BPF, program))
			err(1, "PERF_EVENT_IOC_SET_BPF");
	}
	return true;
}

struct figure {
	double	instructions, bytes;
};

/* The least of some rounds, for one call; and what is in the ring for it. */
static void measure(struct bid_event *e, const struct bid_planted *chain, struct figure *f)
{
	__u64 start, took, best = ~0ULL, head = 0;

	for (int round = 0; round < ROUNDS; round++) {
		if (e) {
			head = e->page->data_head;
			e->page->data_tail = head;
			ioctl(e->fd, PERF_EVENT_IOC_ENABLE, 0);
		}
		syscall(__NR_getpgrp);
		start = bid_now_ns();
		for (int i = 0; i < CALLS; i++)
			bid_planted_call(chain, __NR_getppid, 0, 0, 0);
		took = bid_now_ns() - start;
		syscall(__NR_getpgrp);
		if (e) {
			ioctl(e->fd, PERF_EVENT_IOC_DISABLE, 0);
			head = e->page->data_head - head;
		}
		best = took < best ? took : best;
	}
	f->instructions = (double)best / CALLS;
	f->bytes = (double)head / (CALLS + 3);
}

static void run(const struct mode *mode, int depth, int nr_dsos, bool alternating)
{
	struct bid_planted frames[DEPTH_MAX];
	const struct bid_planted *chain = plant(frames, depth, nr_dsos, alternating);
	struct bid_event e;
	struct figure f;

	if (mode->sampled && !open_mode(&e, mode))
		return;
	measure(mode->sampled ? &e : NULL, chain, &f);
	printf("{\"mode\": \"%s\", \"depth\": %d, \"dsos\": %d, \"order\": \"%s\", "
	       "\"instructions\": %.1f, \"bytes\": %.0f}\n",
	       mode->name, depth, nr_dsos, alternating ? "alternating" : "grouped",
	       f.instructions, f.bytes);
	if (mode->sampled)
		bid_event_close(&e);
}

int main(int argc, char **argv)
{
	static const int depths[] = { 1, 10, 30, 127 }, numbers[] = { 1, 5, 20 };

	map_dsos();
	for (size_t m = 0; m < BID_ARRAY_SIZE(modes); m++) {
		if (argc > 2) {
			if (!strcmp(argv[1], modes[m].name))
				run(&modes[m], 30, atoi(argv[2]), true);
			continue;
		}
		for (size_t d = 0; d < BID_ARRAY_SIZE(depths); d++)
			run(&modes[m], depths[d], 1, false);
		for (size_t n = 1; n < BID_ARRAY_SIZE(numbers); n++) {
			run(&modes[m], 30, numbers[n], false);
			run(&modes[m], 30, numbers[n], true);
		}
	}
	return 0;
}
