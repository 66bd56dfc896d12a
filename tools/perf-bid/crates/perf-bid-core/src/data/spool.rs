// SPDX-License-Identifier: GPL-2.0
//! An unlinked temporary file for records that cannot be used where they are.
//!
//! What is small stays in memory. Everything else goes to `TMPDIR`, or `/var/tmp`, which is a
//! disk where `/tmp` may be memory.

use std::io;
use std::io::BufWriter;
use std::io::Write;
use std::ops::Deref;
use std::path::PathBuf;

use memmap2::Mmap;
use tempfile::SpooledData;
use tempfile::SpooledTempFile;

use super::DataError;

/// What fits is not written to a file, in bytes.
const IN_MEMORY: usize = 1 << 20;

/// A temporary file that is being written.
#[derive(Debug)]
pub(super) struct SpoolWriter {
    out: BufWriter<SpooledTempFile>,
    dir: PathBuf,
    len: u64,
}

/// The bytes that were written.
#[derive(Debug)]
pub(super) enum Spool {
    Memory(Vec<u8>),
    Mapped(Mmap),
}

impl SpoolWriter {
    pub(super) fn new() -> Self {
        Self::in_memory_up_to(IN_MEMORY)
    }

    /// One that is a file whatever its size.
    pub(super) fn on_disk() -> Self {
        Self::in_memory_up_to(0)
    }

    fn in_memory_up_to(len: usize) -> Self {
        let dir = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
        let dir = dir.map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let out = tempfile::spooled_tempfile_in(len, &dir);
        Self { out: BufWriter::with_capacity(1 << 16, out), dir, len: 0 }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.len += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|source| full(&self.dir, source))
    }

    pub(super) fn finish(self) -> Result<Spool, DataError> {
        let file = self.out.into_inner().map_err(|error| full(&self.dir, error.into_error()))?;
        match file.into_inner() {
            SpooledData::InMemory(bytes) => Ok(Spool::Memory(bytes.into_inner())),
            SpooledData::OnDisk(file) => {
                // SAFETY: nobody else can open the file to change it: it has no name.
                let map = unsafe { Mmap::map(&file) };
                map.map(Spool::Mapped).map_err(|source| full(&self.dir, source))
            }
        }
    }
}

fn full(dir: &std::path::Path, source: io::Error) -> DataError {
    DataError::Spool { dir: dir.to_owned(), source }
}

impl Deref for Spool {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}
