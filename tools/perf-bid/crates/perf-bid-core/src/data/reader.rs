// SPDX-License-Identifier: GPL-2.0
//! Reading a perf.data file. The file is mapped and records borrow from the map.
//!
//! What is not read yet is refused with a clear error, never guessed at: files of the other
//! byte order, pipe-mode files (a header of 16 bytes) and version 1 files.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;
use thiserror::Error;

use super::FEATURES_AT;
use super::HEADER_SIZE;
use super::MAGIC;
use super::feature::Features;
use crate::abi::sample;
use crate::attr::ATTR_SIZE_MIN;
use crate::attr::Attr;
use crate::cursor::Cursor;
use crate::cursor::Malformed;
use crate::record::Format;
use crate::record::RawRecord;
use crate::record::Record;

/// Why a file could not be read.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum DataError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("not a perf.data file (it does not start with PERFILE2)")]
    NotPerfData,
    #[error("recorded on a machine of the other byte order, which is not supported yet")]
    ForeignEndian,
    #[error("a pipe-mode perf.data (written to a pipe), which is not supported yet")]
    PipeMode,
    #[error("a version 1 perf.data (PERFFILE), which is not supported")]
    Version1,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// One event of a file.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct EventDesc {
    pub attr: Attr,
    pub ids: Vec<u64>,
    /// From the event description feature, else empty.
    pub name: String,
    pub format: Format,
}

/// An opened perf.data file.
#[derive(Debug)]
pub struct PerfData<B = Mmap> {
    bytes: B,
    events: Vec<EventDesc>,
    by_id: HashMap<u64, usize>,
    features: Features,
    feature_errors: Vec<Malformed>,
    data: (u64, u64),
}

impl PerfData<Mmap> {
    /// Maps and checks the file at `path`.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
        }
        if meta.len() == 0 {
            return Err(DataError::Empty);
        }
        // SAFETY: the map is read-only and private. Should another process shorten the file
        // meanwhile, an access past its end is a SIGBUS, not a wrong value; perf-bid itself
        // never changes a finished recording in place.
        let map = unsafe { Mmap::map(&file)? };
        Self::from_bytes(map)
    }
}

impl<B: Deref<Target = [u8]>> PerfData<B> {
    /// Checks the header, attrs and features of a file that is in memory.
    pub fn from_bytes(bytes: B) -> Result<Self, DataError> {
        check_magic(&bytes)?;
        let mut c = Cursor::new(&bytes, 0);
        c.skip(8, "magic")?;
        let header_size = c.u64("header size")?;
        if header_size == 16 {
            return Err(DataError::PipeMode);
        }
        if header_size < HEADER_SIZE {
            return Err(Malformed::new(8, format!("header size {header_size}")).into());
        }
        let attr_size = c.u64("attr size")?;
        let (attrs_at, attrs_len) = (c.u64("attrs offset")?, c.u64("attrs size")?);
        let data = (c.u64("data offset")?, c.u64("data size")?);
        let mut data_file = Self {
            bytes,
            events: Vec::new(),
            by_id: HashMap::new(),
            features: Features::default(),
            feature_errors: Vec::new(),
            data,
        };
        data_file.take_attrs(attr_size, attrs_at, attrs_len)?;
        data_file.take_features()?;
        let names = data_file.features.events.iter().map(|(name, _)| name.clone());
        for (event, name) in data_file.events.iter_mut().zip(names) {
            event.name = name;
        }
        Ok(data_file)
    }

    /// The events, in the order of the attrs section; at least one.
    pub fn events(&self) -> &[EventDesc] {
        &self.events
    }

    /// The feature sections.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Feature sections that could not be read; the rest of the file can.
    pub fn feature_errors(&self) -> &[Malformed] {
        &self.feature_errors
    }

    /// Size of the data section, in bytes.
    pub fn data_len(&self) -> u64 {
        self.data.1
    }

    /// The records in file order.
    pub fn records(&self) -> Records<'_> {
        let (offset, len) = self.data;
        let all = usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)).unwrap_or(&[]);
        match usize::try_from(len).ok().and_then(|len| all.get(..len)) {
            Some(rest) => Records { rest, offset, short: None },
            None => Records { rest: all, offset, short: Some(len) },
        }
    }

    /// The event that wrote `raw`.
    pub fn event_of(&self, raw: &RawRecord<'_>) -> Option<(usize, &EventDesc)> {
        let first = self.events.first()?;
        if self.events.len() == 1 {
            return Some((0, first));
        }
        // Records of no event in particular (ID 0, FINISHED_ROUND) have the first one's form.
        let index = first.format.event_id(raw).and_then(|id| self.by_id.get(&id).copied());
        let index = index.unwrap_or(0);
        self.events.get(index).map(|event| (index, event))
    }

    /// Decodes a record by its event's format.
    pub fn decode<'a>(&self, raw: &RawRecord<'a>) -> Result<Record<'a>, Malformed> {
        match self.event_of(raw) {
            Some((_, event)) => event.format.decode(raw),
            None => Err(Malformed::new(raw.offset, "the file describes no event")),
        }
    }

    fn take_attrs(&mut self, attr_size: u64, at: u64, len: u64) -> Result<(), DataError> {
        if attr_size < u64::from(ATTR_SIZE_MIN) + 16 {
            return Err(Malformed::new(16, format!("attr size {attr_size}")).into());
        }
        let section = slice(&self.bytes, at, len, "attrs section")?;
        if section.is_empty() || !len.is_multiple_of(attr_size) {
            let what = format!("attrs section of {len} bytes, attrs of {attr_size}");
            return Err(Malformed::new(32, what).into());
        }
        let mut c = Cursor::new(section, at);
        while !c.rest().is_empty() {
            let attr_at = c.offset();
            let attr = Attr::from_bytes(c.bytes(attr_size - 16, "attr")?, attr_at)?;
            let (ids_at, ids_len) = (c.u64("ID section")?, c.u64("ID section")?);
            let ids = slice(&self.bytes, ids_at, ids_len, "ID section")?;
            let ids = Cursor::new(ids, ids_at).u64s(ids_len / 8, "event IDs")?;
            let ids: Vec<u64> = ids.iter().map(|id| id.get()).collect();
            let index = self.events.len();
            self.by_id.extend(ids.iter().map(|&id| (id, index)));
            let format = Format::from(&attr);
            self.events.push(EventDesc { attr, ids, name: String::new(), format });
        }
        let identified = self.events.iter().all(|event| {
            event.attr.has_sample(sample::IDENTIFIER) || event.attr.has_sample(sample::ID)
        });
        if self.events.len() > 1 && !identified {
            let what = "several events, but their samples carry no ID to tell them apart";
            return Err(Malformed::new(at, what).into());
        }
        Ok(())
    }

    fn take_features(&mut self) -> Result<(), DataError> {
        let bits = slice(&self.bytes, FEATURES_AT as u64, 32, "feature bits")?.to_vec();
        let mut at = self.data.0.saturating_add(self.data.1);
        let mut features = Features::default();
        for bit in 0..256u32 {
            // The bitmap is an array of native u64.
            let word =
                bits.chunks_exact(8).nth(bit as usize / 64).and_then(|word| word.first_chunk());
            if word.is_none_or(|word| u64::from_ne_bytes(*word) >> (bit % 64) & 1 == 0) {
                continue;
            }
            let found = self
                .feature_section(at)
                .and_then(|(offset, section)| features.take(bit, section, offset));
            self.feature_errors.extend(found.err());
            at = at.saturating_add(16);
        }
        self.features = features;
        Ok(())
    }

    fn feature_section(&self, at: u64) -> Result<(u64, &[u8]), Malformed> {
        let mut c = Cursor::new(slice(&self.bytes, at, 16, "feature table")?, at);
        let (offset, len) = (c.u64("feature offset")?, c.u64("feature size")?);
        Ok((offset, slice(&self.bytes, offset, len, "feature section")?))
    }
}

fn check_magic(bytes: &[u8]) -> Result<(), DataError> {
    if bytes.is_empty() {
        return Err(DataError::Empty);
    }
    let native = u64::from_le_bytes(MAGIC).to_ne_bytes();
    let mut swapped = native;
    swapped.reverse();
    match bytes.first_chunk::<8>() {
        Some(magic) if *magic == native => Ok(()),
        Some(magic) if *magic == swapped => Err(DataError::ForeignEndian),
        Some(b"PERFFILE") => Err(DataError::Version1),
        _ => Err(DataError::NotPerfData),
    }
}

fn slice<'a>(bytes: &'a [u8], at: u64, len: u64, what: &str) -> Result<&'a [u8], Malformed> {
    let found = usize::try_from(at)
        .ok()
        .zip(usize::try_from(len).ok())
        .and_then(|(at, len)| bytes.get(at..at.checked_add(len)?));
    found.ok_or_else(|| {
        let have = bytes.len();
        Malformed::new(at, format!("{what} of {len} bytes reaches past the file's {have} bytes"))
    })
}

/// An iterator over the records of the data section. It ends after the first error.
#[derive(Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    offset: u64,
    /// The size the header claims, if the file is shorter than that.
    short: Option<u64>,
}

impl Records<'_> {
    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        match RawRecord::split(self.rest, self.offset) {
            Ok(Some((raw, rest))) => {
                let len = (self.rest.len() - rest.len()) as u64;
                self.offset = self.offset.saturating_add(len);
                self.rest = rest;
                Some(Ok(raw))
            }
            Ok(None) => self.short.take().map(|claimed| {
                let what = format!("the file ends here, before the {claimed} bytes of its data");
                Err(Malformed::new(self.offset, what))
            }),
            Err(error) => {
                self.rest = &[];
                self.short = None;
                Some(Err(error))
            }
        }
    }
}
