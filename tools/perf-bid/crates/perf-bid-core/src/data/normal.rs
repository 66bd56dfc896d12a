// SPDX-License-Identifier: GPL-2.0
//! Makes plain records in this machine's byte order of those that are compressed, of the other
//! byte order, or come through a pipe.
//!
//! Input is read once and in small pieces; the records go to a [`Spool`]. From a pipe, what the
//! header of a file would say is learned on the way: HEADER_ATTR, EVENT_UPDATE, BUILD_ID,
//! TRACING_DATA and HEADER_FEATURE records.
//!
//! The compressed records of a file are one zstd stream, from which whole records come out
//! without regard to where one compressed record ends and the next begins.

use std::collections::BTreeMap;
use std::io;
use std::io::Read;
use std::ops::Range;

use zstd::stream::raw::Decoder;
use zstd::stream::raw::InBuffer;
use zstd::stream::raw::Operation;
use zstd::stream::raw::OutBuffer;

use super::DataError;
use super::events::Events;
use super::feature::BuildIdRow;
use super::feature::Feature;
use super::feature::Features;
use super::records::payload_len;
use super::spool::Spool;
use super::spool::SpoolWriter;
use crate::abi::record_type;
use crate::attr;
use crate::attr::Attr;
use crate::cursor::Malformed;
use crate::record::HEADER_SIZE;
use crate::record::RawRecord;
use crate::record::bad_size;
use crate::record::swap;
use crate::record::swap::Swapper;
use crate::record::swap::event_update;
use crate::record::text;

/// Bytes that are read, and decompressed, at a time.
const CHUNK: usize = 1 << 17;

/// Compressed records become at most this many times as long (real ones, some ten times), and
/// [`ALWAYS_INFLATED`]: a small file must not fill the disk.
const MOST_INFLATED: u64 = 1 << 10;

/// In bytes.
const ALWAYS_INFLATED: u64 = 64 << 20;

/// Different types of records that are counted each for itself.
const TYPES_MAX: usize = 64;

/// What a file says about its records.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) events: Events,
    pub(super) features: Features,
    pub(super) feature_errors: Vec<Malformed>,
    /// Where each feature's section lies: in the file, or in the spool for a pipe.
    pub(super) sections: Vec<(u32, Range<usize>)>,
    /// What was passed over.
    pub(super) notes: Vec<String>,
}

impl Tables {
    /// Adds an attr of at least 64 bytes and its IDs.
    pub(super) fn attr(
        &mut self,
        bytes: &[u8],
        ids: Vec<u64>,
        offset: u64,
    ) -> Result<(), Malformed> {
        let attr = Attr::from_bytes(bytes, offset)?;
        let index = self.events.all().len();
        let stated = attr::stated_size(bytes, offset)? as usize;
        let known = attr::ATTR_SIZE as usize;
        if stated > bytes.len() {
            let have = bytes.len();
            self.notes.push(format!(
                "the attr of event {index} says that it is {stated} bytes long: the file has {have}"
            ));
        }
        if bytes
            .get(known..stated.min(bytes.len()))
            .is_some_and(|tail| tail.iter().any(|&b| b != 0))
        {
            self.notes.push(format!(
                "the attr of event {index} is {stated} bytes long, and not all of those after \
                 {known} are 0: they were passed over"
            ));
        }
        self.events.push(attr, ids, offset)
    }

    /// Gives the events that have no name the ones of the event description feature.
    pub(super) fn name_events(&mut self) {
        let names = self.features.events.iter().map(|(name, _)| name);
        for (event, name) in self.events.all_mut().iter_mut().zip(names) {
            if event.name.is_empty() {
                event.name.clone_from(name);
            }
        }
    }
}

/// Records that can be used as they are.
#[derive(Debug)]
pub(super) struct Normal {
    pub(super) spool: Spool,
    pub(super) tables: Tables,
    /// Why there is no more.
    pub(super) end: Option<Malformed>,
    pub(super) compressed: bool,
}

/// How to read the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// Where the records begin, in bytes of the input.
    pub(super) offset: u64,
    /// They are of the other byte order.
    pub(super) foreign: bool,
    /// They describe themselves.
    pub(super) pipe: bool,
}

/// Reads all of `from`. What comes before damage is kept.
pub(super) fn normalize(
    mut from: impl Read,
    input: Input,
    tables: Tables,
) -> Result<Normal, DataError> {
    let mut splitter = Splitter::new(input.offset, input.foreign);
    let mut sink = Sink::new(input, tables);
    let mut chunk = vec![0; CHUNK];
    let end = loop {
        let len = match from.read(&mut chunk) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        if len == 0 {
            break splitter.unfinished().or_else(|| sink.inner.as_ref()?.unfinished());
        }
        splitter.push(chunk.get(..len).unwrap_or_default());
        match sink.drain(&mut splitter, false) {
            Ok(()) => {}
            Err(DataError::Malformed(error)) => break Some(error),
            Err(error) => return Err(error),
        }
    };
    sink.finish(end)
}

/// Cuts bytes into records.
#[derive(Debug)]
struct Splitter {
    buf: Vec<u8>,
    /// Where the next record begins in it, and in the input.
    head: usize,
    offset: u64,
    /// Bytes up to there that are not a record.
    payload: u64,
    foreign: bool,
}

/// What [`Splitter::next`] finds.
enum Piece<'b> {
    /// A whole record with its header turned, and its size.
    Record { bytes: &'b mut [u8], offset: u64 },
    /// A part of a payload.
    Payload(&'b [u8]),
}

impl Splitter {
    fn new(offset: u64, foreign: bool) -> Self {
        Self { buf: Vec::new(), head: 0, offset, payload: 0, foreign }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.buf.drain(..self.head);
        self.head = 0;
        self.buf.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Result<Option<Piece<'_>>, Malformed> {
        let offset = self.offset;
        let rest = self.buf.get_mut(self.head..).unwrap_or_default();
        if self.payload > 0 {
            let len = self.payload.min(rest.len() as u64);
            self.payload -= len;
            self.head += len as usize;
            self.offset += len;
            let piece = rest.get(..len as usize).filter(|piece| !piece.is_empty());
            return Ok(piece.map(Piece::Payload));
        }
        let Some(&[t0, t1, t2, t3, _, _, s0, s1]) = rest.first_chunk() else {
            return Ok(None);
        };
        let (mut type_, mut size) =
            (u32::from_ne_bytes([t0, t1, t2, t3]), u16::from_ne_bytes([s0, s1]));
        if self.foreign {
            (type_, size) = (type_.swap_bytes(), size.swap_bytes());
        }
        if usize::from(size) < HEADER_SIZE {
            return Err(bad_size(offset, type_, size, rest.len()));
        }
        let size = usize::from(size);
        let Some(bytes) = rest.get_mut(..size) else {
            return Ok(None);
        };
        if self.foreign {
            swap::header(bytes, offset)?;
        }
        self.head += size;
        self.offset += size as u64;
        Ok(Some(Piece::Record { bytes, offset }))
    }

    /// Whether something is missing at the end.
    fn unfinished(&self) -> Option<Malformed> {
        let left = self.buf.len() - self.head;
        (left > 0 || self.payload > 0)
            .then(|| Malformed::new(self.offset, "the records end here, in the middle of one"))
    }
}

/// Where records go.
struct Sink {
    input: Input,
    tables: Tables,
    out: SpoolWriter,
    /// What comes out of compressed records, and is not whole yet.
    inner: Option<Splitter>,
    decoder: Option<Decoder<'static>>,
    /// What more may come out of it, in bytes.
    room: u64,
    passed_over: BTreeMap<u32, u64>,
    passed_over_more: u64,
}

impl Sink {
    fn new(input: Input, tables: Tables) -> Self {
        Self {
            input,
            tables,
            out: SpoolWriter::new(),
            inner: None,
            decoder: None,
            room: ALWAYS_INFLATED,
            passed_over: BTreeMap::new(),
            passed_over_more: 0,
        }
    }

    /// Takes what is whole. `inside`: it was compressed.
    fn drain(&mut self, splitter: &mut Splitter, inside: bool) -> Result<(), DataError> {
        while let Some(piece) = splitter.next()? {
            match piece {
                Piece::Payload(bytes) => self.out.write(bytes)?,
                Piece::Record { bytes, offset } => {
                    splitter.payload = self.record(bytes, offset, inside)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a record and returns the size of the payload behind it.
    fn record(&mut self, bytes: &mut [u8], offset: u64, inside: bool) -> Result<u64, DataError> {
        let Some((raw, _)) = RawRecord::split(bytes, offset)? else {
            return Ok(0);
        };
        let (type_, misc) = (raw.type_, raw.misc);
        let compressed = matches!(type_, record_type::COMPRESSED | record_type::COMPRESSED2);
        if inside && (compressed || has_payload(type_)) {
            let what = format!("a record of type {type_} within a compressed one");
            return Err(Malformed::new(offset, what).into());
        }
        if self.input.foreign && !self.turn(type_, misc, bytes, offset)? {
            self.pass_over(type_);
            return Ok(0);
        }
        let Some((raw, _)) = RawRecord::split(bytes, offset)? else {
            return Ok(0);
        };
        if compressed {
            self.inflate(&raw)?;
            return Ok(0);
        }
        let payload = payload_len(&raw)?;
        if self.input.pipe && !inside {
            self.learn(&raw, payload)?;
        }
        self.out.write(bytes)?;
        Ok(payload)
    }

    /// Turns the body of a record. `Ok(false)`: its type is not known.
    fn turn(
        &self,
        type_: u32,
        misc: u16,
        bytes: &mut [u8],
        offset: u64,
    ) -> Result<bool, Malformed> {
        let body = bytes.get_mut(HEADER_SIZE..).unwrap_or_default();
        let offset_in = offset.saturating_add(HEADER_SIZE as u64);
        if type_ >= record_type::USER_TYPE_START {
            return swap::user_record(type_, Swapper::new(body, offset_in));
        }
        let format = self.tables.events.of_foreign(type_, body).map(|event| event.format);
        let format =
            format.ok_or_else(|| Malformed::new(offset, "a record before any event's attr"))?;
        format.swap(type_, misc, Swapper::new(body, offset_in))
    }

    fn pass_over(&mut self, type_: u32) {
        let full = self.passed_over.len() >= TYPES_MAX;
        match self.passed_over.get_mut(&type_) {
            Some(count) => *count += 1,
            None if full => self.passed_over_more += 1,
            None => drop(self.passed_over.insert(type_, 1)),
        }
    }

    fn inflate(&mut self, raw: &RawRecord<'_>) -> Result<(), DataError> {
        let mut c = raw.cursor();
        let len = match raw.type_ {
            record_type::COMPRESSED2 => c.u64("compressed size")?,
            _ => c.rest().len() as u64,
        };
        let data = c.bytes(len, "compressed data")?;
        let foreign = self.input.foreign;
        let mut splitter = self.inner.take().unwrap_or_else(|| Splitter::new(raw.offset, foreign));
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => Decoder::new()?,
        };
        let result = self.inflate_into(&mut splitter, &mut decoder, data, raw.offset);
        self.inner = Some(splitter);
        self.decoder = Some(decoder);
        // What is within has no place in the file but the compressed record's.
        result.map_err(|error| match error {
            DataError::Malformed(within) => {
                let what = format!("in the compressed record: {}", within.what);
                Malformed::new(raw.offset, what).into()
            }
            other => other,
        })
    }

    fn inflate_into(
        &mut self,
        splitter: &mut Splitter,
        decoder: &mut Decoder<'static>,
        data: &[u8],
        offset: u64,
    ) -> Result<(), DataError> {
        let mut buf = vec![0; CHUNK];
        let mut input = InBuffer::around(data);
        self.room = self.room.saturating_add(MOST_INFLATED * data.len() as u64);
        loop {
            let mut output = OutBuffer::around(buf.as_mut_slice());
            decoder
                .run(&mut input, &mut output)
                .map_err(|error| Malformed::new(offset, format!("damaged: {error}")))?;
            let len = output.pos();
            self.room = self.room.checked_sub(len as u64).ok_or_else(|| {
                let what = format!("it is more than {MOST_INFLATED} times as long inside");
                Malformed::new(offset, what)
            })?;
            splitter.push(buf.get(..len).unwrap_or_default());
            self.drain(splitter, true)?;
            if input.pos() >= data.len() && len < CHUNK {
                return Ok(());
            }
        }
    }

    /// What a pipe says in place of a header.
    fn learn(&mut self, raw: &RawRecord<'_>, payload: u64) -> Result<(), Malformed> {
        let mut c = raw.cursor();
        let after = self.out.len() + (HEADER_SIZE + raw.body.len()) as u64;
        match raw.type_ {
            record_type::HEADER_ATTR => {
                let size = attr::stated_size(raw.body, c.offset())?;
                let attr = c.bytes(size.into(), "attr")?;
                let ids = c.u64s(c.rest().len() as u64 / 8, "event IDs")?;
                let ids = ids.iter().map(|id| id.get()).collect();
                self.tables.attr(attr, ids, raw.offset)?;
            }
            record_type::EVENT_UPDATE => {
                let (kind, id) = (c.u64("event update type")?, c.u64("event update id")?);
                if kind == event_update::NAME {
                    let name = c.string(c.rest().len() as u64, "event name")?;
                    self.tables.events.rename(id, text(name).into_owned());
                }
            }
            record_type::HEADER_BUILD_ID => match BuildIdRow::take(raw) {
                Ok(row) => self.tables.features.build_ids.push(row),
                Err(error) => self.tables.feature_errors.push(error),
            },
            record_type::HEADER_TRACING_DATA => {
                self.section(Feature::TracingData as u32, after..after.saturating_add(payload));
            }
            record_type::HEADER_FEATURE => {
                let bit = c.u64("feature")?;
                let section = c.rest();
                // The last one has no data and the number of no feature.
                if let Ok(bit @ 0..256) = u32::try_from(bit)
                    && !section.is_empty()
                {
                    self.section(bit, after - section.len() as u64..after);
                    let foreign = self.input.foreign;
                    let taken = self.tables.features.take(bit, section, c.offset(), foreign);
                    self.tables.feature_errors.extend(taken.err());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn section(&mut self, bit: u32, range: Range<u64>) {
        self.tables.sections.retain(|(other, _)| *other != bit);
        self.tables.sections.push((bit, range.start as usize..range.end as usize));
    }

    fn finish(mut self, end: Option<Malformed>) -> Result<Normal, DataError> {
        self.tables.name_events();
        let notes = &mut self.tables.notes;
        notes.extend(
            self.passed_over.iter().map(|(type_, count)| {
                format!("{count} records of unknown type {type_} passed over")
            }),
        );
        if self.passed_over_more > 0 {
            notes.push(format!("{} records of more types passed over", self.passed_over_more));
        }
        let compressed = self.decoder.is_some();
        Ok(Normal { spool: self.out.finish()?, tables: self.tables, end, compressed })
    }
}

fn has_payload(type_: u32) -> bool {
    matches!(type_, record_type::AUXTRACE | record_type::HEADER_TRACING_DATA)
}
