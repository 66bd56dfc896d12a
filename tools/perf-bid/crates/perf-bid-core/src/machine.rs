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
//! an exec clears (but what called it is the old program, until the new one is seen to run), a
//! new mapping replaces what it overlaps. The end of a thread changes nothing, as others of its
//! process may go on, and as samples are taken until the very end. `munmap()` leaves no record:
//! what looks mapped may be gone, but nothing runs there then. Files of before Linux 3.16 do not
//! tell an exec from another change of name; what the old program had mapped stays there until
//! the new one covers it.
//!
//! One mapping does not replace what it overlaps. Some programs copy their text into anonymous
//! memory at the same addresses, so that it lies in huge pages. What runs there is still what
//! the file has at that place. So memory that covers whole huge pages (2 MiB, both ends
//! aligned) within one mapping of a file is taken for such a copy. That is a guess: generated
//! code could lie there if the file was unmapped, so that a `perf-PID.map` speaks against it. It is
//! not claimed for anything else: memory of another form or across the edge of a file's mapping
//! is what it looks like, generated code.

mod files;
mod maps;
mod process;

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use zerocopy::native_endian::U64;

use self::files::Files;
use self::maps::Mapping;
use self::maps::Maps;
use self::process::Processes;
use self::process::Space;
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
use crate::record::Ksymbol;
use crate::record::Mmap;
use crate::record::Record;
use crate::record::Task;
use crate::record::text;
use crate::stream::Joined;

/// `pid` of the kernel's own map records.
const KERNEL_PID: u32 = u32::MAX;

/// `PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER`: bit of [`Ksymbol::flags`].
const KSYMBOL_UNREGISTER: u16 = 1;

/// Bit of [`Mmap::prot`].
const PROT_EXEC: u32 = 4;

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

/// A symbol of the recorded kernel and its address there: how far the kernel was moved when
/// it was booted follows from the same symbol's address in its image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct KernelReference {
    pub symbol: String,
    pub address: u64,
}

/// The state of the recorded machine at one point in the recording.
#[derive(Debug)]
pub struct Machine {
    /// Files and what there is in place of them.
    pub dsos: Dsos,
    /// Paths that the table gives for build IDs; those of records are in [`Machine::dsos`].
    hints: Vec<(BuildId, Arc<str>)>,
    files: Files,
    processes: Processes,
    kernel_maps: Maps,
    kernel: DsoId,
    kernel_reference: Option<KernelReference>,
    comms: Vec<Arc<str>>,
    comm_index: FxHashMap<Arc<str>, CommId>,
    /// Names of threads. What has ended is kept: there are only so many IDs.
    comm_of: FxHashMap<u32, CommId>,
    /// DSOs that build-ID entries name.
    by_build_id: FxHashMap<BuildId, DsoId>,
    has_jit: fn(u32) -> bool,
    /// What stands for the memory of a process, if there is a `perf-PID.map`.
    memory: FxHashMap<u32, Option<DsoId>>,
}

impl Machine {
    /// A machine of which only the build ID table of the recording is known.
    pub fn new(table: &[BuildIdRow]) -> Self {
        let mut dsos = Dsos::default();
        let kernel_id =
            table.iter().find(|row| row.cpumode == misc::KERNEL && is_kernel(row.path.as_bytes()));
        let kernel = dsos.intern(Dso {
            kind: DsoKind::Kernel,
            path: "[kernel.kallsyms]".into(),
            build_id: kernel_id.map(|row| row.build_id),
        });
        let mut files = Files::default();
        let named = table.iter().filter(|row| !row.path.is_empty());
        named.clone().for_each(|row| files.add_row(row));
        let mut machine = Self {
            dsos,
            hints: named.map(|row| (row.build_id, row.path.as_str().into())).collect(),
            files,
            processes: Processes::default(),
            kernel_maps: Maps::default(),
            kernel,
            kernel_reference: None,
            comms: Vec::new(),
            comm_index: FxHashMap::default(),
            comm_of: FxHashMap::default(),
            by_build_id: FxHashMap::default(),
            has_jit: |pid| Path::new(&format!("/tmp/perf-{pid}.map")).exists(),
            memory: FxHashMap::default(),
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

    /// What kernel addresses of the recording are relative to, if it says so.
    pub fn kernel_reference(&self) -> Option<&KernelReference> {
        self.kernel_reference.as_ref()
    }

    /// Paths that the recording gives for build IDs so far.
    pub fn hints(&self) -> Vec<(BuildId, Arc<str>)> {
        let named = self.dsos.iter().filter(|(_, dso)| !dso.path.is_empty());
        let mapped = named.filter_map(|(_, dso)| Some((dso.build_id?, dso.path.clone())));
        self.hints.iter().cloned().chain(mapped).collect()
    }

    /// Takes a record other than a sample, in time order.
    pub fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(comm) => {
                let name = self.intern_comm(&text(comm.comm));
                self.comm_of.insert(comm.tid, name);
                if comm.exec {
                    self.processes.exec(comm.pid);
                }
            }
            Record::Fork(task) => {
                self.inherit_comm(task);
                self.processes.fork(task);
            }
            Record::Exit(task) => self.processes.exit(task),
            Record::Mmap(mmap) if mmap.pid == KERNEL_PID => self.kernel_mmap(mmap),
            Record::Ksymbol(ksymbol) => self.ksymbol(ksymbol),
            Record::Mmap(mmap) if is_code(mmap) => self.mmap(mmap),
            _ => {}
        }
    }

    fn inherit_comm(&mut self, task: &Task) {
        let Some(&comm) = self.comm_of.get(&task.ptid) else {
            return;
        };
        if process::is_made_up(task) {
            // It has a name of its own, which may have come first.
            self.comm_of.entry(task.tid).or_insert(comm);
        } else {
            self.comm_of.insert(task.tid, comm);
        }
    }

    fn mmap(&mut self, mmap: &Mmap<'_>) {
        let by_record = matches!(mmap.file, FileKey::BuildId(_));
        let vdso = mmap.path.starts_with(b"[vdso");
        let dso = if files::is_memory(mmap.path) && !by_record && !vdso {
            None
        } else {
            Some(self.files.dso(mmap.path, mmap.file, &mut self.dsos))
        };
        let mapping = Mapping::new(mmap.addr, mmap.len, mmap.pgoff, dso);
        let maps = self.processes.maps_mut(mmap.pid, mmap.id.time.unwrap_or(0));
        if !maps.is_copied_text(&mapping) || (self.has_jit)(mmap.pid) {
            maps.insert(mapping);
        }
    }

    fn kernel_mmap(&mut self, mmap: &Mmap<'_>) {
        let image = is_kernel(mmap.path);
        let dso = if image || mmap.path.starts_with(TRAMPOLINE) {
            self.kernel
        } else {
            let build_id = match mmap.file {
                FileKey::BuildId(id) => Some(id),
                _ => self.files.row(mmap.path),
            };
            let path = text(mmap.path).into();
            self.dsos.intern(Dso { kind: DsoKind::Module, path, build_id })
        };
        if image && self.kernel_reference.is_none() {
            self.kernel_reference = reference(mmap);
        }
        // Addresses of the kernel and of modules are looked up as they are. A trampoline is a
        // second mapping of code that the image has elsewhere.
        let pgoff = if mmap.path.starts_with(TRAMPOLINE) { mmap.pgoff } else { mmap.addr };
        self.kernel_maps.insert(Mapping::new(mmap.addr, mmap.len, pgoff, Some(dso)));
    }

    fn ksymbol(&mut self, ksymbol: &Ksymbol<'_>) {
        let (start, len) = (ksymbol.addr, u64::from(ksymbol.len));
        if ksymbol.flags & KSYMBOL_UNREGISTER != 0 {
            self.kernel_maps.remove(start..start.saturating_add(len));
            return;
        }
        let (kind, path) = (DsoKind::Ksymbol { start }, text(ksymbol.name).into());
        let dso = self.dsos.intern(Dso { kind, path, build_id: None });
        self.kernel_maps.insert(Mapping::new(start, len, start, Some(dso)));
    }

    /// The name of thread `tid` now.
    pub fn comm(&mut self, tid: u32) -> CommId {
        match self.comm_of.get(&tid) {
            Some(&comm) => comm,
            None => {
                // -1 is one that is past its end.
                let comm = self.intern_comm(&format!(":{}", tid as i32));
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
        let at = At { pid, time: sample.time.unwrap_or(0) };
        if sample.cpumode == misc::USER {
            self.processes.ran(pid);
        }
        if let Some(entries) = sample.bid_callchain {
            self.entries(pid, entries, out);
            self.entries(pid, joined.deferred.unwrap_or_default(), out);
        } else if let Some(chain) = sample.callchain {
            self.addresses(at, sample.cpumode, chain, out);
            if let Some(later) = joined.deferred_addresses {
                self.addresses(at, misc::USER, later, out);
            } else {
                self.entries(pid, joined.deferred.unwrap_or_default(), out);
            }
        } else {
            self.instruction(joined, at, out);
        }
        if joined.missing {
            self.missing(joined, at, out);
        }
    }

    /// The same, but a sample whose callchain lacks the mode it was taken in begins with its
    /// instruction pointer: the chain was not asked for in that mode, or is still to be made from
    /// a copy of the stack.
    pub fn frames_from_ip(&mut self, joined: &Joined<'_>, out: &mut Vec<RawFrame>) {
        self.frames(joined, out);
        let sample = &joined.sample;
        let lacks = match out.first() {
            Some(first) => sample.cpumode == misc::KERNEL && !self.in_kernel(first.frame.place),
            None => true,
        };
        if lacks {
            let at = At { pid: sample.pid.unwrap_or(0), time: sample.time.unwrap_or(0) };
            let callers = out.len();
            self.instruction(joined, at, out);
            out.rotate_left(callers);
        }
    }

    fn in_kernel(&self, place: Place) -> bool {
        let Place::Memory { dso, .. } = place else {
            return false;
        };
        self.dsos.get(dso).is_some_and(|dso| !matches!(dso.kind, DsoKind::Anon { .. }))
    }

    /// Appends where the sample itself was taken.
    fn instruction(&mut self, joined: &Joined<'_>, at: At, out: &mut Vec<RawFrame>) {
        let sample = &joined.sample;
        if let Some(bid) = sample.bid {
            // Deferred: it is the first frame of what came later.
            self.entries(at.pid, std::slice::from_ref(bid), out);
            let before = out.len();
            self.entries(at.pid, joined.deferred.unwrap_or_default(), out);
            out.truncate(before.max(1));
        } else if let Some(ip) = sample.ip {
            self.addresses(at, sample.cpumode, &[U64::new(ip)], out);
        }
    }

    /// Appends what is known of a callchain that was announced and never came.
    fn missing(&mut self, joined: &Joined<'_>, at: At, out: &mut Vec<RawFrame>) {
        let sample = &joined.sample;
        let ip = sample.ip.filter(|_| sample.cpumode == misc::USER && sample.bid.is_none());
        if let Some(ip) = ip.filter(|_| out.is_empty()) {
            self.addresses(at, misc::USER, &[U64::new(ip)], out);
        }
        out.push(RawFrame { frame: Frame { place: Place::Missing, caller: false }, value: 0 });
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
    fn addresses(&mut self, at: At, cpumode: u16, chain: &[U64], out: &mut Vec<RawFrame>) {
        let mut space = self.processes.space(at.pid, at.time);
        let (kernel_maps, kernel) = (&mut self.kernel_maps, self.kernel);
        let mut memory = None;
        let mut mode = cpumode;
        let mut first = true;
        for value in chain.iter().map(|value| value.get()) {
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
                misc::USER => user_place(space.as_mut(), value).unwrap_or_else(|| {
                    memory_place(
                        *memory.get_or_insert_with(|| {
                            memory_of(&mut self.memory, &mut self.dsos, self.has_jit, at.pid)
                        }),
                        value,
                    )
                }),
                misc::KERNEL => kernel_place(kernel_maps, kernel, value),
                _ => Place::Unresolved(Status::Kernel),
            };
            let frame = Frame { place, caller: !std::mem::replace(&mut first, false) };
            out.push(RawFrame { frame, value });
        }
    }

    /// The frames of a `CALLCHAIN_DEFERRED` record by itself, taken in process `pid`.
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
                self.addresses(At { pid, time: 0 }, misc::USER, chain, out);
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
        user_place(self.processes.space(pid, 0).as_mut(), address)
            .unwrap_or_else(|| self.anon_place(pid, address))
    }

    fn anon_place(&mut self, pid: u32, address: u64) -> Place {
        let memory = memory_of(&mut self.memory, &mut self.dsos, self.has_jit, pid);
        memory_place(memory, address)
    }

    /// Where `address` of the kernel is.
    pub fn kernel_place(&mut self, address: u64) -> Place {
        kernel_place(&mut self.kernel_maps, self.kernel, address)
    }
}

/// In which address space, and when.
#[derive(Clone, Copy, Debug)]
struct At {
    pid: u32,
    time: u64,
}

/// Where a user address is, if that is in a file.
fn user_place(space: Option<&mut Space<'_>>, address: u64) -> Option<Place> {
    let mapping = space?.find(address)?;
    Some(Place::File { dso: mapping.dso?, offset: mapping.offset_of(address) })
}

/// What stands for the memory of process `pid`, if there are symbols for it.
fn memory_of(
    memory: &mut FxHashMap<u32, Option<DsoId>>,
    dsos: &mut Dsos,
    has_jit: fn(u32) -> bool,
    pid: u32,
) -> Option<DsoId> {
    let kind = DsoKind::Anon { pid };
    *memory.entry(pid).or_insert_with(|| {
        has_jit(pid).then(|| dsos.intern(Dso { kind, path: "//anon".into(), build_id: None }))
    })
}

fn memory_place(memory: Option<DsoId>, address: u64) -> Place {
    match memory {
        Some(dso) => Place::Memory { dso, address },
        None => Place::Unresolved(Status::Anon),
    }
}

fn kernel_place(maps: &mut Maps, kernel: DsoId, address: u64) -> Place {
    let mapping = maps.find(address);
    let address = mapping.map_or(address, |mapping| mapping.offset_of(address));
    Place::Memory { dso: mapping.and_then(|mapping| mapping.dso).unwrap_or(kernel), address }
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

/// Start of the name of what the kernel enters through, where that is mapped twice.
const TRAMPOLINE: &[u8] = b"__entry_SYSCALL_64_trampoline";

/// Whether a map record's or a table row's name stands for the kernel image.
fn is_kernel(name: &[u8]) -> bool {
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name.is_empty()
        || name.starts_with(b"[kernel.kallsyms]")
        || name.starts_with(b"[kernel.vmlinux]")
        || file.starts_with(b"vmlinux")
}

/// The symbol that the kernel's map record is named after.
fn reference(mmap: &Mmap<'_>) -> Option<KernelReference> {
    let symbol = mmap.path.rsplit(|&byte| byte == b']').next()?;
    let named = mmap.path.contains(&b']') && !symbol.is_empty() && mmap.pgoff != 0;
    named.then(|| KernelReference { symbol: text(symbol).into_owned(), address: mmap.pgoff })
}

/// Whether a mapping can be run. Records without flags (MMAP) are of mappings that can, unless
/// they are marked.
fn is_code(mmap: &Mmap<'_>) -> bool {
    let with_flags = mmap.file != FileKey::None;
    !mmap.data && (!with_flags || mmap.prot & PROT_EXEC != 0)
}
