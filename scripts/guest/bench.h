/* SPDX-License-Identifier: GPL-2.0 */
/*
 * bench.h: what the parts of the bench share. They run in the guest, started by
 * bench-kernel.sh, and print one JSON object a line.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>

#include "bid_common.h"

#define DEPTH_MAX	127
#define DSOS_MAX	20

/* Callchains that are made up, through files in the working directory */

void bench_map_files(void);
bool bench_resident(void);		/* the note of any of them */
/* In frames[], which is on the stack. The innermost frame is the caller's own. */
const struct bid_planted *bench_plant(struct bid_planted *frames, int depth, int nr_dsos,
				      bool alternating);

/* Ways to have samples */

enum bpf {
	NO_BPF,
	BPF_EMPTY,	/* the program does nothing */
	BPF_DROPS,	/* the program looks at the stack, and that is all */
	BPF_DELIVERS,	/* it writes what it has seen to a ring buffer, as a sample is */
};

struct mode {
	const char	*name;
	bool		sampled;
	__u64		sample_type;
	bool		defer;
	enum bpf	bpf;
	bool		sleepable;
};

extern const struct mode bench_modes[];
extern const size_t bench_nr_modes;
bool bench_delivers(const struct mode *mode);	/* it fills a ring buffer */

enum where {
	IN_CALL,	/* a tracepoint on the way into getppid() */
	IN_PROBE,	/* a uprobe, where BPF programs may sleep when they ask for a stack */
	IN_TIMER,	/* cpu-clock: interrupts are off */
	IN_NMI,
	NR_WHERE,
};

extern const char *const bench_where[NR_WHERE];

/* Lets there be a sample with that callchain: one, or some in a while. */
void bench_trigger(enum where where, const struct bid_planted *chain);

struct bench_ring {
	const struct mode	*mode;
	struct bid_event	e;
	/* of BPF */
	int			map, ring, program;
	__u64			*consumer;
	const __u64		*producer;
	__u64			tail;
};

/* False if the kernel, or a kind of program, does not offer that. */
bool bench_open(struct bench_ring *r, const struct mode *mode, enum where where);
void bench_close(struct bench_ring *r);
void bench_enable(struct bench_ring *r, bool on);
__u64 bench_head(const struct bench_ring *r);

/* What the records that are in the ring say of user frames; they are taken out. */
struct tally {
	unsigned long	samples, lost;
	unsigned long	announced;	/* callchains that come later */
	unsigned long	came;		/* ... and did */
	__u64		cookie;		/* of the last one announced */
	unsigned long	frames, resolved;
	unsigned long	status[BID_STATUS_NR];	/* BPF has none */
};

void bench_drain(struct bench_ring *r, struct tally *t);

void bench_shares(void);

#endif /* BENCH_H */
