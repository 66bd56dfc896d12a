// SPDX-License-Identifier: GPL-2.0
//! What a frame of a callchain is, in terms that outlive the process it was seen in.
//!
//! A recording of ours names a file by its build ID, an ordinary one by the path of a mapping
//! (and a build ID, if the recording has a table of them or the kernel put one into the map
//! record). Both become a [`Dso`]; a frame is a [`Place`] in it. Names are found from places
//! alone, so that each distinct place is looked up once, however many samples fell there.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::abi::BuildId;
use crate::abi::Status;

/// Index of a [`Dso`] in its [`Dsos`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DsoId(pub u32);

/// What kind of code a [`Dso`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DsoKind {
    /// A program or library: places in it are file offsets.
    File,
    /// The vDSO: a file in the kernel's memory.
    Vdso,
    /// The kernel's own image: places in it are addresses.
    Kernel,
    /// A kernel module: places in it are addresses.
    Module,
    /// Code that came into the kernel without a file, such as a BPF program. It is one
    /// function, whose name is the path: places in it are addresses.
    Ksymbol {
        /// Where it begins.
        start: u64,
    },
    /// Memory of one process without a file: places in it are addresses.
    Anon {
        /// The process.
        pid: u32,
    },
}

/// A file, or what there is in place of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dso {
    /// What it is.
    pub kind: DsoKind,
    /// As the kernel recorded it (`/usr/bin/x`, `[vdso]`, `//anon`); empty if only the build ID
    /// is known.
    pub path: Arc<str>,
    /// If it is known.
    pub build_id: Option<BuildId>,
}

/// The distinct [`Dso`]s of a recording.
#[derive(Clone, Debug, Default)]
pub struct Dsos {
    all: Vec<Dso>,
    index: FxHashMap<Dso, DsoId>,
}

impl Dsos {
    /// The index of `dso`, which is added if it is new.
    pub fn intern(&mut self, dso: Dso) -> DsoId {
        if let Some(&id) = self.index.get(&dso) {
            return id;
        }
        let id = DsoId(self.all.len() as u32);
        self.all.push(dso.clone());
        self.index.insert(dso, id);
        id
    }

    /// Takes back what was said about the build ID of a DSO.
    pub(crate) fn forget_build_id(&mut self, id: DsoId) {
        let Some(dso) = self.all.get_mut(id.0 as usize) else {
            return;
        };
        self.index.remove(dso);
        dso.build_id = None;
        // There may be one like that already; the older stands for both.
        self.index.entry(dso.clone()).or_insert(id);
    }

    /// The DSO with index `id` of this table.
    pub fn get(&self, id: DsoId) -> Option<&Dso> {
        self.all.get(id.0 as usize)
    }

    /// All of them, in the order in which they appeared.
    pub fn iter(&self) -> impl Iterator<Item = (DsoId, &Dso)> {
        self.all.iter().enumerate().map(|(index, dso)| (DsoId(index as u32), dso))
    }

    /// Number of DSOs.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In a file: `offset` is the byte offset in it ([`DsoKind::File`], [`DsoKind::Vdso`]).
    File {
        /// The file.
        dso: DsoId,
        /// In bytes.
        offset: u64,
    },
    /// At an address that means something together with the DSO ([`DsoKind::Kernel`],
    /// [`DsoKind::Module`], [`DsoKind::Ksymbol`], [`DsoKind::Anon`]).
    Memory {
        /// Whose address.
        dso: DsoId,
        /// As recorded.
        address: u64,
    },
    /// A user address that could not be resolved, for the reason given.
    Unresolved(Status),
    /// Announced for later, and not in the file.
    Missing,
}

/// An entry of a callchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Where.
    pub place: Place,
    /// It is a return address: the call is before it.
    pub caller: bool,
}
