// SPDX-License-Identifier: GPL-2.0
//! Names for the procedure linkage table: the stubs through which a program calls into
//! libraries have no symbols, but each jumps through a slot that a dynamic relocation fills,
//! and the relocation names the function. They are shown as `name@plt`, as perf and
//! disassemblers do.
//!
//! Stubs are decoded for x86-64 (System V ABI, AMD64 supplement, "Procedure Linkage Table"):
//! `jmp *slot(%rip)`, with or without `endbr64` or a `bnd` prefix. Other machines have none
//! here, and their stubs remain functions without a name.

use std::collections::HashMap;

use object::Architecture;
use object::Object;
use object::ObjectSection;
use object::ObjectSymbol;
use object::ObjectSymbolTable;
use object::RelocationTarget;

/// Sections of stubs.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];
/// `jmp *disp32(%rip)`
const JUMP: [u8; 2] = [0xff, 0x25];

/// The stubs of one file.
#[derive(Debug)]
pub struct Plt<'a> {
    /// Address and contents.
    sections: Vec<(u64, &'a [u8])>,
    /// Names of functions by the address of the slot that leads to them.
    slots: HashMap<u64, String>,
}

impl<'a> Plt<'a> {
    /// Finds the stubs in a file's bytes; `None` if there are none that can be read.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let file = object::File::parse(data).ok()?;
        if file.architecture() != Architecture::X86_64 {
            return None;
        }
        let sections: Vec<_> = SECTIONS
            .iter()
            .filter_map(|name| file.section_by_name(name))
            .filter_map(|section| Some((section.address(), section.data().ok()?)))
            .collect();
        if sections.is_empty() {
            return None;
        }
        let symbols = file.dynamic_symbol_table()?;
        // IRELATIVE relocations name no symbol, but the address of the function that chooses,
        // which has the name of what it chooses.
        let choosers: HashMap<_, _> = symbols
            .symbols()
            .filter(|symbol| !symbol.is_undefined() && symbol.address() != 0)
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)))
            .collect();
        let mut slots = HashMap::new();
        for (slot, relocation) in file.dynamic_relocations()? {
            let name = match relocation.target() {
                RelocationTarget::Symbol(index) => symbols
                    .symbol_by_index(index)
                    .ok()
                    .and_then(|symbol| symbol.name().ok())
                    .filter(|name| !name.is_empty()),
                _ => u64::try_from(relocation.addend())
                    .ok()
                    .and_then(|chooser| choosers.get(&chooser).copied()),
            };
            slots.extend(name.map(|name| (slot, demangle(name))));
        }
        Some(Self { sections, slots })
    }

    /// `name@plt` for an address within a stub.
    pub fn name_at(&self, address: u64) -> Option<String> {
        let (start, code) = self.sections.iter().find(|(start, code)| {
            address.checked_sub(*start).is_some_and(|into| into < code.len() as u64)
        })?;
        let into = usize::try_from(address - start).ok()?;
        // Stubs are 8 or 16 bytes long.
        let short = into & !7;
        let at = if code.get(short..)?.starts_with(&JUMP) { short } else { into & !15 };
        let stub = code.get(at..)?;
        let jump = stub.windows(2).take(16).position(|pair| pair == JUMP)?;
        let operand = stub.get(jump + 2..)?.first_chunk().copied()?;
        let next = start.checked_add((at + jump + 6) as u64)?;
        let slot = next.checked_add_signed(i32::from_le_bytes(operand).into())?;
        self.slots.get(&slot).map(|name| format!("{name}@plt"))
    }
}

fn demangle(name: &str) -> String {
    let Ok(symbol) = cpp_demangle::Symbol::new(name) else { return name.to_owned() };
    symbol.demangle().unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs of this machine have stubs, and each stub one name.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn stubs_of_a_real_program() {
        let data = std::fs::read("/bin/bash").unwrap();
        let plt = Plt::parse(&data).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for (start, code) in &plt.sections {
            for into in (0..code.len() as u64).step_by(16) {
                let name = plt.name_at(start + into);
                assert_eq!(name, plt.name_at(start + into + 1), "{into:#x}");
                names.extend(name);
            }
        }
        assert!(names.contains("malloc@plt") || names.contains("strlen@plt"), "{names:?}");
        assert!(names.len() > 50, "{names:?}");
        assert_eq!(plt.name_at(0), None);
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
        let stubs = plt.sections.iter().flat_map(|(start, code)| {
            let addresses = (*start..*start + code.len() as u64).step_by(16);
            addresses.filter_map(|address| plt.name_at(address))
        });
        let names: Vec<_> = stubs.collect();
        assert!(names.iter().any(|name| name == "strlen@plt"), "{names:?}");
    }

    #[test]
    fn names_are_demangled() {
        assert_eq!(demangle("_Znwm"), "operator new(unsigned long)");
        assert_eq!(demangle("malloc"), "malloc");
    }
}
