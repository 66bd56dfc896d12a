// SPDX-License-Identifier: GPL-2.0
//! A sample as a set of byte ranges, one for each bit of `sample_type`: a converter replaces some
//! of them and leaves the others as they are, whatever is in them.

use super::*;
use crate::abi::record_type;
use crate::abi::sample;
use crate::encode::RECORD_MAX;
use crate::encode::put_header;
use crate::record::format::regs;

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
pub struct Parts<'a> {
    bytes: [&'a [u8]; FIELDS.len()],
}

impl<'a> Parts<'a> {
    /// Splits a sample of the given format into its fields.
    pub fn of(format: &Format, raw: &RawRecord<'a>) -> Result<Self> {
        format.check_bits(raw.offset)?;
        let mut parts = Self { bytes: [&[]; FIELDS.len()] };
        let mut c = raw.cursor();
        let body = c.rest();
        for ((bit, shape), field) in FIELDS.iter().zip(&mut parts.bytes) {
            if !format.has(*bit) {
                continue;
            }
            let before = c.rest();
            skip(format, *shape, &mut c)?;
            let len = before.len().saturating_sub(c.rest().len());
            *field = before.get(..len).unwrap_or(body);
        }
        Ok(parts)
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

fn skip(format: &Format, shape: Shape, c: &mut Cursor<'_>) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;

    fn format(sample_type: u64) -> Format {
        Format::from(&Attr { sample_type, ..Attr::default() })
    }

    fn raw(body: &[u8]) -> RawRecord<'_> {
        RawRecord { offset: 0, type_: record_type::SAMPLE, misc: 2, body }
    }

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    #[test]
    fn parts_are_put_together_as_they_were() {
        let set = sample::IP | sample::TID | sample::CALLCHAIN | sample::RAW | sample::STACK_USER;
        let mut body = words(&[1, 2, 2, 11, 12]);
        body.extend_from_slice(&4u32.to_ne_bytes());
        body.extend_from_slice(b"rawd");
        body.extend_from_slice(&words(&[8, 21, 7]));
        let parts = Parts::of(&format(set), &raw(&body)).unwrap();
        assert_eq!(parts.get(sample::CALLCHAIN), words(&[2, 11, 12]));
        assert_eq!(parts.get(sample::STACK_USER), words(&[8, 21, 7]));
        let mut out = Vec::new();
        assert!(parts.put(&mut out, 2, set));
        assert_eq!(out.get(8..), Some(body.as_slice()));
        for len in 0..body.len() {
            assert!(Parts::of(&format(set), &raw(&body[..len])).is_err(), "{len}");
        }
    }

    #[test]
    fn parts_go_where_the_kernel_puts_them() {
        let body = words(&[1, 1, 9]);
        let set = sample::IP | sample::AUX;
        // AUX is a length and bytes; it stays behind the new fields.
        let aux = words(&[0x40, 8, 9]);
        let mut parts = Parts::of(&format(set), &raw(&aux)).unwrap();
        let bid = [0xbb; 32];
        parts.set(sample::BUILD_ID_OFFSET, &bid);
        let mut out = Vec::new();
        assert!(parts.put(&mut out, 2, sample::BUILD_ID_OFFSET | sample::AUX));
        assert_eq!(out.get(8..), Some([&bid[..], &words(&[8, 9])].concat().as_slice()));
        let long = vec![0; RECORD_MAX];
        parts.set(sample::BUILD_ID_OFFSET, &long);
        let before = out.len();
        assert!(!parts.put(&mut out, 2, sample::BUILD_ID_OFFSET) && out.len() == before);
        let unknown = format(sample::MAX);
        assert!(Parts::of(&unknown, &raw(&body)).is_err());
    }
}
