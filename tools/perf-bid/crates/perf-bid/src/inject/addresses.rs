// SPDX-License-Identifier: GPL-2.0
//! `--to-mmaps`: from build IDs and file offsets to addresses in mappings that are made up.
//! Tools that know nothing of build-ID entries, nor of deferred callchains, find an ordinary
//! recording: each callchain is whole and in its sample, and each process has mapped what its
//! samples hit.

use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::context;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::record_type;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::cursor::Malformed;
use perf_bid_core::data::EventDesc;
use perf_bid_core::data::PerfData;
use perf_bid_core::encode::CodeMap;
use perf_bid_core::encode::MapFile;
use perf_bid_core::encode::RECORD_MAX;
use perf_bid_core::encode::put_raw;
use perf_bid_core::record::FileKey;
use perf_bid_core::record::Format;
use perf_bid_core::record::Mmap;
use perf_bid_core::record::Parts;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::Record;
use perf_bid_core::record::Sample;
use perf_bid_core::record::text;
use perf_bid_core::store::Store;
use perf_bid_core::stream::Sorted;
use perf_bid_core::stream::Undecoded;
use rustc_hash::FxHashMap;

use super::HEADER_RECORDS;
use super::KERNEL_PID;
use super::Progress;
use super::Sink;
use super::Summary;
use super::TRACE;
use super::Written;
use super::chains::Chains;
use super::layout::Layout;
use super::layout::MapId;
use crate::cli;

/// What the kernel calls the vDSO.
const VDSO: &str = "[vdso]";

/// What is to be done to the samples of one event.
struct Plan {
    changed: bool,
    attr: Attr,
    format: Format,
}

impl Plan {
    fn of(event: &EventDesc) -> Self {
        let mut attr = event.attr.clone();
        let changed = attr.wants_build_ids();
        if changed {
            if attr.has_sample(sample::CALLCHAIN_BUILD_ID_OFFSET) {
                attr.sample_type |= sample::CALLCHAIN;
            }
            attr.sample_type |= sample::IP;
            attr.sample_type &= !sample::NEW;
            attr.flags &= !(flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT);
            attr.flags |= flag::MMAP | flag::MMAP2;
        }
        Self { changed, format: Format::from(&attr), attr }
    }
}

/// Converts `data` and gives the result its name.
pub fn convert<B: Deref<Target = [u8]>>(
    args: &cli::Inject,
    data: &PerfData<B>,
    progress: &Progress,
) -> Result<Written> {
    let plans: Vec<_> = data.events().iter().map(Plan::of).collect();
    if !plans.iter().any(|plan| plan.changed) {
        bail!(
            "{}: no event's samples carry build IDs; it is an ordinary recording already",
            args.input.display()
        );
    }
    let converter = Converter {
        data,
        sink: Sink::create(&args.output, data, plans.iter().map(|plan| &plan.attr))?,
        layout: Layout::new(Store::default(), &data.features().build_ids),
        plans,
        with_build_ids: !args.no_buildid_mmap,
        mapped: FxHashMap::default(),
        chains: Chains::of(data),
        kernel_mapped: false,
        summary: Summary::default(),
        chain: Vec::new(),
    };
    converter.run(progress)
}

struct Converter<'a, 'p, B> {
    data: &'a PerfData<B>,
    plans: Vec<Plan>,
    sink: Sink<'p>,
    layout: Layout,
    /// Map records name files by build ID.
    with_build_ids: bool,
    /// What each process has mapped.
    mapped: FxHashMap<u32, Vec<bool>>,
    chains: Chains<'a, B>,
    kernel_mapped: bool,
    summary: Summary,
    /// A callchain in the making.
    chain: Vec<u8>,
}

impl<'a, B: Deref<Target = [u8]>> Converter<'a, '_, B> {
    fn run(mut self, progress: &Progress) -> Result<Written> {
        let mut damage = None;
        let mut count = 0u32;
        let mut records = Sorted::new(self.data);
        while !self.sink.failed
            && let Some(record) = records.next()
        {
            match record.and_then(|record| Ok((record.time, self.record(&record)?))) {
                Ok((time, true)) => self.sink.done(time),
                Ok((_, false)) => {}
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) {
                progress.set(records.position());
            }
        }
        self.summary.missing = self.chains.missing;
        let table = self.layout.table().filter(|row| row.path != VDSO).collect();
        let len = self.sink.finish(self.data, table, &[])?;
        Ok(Written { summary: self.summary, len, damage })
    }

    /// Appends what becomes of a record; `false` if it is left out.
    fn record(&mut self, record: &Undecoded<'a>) -> Result<bool, Malformed> {
        match record.raw.type_ {
            record_type::SAMPLE => self.sample(record),
            _ => self.other(&record.raw),
        }
    }

    /// Appends a record that is no sample, unless it is left out.
    fn other(&mut self, raw: &RawRecord<'a>) -> Result<bool, Malformed> {
        match raw.type_ {
            // Its callchain is in the samples now.
            record_type::CALLCHAIN_DEFERRED if raw.misc & misc::CALLCHAIN_BUILD_ID != 0 => {
                return Ok(false);
            }
            type_ if HEADER_RECORDS.contains(&type_) => return Ok(false),
            record_type::AUXTRACE => return Err(Malformed::new(raw.offset, TRACE)),
            record_type::MMAP | record_type::MMAP2 | record_type::COMM | record_type::FORK => {
                match self.data.decode(raw)? {
                    Record::Mmap(mmap) => self.own_map(&mmap),
                    Record::Comm(comm) if comm.exec => drop(self.mapped.remove(&comm.pid)),
                    Record::Fork(task) if task.pid != task.ppid => {
                        self.mapped.remove(&task.pid);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        put_raw(&mut self.sink.buffer, raw);
        Ok(true)
    }

    /// A map record of the recording stays: addresses without a build ID may be in it.
    fn own_map(&mut self, mmap: &Mmap<'_>) {
        self.kernel_mapped |= mmap.pid == KERNEL_PID;
        if let FileKey::BuildId(id) = mmap.file {
            self.layout.hint(id, &text(mmap.path));
        }
    }

    fn sample(&mut self, record: &Undecoded<'a>) -> Result<bool, Malformed> {
        let raw = &record.raw;
        let (Some(event), Some(plan)) =
            (self.data.events().get(record.event), self.plans.get(record.event))
        else {
            return Ok(false);
        };
        let (sample_type, format, changed) = (plan.attr.sample_type, plan.format, plan.changed);
        let Record::Sample(sample) = event.format.decode(raw)? else {
            return Ok(false);
        };
        self.summary.samples += 1;
        let deferred = self.chains.next(&sample);
        if !changed {
            put_raw(&mut self.sink.buffer, raw);
            return Ok(true);
        }
        let task = Task::of(&sample, format);
        self.map_kernel(&task);
        let mut parts = Parts::of(&event.format, raw)?;
        let leaf = leaf(&sample, deferred);
        let mode = if leaf.is_some_and(is_kernel) { misc::KERNEL } else { misc::USER };
        let ip = leaf.map_or(0, |leaf| self.address(leaf, &task)).to_ne_bytes();
        parts.set(sample::IP, &ip);
        if let Some(own) = sample.bid_callchain {
            let mut chain = std::mem::take(&mut self.chain);
            self.callchain(own, deferred, &task, &mut chain);
            self.chain = chain;
            parts.set(sample::CALLCHAIN, &[]);
            self.clamp(RECORD_MAX.saturating_sub(parts.record_len(sample_type)));
            parts.set(sample::CALLCHAIN, &self.chain);
        }
        let fits = parts.put(&mut self.sink.buffer, misc_for(raw, mode), sample_type);
        self.summary.too_long += u64::from(!fits);
        Ok(fits)
    }

    /// Replaces `out` by the whole callchain as addresses, its length first.
    fn callchain(
        &mut self,
        own: &[Entry],
        deferred: Option<&[Entry]>,
        task: &Task,
        out: &mut Vec<u8>,
    ) {
        let mut nr = 0u64;
        out.clear();
        out.extend_from_slice(&nr.to_ne_bytes());
        let mut put = |value: u64| {
            out.extend_from_slice(&value.to_ne_bytes());
            nr += 1;
        };
        for entry in own {
            match (entry.status(), entry.offset()) {
                (Status::Context, context::USER_DEFERRED) | (Status::Deferred, _) => break,
                (Status::Context, marker) => put(marker),
                _ => put(self.address(entry, task)),
            }
        }
        if let Some(deferred) = deferred {
            put(context::USER);
            deferred.iter().filter(is_frame).for_each(|entry| put(self.address(entry, task)));
        }
        out.iter_mut().zip(nr.to_ne_bytes()).for_each(|(byte, value)| *byte = value);
    }

    /// Cuts the callchain at hand to `room` bytes.
    fn clamp(&mut self, room: usize) {
        let room = room & !7;
        let over = self.chain.len().saturating_sub(room);
        if over == 0 || room < 8 {
            return;
        }
        self.summary.clamped += over as u64 / 8;
        self.chain.truncate(room);
        let nr = (room as u64 / 8 - 1).to_ne_bytes();
        self.chain.iter_mut().zip(nr).for_each(|(byte, value)| *byte = value);
    }

    /// The address of an entry; its mapping is there before the sample is.
    fn address(&mut self, entry: &Entry, task: &Task) -> u64 {
        if is_kernel(entry) {
            self.summary.kernel += 1;
            return entry.offset();
        }
        self.summary.count(entry.status());
        let place = entry.build_id().and_then(|id| self.layout.place(id, entry.offset()));
        let Some((address, map)) = place else {
            return entry.offset();
        };
        self.need(map, task);
        address
    }

    fn need(&mut self, id: MapId, task: &Task) {
        let mapped = self.mapped.entry(task.pid).or_default();
        if mapped.len() <= id {
            mapped.resize(id + 1, false);
        }
        match mapped.get_mut(id) {
            Some(mapped) if !*mapped => *mapped = true,
            _ => return,
        }
        let Some(map) = self.layout.map(id) else {
            return;
        };
        let path = self.layout.name(map.build_id);
        // perf takes the vDSO's symbols from its own, but not if it has been told a build ID.
        let with_build_id = self.with_build_ids && path != VDSO;
        let file = if with_build_id { MapFile::BuildId(map.build_id) } else { inode_of(path) };
        let record = CodeMap {
            cpumode: misc::USER,
            pid: task.pid,
            tid: task.tid,
            addr: map.addr,
            len: map.len,
            pgoff: map.pgoff,
            file,
            path: path.as_bytes(),
            time: task.time,
            id: task.id,
        };
        record.put(&mut self.sink.buffer, &task.format);
        self.summary.maps += 1;
    }

    /// Says where the kernel is, if the recording does not and it is from this very boot.
    fn map_kernel(&mut self, task: &Task) {
        if std::mem::replace(&mut self.kernel_mapped, true) {
            return;
        }
        let features = self.data.features();
        let Some((start, end)) = kernel_text(features.info.boot_id.as_deref()) else {
            return;
        };
        let row = features.build_ids.iter().find(|row| row.cpumode == misc::KERNEL);
        let no_inode = MapFile::Inode { maj: 0, min: 0, ino: 0 };
        let record = CodeMap {
            cpumode: misc::KERNEL,
            pid: KERNEL_PID,
            tid: 0,
            addr: start,
            len: end.saturating_sub(start),
            // perf takes it for the address of the symbol that the path ends in.
            pgoff: start,
            file: row
                .filter(|_| self.with_build_ids)
                .map_or(no_inode, |row| MapFile::BuildId(row.build_id)),
            path: b"[kernel.kallsyms]_text",
            time: task.time,
            id: task.id,
        };
        record.put(&mut self.sink.buffer, &task.format);
        self.summary.maps += 1;
    }
}

/// Whose sample it is, and when; what a map record is signed with.
struct Task {
    pid: u32,
    tid: u32,
    time: u64,
    id: u64,
    format: Format,
}

impl Task {
    fn of(sample: &Sample<'_>, format: Format) -> Self {
        Self {
            pid: sample.pid.unwrap_or(0),
            tid: sample.tid.unwrap_or(0),
            time: sample.time.unwrap_or(0),
            id: sample.id.unwrap_or(0),
            format,
        }
    }
}

/// The entry of the instruction pointer: the sample's own, or the first frame of its callchain.
fn leaf<'a>(sample: &Sample<'a>, deferred: Option<&'a [Entry]>) -> Option<&'a Entry> {
    let own = sample.bid.filter(|bid| bid.status() != Status::Deferred);
    own.or_else(|| {
        // A user-mode sample that is deferred has no frames of the kernel.
        let chain = sample.bid_callchain.filter(|_| sample.bid.is_none()).unwrap_or_default();
        chain.iter().chain(deferred.unwrap_or_default()).find(is_frame)
    })
}

fn is_frame(entry: &&Entry) -> bool {
    !matches!(entry.status(), Status::Context | Status::Deferred)
}

fn is_kernel(entry: &Entry) -> bool {
    entry.status() == Status::Kernel
}

/// The record's `misc`, with a processor mode that fits the instruction pointer: where it was
/// taken from the callchain, it need not be where the sample was.
fn misc_for(raw: &RawRecord<'_>, mode: u16) -> u16 {
    let user = raw.cpumode() == misc::USER;
    if user == (mode == misc::USER) { raw.misc } else { raw.misc & !misc::CPUMODE_MASK | mode }
}

/// Device and inode of the file that is at `path` now.
fn inode_of(path: &str) -> MapFile {
    match Path::new(path).metadata() {
        Ok(meta) if path.starts_with('/') => {
            let dev = meta.dev();
            let (maj, min) = (rustix::fs::major(dev), rustix::fs::minor(dev));
            MapFile::Inode { maj, min, ino: meta.ino() }
        }
        _ => MapFile::Inode { maj: 0, min: 0, ino: 0 },
    }
}

/// From where to where the running kernel's code is, if it has been running since `boot`.
fn kernel_text(boot: Option<&str>) -> Option<(u64, u64)> {
    let running = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    boot.filter(|boot| *boot == running.trim())?;
    let symbols = std::fs::read_to_string("/proc/kallsyms").ok()?;
    let address = |name: &str| {
        let mut lines = symbols.lines();
        let line = lines.find(|line| line.split(' ').nth(2) == Some(name))?;
        // Zero for those who shall not see it.
        u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|address| *address != 0)
    };
    Some((address("_text")?, address("_etext")?))
}
