// SPDX-License-Identifier: GPL-2.0
//! Writing perf.data to a pipe, where nothing can be filled in later: a header of 16 bytes,
//! then records only. The attrs come as `HEADER_ATTR`, their names as `EVENT_UPDATE`, the
//! features as `HEADER_FEATURE`, and what is known at the end only, the build ID table, as the
//! records that it consists of.

use std::io;
use std::io::Write;

use super::MAGIC;
use super::compose::record;
use super::compress::Compressor;
use super::feature::Feature;
use super::feature::Features;
use super::writer::file_attrs;
use crate::abi::record_type;
use crate::attr::Attr;

/// Size of a pipe's header, in bytes.
const HEADER_SIZE: u64 = 16;

/// `PERF_EVENT_UPDATE__NAME`
const UPDATE_NAME: u64 = 2;

/// A perf.data stream in the making.
#[derive(Debug)]
pub struct PipeWriter<W: Write> {
    out: W,
    written: u64,
    compressor: Option<Compressor>,
}

impl<W: Write> PipeWriter<W> {
    /// Starts a stream for events with these attrs and IDs, and tells their names and what is
    /// known of the machine from `features`.
    pub fn new(out: W, events: &[(Attr, Vec<u64>)], features: &Features) -> io::Result<Self> {
        let mut writer = Self { out, written: 0, compressor: None };
        let mut start = u64::from_le_bytes(MAGIC).to_ne_bytes().to_vec();
        start.extend_from_slice(&HEADER_SIZE.to_ne_bytes());
        let attrs = file_attrs(events.iter().map(|(attr, _)| attr));
        for (attr, (_, ids)) in attrs.iter().zip(events) {
            let ids: Vec<_> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
            start.extend(fitting(record_type::HEADER_ATTR, &[attr.as_slice(), &ids].concat())?);
        }
        for ((_, ids), (name, _)) in events.iter().zip(&features.events) {
            start.extend(name_update(ids, name)?);
        }
        for (feature, bytes) in features.sections(&attrs) {
            if belongs_at_the_start(feature) {
                start.extend(feature_record(feature, &bytes)?);
            }
        }
        writer.put(&start)?;
        Ok(writer)
    }

    /// Compresses the records that are written from now on, with zstd's `level`.
    pub fn compress(&mut self, level: i32) -> io::Result<()> {
        let compressor = Compressor::new(level)?;
        let feature = feature_record(Feature::Compressed, &compressor.feature())?;
        self.put(&feature)?;
        self.compressor = Some(compressor);
        Ok(())
    }

    /// Writes bytes of whole records.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        let Some(compressor) = &mut self.compressor else {
            return self.put(records);
        };
        let mut compressed = Vec::new();
        compressor.append(records, &mut compressed)?;
        self.put(&compressed)
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes the build ID table; returns how many bytes there were in all.
    pub fn finish(&mut self, features: &Features) -> io::Result<u64> {
        self.put(&features.build_id_records())?;
        self.out.flush()?;
        Ok(self.written)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

/// The other features are known at the end only, are records of their own kind, or are not
/// among those that stock perf takes from a pipe.
fn belongs_at_the_start(feature: Feature) -> bool {
    !matches!(
        feature,
        Feature::BuildId | Feature::EventDesc | Feature::SampleTime | Feature::PerfBid
    )
}

fn name_update(ids: &[u64], name: &str) -> io::Result<Vec<u8>> {
    let mut body = UPDATE_NAME.to_ne_bytes().to_vec();
    body.extend_from_slice(&ids.first().copied().unwrap_or(0).to_ne_bytes());
    let end = body.len() + (name.len() + 1).next_multiple_of(8);
    body.extend_from_slice(name.as_bytes());
    body.resize(end, 0);
    fitting(record_type::EVENT_UPDATE, &body)
}

fn feature_record(feature: Feature, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut body = (feature as u64).to_ne_bytes().to_vec();
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(8), 0);
    fitting(record_type::HEADER_FEATURE, &body)
}

/// A record, if its contents fit: the size of one is a `u16`.
fn fitting(type_: u32, body: &[u8]) -> io::Result<Vec<u8>> {
    record(type_, 0, body).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{} bytes about an event do not fit into a record of a pipe: record fewer \
                 threads, or into a file",
                body.len()
            ),
        )
    })
}
