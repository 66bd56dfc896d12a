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
use std::collections::HashMap;

use object::Architecture;
use object::Object;
use object::ObjectSection;
use object::ObjectSymbol;
use object::ObjectSymbolTable;
use object::RelocationFlags;
use object::RelocationTarget;
use object::elf;

use crate::demangle::demangle;

/// Sections of stubs.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];
/// `jmp *disp32(%rip)`
const JUMP: [u8; 2] = [0xff, 0x25];
/// Size of the head of `.plt`, in bytes.
const HEAD: u64 = 16;

/// The stubs of one file.
#[derive(Debug)]
pub struct Plt {
    sections: Vec<Section>,
    /// What each slot leads to, by the slot's address.
    slots: HashMap<u64, Target>,
}

#[derive(Debug)]
struct Section {
    address: u64,
    code: Box<[u8]>,
    /// The head of `.plt`, in bytes.
    head: u64,
}

#[derive(Clone, Debug)]
enum Target {
    /// The function with this name, still mangled.
    Name(Box<[u8]>),
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
    /// Finds the stubs in a file's bytes; `None` if there are none that can be read.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let file = object::File::parse(data).ok()?;
        if file.architecture() != Architecture::X86_64 {
            return None;
        }
        let mut sections = Vec::new();
        for name in SECTIONS {
            let Some(section) = file.section_by_name(name) else { continue };
            let code: Box<[u8]> = section.data().ok()?.into();
            let head = if name == ".plt" { HEAD } else { 0 };
            if let (".plt.sec", Some(Section { head, code, .. })) = (name, sections.first_mut()) {
                *head = code.len() as u64;
            }
            sections.push(Section { address: section.address(), code, head });
        }
        let symbols = file.dynamic_symbol_table()?;
        let mut slots = HashMap::new();
        for (slot, relocation) in file.dynamic_relocations()? {
            let target = match (relocation.flags(), relocation.target()) {
                (RelocationFlags::Elf { r_type: elf::R_X86_64_IRELATIVE }, _) => {
                    u64::try_from(relocation.addend()).ok().map(Target::Chosen)
                }
                (
                    RelocationFlags::Elf {
                        r_type: elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT,
                    },
                    RelocationTarget::Symbol(index),
                ) => symbols
                    .symbol_by_index(index)
                    .ok()
                    .and_then(|symbol| symbol.name_bytes().ok())
                    .filter(|name| !name.is_empty())
                    .map(|name| Target::Name(name.into())),
                _ => None,
            };
            slots.extend(target.map(|target| (slot, target)));
        }
        (!sections.is_empty()).then_some(Self { sections, slots })
    }

    /// The stub that `address` is in. `chooser` names the function at an address.
    pub fn at<'a>(
        &self,
        address: u64,
        chooser: impl FnOnce(u64) -> Option<Cow<'a, str>>,
    ) -> Option<Stub> {
        let section = self.sections.iter().find(|section| {
            let into = address.checked_sub(section.address);
            into.is_some_and(|into| into < section.code.len() as u64)
        })?;
        let into = address - section.address;
        if into < section.head {
            return Some(Stub { name: ".plt".to_owned(), start: section.address });
        }
        let (at, slot) = section.stub(usize::try_from(into).ok()?)?;
        let name = match self.slots.get(&slot)? {
            Target::Name(name) => format!("{}@plt", demangle(name)),
            Target::Chosen(address) => match chooser(*address) {
                Some(name) => format!("{name}@plt"),
                None => format!("offset_{address:#x}@plt"),
            },
        };
        Some(Stub { name, start: section.address.checked_add(at as u64)? })
    }
}

impl Section {
    /// Where the stub that has byte `into` of this section begins, and the address of the
    /// slot it jumps through.
    fn stub(&self, into: usize) -> Option<(usize, u64)> {
        // Stubs are 8 or 16 bytes long.
        let short = into & !7;
        let at = if self.code.get(short..)?.starts_with(&JUMP) { short } else { into & !15 };
        let stub = self.code.get(at..)?;
        let jump = stub.windows(2).take(16).position(|pair| pair == JUMP)?;
        let operand = stub.get(jump + 2..)?.first_chunk().copied()?;
        let next = self.address.checked_add((at + jump + 6) as u64)?;
        Some((at, next.checked_add_signed(i32::from_le_bytes(operand).into())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plt: &Plt) -> Vec<String> {
        let sections = plt.sections.iter();
        let starts = sections.flat_map(|section| {
            (section.address..section.address + section.code.len() as u64).step_by(16)
        });
        starts.filter_map(|start| Some(plt.at(start, |_| None)?.name)).collect()
    }

    /// Programs of this machine have stubs, and each stub one name.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn stubs_of_a_real_program() {
        let data = std::fs::read("/bin/bash").unwrap();
        let plt = Plt::parse(&data).unwrap();
        for section in &plt.sections {
            for into in (0..section.code.len() as u64).step_by(16) {
                let at = |address| plt.at(address, |_| None);
                assert_eq!(at(section.address + into), at(section.address + into + 1), "{into:#x}");
            }
        }
        let names = names(&plt);
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        assert!(has("malloc@plt") || has("strlen@plt"), "{names:?}");
        assert!(has(".plt"), "{names:?}");
        assert!(names.len() > 50, "{names:?}");
        assert_eq!(plt.at(0, |_| None), None);
        for len in (0..data.len().min(1 << 16)).step_by(997) {
            let _ = Plt::parse(&data[..len]);
        }
    }

    /// The C library calls its own string functions through slots without a symbol.
    #[test]
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    fn stubs_of_the_c_library() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find_map(|line| line.find("/libc.so").map(|_| line)).unwrap();
        let data = std::fs::read(&libc[libc.find('/').unwrap()..]).unwrap();
        let plt = Plt::parse(&data).unwrap();
        let table = crate::symtab::SymbolTable::parse_elf(&data);
        let (slot, address) = plt
            .slots
            .iter()
            .find_map(|(slot, target)| match target {
                Target::Chosen(address) => Some((*slot, *address)),
                Target::Name(_) => None,
            })
            .unwrap();
        assert!(table.at(&data, address).is_some());
        let anonymous = names(&plt);
        assert!(anonymous.contains(&format!("offset_{address:#x}@plt")), "{slot:#x} {anonymous:?}");
    }
}
