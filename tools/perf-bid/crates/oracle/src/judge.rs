// SPDX-License-Identifier: GPL-2.0
//! Compares every entry with what it should be.
//!
//! | the mapping at the address | the kernel says | judgement                               |
//! | -------------------------- | --------------- | --------------------------------------- |
//! | a file with a build ID     | resolved        | ID and offset must be equal             |
//! |                            | fault, busy, …  | a reason; counted                       |
//! |                            | no build ID     | mismatch: the file has one              |
//! |                            | anon            | see below                               |
//! | a file without             | resolved        | mismatch                                |
//! | no file, or no mapping     | resolved        | mismatch                                |
//!
//! `anon` within a file's mapping is true if the mapping was removed since, which leaves no
//! record. It is proven false if the address is where the sample was executing, or if the
//! same page of the same mapping resolves at a later time: a mapping that is gone does not
//! come back without a record. Else it is counted as "unmapped since, or wrong".
//!
//! A resolved entry that contradicts the mappings is forgiven in one case only: if the record
//! of a mapping that explains ID and offset exactly comes within [`IN_FLIGHT`]. The kernel
//! writes the record after it has made the mapping.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::context;
use perf_bid_core::abi::misc;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::Record;
use perf_bid_core::record::Sample;
use perf_bid_core::store;

use crate::capture::Capture;
use crate::files::Files;
use crate::files::Truth;
use crate::replay::Backing;
use crate::replay::FileName;
use crate::replay::Mapping;
use crate::replay::Spaces;
use crate::verdict::Verdict;

/// How long after a sample the record of a mapping it saw may come, in nanoseconds.
const IN_FLIGHT: u64 = 20_000_000;

const PAGE_SHIFT: u32 = 12;

/// Goes through everything that was captured.
pub fn judge(capture: &Capture) -> Result<Verdict> {
    let records = in_order(capture)?;
    let mut judge = Judge::new(capture, &records)?;
    for (time, raw) in &records {
        match capture.format.decode(raw)? {
            Record::Sample(sample) => judge.sample(&sample, *time),
            Record::Mmap(mmap) => {
                judge.instances += 1;
                judge.verdict.map_records += 1;
                judge.spaces.mmap(mmap.pid, Mapping::new(&mmap, judge.instances));
            }
            Record::Fork(task) => {
                judge.verdict.processes += u64::from(task.pid != task.ppid);
                judge.spaces.fork(task.pid, task.ppid);
            }
            Record::Comm(comm) if comm.exec => {
                judge.verdict.execs += 1;
                judge.spaces.exec(comm.pid);
            }
            Record::Lost(lost) | Record::LostSamples(lost) => judge.verdict.lost += lost.lost,
            _ => {}
        }
    }
    judge.settle_anon();
    let mut verdict = judge.verdict;
    verdict.lost = verdict.lost.max(capture.lost);
    verdict.status = Some(capture.status);
    Ok(verdict)
}

/// All records by time; records of one buffer with the same time stay in their order.
fn in_order(capture: &Capture) -> Result<Vec<(u64, RawRecord<'_>)>> {
    let mut records = Vec::new();
    for ring in &capture.rings {
        let (mut rest, mut offset) = (ring.as_slice(), 0);
        while let Some((raw, after)) = RawRecord::split(rest, offset)? {
            offset += (rest.len() - after.len()) as u64;
            rest = after;
            let Some(time) = capture.format.time(&raw) else {
                bail!("a record of type {} without a time", raw.type_);
            };
            records.push((time, raw));
        }
    }
    records.sort_by_key(|(time, _)| *time);
    Ok(records)
}

/// An `anon` within a file's mapping, to be judged when everything has been seen.
struct AnonCase {
    place: (u32, u64, u64),
    time: u64,
    executing: bool,
    what: String,
}

/// A user address of a sample, with the entry the kernel gave for it.
struct Case<'a> {
    pid: u32,
    time: u64,
    ip: u64,
    entry: &'a Entry,
    /// The sample was taken at this very address in user mode.
    executing: bool,
    event: usize,
}

struct Judge {
    verdict: Verdict,
    spaces: Spaces,
    files: Files,
    instances: u64,
    vdso: Option<BuildId>,
    event_of: HashMap<u64, usize>,
    /// All mappings of each process with their times, for those whose records are late.
    mappings: HashMap<u32, Vec<(u64, Mapping)>>,
    anon: Vec<AnonCase>,
    /// When a page of a mapping last resolved: by process, instance and page.
    alive: HashMap<(u32, u64, u64), u64>,
}

impl Judge {
    fn new(capture: &Capture, records: &[(u64, RawRecord<'_>)]) -> Result<Self> {
        let mut mappings: HashMap<u32, Vec<(u64, Mapping)>> = HashMap::new();
        for (time, raw) in records {
            if let Record::Mmap(mmap) = capture.format.decode(raw)? {
                mappings.entry(mmap.pid).or_default().push((*time, Mapping::new(&mmap, 0)));
            }
        }
        let ids = capture.ids.iter().enumerate();
        Ok(Self {
            verdict: Verdict::new(capture.ids.len()),
            spaces: Spaces::default(),
            files: Files::default(),
            instances: 0,
            vdso: store::vdso_build_id(),
            event_of: ids.flat_map(|(index, ids)| ids.iter().map(move |&id| (id, index))).collect(),
            mappings,
            anon: Vec::new(),
            alive: HashMap::new(),
        })
    }

    fn sample(&mut self, sample: &Sample<'_>, time: u64) {
        let event = sample.id.and_then(|id| self.event_of.get(&id).copied());
        let pid = sample.pid.unwrap_or(0);
        let (Some(event), Some(ip), Some(bid)) = (event, sample.ip, sample.bid) else {
            self.verdict.mismatch(format!("pid {pid}: a sample without event, IP or build ID"));
            return;
        };
        self.verdict.sample(event);
        let in_user = sample.cpumode == misc::USER;
        let case = |ip, entry, executing| Case { pid, time, ip, entry, executing, event };
        if in_user {
            self.user(&case(ip, bid, true));
        } else {
            self.not_user(pid, ip, bid, Status::Kernel);
        }
        let (ips, entries) = match (sample.callchain, sample.bid_callchain) {
            (Some(ips), Some(entries)) if ips.len() == entries.len() => (ips, entries),
            (ips, entries) => {
                let len = |len: Option<usize>| len.map_or("no".to_owned(), |len| len.to_string());
                let (ips, entries) = (len(ips.map(<[_]>::len)), len(entries.map(<[_]>::len)));
                let what = format!("pid {pid}: {ips} addresses, but {entries} entries");
                self.verdict.mismatch(what);
                return;
            }
        };
        let mut user = false;
        let mut first = false;
        for (address, entry) in ips.iter().map(|ip| ip.get()).zip(entries) {
            // A broken stack may hold a value that looks like a marker.
            let marker =
                context::is_marker(address) && (!user || entry.status() == Status::Context);
            if marker {
                user = address == context::USER;
                first = user;
                self.not_user(pid, address, entry, Status::Context);
            } else if user {
                self.user(&case(address, entry, first && in_user && address == ip));
                first = false;
            } else {
                self.not_user(pid, address, entry, Status::Kernel);
            }
        }
    }

    /// A marker or a kernel address: passed through unchanged.
    fn not_user(&mut self, pid: u32, value: u64, entry: &Entry, expected: Status) {
        if expected == Status::Kernel {
            self.verdict.kernel_frames += 1;
        }
        if let Some(what) = entry.violation() {
            self.verdict.mismatch(format!("pid {pid}: {value:#x}: {what}"));
        } else if (entry.status(), entry.offset()) != (expected, value) {
            self.verdict.mismatch(format!(
                "pid {pid}: {value:#x} should be [{expected}], but is {}",
                show(entry)
            ));
        }
    }

    fn user(&mut self, case: &Case<'_>) {
        self.verdict.user_frames += 1;
        if let Some(what) = case.entry.violation() {
            self.mismatch(case, None, what);
            return;
        }
        let status = case.entry.status();
        if status != Status::Resolved && case.entry.offset() != case.ip {
            self.mismatch(case, None, "not resolved, but the address is not kept");
            return;
        }
        if matches!(status, Status::Context | Status::Deferred) {
            self.mismatch(case, None, "not a status for a user address in immediate mode");
            return;
        }
        if case.ip >> 63 == 1 {
            match case.entry.build_id() {
                Some(_) => self.mismatch(case, None, "resolved in the kernel's half"),
                None => self.verdict.note("address in the kernel's half"),
            }
            return;
        }
        if status == Status::Kernel {
            self.mismatch(case, None, "a user address, but the status of a kernel one");
            return;
        }
        let mapping = self.spaces.of(case.pid).and_then(|space| space.find(case.ip)).cloned();
        match mapping {
            None => self.outside(case, None),
            Some(mapping) => match mapping.backing.clone() {
                Backing::Anonymous => self.outside(case, Some(&mapping)),
                Backing::Vdso => self.vdso(case, &mapping),
                Backing::File(file) => self.file(case, &mapping, &file),
            },
        }
    }

    fn outside(&mut self, case: &Case<'_>, mapping: Option<&Mapping>) {
        match (case.entry.status(), mapping) {
            (Status::Resolved, _) => {
                let what = match mapping {
                    Some(_) => "resolved, but no file is mapped here",
                    None => "resolved outside every mapping",
                };
                self.in_flight_or(case, mapping, what);
            }
            (Status::Anon, Some(_)) => self.verdict.note("anonymous memory, said so"),
            (Status::Anon, None) => self.verdict.note("in no mapping, said so"),
            (status, _) => self.verdict.unjudged(match status {
                Status::Busy => "busy, outside files",
                Status::NoMm => "no mm, outside files",
                Status::Fault => "fault, where no file is known",
                Status::NoBuildId => "no build ID, where no file is known",
                _ => "another reason, outside files",
            }),
        }
    }

    fn vdso(&mut self, case: &Case<'_>, mapping: &Mapping) {
        let expected = self.vdso.map(|id| (id, mapping.offset_of(case.ip)));
        match (case.entry.build_id(), expected) {
            (Some(id), Some(expected)) if (id, case.entry.offset()) == expected => {
                self.verdict.vdso_resolved += 1;
                self.verdict.dsos.insert(id);
            }
            (Some(_), Some(_)) => {
                self.in_flight_or(case, Some(mapping), "not the vDSO's ID or offset")
            }
            (Some(_), None) => self.verdict.unjudged("vDSO resolved, but ours cannot be read"),
            (None, _) => self.verdict.unjudged("vDSO not resolved"),
        }
    }

    fn file(&mut self, case: &Case<'_>, mapping: &Mapping, file: &Rc<FileName>) {
        let truth = self.files.truth(file);
        let status = case.entry.status();
        let place = (case.pid, mapping.instance, case.ip >> PAGE_SHIFT);
        if status == Status::Anon {
            self.anon.push(AnonCase {
                place,
                time: case.time,
                executing: case.executing && mapping.executable,
                what: describe(case, Some(mapping), ""),
            });
            return;
        }
        let offset = mapping.offset_of(case.ip);
        match (case.entry.build_id(), truth) {
            (Some(id), Truth::Note(expected) | Truth::Recorded(expected)) => {
                if (id, case.entry.offset()) == (expected, offset) {
                    self.verdict.resolved(case.event, id, matches!(truth, Truth::Note(_)));
                    let last = self.alive.entry(place).or_default();
                    *last = case.time.max(*last);
                } else {
                    let what = format!("should be {expected}+{offset:#x}");
                    self.in_flight_or(case, Some(mapping), &what);
                }
            }
            (Some(_), Truth::NoNote) => {
                self.in_flight_or(case, Some(mapping), "resolved in a file without a build ID");
            }
            (Some(_), Truth::Gone) if case.entry.offset() == offset => {
                self.verdict.unjudged("the file is gone and no record has its build ID");
            }
            (Some(_), Truth::Gone) => {
                self.in_flight_or(case, Some(mapping), &format!("should be at {offset:#x}"));
            }
            (None, Truth::Note(_)) if status == Status::NoBuildId => {
                self.mismatch(case, Some(mapping), "the file has a build ID note");
            }
            (None, truth) if truth.build_id().is_some() => {
                self.verdict.file_unresolved(case.event, status, &file.path);
            }
            (None, _) if status == Status::NoBuildId => {
                self.verdict.note("file without a build ID, said so");
            }
            (None, _) => self.verdict.unjudged("another reason, in a file without a build ID"),
        }
    }

    /// A contradiction, unless the record of a mapping that explains it is still to come.
    fn in_flight_or(&mut self, case: &Case<'_>, mapping: Option<&Mapping>, what: &str) {
        let later = self.mappings.get(&case.pid).map_or(&[][..], Vec::as_slice);
        let soon = later.iter().filter(|(time, late)| {
            (case.time..case.time.saturating_add(IN_FLIGHT)).contains(time)
                && late.contains(case.ip)
                && late.offset_of(case.ip) == case.entry.offset()
        });
        let files: Vec<_> = soon
            .filter_map(|(_, late)| match &late.backing {
                Backing::File(file) => Some(Rc::clone(file)),
                _ => None,
            })
            .collect();
        let explained =
            files.iter().any(|file| self.files.truth(file).build_id() == case.entry.build_id());
        if explained {
            self.verdict.unjudged("the mapping's record came right after the sample");
        } else {
            self.mismatch(case, mapping, what);
        }
    }

    fn mismatch(&mut self, case: &Case<'_>, mapping: Option<&Mapping>, what: &str) {
        self.verdict.mismatch(describe(case, mapping, what));
    }

    fn settle_anon(&mut self) {
        for case in std::mem::take(&mut self.anon) {
            if case.executing {
                self.verdict.mismatch(format!("{}executing in a file's mapping", case.what));
            } else if self.alive.get(&case.place).is_some_and(|&last| last > case.time) {
                self.verdict.mismatch(format!("{}the same mapping resolves later", case.what));
            } else {
                self.verdict.unjudged("anon in a file's mapping: unmapped since, or wrong");
            }
        }
    }
}

fn describe(case: &Case<'_>, mapping: Option<&Mapping>, what: &str) -> String {
    let place = match mapping {
        None => "no mapping".to_owned(),
        Some(mapping) => {
            let name = match &mapping.backing {
                Backing::File(file) => file.path.as_str(),
                Backing::Vdso => "[vdso]",
                Backing::Anonymous => "anonymous",
            };
            format!("{:#x}-{:#x} {:#x} {name}", mapping.start, mapping.end, mapping.pgoff)
        }
    };
    let role = if case.executing { "ip" } else { "frame" };
    format!("pid {} {role} {:#x} ({place}) is {}: {what}", case.pid, case.ip, show(case.entry))
}

fn show(entry: &Entry) -> String {
    match entry.build_id() {
        Some(id) => format!("{id}+{:#x}", entry.offset()),
        None => format!("[{}] {:#x}", entry.status(), entry.offset()),
    }
}
