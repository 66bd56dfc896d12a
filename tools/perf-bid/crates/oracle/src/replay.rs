// SPDX-License-Identifier: GPL-2.0
//! The address space of every process at the time of every sample, from the records the
//! kernel wrote: MMAP2 (also of data mappings), FORK (a child starts with its parent's
//! mappings) and the COMM of an exec (which starts with none).
//!
//! What the records do not tell: `munmap` and `mremap` leave none. A mapping here may
//! therefore be gone in truth ("stale"); one that is missing here cannot exist, unless records
//! were lost or its record is still to come.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::rc::Rc;

use perf_bid_core::record::FileKey;
use perf_bid_core::record::Mmap;
use perf_bid_core::record::text;

/// What a mapping maps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A file.
    File(Rc<FileName>),
    /// The vDSO's image.
    Vdso,
    /// No file: `//anon`, `[heap]`, `[stack]`, `[vvar]` and so on.
    Anonymous,
}

/// How the kernel named a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// Path, perhaps with ` (deleted)`.
    pub path: String,
    /// Build ID, or device and inode.
    pub key: FileKey,
}

impl std::hash::Hash for FileName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // Same path, same bucket: the keys of one path seldom differ.
        self.path.hash(state);
    }
}

/// A run of addresses that maps a run of a file.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Offset in the file of `start`.
    pub pgoff: u64,
    pub executable: bool,
    pub backing: Backing,
    /// Different for every MMAP2 record; pieces and copies of a mapping share it.
    pub instance: u64,
}

impl Mapping {
    /// From a record; `instance` tells it from others.
    pub fn new(mmap: &Mmap<'_>, instance: u64) -> Self {
        Self {
            start: mmap.addr,
            end: mmap.addr.saturating_add(mmap.len),
            pgoff: mmap.pgoff,
            executable: !mmap.data,
            backing: backing(&text(mmap.path), mmap.file),
            instance,
        }
    }

    /// Whether `address` lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The file offset that `address` maps.
    pub fn offset_of(&self, address: u64) -> u64 {
        self.pgoff.wrapping_add(address.wrapping_sub(self.start))
    }
}

fn backing(path: &str, key: FileKey) -> Backing {
    match path {
        "[vdso]" => Backing::Vdso,
        _ if path.starts_with("//") || path.starts_with('[') => Backing::Anonymous,
        // Names of special mappings have no slash; `anon_inode:[perf_event]` and the like
        // have a file, though.
        _ if path.contains('/') || path.contains(':') => {
            Backing::File(Rc::new(FileName { path: path.to_owned(), key }))
        }
        _ => Backing::Anonymous,
    }
}

/// The mappings of one process.
#[derive(Clone, Debug, Default)]
pub struct Space {
    by_start: BTreeMap<u64, Mapping>,
}

impl Space {
    /// The mapping at `address`.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let (_, mapping) = self.by_start.range(..=address).next_back()?;
        mapping.contains(address).then_some(mapping)
    }

    /// Puts a mapping in; what it covers of others is gone.
    pub fn insert(&mut self, new: Mapping) {
        let before = self.by_start.range(..new.start).next_back().map(|(&start, _)| start);
        let within = self.by_start.range(new.start..new.end).map(|(&start, _)| start);
        let touched: Vec<_> = before.into_iter().chain(within).collect();
        for start in touched {
            let Some(old) = self.by_start.remove(&start) else {
                continue;
            };
            if old.start < new.start {
                let end = old.end.min(new.start);
                self.by_start.insert(old.start, Mapping { end, ..old.clone() });
            }
            if old.end > new.end {
                let start = new.end.max(old.start);
                let pgoff = old.offset_of(start);
                self.by_start.insert(start, Mapping { start, pgoff, ..old });
            }
        }
        self.by_start.insert(new.start, new);
    }
}

/// The mappings of all processes.
#[derive(Debug, Default)]
pub struct Spaces {
    by_pid: HashMap<u32, Space>,
}

impl Spaces {
    /// The mappings of process `pid`, if any was ever recorded.
    pub fn of(&self, pid: u32) -> Option<&Space> {
        self.by_pid.get(&pid)
    }

    /// An MMAP2 record.
    pub fn mmap(&mut self, pid: u32, mapping: Mapping) {
        self.by_pid.entry(pid).or_default().insert(mapping);
    }

    /// A FORK record; a new thread shares what its process has.
    pub fn fork(&mut self, pid: u32, parent: u32) {
        if pid != parent {
            let copy = self.by_pid.get(&parent).cloned().unwrap_or_default();
            self.by_pid.insert(pid, copy);
        }
    }

    /// The COMM record of an exec.
    pub fn exec(&mut self, pid: u32) {
        self.by_pid.insert(pid, Space::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, pgoff: u64, instance: u64) -> Mapping {
        Mapping { start, end, pgoff, executable: true, backing: Backing::Anonymous, instance }
    }

    #[test]
    fn a_new_mapping_cuts_old_ones() {
        let mut space = Space::default();
        space.insert(mapping(0x1000, 0x9000, 0x100_0000, 1));
        space.insert(mapping(0x3000, 0x5000, 0, 2));
        assert_eq!(space.find(0xfff).map(|m| m.instance), None);
        assert_eq!(space.find(0x2fff).map(|m| m.instance), Some(1));
        assert_eq!(space.find(0x3000).map(|m| m.instance), Some(2));
        assert_eq!(
            space.find(0x5000).map(|m| (m.instance, m.offset_of(0x5000))),
            Some((1, 0x100_4000))
        );
        assert_eq!(space.find(0x9000).map(|m| m.instance), None);
        // One over several, exactly and beyond.
        space.insert(mapping(0x2000, 0xa000, 0, 3));
        assert_eq!(space.find(0x1fff).map(|m| m.instance), Some(1));
        assert_eq!(space.find(0x8fff).map(|m| m.instance), Some(3));
        space.insert(mapping(0x1000, 0x2000, 0, 4));
        assert_eq!(space.find(0x1000).map(|m| m.instance), Some(4));
    }

    #[test]
    fn children_inherit_and_exec_clears() {
        let mut spaces = Spaces::default();
        spaces.mmap(1, mapping(0x1000, 0x2000, 0, 1));
        spaces.fork(2, 1);
        spaces.fork(1, 1);
        spaces.mmap(1, mapping(0x1000, 0x2000, 0, 2));
        let at =
            |spaces: &Spaces, pid| spaces.of(pid).and_then(|s| s.find(0x1000)).map(|m| m.instance);
        assert_eq!(at(&spaces, 1), Some(2));
        assert_eq!(at(&spaces, 2), Some(1));
        spaces.exec(2);
        assert_eq!(at(&spaces, 2), None);
        assert!(spaces.of(3).is_none());
    }

    #[test]
    fn names() {
        assert_eq!(backing("//anon", FileKey::None), Backing::Anonymous);
        assert_eq!(backing("[heap]", FileKey::None), Backing::Anonymous);
        assert_eq!(backing("[vdso]", FileKey::None), Backing::Vdso);
        assert!(matches!(backing("/bin/x", FileKey::None), Backing::File(_)));
        assert!(matches!(backing("anon_inode:[x]", FileKey::None), Backing::File(_)));
    }
}
