// SPDX-License-Identifier: GPL-2.0
//! From (build ID, file offset) and from kernel addresses to function names, by blazesym.
//!
//! The way for user code: the build ID names a file ([`Store`]), that file's program headers
//! turn the offset into a virtual address, and that address is looked up in the best symbol
//! table there is for the ID. Kernel addresses are looked up in `/proc/kallsyms`, and only if
//! the recording is from this very boot: with address randomization they mean nothing to
//! another.

use blazesym::MaybeDefault;
use blazesym::symbolize::Input;
use blazesym::symbolize::Symbolized;
use blazesym::symbolize::Symbolizer;
use blazesym::symbolize::source::Elf;
use blazesym::symbolize::source::Kernel;
use blazesym::symbolize::source::Source;

use crate::abi::BuildId;
use crate::store::Binary;
use crate::store::Store;
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
        Self {
            symbolizer: Symbolizer::new(),
            store,
            kernel_refusal,
        }
    }

    /// What there is for a build ID.
    pub fn binary(&mut self, id: BuildId) -> &Binary {
        self.store.lookup(id)
    }

    /// Why kernel symbols are not shown.
    pub fn kernel_refusal(&self) -> Option<&str> {
        self.kernel_refusal.as_deref()
    }

    /// The symbols at file offsets `offsets` of the file with build ID `id`, one for each.
    pub fn in_file(&mut self, id: BuildId, offsets: &[u64]) -> Vec<Option<Symbol>> {
        let binary = self.store.lookup(id);
        let mut symbols = vec![None; offsets.len()];
        let addresses: Vec<_> = offsets
            .iter()
            .map(|&offset| binary.address_of(offset))
            .collect();
        for file in binary.symbol_files() {
            let open: Vec<_> = addresses
                .iter()
                .zip(symbols.iter_mut())
                .filter(|(_, symbol)| symbol.is_none())
                .filter_map(|(address, symbol)| Some(((*address)?, symbol)))
                .collect();
            if open.is_empty() {
                break;
            }
            let wanted: Vec<_> = open.iter().map(|(address, _)| *address).collect();
            let mut elf = Elf::new(&file.path);
            elf.debug_syms = false;
            let source = Source::Elf(elf);
            // A file that blazesym cannot read has no symbols for us.
            let found = self
                .symbolizer
                .symbolize(&source, Input::VirtOffset(&wanted));
            for ((_, symbol), found) in open.into_iter().zip(found.unwrap_or_default()) {
                *symbol = convert(found);
            }
        }
        symbols
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
        match self
            .symbolizer
            .symbolize(&source, Input::AbsAddr(addresses))
        {
            Ok(found) => found.into_iter().map(convert).collect(),
            Err(_) => none(),
        }
    }
}

fn convert(found: Symbolized<'_>) -> Option<Symbol> {
    let symbol = found.into_sym()?;
    Some(Symbol {
        name: symbol.name.into_owned(),
        offset: symbol.offset as u64,
    })
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
    let readable = symbols.lines().take(64).any(|line| {
        line.split(' ')
            .next()
            .is_some_and(|address| address.contains(|c| c != '0'))
    });
    (!readable).then(|| {
        "/proc/kallsyms hides addresses (run as root, or sysctl kernel.kptr_restrict=0)".to_owned()
    })
}
