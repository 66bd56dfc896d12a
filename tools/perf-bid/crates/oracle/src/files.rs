// SPDX-License-Identifier: GPL-2.0
//! The truth about files: the build ID in a file's own note, read with the crate `object`
//! and none of the code under test.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use object::Endianness;
use object::elf;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;
use perf_bid_core::abi::BuildId;
use perf_bid_core::record::FileKey;

use crate::replay::FileName;

/// What is known about a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// Its own note says so; the file is the one that was mapped.
    Note(BuildId),
    /// It is the file that was mapped, and has no note the kernel should find.
    NoNote,
    /// The file is gone or another now; the MMAP2 record carried this ID.
    Recorded(BuildId),
    /// The file is gone or another now, and the record had no ID.
    Gone,
}

impl Truth {
    /// The build ID to expect.
    pub fn build_id(self) -> Option<BuildId> {
        match self {
            Self::Note(id) | Self::Recorded(id) => Some(id),
            Self::NoNote | Self::Gone => None,
        }
    }
}

/// Reads each file once.
#[derive(Debug, Default)]
pub struct Files {
    truths: HashMap<Rc<FileName>, Truth>,
}

impl Files {
    /// The truth about `file`.
    pub fn truth(&mut self, file: &Rc<FileName>) -> Truth {
        if let Some(truth) = self.truths.get(file) {
            return *truth;
        }
        let truth = find_out(file);
        self.truths.insert(Rc::clone(file), truth);
        truth
    }
}

fn find_out(file: &FileName) -> Truth {
    let now = read(&file.path);
    match (file.key, now) {
        (FileKey::BuildId(recorded), Some(Now { note: Some(note), .. })) if note == recorded => {
            Truth::Note(note)
        }
        (FileKey::BuildId(recorded), _) => Truth::Recorded(recorded),
        (FileKey::Inode { maj, min, ino, .. }, Some(now)) if now.is(maj, min, ino) => {
            now.note.map_or(Truth::NoNote, Truth::Note)
        }
        (FileKey::Inode { .. } | FileKey::None, _) => Truth::Gone,
    }
}

struct Now {
    note: Option<BuildId>,
    dev: u64,
    ino: u64,
}

impl Now {
    fn is(&self, maj: u32, min: u32, ino: u64) -> bool {
        let (own_maj, own_min) = (rustix::fs::major(self.dev), rustix::fs::minor(self.dev));
        self.ino == ino && (own_maj, own_min) == (maj, min)
    }
}

fn read(path: &str) -> Option<Now> {
    if !path.starts_with('/') {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let mut magic = [0; 4];
    // Data files may be huge and have no notes.
    if file.read_exact(&mut magic).is_ok() && magic == *b"\x7fELF" {
        bytes.extend_from_slice(&magic);
        file.read_to_end(&mut bytes).ok()?;
    }
    Some(Now { note: note(&bytes), dev: meta.dev(), ino: meta.ino() })
}

/// The note of a file, if it is one that the kernel's rules accept: the first GNU build ID of
/// 1 to 20 bytes in a `PT_NOTE` segment of an executable or a shared object.
fn note(bytes: &[u8]) -> Option<BuildId> {
    match object::FileKind::parse(bytes).ok()? {
        object::FileKind::Elf32 => note_of::<elf::FileHeader32<Endianness>>(bytes),
        object::FileKind::Elf64 => note_of::<elf::FileHeader64<Endianness>>(bytes),
        _ => None,
    }
}

fn note_of<H: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Option<BuildId> {
    let header = H::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        return None;
    }
    let segments = header.program_headers(endian, bytes).ok()?.iter();
    segments.filter(|segment| segment.p_type(endian) == elf::PT_NOTE).find_map(|segment| {
        let mut notes = segment.notes(endian, bytes).ok()??;
        std::iter::from_fn(|| notes.next().ok()?).find_map(|note| {
            let is_id = note.name() == b"GNU" && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
            BuildId::new(note.desc()).filter(|_| is_id)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_own_note_decides() {
        let me = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        let now = read(&me).unwrap();
        let id = now.note.unwrap();
        let ask = |key| find_out(&FileName { path: me.clone(), key });
        assert_eq!(ask(FileKey::BuildId(id)), Truth::Note(id));
        let other = BuildId::new(&[1; 20]).unwrap();
        assert_eq!(ask(FileKey::BuildId(other)), Truth::Recorded(other));
        let inode = |ino| FileKey::Inode {
            maj: rustix::fs::major(now.dev),
            min: rustix::fs::minor(now.dev),
            ino,
            ino_generation: 0,
        };
        assert_eq!(ask(inode(now.ino)), Truth::Note(id));
        assert_eq!(ask(inode(now.ino + 1)), Truth::Gone);
        let gone = FileName { path: "/no/such (deleted)".into(), key: inode(1) };
        assert_eq!(find_out(&gone), Truth::Gone);
    }

    /// `object` and the library under test read the same note; neither calls the other.
    #[test]
    fn two_readers_agree() {
        for path in ["/bin/sh", "/bin/ls"] {
            let theirs = read(path).unwrap().note;
            let ours = perf_bid_core::store::read_elf(path.as_ref()).unwrap().build_id;
            assert_eq!(theirs, ours, "{path}");
        }
    }
}
