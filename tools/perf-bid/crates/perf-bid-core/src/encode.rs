// SPDX-License-Identifier: GPL-2.0
//! Records put together: what [`record`](crate::record) takes apart, the other way.
//!
//! [`Fields`] is a sample as a set of byte ranges, one for each bit of `sample_type`, so that a
//! converter replaces some of them and leaves the others as they are, whatever is in them.

use crate::abi::BuildId;
use crate::abi::misc;
use crate::abi::record_type;
use crate::abi::sample;
use crate::cursor::Cursor;
use crate::cursor::Malformed;
use crate::record::Format;
use crate::record::HEADER_SIZE;
use crate::record::RawRecord;
use crate::record::regs;

/// The longest record, in bytes: `header.size` is a u16, and records are made of double words.
pub const RECORD_MAX: usize = 65528;

/// How a field of a sample tells its length.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Bytes, always the same.
    Fixed(u64),
    /// `u64 nr`, elements of so many bytes.
    Counted(u64),
    /// `PERF_SAMPLE_READ`
    Read,
    /// `u32 size`, bytes.
    Raw,
    /// `PERF_SAMPLE_BRANCH_STACK`
    Branches,
    /// `PERF_SAMPLE_REGS_USER`
    RegsUser,
    /// `PERF_SAMPLE_REGS_INTR`
    RegsIntr,
    /// `u64 size`, bytes and, if there are any, `u64 dyn_size`.
    Stack,
}

/// The fields of a sample in the order in which they lie in the record.
const FIELDS: [(u64, Shape); 26] = [
    (sample::IDENTIFIER, Shape::Fixed(8)),
    (sample::IP, Shape::Fixed(8)),
    (sample::TID, Shape::Fixed(8)),
    (sample::TIME, Shape::Fixed(8)),
    (sample::ADDR, Shape::Fixed(8)),
    (sample::ID, Shape::Fixed(8)),
    (sample::STREAM_ID, Shape::Fixed(8)),
    (sample::CPU, Shape::Fixed(8)),
    (sample::PERIOD, Shape::Fixed(8)),
    (sample::READ, Shape::Read),
    (sample::CALLCHAIN, Shape::Counted(8)),
    (sample::RAW, Shape::Raw),
    (sample::BRANCH_STACK, Shape::Branches),
    (sample::REGS_USER, Shape::RegsUser),
    (sample::STACK_USER, Shape::Stack),
    // Two forms of one field.
    (sample::WEIGHT | sample::WEIGHT_STRUCT, Shape::Fixed(8)),
    (sample::DATA_SRC, Shape::Fixed(8)),
    (sample::TRANSACTION, Shape::Fixed(8)),
    (sample::REGS_INTR, Shape::RegsIntr),
    (sample::PHYS_ADDR, Shape::Fixed(8)),
    (sample::CGROUP, Shape::Fixed(8)),
    (sample::DATA_PAGE_SIZE, Shape::Fixed(8)),
    (sample::CODE_PAGE_SIZE, Shape::Fixed(8)),
    (sample::BUILD_ID_OFFSET, Shape::Fixed(32)),
    (sample::CALLCHAIN_BUILD_ID_OFFSET, Shape::Counted(32)),
    (sample::AUX, Shape::Counted(1)),
];

/// The fields of one sample, each as the bytes of the record it is made of.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    bytes: [&'a [u8]; FIELDS.len()],
}

impl<'a> Fields<'a> {
    /// Splits a sample of the given format into its fields.
    pub fn of(format: &Format, raw: &RawRecord<'a>) -> Result<Self, Malformed> {
        if format.unknown_bits() != 0 {
            let what = format!("unknown sample_type bits {:#x}", format.unknown_bits());
            return Err(Malformed::new(raw.offset, what));
        }
        let mut fields = Self { bytes: [&[]; FIELDS.len()] };
        let mut c = raw.cursor();
        let body = c.rest();
        for ((bit, shape), field) in FIELDS.iter().zip(&mut fields.bytes) {
            if !format.has(*bit) {
                continue;
            }
            let before = c.rest();
            skip(format, *shape, &mut c)?;
            let len = before.len().saturating_sub(c.rest().len());
            *field = before.get(..len).unwrap_or(body);
        }
        Ok(fields)
    }

    /// The bytes of the field that `bit` of `sample_type` stands for; empty if there is none.
    pub fn get(&self, bit: u64) -> &'a [u8] {
        position(bit).and_then(|at| self.bytes.get(at)).copied().unwrap_or_default()
    }

    /// Replaces the field's bytes.
    pub fn set(&mut self, bit: u64, bytes: &'a [u8]) {
        if let Some(field) = position(bit).and_then(|at| self.bytes.get_mut(at)) {
            *field = bytes;
        }
    }

    /// Bytes of a record with the fields of `sample_type`.
    pub fn record_len(&self, sample_type: u64) -> usize {
        HEADER_SIZE + self.chosen(sample_type).map(<[u8]>::len).sum::<usize>()
    }

    /// Appends a sample with the fields of `sample_type`; `false` if they are too long for one
    /// record, and nothing is appended.
    pub fn put(&self, out: &mut Vec<u8>, misc: u16, sample_type: u64) -> bool {
        let len = self.record_len(sample_type);
        if len > RECORD_MAX {
            return false;
        }
        put_header(out, record_type::SAMPLE, misc, len);
        self.chosen(sample_type).for_each(|bytes| out.extend_from_slice(bytes));
        true
    }

    fn chosen(&self, sample_type: u64) -> impl Iterator<Item = &'a [u8]> {
        let wanted = move |(bit, _): &(u64, Shape)| sample_type & bit != 0;
        let both = FIELDS.iter().zip(&self.bytes);
        both.filter(move |(field, _)| wanted(field)).map(|(_, bytes)| *bytes)
    }
}

fn position(bit: u64) -> Option<usize> {
    FIELDS.iter().position(|(bits, _)| bits & bit != 0)
}

fn skip(format: &Format, shape: Shape, c: &mut Cursor<'_>) -> Result<(), Malformed> {
    const WHAT: &str = "sample field";
    match shape {
        Shape::Fixed(len) => c.skip(len, WHAT),
        Shape::Counted(each) => {
            let nr = c.u64(WHAT)?;
            let len = nr.checked_mul(each);
            c.skip(len.ok_or_else(|| c.error(format!("field of {nr} elements")))?, WHAT)
        }
        Shape::Read => format.read_values(c).map(drop),
        Shape::Raw => {
            let len = c.u32("raw size")?;
            c.skip(len.into(), "raw data")
        }
        Shape::Branches => format.branches(c).map(drop),
        Shape::RegsUser => regs(c, format.regs_user).map(drop),
        Shape::RegsIntr => regs(c, format.regs_intr).map(drop),
        Shape::Stack => {
            let len = c.u64("user stack size")?;
            c.skip(len, "user stack")?;
            c.skip(if len == 0 { 0 } else { 8 }, "user stack dyn_size")
        }
    }
}

fn put_header(out: &mut Vec<u8>, type_: u32, misc: u16, len: usize) {
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
