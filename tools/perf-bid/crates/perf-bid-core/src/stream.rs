// SPDX-License-Identifier: GPL-2.0
//! The records of a file in time order, samples joined to their deferred callchains.
//!
//! Ring buffers of different CPUs are read one after the other, so that a file is in order
//! only within what one buffer gave. perf.data marks the end of each pass over the buffers
//! with FINISHED_ROUND: nothing that comes later is older than the pass before. That bounds
//! what must be held back, unless a file has no such marks.
//!
//! A sample whose user part was deferred (`{DEFERRED, cookie}`) waits for the
//! `CALLCHAIN_DEFERRED` record of the same thread and cookie. It goes out without if its
//! thread exits, if [`WAITING_MAX`] others wait already, or at the end, and is then marked as
//! [`Joined::missing`].

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::ops::Deref;

use crate::abi::Entry;
use crate::abi::Status;
use crate::cursor::Malformed;
use crate::data::PerfData;
use crate::data::Records;
use crate::record::DeferredFrames;
use crate::record::RawRecord;
use crate::record::Record;
use crate::record::Sample;

/// Most samples that wait for a deferred callchain at a time.
pub const WAITING_MAX: usize = 1 << 16;

/// A sample and, if it was deferred, what came later.
#[derive(Clone, Debug)]
pub struct Joined<'a> {
    /// Index of the event in the file.
    pub event: usize,
    /// The sample as recorded.
    pub sample: Box<Sample<'a>>,
    /// The user frames, if they came in a record of their own.
    pub deferred: Option<&'a [Entry]>,
    /// The sample announced deferred user frames that are not in the file.
    pub missing: bool,
}

impl<'a> Joined<'a> {
    /// The entry of the instruction pointer: the sample's own or the first deferred frame.
    pub fn leaf(&self) -> Option<&'a Entry> {
        match self.sample.bid {
            Some(bid) if bid.status() == Status::Deferred => {
                self.deferred.and_then(|entries| entries.iter().find(|entry| is_frame(entry)))
            }
            Some(bid) => Some(bid),
            None => self.frames().next(),
        }
    }

    /// The frames of the callchain, innermost first, without context markers and without the
    /// placeholder of what was deferred.
    pub fn frames(&self) -> impl Iterator<Item = &'a Entry> {
        let own = self.sample.bid_callchain.unwrap_or_default();
        own.iter().chain(self.deferred.unwrap_or_default()).filter(|entry| is_frame(entry))
    }
}

fn is_frame(entry: &Entry) -> bool {
    !matches!(entry.status(), Status::Context | Status::Deferred)
}

/// The cookie of the deferred chain a sample waits for.
fn cookie(sample: &Sample<'_>) -> Option<u64> {
    let chain = sample.bid_callchain.unwrap_or_default();
    let entries = sample.bid.into_iter().chain(chain.last());
    let mut deferred = entries.filter(|entry| entry.status() == Status::Deferred);
    deferred.next().map(Entry::offset)
}

/// What [`Stream`] yields.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// A complete sample.
    Sample(Joined<'a>),
    /// Any other record that this crate decodes.
    Other(Record<'a>),
}

/// An iterator over a file's records in time order. It ends after the first error, once the
/// records before it are through.
#[derive(Debug)]
pub struct Stream<'a, B> {
    data: &'a PerfData<B>,
    records: Records<'a>,
    /// By time and position in the file.
    held: BTreeMap<(u64, u64), RawRecord<'a>>,
    /// Latest time of this round and of the one before.
    round: (u64, u64),
    ready: VecDeque<Item<'a>>,
    waiting: Waiting<'a>,
    error: Option<Malformed>,
    done: bool,
}

#[derive(Debug, Default)]
struct Waiting<'a> {
    by_cookie: HashMap<(u32, u64), Vec<Joined<'a>>>,
    count: usize,
    /// For letting go of the oldest; may name cookies that are served already.
    order: VecDeque<(u32, u64)>,
}

impl<'a, B: Deref<Target = [u8]>> Stream<'a, B> {
    /// The records of `data`.
    pub fn new(data: &'a PerfData<B>) -> Self {
        Self {
            data,
            records: data.records(),
            held: BTreeMap::new(),
            round: (0, 0),
            ready: VecDeque::new(),
            waiting: Waiting::default(),
            error: None,
            done: false,
        }
    }

    /// Bytes of the data section that have been read so far.
    pub fn position(&self) -> u64 {
        self.data.data_len().saturating_sub(self.records.remaining() as u64)
    }

    fn fill(&mut self) {
        match self.records.next() {
            None => {
                self.release(u64::MAX);
                self.waiting.let_go_all(&mut self.ready);
                self.done = true;
            }
            Some(Err(error)) => self.error = Some(error),
            Some(Ok(raw)) if raw.type_ == crate::abi::record_type::FINISHED_ROUND => {
                let (this, before) = self.round;
                self.release(before);
                self.round = (this, this);
            }
            Some(Ok(raw)) => {
                let time = self.data.event_of(&raw).and_then(|(_, event)| event.format.time(&raw));
                match time {
                    Some(time) => {
                        self.round.0 = self.round.0.max(time);
                        self.held.insert((time, raw.offset), raw);
                    }
                    None => self.dispatch(&raw),
                }
            }
        }
    }

    fn release(&mut self, up_to: u64) {
        let keep = match up_to.checked_add(1) {
            Some(after) => self.held.split_off(&(after, 0)),
            None => BTreeMap::new(),
        };
        for raw in std::mem::replace(&mut self.held, keep).into_values() {
            self.dispatch(&raw);
        }
    }

    fn dispatch(&mut self, raw: &RawRecord<'a>) {
        if self.error.is_some() {
            return;
        }
        let event = self.data.event_of(raw).map_or(0, |(index, _)| index);
        match self.data.decode(raw) {
            Err(error) => self.error = Some(error),
            Ok(Record::Sample(sample)) => {
                let cookie = cookie(&sample);
                let tid = sample.tid.unwrap_or(0);
                let joined = Joined { event, sample, deferred: None, missing: false };
                match cookie {
                    None => self.ready.push_back(Item::Sample(joined)),
                    Some(cookie) => self.waiting.hold((tid, cookie), joined, &mut self.ready),
                }
            }
            Ok(Record::Deferred(deferred)) => {
                if let DeferredFrames::Entries(entries) = deferred.frames {
                    let key = (deferred.id.tid.unwrap_or(0), deferred.cookie);
                    self.waiting.serve(key, entries, &mut self.ready);
                }
                self.ready.push_back(Item::Other(Record::Deferred(deferred)));
            }
            Ok(Record::Exit(task)) => {
                self.waiting.let_go_thread(task.tid, &mut self.ready);
                self.ready.push_back(Item::Other(Record::Exit(task)));
            }
            Ok(other) => self.ready.push_back(Item::Other(other)),
        }
    }
}

impl<'a> Waiting<'a> {
    fn hold(&mut self, key: (u32, u64), joined: Joined<'a>, ready: &mut VecDeque<Item<'a>>) {
        while self.count >= WAITING_MAX {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.let_go(oldest, ready);
        }
        // Keys that were served stay in `order` until they come up; do not let them pile up.
        if self.order.len() >= 4 * WAITING_MAX {
            let by_cookie = &self.by_cookie;
            self.order.retain(|key| by_cookie.contains_key(key));
        }
        let waiting = self.by_cookie.entry(key).or_default();
        if waiting.is_empty() {
            self.order.push_back(key);
        }
        waiting.push(joined);
        self.count += 1;
    }

    fn serve(&mut self, key: (u32, u64), frames: &'a [Entry], ready: &mut VecDeque<Item<'a>>) {
        for joined in self.by_cookie.remove(&key).unwrap_or_default() {
            self.count -= 1;
            ready.push_back(Item::Sample(Joined { deferred: Some(frames), ..joined }));
        }
    }

    fn let_go(&mut self, key: (u32, u64), ready: &mut VecDeque<Item<'a>>) {
        for joined in self.by_cookie.remove(&key).unwrap_or_default() {
            self.count -= 1;
            ready.push_back(Item::Sample(Joined { missing: true, ..joined }));
        }
    }

    fn let_go_thread(&mut self, tid: u32, ready: &mut VecDeque<Item<'a>>) {
        let mut keys: Vec<_> = self.by_cookie.keys().copied().filter(|key| key.0 == tid).collect();
        keys.sort_unstable();
        keys.into_iter().for_each(|key| self.let_go(key, ready));
    }

    fn let_go_all(&mut self, ready: &mut VecDeque<Item<'a>>) {
        for key in std::mem::take(&mut self.order) {
            self.let_go(key, ready);
        }
    }
}

impl<'a, B: Deref<Target = [u8]>> Iterator for Stream<'a, B> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            if let Some(error) = self.error.take() {
                if self.done {
                    return Some(Err(error));
                }
                // What came before the damage is still good.
                self.done = true;
                self.release(u64::MAX);
                self.waiting.let_go_all(&mut self.ready);
                self.error = Some(error);
                continue;
            }
            if self.done {
                return None;
            }
            self.fill();
        }
    }
}
