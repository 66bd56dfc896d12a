// SPDX-License-Identifier: GPL-2.0
//! Sorted symbols, from an ELF file or from kallsyms, and which of them an address belongs to.
//!
//! The choice is perf's, so that a place has the same name and offset in both tools. Found by
//! comparing with `perf script` on recordings:
//!
//! - Functions, indirect functions and data objects count, defined ones with a name; labels
//!   without a type count in sections of text or data. Absolute, section, file and TLS symbols
//!   do not, nor do the mapping symbols of ARM and RISC-V (`$x`, `$d`).
//! - `.symtab` and `.dynsym` are one table.
//! - A symbol of size 0 reaches to the next one; the last, to the end of the page after it.
//! - Of several at one address the first that differs decides: a size, a type, not weak,
//!   global, fewer leading underscores, the longer name, the earlier one. The name is the
//!   demangled one.
//! - In kallsyms nothing has a size: of several at one address only the last reaches to the
//!   next address, so the last wins. Text, weak, data and bss count (`T W D B`, either case).
//! - Where symbols overlap, the one that begins last holds the address.
//!
//! Names stay in the bytes they were read from until they are asked for.

use std::cmp::Ordering;

use object::Endianness;
use object::elf;
use object::read::elf::FileHeader;
use object::read::elf::SectionHeader;
use object::read::elf::SectionTable;
use object::read::elf::Sym;

use crate::demangle::demangle;
use crate::elf::name_at;
use crate::elf::section_name;
use crate::elf::section_names;

const PAGE: u64 = 4096;

/// How many addresses before a place are tried for a symbol that reaches it. Symbols overlap
/// in assembly and in files made to waste our time.
const OVERLAPS: usize = 64;

/// How many symbols are compared with others of their address, for one place.
const ALIASES: usize = 256;

/// Names are compared as people read them up to this length, in bytes: that takes longer than
/// all the rest, and files made to waste our time have many long ones.
const COMPARED: usize = 1 << 10;

/// A symbol in a [`SymbolTable`].
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// Exclusive; `start` if there is no size.
    end: u64,
    /// Where its name begins in the bytes the table was read from.
    name: u64,
    kind: Kind,
}

/// What decides between symbols at one address.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    label: bool,
    weak: bool,
    global: bool,
}

/// A symbol that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// As it is in the file; without the terminator.
    pub name: &'a [u8],
    /// Address of its first byte.
    pub start: u64,
    /// Where the name is in the bytes the table was read from.
    pub at: u64,
}

/// Symbols, sorted by address.
#[derive(Debug, Default)]
pub struct SymbolTable {
    entries: Vec<Entry>,
    /// The highest end of the entries up to each one.
    reach: Vec<u64>,
}

impl SymbolTable {
    /// Reads `.symtab` and `.dynsym` of an ELF file; empty if there are none, or none that
    /// can be read.
    pub fn parse_elf(data: &[u8]) -> Self {
        match object::FileKind::parse(data) {
            Ok(object::FileKind::Elf64) => parse_class::<elf::FileHeader64<Endianness>>(data),
            Ok(object::FileKind::Elf32) => parse_class::<elf::FileHeader32<Endianness>>(data),
            _ => None,
        }
        .unwrap_or_default()
    }

    /// Reads kallsyms: lines of `ADDRESS TYPE NAME[\t[MODULE]]`. Lines that are not so, and
    /// addresses of 0, are left out.
    pub fn parse_kallsyms(text: &[u8]) -> Self {
        let mut entries = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            entries.extend(kallsyms_entry(line, at));
            at += line.len();
        }
        Self::new(entries)
    }

    fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by_key(|entry| entry.start);
        let mut next = None;
        for entry in entries.iter_mut().rev() {
            let start = entry.start;
            if entry.end <= start {
                let last = start.saturating_add(PAGE - 1) / PAGE * PAGE;
                entry.end = next.unwrap_or(last.saturating_add(PAGE));
            }
            next = Some(start);
        }
        let mut reach = Vec::with_capacity(entries.len());
        let mut highest = 0;
        for entry in &entries {
            highest = highest.max(entry.end);
            reach.push(highest);
        }
        Self { entries, reach }
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The symbol that `address` is in; `data` is what the table was read from.
    pub fn at<'a>(&self, data: &'a [u8], address: u64) -> Option<Found<'a>> {
        let mut end = self.entries.partition_point(|entry| entry.start <= address);
        let mut aliases = ALIASES;
        for _ in 0..OVERLAPS {
            let before = self.entries.get(..end)?;
            if *self.reach.get(end.checked_sub(1)?)? <= address {
                return None;
            }
            let start = before.last()?.start;
            let first = before.partition_point(|entry| entry.start < start);
            let best = best(data, before.get(first..)?, &mut aliases)?;
            if address < best.end {
                let (name, at) = (name_at(data, best.name), best.name);
                return Some(Found { name, start, at });
            }
            end = first;
        }
        None
    }

    /// The address of the symbol called `name`: a look at every symbol.
    pub fn find(&self, data: &[u8], name: &[u8]) -> Option<u64> {
        // Names are compared before they are measured: nearly all differ at once.
        let same = |entry: &&Entry| {
            let rest = usize::try_from(entry.name).ok().and_then(|at| data.get(at..));
            rest.is_some_and(|rest| rest.starts_with(name)) && name_at(data, entry.name) == name
        };
        self.entries.iter().find(same).map(|entry| entry.start)
    }
}

/// Which of several symbols at one address names it. At most `budget` are compared.
fn best<'a>(data: &[u8], same: &'a [Entry], budget: &mut usize) -> Option<&'a Entry> {
    let (first, rest) = same.split_first()?;
    let rest = rest.get(..*budget).unwrap_or(rest);
    *budget -= rest.len();
    let better = |best: &'a Entry, next: &'a Entry| match rank(best).cmp(&rank(next)) {
        Ordering::Less => next,
        Ordering::Greater => best,
        Ordering::Equal => {
            let [(a, a_len), (b, b_len)] = [best, next].map(|entry| {
                let name = name_at(data, entry.name);
                let long = name.len() > COMPARED;
                let shown = if long { String::from_utf8_lossy(name) } else { demangle(name) };
                (underscores(&shown), shown.len())
            });
            if b < a || (a == b && b_len > a_len) { next } else { best }
        }
    };
    Some(rest.iter().fold(first, better))
}

/// The higher, the better.
fn rank(entry: &Entry) -> (bool, bool, bool, bool) {
    (entry.end > entry.start, !entry.kind.label, !entry.kind.weak, entry.kind.global)
}

fn underscores(name: &str) -> usize {
    name.bytes().take_while(|&byte| byte == b'_').count()
}

fn kallsyms_entry(line: &[u8], at: usize) -> Option<Entry> {
    let digits = line.iter().position(|&byte| byte == b' ')?;
    let mut start = 0u64;
    for &digit in line.get(..digits)? {
        let value = char::from(digit).to_digit(16)?;
        start = start.checked_mul(16)?.checked_add(value.into())?;
    }
    let (&letter, rest) = line.get(digits + 1..)?.split_first()?;
    let kind = Kind {
        label: false,
        weak: letter == b'W',
        global: letter.is_ascii_uppercase() && letter != b'W',
    };
    let counts = matches!(letter.to_ascii_uppercase(), b'T' | b'W' | b'D' | b'B');
    let name = (at + digits + 3) as u64;
    let named = rest.first() == Some(&b' ') && rest.get(1).is_some_and(|&byte| byte > b' ');
    let mapping = rest.get(1) == Some(&b'$');
    (counts && named && !mapping && start != 0).then_some(Entry { start, end: start, name, kind })
}

fn parse_class<H: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<SymbolTable> {
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let tagged = matches!(
        header.e_machine(endian),
        elf::EM_ARM | elf::EM_AARCH64 | elf::EM_RISCV | elf::EM_CSKY
    );
    let relocatable = header.e_type(endian) == elf::ET_REL;
    let names = section_names(header, &sections, endian, data);
    let mut entries = Vec::new();
    for type_ in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let Ok(symbols) = sections.symbols(endian, data, type_) else { continue };
        let strings = sections.section(symbols.string_section()).ok();
        let Some(strings) = strings.map(|section| section.sh_offset(endian).into()) else {
            continue;
        };
        let reader =
            Reader { sections: &sections, endian, data, names, strings, tagged, relocatable };
        entries.reserve(symbols.len());
        entries.extend(symbols.iter().filter_map(|symbol| reader.entry(symbol)));
    }
    Some(SymbolTable::new(entries))
}

/// What is needed to judge the symbols of one table.
struct Reader<'a, H: FileHeader<Endian = Endianness>> {
    sections: &'a SectionTable<'a, H>,
    endian: Endianness,
    data: &'a [u8],
    /// Offset of the names of sections.
    names: u64,
    /// Offset of the string table.
    strings: u64,
    /// The machine has mapping symbols.
    tagged: bool,
    /// Addresses are offsets in sections.
    relocatable: bool,
}

impl<H: FileHeader<Endian = Endianness>> Reader<'_, H> {
    fn entry(&self, symbol: &H::Sym) -> Option<Entry> {
        let endian = self.endian;
        let index = symbol.st_shndx(endian);
        let name = symbol.st_name(endian);
        if name == 0 || index == elf::SHN_UNDEF || index == elf::SHN_ABS || index == elf::SHN_COMMON
        {
            return None;
        }
        let label = match symbol.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_OBJECT => false,
            elf::STT_NOTYPE if self.is_place(symbol) => true,
            _ => return None,
        };
        let name = self.strings.checked_add(name.into())?;
        if self.tagged && name_at(self.data, name).starts_with(b"$") {
            return None;
        }
        let mut start = symbol.st_value(endian).into();
        if self.relocatable {
            let section = self.sections.section(object::SectionIndex(index.0.into())).ok()?;
            start = section.sh_offset(endian).into().checked_add(start)?;
        }
        let end = start.saturating_add(symbol.st_size(endian).into());
        let bind = symbol.st_bind();
        let (weak, global) = (bind == elf::STB_WEAK, bind == elf::STB_GLOBAL);
        Some(Entry { start, end, name, kind: Kind { label, weak, global } })
    }

    /// Whether a symbol without a type marks code or data.
    fn is_place(&self, symbol: &H::Sym) -> bool {
        let hidden = matches!(symbol.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL);
        let index = object::SectionIndex(symbol.st_shndx(self.endian).0.into());
        let Ok(section) = self.sections.section(index) else { return false };
        let name = section_name(self.data, self.names, section.sh_name(self.endian));
        let holds = |word: &[u8; 4]| name.windows(word.len()).any(|window| window == word);
        !hidden && (holds(b"text") || holds(b"data"))
    }
}
