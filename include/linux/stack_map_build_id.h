/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The BPF stack map's build ID reader, for callers in the kernel that need
 * more than a BPF program is told: the true length of an ID, and the reason
 * where there is none.
 */
#ifndef _LINUX_STACK_MAP_BUILD_ID_H
#define _LINUX_STACK_MAP_BUILD_ID_H

#include <linux/bits.h>
#include <linux/types.h>
#include <uapi/linux/bpf.h>

/*
 * bpf_stack_build_id::status as stack_map_resolve_build_ids() leaves it: an
 * enum bpf_stack_build_id_status in the low byte and, above it,
 *
 *  - with BPF_STACK_BUILD_ID_VALID the length of the ID, 1 to 20, or 0 for an
 *    address in the vDSO: the offset is one in its image, the ID is not filled
 *    in;
 *  - with BPF_STACK_BUILD_ID_IP the reason as a positive errno:
 *	ENOENT	no mapping has the address
 *	ENXIO	no file is behind the mapping
 *	EINVAL	the file has no build ID
 *	EFAULT	the file could not be read without a page fault
 *	EBUSY	the address space could not be looked at
 *	ESRCH	there is no user address space
 *    or what the file system answered.
 *
 * The top bit is set in either case: a caller that keeps entries of its own among
 * these can tell which are the reader's.
 */
#define STACK_MAP_BUILD_ID_STATUS	GENMASK(7, 0)
#define STACK_MAP_BUILD_ID_DETAIL	GENMASK(23, 8)
#define STACK_MAP_BUILD_ID_READ		0x80000000U

void stack_map_resolve_build_ids(struct bpf_stack_build_id *id_offs,
				 u32 trace_nr, bool may_fault);

#endif /* _LINUX_STACK_MAP_BUILD_ID_H */
