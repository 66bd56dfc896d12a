// SPDX-License-Identifier: GPL-2.0
//! Reading a perf.data file. A plain file of this machine's byte order is mapped, and records
//! borrow from the map; any other is normalised first, and they borrow from the outcome.

use std::fs::File;
use std::io;
use std::io::Read;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;

use memmap2::Mmap;
use memmap2::MmapMut;
use thiserror::Error;

use super::events::EventDesc;
use super::feature::Features;
use super::head::ByteOrder;
use super::head::Head;
use super::head::PIPE_HEADER_SIZE;
use super::head::Section;
use super::head::Sections;
use super::normal::Input;
use super::normal::Normal;
use super::normal::Tables;
use super::normal::normalize;
use super::records::Behind;
use super::records::Records;
use super::records::payload_len;
use super::spool::Spool;
use super::spool::SpoolWriter;
use crate::abi::record_type;
use crate::attr;
use crate::cursor::Cursor;
use crate::cursor::Malformed;
use crate::record::HEADER_SIZE as RECORD_HEADER_SIZE;
use crate::record::RawRecord;
use crate::record::Record;
use crate::record::swap::Swapper;

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
    #[error("a directory: recordings by several threads (perf record --threads) are not supported")]
    Directory,
    #[error(
        "no room for the records in {}: {source}; set TMPDIR to a directory with more",
        dir.display()
    )]
    Spool { dir: PathBuf, source: io::Error },
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// An opened perf.data file.
#[derive(Debug)]
pub struct PerfData<B = Mmap> {
    bytes: B,
    /// `bytes` is a shared mapping of a file.
    mapped: bool,
    /// The records, if they could not be used where they are.
    spool: Option<Spool>,
    tables: Tables,
    /// Where the records are in `bytes`, or were before they were spooled.
    data: Section,
    /// Why there are no more records than that, if there should be.
    end: Option<Malformed>,
    order: ByteOrder,
    pipe: bool,
    compressed: bool,
    /// When the file was last written to.
    modified: Option<SystemTime>,
}

impl PerfData<Mmap> {
    /// Opens the file or FIFO at `path`; `-` is standard input.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = if path.as_os_str() == "-" {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(DataError::Directory);
        }
        if !meta.is_file() {
            return Self::from_reader(file);
        }
        if meta.len() == 0 {
            return Err(DataError::Empty);
        }
        // SAFETY: the map is read-only. Should another process shorten the file meanwhile, an
        // access past its end is a SIGBUS, not a wrong value; perf-bid itself never changes a
        // finished recording in place.
        let map = unsafe { Mmap::map(&file)? };
        let modified = meta.modified().ok();
        Ok(Self { modified, ..Self::read(map, true)? })
    }

    /// Reads all of what cannot be mapped, such as a pipe.
    pub fn from_reader(mut from: impl Read) -> Result<Self, DataError> {
        let mut start = Vec::new();
        from.by_ref().take(PIPE_HEADER_SIZE).read_to_end(&mut start)?;
        let head = match Head::read(&start) {
            // What is cut off here may be all there is: that is for `read` to say.
            Err(DataError::Malformed(_)) => None,
            head => Some(head?),
        };
        if let Some(head @ Head { sections: None, .. }) = head {
            let input = Input { offset: PIPE_HEADER_SIZE, foreign: head.foreign(), pipe: true };
            let normal = normalize(from, input, Tables::default())?;
            return Ok(Self::of_pipe(MmapMut::map_anon(1)?.make_read_only()?, head, normal));
        }
        // A whole file that comes through a pipe.
        let mut file = SpoolWriter::on_disk();
        file.write(&start)?;
        let mut chunk = vec![0; 1 << 16];
        loop {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(len) => file.write(chunk.get(..len).unwrap_or_default())?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        match file.finish()? {
            Spool::Mapped(map) => Self::read(map, true),
            Spool::Memory(_) => Err(DataError::Empty),
        }
    }
}

impl<B: Deref<Target = [u8]>> PerfData<B> {
    /// Checks the header, attrs and features of a file that is in memory.
    pub fn from_bytes(bytes: B) -> Result<Self, DataError> {
        Self::read(bytes, false)
    }

    fn read(bytes: B, mapped: bool) -> Result<Self, DataError> {
        let head = Head::read(&bytes)?;
        let input = Input { offset: PIPE_HEADER_SIZE, foreign: head.foreign(), pipe: false };
        let Some(sections) = head.sections else {
            let input = Input { pipe: true, ..input };
            let data = Section { at: PIPE_HEADER_SIZE, len: u64::MAX };
            let normal = normalize(reader(&bytes, data, mapped), input, Tables::default())?;
            return Ok(Self::of_pipe(bytes, head, normal));
        };
        let mut tables = Tables::default();
        take_attrs(&mut tables, &bytes, &sections, head.foreign())?;
        let (data, end) = data_section(&bytes, sections.data, head.foreign());
        let unfinished = sections.data.len == 0 && data.len > 0;
        if unfinished {
            tables.notes.push("the recording was never finished".to_owned());
        } else {
            take_features(&mut tables, &bytes, &sections, head.order);
        }
        let compressed = tables.features.compression.is_some()
            || unfinished && has_compressed(&bytes, data, head.foreign());
        let mut new = Self {
            bytes,
            mapped,
            spool: None,
            tables,
            data,
            end,
            order: head.order,
            pipe: false,
            compressed,
            modified: None,
        };
        if head.foreign() || compressed {
            let tables = std::mem::take(&mut new.tables);
            let input = Input { offset: data.at, ..input };
            let normal = normalize(reader(&new.bytes, data, mapped), input, tables)?;
            new.tables = normal.tables;
            new.data.len = normal.spool.len() as u64;
            new.spool = Some(normal.spool);
            new.end = normal.end.or(new.end);
            new.compressed |= normal.compressed;
        }
        Ok(new)
    }

    fn of_pipe(bytes: B, head: Head, normal: Normal) -> Self {
        Self {
            bytes,
            mapped: false,
            data: Section { at: PIPE_HEADER_SIZE, len: normal.spool.len() as u64 },
            spool: Some(normal.spool),
            tables: normal.tables,
            end: normal.end,
            order: head.order,
            pipe: true,
            compressed: normal.compressed,
            modified: None,
        }
    }

    /// When the file was last written to, if it is one: the recording was over then.
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// What to say of features that could not be read, in a few lines: of a file that was cut
    /// short, none can be.
    pub fn unreadable_features(&self) -> Vec<String> {
        const SHOWN: usize = 2;
        let errors = self.feature_errors();
        let mut lines: Vec<_> = errors
            .iter()
            .take(SHOWN)
            .map(|error| format!("unreadable feature, left out: {error}"))
            .collect();
        match errors.len().saturating_sub(SHOWN) {
            0 => {}
            more => lines.push(format!("unreadable features, left out: {more} more")),
        }
        lines
    }

    /// The events, in the order of their attrs.
    pub fn events(&self) -> &[EventDesc] {
        self.tables.events.all()
    }

    /// The feature sections.
    pub fn features(&self) -> &Features {
        &self.tables.features
    }

    /// Feature sections that could not be read; the rest of the file can.
    pub fn feature_errors(&self) -> &[Malformed] {
        &self.tables.feature_errors
    }

    /// All feature sections as they lie in the file, in its byte order, with their numbers.
    pub fn feature_sections(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let spool = self.spool.as_deref().filter(|_| self.pipe);
        let bytes = spool.unwrap_or(&self.bytes);
        let sections = self.tables.sections.iter();
        sections.filter_map(|(bit, range)| Some((*bit, bytes.get(range.clone())?)))
    }

    /// What was passed over, for people.
    pub fn notes(&self) -> &[String] {
        &self.tables.notes
    }

    /// That of the recording machine. Records are always in this machine's.
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// Whether the recording was written to a pipe.
    pub fn is_pipe(&self) -> bool {
        self.pipe
    }

    /// Whether records were compressed.
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Size of the records, in bytes.
    pub fn data_len(&self) -> u64 {
        self.data.len
    }

    /// The records in file order.
    pub fn records(&self) -> Records<'_> {
        let bytes = self.record_bytes();
        Records::new(bytes, self.data.at, self.end.clone(), self.behind())
    }

    /// The record that begins at `offset`, as [`RawRecord::offset`] has it. `Ok(None)`: behind
    /// the last.
    pub fn record_at(&self, offset: u64) -> Result<Option<RawRecord<'_>>, Malformed> {
        let at = offset.checked_sub(self.data.at).and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.record_bytes().get(at..)).unwrap_or_default();
        Ok(RawRecord::split(bytes, offset)?.map(|(raw, _)| raw))
    }

    /// What follows an AUXTRACE or TRACING_DATA record without being one.
    pub fn payload(&self, raw: &RawRecord<'_>) -> Option<&[u8]> {
        let len = usize::try_from(payload_len(raw).ok()?).ok()?;
        let at = usize::try_from(raw.offset.checked_sub(self.data.at)?).ok()?;
        let at = at.checked_add(RECORD_HEADER_SIZE + raw.body.len())?;
        self.record_bytes().get(at..at.checked_add(len)?)
    }

    /// The event that wrote `raw`.
    pub fn event_of(&self, raw: &RawRecord<'_>) -> Option<(usize, &EventDesc)> {
        self.tables.events.of(raw)
    }

    /// Decodes a record by its event's format.
    pub fn decode<'a>(&self, raw: &RawRecord<'a>) -> Result<Record<'a>, Malformed> {
        match self.event_of(raw) {
            Some((_, event)) => event.format.decode(raw),
            None => Err(Malformed::new(raw.offset, "the file describes no event")),
        }
    }

    fn record_bytes(&self) -> &[u8] {
        match &self.spool {
            Some(spool) => spool,
            None => section(&self.bytes, self.data).unwrap_or_default(),
        }
    }

    /// For giving the pages of records back.
    pub(crate) fn behind(&self) -> Option<Behind<'_>> {
        let mapped = match &self.spool {
            Some(Spool::Mapped(_)) => true,
            Some(Spool::Memory(_)) => false,
            None => self.mapped,
        };
        // SAFETY: both the spool's map and the one `open` makes are shared maps of a file.
        mapped.then(|| unsafe { Behind::new(self.record_bytes(), self.data.at) })
    }
}

/// A reader of a section as far as there is one.
fn reader(bytes: &[u8], data: Section, mapped: bool) -> impl Read {
    let all = bytes.get(data.at.min(bytes.len() as u64) as usize..).unwrap_or_default();
    let rest = all.get(..data.len.min(all.len() as u64) as usize).unwrap_or_default();
    // SAFETY: `mapped` is true of a shared map of a file alone.
    let behind = mapped.then(|| unsafe { Behind::new(rest, 0) });
    InMemory { rest, offset: 0, behind }
}

/// Reads bytes and gives their pages back.
struct InMemory<'a> {
    rest: &'a [u8],
    offset: u64,
    behind: Option<Behind<'a>>,
}

impl Read for InMemory<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.rest.read(buf)?;
        self.offset += len as u64;
        if let Some(behind) = &mut self.behind {
            behind.advance(self.offset);
        }
        Ok(len)
    }
}

fn take_attrs(
    tables: &mut Tables,
    bytes: &[u8],
    sections: &Sections,
    foreign: bool,
) -> Result<(), DataError> {
    let Section { at, len } = sections.attrs;
    let attr_size = sections.attr_size;
    let attrs = slice(bytes, at, len, "attrs section")?;
    if attrs.is_empty() || !len.is_multiple_of(attr_size) {
        let what = format!("attrs section of {len} bytes, attrs of {attr_size}");
        return Err(Malformed::new(32, what).into());
    }
    let mut c = Cursor::new(attrs, at).foreign(foreign);
    let mut ids_left = bytes.len() as u64;
    while !c.rest().is_empty() {
        let attr_at = c.offset();
        let mut attr = c.bytes(attr_size - 16, "attr")?.to_vec();
        if foreign {
            attr::swap(&mut Swapper::new(&mut attr, attr_at))?;
        }
        let (ids_at, ids_len) = (c.u64("ID section")?, c.u64("ID section")?);
        let ids = slice(bytes, ids_at, ids_len, "ID section")?;
        // Sections that overlap could claim any number of IDs.
        ids_left = ids_left.checked_sub(ids_len).ok_or_else(|| {
            Malformed::new(attr_at, "the ID sections are larger than the file".to_owned())
        })?;
        let mut ids = Cursor::new(ids, ids_at).foreign(foreign);
        let ids = (0..ids_len / 8).map(|_| ids.u64("event IDs")).collect::<Result<_, _>>()?;
        tables.attr(&attr, ids, attr_at)?;
    }
    Ok(())
}

/// Where the records are, and why there are no more.
fn data_section(bytes: &[u8], stated: Section, foreign: bool) -> (Section, Option<Malformed>) {
    let file_len = bytes.len() as u64;
    let Section { at, len } = stated;
    let have = file_len.saturating_sub(at);
    if len == 0 && have > 0 && !is_feature_table(bytes, at, foreign) {
        let what = "the recording was never finished (its header says 0 bytes of records): \
                    this is the end of the file";
        return (Section { at, len: have }, Some(Malformed::new(file_len, what)));
    }
    let short = (len > have).then(|| {
        let what = format!("the file ends here, before the {len} bytes of its data");
        Malformed::new(file_len, what)
    });
    (Section { at, len: len.min(have) }, short)
}

/// Whether there is a feature table at `at`: its first section begins right behind it. A record
/// has its size in what would be the highest bits of that offset.
fn is_feature_table(bytes: &[u8], at: u64, foreign: bool) -> bool {
    let rest = bytes.get(at as usize..).unwrap_or_default();
    let first = Cursor::new(rest, at).foreign(foreign).u64("feature offset");
    let len = first.ok().and_then(|first| first.checked_sub(at));
    len.is_some_and(|len| len.is_multiple_of(16) && (16..=16 * 256).contains(&len))
}

/// Whether there are compressed records, in a file that cannot say so any more.
fn has_compressed(bytes: &[u8], data: Section, foreign: bool) -> bool {
    let Some(rest) = section(bytes, data) else {
        return false;
    };
    // What is foreign is normalised in any case.
    let mut records = Records::new(rest, data.at, None, None).map_while(Result::ok);
    !foreign
        && records
            .any(|raw| matches!(raw.type_, record_type::COMPRESSED | record_type::COMPRESSED2))
}

fn take_features(tables: &mut Tables, bytes: &[u8], sections: &Sections, order: ByteOrder) {
    let foreign = order != ByteOrder::NATIVE;
    let Section { at, len } = sections.data;
    let mut at = at.saturating_add(len);
    for bit in sections.features(order) {
        let found = feature_section(bytes, at, foreign).and_then(|(offset, section)| {
            let start = offset as usize;
            tables.sections.push((bit, start..start + section.len()));
            tables.features.take(bit, section, offset, foreign)
        });
        tables.feature_errors.extend(found.err());
        at = at.saturating_add(16);
    }
    tables.name_events();
}

fn feature_section(bytes: &[u8], at: u64, foreign: bool) -> Result<(u64, &[u8]), Malformed> {
    let mut c = Cursor::new(slice(bytes, at, 16, "feature table")?, at).foreign(foreign);
    let (offset, len) = (c.u64("feature offset")?, c.u64("feature size")?);
    Ok((offset, slice(bytes, offset, len, "feature section")?))
}

fn section(bytes: &[u8], section: Section) -> Option<&[u8]> {
    let start = usize::try_from(section.at).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(section.len).ok()?)?)
}

fn slice<'a>(bytes: &'a [u8], at: u64, len: u64, what: &str) -> Result<&'a [u8], Malformed> {
    section(bytes, Section { at, len }).ok_or_else(|| {
        let have = bytes.len();
        let offset = at.min(have as u64);
        Malformed::new(
            offset,
            format!("{what} of {len} bytes at {at:#x} reaches past the file's {have} bytes"),
        )
    })
}
