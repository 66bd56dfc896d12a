// SPDX-License-Identifier: GPL-2.0

//! Work that a task does before it returns to user mode.
//!
//! C header: [`include/linux/task_work.h`](srctree/include/linux/task_work.h)

use core::mem::ManuallyDrop;

use crate::bindings;
use crate::error::to_result;
use crate::prelude::*;
use crate::task::Task;
use crate::types::Opaque;

/// What is to be done.
pub trait TaskWork: Send + 'static {
    /// Called in the task, where it may sleep and take page faults.
    fn run(self);
}

/// A piece of work with the memory that queueing it takes.
#[repr(C)]
struct Item<T> {
    /// First, for [`called`].
    head: Opaque<bindings::callback_head>,
    work: T,
}

/// Has `work` done by the current task, before it returns to user mode or when it exits.
///
/// Task context. Fails with [`ENOMEM`], and with [`ESRCH`] if the task is past that point.
pub fn add_to_current<T: TaskWork>(work: T) -> Result {
    let item = KBox::new(
        Item {
            head: Opaque::zeroed(),
            work,
        },
        GFP_KERNEL,
    )?;
    let head = item.head.get();

    // SAFETY: The function takes a `callback_head`, and nobody else uses this one.
    unsafe { (*head).func = Some(called::<T>) };
    // SAFETY: The current task is valid, and `head` stays where it is until `called()` frees it.
    to_result(unsafe {
        bindings::task_work_add(
            Task::current_raw(),
            head,
            bindings::task_work_notify_mode_TWA_RESUME,
        )
    })?;

    // It belongs to the task now.
    let _ = ManuallyDrop::new(item);
    Ok(())
}

/// # Safety
///
/// `head` must be the first field of an [`Item<T>`] that came from a [`KBox`], and not be used
/// again.
unsafe extern "C" fn called<T: TaskWork>(head: *mut bindings::callback_head) {
    // SAFETY: By the safety requirement.
    let item = unsafe { KBox::from_raw(head.cast::<Item<T>>()) };

    KBox::into_inner(item).work.run();
}
