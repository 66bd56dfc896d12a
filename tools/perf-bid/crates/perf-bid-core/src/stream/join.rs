// SPDX-License-Identifier: GPL-2.0
//! Joins samples to the callchains that were deferred.
//!
//! A thread has one cookie at a time: it gets one with the first request after it has entered
//! the kernel, and loses it on the way back. All samples in between carry it, and one record
//! does: after most of them, but before those that are taken on the last steps to user mode or
//! behind an exec. So for each thread there is what waits, and the last record:
//!
//! - a record with another cookie ends the wait of all that came before it;
//! - an exec ends that of the other threads of its process: they are gone, but for the one that
//!   called it and has the ID of the process from then on, with its last record;
//! - a thread's EXIT record does not, for another [`GRACE`]: the kernel writes it first;
//! - beyond the limit, the oldest goes out without.
//!
//! While a thread waits, its later samples and names wait behind, so that the order of one
//! thread's records is kept. That of different threads is not. Its mappings wait, too: behind
//! an exec they belong to the new program.
//!
//! An event that asks for plain addresses gets a record in that form, and one that asks for
//! both forms gets two with the same cookie. A sample waits for the form that it was announced
//! in.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use zerocopy::native_endian::U64;

use super::Item;
use super::Joined;
use super::is_frame;
use crate::abi::Entry;
use crate::abi::Status;
use crate::abi::context;
use crate::record::Comm;
use crate::record::Deferred;
use crate::record::DeferredFrames;
use crate::record::Record;
use crate::record::Sample;
use crate::record::Task;

/// How long after a thread's EXIT record its last callchain may come, in nanoseconds. It may
/// have to be read from a disk.
const GRACE: u64 = 1_000_000_000;

/// What became of the deferred callchains so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples whose user part was deferred.
    pub deferred: u64,
    /// Of them, samples whose callchain is not in the file.
    pub missing: u64,
    /// Records of callchains, each cookie of a thread counted once.
    pub records: u64,
    /// Records that have the same cookie again, as several events get one each.
    pub repeated: u64,
    /// Records without a sample: another recording's, or the sample was lost.
    pub unclaimed: u64,
}

/// What waits, and what is ready.
#[derive(Debug)]
pub(super) struct Joiner<'a> {
    threads: FxHashMap<u32, Thread<'a>>,
    /// The threads that hold something back, by the number of their oldest.
    oldest: BTreeMap<u64, u32>,
    /// For numbering what is held back.
    number: u64,
    held: usize,
    held_max: usize,
    /// Threads that have ended, with the time until which they are remembered.
    ended: VecDeque<(u64, u32)>,
    ready: VecDeque<Item<'a>>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Thread<'a> {
    last: Option<Last<'a>>,
    held: VecDeque<Held<'a>>,
    /// The time until which it is remembered, if it has ended.
    until: Option<u64>,
}

/// The last record of a thread, or the two forms of it.
#[derive(Clone, Copy, Debug)]
struct Last<'a> {
    cookie: u64,
    entries: Option<&'a [Entry]>,
    addresses: Option<&'a [U64]>,
    claimed: bool,
}

#[derive(Debug)]
struct Held<'a> {
    number: u64,
    /// What it waits for, if it does.
    awaited: Option<Awaited>,
    item: Item<'a>,
}

impl<'a> Joiner<'a> {
    /// Holds back `held_max` items at most.
    pub(super) fn new(held_max: usize) -> Self {
        Self {
            threads: FxHashMap::default(),
            oldest: BTreeMap::new(),
            number: 0,
            held: 0,
            held_max,
            ended: VecDeque::new(),
            ready: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// The next item that waits for nothing.
    pub(super) fn pop(&mut self) -> Option<Item<'a>> {
        self.ready.pop_front()
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Items that are held back or ready.
    pub(super) fn len(&self) -> usize {
        self.held + self.ready.len()
    }

    /// The time before which nothing is to come any more, given that records are taken in time
    /// order.
    pub(super) fn settled(&self) -> u64 {
        if !self.ready.is_empty() {
            return 0;
        }
        let Some((_, tid)) = self.oldest.first_key_value() else {
            return u64::MAX;
        };
        let first = self.threads.get(tid).and_then(|thread| thread.held.front());
        first.and_then(|held| held.item.time()).unwrap_or(0)
    }

    /// Takes the next record in time order, but for samples. Returns it if it waits for nothing
    /// and nothing else is ready.
    pub(super) fn take(&mut self, record: Record<'a>) -> Option<Item<'a>> {
        if let Some(time) = record.time() {
            self.forget_ended(time);
        }
        match record {
            Record::Sample(_) => return self.out(Item::Other(record)),
            Record::Comm(comm) => return self.comm(comm),
            Record::Mmap(ref mmap) => {
                let tid = mmap.tid;
                return self.push(Some(tid), None, Item::Other(record));
            }
            Record::Deferred(ref deferred) => self.deferred(deferred),
            Record::Fork(ref task) => self.fork(task),
            Record::Exit(ref task) => self.exit(task),
            _ => {}
        }
        self.out(Item::Other(record))
    }

    fn out(&mut self, item: Item<'a>) -> Option<Item<'a>> {
        if self.ready.is_empty() {
            return Some(item);
        }
        self.ready.push_back(item);
        None
    }

    /// There is nothing more to wait for.
    pub(super) fn finish(&mut self) {
        while let Some((_, &tid)) = self.oldest.first_key_value() {
            self.let_go(tid, None);
        }
        let lasts = self.threads.drain().filter_map(|(_, thread)| thread.last);
        self.counts.unclaimed += lasts.filter(|last| !last.claimed).count() as u64;
    }

    /// The same for a sample of the event with this index.
    #[inline]
    pub(super) fn sample(&mut self, event: usize, sample: Sample<'a>) -> Option<Item<'a>> {
        if let Some(time) = sample.time {
            self.forget_ended(time);
        }
        let tid = sample.tid;
        let cookie = Cookie::of(&sample);
        let mut joined =
            Joined { event, sample, deferred: None, deferred_addresses: None, missing: false };
        if cookie == Cookie::None && self.len() == 0 {
            // Nothing waits: without another copy.
            return Some(Item::Sample(joined));
        }
        let mut waits = None;
        if cookie != Cookie::None {
            self.counts.deferred += 1;
        }
        match (cookie, tid) {
            (Cookie::None, _) => {}
            (Cookie::One(awaited), Some(tid)) => {
                let last = self.threads.get_mut(&tid).and_then(|thread| thread.last.as_mut());
                match last.filter(|last| last.is(awaited)) {
                    Some(last) => {
                        last.claimed = true;
                        join(&mut joined, awaited.form, last, &mut self.counts);
                    }
                    None => waits = Some(awaited),
                }
            }
            (Cookie::One(_) | Cookie::Contradictory, _) => miss(&mut joined, &mut self.counts),
        }
        self.push(tid, waits, Item::Sample(joined))
    }

    fn deferred(&mut self, deferred: &Deferred<'a>) {
        // Without a thread it cannot be told whose it is.
        let Some(tid) = deferred.id.tid else {
            return;
        };
        let (cookie, frames) = (deferred.cookie, deferred.frames);
        let thread = self.thread(tid);
        if let Some(last) = thread.last.as_mut().filter(|last| last.cookie == cookie) {
            let added = last.add(frames);
            let last = *last;
            self.counts.repeated += 1;
            if added && self.let_go(tid, Some(last)) {
                self.claim(tid);
            }
            return;
        }
        let mut last = Last { cookie, entries: None, addresses: None, claimed: false };
        last.add(frames);
        let before = thread.last.replace(last);
        self.counts.records += 1;
        self.counts.unclaimed += u64::from(before.is_some_and(|last| !last.claimed));
        if self.let_go(tid, Some(last)) {
            self.claim(tid);
        }
    }

    fn comm(&mut self, comm: Comm<'a>) -> Option<Item<'a>> {
        if comm.exec {
            self.exec(comm.pid, comm.tid);
        }
        self.push(Some(comm.tid), None, Item::Other(Record::Comm(comm)))
    }

    fn exec(&mut self, pid: u32, tid: u32) {
        let last = self.threads.get(&tid).and_then(|thread| thread.last);
        let others = self.oldest.values().copied().filter(|&other| {
            other != tid && self.threads.get(&other).is_some_and(|thread| thread.is_of(pid))
        });
        for other in others.collect::<Vec<_>>() {
            if self.let_go(other, last) {
                self.claim(tid);
            }
        }
    }

    fn claim(&mut self, tid: u32) {
        if let Some(last) = self.threads.get_mut(&tid).and_then(|thread| thread.last.as_mut()) {
            last.claimed = true;
        }
    }

    /// A new thread has the ID of one that is long gone.
    fn fork(&mut self, task: &Task) {
        if self.threads.contains_key(&task.tid) {
            self.forget(task.tid);
        }
    }

    fn exit(&mut self, task: &Task) {
        let until = task.time.saturating_add(GRACE);
        if let Some(thread) = self.threads.get_mut(&task.tid) {
            thread.until = Some(until);
            self.ended.push_back((until, task.tid));
        }
    }

    fn forget_ended(&mut self, now: u64) {
        while let Some(&(until, tid)) = self.ended.front().filter(|(until, _)| *until < now) {
            self.ended.pop_front();
            // The ID may belong to another thread by now.
            if self.threads.get(&tid).is_some_and(|thread| thread.until == Some(until)) {
                self.forget(tid);
            }
        }
    }

    fn forget(&mut self, tid: u32) {
        self.let_go(tid, None);
        let last = self.threads.remove(&tid).and_then(|thread| thread.last);
        self.counts.unclaimed += u64::from(last.is_some_and(|last| !last.claimed));
    }

    fn thread(&mut self, tid: u32) -> &mut Thread<'a> {
        // Threads whose end is not in the file must not pile up.
        if self.threads.len() >= 2 * self.held_max.max(1) && !self.threads.contains_key(&tid) {
            let unclaimed = &mut self.counts.unclaimed;
            self.threads.retain(|_, thread| {
                let keep = !thread.held.is_empty();
                let last = thread.last.as_ref().filter(|last| !keep && !last.claimed);
                *unclaimed += u64::from(last.is_some());
                keep
            });
        }
        self.threads.entry(tid).or_default()
    }

    /// Passes an item on, unless it waits or something of its thread does.
    fn push(
        &mut self,
        tid: Option<u32>,
        awaited: Option<Awaited>,
        item: Item<'a>,
    ) -> Option<Item<'a>> {
        let Some(tid) = tid else {
            return self.out(item);
        };
        let behind =
            self.held > 0 && self.threads.get(&tid).is_some_and(|thread| !thread.held.is_empty());
        if awaited.is_none() && !behind {
            return self.out(item);
        }
        let number = self.number;
        self.number += 1;
        self.thread(tid).held.push_back(Held { number, awaited, item });
        self.held += 1;
        if !behind {
            self.oldest.insert(number, tid);
        }
        while self.held > self.held_max {
            let Some((_, &tid)) = self.oldest.first_key_value() else {
                break;
            };
            self.let_go_first(tid);
        }
        None
    }

    /// Lets go of all that a thread holds back, joined to `record` or without anything. What
    /// waits for another form of `record` goes on waiting. Returns whether anything was joined.
    fn let_go(&mut self, tid: u32, record: Option<Last<'a>>) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        let mut joined_any = false;
        for held in &mut thread.held {
            let (Some(awaited), Item::Sample(joined)) = (held.awaited, &mut held.item) else {
                continue;
            };
            match &record {
                Some(record) if record.is(awaited) => {
                    joined_any = true;
                    join(joined, awaited.form, record, &mut self.counts);
                }
                Some(record) if record.cookie == awaited.cookie => continue,
                _ => miss(joined, &mut self.counts),
            }
            held.awaited = None;
        }
        self.flush(tid);
        joined_any
    }

    /// Lets go of the first that a thread holds back, and of what waited for it alone.
    fn let_go_first(&mut self, tid: u32) {
        let thread = self.threads.get_mut(&tid);
        if let Some(held) = thread.and_then(|thread| thread.held.front_mut()) {
            held.awaited = None;
            if let Item::Sample(joined) = &mut held.item {
                miss(joined, &mut self.counts);
            }
        }
        self.flush(tid);
    }

    /// Passes on what a thread holds back and need not.
    fn flush(&mut self, tid: u32) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if let Some(first) = thread.held.front() {
            self.oldest.remove(&first.number);
        }
        while let Some(held) = thread.held.pop_front_if(|held| held.awaited.is_none()) {
            self.held -= 1;
            self.ready.push_back(held.item);
        }
        if let Some(first) = thread.held.front() {
            self.oldest.insert(first.number, tid);
        }
    }
}

impl Thread<'_> {
    /// Whether what it holds back was sampled in process `pid`.
    fn is_of(&self, pid: u32) -> bool {
        self.held.iter().any(
            |held| matches!(&held.item, Item::Sample(joined) if joined.sample.pid == Some(pid)),
        )
    }
}

impl<'a> Last<'a> {
    /// Whether it is what a sample waits for.
    fn is(&self, awaited: Awaited) -> bool {
        let have = match awaited.form {
            Form::Entries => self.entries.is_some(),
            Form::Addresses => self.addresses.is_some(),
        };
        have && self.cookie == awaited.cookie
    }

    /// Takes in a form of the callchain; whether it is new.
    fn add(&mut self, frames: DeferredFrames<'a>) -> bool {
        match frames {
            DeferredFrames::Entries(frames) if self.entries.is_none() => {
                self.entries = Some(frames);
            }
            DeferredFrames::Addresses(frames) if self.addresses.is_none() => {
                self.addresses = Some(frames);
            }
            _ => return false,
        }
        true
    }
}

fn join<'a>(joined: &mut Joined<'a>, form: Form, record: &Last<'a>, counts: &mut Counts) {
    let any = match form {
        Form::Entries => {
            joined.deferred = record.entries;
            record.entries.unwrap_or_default().iter().any(is_frame)
        }
        Form::Addresses => {
            joined.deferred_addresses = record.addresses;
            let mut chain = record.addresses.unwrap_or_default().iter();
            chain.any(|address| !context::is_marker(address.get()))
        }
    };
    // The kernel could not walk the stack: there is a record, and nothing in it.
    if !any {
        miss(joined, counts);
    }
}

fn miss(joined: &mut Joined<'_>, counts: &mut Counts) {
    joined.missing = true;
    counts.missing += 1;
}

/// What a sample waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Awaited {
    cookie: u64,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Entries,
    Addresses,
}

/// The cookie that a sample carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cookie {
    None,
    One(Awaited),
    /// The instruction pointer and the callchain have different ones, which no kernel writes.
    Contradictory,
}

impl Cookie {
    fn of(sample: &Sample<'_>) -> Self {
        let of_entry = |entry: &Entry| {
            let deferred = entry.status() == Status::Deferred;
            deferred.then(|| entry.offset())
        };
        let ip = sample.bid.and_then(of_entry);
        let chain = sample.bid_callchain.and_then(<[_]>::last).and_then(of_entry);
        let one = |cookie, form| Self::One(Awaited { cookie, form });
        match (ip, chain) {
            (Some(one), Some(other)) if one != other => Self::Contradictory,
            (Some(cookie), _) | (None, Some(cookie)) => one(cookie, Form::Entries),
            // With both forms the one with build IDs is all that is needed.
            (None, None) if sample.bid_callchain.is_some() => Self::None,
            (None, None) => match sample.callchain {
                Some([.., marker, cookie]) if marker.get() == context::USER_DEFERRED => {
                    one(cookie.get(), Form::Addresses)
                }
                _ => Self::None,
            },
        }
    }
}
