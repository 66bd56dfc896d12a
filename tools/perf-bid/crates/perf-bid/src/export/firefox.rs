// SPDX-License-Identifier: GPL-2.0
//! The Firefox Profiler's processed profile format: every sample with its time, in threads
//! that begin, end and have names, libraries with build IDs and the symbols that were found.
//!
//! A library's symbols have to be there before the first frame in it. So frames are numbered
//! while the recording is read, and looked up and put into samples once it has been.

use std::io::Write;
use std::sync::Arc;
use std::time::SystemTime;

use fxprof_processed_profile::CategoryColor;
use fxprof_processed_profile::CategoryHandle;
use fxprof_processed_profile::CpuDelta;
use fxprof_processed_profile::Frame as FxFrame;
use fxprof_processed_profile::FrameFlags;
use fxprof_processed_profile::FrameInfo;
use fxprof_processed_profile::LibraryHandle;
use fxprof_processed_profile::LibraryInfo;
use fxprof_processed_profile::ProcessHandle;
use fxprof_processed_profile::Profile as FxProfile;
use fxprof_processed_profile::SamplingInterval;
use fxprof_processed_profile::Symbol;
use fxprof_processed_profile::SymbolTable;
use fxprof_processed_profile::ThreadHandle;
use fxprof_processed_profile::Timestamp;
use fxprof_processed_profile::debugid::CodeId;
use fxprof_processed_profile::debugid::DebugId;
use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::flag;
use perf_bid_core::elf::ElfInfo;
use perf_bid_core::machine::Machine;
use perf_bid_core::machine::RawFrame;
use perf_bid_core::place::DsoId;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::profile::FrameId;
use perf_bid_core::profile::StackId;
use perf_bid_core::profile::Stacks;
use perf_bid_core::record::Record;
use perf_bid_core::store::read_elf;
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Joined;
use perf_bid_core::symbols::Resolved;
use perf_bid_core::symbols::Symbolizer;
use rustc_hash::FxHashMap;

use super::Source;
use super::Written;
use crate::open;
use crate::script::Ordered;
use crate::script::hints;

/// Writes the profile.
pub fn write(source: &Source<'_>, out: &mut (dyn Write + Send)) -> Written {
    let mut builder = Builder::new(source)?;
    let mut damage = None;
    for item in Ordered::new(&source.data) {
        match item {
            Ok(Item::Sample(joined)) => builder.sample(&joined),
            Ok(Item::Other(record)) => builder.other(&record),
            Err(error) => damage = Some(error),
        }
    }
    serde_json::to_writer(out, &builder.finish())?;
    Ok(damage)
}

struct Builder<'a> {
    source: &'a Source<'a>,
    out: FxProfile,
    machine: Machine,
    symbolizer: Symbolizer,
    categories: Categories,
    /// Time of the first sample or task.
    start: u64,
    last: u64,
    processes: FxHashMap<u32, ProcessHandle>,
    threads: FxHashMap<u32, Thread>,
    libraries: FxHashMap<DsoId, Library>,
    stacks: Stacks,
    samples: Vec<Sample>,
    raw: Vec<RawFrame>,
}

/// A sample that waits for the end of the recording.
struct Sample {
    thread: ThreadHandle,
    time: u64,
    /// Time on a CPU since the one before, in nanoseconds.
    cpu: u64,
    stack: StackId,
}

#[derive(Clone, Copy)]
struct Thread {
    handle: ThreadHandle,
    /// Time of its last sample.
    sampled: Option<u64>,
}

struct Categories {
    user: CategoryHandle,
    kernel: CategoryHandle,
    other: CategoryHandle,
}

/// A file whose addresses are counted from `base`.
struct Library {
    handle: LibraryHandle,
    /// Turns file offsets into addresses, if the file is at hand.
    elf: Option<ElfInfo>,
    base: u64,
    /// By start: the end as far as it was seen, and the name.
    symbols: FxHashMap<u32, (u32, Arc<str>)>,
}

impl<'a> Builder<'a> {
    fn new(source: &'a Source<'a>) -> anyhow::Result<Self> {
        let data = &source.data;
        let (start, last) = data.features().sample_time.unwrap_or((0, 0));
        let attr = source.events.first().and_then(|&at| data.events().get(at));
        let interval = match attr.map(|event| &event.attr) {
            Some(attr) if attr.has_flags(flag::FREQ) && attr.sample_period > 0 => {
                1_000_000_000 / attr.sample_period
            }
            Some(attr) if attr.sample_period > 0 => attr.sample_period,
            _ => 1_000_000,
        };
        let command = data.features().cmdline.join(" ");
        let product = command.split(" -- ").last().filter(|name| !name.is_empty());
        let wall = source.start(last.saturating_sub(start)).unwrap_or(SystemTime::UNIX_EPOCH);
        let interval = SamplingInterval::from_nanos(interval.clamp(1000, 1_000_000_000));
        let mut out = FxProfile::new(product.unwrap_or("perf-bid"), wall.into(), interval);
        out.set_symbolicated(true);
        out.set_os_name(data.features().os_release.as_deref().unwrap_or("Linux"));
        let categories = Categories {
            user: out.add_category("User", CategoryColor::Yellow),
            kernel: out.add_category("Kernel", CategoryColor::Orange),
            other: CategoryHandle::OTHER,
        };
        let machine = Machine::new(&data.features().build_ids);
        let naming = &source.args.naming;
        let symbolizer = open::symbolizer(data, &hints(data), naming, false)?;
        let (processes, threads, libraries) = Default::default();
        let (stacks, samples, raw) = Default::default();
        Ok(Self {
            source,
            out,
            machine,
            symbolizer,
            categories,
            start,
            last,
            processes,
            threads,
            libraries,
            stacks,
            samples,
            raw,
        })
    }

    fn finish(mut self) -> FxProfile {
        let frames = self.stacks.frames().to_vec();
        let resolved: Vec<_> = frames
            .iter()
            .map(|&frame| self.symbolizer.resolve(&self.machine.dsos, frame))
            .collect();
        let places: Vec<_> =
            frames.iter().zip(&resolved).map(|(frame, found)| self.native(*frame, found)).collect();
        for library in self.libraries.values_mut() {
            let symbols = std::mem::take(&mut library.symbols);
            let symbols = symbols.into_iter().map(|(address, (end, name))| Symbol {
                address,
                size: Some(end.saturating_sub(address)),
                name: name.to_string(),
            });
            let table = Arc::new(SymbolTable::new(symbols.collect()));
            self.out.set_lib_symbol_table(library.handle, table);
        }
        let frames = frames.iter().zip(&resolved).zip(places);
        let frames: Vec<_> =
            frames.map(|((frame, found), place)| self.info(*frame, found, place)).collect();
        let info = |id: FrameId| frames.get(id.0 as usize).cloned();
        for sample in &self.samples {
            let mut chain: Vec<_> = self.stacks.walk(sample.stack).filter_map(info).collect();
            chain.reverse();
            let stack = self.out.intern_stack_frames(sample.thread, chain.into_iter());
            let at = Timestamp::from_nanos_since_reference(sample.time.saturating_sub(self.start));
            let cpu = CpuDelta::from_nanos(sample.cpu);
            self.out.add_sample(sample.thread, at, stack, cpu, 1);
        }
        self.out
    }

    fn at(&mut self, time: u64) -> Timestamp {
        if self.start == 0 {
            self.start = time;
        }
        self.last = self.last.max(time);
        Timestamp::from_nanos_since_reference(time.saturating_sub(self.start))
    }

    fn process(&mut self, pid: u32, time: u64) -> ProcessHandle {
        if let Some(&process) = self.processes.get(&pid) {
            return process;
        }
        let at = self.at(time);
        let comm = self.machine.comm(pid);
        let process = self.out.add_process(self.machine.comm_name(comm), pid, at);
        self.processes.insert(pid, process);
        process
    }

    fn thread(&mut self, pid: u32, tid: u32, time: u64) -> Thread {
        if let Some(&thread) = self.threads.get(&tid) {
            return thread;
        }
        let process = self.process(pid, time);
        let at = self.at(time);
        let handle = self.out.add_thread(process, tid, at, pid == tid);
        let comm = self.machine.comm(tid);
        self.out.set_thread_name(handle, self.machine.comm_name(comm));
        let thread = Thread { handle, sampled: None };
        self.threads.insert(tid, thread);
        thread
    }

    fn other(&mut self, record: &Record<'_>) {
        self.machine.record(record);
        match record {
            Record::Comm(comm) => {
                let name = self.machine.comm(comm.tid);
                let name = self.machine.comm_name(name);
                if let Some(thread) = self.threads.get(&comm.tid) {
                    self.out.set_thread_name(thread.handle, name);
                }
                if let Some(&process) = self.processes.get(&comm.tid) {
                    self.out.set_process_name(process, name);
                }
            }
            // What a tool made up has no time, and tells nothing of when a thread began.
            Record::Fork(task) if task.time >= self.start && task.time > 0 => {
                self.threads.remove(&task.tid);
                if task.pid == task.tid {
                    self.processes.remove(&task.pid);
                }
                self.thread(task.pid, task.tid, task.time);
            }
            Record::Exit(task) => {
                let at = self.at(task.time);
                if let Some(thread) = self.threads.get(&task.tid) {
                    self.out.set_thread_end_time(thread.handle, at);
                }
                if let Some(&process) = self.processes.get(&task.tid) {
                    self.out.set_process_end_time(process, at);
                }
            }
            _ => {}
        }
    }

    fn sample(&mut self, joined: &Joined<'_>) {
        if !self.source.events.contains(&joined.event) {
            return;
        }
        let sample = &joined.sample;
        let (pid, tid) = (sample.pid.unwrap_or(0), sample.tid.unwrap_or(0));
        let time = sample.time.unwrap_or(self.last);
        let thread = self.thread(pid, tid, time);
        self.machine.frames_from_ip(joined, &mut self.raw);
        let stacks = &mut self.stacks;
        let stack = self.raw.iter().rev().fold(StackId::EMPTY, |caller, raw| {
            let frame = stacks.frame(raw.frame);
            stacks.push(caller, frame)
        });
        // A clock's period is time on a CPU, but no more than has passed.
        let period = sample.period.filter(|_| self.source.is_clock(joined.event));
        let passed = time.saturating_sub(thread.sampled.unwrap_or(self.start));
        let cpu = period.unwrap_or(0).min(passed);
        self.at(time);
        self.samples.push(Sample { thread: thread.handle, time, cpu, stack });
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.sampled = Some(time);
        }
    }

    fn info(&mut self, frame: Frame, resolved: &Resolved, native: Option<FxFrame>) -> FrameInfo {
        let kind = dso_of(frame.place).and_then(|dso| self.machine.dsos.get(dso));
        let category = match kind.map(|dso| dso.kind) {
            Some(DsoKind::Kernel | DsoKind::Module) => self.categories.kernel,
            Some(_) => self.categories.user,
            None => self.categories.other,
        };
        let native = native.unwrap_or_else(|| {
            let label = label(frame.place, resolved);
            FxFrame::Label(self.out.intern_string(&label))
        });
        let flags = FrameFlags::empty();
        FrameInfo { frame: native, category_pair: category.into(), flags }
    }

    /// The frame as an address in a library, if it is near enough to the library's base.
    fn native(&mut self, frame: Frame, resolved: &Resolved) -> Option<FxFrame> {
        let at = match frame.place {
            Place::File { offset, .. } => offset,
            Place::Memory { address, .. } => address,
            Place::Unresolved(_) | Place::Missing => return None,
        };
        let library = self.library(dso_of(frame.place)?, at, resolved)?;
        let address = library.relative(at)?;
        if let Some(function) = resolved.functions.last()
            && let Some(start) = library.relative(function.start)
        {
            let symbol = library.symbols.entry(start);
            let symbol = symbol.or_insert_with(|| (start, function.name.clone()));
            symbol.0 = symbol.0.max(address.saturating_add(1));
        }
        Some(match frame.caller {
            true => FxFrame::RelativeAddressFromReturnAddress(library.handle, address),
            false => FxFrame::RelativeAddressFromInstructionPointer(library.handle, address),
        })
    }

    fn library(&mut self, id: DsoId, at: u64, resolved: &Resolved) -> Option<&mut Library> {
        if !self.libraries.contains_key(&id) {
            let dso = self.machine.dsos.get(id)?;
            let path = resolved.file.to_string();
            let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
            let handle = self.out.add_lib(LibraryInfo {
                name: name.clone(),
                debug_name: name,
                path: path.clone(),
                debug_path: path,
                debug_id: dso.build_id.map(debug_id).unwrap_or_default(),
                code_id: dso.build_id.map(|id| CodeId::from_binary(id.as_bytes()).to_string()),
                arch: None,
                symbol_table: None,
            });
            let mut origins = self.symbolizer.problems();
            let file = origins.find(|origin| origin.dso == Some(id))?.file.as_ref();
            let elf = file.and_then(|path| read_elf(path).ok());
            let base = match (&elf, dso.kind) {
                (Some(elf), _) => elf.segments.iter().map(|segment| segment.address).min(),
                (None, DsoKind::File | DsoKind::Vdso) => None,
                // The kernel's count from a round address before the first.
                (None, _) => Some(at & !u64::from(u32::MAX)),
            };
            let (base, symbols) = (base.unwrap_or(0), FxHashMap::default());
            let library = Library { handle, elf, base, symbols };
            self.libraries.insert(id, library);
        }
        self.libraries.get_mut(&id)
    }
}

impl Library {
    /// What the profiler calls a relative address: counted from where the file begins in
    /// memory.
    fn relative(&self, at: u64) -> Option<u32> {
        let address = match &self.elf {
            Some(elf) => elf.address_of(at)?,
            None => at,
        };
        u32::try_from(address.checked_sub(self.base)?).ok()
    }
}

fn dso_of(place: Place) -> Option<DsoId> {
    match place {
        Place::File { dso, .. } | Place::Memory { dso, .. } => Some(dso),
        Place::Unresolved(_) | Place::Missing => None,
    }
}

fn label(place: Place, resolved: &Resolved) -> String {
    match (resolved.functions.last(), place) {
        (Some(function), _) => function.name.to_string(),
        (None, Place::Unresolved(status)) => format!("[{status}]"),
        (None, Place::Missing) => "[deferred, missing]".to_owned(),
        (None, Place::File { offset, .. }) => format!("{}+{offset:#x}", resolved.file),
        (None, Place::Memory { address, .. }) => format!("{address:#x}"),
    }
}

/// The first 16 bytes of the build ID, taken as a GUID in the file's byte order: what symbol
/// servers know a Linux file by.
fn debug_id(id: BuildId) -> DebugId {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(id.as_bytes()).for_each(|(byte, &from)| *byte = from);
    DebugId::from_guid_age(&bytes, 0).unwrap_or_default()
}
