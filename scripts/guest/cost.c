// SPDX-License-Identifier: GPL-2.0
/*
 * cost.c: run in the guest by cost.sh.
 *
 * What a system call costs that is sampled on its way in, by what the sample has.
 * Where the guest's clock counts instructions (QEMU -icount shift=0), the
 * nanoseconds printed are instructions.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/perf_event.h>

#define CALLS 2000

static __u64 now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static int tracepoint(const char *name)
{
	char path[256];
	FILE *f;
	int id;

	snprintf(path, sizeof(path), "/sys/kernel/tracing/events/%s/id", name);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%d", &id) != 1)
		err(1, "%s", path);
	fclose(f);
	return id;
}

static __attribute__((noinline)) void calls(int depth)
{
	if (depth > 1) {
		calls(depth - 1);
		__asm__ volatile("");
		return;
	}
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
	__asm__ volatile("");
}

/* The least of five rounds, for one call. */
static double cost(__u64 sample_type, int defer, int depth, int id)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = id,
		.sample_period = 1,
		.sample_type = sample_type | PERF_SAMPLE_TID,
		.exclude_callchain_kernel = 1,
		.disabled = 1,
	};
	__u64 start, best = ~0ULL;
	void *ring;
	int fd;

	attr.defer_callchain = defer;
	attr.defer_output = defer;
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	if (fd < 0)
		err(1, "perf_event_open");
	/* Mapped read-only: it is overwritten, and no sample is lost. */
	ring = mmap(NULL, 4096 * 257, PROT_READ, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED)
		err(1, "mmap");
	for (int round = 0; round < 5; round++) {
		ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
		start = now();
		calls(depth);
		start = now() - start;
		ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
		if (start < best)
			best = start;
	}
	munmap(ring, 4096 * 257);
	close(fd);
	return (double)best / CALLS;
}

int main(void)
{
	int id = tracepoint("raw_syscalls/sys_enter");
	static const int depths[] = { 1, 10, 30, 100 };

	printf("%-8s %10s %10s %10s %10s %10s %10s\n", "depth", "tid only", "chain",
	       "bid chain", "deferred", "bid def.", "both def.");
	for (int i = 0; i < 4; i++) {
		int d = depths[i];

		printf("%-8d %10.0f %10.0f %10.0f %10.0f %10.0f %10.0f\n", d,
		       cost(0, 0, d, id),
		       cost(PERF_SAMPLE_CALLCHAIN, 0, d, id),
		       cost(PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET, 0, d, id),
		       cost(PERF_SAMPLE_CALLCHAIN, 1, d, id),
		       cost(PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET, 1, d, id),
		       cost(PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET, 1, d, id));
	}
	return 0;
}
