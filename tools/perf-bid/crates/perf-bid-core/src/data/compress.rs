// SPDX-License-Identifier: GPL-2.0
//! Records in compressed form: `PERF_RECORD_COMPRESSED2`, a `u64` length and so many bytes of
//! a zstd stream, padded to 8. One stream goes through all of a file; each record ends with a
//! flush, so that it gives its contents back without the next.

use std::io;

use zstd::stream::raw::Encoder;
use zstd::stream::raw::InBuffer;
use zstd::stream::raw::Operation;
use zstd::stream::raw::OutBuffer;

use crate::abi::record_type;
use crate::record::HEADER_SIZE;

/// Bytes that go into one record: even what cannot be compressed then fits its `u16` size.
pub const CHUNK: usize = 56 << 10;

/// `PERF_COMP_ZSTD`
const ZSTD: u32 = 1;

/// Turns records into compressed ones.
pub struct Compressor {
    encoder: Encoder<'static>,
    level: i32,
    scratch: Vec<u8>,
    taken: u64,
    given: u64,
}

impl Compressor {
    /// A new stream of zstd's `level`.
    pub fn new(level: i32) -> io::Result<Self> {
        let scratch = vec![0; zstd::zstd_safe::compress_bound(CHUNK) + 64];
        Ok(Self { encoder: Encoder::new(level)?, level, scratch, taken: 0, given: 0 })
    }

    /// Appends `records` to `out` as compressed records.
    pub fn append(&mut self, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        for chunk in records.chunks(CHUNK) {
            let len = self.compress(chunk)?;
            let data = self.scratch.get(..len).unwrap_or_default();
            let size = (HEADER_SIZE + 8 + data.len()).next_multiple_of(8);
            let size16 = u16::try_from(size).map_err(|_| io::Error::other("zstd grew a chunk"))?;
            let end = out.len() + size;
            out.extend_from_slice(&record_type::COMPRESSED2.to_ne_bytes());
            out.extend_from_slice(&0u16.to_ne_bytes());
            out.extend_from_slice(&size16.to_ne_bytes());
            out.extend_from_slice(&(len as u64).to_ne_bytes());
            out.extend_from_slice(data);
            out.resize(end, 0);
            self.taken += chunk.len() as u64;
            self.given += size as u64;
        }
        Ok(())
    }

    /// Compresses `chunk` into `scratch`; returns how many bytes that took.
    fn compress(&mut self, chunk: &[u8]) -> io::Result<usize> {
        let mut input = InBuffer::around(chunk);
        let mut output = OutBuffer::around(self.scratch.as_mut_slice());
        while input.pos() < chunk.len() {
            let before = (input.pos(), output.pos());
            self.encoder.run(&mut input, &mut output)?;
            if before == (input.pos(), output.pos()) {
                return Err(io::Error::other("zstd does not go on"));
            }
        }
        match self.encoder.flush(&mut output)? {
            0 => Ok(output.pos()),
            left => Err(io::Error::other(format!("zstd kept {left} bytes back"))),
        }
    }

    /// The `COMPRESSED` feature: version, kind, level, ratio, and the room that one record
    /// needs when it is unpacked.
    pub fn feature(&self) -> Vec<u8> {
        let ratio = self.taken.checked_div(self.given).unwrap_or(1).clamp(1, u32::MAX.into());
        let words = [1, ZSTD, self.level as u32, ratio as u32, CHUNK as u32];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("level", &self.level).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use zstd::stream::raw::Decoder;

    use super::*;
    use crate::record::RawRecord;

    /// Not even a repetition for zstd to find.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// Each record gives back its own contents when it is read, and all of them together what
    /// went in, be it compressible or not.
    #[test]
    fn records_come_back_one_by_one() {
        for bytes in [noise(3 * CHUNK + 17), vec![7; 5 * CHUNK], b"short".to_vec()] {
            let mut compressor = Compressor::new(1).unwrap();
            let mut out = Vec::new();
            compressor.append(&bytes, &mut out).unwrap();
            let mut decoder = Decoder::new().unwrap();
            let (mut rest, mut back) = (out.as_slice(), Vec::new());
            while let Some((raw, after)) = RawRecord::split(rest, 0).unwrap() {
                rest = after;
                assert_eq!((raw.type_, raw.body.len() % 8), (record_type::COMPRESSED2, 0));
                let len = u64::from_ne_bytes(raw.body[..8].try_into().unwrap()) as usize;
                let mut room = vec![0; CHUNK];
                let mut output = OutBuffer::around(room.as_mut_slice());
                let mut input = InBuffer::around(&raw.body[8..8 + len]);
                while input.pos() < len {
                    decoder.run(&mut input, &mut output).unwrap();
                }
                let got = output.pos();
                assert!(got > 0);
                back.extend_from_slice(&room[..got]);
            }
            assert!(back == bytes);
            assert_eq!(compressor.feature().len(), 20);
        }
    }
}
