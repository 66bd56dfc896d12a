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
//!
//! In deferred mode, the frames of a record are judged by the mappings at its time, against the
//! addresses in the record that the kernel writes beside it. Samples say no more than the
//! cookie; what they resolve on their own, as the task was exiting, is counted apart.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::context;
use perf_bid_core::abi::misc;
use perf_bid_core::record::Deferred;
use perf_bid_core::record::DeferredFrames;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::Record;
use perf_bid_core::record::Sample;
use perf_bid_core::store;

use crate::capture::Capture;
use crate::files::Files;
use crate::files::Truth;
use crate::pairs::Form;
use crate::pairs::Pairs;
use crate::pairs::Task;
use crate::replay::Backing;
use crate::replay::FileName;
use crate::replay::Mapping;
use crate::replay::Spaces;
use crate::verdict::Share;
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
            Record::Deferred(deferred) => judge.deferred(&deferred, *time),
            Record::Exit(task) => judge.pairs.exit(task.tid),
            Record::Lost(lost) | Record::LostSamples(lost) => judge.verdict.lost += lost.lost,
            _ => {}
        }
    }
    judge.settle_anon();
    judge.pairs.settle(&mut judge.verdict);
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
    share: Share,
}

struct Judge<'a> {
    verdict: Verdict,
    deferred: bool,
    pairs: Pairs<'a>,
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

impl<'a> Judge<'a> {
    fn new(capture: &Capture, records: &[(u64, RawRecord<'a>)]) -> Result<Self> {
        let mut mappings: HashMap<u32, Vec<(u64, Mapping)>> = HashMap::new();
        for (time, raw) in records {
            if let Record::Mmap(mmap) = capture.format.decode(raw)? {
                mappings.entry(mmap.pid).or_default().push((*time, Mapping::new(&mmap, 0)));
            }
        }
        let ids = capture.ids.iter().enumerate();
        let event_of =
            ids.flat_map(|(index, ids)| ids.iter().map(move |&id| (id, index))).collect();
        Ok(Self {
            verdict: Verdict::new(capture.ids.len()),
            deferred: capture.deferred,
            pairs: Pairs::new(capture, records, &event_of)?,
            spaces: Spaces::default(),
            files: Files::default(),
            instances: 0,
            vdso: store::vdso_build_id(),
            event_of,
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
        let share = if self.deferred { Share::AtOnce } else { Share::Event(event) };
        let case = |ip, entry, executing| Case { pid, time, ip, entry, executing, share };
        let mut cookies = Vec::new();
        if !in_user {
            self.not_user(pid, ip, bid, Status::Kernel);
        } else if !self.deferred {
            self.user(&case(ip, bid, true));
        } else if bid.status() == Status::Deferred {
            cookies.push(bid.offset());
            self.not_user(pid, bid.offset(), bid, Status::Deferred);
        } else {
            let what = format!("pid {pid} ip {ip:#x} is not deferred: {}", show(bid));
            self.verdict.mismatch(what);
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
        let mut part = 0;
        let mut first = false;
        for (address, entry) in ips.iter().map(|ip| ip.get()).zip(entries) {
            let user = part == context::USER;
            // A broken stack may hold a value that looks like a marker.
            let marker = context::is_marker(address)
                && part != context::USER_DEFERRED
                && (!user || entry.status() == Status::Context);
            if marker {
                part = address;
                first = true;
                self.not_user(pid, address, entry, Status::Context);
            } else if user {
                self.user(&case(address, entry, first && in_user && address == ip));
                first = false;
            } else if part == context::USER_DEFERRED && self.deferred {
                cookies.push(address);
                self.not_user(pid, address, entry, Status::Deferred);
            } else {
                self.not_user(pid, address, entry, Status::Kernel);
            }
        }
        self.cookies(sample, &cookies, in_user);
    }

    /// The cookies of one sample: the same one in the instruction pointer's place and at the
    /// end of the callchain.
    fn cookies(&mut self, sample: &Sample<'_>, cookies: &[u64], in_user: bool) {
        let task = Task { pid: sample.pid.unwrap_or(0), tid: sample.tid.unwrap_or(0) };
        let at_end = sample.bid_callchain.and_then(<[_]>::last);
        match (cookies, in_user) {
            // Of user mode, it has been judged already.
            ([], _) => {}
            ([cookie], false) if at_end.is_some_and(|entry| entry.offset() == *cookie) => {
                self.pairs.sample(*cookie, task, None, &mut self.verdict);
            }
            ([ip, chain], true) if ip == chain => {
                self.pairs.sample(*ip, task, sample.ip, &mut self.verdict);
            }
            _ if !self.deferred => {}
            _ => self.verdict.mismatch(format!("pid {}: the cookies {cookies:x?}", task.pid)),
        }
    }

    fn deferred(&mut self, deferred: &Deferred<'_>, time: u64) {
        let id = &deferred.id;
        let task = Task { pid: id.pid.unwrap_or(0), tid: id.tid.unwrap_or(0) };
        let (pid, cookie) = (task.pid, deferred.cookie);
        let event = id.id.and_then(|id| self.event_of.get(&id).copied());
        let Some(event) = event.filter(|_| self.deferred) else {
            self.verdict.mismatch(format!("pid {pid}: a deferred callchain nobody asked for"));
            return;
        };
        let ips = self.pairs.addresses(cookie, event);
        let first = ips.and_then(<[_]>::first).map(|ip| ip.get());
        let form = match deferred.frames {
            DeferredFrames::Addresses(_) => Form::Addresses,
            DeferredFrames::Entries(_) => Form::Entries,
        };
        self.pairs.record(cookie, task, event, form, first, &mut self.verdict);
        let DeferredFrames::Entries(entries) = deferred.frames else {
            return;
        };
        match ips {
            Some(ips) if ips.len() == entries.len() && !ips.is_empty() => {
                for (at, (ip, entry)) in ips.iter().zip(entries).enumerate() {
                    let (ip, executing, share) = (ip.get(), at == 0, Share::Event(event));
                    self.user(&Case { pid, time, ip, entry, executing, share });
                }
            }
            _ => {
                let ips = ips.map_or("no".to_owned(), |ips| ips.len().to_string());
                let what = format!("{ips} deferred addresses, {} entries", entries.len());
                self.verdict.mismatch(format!("pid {pid} cookie {cookie:#x}: {what}"));
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
            self.mismatch(case, None, "not a status for a user address");
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
                    self.verdict.resolved(case.share, id, matches!(truth, Truth::Note(_)));
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
                self.verdict.file_unresolved(case.share, status, &file.path);
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

/// An oracle that cannot fail proves nothing: captures made by hand, right and wrong.
#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use perf_bid_core::abi::flag;
    use perf_bid_core::abi::sample;
    use perf_bid_core::attr::Attr;
    use perf_bid_core::record::Format;

    use super::*;

    const PID: u32 = 7;
    const START: u64 = 0x7000_0000_0000;
    const PGOFF: u64 = 0x5000;

    /// The bytes of an entry, spelled out.
    fn bytes(id: &[u8], status: u8, offset: u64) -> Vec<u8> {
        let mut out = vec![id.len() as u8, status, 0, 0];
        out.extend_from_slice(id);
        out.resize(24, 0);
        out.extend_from_slice(&offset.to_ne_bytes());
        out
    }

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn pair(a: u32, b: u32) -> u64 {
        u64::from_ne_bytes([a.to_ne_bytes(), b.to_ne_bytes()].concat().try_into().unwrap())
    }

    fn record(type_: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut out = type_.to_ne_bytes().to_vec();
        out.extend_from_slice(&misc.to_ne_bytes());
        out.extend_from_slice(&(8 + body.len() as u16).to_ne_bytes());
        out.extend_from_slice(body);
        out
    }

    fn sample_id(time: u64) -> Vec<u8> {
        words(&[pair(PID, PID), time, 0, 1])
    }

    /// An MMAP2 record of `len` bytes of `path` at `start`.
    fn mmap(time: u64, start: u64, len: u64, path: &str, id: Option<&[u8]>) -> Vec<u8> {
        let mut body = words(&[pair(PID, PID), start, len, PGOFF]);
        let mut key = vec![0; 24];
        if let Some(id) = id {
            key[0] = id.len() as u8;
            key[4..4 + id.len()].copy_from_slice(id);
        }
        body.extend_from_slice(&key);
        body.extend_from_slice(&words(&[pair(5, 2)]));
        let mut name = path.as_bytes().to_vec();
        name.resize((path.len() + 1).next_multiple_of(8), 0);
        body.extend_from_slice(&name);
        body.extend_from_slice(&sample_id(time));
        let build_id = if id.is_some() { misc::MMAP_BUILD_ID } else { 0 };
        record(10, misc::USER | build_id, &body)
    }

    /// A user-mode sample at `ip` whose chain is `frames` after the marker.
    fn sample_at(time: u64, ip: u64, bid: &[u8], frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut body = words(&[1, ip, pair(PID, PID), time, 0]);
        body.extend_from_slice(&words(&[1 + frames.len() as u64, context::USER]));
        frames.iter().for_each(|(ip, _)| body.extend_from_slice(&words(&[*ip])));
        body.extend_from_slice(bid);
        body.extend_from_slice(&words(&[1 + frames.len() as u64]));
        body.extend_from_slice(&bytes(&[], 1, context::USER));
        frames.iter().for_each(|(_, entry)| body.extend_from_slice(entry));
        record(9, misc::USER, &body)
    }

    fn capture(records: &[Vec<u8>]) -> Capture {
        let attr = Attr {
            sample_type: sample::IDENTIFIER
                | sample::IP
                | sample::TID
                | sample::TIME
                | sample::CPU
                | sample::CALLCHAIN
                | sample::NEW,
            flags: flag::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        Capture {
            format: Format::from(&attr),
            ids: vec![vec![1]],
            rings: vec![records.concat()],
            lost: 0,
            deferred: false,
            status: ExitStatus::from_raw(0),
        }
    }

    const COOKIE: u64 = 0x77;

    /// A user-mode sample at `ip` that waits for its callchain.
    fn waits(time: u64, ip: u64, cookie: u64) -> Vec<u8> {
        let chain = [context::USER_DEFERRED, cookie];
        let entries = [bytes(&[], 1, context::USER_DEFERRED), bytes(&[], 3, cookie)].concat();
        let mut body = words(&[1, ip, pair(PID, PID), time, 0, 2]);
        body.extend([words(&chain), bytes(&[], 3, cookie), words(&[2]), entries].concat());
        record(9, misc::USER, &body)
    }

    /// The two records of a callchain, of thread `tid`.
    fn late(time: u64, tid: u32, cookie: u64, frames: &[(u64, Vec<u8>)]) -> [Vec<u8>; 2] {
        let head = words(&[cookie, frames.len() as u64]);
        let id = words(&[pair(PID, tid), time, 0, 1]);
        let ips: Vec<_> = frames.iter().map(|(ip, _)| *ip).collect();
        let entries: Vec<_> = frames.iter().flat_map(|(_, entry)| entry.clone()).collect();
        [
            record(22, misc::USER | misc::CALLCHAIN_BUILD_ID, &[&head[..], &entries, &id].concat()),
            record(22, misc::USER, &[head, words(&ips), id].concat()),
        ]
    }

    fn judge_deferred(records: &[Vec<u8>]) -> Verdict {
        judge(&Capture { deferred: true, ..capture(records) }).unwrap()
    }

    /// The mapping of this file, a sample that waits in it, and a good callchain.
    fn good_deferred() -> [Vec<u8>; 4] {
        let (path, id) = me();
        let frame = |into| (START + into, bytes(id.as_bytes(), 0, PGOFF + into));
        let [entries, addresses] = late(20, PID, COOKIE, &[frame(8), frame(0x100)]);
        let map = mmap(1, START, 0x4000, &path, Some(id.as_bytes()));
        [map, waits(10, START + 8, COOKIE), entries, addresses]
    }

    #[test]
    fn deferred_callchains_are_judged_once() {
        let good = good_deferred();
        let verdict = judge_deferred(&good);
        assert_eq!((verdict.mismatches, verdict.user_frames), (0, 2), "{}", verdict.line());
        assert!(verdict.line().contains("2 resolved (100.000 %"), "{}", verdict.line());
        let line = verdict.pairs.line();
        assert!(line.contains("1 samples, 1 cookies, 2 records, 1 pairs, 0 incomplete"), "{line}");
        assert!(line.ends_with("0 without a sample, 1 first frames equal to the IP"), "{line}");
        // After its record, and a second time.
        let after = [&good[..], &[waits(30, START + 8, COOKIE)]].concat();
        assert_eq!(judge_deferred(&after).mismatches, 0);
        // Still in the kernel when the recording ended.
        let verdict = judge_deferred(&good[..2]);
        assert_eq!((verdict.mismatches, verdict.pairs.pending), (0, 1));
    }

    #[test]
    fn wrong_deferred_callchains_fail() {
        let (_, id) = me();
        let good = good_deferred();
        let count = |records: &[Vec<u8>]| judge_deferred(records).mismatches;
        let with = |records: [Vec<u8>; 2]| count(&[&good[..2], &records].concat());
        let right = |into| (START + into, bytes(id.as_bytes(), 0, PGOFF + into));
        let chain = |frames: &[(u64, Vec<u8>)]| late(20, PID, COOKIE, frames);
        assert_eq!(with(chain(&[right(8)])), 0);
        assert_eq!(with(chain(&[right(9)])), 1, "not where the sample was taken");
        let wrong = (START + 0x100, bytes(id.as_bytes(), 0, PGOFF + 0x101));
        assert_eq!(with(chain(&[right(8), wrong])), 1, "another offset");
        let not_judged = (START + 0x100, bytes(&[], 6, START + 0x100));
        let verdict = judge_deferred(&[&good[..2], &chain(&[right(8), not_judged])].concat());
        assert!(verdict.line().contains("(50.000 %"), "{}", verdict.line());
        assert_eq!(with(late(20, PID + 1, COOKIE, &[right(8)])), 1, "another thread's");
        let [entries, _] = chain(&[right(8)]);
        let [_, longer] = chain(&[right(8), right(9)]);
        assert_eq!(with([entries.clone(), longer]), 1, "of unequal length");
        // No frames: neither resolved nor where the sample was.
        assert_eq!(with(chain(&[])), 2);
        assert_eq!(count(&good[..3]), 2, "no addresses to judge by");
        assert_eq!(count(&[&good[..2], &good[3..]].concat()), 1, "no entries");
        assert_eq!(count(&[&good[..], &good[3..]].concat()), 1, "twice");
        assert_eq!(count(&[&good[..1], &good[2..]].concat()), 1, "without a sample");
        // Gone for good: the thread has another cookie by now, or has ended.
        let next = [good[1].clone(), waits(12, START, COOKIE + 1)];
        let next = [&next[..], &late(20, PID, COOKIE + 1, &[right(0)])].concat();
        assert_eq!(count(&[&good[..1], &next].concat()), 1);
        let exit =
            record(4, 0, &words(&[pair(PID, 1), pair(PID, 1), 30, pair(PID, PID), 30, 0, 1]));
        assert_eq!(count(&[good[0].clone(), good[1].clone(), exit]), 1);
        // A user-mode sample that is resolved at once, or whose cookies differ.
        let at_once = sample_at(10, START + 8, &bytes(id.as_bytes(), 0, PGOFF + 8), &[]);
        assert_eq!(count(&[good[0].clone(), at_once]), 1);
        let mut differ = good[1].clone();
        let last = differ.len() - 8;
        differ[last] ^= 1;
        assert_eq!(count(&[good[0].clone(), differ]), 1);
        // What nobody has asked for.
        assert_eq!(judge(&capture(&good)).unwrap().mismatches, 4);
    }

    /// This test's own file, with the build ID of its note.
    fn me() -> (String, BuildId) {
        let path = std::env::current_exe().unwrap();
        let id = store::read_elf(&path).unwrap().build_id.unwrap();
        (path.to_string_lossy().into_owned(), id)
    }

    /// Judges one frame at `START + into`, below a good innermost frame, in a process that maps
    /// this file at START.
    fn one(into: u64, entry: Vec<u8>) -> Verdict {
        let (path, id) = me();
        let good = bytes(id.as_bytes(), 0, PGOFF + 8);
        let frames = [(START + 8, good.clone()), (START.wrapping_add(into), entry)];
        let records = [
            mmap(1, START, 0x4000, &path, Some(id.as_bytes())),
            sample_at(10, START + 8, &good, &frames),
        ];
        judge(&capture(&records)).unwrap()
    }

    #[test]
    fn right_answers_pass() {
        let (_, id) = me();
        let verdict = one(0x100, bytes(id.as_bytes(), 0, PGOFF + 0x100));
        assert_eq!((verdict.mismatches, verdict.user_frames), (0, 3), "{}", verdict.line());
        assert!(verdict.line().contains("3 resolved (100.000 %"), "{}", verdict.line());
        for (into, status) in [(0x100, 6), (0x100, 7), (0x100, 8), (0x100, 9), (0x9000, 4)] {
            let verdict = one(into, bytes(&[], status, START + into));
            assert_eq!(verdict.mismatches, 0, "{status}");
        }
        // Where the kernel's half begins, and a marker's look-alike.
        for ip in [1 << 63, u64::MAX, context::KERNEL] {
            let verdict = one(ip.wrapping_sub(START), bytes(&[], 4, ip));
            assert_eq!(verdict.mismatches, 0, "{ip:#x}");
        }
    }

    #[test]
    fn wrong_answers_fail() {
        let (_, id) = me();
        let id = id.as_bytes();
        let mut other = id.to_vec();
        other[0] ^= 1;
        let padded = [id, &[0]].concat();
        let mut reserved = bytes(id, 0, PGOFF + 0x100);
        reserved[2] = 1;
        let mut loose = bytes(&id[..8], 0, PGOFF + 0x100);
        loose[20] = 1;
        let cases = [
            ("another ID", 0x100, bytes(&other, 0, PGOFF + 0x100)),
            ("a shorter ID", 0x100, bytes(&id[..8], 0, PGOFF + 0x100)),
            ("another offset", 0x100, bytes(id, 0, PGOFF + 0x101)),
            ("offset without pgoff", 0x100, bytes(id, 0, 0x100)),
            ("outside the mapping", 0x4000, bytes(id, 0, PGOFF + 0x4000)),
            ("below the mapping", u64::MAX, bytes(id, 0, PGOFF - 1)),
            ("kernel half", 1 << 63, bytes(id, 0, PGOFF)),
            ("the file has an ID", 0x100, bytes(&[], 5, START + 0x100)),
            ("kernel status", 0x100, bytes(&[], 2, START + 0x100)),
            ("deferred", 0x100, bytes(&[], 3, START + 0x100)),
            ("context", 0x100, bytes(&[], 1, START + 0x100)),
            ("unknown status", 0x100, bytes(&[], 77, START + 0x100)),
            ("address not kept", 0x100, bytes(&[], 7, 0)),
            ("ID beside a reason", 0x100, bytes(id, 7, START + 0x100)),
            ("no ID though resolved", 0x100, bytes(&[], 0, START + 0x100)),
            ("reserved bytes", 0x100, reserved),
            ("padding", 0x100, loose),
        ];
        for (what, into, entry) in cases {
            assert_eq!(one(into, entry).mismatches, 1, "{what}");
        }
        if padded.len() <= 20 {
            assert_eq!(one(0x100, bytes(&padded, 0, PGOFF + 0x100)).mismatches, 1);
        }
    }

    #[test]
    fn anon_in_a_file_is_judged_by_what_is_known() {
        let (path, id) = me();
        let good = |into| bytes(id.as_bytes(), 0, PGOFF + into);
        let anon = |into| bytes(&[], 4, START + into);
        let map = |time| mmap(time, START, 0x4000, &path, Some(id.as_bytes()));
        let chain = |time, into, entry: Vec<u8>| {
            let outside = bytes(&[], 4, 0x10);
            sample_at(time, 0x10, &outside, &[(0x10, outside.clone()), (START + into, entry)])
        };
        let judged = |records: &[Vec<u8>]| {
            let verdict = judge(&capture(records)).unwrap();
            (verdict.mismatches, verdict.line())
        };
        // Executing there.
        let executing = sample_at(10, START + 8, &anon(8), &[]);
        assert_eq!(judged(&[map(1), executing]).0, 1);
        // It may have been unmapped.
        assert_eq!(judged(&[map(1), chain(10, 8, anon(8))]).0, 0);
        assert_eq!(judged(&[map(1), chain(9, 8, good(8)), chain(10, 8, anon(8))]).0, 0);
        // It was not: the page resolves later, and no new mapping came between.
        assert_eq!(judged(&[map(1), chain(10, 8, anon(8)), chain(11, 9, good(9))]).0, 1);
        let again = [map(1), chain(10, 8, anon(8)), map(11), chain(12, 9, good(9))];
        assert_eq!(judged(&again).0, 0);
        // Another page says nothing.
        let other = [map(1), chain(10, 8, anon(8)), chain(11, 0x1008, good(0x1008))];
        assert_eq!(judged(&other).0, 0);
    }

    #[test]
    fn late_records_are_forgiven_only_if_they_explain_it() {
        let (path, id) = me();
        let entry = |offset| bytes(id.as_bytes(), 0, offset);
        let sample = |offset| sample_at(10, START + 8, &entry(offset), &[]);
        let map = |time| mmap(time, START, 0x4000, &path, Some(id.as_bytes()));
        let count = |records: &[Vec<u8>]| judge(&capture(records)).unwrap().mismatches;
        assert_eq!(count(&[sample(PGOFF + 8), map(11)]), 0);
        assert_eq!(count(&[sample(PGOFF + 9), map(11)]), 1);
        assert_eq!(count(&[sample(PGOFF + 8), map(11 + IN_FLIGHT)]), 1);
        assert_eq!(count(&[sample(PGOFF + 8)]), 1);
    }

    #[test]
    fn anonymous_memory_and_files_without_a_note() {
        let id = [1; 20];
        let count = |path: &str, id_of_map: Option<&[u8]>, entry: Vec<u8>| {
            let records =
                [mmap(1, START, 0x1000, path, id_of_map), sample_at(10, START + 8, &entry, &[])];
            judge(&capture(&records)).unwrap().mismatches
        };
        assert_eq!(count("//anon", None, bytes(&[], 4, START + 8)), 0);
        assert_eq!(count("//anon", None, bytes(&id, 0, PGOFF + 8)), 1);
        // Gone, but its record has the ID.
        assert_eq!(count("/gone (deleted)", Some(&id), bytes(&id, 0, PGOFF + 8)), 0);
        assert_eq!(count("/gone (deleted)", Some(&id), bytes(&id, 0, PGOFF)), 1);
        assert_eq!(count("/gone (deleted)", Some(&id), bytes(&[2; 20], 0, PGOFF + 8)), 1);
        assert_eq!(count("/gone (deleted)", None, bytes(&[], 5, START + 8)), 0);
        // Gone without an ID: the offset can be judged.
        assert_eq!(count("/gone (deleted)", None, bytes(&id, 0, PGOFF + 8)), 0);
        assert_eq!(count("/gone (deleted)", None, bytes(&id, 0, PGOFF)), 1);
    }

    #[test]
    fn chains_of_unequal_length_fail() {
        let mut body = words(&[1, 0x10, pair(PID, PID), 10, 0, 1, context::USER]);
        body.extend_from_slice(&bytes(&[], 4, 0x10));
        body.extend_from_slice(&words(&[0]));
        let verdict = judge(&capture(&[record(9, misc::USER, &body)])).unwrap();
        assert_eq!(verdict.mismatches, 1);
    }

    #[test]
    fn kernel_values_must_pass_through() {
        let count = |entry: Vec<u8>| {
            let mut body = words(&[1, 0xffff_8000_0000_0000, pair(PID, PID), 10, 0]);
            body.extend_from_slice(&words(&[2, context::KERNEL, 0xffff_8000_0000_0000]));
            body.extend_from_slice(&bytes(&[], 2, 0xffff_8000_0000_0000));
            body.extend_from_slice(&words(&[2]));
            body.extend_from_slice(&bytes(&[], 1, context::KERNEL));
            body.extend_from_slice(&entry);
            judge(&capture(&[record(9, misc::KERNEL, &body)])).unwrap().mismatches
        };
        assert_eq!(count(bytes(&[], 2, 0xffff_8000_0000_0000)), 0);
        assert_eq!(count(bytes(&[], 2, 0xffff_8000_0000_0001)), 1);
        assert_eq!(count(bytes(&[], 4, 0xffff_8000_0000_0000)), 1);
        assert_eq!(count(bytes(&[3; 20], 0, 0x10)), 1);
    }
}
