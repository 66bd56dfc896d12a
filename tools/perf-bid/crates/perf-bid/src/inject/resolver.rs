// SPDX-License-Identifier: GPL-2.0
//! From addresses to entries: the mappings tell the file, and the recording or the file itself
//! its build ID.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::misc;
use perf_bid_core::data::BuildIdRow;
use perf_bid_core::data::Features;
use perf_bid_core::machine::Machine;
use perf_bid_core::place::Dso;
use perf_bid_core::place::DsoId;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Place;
use perf_bid_core::record::FileKey;
use perf_bid_core::record::Record;
use perf_bid_core::record::text;
use perf_bid_core::store;
use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;

use super::KERNEL_PID;

/// Addresses that are remembered; a power of two.
const REMEMBERED: usize = 4096;

/// An address and what it was, as long as no mapping changes.
#[derive(Clone, Copy)]
struct Seen {
    pid: u32,
    generation: u32,
    address: u64,
    entry: Entry,
}

/// Resolves user addresses at one point in the recording.
pub struct Resolver {
    machine: Machine,
    /// By a hash of the address: callchains are much alike.
    seen: Vec<Seen>,
    /// Counts the changes of mappings.
    generation: u32,
    /// By [`DsoId`]; the outer `None`: nobody has asked yet.
    ids: Vec<Option<Option<BuildId>>>,
    /// The inode that a path had last.
    inodes: FxHashMap<String, u64>,
    /// The vDSO's, if the recorded kernel is the running one.
    vdso: Option<BuildId>,
    /// When the recording was complete.
    recorded: Option<SystemTime>,
    /// Build IDs that were hit, with the paths they were hit at.
    hit: Vec<BuildIdRow>,
    hit_index: FxHashSet<(BuildId, String)>,
}

impl Resolver {
    /// Knows the build ID table of a recording that was last written at `recorded`.
    pub fn new(features: &Features, recorded: Option<SystemTime>) -> Self {
        let table = &features.build_ids;
        let kernel = table.iter().find(|row| row.cpumode == misc::KERNEL);
        let never =
            Seen { pid: 0, generation: 0, address: 0, entry: Entry::unresolved(Status::Anon, 0) };
        Self {
            seen: vec![never; REMEMBERED],
            generation: 1,
            // Symbols of JIT code are not looked for: its addresses stay as they are.
            machine: Machine::new(table).with_jit(|_| false),
            ids: Vec::new(),
            inodes: FxHashMap::default(),
            vdso: kernel.and_then(|row| vdso_of(row.build_id)),
            recorded,
            hit: Vec::new(),
            hit_index: FxHashSet::default(),
        }
    }

    /// Takes a record that changes address spaces.
    pub fn record(&mut self, record: &Record<'_>) {
        if let Record::Mmap(mmap) = record {
            match mmap.file {
                FileKey::Inode { ino, .. } if ino != 0 => {
                    self.inodes.insert(text(mmap.path).into_owned(), ino);
                }
                FileKey::BuildId(id) if mmap.pid == KERNEL_PID && self.vdso.is_none() => {
                    self.vdso = vdso_of(id);
                }
                _ => {}
            }
        }
        self.machine.record(record);
        self.generation = self.generation.wrapping_add(1).max(1);
    }

    /// The entry for user address `address` of process `pid`.
    pub fn entry(&mut self, pid: u32, address: u64) -> Entry {
        // Fibonacci hashing: the upper bits of the product depend on all of the address.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let generation = self.generation;
        let index = hash as usize % REMEMBERED;
        let same = |seen: &&Seen| {
            seen.address == address && seen.pid == pid && seen.generation == generation
        };
        if let Some(seen) = self.seen.get(index).filter(same) {
            return seen.entry;
        }
        let entry = self.look_up(pid, address);
        if let Some(seen) = self.seen.get_mut(index) {
            *seen = Seen { pid, generation, address, entry };
        }
        entry
    }

    fn look_up(&mut self, pid: u32, address: u64) -> Entry {
        match self.machine.user_place(pid, address) {
            Place::File { dso, offset } => match self.build_id(dso) {
                Some(id) => Entry::resolved(id, offset),
                None => Entry::unresolved(Status::NoBuildId, address),
            },
            _ => Entry::unresolved(Status::Anon, address),
        }
    }

    /// The build IDs that were hit, with their paths.
    pub fn into_hit(self) -> Vec<BuildIdRow> {
        self.hit
    }

    fn build_id(&mut self, dso: DsoId) -> Option<BuildId> {
        let index = dso.0 as usize;
        if let Some(Some(known)) = self.ids.get(index) {
            return *known;
        }
        let id = self.machine.dsos.get(dso).and_then(|dso| self.find(dso));
        if self.ids.len() <= index {
            self.ids.resize(index + 1, None);
        }
        if let Some(slot) = self.ids.get_mut(index) {
            *slot = Some(id);
        }
        self.hit(dso, id?);
        id
    }

    fn hit(&mut self, dso: DsoId, build_id: BuildId) {
        let path = self.machine.dsos.get(dso).map_or("", |dso| &dso.path);
        if self.hit_index.insert((build_id, path.to_owned())) {
            self.hit.push(BuildIdRow { build_id, cpumode: misc::USER, path: path.to_owned() });
        }
    }

    fn find(&self, dso: &Dso) -> Option<BuildId> {
        match dso.kind {
            _ if dso.build_id.is_some() => dso.build_id,
            DsoKind::Vdso => self.vdso,
            DsoKind::File => self.read(&dso.path),
            _ => None,
        }
    }

    /// The build ID of the file at `path`, if it is still the one that was recorded.
    fn read(&self, path: &str) -> Option<BuildId> {
        let meta = Path::new(path).metadata().ok().filter(|meta| meta.is_file())?;
        // Device numbers differ between what the kernel records and what stat() says on several
        // file systems. Inode numbers do not.
        let other = self.inodes.get(path).is_some_and(|ino| *ino != meta.ino());
        let newer = match (self.recorded, meta.modified()) {
            (Some(recorded), Ok(modified)) => modified > recorded,
            _ => false,
        };
        if other || newer { None } else { store::read_elf(Path::new(path)).ok()?.build_id }
    }
}

/// The vDSO's build ID, if the kernel with build ID `kernel` is the running one: nothing but the
/// kernel has the vDSO, and recordings do not tell its ID.
fn vdso_of(kernel: BuildId) -> Option<BuildId> {
    store::vdso_build_id().filter(|_| store::running_kernel_build_id() == Some(kernel))
}
