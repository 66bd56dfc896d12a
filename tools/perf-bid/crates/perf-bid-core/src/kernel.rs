// SPDX-License-Identifier: GPL-2.0
//! Symbols of the kernel that was recorded.
//!
//! Kernel addresses mean something only together with where that kernel was at that boot. Two
//! things tell: the boot ID (ours; the running kernel is where it was), and the address of a
//! reference symbol (`_text` or `_stext`), which perf puts into the map record of the kernel.
//! With the latter, symbols of the same build at another address will do, moved by the
//! difference. Symbols of another build never do.
//!
//! Looked at, in this order: files named by the user; `/proc/kallsyms`, if the running kernel
//! is the recorded one; what perf's cache has for the build ID; a `vmlinux` of the build ID.

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::path::PathBuf;

use memmap2::Mmap;

use crate::abi::BuildId;
use crate::store::Store;
use crate::store::map_file;
use crate::store::running_kernel_build_id;
use crate::symtab::Found;
use crate::symtab::SymbolTable;

/// What a recording and the user say about the recorded kernel.
#[derive(Clone, Debug, Default)]
pub struct RecordedKernel {
    /// From the build ID table or the kernel's map record.
    pub build_id: Option<BuildId>,
    /// `/proc/sys/kernel/random/boot_id` while recording.
    pub boot_id: Option<String>,
    /// A symbol and its address while recording, from the kernel's map record.
    pub reference: Option<(String, u64)>,
    /// As `uname -r` said it.
    pub release: Option<String>,
    /// A copy of kallsyms to use, whatever the recording says.
    pub kallsyms: Option<PathBuf>,
    /// A `vmlinux` to use, whatever the recording says.
    pub vmlinux: Option<PathBuf>,
}

/// The symbols of the recorded kernel.
#[derive(Debug)]
pub struct Kernel {
    bytes: Bytes,
    table: SymbolTable,
    /// Recorded address minus symbol's address, wrapping.
    shift: u64,
    /// Modules are where the symbols say only in the same boot.
    modules: bool,
    /// Where the symbols are from.
    pub path: PathBuf,
}

#[derive(Debug)]
enum Bytes {
    Read(Vec<u8>),
    Mapped(Mmap),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

/// A kernel symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// As in the table.
    pub name: &'a [u8],
    /// As recorded, not as in the table.
    pub start: u64,
    /// The module it is in.
    pub module: Option<&'a [u8]>,
}

impl Kernel {
    /// Finds the symbols of `recorded`, or says why there are none.
    pub fn load(recorded: &RecordedKernel, store: &mut Store) -> Result<Self, String> {
        if let Some(path) = &recorded.kallsyms {
            // Without a reference it is the user who knows that they are of that boot.
            return Self::kallsyms(path, recorded, recorded.reference.is_none());
        }
        if let Some(path) = &recorded.vmlinux {
            return Self::vmlinux(path, recorded);
        }
        let running = match running(recorded) {
            Ok(same_boot) => {
                match Self::kallsyms(Path::new("/proc/kallsyms"), recorded, same_boot) {
                    Ok(kernel) => return Ok(kernel),
                    Err(why) => why,
                }
            }
            Err(why) => why,
        };
        let Some(id) = recorded.build_id else { return Err(running) };
        for path in store.kernel_files(id, recorded.release.as_deref()) {
            let cached = path.file_name().is_some_and(|name| name == "kallsyms");
            let loaded = if cached {
                Self::kallsyms(&path, recorded, false)
            } else {
                Self::vmlinux(&path, recorded)
            };
            if let Ok(kernel) = loaded {
                return Ok(kernel);
            }
        }
        Err(format!("{running}; no vmlinux with build ID {}", id.short()))
    }

    fn kallsyms(path: &Path, recorded: &RecordedKernel, same_boot: bool) -> Result<Self, String> {
        let say = |error: io::Error| format!("{}: {error}", path.display());
        let text = std::fs::read(path).map_err(say)?;
        let table = SymbolTable::parse_kallsyms(&text);
        if table.is_empty() {
            return Err(format!(
                "{} hides addresses (run as root, or sysctl kernel.kptr_restrict=0)",
                path.display()
            ));
        }
        Self { bytes: Bytes::Read(text), table, shift: 0, modules: same_boot, path: path.into() }
            .placed(recorded, same_boot)
    }

    fn vmlinux(path: &Path, recorded: &RecordedKernel) -> Result<Self, String> {
        let map = map_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let table = SymbolTable::parse_elf(&map);
        if table.is_empty() {
            return Err(format!("{}: no symbols", path.display()));
        }
        Self { bytes: Bytes::Mapped(map), table, shift: 0, modules: false, path: path.into() }
            .placed(recorded, false)
    }

    /// Moves the symbols to where they were while recording.
    fn placed(mut self, recorded: &RecordedKernel, same_boot: bool) -> Result<Self, String> {
        if same_boot {
            return Ok(self);
        }
        let Some((name, address)) = &recorded.reference else {
            return Err("the recording does not say where the kernel was in memory".to_owned());
        };
        let Some(own) = self.table.find(&self.bytes, name.as_bytes()) else {
            return Err(format!("{}: no symbol {name}", self.path.display()));
        };
        self.shift = address.wrapping_sub(own);
        // An unmoved kernel of the same build: very likely this boot. perf believes it, too.
        self.modules = self.shift == 0;
        Ok(self)
    }

    /// The symbol at a recorded address.
    pub fn at(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let Found { name, start, at } =
            self.table.at(&self.bytes, address.wrapping_sub(self.shift))?;
        let module = self.module_after(usize::try_from(at).ok()?.checked_add(name.len())?);
        if module.is_some() && !self.modules {
            return None;
        }
        Some(KernelSymbol { name, start: start.wrapping_add(self.shift), module })
    }

    /// `name` of `\t[name]\n`, which kallsyms has behind a symbol of a module.
    fn module_after(&self, at: usize) -> Option<&[u8]> {
        let rest = self.bytes.get(at..)?.strip_prefix(b"\t[")?;
        rest.get(..rest.iter().position(|&byte| byte == b']')?)
    }
}

/// Whether the running kernel is the recorded one, and if so, whether in the same boot; or why
/// it is not.
fn running(recorded: &RecordedKernel) -> Result<bool, String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let same_build = recorded.build_id.map(|id| running_kernel_build_id() == Some(id));
    match (&recorded.boot_id, same_build) {
        (_, Some(false)) => Err("recorded under another kernel than the running one".to_owned()),
        (Some(recorded), _) if recorded == boot.trim() => Ok(true),
        (_, Some(true)) => Ok(false),
        (Some(_), None) => Err("recorded before the last boot, which moved the kernel".to_owned()),
        (None, None) => Err("the recording does not say which kernel it is from".to_owned()),
    }
}
