// SPDX-License-Identifier: GPL-2.0
//! The records of a file in time order, samples joined to their deferred callchains.
//!
//! Ring buffers of different CPUs are read one after the other, so that a file is in order
//! only within what one buffer gave. perf.data marks the end of each pass over the buffers
//! with FINISHED_ROUND: nothing that comes later is older than the pass before. That bounds
//! what must be held back to put it in order ([`sort`]); without such marks, [`Limits::unsorted`]
//! does.
//!
//! A sample whose user part was deferred (`{DEFERRED, cookie}`) waits for the
//! `CALLCHAIN_DEFERRED` record of the same thread and cookie, until it is certain not to come or
//! [`Limits::waiting`] others wait already. It then goes out without, marked as
//! [`Joined::missing`]. The module [`join`] has the rules.

mod join;
mod sort;
mod sorted;

use std::ops::Deref;

use zerocopy::native_endian::U64;

pub use self::join::Counts;
use self::join::Joiner;
use self::sort::Key;
use self::sort::Sorter;
pub use self::sorted::Sorted;
pub use self::sorted::Undecoded;
use crate::abi::Entry;
use crate::abi::Status;
use crate::abi::record_type;
use crate::cursor::Malformed;
use crate::data::Behind;
use crate::data::PerfData;
use crate::data::Records;
use crate::record::RawRecord;
use crate::record::Record;
use crate::record::Sample;

/// How much a [`Stream`] holds back at most, in records.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records that are put in order. Those of two passes over the ring buffers should fit; if
    /// they do not, the older half of them goes out.
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
    pub sample: Sample<'a>,
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
// See `Record`: nearly all are samples.
#[allow(clippy::large_enum_variant)]
pub enum Item<'a> {
    /// A complete sample.
    Sample(Joined<'a>),
    /// Any other record that this crate decodes.
    Other(Record<'a>),
}

impl Item<'_> {
    /// The record's time, if it has one.
    pub fn time(&self) -> Option<u64> {
        match self {
            Self::Sample(joined) => joined.sample.time,
            Self::Other(record) => record.time(),
        }
    }
}

/// An iterator over a file's records in time order; see [`join`] for samples that wait. It ends
/// after the first error, once the records before it are through.
#[derive(Debug)]
pub struct Stream<'a, B> {
    data: &'a PerfData<B>,
    records: Records<'a>,
    /// Behind the records that are held back.
    behind: Option<Behind<'a>>,
    sorter: Sorter,
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
            behind: data.behind(),
            sorter: Sorter::new(limits.unsorted),
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
        self.sorter.len() + self.joiner.len()
    }

    /// No item that is yet to come is older than that. It lags behind the items that came
    /// already while a thread holds something back.
    pub fn settled(&self) -> u64 {
        self.joiner.settled()
    }

    /// Reads a record. Returns what goes out at once.
    fn read(&mut self) -> Option<Item<'a>> {
        match self.records.next() {
            None => self.end(None),
            Some(Err(error)) => self.end(Some(error)),
            Some(Ok(raw)) if raw.type_ == record_type::FINISHED_ROUND => {
                self.sorter.end_pass();
                if let (Some(behind), Some(offset)) = (&mut self.behind, self.sorter.first_offset())
                {
                    behind.advance(offset);
                }
            }
            Some(Ok(raw)) => {
                let Some((event, desc)) = self.data.event_of(&raw) else {
                    return self.decode(&raw, 0);
                };
                match desc.format.time(&raw) {
                    Some(time) => {
                        let event = event as u32;
                        self.sorter.push(Key { time, offset: raw.offset, event });
                    }
                    None => return self.decode(&raw, event),
                }
            }
        }
        None
    }

    /// What came before the end, or the damage, is in order and good.
    fn end(&mut self, error: Option<Malformed>) {
        self.state = State::Read;
        self.sorter.end();
        if self.error.is_none() {
            self.error = error;
        }
    }

    /// Decodes a record. Returns what goes out at once.
    #[inline]
    fn decode(&mut self, raw: &RawRecord<'a>, event: usize) -> Option<Item<'a>> {
        let taken = match self.data.events().get(event) {
            // By far the most frequent: not moved around as a `Record`.
            Some(desc) if raw.type_ == record_type::SAMPLE => match desc.format.sample(raw) {
                Ok(sample) => return self.joiner.sample(event, sample),
                Err(error) => Err(error),
            },
            Some(desc) => desc.format.decode(raw).map(|record| self.joiner.take(record)),
            None => self.data.decode(raw).map(|record| self.joiner.take(record)),
        };
        taken.unwrap_or_else(|error| {
            self.end(Some(error));
            None
        })
    }
}

impl<'a, B: Deref<Target = [u8]>> Iterator for Stream<'a, B> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.joiner.pop() {
                return Some(Ok(item));
            }
            if let Some(key) = self.sorter.pop() {
                let item = match self.data.record_at(key.offset) {
                    Ok(Some(raw)) => self.decode(&raw, key.event as usize),
                    Ok(None) => None,
                    Err(error) => {
                        self.end(Some(error));
                        None
                    }
                };
                if let Some(item) = item {
                    return Some(Ok(item));
                }
                continue;
            }
            match self.state {
                State::Reading => {
                    if let Some(item) = self.read() {
                        return Some(Ok(item));
                    }
                }
                State::Read => {
                    self.joiner.finish();
                    self.state = State::Done;
                }
                State::Done => return self.error.take().map(Err),
            }
        }
    }
}
