// SPDX-License-Identifier: GPL-2.0

//! How many entries fit into a record.
//!
//! The size of a record is a `u16` in its header, and a multiple of 8. What does not fit is cut off
//! the outer end of the callchain, so that the innermost entries are kept, and never off the
//! fields that others have asked for.

use crate::entry::ENTRY_SIZE;

/// The largest record.
pub(crate) const RECORD_SIZE_MAX: u32 = u16::MAX as u32 & !7;

/// The most callchain entries that a record can have.
pub(crate) const ENTRIES_MAX: u16 = 2046;

/// The size of the `nr` before a callchain's entries.
const COUNT_SIZE: u32 = size_of::<u64>() as u32;

/// What `PERF_SAMPLE_STACK_USER` writes when it has room for next to nothing: the size, 8 bytes of
/// stack, and how many of them are valid.
const STACK_USER_SIZE_MIN: u32 = 24;

/// The size that `PERF_SAMPLE_AUX` writes before its data.
const AUX_SIZE_MIN: u32 = 8;

/// The header of a record, and the cookie that a deferred callchain has before its entries.
const DEFERRED_SIZE_MIN: u32 = 16;

/// The fields of a record that have not got their room yet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pending {
    pub(crate) stack_user: bool,
    /// With how many registers.
    pub(crate) regs_intr: Option<u32>,
    pub(crate) aux: bool,
}

impl Pending {
    /// The least that these fields take.
    pub(crate) fn size(self) -> u32 {
        let stack_user = if self.stack_user {
            STACK_USER_SIZE_MIN
        } else {
            0
        };
        let aux = if self.aux { AUX_SIZE_MIN } else { 0 };
        let regs_intr = match self.regs_intr {
            // The ABI, then the registers.
            Some(count) => count.saturating_add(1).saturating_mul(8),
            None => 0,
        };

        stack_user.saturating_add(aux).saturating_add(regs_intr)
    }
}

/// What the new fields take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The size of the fields, whatever there is room for.
    pub(crate) size: u32,
    /// The callchain entries among that.
    pub(crate) count: u16,
    /// The bytes by which the record is too large even without a single callchain entry.
    pub(crate) excess: u32,
}

impl Room {
    /// Finds the room in a `PERF_RECORD_CALLCHAIN_DEFERRED` that ends with a `struct sample_id` of
    /// `sample_id` bytes.
    pub(crate) fn find_deferred(sample_id: u32, callchain: u64) -> Self {
        let taken = DEFERRED_SIZE_MIN.saturating_add(sample_id);

        Self::find(taken, 0, false, Some(callchain))
    }

    /// Finds the room in a record that has `taken` bytes, and of which `pending` more are spoken
    /// for, for an entry of the instruction pointer if there is to be one, and for callchain
    /// entries.
    pub(crate) fn find(taken: u32, pending: u32, ip: bool, callchain: Option<u64>) -> Self {
        let left = RECORD_SIZE_MAX
            .saturating_sub(taken)
            .saturating_sub(pending);
        let spoken = taken.saturating_add(pending);

        let ip_size = if ip { ENTRY_SIZE } else { 0 };
        let count_size = if callchain.is_some() { COUNT_SIZE } else { 0 };
        let fixed = ip_size.saturating_add(count_size);

        let fit = left.saturating_sub(fixed) / ENTRY_SIZE;
        let count = callchain
            .unwrap_or(0)
            .min(u64::from(fit))
            .min(u64::from(ENTRIES_MAX)) as u16;

        Self {
            size: fixed.saturating_add(u32::from(count).saturating_mul(ENTRY_SIZE)),
            count,
            excess: spoken.saturating_add(fixed).saturating_sub(RECORD_SIZE_MAX),
        }
    }
}
