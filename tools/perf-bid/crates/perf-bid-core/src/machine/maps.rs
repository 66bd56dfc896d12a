// SPDX-License-Identifier: GPL-2.0
//! The mappings of one address space.

use std::ops::Range;
use std::sync::Arc;

use crate::place::DsoId;

/// Size of a huge page of text, in bytes.
const HUGE_PAGE: u64 = 2 << 20;

/// A run of addresses with one file, or something in place of one, behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First address.
    pub(super) start: u64,
    /// First address after it.
    pub(super) end: u64,
    /// File offset of `start`, in bytes.
    pub(super) pgoff: u64,
    /// What is mapped; `None`: memory without a file.
    pub(super) dso: Option<DsoId>,
}

impl Mapping {
    /// `len` bytes from `start` on. One that would wrap ends at the last address.
    pub(super) fn new(start: u64, len: u64, pgoff: u64, dso: Option<DsoId>) -> Self {
        Self { start, end: start.saturating_add(len), pgoff, dso }
    }

    /// The file offset of an address within the mapping.
    pub(super) fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.pgoff)
    }

    fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Mappings that do not overlap, by address. Copies share memory until one is changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Maps {
    sorted: Arc<Vec<Mapping>>,
    /// Where the last address was found.
    last: usize,
}

impl Maps {
    /// Adds a mapping; what it overlaps is cut back or goes.
    pub(super) fn insert(&mut self, new: Mapping) {
        if new.start < new.end {
            self.replace(new.start..new.end, Some(new));
        }
    }

    /// Takes away whatever is mapped in `gone`.
    pub(super) fn remove(&mut self, gone: Range<u64>) {
        if gone.start < gone.end {
            self.replace(gone, None);
        }
    }

    fn replace(&mut self, range: Range<u64>, new: Option<Mapping>) {
        let sorted = Arc::make_mut(&mut self.sorted);
        let from = sorted.partition_point(|old| old.end <= range.start);
        let to = sorted.partition_point(|old| old.start < range.end).max(from);
        let overlapped = sorted.get(from..to).unwrap_or_default();
        let head = overlapped.first().filter(|old| old.start < range.start);
        let head = head.map(|old| Mapping { end: range.start, ..*old });
        let tail = overlapped.last().filter(|old| old.end > range.end);
        let tail =
            tail.map(|old| Mapping { start: range.end, pgoff: old.offset_of(range.end), ..*old });
        sorted.splice(from..to, head.into_iter().chain(new).chain(tail));
    }

    /// The mapping that `address` is in.
    pub(super) fn find(&mut self, address: u64) -> Option<Mapping> {
        if let Some(mapping) = self.sorted.get(self.last).filter(|m| m.contains(address)) {
            return Some(*mapping);
        }
        let at = self.sorted.partition_point(|mapping| mapping.end <= address);
        let mapping = self.sorted.get(at).filter(|mapping| mapping.contains(address))?;
        self.last = at;
        Some(*mapping)
    }

    /// Whether memory without a file is where a program puts a copy of its own text to have it
    /// in huge pages: whole ones, and all of them within one mapping of a file.
    pub(super) fn is_copied_text(&mut self, new: &Mapping) -> bool {
        let whole = new.start.is_multiple_of(HUGE_PAGE) && new.end.is_multiple_of(HUGE_PAGE);
        let around = self.find(new.start).filter(|old| old.dso.is_some() && new.end <= old.end);
        new.dso.is_none() && whole && around.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(mappings: &[(u64, u64, u64, u32)]) -> Maps {
        let mut maps = Maps::default();
        for &(start, len, pgoff, dso) in mappings {
            maps.insert(Mapping::new(start, len, pgoff, Some(DsoId(dso))));
        }
        maps
    }

    fn at(maps: &mut Maps, address: u64) -> Option<(u32, u64)> {
        maps.find(address).map(|mapping| (mapping.dso.unwrap().0, mapping.offset_of(address)))
    }

    #[test]
    fn a_new_mapping_splits_what_it_lies_in() {
        let mut maps = maps(&[(0x1000, 0x3000, 0, 1), (0x2000, 0x1000, 0x500, 2)]);
        assert_eq!(at(&mut maps, 0x1fff), Some((1, 0xfff)));
        assert_eq!(at(&mut maps, 0x2010), Some((2, 0x510)));
        assert_eq!(at(&mut maps, 0x3000), Some((1, 0x2000)));
        assert_eq!(at(&mut maps, 0x4000), None);
        assert_eq!(at(&mut maps, 0xfff), None);
    }

    #[test]
    fn a_new_mapping_covers_several() {
        let mut maps =
            maps(&[(0x1000, 0x1000, 0, 1), (0x3000, 0x1000, 0, 2), (0x1800, 0x2000, 0, 3)]);
        assert_eq!(at(&mut maps, 0x17ff), Some((1, 0x7ff)));
        assert_eq!(at(&mut maps, 0x2800), Some((3, 0x1000)));
        assert_eq!(at(&mut maps, 0x3800), Some((2, 0x800)));
    }

    #[test]
    fn a_hole_is_a_hole() {
        let mut maps = maps(&[(0x1000, 0x3000, 0, 1)]);
        maps.remove(0x2000..0x3000);
        maps.remove(0x3000..0x3000);
        assert_eq!(at(&mut maps, 0x1fff), Some((1, 0xfff)));
        assert_eq!(at(&mut maps, 0x2000), None);
        assert_eq!(at(&mut maps, 0x3000), Some((1, 0x2000)));
    }

    #[test]
    fn copies_are_independent() {
        let mut parent = maps(&[(0x1000, 0x1000, 0, 1)]);
        let mut child = parent.clone();
        child.insert(Mapping::new(0x1000, 0x1000, 0, Some(DsoId(2))));
        assert_eq!(at(&mut parent, 0x1000), Some((1, 0)));
        assert_eq!(at(&mut child, 0x1000), Some((2, 0)));
    }

    #[test]
    fn the_last_address_can_be_mapped() {
        let mut maps = maps(&[(u64::MAX - 0xfff, u64::MAX, 0, 1), (5, 0, 0, 2)]);
        assert_eq!(at(&mut maps, u64::MAX - 1), Some((1, 0xffe)));
        assert_eq!(at(&mut maps, 5), None);
    }

    #[test]
    fn copied_text_is_whole_huge_pages_within_one_file_mapping() {
        let mut maps = maps(&[(0x10_0000, 0x60_0000, 0, 1)]);
        let anon = |start, len| Mapping::new(start, len, 0, None);
        assert!(maps.is_copied_text(&anon(0x20_0000, 0x40_0000)));
        assert!(!maps.is_copied_text(&anon(0x20_0000, 0x3f_f000)));
        assert!(!maps.is_copied_text(&anon(0x20_1000, 0x1f_f000)));
        assert!(!maps.is_copied_text(&anon(0x60_0000, 0x40_0000)));
        assert!(!maps.is_copied_text(&Mapping::new(0x20_0000, 0x20_0000, 0, Some(DsoId(2)))));
        maps.insert(anon(0x20_0000, 0x40_1000));
        assert!(!maps.is_copied_text(&anon(0x20_0000, 0x20_0000)));
    }
}
