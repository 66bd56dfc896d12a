// SPDX-License-Identifier: GPL-2.0
//! The header of a perf.data file: magic, sections, feature bits.

use super::DataError;
use super::FEATURES_AT;
use super::HEADER_SIZE;
use super::MAGIC;
use super::feature::Feature;
use crate::attr::ATTR_SIZE_MIN;
use crate::cursor::Cursor;
use crate::cursor::Malformed;

/// What version 1 files start with, whatever their byte order.
const MAGIC_1: [u8; 8] = *b"PERFFILE";
/// Size of the header of a pipe, in bytes.
pub(super) const PIPE_HEADER_SIZE: u64 = 16;

/// The byte order of the recording machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// This machine's.
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    fn opposite(self) -> Self {
        match self {
            Self::Little => Self::Big,
            Self::Big => Self::Little,
        }
    }
}

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) at: u64,
    pub(super) len: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) order: ByteOrder,
    /// `None`: pipe mode.
    pub(super) sections: Option<Sections>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sections {
    /// Size of an attr and its ID section.
    pub(super) attr_size: u64,
    pub(super) attrs: Section,
    pub(super) data: Section,
    /// The feature bits, as they lie in the file.
    features: [u8; 32],
}

impl Head {
    /// Reads the header at the start of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, DataError> {
        let order = byte_order(bytes)?;
        let mut c = Cursor::new(bytes, 0).foreign(order != ByteOrder::NATIVE);
        c.skip(8, "magic")?;
        let size = c.u64("header size")?;
        if size == PIPE_HEADER_SIZE {
            return Ok(Self { order, sections: None });
        }
        // The very first files had no feature bits.
        if size < HEADER_SIZE && size != FEATURES_AT as u64 {
            return Err(Malformed::new(8, format!("header size {size}")).into());
        }
        let attr_size = c.u64("attr size")?;
        if attr_size < u64::from(ATTR_SIZE_MIN) + 16 {
            return Err(Malformed::new(16, format!("attr size {attr_size}")).into());
        }
        let attrs = section(&mut c, "attrs section")?;
        let data = section(&mut c, "data section")?;
        section(&mut c, "event types section")?;
        let mut features = [0; 32];
        if size >= HEADER_SIZE {
            features.copy_from_slice(c.bytes(32, "feature bits")?);
        }
        Ok(Self { order, sections: Some(Sections { attr_size, attrs, data, features }) })
    }

    pub(super) fn foreign(&self) -> bool {
        self.order != ByteOrder::NATIVE
    }
}

fn section(c: &mut Cursor<'_>, name: &str) -> Result<Section, Malformed> {
    Ok(Section { at: c.u64(name)?, len: c.u64(name)? })
}

fn byte_order(bytes: &[u8]) -> Result<ByteOrder, DataError> {
    let Some(magic) = bytes.first_chunk::<8>() else {
        return Err(if bytes.is_empty() { DataError::Empty } else { DataError::NotPerfData });
    };
    let native = u64::from_le_bytes(MAGIC).to_ne_bytes();
    let mut swapped = native;
    swapped.reverse();
    match *magic {
        m if m == native => Ok(ByteOrder::NATIVE),
        m if m == swapped => Ok(ByteOrder::NATIVE.opposite()),
        // No attr is as large as a small number of the other byte order.
        MAGIC_1 => {
            let mut c = Cursor::new(bytes, 0);
            c.skip(16, "header")?;
            let native = c.u64("attr size")? <= u64::from(u32::MAX);
            Ok(if native { ByteOrder::NATIVE } else { ByteOrder::NATIVE.opposite() })
        }
        _ => Err(DataError::NotPerfData),
    }
}

impl Sections {
    /// The numbers of the features, in the order of their table.
    ///
    /// The bitmap is an array of the recorder's `unsigned long`, so that on a 32-bit big-endian
    /// machine its words are half as long. Every recorder has a host name: the reading that
    /// shows its bit is the right one.
    pub(super) fn features(&self, order: ByteOrder) -> Vec<u32> {
        let long = bits(&self.features, 8, order);
        let short = bits(&self.features, 4, order);
        let hostname = Feature::Hostname as u32;
        if !long.contains(&hostname) && short.contains(&hostname) { short } else { long }
    }
}

/// The bits that are set, in words of `width` bytes.
fn bits(bytes: &[u8], width: usize, order: ByteOrder) -> Vec<u32> {
    let byte_of_bit = |bit: usize| {
        let at = bit / 8;
        match order {
            ByteOrder::Little => at,
            ByteOrder::Big => at / width * width + (width - 1 - at % width),
        }
    };
    let set =
        |bit: &usize| bytes.get(byte_of_bit(*bit)).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
    (0..8 * bytes.len()).filter(set).map(|bit| bit as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_bits_of_all_recorders() {
        let wanted = [2u32, 3, 21, 36, 255];
        let sections = |features| Sections {
            attr_size: 0,
            attrs: Section { at: 0, len: 0 },
            data: Section { at: 0, len: 0 },
            features,
        };
        let mut features = [0u8; 32];
        wanted.iter().for_each(|bit| features[*bit as usize / 8] |= 1 << (bit % 8));
        assert_eq!(sections(features).features(ByteOrder::Little), wanted);
        let mut of_64 = features;
        of_64.chunks_exact_mut(8).for_each(<[u8]>::reverse);
        assert_eq!(sections(of_64).features(ByteOrder::Big), wanted);
        let mut of_32 = features;
        of_32.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        assert_eq!(sections(of_32).features(ByteOrder::Big), wanted);
    }
}
