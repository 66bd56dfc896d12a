/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * A code address as (build ID, file offset): what PERF_SAMPLE_BUILD_ID_OFFSET,
 * PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET and the build-ID form of
 * PERF_RECORD_CALLCHAIN_DEFERRED carry. See <linux/perf_event.h> for where
 * they stand in a record.
 */
#ifndef _UAPI_LINUX_PERF_BUILD_ID_H
#define _UAPI_LINUX_PERF_BUILD_ID_H

#include <linux/types.h>

#define PERF_BUILD_ID_SIZE_MAX			20

/*
 * What perf_sample_build_id_offset::offset holds, and why there is no build
 * ID where there is none. A reader takes an unknown status as "not resolved,
 * offset is an address".
 */
enum perf_build_id_offset_status {
	/* offset is a byte offset in the file, or in the vDSO image */
	PERF_BUILD_ID_OFFSET_RESOLVED		= 0,
	/* offset is an enum perf_callchain_context */
	PERF_BUILD_ID_OFFSET_CONTEXT		= 1,
	/* offset is a kernel, hypervisor or guest address */
	PERF_BUILD_ID_OFFSET_KERNEL		= 2,
	/* offset is the cookie of a PERF_RECORD_CALLCHAIN_DEFERRED */
	PERF_BUILD_ID_OFFSET_DEFERRED		= 3,

	/* For those that follow, offset is the user address. */

	/* no file behind the address, or no mapping at all */
	PERF_BUILD_ID_OFFSET_ANON		= 4,
	/* the file has no readable build ID note */
	PERF_BUILD_ID_OFFSET_NO_BUILD_ID	= 5,
	/* the note is not in memory and the context must not fault */
	PERF_BUILD_ID_OFFSET_FAULT		= 6,
	/* the address space could not be read safely at that moment */
	PERF_BUILD_ID_OFFSET_BUSY		= 7,
	/* a kernel thread or an exiting task: no user address space */
	PERF_BUILD_ID_OFFSET_NO_MM		= 8,
	/* no memory for the resolution in task_work */
	PERF_BUILD_ID_OFFSET_NO_MEMORY		= 9,

	PERF_BUILD_ID_OFFSET_MAX		/* non-ABI */
};

/* The same layout as the build ID arm of PERF_RECORD_MMAP2. */
struct perf_build_id {
	__u8	size;		/* true length of the ID: 1..20 iff status is RESOLVED */
	__u8	status;		/* enum perf_build_id_offset_status */
	__u16	__reserved;	/* 0 */
	__u8	data[PERF_BUILD_ID_SIZE_MAX];	/* the ID; zero after size bytes */
};

struct perf_sample_build_id_offset {
	struct perf_build_id	build_id;
	__u64			offset;
};

#endif /* _UAPI_LINUX_PERF_BUILD_ID_H */
