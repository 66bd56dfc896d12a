// SPDX-License-Identifier: GPL-2.0
//! The records of a file one after the other, and the pages behind them given back.

use crate::abi::record_type;
use crate::cursor::Malformed;
use crate::record::RawRecord;

/// An iterator over the records of a file. It ends after the first error.
#[derive(Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    offset: u64,
    /// Why there is no more than that, if there should be.
    end: Option<Malformed>,
    behind: Option<Behind<'a>>,
}

impl<'a> Records<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        offset: u64,
        end: Option<Malformed>,
        behind: Option<Behind<'a>>,
    ) -> Self {
        Self { rest: bytes, offset, end, behind }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = RawRecord::split(self.rest, self.offset).and_then(|found| {
            found.map(|(raw, rest)| Ok((raw, after_payload(&raw, rest)?))).transpose()
        });
        match next {
            Ok(Some((raw, rest))) => {
                let len = (self.rest.len() - rest.len()) as u64;
                self.offset = self.offset.saturating_add(len);
                self.rest = rest;
                if let Some(behind) = &mut self.behind {
                    behind.advance(raw.offset);
                }
                Some(Ok(raw))
            }
            Ok(None) => self.end.take().map(Err),
            Err(error) => {
                self.rest = &[];
                self.end = None;
                Some(Err(error))
            }
        }
    }
}

/// How many bytes follow a record without being one.
pub(super) fn payload_len(raw: &RawRecord<'_>) -> Result<u64, Malformed> {
    match raw.type_ {
        record_type::AUXTRACE => raw.cursor().u64("auxtrace size"),
        record_type::HEADER_TRACING_DATA => raw.cursor().u32("tracing data size").map(u64::from),
        _ => Ok(0),
    }
}

fn after_payload<'a>(raw: &RawRecord<'_>, rest: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = payload_len(raw)?;
    usize::try_from(len).ok().and_then(|len| rest.get(len..)).ok_or_else(|| {
        let have = rest.len();
        let what = format!("the record's payload is {len} bytes long, {have} are left");
        Malformed::new(raw.offset, what)
    })
}

/// Gives the pages of a mapped file back once a reader is well past them, so that a large file
/// does not fill the memory. Should one be read again, it comes from the file again.
#[derive(Debug)]
pub(crate) struct Behind<'a> {
    /// Bytes of a file that is mapped shared and read-only.
    mapped: &'a [u8],
    /// File offset of the first of them.
    offset: u64,
    done: usize,
}

impl<'a> Behind<'a> {
    /// How much is given back at a time, and kept behind the reader.
    const STEP: usize = 1 << 20;

    /// # Safety
    ///
    /// `mapped` lies in a shared mapping of a file.
    pub(super) unsafe fn new(mapped: &'a [u8], offset: u64) -> Self {
        Self { mapped, offset, done: 0 }
    }

    /// Nothing before `offset` is needed soon.
    pub(crate) fn advance(&mut self, offset: u64) {
        let at = offset.saturating_sub(self.offset).min(self.mapped.len() as u64) as usize;
        if at.saturating_sub(self.done) < 2 * Self::STEP {
            return;
        }
        let upto = at - Self::STEP;
        let Some(range) = self.mapped.get(self.done..upto) else {
            return;
        };
        self.done = upto;
        let page = rustix::param::page_size();
        // Only whole pages: the first one may have something else in front.
        let skipped = range.as_ptr().align_offset(page).min(range.len());
        let len = (range.len() - skipped) / page * page;
        let Some(range) = range.get(skipped..skipped + len) else {
            return;
        };
        // SAFETY: `new`'s caller promised a shared mapping of a file, whose pages this drops
        // from the page table; what they hold stays in the file and is read from there again.
        // Advice that the kernel does not take changes nothing.
        unsafe {
            libc::madvise(range.as_ptr().cast_mut().cast(), range.len(), libc::MADV_DONTNEED)
        };
    }
}
