// SPDX-License-Identifier: GPL-2.0
//! What a recording says about the machine it was made on: names of threads, address spaces of
//! processes, the kernel and its modules. Records go in, in time order ([`Machine::record`]);
//! callchains of samples come out as [`Frame`]s ([`Machine::frames`]), whichever of the two
//! forms they were recorded in:
//!
//! - build-ID entries need no address space; the file is in the sample;
//! - addresses are looked up in the mappings that the process had at that time.
//!
//! The rules for address spaces are those of the kernel that wrote the records. A fork copies,
//! an exec clears, a new mapping replaces what it overlaps. The end of a thread changes
//! nothing, as others of its process may go on, and as samples are taken until the very end.
//! `munmap()` leaves no record: what looks mapped may be gone, but nothing runs there then.

mod maps;

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use self::maps::Mapping;
use self::maps::Maps;
use crate::abi::BuildId;
use crate::abi::Entry;
use crate::abi::Status;
use crate::abi::context;
use crate::abi::misc;
use crate::data::BuildIdRow;
use crate::place::Dso;
use crate::place::DsoId;
use crate::place::DsoKind;
use crate::place::Dsos;
use crate::place::Frame;
use crate::place::Place;
use crate::record::DeferredFrames;
use crate::record::FileKey;
use crate::record::Mmap;
use crate::record::Record;
use crate::record::Task;
use crate::record::text;
use crate::stream::Joined;

/// `pid` of the kernel's own map records.
const KERNEL_PID: u32 = u32::MAX;

/// Index of a thread's name in [`Machine::comm_name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// A frame and what was recorded for it: an address, or a file offset if a build ID came with
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RawFrame {
    pub frame: Frame,
    pub value: u64,
}

/// The state of the recorded machine at one point in the recording.
#[derive(Debug)]
pub struct Machine {
    /// Files and what there is in place of them.
    pub dsos: Dsos,
    /// Paths that the recording gives for build IDs.
    pub hints: Vec<(BuildId, Arc<str>)>,
    processes: FxHashMap<u32, Maps>,
    kernel_maps: Maps,
    kernel: DsoId,
    comms: Vec<Arc<str>>,
    comm_index: FxHashMap<Arc<str>, CommId>,
    comm_of: FxHashMap<u32, CommId>,
    /// Build IDs from the table at the end of the file, by path.
    table: FxHashMap<String, BuildId>,
    /// DSOs that build-ID entries name.
    by_build_id: FxHashMap<BuildId, DsoId>,
    has_jit: fn(u32) -> bool,
    /// Whether `perf-PID.map` is there, by process.
    jit: FxHashMap<u32, bool>,
}

impl Machine {
    /// A machine of which only the build ID table of the recording is known.
    pub fn new(table: &[BuildIdRow]) -> Self {
        let mut dsos = Dsos::default();
        let kernel_id =
            table.iter().find(|row| row.cpumode == misc::KERNEL && is_kernel(&row.path));
        let kernel = dsos.intern(Dso {
            kind: DsoKind::Kernel,
            path: "[kernel.kallsyms]".into(),
            build_id: kernel_id.map(|row| row.build_id),
        });
        let named = table.iter().filter(|row| !row.path.is_empty());
        let mut machine = Self {
            dsos,
            hints: named.clone().map(|row| (row.build_id, row.path.as_str().into())).collect(),
            processes: FxHashMap::default(),
            kernel_maps: Maps::default(),
            kernel,
            comms: Vec::new(),
            comm_index: FxHashMap::default(),
            comm_of: FxHashMap::default(),
            table: named.map(|row| (row.path.clone(), row.build_id)).collect(),
            by_build_id: FxHashMap::default(),
            has_jit: |pid| Path::new(&format!("/tmp/perf-{pid}.map")).exists(),
            jit: FxHashMap::default(),
        };
        let idle = machine.intern_comm("swapper");
        machine.comm_of.insert(0, idle);
        machine
    }

    /// Uses `has_jit` to tell whether there are symbols for a process's anonymous memory.
    pub fn with_jit(self, has_jit: fn(u32) -> bool) -> Self {
        Self { has_jit, ..self }
    }

    /// The kernel's DSO.
    pub fn kernel(&self) -> DsoId {
        self.kernel
    }

    /// Takes a record other than a sample, in time order.
    pub fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(comm) => {
                let name = self.intern_comm(&text(comm.comm));
                self.comm_of.insert(comm.tid, name);
                if comm.exec {
                    self.processes.remove(&comm.pid);
                }
            }
            Record::Fork(task) => self.fork(task),
            Record::Mmap(mmap) => self.mmap(mmap),
            _ => {}
        }
    }

    fn fork(&mut self, task: &Task) {
        if let Some(&comm) = self.comm_of.get(&task.ptid) {
            self.comm_of.insert(task.tid, comm);
        }
        if task.pid == task.ppid {
            return;
        }
        // What perf made up for processes that were there before has no time, and may come
        // after their maps.
        if task.time == 0 && self.processes.contains_key(&task.pid) {
            return;
        }
        match self.processes.get(&task.ppid).cloned() {
            Some(maps) => self.processes.insert(task.pid, maps),
            None => self.processes.remove(&task.pid),
        };
    }

    fn mmap(&mut self, mmap: &Mmap<'_>) {
        let path = text(mmap.path);
        let in_record = match mmap.file {
            FileKey::BuildId(id) => Some(id),
            _ => None,
        };
        if let Some(id) = in_record.filter(|_| !path.is_empty()) {
            self.hints.push((id, path.as_ref().into()));
        }
        if mmap.pid == KERNEL_PID {
            self.kernel_mmap(mmap, &path, in_record);
            return;
        }
        if mmap.data {
            return;
        }
        let build_id = in_record.or_else(|| self.table.get(path.as_ref()).copied());
        let kind = match path.as_ref() {
            "[vdso]" | "[vdso32]" => DsoKind::Vdso,
            path if is_anonymous(path) => DsoKind::Anon { pid: mmap.pid },
            _ => DsoKind::File,
        };
        let dso = self.dsos.intern(Dso { kind, path: path.as_ref().into(), build_id });
        let mapping = Mapping::new(mmap.addr, mmap.len, mmap.pgoff, dso);
        self.processes.entry(mmap.pid).or_default().insert(mapping);
    }

    fn kernel_mmap(&mut self, mmap: &Mmap<'_>, path: &str, in_record: Option<BuildId>) {
        let build_id = in_record.or_else(|| self.table.get(path).copied());
        let dso = if is_kernel(path) {
            self.kernel
        } else {
            self.dsos.intern(Dso { kind: DsoKind::Module, path: path.into(), build_id })
        };
        self.kernel_maps.insert(Mapping::new(mmap.addr, mmap.len, mmap.pgoff, dso));
    }

    /// The name of thread `tid` now.
    pub fn comm(&mut self, tid: u32) -> CommId {
        match self.comm_of.get(&tid) {
            Some(&comm) => comm,
            None => {
                let comm = self.intern_comm(&format!(":{tid}"));
                self.comm_of.insert(tid, comm);
                comm
            }
        }
    }

    /// The text of a name.
    pub fn comm_name(&self, comm: CommId) -> &str {
        self.comms.get(comm.0 as usize).map_or("", |name| name)
    }

    /// All names so far, by their index.
    pub fn comm_names(&self) -> &[Arc<str>] {
        &self.comms
    }

    fn intern_comm(&mut self, name: &str) -> CommId {
        if let Some(&id) = self.comm_index.get(name) {
            return id;
        }
        let (id, name) = (CommId(self.comms.len() as u32), Arc::<str>::from(name));
        self.comms.push(name.clone());
        self.comm_index.insert(name, id);
        id
    }

    /// Replaces `out` by the frames of a sample, innermost first: its callchain, or else its
    /// instruction pointer. What was announced and never came is a [`Place::Missing`] at the
    /// end.
    pub fn frames(&mut self, joined: &Joined<'_>, out: &mut Vec<RawFrame>) {
        out.clear();
        let sample = &joined.sample;
        let pid = sample.pid.unwrap_or(0);
        if let Some(entries) = sample.bid_callchain {
            self.entries(pid, entries, out);
        } else if let Some(chain) = sample.callchain {
            self.addresses(pid, sample.cpumode, chain.iter().map(|address| address.get()), out);
        } else if let Some(bid) = sample.bid {
            // Deferred: it is the first frame of what came later.
            self.entries(pid, std::slice::from_ref(bid), out);
        } else if let Some(ip) = sample.ip {
            self.addresses(pid, sample.cpumode, [ip].into_iter(), out);
        }
        if let Some(entries) = joined.deferred {
            let before = out.len();
            self.entries(pid, entries, out);
            if sample.bid_callchain.is_none() {
                out.truncate(before.saturating_add(1));
            }
        }
        if joined.missing {
            out.push(RawFrame { frame: Frame { place: Place::Missing, caller: false }, value: 0 });
        }
    }

    /// Appends the frames of entries in build-ID form.
    fn entries(&mut self, pid: u32, entries: &[Entry], out: &mut Vec<RawFrame>) {
        let mut first = true;
        for entry in entries {
            let status = entry.status();
            if matches!(status, Status::Context | Status::Deferred) {
                first = true;
                continue;
            }
            let place = match (status, entry.build_id()) {
                (_, Some(id)) => Place::File { dso: self.by_build_id(id), offset: entry.offset() },
                (Status::Kernel, None) => self.kernel_place(entry.offset()),
                (Status::Anon, None) => self.anon_place(pid, entry.offset()),
                (status, None) => Place::Unresolved(status),
            };
            // The first frame of each context is where it runs, the others are return
            // addresses.
            let frame = Frame { place, caller: !std::mem::replace(&mut first, false) };
            out.push(RawFrame { frame, value: entry.offset() });
        }
    }

    /// Appends the frames of plain addresses with context markers between them.
    fn addresses(
        &mut self,
        pid: u32,
        cpumode: u16,
        chain: impl Iterator<Item = u64>,
        out: &mut Vec<RawFrame>,
    ) {
        let mut mode = cpumode;
        let mut first = true;
        for value in chain {
            if context::is_marker(value) {
                if value == context::USER_DEFERRED {
                    // What follows is its cookie.
                    return;
                }
                mode = mode_of(value);
                first = true;
                continue;
            }
            let place = match mode {
                misc::USER => self.user_place(pid, value),
                misc::KERNEL => self.kernel_place(value),
                _ => Place::Unresolved(Status::Kernel),
            };
            let frame = Frame { place, caller: !std::mem::replace(&mut first, false) };
            out.push(RawFrame { frame, value });
        }
    }

    /// The frames of a `CALLCHAIN_DEFERRED` record by itself.
    pub fn deferred_frames(
        &mut self,
        pid: u32,
        frames: DeferredFrames<'_>,
        out: &mut Vec<RawFrame>,
    ) {
        out.clear();
        match frames {
            DeferredFrames::Entries(entries) => self.entries(pid, entries, out),
            DeferredFrames::Addresses(chain) => {
                self.addresses(pid, misc::USER, chain.iter().map(|address| address.get()), out);
            }
        }
    }

    fn by_build_id(&mut self, id: BuildId) -> DsoId {
        let dsos = &mut self.dsos;
        *self.by_build_id.entry(id).or_insert_with(|| {
            dsos.intern(Dso { kind: DsoKind::File, path: "".into(), build_id: Some(id) })
        })
    }

    /// Where `address` of process `pid` is.
    pub fn user_place(&mut self, pid: u32, address: u64) -> Place {
        let Some(mapping) = self.processes.get_mut(&pid).and_then(|maps| maps.find(address)) else {
            return self.anon_place(pid, address);
        };
        let (dso, offset) = (mapping.dso, mapping.offset_of(address));
        match self.dsos.get(dso).map(|dso| dso.kind) {
            Some(DsoKind::Anon { .. }) | None => self.anon_place(pid, address),
            Some(_) => Place::File { dso, offset },
        }
    }

    fn anon_place(&mut self, pid: u32, address: u64) -> Place {
        let has_jit = self.has_jit;
        if !*self.jit.entry(pid).or_insert_with(|| has_jit(pid)) {
            return Place::Unresolved(Status::Anon);
        }
        let kind = DsoKind::Anon { pid };
        let dso = self.dsos.intern(Dso { kind, path: "//anon".into(), build_id: None });
        Place::Memory { dso, address }
    }

    /// Where `address` of the kernel is.
    pub fn kernel_place(&mut self, address: u64) -> Place {
        let dso = self.kernel_maps.find(address).map_or(self.kernel, |mapping| mapping.dso);
        Place::Memory { dso, address }
    }
}

/// The processor mode that a marker of a callchain announces.
fn mode_of(marker: u64) -> u16 {
    match marker {
        context::KERNEL => misc::KERNEL,
        context::USER => misc::USER,
        context::HV => misc::HYPERVISOR,
        context::GUEST_KERNEL => misc::GUEST_KERNEL,
        _ => misc::GUEST_USER,
    }
}

/// Whether a map record's or a table row's name stands for the kernel image.
fn is_kernel(path: &str) -> bool {
    path.is_empty()
        || path.starts_with("[kernel.kallsyms]")
        || path.starts_with("[kernel.vmlinux]")
        || path.rsplit('/').next().is_some_and(|name| name.starts_with("vmlinux"))
}

/// Whether the name of a mapping says that there is no file behind it.
fn is_anonymous(path: &str) -> bool {
    path.starts_with('[')
        || path.is_empty()
        || ["//anon", "/dev/zero", "/anon_hugepage", "/SYSV", "/memfd:", "//toolong"]
            .iter()
            .any(|name| path.starts_with(name))
}
