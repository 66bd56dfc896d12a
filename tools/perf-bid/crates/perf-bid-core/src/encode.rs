// SPDX-License-Identifier: GPL-2.0
//! Records put together: what [`record`](crate::record) takes apart, the other way.
//!
//! For samples, [`Parts`](crate::record::Parts) does the same.

use crate::abi::BuildId;
use crate::abi::misc;
use crate::abi::record_type;
use crate::record::Format;
use crate::record::HEADER_SIZE;
use crate::record::RawRecord;

/// The longest record, in bytes: `header.size` is a u16, and records are made of double words.
pub const RECORD_MAX: usize = 65528;

pub(crate) fn put_header(out: &mut Vec<u8>, type_: u32, misc: u16, len: usize) {
    out.extend_from_slice(&type_.to_ne_bytes());
    out.extend_from_slice(&misc.to_ne_bytes());
    out.extend_from_slice(&(len as u16).to_ne_bytes());
}

/// Appends a whole record; `false` if `body` is too long for one.
pub fn put_record(out: &mut Vec<u8>, type_: u32, misc: u16, body: &[u8]) -> bool {
    let len = HEADER_SIZE + body.len();
    if len > RECORD_MAX {
        return false;
    }
    put_header(out, type_, misc, len);
    out.extend_from_slice(body);
    true
}

/// Appends a record as it is.
pub fn put_raw(out: &mut Vec<u8>, raw: &RawRecord<'_>) {
    put_header(out, raw.type_, raw.misc, HEADER_SIZE + raw.body.len());
    out.extend_from_slice(raw.body);
}

/// A mapping to be written as `PERF_RECORD_MMAP2`: private, executable code.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct CodeMap<'a> {
    pub cpumode: u16,
    pub pid: u32,
    pub tid: u32,
    pub addr: u64,
    pub len: u64,
    pub pgoff: u64,
    pub file: MapFile,
    pub path: &'a [u8],
    pub time: u64,
    /// Of the event that signs the record.
    pub id: u64,
}

/// The two forms in which an MMAP2 record names its file.
#[derive(Clone, Copy, Debug)]
pub enum MapFile {
    /// Kernels and perf from 5.12 on.
    BuildId(BuildId),
    /// Device and inode; 0 if they are not known.
    #[allow(missing_docs)]
    Inode { maj: u32, min: u32, ino: u64 },
}

impl CodeMap<'_> {
    /// Appends the record, as an event of the given format writes it.
    pub fn put(&self, out: &mut Vec<u8>, format: &Format) {
        const PROT_READ_EXEC: u32 = 5;
        const MAP_PRIVATE: u32 = 2;
        let mut body = Vec::with_capacity(128);
        [self.pid, self.tid].iter().for_each(|v| body.extend_from_slice(&v.to_ne_bytes()));
        let range = [self.addr, self.len, self.pgoff];
        range.iter().for_each(|v| body.extend_from_slice(&v.to_ne_bytes()));
        let mut misc = self.cpumode;
        match self.file {
            MapFile::BuildId(id) => {
                misc |= misc::MMAP_BUILD_ID;
                let bytes = id.as_bytes();
                body.extend_from_slice(&[bytes.len() as u8, 0, 0, 0]);
                body.extend_from_slice(bytes);
                body.resize(body.len() + 20 - bytes.len(), 0);
            }
            MapFile::Inode { maj, min, ino } => {
                [maj, min].iter().for_each(|v| body.extend_from_slice(&v.to_ne_bytes()));
                [ino, 0].iter().for_each(|v| body.extend_from_slice(&v.to_ne_bytes()));
            }
        }
        let words = [PROT_READ_EXEC, MAP_PRIVATE];
        words.iter().for_each(|v| body.extend_from_slice(&v.to_ne_bytes()));
        // PATH_MAX, the NUL included.
        let path = self.path.get(..4095).unwrap_or(self.path);
        body.extend_from_slice(path);
        body.resize(body.len() + (path.len() + 1).next_multiple_of(8) - path.len(), 0);
        format.put_sample_id(&mut body, self.pid, self.tid, self.time, self.id);
        put_record(out, record_type::MMAP2, misc, &body);
    }
}
