// SPDX-License-Identifier: GPL-2.0

//! Resolving user addresses of the current task, in a kernel without
//! `CONFIG_PERF_BUILD_ID_OFFSET_CACHE`: all is left to the stack map's reader.

use core::iter;

use kernel::build_id;
use kernel::build_id::Frame;
use kernel::mm::virt::VmaRef;
use kernel::perf_event::OutputContext;
use kernel::prelude::*;

use crate::entry::Entry;

/// To be called once, at boot.
///
/// # Safety
///
/// None; where there is a cache, it has requirements.
pub(crate) unsafe fn init() {}

/// Nothing needs to be begun for events.
pub(crate) fn start() -> Result {
    Ok(())
}

/// Nor ended.
pub(crate) fn stop() {}

/// A mapping was made, or its protection changed. Any context.
pub(crate) fn mapped(_vma: &VmaRef) {}

/// Makes entries of `addresses` in `frames`, without a page fault. Any context.
pub(crate) fn resolve_nofault(
    addresses: &[c_ulong],
    frames: &mut [Frame],
    _context: OutputContext<'_>,
) {
    resolve_and_fill(addresses, frames);
    Entry::replace_all(frames);
}

/// Resolves `addresses` in `frames`, without a page fault. Returns that all are left as the stack
/// map's reader has left them. Any context.
pub(crate) fn resolve_and_fill(addresses: &[c_ulong], frames: &mut [Frame]) -> bool {
    for (frame, address) in frames.iter_mut().zip(addresses) {
        frame.renew(*address as u64);
    }
    build_id::resolve_nofault(frames);
    true
}

/// Nothing is remembered.
pub(crate) fn buffers_exist() -> bool {
    false
}

/// How many pages the cache has.
pub(crate) fn cache_len() -> usize {
    0
}

/// Nothing is counted.
pub(crate) fn counters() -> impl Iterator<Item = (&'static str, i64)> {
    iter::empty()
}
