// SPDX-License-Identifier: GPL-2.0
//! The records of a file in time order, samples joined to their deferred callchains.
//!
//! Ring buffers of different CPUs are read one after the other, so that a file is in order
//! only within what one buffer gave. perf.data marks the end of each pass over the buffers
//! with FINISHED_ROUND: nothing that comes later is older than the pass before. That bounds
//! what must be held back to put it in order; without such marks, [`Limits::unsorted`] does.
//!
//! A sample whose user part was deferred (`{DEFERRED, cookie}`) waits for the
//! `CALLCHAIN_DEFERRED` record of the same thread and cookie, until it is certain not to come or
//! [`Limits::waiting`] others wait already. It then goes out without, marked as
//! [`Joined::missing`]. The module [`join`] has the rules.

mod join;

use std::collections::BTreeMap;
use std::ops::Deref;

use zerocopy::native_endian::U64;

pub use self::join::Counts;
use self::join::Joiner;
use crate::abi::Entry;
use crate::abi::Status;
use crate::abi::record_type;
use crate::cursor::Malformed;
use crate::data::PerfData;
use crate::data::Records;
use crate::record::RawRecord;
use crate::record::Record;
use crate::record::Sample;

/// How much a [`Stream`] holds back at most, in records.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records that are put in order. Those of two passes over the ring buffers should fit.
    pub unsorted: usize,
    /// Samples that wait for a deferred callchain, with what waits behind them.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unsorted: 1 << 21, waiting: 1 << 16 }
    }
}

/// A sample and, if it was deferred, what came later.
#[derive(Clone, Debug)]
pub struct Joined<'a> {
    /// Index of the event in the file.
    pub event: usize,
    /// The sample as recorded.
    pub sample: Box<Sample<'a>>,
    /// The user frames, if they came in a record of their own.
    pub deferred: Option<&'a [Entry]>,
    /// The same as plain addresses, if the callchain was announced among such.
    pub deferred_addresses: Option<&'a [U64]>,
    /// The sample announced deferred user frames that are not in the file, or the kernel
    /// found none.
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

/// What [`Stream`] yields.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// A complete sample.
    Sample(Joined<'a>),
    /// Any other record that this crate decodes.
    Other(Record<'a>),
}

/// An iterator over a file's records in time order; see [`join`] for samples that wait. It ends
/// after the first error, once the records before it are through.
#[derive(Debug)]
pub struct Stream<'a, B> {
    data: &'a PerfData<B>,
    records: Records<'a>,
    /// By time and position in the file.
    unsorted: BTreeMap<(u64, u64), RawRecord<'a>>,
    unsorted_max: usize,
    /// Latest time of this round and of the one before.
    round: (u64, u64),
    /// Nothing older than that is to come.
    settled: u64,
    joiner: Joiner<'a>,
    error: Option<Malformed>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reading,
    /// There is nothing more to read.
    Read,
    /// Nor to wait for.
    Done,
}

impl<'a, B: Deref<Target = [u8]>> Stream<'a, B> {
    /// The records of `data`.
    pub fn new(data: &'a PerfData<B>) -> Self {
        Self::with_limits(data, Limits::default())
    }

    /// The same, with other limits.
    pub fn with_limits(data: &'a PerfData<B>, limits: Limits) -> Self {
        Self {
            data,
            records: data.records(),
            unsorted: BTreeMap::new(),
            unsorted_max: limits.unsorted,
            round: (0, 0),
            settled: 0,
            joiner: Joiner::new(limits.waiting),
            error: None,
            state: State::Reading,
        }
    }

    /// Bytes of the data section that have been read so far.
    pub fn position(&self) -> u64 {
        self.data.data_len().saturating_sub(self.records.remaining() as u64)
    }

    /// What became of deferred callchains; final once the iterator has ended.
    pub fn counts(&self) -> Counts {
        self.joiner.counts()
    }

    /// Records that are held back now.
    pub fn held(&self) -> usize {
        self.unsorted.len() + self.joiner.len()
    }

    fn read(&mut self) {
        match self.records.next() {
            None => self.end(None),
            Some(Err(error)) => self.end(Some(error)),
            Some(Ok(raw)) if raw.type_ == record_type::FINISHED_ROUND => {
                let (this, before) = self.round;
                self.settled = before;
                self.round = (this, this);
            }
            Some(Ok(raw)) => {
                let time = self.data.event_of(&raw).and_then(|(_, event)| event.format.time(&raw));
                match time {
                    Some(time) => {
                        self.round.0 = self.round.0.max(time);
                        self.unsorted.insert((time, raw.offset), raw);
                    }
                    None => self.decode(&raw),
                }
            }
        }
    }

    /// What came before the end, or the damage, is in order and good.
    fn end(&mut self, error: Option<Malformed>) {
        self.state = State::Read;
        self.settled = u64::MAX;
        if self.error.is_none() {
            self.error = error;
        }
    }

    /// The oldest record, if it is certain to be that, or if there are too many.
    fn next_sorted(&mut self) -> Option<RawRecord<'a>> {
        let full = self.unsorted.len() > self.unsorted_max;
        let first = self.unsorted.first_entry()?;
        let (time, _) = *first.key();
        (full || time <= self.settled).then(|| first.remove())
    }

    fn decode(&mut self, raw: &RawRecord<'a>) {
        let event = self.data.event_of(raw).map_or(0, |(index, _)| index);
        match self.data.decode(raw) {
            Ok(record) => self.joiner.take(event, record),
            Err(error) => self.end(Some(error)),
        }
    }
}

impl<'a, B: Deref<Target = [u8]>> Iterator for Stream<'a, B> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.joiner.pop() {
                return Some(Ok(item));
            }
            if let Some(raw) = self.next_sorted() {
                self.decode(&raw);
                continue;
            }
            match self.state {
                State::Reading => self.read(),
                State::Read => {
                    self.joiner.finish();
                    self.state = State::Done;
                }
                State::Done => return self.error.take().map(Err),
            }
        }
    }
}
