// SPDX-License-Identifier: GPL-2.0
/*
 * bench-shares.c: how many user frames are resolved, by how samples are had, where
 * they are taken and what is in the way there. The callchains are made up and go
 * through many files by turns.
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

#define DEPTH		30
#define DEADLINE_NS	(120ULL * 1000 * 1000 * 1000)
/* The rest of this machine's file systems is in memory. */
#define DISK		"/mnt/host"

enum state { WARM, CONTENDED, COLD };

static const struct condition {
	enum where	where;
	enum state	state;
	unsigned long	samples;
} conditions[] = {
	{ IN_CALL, WARM, 1000 },
	{ IN_PROBE, WARM, 1000 },
	{ IN_TIMER, WARM, 1000 },
	{ IN_NMI, WARM, 200 },
	{ IN_CALL, CONTENDED, 4000 },
	{ IN_PROBE, CONTENDED, 4000 },
	{ IN_TIMER, CONTENDED, 1000 },
	{ IN_CALL, COLD, 50 },
	{ IN_PROBE, COLD, 50 },
};

static const char *const states[] = {
	[WARM] = "warm", [CONTENDED] = "contended", [COLD] = "cold",
};

static const char *const statuses[BID_STATUS_NR] = {
	[PERF_BUILD_ID_OFFSET_RESOLVED] = "resolved",
	[PERF_BUILD_ID_OFFSET_ANON] = "anon",
	[PERF_BUILD_ID_OFFSET_NO_BUILD_ID] = "no build ID",
	[PERF_BUILD_ID_OFFSET_FAULT] = "fault",
	[PERF_BUILD_ID_OFFSET_BUSY] = "busy",
	[PERF_BUILD_ID_OFFSET_NO_MM] = "no mm",
	[PERF_BUILD_ID_OFFSET_NO_MEMORY] = "no memory",
};

/* Neither is the note of a file in memory, nor what the kernel knows of files. */
static void evict(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "3", 1) != 1)
		err(1, "drop_caches");
	close(fd);
	if (bench_resident())
		errx(1, "files in %s stay in memory", DISK);
}

static void sample(struct bench_ring *r, const struct condition *c,
		   const struct bid_planted *chain, struct tally *t)
{
	__u64 deadline = bid_now_ns() + DEADLINE_NS;

	while (t->samples < c->samples) {
		if (c->state == COLD)
			evict();
		bench_trigger(c->where, chain);
		bench_drain(r, t);
		if (bid_now_ns() > deadline)
			errx(1, "only %lu samples (%s, %s, %s)", t->samples, r->mode->name,
			     bench_where[c->where], states[c->state]);
	}
}

static void print(const struct mode *mode, const struct condition *c, const struct tally *t)
{
	const char *comma = "";

	printf("{\"mode\": \"%s\", \"where\": \"%s\", \"state\": \"%s\", \"samples\": %lu, "
	       "\"lost\": %lu, \"announced\": %lu, \"came\": %lu, \"frames\": %lu, "
	       "\"resolved\": %lu, \"status\": {", mode->name, bench_where[c->where],
	       states[c->state], t->samples, t->lost, t->announced, t->came, t->frames,
	       t->resolved);
	for (size_t i = 0; i < BID_ARRAY_SIZE(statuses); i++) {
		if (!t->status[i])
			continue;
		printf("%s\"%s\": %lu", comma, statuses[i], t->status[i]);
		comma = ", ";
	}
	printf("}}\n");
}

static void share(const struct mode *mode, const struct condition *c)
{
	struct bid_planted frames[DEPTH_MAX];
	const struct bid_planted *chain = bench_plant(frames, DEPTH, DSOS_MAX, true);
	void *(*disturb)(void *) = c->where == IN_NMI ? bid_thread_nmis :
				   c->state == CONTENDED ? bid_thread_map_and_unmap : NULL;
	struct tally tally = {};
	struct bench_ring r;
	pthread_t thread;
	bool stop = false;

	if (!bench_open(&r, mode, c->where))
		return;
	if (disturb && pthread_create(&thread, NULL, disturb, &stop))
		errx(1, "pthread_create");
	bench_enable(&r, true);
	sample(&r, c, chain, &tally);
	bench_enable(&r, false);
	bench_drain(&r, &tally);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	if (disturb)
		pthread_join(thread, NULL);
	bench_close(&r);
	print(mode, c, &tally);
}

void bench_shares(void)
{
	bool cold = false;

	if (bid_quiet_console(true))
		errx(1, "%s", bid_error);
	for (size_t i = 0; i < BID_ARRAY_SIZE(conditions); i++) {
		if (conditions[i].state == COLD && !cold) {
			if (chdir(DISK))
				err(1, DISK);
			bench_map_files();
			cold = true;
		}
		for (size_t m = 0; m < bench_nr_modes; m++)
			if (bench_modes[m].sample_type == BID_CHAIN ||
			    bench_modes[m].bpf == BPF_DELIVERS)
				share(&bench_modes[m], &conditions[i]);
	}
}
