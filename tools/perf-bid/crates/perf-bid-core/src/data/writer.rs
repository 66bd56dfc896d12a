// SPDX-License-Identifier: GPL-2.0
//! Writing a perf.data file: header and attrs first, then records as they come, then the
//! features, and at last the header again with the true sizes. Until then the header says
//! that there is no data, which tells readers that the file was never finished.

use std::io;
use std::io::BufWriter;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;

use super::FEATURES_AT;
use super::HEADER_SIZE;
use super::MAGIC;
use super::feature::Features;
use crate::abi::record_type;
use crate::attr::Attr;
use crate::record::Format;
use crate::record::HEADER_SIZE as RECORD_HEADER_SIZE;

/// `PERF_ATTR_SIZE_VER5`: old versions of perf refuse attrs that are longer than theirs, so
/// that fields nobody uses are left out.
const SHORT_ATTR: usize = 112;

/// Offset of `size` in an attr.
const ATTR_SIZE_AT: usize = 4;

/// A perf.data file in the making.
#[derive(Debug)]
pub struct Writer<W: Write + Seek> {
    out: BufWriter<W>,
    attrs: Vec<Vec<u8>>,
    attrs_at: u64,
    data_at: u64,
    data_len: u64,
}

impl<W: Write + Seek> Writer<W> {
    /// Starts a file for events with these attrs and IDs.
    pub fn new(out: W, events: &[(Attr, Vec<u64>)]) -> io::Result<Self> {
        let attrs = file_attrs(events.iter().map(|(attr, _)| attr));
        let ids_len: u64 = events.iter().map(|(_, ids)| 8 * ids.len() as u64).sum();
        let attrs_at = HEADER_SIZE + ids_len;
        let data_at = attrs_at + attrs.iter().map(|attr| attr.len() as u64 + 16).sum::<u64>();
        let out = BufWriter::with_capacity(1 << 18, out);
        let mut writer = Self { out, attrs, attrs_at, data_at, data_len: 0 };
        writer.put_header(&[])?;
        let mut at = HEADER_SIZE;
        let mut table = Vec::new();
        for (bytes, (_, ids)) in writer.attrs.iter().zip(events) {
            ids.iter().try_for_each(|id| writer.out.write_all(&id.to_ne_bytes()))?;
            table.extend_from_slice(bytes);
            table.extend_from_slice(&at.to_ne_bytes());
            table.extend_from_slice(&(8 * ids.len() as u64).to_ne_bytes());
            at += 8 * ids.len() as u64;
        }
        writer.out.write_all(&table)?;
        Ok(writer)
    }

    /// Appends bytes of whole records.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.out.write_all(records)?;
        self.data_len += records.len() as u64;
        Ok(())
    }

    /// Bytes of records so far.
    pub fn data_len(&self) -> u64 {
        self.data_len
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
        let own = features.sections(&self.attrs);
        let mut sections: Vec<_> =
            own.iter().map(|(feature, bytes)| (*feature as u8, bytes.as_slice())).collect();
        for (bit, bytes) in others {
            if sections.iter().all(|(own, _)| own != bit) {
                sections.push((*bit, bytes));
            }
        }
        sections.sort_by_key(|(bit, _)| *bit);
        let table_at = self.data_at + self.data_len;
        let mut at = table_at + 16 * sections.len() as u64;
        for (_, bytes) in &sections {
            self.out.write_all(&at.to_ne_bytes())?;
            self.out.write_all(&(bytes.len() as u64).to_ne_bytes())?;
            at += bytes.len() as u64;
        }
        sections.iter().try_for_each(|(_, bytes)| self.out.write_all(bytes))?;
        self.out.seek(SeekFrom::Start(0))?;
        let bits: Vec<_> = sections.iter().map(|(bit, _)| *bit).collect();
        self.put_header(&bits)?;
        let out = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((out, at))
    }

    fn put_header(&mut self, features: &[u8]) -> io::Result<()> {
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
            self.data_len,
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
        self.out.write_all(&header)
    }
}

/// The attrs as they go into the file, all of one size.
fn file_attrs<'a>(attrs: impl Iterator<Item = &'a Attr>) -> Vec<Vec<u8>> {
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

fn record(type_: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = RECORD_HEADER_SIZE + body.len();
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(&type_.to_ne_bytes());
    out.extend_from_slice(&misc.to_ne_bytes());
    out.extend_from_slice(&(size as u16).to_ne_bytes());
    out.extend_from_slice(body);
    out
}

/// The record that ends a pass over all ring buffers.
pub fn finished_round() -> Vec<u8> {
    record(record_type::FINISHED_ROUND, 0, &[])
}

/// A COMM record for a thread that had its name before the recording began.
pub fn comm_record(attr: &Attr, pid: u32, tid: u32, comm: &[u8], time: u64, id: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&pid.to_ne_bytes());
    body.extend_from_slice(&tid.to_ne_bytes());
    // TASK_COMM_LEN is 16, the NUL included.
    let comm = comm.get(..15).unwrap_or(comm);
    body.extend_from_slice(comm);
    body.resize(body.len() + (comm.len() + 1).next_multiple_of(8) - comm.len(), 0);
    Format::from(attr).put_sample_id(&mut body, pid, tid, time, id);
    record(record_type::COMM, 0, &body)
}
