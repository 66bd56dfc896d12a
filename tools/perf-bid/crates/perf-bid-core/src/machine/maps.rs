// SPDX-License-Identifier: GPL-2.0
//! The mappings of one address space.

use std::sync::Arc;

use crate::place::DsoId;

/// A run of addresses with one file, or something in place of one, behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// File offset of `start`, in bytes.
    pub pgoff: u64,
    /// What is mapped.
    pub dso: DsoId,
}

impl Mapping {
    /// `len` bytes from `start` on. One that would wrap ends at the last address.
    pub fn new(start: u64, len: u64, pgoff: u64, dso: DsoId) -> Self {
        Self { start, end: start.saturating_add(len), pgoff, dso }
    }

    /// The file offset of an address within the mapping.
    pub fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.pgoff)
    }

    fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Mappings that do not overlap, by address. Copies share memory until one is changed.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    sorted: Arc<Vec<Mapping>>,
    /// Where the last address was found.
    last: usize,
}

impl Maps {
    /// Adds a mapping; what it overlaps is cut back or goes.
    pub fn insert(&mut self, new: Mapping) {
        if new.start >= new.end {
            return;
        }
        let sorted = Arc::make_mut(&mut self.sorted);
        let from = sorted.partition_point(|old| old.end <= new.start);
        let to = sorted.partition_point(|old| old.start < new.end);
        let overlapped = sorted.get(from..to.max(from)).unwrap_or_default();
        let head = overlapped.first().filter(|old| old.start < new.start);
        let head = head.map(|old| Mapping { end: new.start, ..*old });
        let tail = overlapped.last().filter(|old| old.end > new.end);
        let tail =
            tail.map(|old| Mapping { start: new.end, pgoff: old.offset_of(new.end), ..*old });
        let parts = head.into_iter().chain([new]).chain(tail);
        sorted.splice(from..to.max(from), parts);
    }

    /// The mapping that `address` is in.
    pub fn find(&mut self, address: u64) -> Option<Mapping> {
        if let Some(mapping) = self.sorted.get(self.last).filter(|m| m.contains(address)) {
            return Some(*mapping);
        }
        let at = self.sorted.partition_point(|mapping| mapping.end <= address);
        let mapping = self.sorted.get(at).filter(|mapping| mapping.contains(address))?;
        self.last = at;
        Some(*mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(mappings: &[(u64, u64, u64, u32)]) -> Maps {
        let mut maps = Maps::default();
        for &(start, len, pgoff, dso) in mappings {
            maps.insert(Mapping::new(start, len, pgoff, DsoId(dso)));
        }
        maps
    }

    fn at(maps: &mut Maps, address: u64) -> Option<(u32, u64)> {
        maps.find(address).map(|mapping| (mapping.dso.0, mapping.offset_of(address)))
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
    fn copies_are_independent() {
        let mut parent = maps(&[(0x1000, 0x1000, 0, 1)]);
        let mut child = parent.clone();
        child.insert(Mapping::new(0x1000, 0x1000, 0, DsoId(2)));
        assert_eq!(at(&mut parent, 0x1000), Some((1, 0)));
        assert_eq!(at(&mut child, 0x1000), Some((2, 0)));
    }

    #[test]
    fn the_last_address_can_be_mapped() {
        let mut maps = maps(&[(u64::MAX - 0xfff, u64::MAX, 0, 1), (5, 0, 0, 2)]);
        assert_eq!(at(&mut maps, u64::MAX - 1), Some((1, 0xffe)));
        assert_eq!(at(&mut maps, 5), None);
    }
}
