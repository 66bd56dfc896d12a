// SPDX-License-Identifier: GPL-2.0

//! Resolving where page faults are allowed.
//!
//! A sample of an event with `attr.defer_callchain` has a cookie in place of its user addresses.
//! Before the task returns to user mode, its stack is walked and resolved once, and each event
//! with `attr.defer_output` and one of the sample types gets a `PERF_RECORD_CALLCHAIN_DEFERRED`
//! with that cookie and the entries, however many have asked.
//!
//! [`request`] runs in any context, NMI included; everything else in task context.

use kernel::build_id;
use kernel::build_id::Frame;
use kernel::build_id::Outcome;
use kernel::perf_event;
use kernel::perf_event::PerfEvent;
use kernel::perf_event::RecordType;
use kernel::prelude::*;
use kernel::sync::SetOnce;
use kernel::unwind::Callback;
use kernel::unwind::Cookie;
use kernel::unwind::StackTrace;
use kernel::unwind::Work;

use crate::account;
use crate::entry::Entry;
use crate::entry::Status;
use crate::resolver;
use crate::room::Room;

/// The registration with the unwinder. Without one, nothing is deferred.
///
/// It is made for the first event and stays, for undoing it would have the last one wait for
/// callbacks, hence for files that are read in them.
static WORK: SetOnce<Pin<KBox<Work<Deferred>>>> = SetOnce::new();

struct Deferred;

/// Registers with the unwinder, if that has not been done. May sleep.
pub(crate) fn start() -> Result {
    if WORK.as_ref().is_some() {
        return Ok(());
    }
    match KBox::pin_init(Work::new(Deferred), GFP_KERNEL) {
        Ok(work) => {
            WORK.populate(work);
            Ok(())
        }
        Err(error) if error == ENOMEM => Err(error),
        // Where the architecture has no unwinder, the sample resolves what it can.
        Err(error) => {
            kernel::pr_info_once!("nothing will be deferred: {error:?}\n");
            Ok(())
        }
    }
}

/// Requests a record of the current task's callchain. Returns its cookie.
pub(crate) fn request() -> Option<Cookie> {
    WORK.as_ref()?.request().ok()
}

impl Callback for Deferred {
    fn unwound(&self, trace: &StackTrace<'_>, cookie: Cookie) {
        if !account::any_deferred_output() {
            return;
        }

        let addresses = trace.addresses();
        let frames = resolve(addresses);

        // Nothing below sleeps: the events are looked at with preemption disabled.
        perf_event::for_each_side_band(|event| {
            if account::wants_deferred_output(event) {
                output(event, cookie, addresses, frames.as_deref());
            }
        });
    }
}

/// Makes entries of `addresses`. Returns [`None`] when there is no memory for them.
fn resolve(addresses: &[c_ulong]) -> Option<KVec<Frame>> {
    let mut frames = KVec::zeroed(addresses.len(), GFP_KERNEL).ok()?;

    // Most of the time everything is known, or in memory, and looking there is many times cheaper
    // than reading from files.
    if !resolver::resolve_and_fill(addresses, &mut frames) {
        return Some(frames);
    }
    // A task that exits can no longer be killed out of waiting for a file.
    if !perf_event::current_is_exiting() {
        frames
            .iter_mut()
            .filter(|frame| is_pending(frame))
            .for_each(retry);
    }

    Entry::replace_all(&mut frames);
    Some(frames)
}

/// Whether a frame can be resolved by waiting: for the file, or for the address space.
fn is_pending(frame: &Frame) -> bool {
    frame.is_read() && matches!(frame.outcome(), Outcome::NotResident | Outcome::Busy)
}

/// Resolves a frame that was not resolved without a page fault.
fn retry(frame: &mut Frame) {
    // A frame of the same file may have been here before this one, and brought it in.
    for resolve in [build_id::resolve_nofault, build_id::resolve] {
        if is_pending(frame) {
            *frame = Frame::new(frame.value());
            resolve(core::slice::from_mut(frame));
        }
    }
}

/// Writes the record to the buffer of `event`.
///
/// It is lost, and counted as such, when there is no room.
fn output(event: &PerfEvent, cookie: Cookie, addresses: &[c_ulong], frames: Option<&[Frame]>) {
    let room = Room::find_deferred(event.sample_id_size(), addresses.len() as u64);
    let count = usize::from(room.count);

    let kind = RecordType::CALLCHAIN_DEFERRED_BUILD_ID;
    let head = [cookie.get(), count as u64];
    // The room has that of the number.
    let body = room.size.saturating_add(size_of::<u64>() as u32);

    event.output_record(kind, body, |handle| {
        handle.put(&head);
        match frames {
            Some(frames) => handle.put(frames.get(..count).unwrap_or_default()),
            None => addresses.iter().take(count).for_each(|address| {
                handle.put(&Entry::unresolved(Status::NoMemory, *address as u64));
            }),
        }
    });
}
