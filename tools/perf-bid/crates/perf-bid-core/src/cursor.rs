// SPDX-License-Identifier: GPL-2.0
//! A reader over borrowed bytes that cannot run past their end: every field of every
//! record and file header is taken through it, so that a wrong length becomes a
//! [`Malformed`] with the byte offset, never a panic.
//!
//! Numbers are read in native byte order, or in the other one: [`Cursor::foreign`].

use thiserror::Error;
use zerocopy::FromBytes;
use zerocopy::native_endian::U64;

use crate::abi::Entry;

/// Input that does not follow its format, and where.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("at byte {offset:#x}: {what}")]
pub struct Malformed {
    /// Byte offset in the file (or in the ring buffer's stream).
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl Malformed {
    /// `what` is wrong at byte `offset`.
    pub fn new(offset: u64, what: impl Into<String>) -> Self {
        Self { offset, what: what.into() }
    }
}

type Result<T> = std::result::Result<T, Malformed>;

/// A position in a run of bytes that starts at a known file offset.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    offset: u64,
    foreign: bool,
}

impl<'a> Cursor<'a> {
    /// Starts at the first of `bytes`, which lie at `offset` in their file.
    pub fn new(bytes: &'a [u8], offset: u64) -> Self {
        Self { rest: bytes, offset, foreign: false }
    }

    /// Whether the numbers that are read one by one are of the other byte order.
    pub fn foreign(mut self, foreign: bool) -> Self {
        self.foreign = foreign;
        self
    }

    /// File offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Drops everything after the next `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.rest = self.rest.get(..len).unwrap_or(self.rest);
    }

    /// An error at this position.
    pub fn error(&self, what: impl Into<String>) -> Malformed {
        Malformed::new(self.offset, what)
    }

    /// The next `len` bytes; `field` names them in the error.
    #[inline]
    pub fn bytes(&mut self, len: u64, field: &str) -> Result<&'a [u8]> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let Some((taken, rest)) = split else {
            return Err(self.too_short(len, field));
        };
        self.rest = rest;
        self.offset = self.offset.saturating_add(len);
        Ok(taken)
    }

    #[cold]
    fn too_short(&self, len: u64, field: &str) -> Malformed {
        let have = self.rest.len();
        self.error(format!("{field} needs {len} bytes, {have} are left"))
    }

    /// Passes over `len` bytes.
    #[inline]
    pub fn skip(&mut self, len: u64, field: &str) -> Result<()> {
        self.bytes(len, field).map(drop)
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let bytes = self.bytes(N as u64, field)?;
        bytes.try_into().map_err(|_| self.error(format!("{field} is cut off")))
    }

    /// The next half word.
    #[inline]
    pub fn u16(&mut self, field: &str) -> Result<u16> {
        let value = self.array(field).map(u16::from_ne_bytes)?;
        Ok(if self.foreign { value.swap_bytes() } else { value })
    }

    /// The next word.
    #[inline]
    pub fn u32(&mut self, field: &str) -> Result<u32> {
        let value = self.array(field).map(u32::from_ne_bytes)?;
        Ok(if self.foreign { value.swap_bytes() } else { value })
    }

    /// The next double word.
    #[inline]
    pub fn u64(&mut self, field: &str) -> Result<u64> {
        let value = self.array(field).map(u64::from_ne_bytes)?;
        Ok(if self.foreign { value.swap_bytes() } else { value })
    }

    /// The word `at` bytes ahead, without moving.
    pub fn peek_u32_at(&self, at: u64, field: &str) -> Result<u32> {
        let mut ahead = self.clone();
        ahead.skip(at, field)?;
        ahead.u32(field)
    }

    /// The next `nr` double words, borrowed as they are.
    #[inline]
    pub fn u64s(&mut self, nr: u64, field: &str) -> Result<&'a [U64]> {
        let bytes = self.bytes(self.len_of(nr, 8, field)?, field)?;
        <[U64]>::ref_from_bytes(bytes).map_err(|_| self.error(format!("{field} is cut off")))
    }

    /// The next `nr` entries, borrowed.
    #[inline]
    pub fn entries(&mut self, nr: u64, field: &str) -> Result<&'a [Entry]> {
        let bytes = self.bytes(self.len_of(nr, Entry::SIZE as u64, field)?, field)?;
        <[Entry]>::ref_from_bytes(bytes).map_err(|_| self.error(format!("{field} is cut off")))
    }

    /// The next entry, borrowed.
    #[inline]
    pub fn entry(&mut self, field: &str) -> Result<&'a Entry> {
        let bytes = self.bytes(Entry::SIZE as u64, field)?;
        Entry::ref_from_bytes(bytes).map_err(|_| self.error(format!("{field} is cut off")))
    }

    /// Bytes up to the first NUL of the next `len` bytes, which are all consumed.
    #[inline]
    pub fn string(&mut self, len: u64, field: &str) -> Result<&'a [u8]> {
        let bytes = self.bytes(len, field)?;
        Ok(bytes.split(|&byte| byte == 0).next().unwrap_or(bytes))
    }

    fn len_of(&self, nr: u64, each: u64, field: &str) -> Result<u64> {
        nr.checked_mul(each).ok_or_else(|| self.error(format!("{field} claims {nr} elements")))
    }
}
