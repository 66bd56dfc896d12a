// SPDX-License-Identifier: GPL-2.0
//! From (build ID, file offset) and from kernel addresses to function names, by blazesym.
//!
//! The way for user code: the build ID names a file ([`Store`]), that file's program headers
//! turn the offset into a virtual address, and that address is looked up in the best symbol
//! table there is for the ID. Where there is no symbol, the unwind table
//! tells at least which function it is ([`Functions`]). Kernel addresses are looked up in `/proc/kallsyms`, and only if
//! the recording is from this very boot: with address randomization they mean nothing to
//! another.

use std::path::Path;

use blazesym::MaybeDefault;
use blazesym::symbolize::Input;
use blazesym::symbolize::Symbolized;
use blazesym::symbolize::Symbolizer;
use blazesym::symbolize::source::Elf;
use blazesym::symbolize::source::Kernel;
use blazesym::symbolize::source::Source;

use crate::abi::BuildId;
use crate::elf::ElfInfo;
use crate::functions::Functions;
use crate::plt::Plt;
use crate::store::Binary;
use crate::store::Store;
use crate::store::map_file;
use crate::store::running_kernel_build_id;

/// A function and how far into it an address is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Symbol {
    /// Demangled.
    pub name: String,
    /// In bytes from its start.
    pub offset: u64,
}

/// What is known about a place in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lookup {
    /// A symbol.
    Symbol(Symbol),
    /// No symbol, but the file offset at which the function begins.
    Function(u64),
    /// Nothing.
    #[default]
    Unknown,
}

/// Looks symbols up.
#[derive(Debug)]
pub struct Symbols {
    symbolizer: Symbolizer,
    store: Store,
    /// Why kernel addresses cannot be looked up, if so.
    kernel_refusal: Option<String>,
}

impl Symbols {
    /// Looks for files through `store`. `kernel` and `boot` are the build ID of the recorded
    /// kernel and its boot ID.
    pub fn new(store: Store, kernel: Option<BuildId>, boot: Option<&str>) -> Self {
        let kernel_refusal = refuse_kernel(kernel, boot);
        Self { symbolizer: Symbolizer::new(), store, kernel_refusal }
    }

    /// What there is for a build ID.
    pub fn binary(&mut self, id: BuildId) -> &Binary {
        self.store.lookup(id)
    }

    /// Why kernel symbols are not shown.
    pub fn kernel_refusal(&self) -> Option<&str> {
        self.kernel_refusal.as_deref()
    }

    /// What is at file offsets `offsets` of the file with build ID `id`, one for each.
    pub fn in_file(&mut self, id: BuildId, offsets: &[u64]) -> Vec<Lookup> {
        let binary = self.store.lookup(id);
        let mut open: Vec<_> = offsets
            .iter()
            .enumerate()
            .filter_map(|(at, &offset)| Some((at, binary.address_of(offset)?)))
            .collect();
        let mut found = vec![Lookup::Unknown; offsets.len()];
        for file in binary.symbol_files() {
            if open.is_empty() {
                return found;
            }
            let addresses: Vec<_> = open.iter().map(|(_, address)| *address).collect();
            let mut elf = Elf::new(&file.path);
            elf.debug_syms = false;
            let source = Source::Elf(elf);
            let symbols = match self.symbolizer.symbolize(&source, Input::VirtOffset(&addresses)) {
                Ok(symbols) => symbols,
                // A file that blazesym cannot read has no symbols for us.
                Err(_) => continue,
            };
            let mut left = Vec::new();
            for ((at, address), symbol) in open.into_iter().zip(symbols) {
                match (convert(symbol), found.get_mut(at)) {
                    (Some(symbol), Some(slot)) => *slot = Lookup::Symbol(symbol),
                    _ => left.push((at, address)),
                }
            }
            open = left;
        }
        if let (Some(original), false) = (&binary.original, open.is_empty()) {
            without_symbols(&original.path, &open, offsets, &mut found);
        }
        found
    }

    /// The symbols at kernel addresses, one for each.
    pub fn in_kernel(&self, addresses: &[u64]) -> Vec<Option<Symbol>> {
        let none = || vec![None; addresses.len()];
        if self.kernel_refusal.is_some() || addresses.is_empty() {
            return none();
        }
        let kernel = Kernel {
            kallsyms: MaybeDefault::Default,
            vmlinux: MaybeDefault::None,
            kaslr_offset: None,
            debug_syms: false,
            ..Kernel::default()
        };
        let source = Source::Kernel(kernel);
        match self.symbolizer.symbolize(&source, Input::AbsAddr(addresses)) {
            Ok(found) => found.into_iter().map(convert).collect(),
            Err(_) => none(),
        }
    }
}

/// Fills in what has no symbol: stubs of the linkage table, and where functions begin.
fn without_symbols(path: &Path, open: &[(usize, u64)], offsets: &[u64], found: &mut [Lookup]) {
    let Ok(map) = map_file(path) else { return };
    let Ok(info) = ElfInfo::parse(&map) else { return };
    let plt = Plt::parse(&map, &info);
    let functions = Functions::parse(&map, &info);
    for &(at, address) in open {
        let stub = plt.as_ref().and_then(|plt| plt.at(&map, address, |_| None));
        let stub = stub
            .map(|stub| Lookup::Symbol(Symbol { name: stub.name, offset: address - stub.start }));
        let start = || {
            let start = functions.as_ref()?.start_of(address)?;
            let into = address.checked_sub(start)?;
            Some(Lookup::Function(offsets.get(at)?.checked_sub(into)?))
        };
        if let (Some(lookup), Some(slot)) = (stub.or_else(start), found.get_mut(at)) {
            *slot = lookup;
        }
    }
}

fn convert(found: Symbolized<'_>) -> Option<Symbol> {
    let symbol = found.into_sym()?;
    Some(Symbol { name: symbol.name.into_owned(), offset: symbol.offset as u64 })
}

fn refuse_kernel(kernel: Option<BuildId>, boot: Option<&str>) -> Option<String> {
    if kernel.is_some() && kernel != running_kernel_build_id() {
        return Some("recorded under another kernel than the running one".to_owned());
    }
    let running = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    match boot {
        Some(boot) if boot != running.trim() => {
            return Some("recorded before the last boot, which moved the kernel".to_owned());
        }
        None if kernel.is_none() => {
            return Some("the recording does not say which kernel it is from".to_owned());
        }
        _ => {}
    }
    let symbols = match std::fs::read_to_string("/proc/kallsyms") {
        Ok(symbols) => symbols,
        Err(error) => return Some(format!("/proc/kallsyms: {error}")),
    };
    let readable = symbols
        .lines()
        .take(64)
        .any(|line| line.split(' ').next().is_some_and(|address| address.contains(|c| c != '0')));
    (!readable).then(|| {
        "/proc/kallsyms hides addresses (run as root, or sysctl kernel.kptr_restrict=0)".to_owned()
    })
}
