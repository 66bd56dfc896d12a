// SPDX-License-Identifier: GPL-2.0
//! Deferred mode: which samples and which records belong together, and whether none is left.
//!
//! - Each cookie that a sample carries has one record of each form from each event, with
//!   addresses and with build IDs, of the same thread. It may be missing at the end alone, from
//!   a thread that has not returned to user mode yet.
//! - Each record has a sample.
//! - The first frame of a record is where the task was in user mode: the instruction pointer of
//!   a sample that was taken there.
//!
//! A thread that calls exec has the ID of its process from then on.

use std::collections::HashMap;
use std::collections::HashSet;

use anyhow::Result;
use perf_bid_core::record::DeferredFrames;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::Record;
use zerocopy::native_endian::U64;

use crate::capture::Capture;
use crate::verdict::Verdict;

/// A thread and its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    pub pid: u32,
    pub tid: u32,
}

impl Task {
    /// Whether the task that was sampled can have left the record.
    fn can_be(self, record: Task) -> bool {
        self.pid == record.pid && (self.tid == record.tid || record.tid == record.pid)
    }
}

/// The two forms of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Addresses,
    Entries,
}

/// What there is with one cookie.
#[derive(Debug, Default)]
struct Pair {
    samples: u64,
    task: Option<Task>,
    /// Instruction pointers of user-mode samples.
    ips: HashSet<u64>,
    /// Counts by event and form.
    records: HashMap<(usize, Form), u64>,
    record: Option<Task>,
    first_frames: HashSet<Option<u64>>,
    /// The thread ended with it.
    at_exit: bool,
}

/// All cookies.
#[derive(Debug)]
pub struct Pairs<'a> {
    events: usize,
    by_cookie: HashMap<u64, Pair>,
    /// The records with addresses, by cookie and event.
    addresses: HashMap<(u64, usize), &'a [U64]>,
    /// The last cookie of each thread that has not ended.
    last: HashMap<u32, u64>,
}

impl<'a> Pairs<'a> {
    /// Collects the addresses, which the kernel may write before or after the entries.
    pub fn new(
        capture: &Capture,
        records: &[(u64, RawRecord<'a>)],
        event_of: &HashMap<u64, usize>,
    ) -> Result<Self> {
        let mut addresses = HashMap::new();
        for (_, raw) in records {
            if let Record::Deferred(deferred) = capture.format.decode(raw)?
                && let DeferredFrames::Addresses(ips) = deferred.frames
                && let Some(&event) = deferred.id.id.and_then(|id| event_of.get(&id))
            {
                addresses.insert((deferred.cookie, event), ips);
            }
        }
        let (events, by_cookie, last) = (capture.ids.len(), HashMap::new(), HashMap::new());
        Ok(Self { events, by_cookie, addresses, last })
    }

    /// The addresses that belong to entries.
    pub fn addresses(&self, cookie: u64, event: usize) -> Option<&'a [U64]> {
        self.addresses.get(&(cookie, event)).copied()
    }

    /// A sample with a cookie; `ip`, if it was taken in user mode.
    pub fn sample(&mut self, cookie: u64, task: Task, ip: Option<u64>, verdict: &mut Verdict) {
        let pair = self.by_cookie.entry(cookie).or_default();
        pair.samples += 1;
        pair.ips.extend(ip);
        self.last.insert(task.tid, cookie);
        if *pair.task.get_or_insert(task) != task {
            verdict.mismatch(format!("cookie {cookie:#x}: samples of {task:?} and another task"));
        }
    }

    /// A record.
    pub fn record(
        &mut self,
        cookie: u64,
        task: Task,
        event: usize,
        form: Form,
        first: Option<u64>,
        verdict: &mut Verdict,
    ) {
        let pair = self.by_cookie.entry(cookie).or_default();
        *pair.records.entry((event, form)).or_default() += 1;
        if form == Form::Addresses {
            pair.first_frames.insert(first);
        }
        if *pair.record.get_or_insert(task) != task {
            verdict.mismatch(format!("cookie {cookie:#x}: records of {task:?} and another task"));
        }
    }

    /// An EXIT record.
    pub fn exit(&mut self, tid: u32) {
        let cookie = self.last.remove(&tid);
        if let Some(pair) = cookie.and_then(|cookie| self.by_cookie.get_mut(&cookie)) {
            pair.at_exit = true;
        }
    }

    /// Judges what has come together.
    pub fn settle(self, verdict: &mut Verdict) {
        let mut cookies: Vec<_> = self.by_cookie.iter().collect();
        cookies.sort_unstable_by_key(|(cookie, _)| **cookie);
        for (cookie, pair) in cookies {
            let records: u64 = pair.records.values().sum();
            let figures = &mut verdict.pairs;
            figures.samples += pair.samples;
            figures.records += records;
            if pair.samples == 0 {
                figures.unclaimed += 1;
                verdict.mismatch(format!("{}: a record without a sample", pair.name(*cookie)));
                continue;
            }
            figures.cookies += 1;
            let last = pair.task.and_then(|task| self.last.get(&task.tid));
            if records == 0 && last == Some(cookie) {
                figures.pending += 1;
                continue;
            }
            let whole = self.forms().all(|key| pair.records.get(&key) == Some(&1));
            if whole {
                figures.pairs += 1;
            } else {
                figures.incomplete += 1;
                let counts: Vec<_> = self
                    .forms()
                    .map(|key| {
                        let count = pair.records.get(&key).copied().unwrap_or(0);
                        format!("{count} of event {} with {:?}", key.0, key.1)
                    })
                    .collect();
                let when = if pair.at_exit { ", the last of its thread" } else { "" };
                let what = counts.join(", ") + when;
                verdict.mismatch(format!("{}: {what}", pair.name(*cookie)));
            }
            pair.settle(*cookie, verdict);
        }
    }

    fn forms(&self) -> impl Iterator<Item = (usize, Form)> {
        (0..self.events).flat_map(|event| [(event, Form::Addresses), (event, Form::Entries)])
    }
}

impl Pair {
    fn name(&self, cookie: u64) -> String {
        let task = self.task.or(self.record).unwrap_or(Task { pid: 0, tid: 0 });
        format!("cookie {cookie:#x} of pid {} tid {}", task.pid, task.tid)
    }

    fn settle(&self, cookie: u64, verdict: &mut Verdict) {
        if let (Some(sampled), Some(recorded)) = (self.task, self.record)
            && !sampled.can_be(recorded)
        {
            let what = format!("{}: a record of {recorded:?}", self.name(cookie));
            verdict.mismatch(what);
        }
        for ip in &self.ips {
            for first in &self.first_frames {
                if *first == Some(*ip) {
                    verdict.pairs.first_frames += 1;
                } else {
                    let name = self.name(cookie);
                    let what = format!("{name}: sampled at {ip:#x}, but begins with {first:x?}");
                    verdict.mismatch(what);
                }
            }
        }
    }
}
