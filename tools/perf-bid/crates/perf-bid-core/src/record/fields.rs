// SPDX-License-Identifier: GPL-2.0
//! Fields of a sample that have a layout of their own: counter values and branches.

use zerocopy::FromBytes;
use zerocopy::Immutable;
use zerocopy::KnownLayout;
use zerocopy::Unaligned;
use zerocopy::native_endian::U64;

use crate::abi::read_format;

/// What a `read(2)` of an event returns, as `read_format` lays it out:
/// `value, enabled, running, id, lost`, or with `PERF_FORMAT_GROUP`
/// `nr, enabled, running, { value, id, lost }[nr]`, without what is not asked for.
#[derive(Clone, Copy, Debug)]
pub struct ReadValues<'a> {
    // Invariant: as many words as `words_of` says.
    pub(super) words: &'a [U64],
    pub(super) read_format: u64,
}

/// One event's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ReadValue {
    pub value: u64,
    pub id: Option<u64>,
    /// Samples lost so far.
    pub lost: Option<u64>,
}

/// How many words the values of `read_format` are, with `nr` events in the group.
pub(super) fn words_of(read_format: u64, nr: u64) -> Option<u64> {
    let times = [read_format::TOTAL_TIME_ENABLED, read_format::TOTAL_TIME_RUNNING];
    let times = count(read_format, &times);
    let each = 1 + count(read_format, &[read_format::ID, read_format::LOST]);
    if read_format & read_format::GROUP == 0 {
        return Some(times + each);
    }
    nr.checked_mul(each)?.checked_add(1 + times)
}

fn count(set: u64, bits: &[u64]) -> u64 {
    bits.iter().filter(|&&bit| set & bit != 0).count() as u64
}

impl<'a> ReadValues<'a> {
    /// Nanoseconds for which the event was enabled.
    pub fn time_enabled(&self) -> Option<u64> {
        self.time(read_format::TOTAL_TIME_ENABLED, 0)
    }

    /// Nanoseconds for which it was counting.
    pub fn time_running(&self) -> Option<u64> {
        let before = count(self.read_format, &[read_format::TOTAL_TIME_ENABLED]);
        self.time(read_format::TOTAL_TIME_RUNNING, before as usize)
    }

    /// The counts: one, or those of the group, the leader's first.
    pub fn values(&self) -> impl Iterator<Item = ReadValue> + use<'a> {
        let set = self.read_format;
        let times = [read_format::TOTAL_TIME_ENABLED, read_format::TOTAL_TIME_RUNNING];
        let times = count(set, &times) as usize;
        let each = 1 + count(set, &[read_format::ID, read_format::LOST]) as usize;
        let in_group = set & read_format::GROUP != 0;
        // In a group, the times come before the values, else between value and ID.
        let (first, gap) = if in_group { (1 + times, 0) } else { (0, times) };
        let words = self.words.get(first..).unwrap_or_default();
        words.chunks_exact(each + gap).map(move |words| {
            let mut rest = words.iter().skip(1 + gap).map(|word| word.get());
            let id = (set & read_format::ID != 0).then(|| rest.next()).flatten();
            let lost = (set & read_format::LOST != 0).then(|| rest.next()).flatten();
            ReadValue { value: words.first().map_or(0, |word| word.get()), id, lost }
        })
    }

    /// All of it, undecoded.
    pub fn words(&self) -> &'a [U64] {
        self.words
    }

    fn time(&self, bit: u64, before: usize) -> Option<u64> {
        // Behind `nr` or behind the value, which is one word either way.
        let word = (self.read_format & bit != 0).then(|| self.words.get(1 + before))?;
        word.map(|word| word.get())
    }
}

/// `PERF_SAMPLE_BRANCH_STACK`, the latest branch first.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Branches<'a> {
    /// The hardware's index of the latest branch, with `PERF_SAMPLE_BRANCH_HW_INDEX`.
    pub hw_index: Option<u64>,
    pub entries: &'a [BranchEntry],
    /// One for each entry, with `PERF_SAMPLE_BRANCH_COUNTERS`, else empty.
    pub counters: &'a [U64],
}

/// `struct perf_branch_entry`
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct BranchEntry {
    pub from: U64,
    pub to: U64,
    flags: U64,
}

/// Width of each field of the flags of a branch, in the order of `struct perf_branch_entry`:
/// mispred, predicted, in_tx, abort, cycles, type, spec, new_type, priv, reserved.
pub(super) const BRANCH_FLAGS: [u32; 10] = [1, 1, 1, 1, 16, 4, 2, 4, 3, 31];

impl BranchEntry {
    /// Size in a record, in bytes.
    pub(super) const SIZE: u64 = size_of::<Self>() as u64;

    /// The target was mispredicted.
    pub fn mispredicted(&self) -> bool {
        self.field(0) != 0
    }

    /// The target was predicted. Neither is set where the hardware does not tell.
    pub fn predicted(&self) -> bool {
        self.field(1) != 0
    }

    /// Within a transaction.
    pub fn in_transaction(&self) -> bool {
        self.field(2) != 0
    }

    /// The branch is an abort of a transaction.
    pub fn aborted(&self) -> bool {
        self.field(3) != 0
    }

    /// Cycles since the branch before; 0 if not known.
    pub fn cycles(&self) -> u64 {
        self.field(4)
    }

    /// `PERF_BR_*`
    pub fn kind(&self) -> u64 {
        self.field(5)
    }

    fn field(&self, index: usize) -> u64 {
        let at: u32 = BRANCH_FLAGS.iter().take(index).sum();
        let width = BRANCH_FLAGS.get(index).copied().unwrap_or(0);
        // A bit field starts at the lowest bit, or at the highest.
        let low = if cfg!(target_endian = "little") { at } else { 64 - at - width };
        self.flags.get() >> low & ((1 << width) - 1)
    }
}
