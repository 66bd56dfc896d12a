// SPDX-License-Identifier: GPL-2.0
//! `struct perf_event_attr`: what an event counts and what its samples carry.
//!
//! [`Attr`] holds the fields this crate reads or sets, under the kernel's names;
//! [`Attr::to_bytes`] and [`Attr::from_bytes`] convert from and to the layout in
//! `include/uapi/linux/perf_event.h` (size 136, `PERF_ATTR_SIZE_VER8`; shorter and longer
//! forms are read too). [`Attr::builder`] puts one together that the kernel takes.

mod builder;

pub use self::builder::AttrBuilder;
pub use self::builder::BuildError;
use crate::abi::flag;
use crate::abi::sample;
use crate::cursor::Cursor;
use crate::cursor::Malformed;
use crate::record::swap::Swapper;

/// Size of the attr that [`Attr::to_bytes`] writes, in bytes.
pub const ATTR_SIZE: u32 = 136;

/// Size of the first published attr, in bytes; nothing shorter is valid.
pub const ATTR_SIZE_MIN: u32 = 64;

/// The fields of `struct perf_event_attr`, with the single-bit flags in [`Attr::flags`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Attr {
    pub type_: u32,
    pub config: u64,
    /// Period in events, or frequency in Hz with [`flag::FREQ`].
    pub sample_period: u64,
    /// [`sample`] bits.
    pub sample_type: u64,
    /// [`read_format`](crate::abi::read_format) bits.
    pub read_format: u64,
    /// [`flag`] bits; the two bits of `precise_ip` are bits 15 and 16.
    pub flags: u64,
    /// Events, or bytes with [`flag::WATERMARK`], between wake-ups.
    pub wakeup: u32,
    pub bp_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    /// Bytes of user stack to copy.
    pub sample_stack_user: u32,
    pub clockid: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    /// Most frames in a callchain; 0: the sysctl decides.
    pub sample_max_stack: u16,
    pub aux_sample_size: u32,
    pub sig_data: u64,
    pub config3: u64,
}

impl Attr {
    /// Whether all bits of `flags` are set.
    pub fn has_flags(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }

    /// Whether all bits of `bits` are in `sample_type`.
    pub fn has_sample(&self, bits: u64) -> bool {
        self.sample_type & bits == bits
    }

    /// Whether records other than samples end in a `struct sample_id`.
    pub fn sample_id_all(&self) -> bool {
        self.has_flags(flag::SAMPLE_ID_ALL)
    }

    /// Whether the event asks for anything that needs `CONFIG_PERF_BUILD_ID_OFFSET`.
    pub fn wants_build_ids(&self) -> bool {
        self.sample_type & sample::NEW != 0
    }

    /// The kernel's layout, [`ATTR_SIZE`] bytes in native byte order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ATTR_SIZE as usize);
        let u32s = |out: &mut Vec<u8>, value: u32| out.extend_from_slice(&value.to_ne_bytes());
        let u64s = |out: &mut Vec<u8>, value: u64| out.extend_from_slice(&value.to_ne_bytes());
        u32s(&mut out, self.type_);
        u32s(&mut out, ATTR_SIZE);
        u64s(&mut out, self.config);
        u64s(&mut out, self.sample_period);
        u64s(&mut out, self.sample_type);
        u64s(&mut out, self.read_format);
        u64s(&mut out, native_flags(self.flags, false));
        u32s(&mut out, self.wakeup);
        u32s(&mut out, self.bp_type);
        u64s(&mut out, self.config1);
        u64s(&mut out, self.config2);
        u64s(&mut out, self.branch_sample_type);
        u64s(&mut out, self.sample_regs_user);
        u32s(&mut out, self.sample_stack_user);
        out.extend_from_slice(&self.clockid.to_ne_bytes());
        u64s(&mut out, self.sample_regs_intr);
        u32s(&mut out, self.aux_watermark);
        out.extend_from_slice(&self.sample_max_stack.to_ne_bytes());
        out.extend_from_slice(&[0; 2]);
        u32s(&mut out, self.aux_sample_size);
        u32s(&mut out, 0);
        u64s(&mut out, self.sig_data);
        u64s(&mut out, self.config3);
        out
    }

    /// Reads an attr of at least [`ATTR_SIZE_MIN`] bytes; fields past the end are 0, bytes
    /// past [`ATTR_SIZE`] are ignored. `offset` is where `bytes` lie in the file.
    pub fn from_bytes(bytes: &[u8], offset: u64) -> Result<Self, Malformed> {
        let stated = stated_size(bytes, offset)?;
        let have = bytes.len().min(stated as usize);
        if have < ATTR_SIZE_MIN as usize {
            return Err(Malformed::new(offset, "perf_event_attr is shorter than 64 bytes"));
        }
        let mut full = bytes.get(..have).unwrap_or(bytes).to_vec();
        full.resize(ATTR_SIZE as usize, 0);
        let mut c = Cursor::new(&full, offset);
        let type_ = c.u32("attr.type")?;
        c.skip(4, "attr.size")?;
        Ok(Self {
            type_,
            config: c.u64("attr.config")?,
            sample_period: c.u64("attr.sample_period")?,
            sample_type: c.u64("attr.sample_type")?,
            read_format: c.u64("attr.read_format")?,
            flags: native_flags(c.u64("attr flags")?, true),
            wakeup: c.u32("attr.wakeup")?,
            bp_type: c.u32("attr.bp_type")?,
            config1: c.u64("attr.config1")?,
            config2: c.u64("attr.config2")?,
            branch_sample_type: c.u64("attr.branch_sample_type")?,
            sample_regs_user: c.u64("attr.sample_regs_user")?,
            sample_stack_user: c.u32("attr.sample_stack_user")?,
            clockid: c.u32("attr.clockid")? as i32,
            sample_regs_intr: c.u64("attr.sample_regs_intr")?,
            aux_watermark: c.u32("attr.aux_watermark")?,
            sample_max_stack: {
                let value = c.u16("attr.sample_max_stack")?;
                c.skip(2, "attr.__reserved_2")?;
                value
            },
            aux_sample_size: {
                let value = c.u32("attr.aux_sample_size")?;
                c.skip(4, "attr.aux_action")?;
                value
            },
            sig_data: c.u64("attr.sig_data")?,
            config3: c.u64("attr.config3")?,
        })
    }
}

/// The size that an attr says it has.
pub(crate) fn stated_size(bytes: &[u8], offset: u64) -> Result<u32, Malformed> {
    let stated = Cursor::new(bytes, offset).peek_u32_at(4, "attr.size")?;
    // 0 is how the first perf wrote the first size.
    Ok(if stated == 0 { ATTR_SIZE_MIN } else { stated })
}

/// Widths of the bit fields behind `read_format`: single bits, and `precise_ip` of two.
const FLAG_WIDTHS: [u32; 63] = {
    let mut widths = [1; 63];
    widths[15] = 2;
    widths
};

/// Lays a double word of bit fields out anew. Compilers begin at the lowest bit for
/// little-endian machines and at the highest for big-endian ones; the bits within a field keep
/// their order.
fn relaid(word: u64, widths: &[u32], from_highest: bool) -> u64 {
    let (mut at, mut out) = (0, 0);
    for width in widths {
        let opposite = 64 - at - width;
        let (from, to) = if from_highest { (opposite, at) } else { (at, opposite) };
        out |= (word >> from & ((1 << width) - 1)) << to;
        at += width;
    }
    out
}

/// Bit fields that were laid out for the other byte order, as this machine does it.
pub(crate) fn foreign_bit_fields(word: u64, widths: &[u32]) -> u64 {
    relaid(word, widths, cfg!(target_endian = "little"))
}

/// Between [`Attr::flags`], whose first field is bit 0, and this machine's layout.
fn native_flags(flags: u64, reading: bool) -> u64 {
    if cfg!(target_endian = "little") { flags } else { relaid(flags, &FLAG_WIDTHS, reading) }
}

/// Turns an attr of the other byte order in place.
pub(crate) fn swap(s: &mut Swapper<'_>) -> Result<(), Malformed> {
    s.u32("attr.type")?;
    let size = match s.u32("attr.size")? {
        0 => ATTR_SIZE_MIN,
        size => size,
    };
    if size < ATTR_SIZE_MIN {
        return Err(s.error("perf_event_attr is shorter than 64 bytes"));
    }
    s.u64s(4, "attr")?;
    s.bit_fields(&FLAG_WIDTHS, "attr flags")?;
    s.u32s(2, "attr.wakeup and bp_type")?;
    s.u64("attr.config1")?;
    // Each version added whole double words.
    for at in (ATTR_SIZE_MIN..size & !7).step_by(8) {
        match at {
            88 => s.u32s(2, "attr.sample_stack_user and clockid")?,
            104 => {
                s.u32("attr.aux_watermark")?;
                s.u16("attr.sample_max_stack")?;
                s.u16("attr.__reserved_2")?;
            }
            112 => {
                s.u32("attr.aux_sample_size")?;
                let action = s.take(4, "attr.aux_action")?;
                action.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
            }
            _ => drop(s.u64("attr")?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_matches_the_header() {
        let attr = Attr {
            type_: 1,
            sample_type: sample::NEW,
            flags: flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT,
            clockid: -3,
            sample_max_stack: 0x1234,
            config3: 99,
            ..Attr::default()
        };
        let bytes = attr.to_bytes();
        assert_eq!(bytes.len(), ATTR_SIZE as usize);
        assert_eq!(&bytes[4..8], &136u32.to_ne_bytes());
        assert_eq!(&bytes[24..32], &(0x600_0000u64).to_ne_bytes());
        assert_eq!(&bytes[40..48], &(0xc0_0000_0000u64).to_ne_bytes());
        assert_eq!(&bytes[108..110], &0x1234u16.to_ne_bytes());
        assert_eq!(Attr::from_bytes(&bytes, 0), Ok(attr));
    }

    #[test]
    fn short_and_long_forms_are_read() {
        let attr = Attr { type_: 4, sample_type: 7, ..Attr::default() };
        let mut bytes = attr.to_bytes();
        bytes[4..8].copy_from_slice(&64u32.to_ne_bytes());
        assert_eq!(Attr::from_bytes(&bytes[..64], 0), Ok(attr.clone()));
        bytes[4..8].copy_from_slice(&144u32.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        assert_eq!(Attr::from_bytes(&bytes, 0), Ok(attr));
        assert!(Attr::from_bytes(&bytes[..63], 0).is_err());
        assert!(Attr::from_bytes(&[], 0).is_err());
    }
}
