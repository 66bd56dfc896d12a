/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the perf core meets kernel/events/build_id_offset/: the hooks behind
 * PERF_SAMPLE_BUILD_ID_OFFSET and PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET. They
 * are implemented in Rust; see Documentation/userspace-api/perf_build_id_offset.rst
 * for the rules and the contexts they run in.
 */
#ifndef _LINUX_PERF_BUILD_ID_OFFSET_H
#define _LINUX_PERF_BUILD_ID_OFFSET_H

#include <linux/errno.h>
#include <linux/jump_label.h>
#include <linux/types.h>
#include <uapi/linux/perf_event.h>

struct perf_event;
struct perf_output_handle;
struct perf_sample_data;
struct pt_regs;
struct vm_area_struct;

#ifdef CONFIG_PERF_BUILD_ID_OFFSET

#define PERF_SAMPLE_BUILD_ID_TYPES \
	(PERF_SAMPLE_BUILD_ID_OFFSET | PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET)

/* The sample types that a callchain is captured for. */
#define PERF_SAMPLE_CALLCHAIN_TYPES \
	(PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET)

/* On while there is an event with one of PERF_SAMPLE_BUILD_ID_TYPES. */
DECLARE_STATIC_KEY_FALSE(perf_build_id_offset_key);

/* On while what becomes of addresses is counted, for debugfs. */
DECLARE_STATIC_KEY_FALSE(perf_build_id_offset_counting);

/* At boot, before the first event. */
void perf_build_id_offset_init(void);

/*
 * An event with one of the bits comes into being, and goes again. Inherited
 * events live on the account of their parent. Task context, may sleep.
 */
int perf_build_id_offset_get(struct perf_event *event);
void perf_build_id_offset_put(struct perf_event *event);

/* The sample types that those of @sample_type are made from. Any context. */
u64 perf_build_id_offset_needs(u64 sample_type);

/* Whether a callchain is captured, but not for a field of its own. Any context. */
bool perf_build_id_offset_alone(struct perf_event *event);

/*
 * Makes room for the new fields in a sample, and requests the deferred callchain
 * where one is wanted; ->ip and ->callchain are there. Runs before the fields
 * that take what room is left. Any context.
 */
void perf_build_id_offset_prepare(struct perf_sample_data *data,
				  struct perf_event *event, struct pt_regs *regs);

/*
 * Adds what the fields after PERF_SAMPLE_STACK_USER need at least to the size of
 * the record. Any context.
 */
u16 perf_build_id_offset_pending(struct perf_sample_data *data,
				 struct perf_event *event, u16 header_size);

/* Resolves and writes the new fields. Any context, preemption disabled. */
void perf_build_id_offset_output(struct perf_output_handle *handle,
				 struct perf_sample_data *data,
				 struct perf_event *event);

/* The perf core's part: what samples are prepared and written with while it is on. */
void perf_prepare_sample_build_id(struct perf_sample_data *data,
				  struct perf_event *event, struct pt_regs *regs);
void perf_output_sample_build_id(struct perf_output_handle *handle,
				 struct perf_event_header *header,
				 struct perf_sample_data *data,
				 struct perf_event *event);

/*
 * A mapping was made, or its protection changed. Task context, with the mmap
 * lock held for writing; does not sleep for long.
 */
void perf_build_id_offset_mapped(struct vm_area_struct *vma);

/*
 * The perf core's part: calls @output for every event that gets side-band
 * records from the current task, with preemption disabled.
 */
void perf_iterate_side_band(void (*output)(struct perf_event *event, void *data),
			    void *data);

/* Whether there is an event with one of PERF_SAMPLE_BUILD_ID_TYPES. */
static __always_inline bool perf_build_id_offset_on(void)
{
	return static_branch_unlikely(&perf_build_id_offset_key);
}

static __always_inline bool perf_build_id_offset_wanted(u64 sample_type)
{
	return perf_build_id_offset_on() && (sample_type & PERF_SAMPLE_BUILD_ID_TYPES);
}

static __always_inline void perf_build_id_offset_mmap(struct vm_area_struct *vma)
{
	if (perf_build_id_offset_on())
		perf_build_id_offset_mapped(vma);
}

#else /* !CONFIG_PERF_BUILD_ID_OFFSET */

#define PERF_SAMPLE_BUILD_ID_TYPES	0
#define PERF_SAMPLE_CALLCHAIN_TYPES	PERF_SAMPLE_CALLCHAIN

static inline void perf_build_id_offset_init(void) {}

static inline int perf_build_id_offset_get(struct perf_event *event)
{
	return -EINVAL;
}

static inline void perf_build_id_offset_put(struct perf_event *event) {}

static inline void perf_prepare_sample_build_id(struct perf_sample_data *data,
						struct perf_event *event,
						struct pt_regs *regs) {}

static inline void perf_output_sample_build_id(struct perf_output_handle *handle,
					       struct perf_event_header *header,
					       struct perf_sample_data *data,
					       struct perf_event *event) {}

static inline void perf_build_id_offset_prepare(struct perf_sample_data *data,
						struct perf_event *event,
						struct pt_regs *regs) {}

static inline u16 perf_build_id_offset_pending(struct perf_sample_data *data,
					       struct perf_event *event, u16 header_size)
{
	return header_size;
}

static inline void perf_build_id_offset_output(struct perf_output_handle *handle,
					       struct perf_sample_data *data,
					       struct perf_event *event) {}

static inline void perf_build_id_offset_mmap(struct vm_area_struct *vma) {}

static __always_inline bool perf_build_id_offset_on(void)
{
	return false;
}

static __always_inline bool perf_build_id_offset_wanted(u64 sample_type)
{
	return false;
}

static inline u64 perf_build_id_offset_needs(u64 sample_type)
{
	return 0;
}

static inline bool perf_build_id_offset_alone(struct perf_event *event)
{
	return false;
}

#endif /* CONFIG_PERF_BUILD_ID_OFFSET */

#endif /* _LINUX_PERF_BUILD_ID_OFFSET_H */
