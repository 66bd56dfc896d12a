// SPDX-License-Identifier: GPL-2.0

//! What becomes of addresses and files, counted while somebody wants to know.
//!
//! Off, each place is a NOP.

use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;

use crate::hooks;

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    /// Frames resolved without a lock.
    Hit,
    /// Frames known to be in a file without a build ID.
    NegativeHit,
    /// Frames in the vDSO.
    Vdso,
    /// Frames in no file.
    NoFile,
    /// Files that are not in the cache.
    Miss,
    /// Files whose content cannot be told from their change time.
    Unstable,
    /// Addresses that could not be looked up without the lock.
    Busy,
    /// Frames left to the stack map's reader.
    Left,
    /// Files stored.
    Filled,
    /// Files stored in place of another.
    Evicted,
    /// Files not stored: changed a moment ago.
    Unsettled,
    /// Files not stored: they could not be read.
    Unreadable,
    /// Files not stored: changed, or perhaps, while they were read.
    Changed,
    /// Files not stored for lack of memory.
    NoMemory,
}

/// Names of the counters, in their order.
pub(crate) const NAMES: [&str; 14] = [
    "hits",
    "negative_hits",
    "vdso",
    "no_file",
    "misses",
    "unstable",
    "busy",
    "left_to_reader",
    "filled",
    "evicted",
    "unsettled",
    "unreadable",
    "changed",
    "no_memory",
];

static COUNTS: [Atomic<i64>; NAMES.len()] = [const { Atomic::new(0) }; NAMES.len()];

/// Counts one. Any context.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    add(counter, 1);
}

/// Counts `number`. Any context.
#[inline(always)]
pub(crate) fn add(counter: Counter, number: usize) {
    add_to(counter as usize, number);
}

/// Counts `number` on the counter at `index`. Any context.
#[inline(always)]
pub(crate) fn add_to(index: usize, number: usize) {
    if hooks::counting() {
        if let Some(count) = COUNTS.get(index) {
            count.add(number as i64, Relaxed);
        }
    }
}

/// The counters and their names.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, i64)> {
    NAMES
        .into_iter()
        .zip(COUNTS.iter().map(|count| count.load(Relaxed)))
}
