// SPDX-License-Identifier: GPL-2.0
//! What is needed from an ELF file: its build ID note, its loadable segments (for file
//! offset ↔ virtual address) and whether it has symbols. Layouts are those of `elf(5)`;
//! 32- and 64-bit files of either byte order are read.
//!
//! Samples name code by offset in the mapped file. That offset is a virtual address only by
//! accident; the program headers of *that file* tell which. A debug file made by
//! `objcopy --only-keep-debug` keeps the addresses but not the offsets: its executable
//! segments have a file size of 0, so that [`ElfInfo::address_of`] finds nothing there,
//! which is the honest answer.

use object::Endianness;
use object::elf;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;
use object::read::elf::SectionHeader;
use thiserror::Error;

use crate::abi::BuildId;

// `e_ident[EI_CLASS]`
const CLASS_32: u8 = 1;
const CLASS_64: u8 = 2;

/// Why a file is no ELF file this crate can use.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum ElfError {
    #[error("not an ELF file")]
    NotElf,
    #[error("broken ELF file: {0}")]
    Broken(#[from] object::read::Error),
}

/// A `PT_LOAD` segment; all numbers in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Segment {
    pub offset: u64,
    pub file_size: u64,
    pub address: u64,
    pub memory_size: u64,
    pub executable: bool,
}

/// The facts of one ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElfInfo {
    /// From the first GNU build ID note of 1 to 20 bytes in a `PT_NOTE` segment, which is
    /// where the kernel looks; files without program headers fall back to the sections.
    pub build_id: Option<BuildId>,
    /// In file order.
    pub segments: Vec<Segment>,
    /// There is a `.symtab` with contents.
    pub has_symtab: bool,
    /// There is a `.dynsym` with contents.
    pub has_dynsym: bool,
}

impl ElfInfo {
    /// Reads the facts from the whole file's bytes.
    pub fn parse(data: &[u8]) -> Result<Self, ElfError> {
        match data.get(..5) {
            Some([0x7f, b'E', b'L', b'F', CLASS_64]) => {
                Self::parse_class::<elf::FileHeader64<Endianness>>(data)
            }
            Some([0x7f, b'E', b'L', b'F', CLASS_32]) => {
                Self::parse_class::<elf::FileHeader32<Endianness>>(data)
            }
            _ => Err(ElfError::NotElf),
        }
    }

    fn parse_class<H: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<Self, ElfError> {
        let header = H::parse(data)?;
        let endian = header.endian()?;
        let mut info = Self::default();
        for program in header.program_headers(endian, data)? {
            match program.p_type(endian) {
                elf::PT_LOAD => info.segments.push(Segment {
                    offset: program.p_offset(endian).into(),
                    file_size: program.p_filesz(endian).into(),
                    address: program.p_vaddr(endian).into(),
                    memory_size: program.p_memsz(endian).into(),
                    executable: program.p_flags(endian).contains(elf::PF_X),
                }),
                elf::PT_NOTE if info.build_id.is_none() => {
                    // A note the file does not hold is no reason to reject the rest.
                    if let Ok(Some(notes)) = program.notes(endian, data) {
                        info.build_id = first_build_id::<H>(notes, endian);
                    }
                }
                _ => {}
            }
        }
        // Files whose section table was cut off still have segments.
        let Ok(sections) = header.sections(endian, data) else {
            return Ok(info);
        };
        for section in sections.iter() {
            let filled = section.sh_size(endian).into() > 0;
            match section.sh_type(endian) {
                elf::SHT_SYMTAB => info.has_symtab |= filled,
                elf::SHT_DYNSYM => info.has_dynsym |= filled,
                elf::SHT_NOTE if info.build_id.is_none() && info.segments.is_empty() => {
                    if let Ok(Some(notes)) = section.notes(endian, data) {
                        info.build_id = first_build_id::<H>(notes, endian);
                    }
                }
                _ => {}
            }
        }
        Ok(info)
    }

    /// The virtual address of the byte at file offset `offset`, by the program headers. An
    /// executable segment wins where two segments hold the same byte (the page at their seam).
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            offset.checked_sub(segment.offset).is_some_and(|into| into < segment.file_size)
        };
        let code = self.segments.iter().filter(|segment| segment.executable).find(holds);
        let segment = code.or_else(|| self.segments.iter().find(holds))?;
        segment.address.checked_add(offset - segment.offset)
    }
}

fn first_build_id<H: FileHeader<Endian = Endianness>>(
    mut notes: object::read::elf::NoteIterator<'_, H>,
    endian: Endianness,
) -> Option<BuildId> {
    while let Ok(Some(note)) = notes.next() {
        let is_build_id =
            note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
        if let Some(id) = BuildId::new(note.desc()).filter(|_| is_build_id) {
            return Some(id);
        }
    }
    None
}
