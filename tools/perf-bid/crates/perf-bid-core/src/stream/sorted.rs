// SPDX-License-Identifier: GPL-2.0
//! Records in time order, undecoded: what a converter needs, which copies most of them.

use std::collections::VecDeque;
use std::ops::Deref;

use crate::abi::record_type;
use crate::cursor::Malformed;
use crate::data::PerfData;
use crate::data::Records;
use crate::record::RawRecord;

/// A record and what had to be known to put it in order.
#[derive(Clone, Copy, Debug)]
pub struct Undecoded<'a> {
    /// The record.
    pub raw: RawRecord<'a>,
    /// Index of its event in the file.
    pub event: usize,
    /// When, if the record says.
    pub time: Option<u64>,
}

impl Undecoded<'_> {
    /// Those without a time are never held back.
    fn key(&self) -> u64 {
        self.time.unwrap_or(0)
    }
}

/// An iterator over a file's records in time order. Records without a time come as soon as they
/// are read; the marks between passes over the ring buffers do not come at all. It ends after
/// the first error, once the records before it are through.
#[derive(Debug)]
pub struct Sorted<'a, B> {
    data: &'a PerfData<B>,
    records: Records<'a>,
    /// In order once [`Sorted::settle`] has been there.
    unsorted: Vec<Undecoded<'a>>,
    unsorted_max: usize,
    ready: VecDeque<Undecoded<'a>>,
    /// Latest time of this pass and of the one before.
    round: (u64, u64),
    error: Option<Malformed>,
    ended: bool,
}

impl<'a, B: Deref<Target = [u8]>> Sorted<'a, B> {
    /// The records of `data`, of which at most `unsorted_max` are held back.
    pub fn new(data: &'a PerfData<B>, unsorted_max: usize) -> Self {
        Self {
            data,
            records: data.records(),
            unsorted: Vec::new(),
            unsorted_max,
            ready: VecDeque::new(),
            round: (0, 0),
            error: None,
            ended: false,
        }
    }

    /// Bytes of the data section that have been read so far.
    pub fn position(&self) -> u64 {
        self.data.data_len().saturating_sub(self.records.remaining() as u64)
    }

    fn read(&mut self) {
        match self.records.next() {
            None => self.end(None),
            Some(Err(error)) => self.end(Some(error)),
            Some(Ok(raw)) if raw.type_ == record_type::FINISHED_ROUND => {
                let (this, before) = self.round;
                self.round = (this, this);
                self.settle(before);
            }
            Some(Ok(raw)) => {
                let event = self.data.event_of(&raw);
                let time = event.and_then(|(_, event)| event.format.time(&raw));
                let record = Undecoded { raw, event: event.map_or(0, |(index, _)| index), time };
                match time {
                    Some(time) => self.hold(time, record),
                    None => self.ready.push_back(record),
                }
            }
        }
    }

    fn hold(&mut self, time: u64, record: Undecoded<'a>) {
        self.round.0 = self.round.0.max(time);
        self.unsorted.push(record);
        if self.unsorted.len() > self.unsorted_max {
            self.unsorted.sort_by_key(Undecoded::key);
            let middle = self.unsorted.get(self.unsorted.len() / 2);
            self.settle(middle.map_or(u64::MAX, Undecoded::key));
        }
    }

    /// Nothing older than `time` is to come.
    fn settle(&mut self, time: u64) {
        // Stable: records of the same time stay as they are in the file. Each ring buffer's are
        // in order, which the sort makes use of.
        self.unsorted.sort_by_key(Undecoded::key);
        let settled = self.unsorted.partition_point(|record| record.key() <= time);
        self.ready.extend(self.unsorted.drain(..settled));
    }

    fn end(&mut self, error: Option<Malformed>) {
        self.ended = true;
        self.error = error;
        self.settle(u64::MAX);
    }
}

impl<'a, B: Deref<Target = [u8]>> Iterator for Sorted<'a, B> {
    type Item = Result<Undecoded<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(Ok(record));
            }
            if self.ended {
                return self.error.take().map(Err);
            }
            self.read();
        }
    }
}
