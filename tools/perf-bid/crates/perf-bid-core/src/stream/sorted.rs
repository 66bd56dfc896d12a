// SPDX-License-Identifier: GPL-2.0
//! Records in time order, undecoded: what a converter needs, which copies most of them.

use std::ops::Deref;

use super::Limits;
use super::sort::Key;
use super::sort::Sorter;
use crate::abi::record_type;
use crate::cursor::Malformed;
use crate::data::Behind;
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

/// An iterator over a file's records in time order. Records without a time come as soon as they
/// are read; the marks between passes over the ring buffers do not come at all. It ends after
/// the first error, once the records before it are through.
#[derive(Debug)]
pub struct Sorted<'a, B> {
    data: &'a PerfData<B>,
    records: Records<'a>,
    /// Behind the records that are held back.
    behind: Option<Behind<'a>>,
    sorter: Sorter,
    error: Option<Malformed>,
    ended: bool,
}

impl<'a, B: Deref<Target = [u8]>> Sorted<'a, B> {
    /// The records of `data`.
    pub fn new(data: &'a PerfData<B>) -> Self {
        let sorter = Sorter::new(Limits::default().unsorted);
        let (records, behind) = (data.records(), data.behind());
        Self { data, records, behind, sorter, error: None, ended: false }
    }

    /// Bytes of the data section that have been read so far.
    pub fn position(&self) -> u64 {
        self.data.data_len().saturating_sub(self.records.remaining() as u64)
    }

    /// Reads one record, and returns it if it has no time.
    fn read(&mut self) -> Option<Undecoded<'a>> {
        let raw = match self.records.next() {
            Some(Ok(raw)) => raw,
            other => {
                self.ended = true;
                self.error = other.and_then(Result::err);
                self.sorter.end();
                return None;
            }
        };
        if raw.type_ == record_type::FINISHED_ROUND {
            self.sorter.end_pass();
            if let (Some(behind), Some(at)) = (&mut self.behind, self.sorter.first_offset()) {
                behind.advance(at);
            }
            return None;
        }
        let found = self.data.event_of(&raw);
        let event = found.map_or(0, |(index, _)| index);
        match found.and_then(|(_, desc)| desc.format.time(&raw)) {
            Some(time) => {
                self.sorter.push(Key { time, offset: raw.offset, event: event as u32 });
                None
            }
            None => Some(Undecoded { raw, event, time: None }),
        }
    }
}

impl<'a, B: Deref<Target = [u8]>> Iterator for Sorted<'a, B> {
    type Item = Result<Undecoded<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(Key { time, offset, event }) = self.sorter.pop() {
                let raw = self.data.record_at(offset).transpose()?;
                let time = Some(time);
                return Some(raw.map(|raw| Undecoded { raw, event: event as usize, time }));
            }
            if self.ended {
                return self.error.take().map(Err);
            }
            if let Some(record) = self.read() {
                return Some(Ok(record));
            }
        }
    }
}
