// SPDX-License-Identifier: GPL-2.0

//! Mappings that are remembered from one look at an address space to the next.
//!
//! Most samples find the address space as the one before has left it, and go through the same
//! files. `mm_lock_seq` tells: as long as it is even and the same, nobody has had the mmap lock for
//! writing, so each mapping is still there, and so are its file and its inode. What can have
//! changed without that is the file's content, hence its version is looked at each time.
//!
//! An address space is known by a number that no other ever has (`mm_context_t::ctx_id`), which is
//! there on x86 only. Elsewhere nothing is remembered.

use core::marker::PhantomData;

use pin_init::Zeroable;

use super::CurrentMm;
use super::FileVersion;
use super::Mapping;

use crate::bindings;

/// Addresses from a first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub struct Extent {
    /// The first address.
    pub start: u64,
    /// How many there are.
    pub size: u64,
}

impl Extent {
    /// Whether `address` is one of them.
    #[inline]
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }
}

/// An address space as it was until somebody changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub(super) struct Moment {
    /// Of the address space; 0 is none.
    context: u64,
    /// `mm_lock_seq`, even.
    sequence: u32,
}

impl Moment {
    /// [`None`] if the address space has no number, or is being changed.
    #[inline]
    pub(super) fn new(context: u64, sequence: u32) -> Option<Self> {
        (context != 0 && sequence.is_multiple_of(2)).then_some(Self { context, sequence })
    }
}

/// The file of a mapping.
#[derive(Clone, Copy, Zeroable)]
pub(super) struct Source {
    /// Null if the mapping has none.
    inode: *mut bindings::inode,
    version: FileVersion,
}

impl Source {
    #[inline]
    pub(super) fn new(inode: *mut bindings::inode, version: FileVersion) -> Self {
        Self { inode, version }
    }
}

/// Up to `N` mappings of an address space, and a `T` for each.
///
/// # Invariants
///
/// Each of the first `len` of `entries` is a mapping of the address space of `moment` at that
/// moment.
#[derive(Clone, Copy, Zeroable)]
pub struct Memo<T, const N: usize> {
    moment: Moment,
    stamp: u64,
    len: usize,
    /// Where the next entry goes when all places are taken.
    hand: usize,
    entries: [Entry<T>; N],
}

#[derive(Clone, Copy, Zeroable)]
struct Entry<T> {
    extent: Extent,
    source: Source,
    value: T,
}

// SAFETY: The pointers in it are not followed but as `Open::find` argues, which is the same for
// every CPU.
unsafe impl<T: Send, const N: usize> Send for Memo<T, N> {}

impl<T: Copy, const N: usize> Memo<T, N> {
    /// Has a look at what is remembered of the current task's address space, and forgets it if that
    /// has changed since, or if `stamp` is not the same.
    ///
    /// [`None`] if nothing can be remembered.
    #[inline]
    pub fn open<'a>(&'a mut self, mm: &'a CurrentMm<'a>, stamp: u64) -> Option<Open<'a, T, N>> {
        self.set_moment(mm.moment()?, stamp);
        // INVARIANT: `moment()` has just found the address space to be as it was.
        Some(Open {
            memo: self,
            _mm: PhantomData,
        })
    }

    #[inline]
    fn set_moment(&mut self, moment: Moment, stamp: u64) {
        if self.moment != moment || self.stamp != stamp {
            // INVARIANT: There are none.
            self.len = 0;
            self.hand = 0;
            self.moment = moment;
            self.stamp = stamp;
        }
    }
}

/// A [`Memo`] that is looked at.
///
/// # Invariants
///
/// The current task's address space was at the moment of the memo at some time within the present
/// RCU read section.
pub struct Open<'a, T, const N: usize> {
    memo: &'a mut Memo<T, N>,
    _mm: PhantomData<&'a CurrentMm<'a>>,
}

impl<T: Copy, const N: usize> Open<'_, T, N> {
    /// What was remembered for the mapping that `address` is in.
    #[inline]
    pub fn find(&mut self, address: u64) -> Option<(Extent, T)> {
        let entries = self.memo.entries.get(..self.memo.len)?;
        let entry = entries
            .iter()
            .find(|entry| entry.extent.contains(address))?;
        let Source { inode, version } = entry.source;

        // SAFETY: By the type invariants, the mapping was there within the present RCU read
        // section. It has a reference to its file, and that to its inode, which is freed a grace
        // period after it was last used.
        if inode.is_null() || unsafe { version.is_still(inode) } {
            return Some((entry.extent, entry.value));
        }
        // INVARIANT: There are none.
        self.memo.len = 0;
        None
    }

    /// Remembers a mapping that was found in the same address space.
    #[inline]
    pub fn remember(&mut self, mapping: &Mapping, value: T) {
        if mapping.moment != Some(self.memo.moment) {
            return;
        }
        let memo = &mut *self.memo;
        let at = if memo.len < N {
            memo.len
        } else {
            memo.hand % N
        };

        let Some(entry) = memo.entries.get_mut(at) else {
            return;
        };
        // INVARIANT: By the type invariant of `Mapping`.
        *entry = Entry {
            extent: mapping.extent(),
            source: mapping.source,
            value,
        };
        if memo.len < N {
            memo.len = memo.len.wrapping_add(1);
        } else {
            memo.hand = memo.hand.wrapping_add(1);
        }
    }
}

#[cfg(CONFIG_PERF_BUILD_ID_OFFSET_KUNIT_TEST)]
#[macros::kunit_tests(rust_kernel_mm_memo)]
mod tests {
    use core::ptr;

    use super::super::Content;
    use super::*;
    use crate::prelude::*;

    type Small = Memo<u32, 4>;

    fn moment(context: u64, sequence: u32) -> Moment {
        Moment::new(context, sequence).unwrap()
    }

    fn mapping(start: u64, moment: Option<Moment>) -> Mapping {
        Mapping {
            start,
            end: start + 0x1000,
            base: 0,
            content: Content::Memory,
            source: Source::new(ptr::null_mut(), FileVersion::new(0, 0, 0)),
            moment,
        }
    }

    fn open(memo: &mut Small, moment: Moment, stamp: u64) -> Open<'_, u32, 4> {
        memo.set_moment(moment, stamp);
        Open {
            memo,
            _mm: PhantomData,
        }
    }

    #[test]
    fn needs_an_address_space_at_rest() {
        assert!(Moment::new(0, 2).is_none());
        assert!(Moment::new(1, 3).is_none());
        assert!(Moment::new(1, 2).is_some());
    }

    #[test]
    fn finds_what_is_in_a_mapping() {
        let now = moment(1, 2);
        let mut memo = Small::zeroed();
        let mut open = open(&mut memo, now, 0);

        assert!(open.find(0).is_none());
        open.remember(&mapping(0x4000, Some(now)), 4);
        open.remember(&mapping(0x6000, Some(now)), 6);
        assert_eq!(open.find(0x4000).unwrap().1, 4);
        assert_eq!(open.find(0x4fff).unwrap().1, 4);
        assert_eq!(open.find(0x6800).unwrap().1, 6);
        for address in [0, 0x3fff, 0x5000, 0x5fff, 0x7000, u64::MAX] {
            assert!(open.find(address).is_none());
        }
    }

    #[test]
    fn forgets_when_anything_has_changed() {
        let now = moment(1, 2);
        for (later, stamp) in [(now, 1), (moment(1, 4), 0), (moment(2, 2), 0)] {
            let mut memo = Small::zeroed();
            open(&mut memo, now, 0).remember(&mapping(0x4000, Some(now)), 4);

            assert!(open(&mut memo, now, 0).find(0x4000).is_some());
            assert!(open(&mut memo, later, stamp).find(0x4000).is_none());
            assert!(open(&mut memo, now, 0).find(0x4000).is_none());
        }
    }

    #[test]
    fn remembers_nothing_of_another_moment() {
        let mut memo = Small::zeroed();
        let mut open = open(&mut memo, moment(1, 2), 0);

        for other in [None, Some(moment(1, 4)), Some(moment(2, 2))] {
            open.remember(&mapping(0x4000, other), 4);
            assert!(open.find(0x4000).is_none());
        }
    }

    #[test]
    fn makes_room_for_the_latest() {
        let now = moment(1, 2);
        let mut memo = Small::zeroed();
        let mut open = open(&mut memo, now, 0);

        for n in 1..=10u64 {
            open.remember(&mapping(n << 16, Some(now)), n as u32);
            assert_eq!(open.find(n << 16).unwrap().1, n as u32);
        }
        assert_eq!(
            (1..=10u64).filter(|n| open.find(n << 16).is_some()).count(),
            4
        );
    }

    /// What is an inode as far as a version goes, and that version.
    fn file() -> Result<(KVec<u64>, FileVersion)> {
        let words = size_of::<bindings::inode>().div_ceil(size_of::<u64>());
        let mut memory = KVec::from_elem(0u64, words, GFP_KERNEL)?;
        let inode: *mut bindings::inode = memory.as_mut_ptr().cast();

        // SAFETY: There is room for one.
        unsafe {
            (&raw mut (*inode).i_sequence).cast::<u64>().write(7);
            (*inode).i_ctime_sec = 8;
            (*inode).i_ctime_nsec = 9;
        }
        Ok((memory, FileVersion::new(7, 8, 9)))
    }

    #[test]
    fn looks_at_the_file_again() -> Result {
        let changes: [fn(&mut bindings::inode); 4] = [
            // SAFETY: It is that large.
            |inode| unsafe { (&raw mut inode.i_sequence).cast::<u64>().write(70) },
            |inode| inode.i_ctime_sec = 80,
            |inode| inode.i_ctime_nsec = 90,
            // SAFETY: It is that large.
            |inode| unsafe { (&raw mut inode.i_writecount).cast::<i32>().write(1) },
        ];
        let now = moment(1, 2);

        for change in changes {
            let (mut memory, version) = file()?;
            let inode: *mut bindings::inode = memory.as_mut_ptr().cast();
            let mapping = Mapping {
                source: Source::new(inode, version),
                ..mapping(0x4000, Some(now))
            };
            let mut memo = Small::zeroed();
            let mut open = open(&mut memo, now, 0);

            open.remember(&mapping, 4);
            assert_eq!(open.find(0x4000).unwrap().1, 4);
            // SAFETY: `file()` has made it.
            change(unsafe { &mut *inode });
            assert!(open.find(0x4000).is_none());
        }
        Ok(())
    }
}
