// SPDX-License-Identifier: GPL-2.0

//! What the perf core calls, and what it is asked for.
//!
//! C header:
//! [`include/linux/perf_build_id_offset.h`](srctree/include/linux/perf_build_id_offset.h)

use kernel::bindings;
use kernel::error::from_result;
use kernel::jump_label;
use kernel::mm::virt::VmaRef;
use kernel::perf_event::OutputHandle;
use kernel::perf_event::PerfEvent;
use kernel::perf_event::SampleData;
use kernel::perf_event::SampleRegs;
use kernel::perf_event::SampleType;
use kernel::prelude::*;

use crate::account;
use crate::immediate;
use crate::resolver;

/// Called at boot, before the first event.
///
/// # Safety
///
/// Must be called once, before any other of the hooks.
#[export]
pub unsafe extern "C" fn perf_build_id_offset_init() {
    // SAFETY: By the safety requirement.
    unsafe { account::init() };
    // SAFETY: By the safety requirement.
    unsafe { resolver::init() };
}

/// Called when an event with one of the sample types comes into being.
///
/// Task context, may sleep.
///
/// # Safety
///
/// `event` must be valid, with its attributes set.
#[export]
pub unsafe extern "C" fn perf_build_id_offset_get(event: *mut bindings::perf_event) -> c_int {
    // SAFETY: By the safety requirement.
    let event = unsafe { PerfEvent::from_raw(event) };

    from_result(|| account::get(event).map(|()| 0))
}

/// Called when an event goes that [`perf_build_id_offset_get`] has succeeded for.
///
/// Task context, may sleep.
///
/// # Safety
///
/// `event` must be valid, with its attributes as they were.
#[export]
pub unsafe extern "C" fn perf_build_id_offset_put(event: *mut bindings::perf_event) {
    // SAFETY: By the safety requirement.
    account::put(unsafe { PerfEvent::from_raw(event) });
}

/// Called when all fields of a sample are filled in but the new ones and those that take what room
/// is left.
///
/// Any context.
///
/// # Safety
///
/// `event` must be valid, and `data` its sample data, with the instruction pointer and the
/// callchain where they are asked for. `regs` must be valid.
#[export]
pub unsafe extern "C" fn perf_build_id_offset_prepare(
    data: *mut bindings::perf_sample_data,
    event: *mut bindings::perf_event,
    regs: *mut bindings::pt_regs,
) {
    // SAFETY: By the safety requirement, for both.
    let (data, event) = unsafe { (SampleData::from_raw(data), PerfEvent::from_raw(event)) };
    // SAFETY: By the safety requirement.
    let regs = unsafe { SampleRegs::from_raw(regs) };

    immediate::prepare(data, event, regs);
}

/// Called when a sample is about to be prepared. Returns the sample types that the new ones among
/// `sample_type` are made from.
///
/// Any context.
#[export]
pub extern "C" fn perf_build_id_offset_needs(sample_type: u64) -> u64 {
    immediate::needs(SampleType::from_bits(sample_type)).bits()
}

/// Called when a callchain was captured. Returns whether it has no field of its own.
///
/// Any context.
///
/// # Safety
///
/// `event` must be valid.
#[export]
pub unsafe extern "C" fn perf_build_id_offset_alone(event: *mut bindings::perf_event) -> bool {
    // SAFETY: By the safety requirement.
    let event = unsafe { PerfEvent::from_raw(event) };

    !event.sample_type().contains(SampleType::CALLCHAIN)
}

/// Called when `PERF_SAMPLE_STACK_USER` is about to take the room that a record of `header_size`
/// leaves. Returns that size and what other fields need.
///
/// Any context.
///
/// # Safety
///
/// `event` must be valid, and `data` its sample data.
#[export]
pub unsafe extern "C" fn perf_build_id_offset_pending(
    data: *mut bindings::perf_sample_data,
    event: *mut bindings::perf_event,
    header_size: u16,
) -> u16 {
    // SAFETY: By the safety requirement, for both.
    let (data, event) = unsafe { (SampleData::from_raw(data), PerfEvent::from_raw(event)) };

    immediate::header_size_with_pending(data, event, header_size)
}

/// Called when it is the new fields' turn to be written.
///
/// Any context, preemption disabled, in an RCU read section.
///
/// # Safety
///
/// `event` must be valid, `data` its sample data, and `handle` be set up for a record of that size.
#[export]
pub unsafe extern "C" fn perf_build_id_offset_output(
    handle: *mut bindings::perf_output_handle,
    data: *mut bindings::perf_sample_data,
    event: *mut bindings::perf_event,
) {
    // SAFETY: By the safety requirement.
    let handle = unsafe { OutputHandle::from_raw(handle) };
    // SAFETY: By the safety requirement, for both.
    let (data, event) = unsafe { (SampleData::from_raw(data), PerfEvent::from_raw(event)) };

    immediate::output(handle, data, event);
}

/// Called when a mapping was made, or its protection changed.
///
/// Task context.
///
/// # Safety
///
/// `vma` must be a mapping of the current task, whose mmap lock must be held for writing.
#[export]
pub unsafe extern "C" fn perf_build_id_offset_mapped(vma: *mut bindings::vm_area_struct) {
    // SAFETY: By the safety requirement.
    resolver::mapped(unsafe { VmaRef::from_raw(vma) });
}

/// Whether what becomes of addresses is counted.
#[cfg(CONFIG_PERF_BUILD_ID_OFFSET_CACHE)]
#[inline(always)]
pub(crate) fn counting() -> bool {
    #[cfg(CONFIG_JUMP_LABEL)]
    {
        // SAFETY: The key is defined in kernel/events/core.c.
        unsafe {
            jump_label::arch_static_branch! {
                bindings::perf_build_id_offset_counting, Key, key, false
            }
        }
    }
    #[cfg(not(CONFIG_JUMP_LABEL))]
    {
        // SAFETY: As above.
        unsafe { bindings::static_key_count(counting_key()) > 0 }
    }
}

/// A static key by itself, which [`jump_label`] wants to have as a field.
#[repr(C)]
#[cfg(all(CONFIG_PERF_BUILD_ID_OFFSET_CACHE, CONFIG_JUMP_LABEL))]
struct Key {
    key: bindings::static_key_false,
}

/// Switches [`counting`] on or off, which it must not be already. May sleep.
pub(crate) fn set_counting(on: bool) {
    // SAFETY: The key is defined in kernel/events/core.c; it is switched off only when it is on.
    unsafe {
        if on {
            jump_label::static_key_inc(counting_key());
        } else {
            jump_label::static_key_dec(counting_key());
        }
    }
}

/// The static key of [`counting`].
fn counting_key() -> *mut bindings::static_key {
    (&raw mut bindings::perf_build_id_offset_counting).cast()
}

/// The static key of the hooks.
fn key() -> *mut bindings::static_key {
    (&raw mut bindings::perf_build_id_offset_key).cast()
}

/// Switches the hooks on for one more event. May sleep.
pub(crate) fn enable() {
    // SAFETY: The key is defined in kernel/events/core.c.
    unsafe { jump_label::static_key_inc(key()) };
}

/// Undoes one [`enable`]. May sleep.
pub(crate) fn disable() {
    // SAFETY: The key is defined in kernel/events/core.c; the caller has called `enable()`.
    unsafe { jump_label::static_key_dec(key()) };
}

/// How many have called [`enable`] and not yet [`disable`].
pub(crate) fn users() -> usize {
    // SAFETY: The key is defined in kernel/events/core.c.
    let users = unsafe { bindings::static_key_count(key()) };

    usize::try_from(users).unwrap_or(usize::MAX)
}

/// The most frames and markers of a callchain: `kernel.perf_event_max_stack` and
/// `kernel.perf_event_max_contexts_per_stack`.
pub(crate) fn callchain_limits() -> (usize, usize) {
    // SAFETY: The sysctls are not written to while there are events that capture callchains, and
    // this is called for such an event.
    let limits = unsafe {
        (
            bindings::sysctl_perf_event_max_stack,
            bindings::sysctl_perf_event_max_contexts_per_stack,
        )
    };

    (
        usize::try_from(limits.0).unwrap_or(0),
        usize::try_from(limits.1).unwrap_or(0),
    )
}
