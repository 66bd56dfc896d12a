// SPDX-License-Identifier: GPL-2.0
//! Names for the procedure linkage table: the stubs through which a program calls into
//! libraries have no symbols, but each jumps through a slot that a dynamic relocation fills,
//! and the relocation names the function. They are shown as `name@plt`, as perf and
//! disassemblers do.
//!
//! Stubs are decoded for x86-64 (System V ABI, AMD64 supplement, "Procedure Linkage Table"):
//! `jmp *slot(%rip)`, with or without `endbr64` or a `bnd` prefix. Other machines have none
//! here, and their stubs remain functions without a name.
//!
//! What is no stub is called as perf calls it: `.plt` is the head of that section, through
//! which a function is bound at its first call, and all of it where `.plt.sec` has the stubs.

use std::borrow::Cow;

use object::Endianness;
use object::SymbolIndex;
use object::elf;
use object::read::elf::FileHeader;
use object::read::elf::Rela;
use object::read::elf::SectionHeader;
use object::read::elf::Sym;
use rustc_hash::FxHashMap;

use crate::demangle::demangle;
use crate::elf::ElfInfo;
use crate::elf::Section;
use crate::elf::Stubs;
use crate::elf::name_at;

/// `jmp *disp32(%rip)`
const JUMP: [u8; 2] = [0xff, 0x25];
/// Size of the head of `.plt`, in bytes.
const HEAD: u64 = 16;
/// More relocations than this are not looked at: headers may name the same ones again and again.
const MOST_SLOTS: usize = 1 << 20;

/// The stubs of one file.
#[derive(Debug)]
pub struct Plt {
    stubs: Stubs,
    /// What each slot leads to, by the slot's address.
    slots: FxHashMap<u64, Target>,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    /// The function whose name is at this offset of the file.
    Name(u64),
    /// What the function at this address chooses; it has the name of what it chooses.
    Chosen(u64),
}

/// A stub, or the head of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stub {
    /// `name@plt`, or `.plt`.
    pub name: String,
    /// Address of its first byte.
    pub start: u64,
}

impl Plt {
    /// Finds the stubs in the bytes of the file that `info` is about; `None` if there are none
    /// that can be read.
    pub fn parse(data: &[u8], info: &ElfInfo) -> Option<Self> {
        let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        if header.e_machine(endian) != elf::EM_X86_64 || info.stubs.all().next().is_none() {
            return None;
        }
        let sections = header.sections(endian, data).ok()?;
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).ok()?;
        let strings = sections.section(symbols.string_section()).ok()?.sh_offset(endian);
        let name_of = |index| {
            let symbol = symbols.symbol(SymbolIndex(usize::try_from(index).ok()?)).ok()?;
            let name = symbol.st_name(endian);
            (name != 0).then_some(Target::Name(strings.checked_add(name.into())?))
        };
        let linked = sections
            .iter()
            .filter(|section| section.sh_link(endian) as usize == symbols.section().0);
        let mut slots = FxHashMap::default();
        let relocations = linked.filter_map(|section| section.rela(endian, data).ok()?);
        for relocation in relocations.flat_map(|(relocations, _)| relocations).take(MOST_SLOTS) {
            let target = match relocation.r_type(endian, false) {
                elf::R_X86_64_IRELATIVE => {
                    u64::try_from(relocation.r_addend(endian)).ok().map(Target::Chosen)
                }
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                    name_of(relocation.r_sym(endian, false))
                }
                _ => None,
            };
            slots.extend(target.map(|target| (relocation.r_offset(endian), target)));
        }
        Some(Self { stubs: info.stubs, slots })
    }

    /// The stub that `address` is in; `data` is what the stubs were found in, `chooser` names
    /// the function at an address.
    pub fn at<'a>(
        &self,
        data: &[u8],
        address: u64,
        chooser: impl FnOnce(u64) -> Option<Cow<'a, str>>,
    ) -> Option<Stub> {
        let section = self.stubs.all().find(|section| section.distance(address).is_some())?;
        let into = section.distance(address)?;
        let head = match self.stubs.secure {
            _ if self.stubs.lazy != Some(*section) => 0,
            Some(_) => section.size,
            None => HEAD,
        };
        if into < head {
            return Some(Stub { name: ".plt".to_owned(), start: section.address });
        }
        let (at, slot) = stub(section, section.bytes(data)?, usize::try_from(into).ok()?)?;
        let name = match self.slots.get(&slot)? {
            Target::Name(at) => format!("{}@plt", demangle(name_at(data, *at))),
            Target::Chosen(address) => match chooser(*address) {
                Some(name) => format!("{name}@plt"),
                None => format!("offset_{address:#x}@plt"),
            },
        };
        Some(Stub { name, start: section.address.checked_add(at as u64)? })
    }
}

/// Where the stub that has byte `into` of a section begins, and the address of the slot it
/// jumps through.
fn stub(section: &Section, code: &[u8], into: usize) -> Option<(usize, u64)> {
    // Stubs are 8 or 16 bytes long.
    let short = into & !7;
    let at = if code.get(short..)?.starts_with(&JUMP) { short } else { into & !15 };
    let stub = code.get(at..)?;
    let jump = stub.windows(2).take(16).position(|pair| pair == JUMP)?;
    let operand = stub.get(jump + 2..)?.first_chunk().copied()?;
    let next = section.address.checked_add((at + jump + 6) as u64)?;
    Some((at, next.checked_add_signed(i32::from_le_bytes(operand).into())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(data: &[u8]) -> Option<Plt> {
        Plt::parse(data, &ElfInfo::parse(data).ok()?)
    }

    fn names(plt: &Plt, data: &[u8]) -> Vec<String> {
        let starts = plt
            .stubs
            .all()
            .flat_map(|section| (section.address..section.address + section.size).step_by(16));
        starts.filter_map(|start| Some(plt.at(data, start, |_| None)?.name)).collect()
    }

    /// Programs of this machine have stubs, and each stub one name.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn stubs_of_a_real_program() {
        let data = std::fs::read("/bin/bash").unwrap();
        let plt = parse(&data).unwrap();
        for section in plt.stubs.all() {
            for into in (0..section.size).step_by(16) {
                let at = |address| plt.at(&data, address, |_| None);
                assert_eq!(at(section.address + into), at(section.address + into + 1), "{into:#x}");
            }
        }
        let names = names(&plt, &data);
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        assert!(has("malloc@plt") || has("strlen@plt"), "{names:?}");
        assert!(has(".plt"), "{names:?}");
        assert!(names.len() > 50, "{names:?}");
        assert_eq!(plt.at(&data, 0, |_| None), None);
        let info = ElfInfo::parse(&data).unwrap();
        for len in (0..data.len().min(1 << 16)).step_by(997) {
            let _ = Plt::parse(&data[..len], &info);
        }
    }

    /// The C library calls its own string functions through slots without a symbol.
    #[test]
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    fn stubs_of_the_c_library() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find_map(|line| line.find("/libc.so").map(|_| line)).unwrap();
        let data = std::fs::read(&libc[libc.find('/').unwrap()..]).unwrap();
        let plt = parse(&data).unwrap();
        let strlen = plt
            .stubs
            .all()
            .flat_map(|section| (section.address..section.address + section.size).step_by(16));
        let table = crate::symtab::SymbolTable::parse_elf(&data);
        let chooser = |address| Some(demangle(table.at(&data, address)?.name));
        let mut named = strlen.filter_map(|start| plt.at(&data, start, chooser));
        assert!(named.any(|stub| stub.name == "strlen@plt"));
        assert!(names(&plt, &data).iter().any(|name| name.starts_with("offset_0x")));
    }
}
