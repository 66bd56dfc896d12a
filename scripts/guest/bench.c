// SPDX-License-Identifier: GPL-2.0
/*
 * bench.c: run in the guest by bench-kernel.sh.
 *
 *   bench cost     what a system call costs that is sampled on its way in, and what a
 *                  uprobe does, by what the sample has, how deep its callchain is and
 *                  how many files that goes through
 *   bench shares   how many frames are resolved, by what is in the way
 *   bench idle N   N processes that do nothing
 *   bench clock    CLOCK_MONOTONIC, in nanoseconds
 *
 * Instructions are not counted here, but by the emulator, which is told by calls of
 * bench_row() and bench_call() what is to be counted (see count.c). Where the guest's
 * clock counts instructions, too (QEMU -icount shift=0), the two are compared.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define CALLS		256
#define FIRST_CALLS	16	/* which find things out once and for all */

__attribute__((noinline)) void bench_row(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void bench_call(void)
{
	__asm__ volatile("");
}

static __u64 measure(enum where where, const struct bid_planted *chain)
{
	__u64 start;

	bench_row();
	start = bid_now_ns();
	for (int i = 0; i < CALLS; i++) {
		bench_call();
		bench_trigger(where, chain);
	}
	bench_call();
	start = bid_now_ns() - start;
	bench_row();
	return start;
}

static void cost(enum where where, const struct mode *mode, int depth, int nr_dsos,
		 bool alternating)
{
	struct bid_planted frames[DEPTH_MAX];
	const struct bid_planted *chain = bench_plant(frames, depth, nr_dsos, alternating);
	struct tally tally = {};
	struct bench_ring r;
	__u64 clock, bytes;

	if (!bench_open(&r, mode, where))
		return;
	bench_enable(&r, true);
	for (int i = 0; i < FIRST_CALLS; i++)
		bench_trigger(where, chain);
	bench_drain(&r, &tally);
	memset(&tally, 0, sizeof(tally));
	bytes = bench_head(&r);
	clock = measure(where, chain);
	bytes = bench_head(&r) - bytes;
	bench_enable(&r, false);
	bench_drain(&r, &tally);
	printf("{\"where\": \"%s\", \"mode\": \"%s\", \"depth\": %d, \"dsos\": %d, \"order\": \"%s\", "
	       "\"bytes\": %.1f, \"frames\": %lu, \"resolved\": %lu, \"calls\": %d, "
	       "\"clock\": %llu}\n",
	       bench_where[where], mode->name, depth, nr_dsos, alternating ? "alternating" : "grouped",
	       (double)bytes / CALLS, tally.frames, tally.resolved, CALLS, clock);
	bench_close(&r);
	if (tally.lost || tally.samples != (bench_delivers(mode) ? CALLS : 0))
		errx(1, "%s, depth %d: %lu samples of %d calls", mode->name, depth, tally.samples,
		     CALLS);
}

static void costs(enum where where)
{
	static const int depths[] = { 1, 10, 30, 127 }, numbers[] = { 5, 20 };

	for (size_t m = 0; m < bench_nr_modes; m++) {
		for (size_t d = 0; d < BID_ARRAY_SIZE(depths); d++)
			cost(where, &bench_modes[m], depths[d], 1, false);
		for (size_t n = 0; n < BID_ARRAY_SIZE(numbers); n++) {
			cost(where, &bench_modes[m], 30, numbers[n], false);
			cost(where, &bench_modes[m], 30, numbers[n], true);
		}
	}
}

/* With this one; they live until the guest ends. */
static void idle(int number)
{
	for (int i = 1; i < number; i++) {
		pid_t pid = fork();

		if (pid < 0)
			err(1, "fork");
		if (!pid)
			break;
	}
	pause();
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	/* what is wrong comes after what was right */
	setlinebuf(stdout);
	if (!strcmp(what, "clock")) {
		printf("%llu\n", bid_now_ns());
	} else if (!strcmp(what, "idle") && argc > 2) {
		idle(atoi(argv[2]));
	} else if (!strcmp(what, "cost")) {
		bench_map_files();
		costs(IN_CALL);
		costs(IN_PROBE);
	} else if (!strcmp(what, "shares")) {
		bench_map_files();
		bench_shares();
	} else {
		errx(1, "usage: bench cost|shares|idle N|clock");
	}
	return 0;
}
