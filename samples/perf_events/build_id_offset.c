// SPDX-License-Identifier: GPL-2.0
/*
 * The smallest useful caller of PERF_SAMPLE_BUILD_ID_OFFSET: samples itself for
 * a while, and prints where it was as build IDs and file offsets. Look one up
 * with
 *
 *	addr2line -e FILE ADDRESS
 *
 * where readelf -n FILE shows the build ID, and ADDRESS is the offset minus the
 * p_offset, plus the p_vaddr of the program header that has it (readelf -l).
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/perf_event.h>

#define PAGES 16

/* A record of an event whose sample_type is PERF_SAMPLE_BUILD_ID_OFFSET alone. */
struct sample {
	struct perf_event_header		header;
	struct perf_sample_build_id_offset	bid;
};

static void print(const struct perf_sample_build_id_offset *bid)
{
	int i;

	if (bid->build_id.status != PERF_BUILD_ID_OFFSET_RESOLVED) {
		printf("status %u at %#llx\n", bid->build_id.status, bid->offset);
		return;
	}
	for (i = 0; i < bid->build_id.size; i++)
		printf("%02x", bid->build_id.data[i]);
	printf(" %#llx\n", bid->offset);
}

int main(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_TASK_CLOCK,
		.sample_period = 1000000, /* ns */
		.sample_type = PERF_SAMPLE_BUILD_ID_OFFSET,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.disabled = 1,
	};
	size_t page = sysconf(_SC_PAGESIZE);
	struct perf_event_mmap_page *control;
	__u64 head, tail, hash = 0;
	struct sample sample;
	unsigned char *data;
	__u64 i;
	int fd;

	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0 && errno == EINVAL)
		errx(1, "this kernel has no CONFIG_PERF_BUILD_ID_OFFSET");
	if (fd < 0)
		err(1, "perf_event_open");

	control = mmap(NULL, (1 + PAGES) * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (control == MAP_FAILED)
		err(1, "mmap");
	data = (unsigned char *)control + page;

	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	for (i = 0; i < 100000000; i++)
		hash = hash * 31 + i;
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);

	head = __atomic_load_n(&control->data_head, __ATOMIC_ACQUIRE);
	for (tail = control->data_tail; tail < head; tail += sample.header.size) {
		for (i = 0; i < sizeof(sample); i++)
			((unsigned char *)&sample)[i] = data[(tail + i) % (PAGES * page)];
		if (sample.header.type == PERF_RECORD_SAMPLE)
			print(&sample.bid);
	}
	__atomic_store_n(&control->data_tail, tail, __ATOMIC_RELEASE);

	/* Else the loop above would not have to run. */
	return hash == 1;
}
