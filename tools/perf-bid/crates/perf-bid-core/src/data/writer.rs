// SPDX-License-Identifier: GPL-2.0
//! Writing a perf.data file: header and attrs first, then records as they come, then the
//! features, and at last the header again with the true sizes. Until then the header says
//! that there is no data, which tells readers that the file was never finished.
//!
//! Should the disk be full, [`Writer::salvage`] ends the file after the last records that did
//! fit.

use std::io;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;

use super::FEATURES_AT;
use super::HEADER_SIZE;
use super::MAGIC;
use super::compress::Compressor;
use super::events::Events;
use super::feature::Feature;
use super::feature::Features;
use crate::attr::Attr;

/// `PERF_ATTR_SIZE_VER5`: old versions of perf refuse attrs that are longer than theirs, so
/// that fields nobody uses are left out.
const SHORT_ATTR: usize = 112;

/// Offset of `size` in an attr.
const ATTR_SIZE_AT: usize = 4;

/// Bytes of records to collect before they are written.
const BUFFER: usize = 1 << 18;

/// A perf.data file in the making.
#[derive(Debug)]
pub struct Writer<W: Write + Seek> {
    out: W,
    attrs: Vec<Vec<u8>>,
    attrs_at: u64,
    data_at: u64,
    /// Whole records, in the form they have in the file, that are not in `out` yet.
    pending: Vec<u8>,
    /// Bytes of records in `out`.
    stored: u64,
    /// The same, before the last records went there.
    stored_before: u64,
    compressor: Option<Compressor>,
    tracing_data: Option<Vec<u8>>,
}

impl<W: Write + Seek> Writer<W> {
    /// Starts a file for events with these attrs and IDs. Whose records could not be told apart
    /// again, by anyone who reads the file, are refused.
    pub fn new(out: W, events: &[(Attr, Vec<u64>)]) -> io::Result<Self> {
        let mut readable = Events::default();
        for (attr, _) in events {
            let told_apart = readable.push(attr.clone(), Vec::new(), 0);
            told_apart.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.what))?;
        }
        let attrs = file_attrs(events.iter().map(|(attr, _)| attr));
        let ids_len: u64 = events.iter().map(|(_, ids)| 8 * ids.len() as u64).sum();
        let attrs_at = HEADER_SIZE + ids_len;
        let data_at = attrs_at + attrs.iter().map(|attr| attr.len() as u64 + 16).sum::<u64>();
        let mut writer = Self {
            out,
            attrs,
            attrs_at,
            data_at,
            pending: Vec::new(),
            stored: 0,
            stored_before: 0,
            compressor: None,
            tracing_data: None,
        };
        let mut start = writer.header(&[]);
        let mut at = HEADER_SIZE;
        let mut table = Vec::new();
        for (bytes, (_, ids)) in writer.attrs.iter().zip(events) {
            ids.iter().for_each(|id| start.extend_from_slice(&id.to_ne_bytes()));
            table.extend_from_slice(bytes);
            table.extend_from_slice(&at.to_ne_bytes());
            table.extend_from_slice(&(8 * ids.len() as u64).to_ne_bytes());
            at += 8 * ids.len() as u64;
        }
        start.extend_from_slice(&table);
        writer.out.write_all(&start)?;
        Ok(writer)
    }

    /// Compresses the records that are written from now on, with zstd's `level`. For a file
    /// that has none yet.
    pub fn compress(&mut self, level: i32) -> io::Result<()> {
        self.compressor = Some(Compressor::new(level)?);
        Ok(())
    }

    /// Adds what [`tracing_data`](crate::event::tracing_data) says of the tracepoints.
    pub fn describe_tracepoints(&mut self, tracing_data: Vec<u8>) {
        self.tracing_data = Some(tracing_data);
    }

    /// Appends bytes of whole records.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        if let Some(compressor) = &mut self.compressor {
            compressor.append(records, &mut self.pending)?;
        } else if self.pending.len() + records.len() <= BUFFER {
            self.pending.extend_from_slice(records);
        } else {
            self.flush()?;
            self.store(records)?;
        }
        if self.pending.len() > BUFFER { self.flush() } else { Ok(()) }
    }

    /// Bytes of records so far, as they are in the file.
    pub fn data_len(&self) -> u64 {
        self.stored + self.pending.len() as u64
    }

    /// Writes the features and the final header; returns the sink and the file's size.
    pub fn finish(self, features: &Features) -> io::Result<(W, u64)> {
        self.finish_with(features, &[])
    }

    /// The same, with feature sections of another file, by their numbers. What `features` has
    /// goes before them.
    pub fn finish_with(
        mut self,
        features: &Features,
        others: &[(u8, &[u8])],
    ) -> io::Result<(W, u64)> {
        let size = self.close_with(features, others)?;
        Ok((self.out, size))
    }

    /// Writes the features and the final header; returns the file's size. Nothing may be
    /// written afterwards.
    pub fn close(&mut self, features: &Features) -> io::Result<u64> {
        self.close_with(features, &[])
    }

    fn close_with(&mut self, features: &Features, others: &[(u8, &[u8])]) -> io::Result<u64> {
        self.flush()?;
        let own = features.sections(&self.attrs).into_iter();
        let own = own
            .chain(self.compressor.iter().map(|it| (Feature::Compressed, it.feature())))
            .chain(self.tracing_data.iter().map(|it| (Feature::TracingData, it.clone())));
        let mut sections: Vec<_> = own.map(|(feature, bytes)| (feature as u8, bytes)).collect();
        for (bit, bytes) in others {
            if sections.iter().all(|(own, _)| own != bit) {
                sections.push((*bit, bytes.to_vec()));
            }
        }
        sections.sort_by_key(|(bit, _)| *bit);
        let table_at = self.data_at + self.stored;
        let mut at = table_at + 16 * sections.len() as u64;
        let mut end = Vec::new();
        for (_, bytes) in &sections {
            end.extend_from_slice(&at.to_ne_bytes());
            end.extend_from_slice(&(bytes.len() as u64).to_ne_bytes());
            at += bytes.len() as u64;
        }
        sections.iter().for_each(|(_, bytes)| end.extend_from_slice(bytes));
        self.out.seek(SeekFrom::Start(table_at))?;
        self.out.write_all(&end)?;
        let bits: Vec<_> = sections.iter().map(|(bit, _)| *bit).collect();
        self.rewrite_header(&bits)?;
        Ok(at)
    }

    /// After a failure to write: ends the file with records that are in it as a whole, and
    /// with the features. Where no room is left for these, the last records make some.
    pub fn salvage(&mut self, features: &Features) -> io::Result<()> {
        self.pending.clear();
        if self.close(features).is_ok() {
            return Ok(());
        }
        self.stored = self.stored_before;
        match self.close(features) {
            Ok(_) => Ok(()),
            Err(_) => self.rewrite_header(&[]),
        }
    }

    /// The sink, for what is to be done with a closed file.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let result = self.store(&pending);
        // Its room is used again.
        self.pending = pending;
        self.pending.clear();
        result
    }

    fn store(&mut self, records: &[u8]) -> io::Result<()> {
        self.out.write_all(records)?;
        self.stored_before = self.stored;
        self.stored += records.len() as u64;
        Ok(())
    }

    fn rewrite_header(&mut self, features: &[u8]) -> io::Result<()> {
        let header = self.header(features);
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()
    }

    fn header(&self, features: &[u8]) -> Vec<u8> {
        let file_attr_size = self.attrs.first().map_or(0, |attr| attr.len() as u64 + 16);
        let attrs_len = file_attr_size * self.attrs.len() as u64;
        let mut header = Vec::with_capacity(HEADER_SIZE as usize);
        header.extend_from_slice(&u64::from_le_bytes(MAGIC).to_ne_bytes());
        let words = [
            HEADER_SIZE,
            file_attr_size,
            self.attrs_at,
            attrs_len,
            self.data_at,
            self.stored,
            0,
            0,
        ];
        words.iter().for_each(|word| header.extend_from_slice(&word.to_ne_bytes()));
        debug_assert_eq!(header.len(), FEATURES_AT);
        for word in 0..4u8 {
            let bits = features
                .iter()
                .filter(|&&bit| bit / 64 == word)
                .fold(0u64, |bits, &bit| bits | 1 << (bit % 64));
            header.extend_from_slice(&bits.to_ne_bytes());
        }
        header
    }
}

/// The attrs as they go into the file, all of one size.
pub(super) fn file_attrs<'a>(attrs: impl Iterator<Item = &'a Attr>) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = attrs.map(Attr::to_bytes).collect();
    let unused = |attr: &Vec<u8>| attr.iter().skip(SHORT_ATTR).all(|&byte| byte == 0);
    if all.iter().all(unused) {
        for attr in &mut all {
            attr.truncate(SHORT_ATTR);
            set_word(attr, ATTR_SIZE_AT, SHORT_ATTR as u32);
        }
    }
    all
}

fn set_word(bytes: &mut [u8], at: usize, word: u32) {
    bytes.iter_mut().skip(at).zip(word.to_ne_bytes()).for_each(|(byte, value)| *byte = value);
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::data::PerfData;
    use crate::data::finished_round;

    /// A disk with room for so many bytes.
    struct Disk(Cursor<Vec<u8>>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.1.saturating_sub(self.0.position() as usize);
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.write(&bytes[..bytes.len().min(room)])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    /// Whatever the size of the disk, what is left can be read, and nearly all of it is there.
    #[test]
    fn a_full_disk_keeps_whole_records() {
        let round = finished_round();
        for room in (4 * BUFFER..4 * BUFFER + 1000).step_by(99) {
            let disk = Disk(Cursor::new(Vec::new()), room);
            let mut writer = Writer::new(disk, &[(Attr::default(), vec![1])]).unwrap();
            let error = (0..).find_map(|_| writer.write(&round.repeat(100)).err()).unwrap();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            let features = Features { hostname: Some("h".into()), ..Features::default() };
            writer.salvage(&features).unwrap();
            let bytes = std::mem::take(writer.get_mut().0.get_mut());
            let file = PerfData::from_bytes(bytes).unwrap();
            let records = file.records().filter(|record| record.is_ok()).count();
            assert_eq!(file.records().count(), records);
            assert!(records * round.len() > room - 3 * BUFFER, "{records}");
            assert_eq!(file.features().hostname.as_deref(), Some("h"));
        }
    }

    #[test]
    fn sizes_add_up() {
        let mut writer =
            Writer::new(Cursor::new(Vec::new()), &[(Attr::default(), vec![])]).unwrap();
        let big = finished_round().repeat(BUFFER);
        writer.write(&finished_round()).unwrap();
        writer.write(&big).unwrap();
        writer.write(&finished_round()).unwrap();
        assert_eq!(writer.data_len(), big.len() as u64 + 16);
        let (out, size) = writer.finish(&Features::default()).unwrap();
        let bytes = out.into_inner();
        assert_eq!(bytes.len() as u64, size);
        assert_eq!(PerfData::from_bytes(bytes).unwrap().records().count(), BUFFER + 2);
    }
}
