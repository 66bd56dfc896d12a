// SPDX-License-Identifier: GPL-2.0
//! What is needed from an ELF file: its build ID note, its loadable segments (for file
//! offset ↔ virtual address) and what symbols and debug information it has. Layouts are those
//! of `elf(5)`; 32- and 64-bit files of either byte order are read.
//!
//! Samples name code by offset in the mapped file. That offset is a virtual address only by
//! accident; the program headers of *that file* tell which. A debug file made by
//! `objcopy --only-keep-debug` keeps the addresses but not the offsets: its executable
//! segments have a file size of 0, so that [`ElfInfo::address_of`] finds nothing there,
//! which is the honest answer.
//!
//! Two readers of build IDs differ, and both have written recordings. The kernel looks at
//! `PT_NOTE` segments only and takes no ID above 20 bytes; perf in user space looks at note
//! sections too and cuts a longer ID to 20 bytes. [`ElfInfo::build_id`] is the kernel's,
//! [`ElfInfo::has_id`] accepts either.

use object::Endianness;
use object::SectionIndex;
use object::elf;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;
use object::read::elf::SectionHeader;
use object::read::elf::SectionTable;
use thiserror::Error;

use crate::abi::BUILD_ID_MAX;
use crate::abi::BuildId;

// `e_ident[EI_CLASS]`
const CLASS_32: u8 = 1;
const CLASS_64: u8 = 2;

/// The kernel loads no program with more than 64 KiB of program headers.
const MOST_SEGMENTS: usize = (64 << 10) / 32;
/// Headers may point at the same notes again and again; real files have a dozen.
const MOST_NOTES: usize = 1 << 14;
/// Names are cut here, in bytes; so they need not end where the file does.
const LONGEST_NAME: usize = 64 << 10;

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

/// A section with contents; all numbers in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Section {
    pub offset: u64,
    pub size: u64,
    pub address: u64,
}

impl Section {
    /// Its contents, if they are in `data`.
    pub fn bytes<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        let start = usize::try_from(self.offset).ok()?;
        data.get(start..)?.get(..usize::try_from(self.size).ok()?)
    }

    /// How far from its start `address` is, if within.
    pub fn distance(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.address).filter(|&into| into < self.size)
    }
}

/// Sections of stubs of the linkage table, on x86.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stubs {
    /// `.plt`: functions are bound at the first call.
    pub lazy: Option<Section>,
    /// `.plt.sec`: the stubs, where `.plt` has only what binds them.
    pub secure: Option<Section>,
    /// `.plt.got`: functions that are bound at the start.
    pub bound: Option<Section>,
}

impl Stubs {
    /// Those there are.
    pub fn all(&self) -> impl Iterator<Item = &Section> {
        [&self.lazy, &self.secure, &self.bound].into_iter().flatten()
    }
}

/// What `.gnu_debuglink` says: where the symbols went when they were stripped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// A file name without a directory.
    pub name: String,
    /// CRC-32 of the whole debug file.
    pub crc: u32,
}

/// The facts of one ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElfInfo {
    /// From the first GNU build ID note of 1 to 20 bytes in a `PT_NOTE` segment, which is
    /// where the kernel looks; files without program headers fall back to the sections.
    pub build_id: Option<BuildId>,
    /// The first GNU build ID note in a section or segment, cut to 20 bytes, as perf's user
    /// space writes it into recordings.
    pub cut_id: Option<BuildId>,
    /// In file order.
    pub segments: Vec<Segment>,
    /// There is a `.symtab` with contents.
    pub has_symtab: bool,
    /// There is a `.dynsym` with contents.
    pub has_dynsym: bool,
    /// There is a `.debug_info` (or `.zdebug_info`) with contents.
    pub has_dwarf: bool,
    /// The linkage table.
    pub stubs: Stubs,
    /// `.eh_frame_hdr` and `.eh_frame`: where functions begin.
    pub unwind: [Option<Section>; 2],
    /// Numbers are big-endian.
    pub big_endian: bool,
    /// Addresses have 64 bits.
    pub is_64: bool,
    /// The name of the file with the symbols.
    pub debug_link: Option<DebugLink>,
}

impl ElfInfo {
    /// Reads the facts from the whole file's bytes. Whatever the bytes are, the result is an
    /// error or facts, in time linear in their number; nothing is allocated by a number in them.
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
        let (big_endian, is_64) = (endian == Endianness::Big, header.is_class_64());
        let mut info = Self { big_endian, is_64, ..Self::default() };
        let mut budget = MOST_NOTES;
        for program in header.program_headers(endian, data)?.iter().take(MOST_SEGMENTS) {
            match program.p_type(endian) {
                elf::PT_LOAD => info.segments.push(Segment {
                    offset: program.p_offset(endian).into(),
                    file_size: program.p_filesz(endian).into(),
                    address: program.p_vaddr(endian).into(),
                    memory_size: program.p_memsz(endian).into(),
                    executable: program.p_flags(endian).contains(elf::PF_X),
                }),
                elf::PT_NOTE => {
                    // A note the file does not hold is no reason to reject the rest.
                    if let Ok(Some(notes)) = program.notes(endian, data) {
                        info.take_notes::<H>(notes, endian, true, &mut budget);
                    }
                }
                _ => {}
            }
        }
        // Files whose section table was cut off still have segments.
        if let Ok(sections) = header.sections(endian, data) {
            let names = section_names(header, &sections, endian, data);
            info.take_sections::<H>(&sections, endian, data, names, &mut budget);
        }
        Ok(info)
    }

    fn take_sections<H: FileHeader<Endian = Endianness>>(
        &mut self,
        sections: &SectionTable<'_, H>,
        endian: Endianness,
        data: &[u8],
        names: u64,
        budget: &mut usize,
    ) {
        let bare = self.segments.is_empty();
        for header in sections.iter() {
            let section = Section {
                offset: header.sh_offset(endian).into(),
                size: header.sh_size(endian).into(),
                address: header.sh_addr(endian).into(),
            };
            match header.sh_type(endian) {
                elf::SHT_NOBITS => {}
                elf::SHT_SYMTAB => self.has_symtab |= section.size > 0,
                elf::SHT_DYNSYM => self.has_dynsym |= section.size > 0,
                elf::SHT_NOTE => {
                    if let Ok(Some(notes)) = header.notes(endian, data) {
                        self.take_notes::<H>(notes, endian, bare, budget);
                    }
                }
                _ => self.take_section(
                    section_name(data, names, header.sh_name(endian)),
                    section,
                    data,
                ),
            }
        }
    }

    fn take_section(&mut self, name: &[u8], section: Section, data: &[u8]) {
        let [header, frames] = &mut self.unwind;
        match name {
            b".debug_info" | b".zdebug_info" => self.has_dwarf |= section.size > 0,
            b".plt" => self.stubs.lazy = Some(section),
            b".plt.sec" => self.stubs.secure = Some(section),
            b".plt.got" => self.stubs.bound = Some(section),
            b".eh_frame_hdr" => *header = Some(section),
            b".eh_frame" => *frames = Some(section),
            b".gnu_debuglink" => {
                let bytes = section.bytes(data).unwrap_or_default();
                self.debug_link = debug_link(bytes, self.big_endian);
            }
            _ => {}
        }
    }

    /// Looks for a build ID in `notes`, which are where the kernel looks if `loaded`.
    fn take_notes<H: FileHeader<Endian = Endianness>>(
        &mut self,
        mut notes: object::read::elf::NoteIterator<'_, H>,
        endian: Endianness,
        loaded: bool,
        budget: &mut usize,
    ) {
        while *budget > 0
            && let Ok(Some(note)) = notes.next()
        {
            *budget -= 1;
            if note.name() != elf::ELF_NOTE_GNU || note.n_type(endian) != elf::NT_GNU_BUILD_ID {
                continue;
            }
            let desc = note.desc();
            if loaded {
                self.build_id = self.build_id.or_else(|| BuildId::new(desc));
            }
            let cut = desc.get(..BUILD_ID_MAX).unwrap_or(desc);
            self.cut_id = self.cut_id.or_else(|| BuildId::new(cut));
        }
    }

    /// Whether a recording that says `id` can mean this file: by the kernel's reading, or by
    /// that of perf's user space if the kernel sees no ID at all.
    pub fn has_id(&self, id: BuildId) -> bool {
        self.build_id.or(self.cut_id) == Some(id)
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

    /// Whether the code is in the file: it is not in what `objcopy --only-keep-debug` leaves.
    pub fn has_contents(&self) -> bool {
        self.segments.iter().any(|segment| segment.executable && segment.file_size > 0)
    }
}

/// Where the names of sections are; nowhere in the file if it does not say.
pub(crate) fn section_names<H: FileHeader<Endian = Endianness>>(
    header: &H,
    sections: &SectionTable<'_, H>,
    endian: Endianness,
    data: &[u8],
) -> u64 {
    let index = header.shstrndx(endian, data).ok();
    let index = index.map(|index| SectionIndex(index as usize));
    let section = index.and_then(|index| sections.section(index).ok());
    section.map_or(u64::MAX, |section| section.sh_offset(endian).into())
}

/// The name of a section, or the beginning of a long one: names of real ones are short, and
/// headers may point at the same long one again and again.
pub(crate) fn section_name(data: &[u8], names: u64, name: u32) -> &[u8] {
    cut_name_at(data, names.saturating_add(name.into()), 64)
}

/// The name at offset `at`. It ends at the first control character: the NUL of a string table,
/// and the line break or the tabulator of kallsyms. No symbol has one within.
pub(crate) fn name_at(data: &[u8], at: u64) -> &[u8] {
    cut_name_at(data, at, LONGEST_NAME)
}

fn cut_name_at(data: &[u8], at: u64, most: usize) -> &[u8] {
    let rest = usize::try_from(at).ok().and_then(|at| data.get(at..)).unwrap_or_default();
    let rest = rest.get(..most).unwrap_or(rest);
    let len = rest.iter().position(|&byte| byte < b' ').unwrap_or(rest.len());
    rest.get(..len).unwrap_or_default()
}

/// A name that ends with a NUL, padding to a multiple of 4, and the CRC.
fn debug_link(bytes: &[u8], big_endian: bool) -> Option<DebugLink> {
    let len = bytes.iter().position(|&byte| byte == 0)?;
    let crc = *bytes.get((len + 1).next_multiple_of(4)..)?.first_chunk()?;
    let name = std::str::from_utf8(bytes.get(..len)?).ok()?;
    // A name only: a link out of the directories that are searched is not followed.
    let plain = !name.is_empty() && !name.contains('/') && name != "..";
    let crc = if big_endian { u32::from_be_bytes(crc) } else { u32::from_le_bytes(crc) };
    plain.then(|| DebugLink { name: name.to_owned(), crc })
}

/// CRC-32 as `.gnu_debuglink` uses it (IEEE 802.3, reflected).
pub fn crc32(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc_table();
    let step = |crc: u32, byte: &u8| {
        let entry = TABLE.get(usize::from(crc as u8 ^ byte)).copied().unwrap_or_default();
        (crc >> 8) ^ entry
    };
    !data.iter().fold(!0, step)
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut crc, mut bit) = (index as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        #[allow(clippy::indexing_slicing)] // The compiler runs this.
        {
            table[index] = crc;
        }
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_check_string() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn debug_links_name_a_file_and_no_way_to_it() {
        let link = |name: &[u8]| {
            let mut bytes = name.to_vec();
            bytes.resize((name.len() + 1).next_multiple_of(4), 0);
            bytes.extend(0x1234_5678u32.to_le_bytes());
            debug_link(&bytes, false)
        };
        assert_eq!(
            link(b"x.debug").map(|link| (link.name, link.crc)),
            Some(("x.debug".to_owned(), 0x1234_5678))
        );
        for bad in [&b""[..], b"..", b"../x", b"/etc/x", b"\xff"] {
            assert_eq!(link(bad), None, "{bad:?}");
        }
        assert_eq!(debug_link(b"x.debug", false), None);
        assert_eq!(debug_link(b"x\0\0\0\x01\x02", false), None);
    }
}
