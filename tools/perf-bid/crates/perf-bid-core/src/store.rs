// SPDX-License-Identifier: GPL-2.0
//! From a build ID to files: where the original and its debug file are on this machine.
//!
//! Nothing found by name is believed until its own build ID note says the same ID: a path
//! recorded yesterday may hold another version today. Looked at, in this order:
//!
//! 1. paths recorded with the profile (MMAP2 hints, build ID table);
//! 2. the trees `.build-id/xx/yyyy…/elf` of `~/.debug` (perf's cache);
//! 3. `.build-id/xx/yyyy….debug` of `/usr/lib/debug` and `~/.debug/…/debug`;
//! 4. the vDSO of this process, for its own ID.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::OnceLock;

use memmap2::Mmap;
use memmap2::MmapOptions;

use crate::abi::BuildId;
use crate::elf::ElfInfo;

/// An ELF file whose note has been checked.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Found {
    pub path: PathBuf,
    pub info: ElfInfo,
}

/// What is known about one build ID.
#[derive(Clone, Debug, Default)]
pub struct Binary {
    /// The file that was mapped: its program headers turn offsets into addresses.
    pub original: Option<Found>,
    /// A file with the symbols, if it is another one.
    pub debug: Option<Found>,
    /// What to call it: the recorded path, the place where it was found, or `[vdso]`.
    pub name: Option<String>,
    /// A recorded path holds another build ID now.
    pub replaced: bool,
}

impl Binary {
    /// The virtual address of file offset `offset`, if the original (or a debug file which
    /// kept the original's offsets) can tell.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let original = self.original.as_ref().and_then(|found| found.info.address_of(offset));
        original.or_else(|| self.debug.as_ref().and_then(|found| found.info.address_of(offset)))
    }

    /// Files to look for symbols in, the most telling first.
    pub fn symbol_files(&self) -> impl Iterator<Item = &Found> {
        let rank = |found: &&Found| match (found.info.has_symtab, found.info.has_dynsym) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        let mut files: Vec<_> = self.original.iter().chain(&self.debug).collect();
        files.sort_by_key(rank);
        files.into_iter().filter(move |found| rank(found) < 2)
    }
}

/// Finds files by build ID, each ID once.
#[derive(Debug)]
pub struct Store {
    hints: HashMap<BuildId, Vec<PathBuf>>,
    roots: Vec<PathBuf>,
    found: HashMap<BuildId, Binary>,
}

/// This process's vDSO, as a file that others can open while the process lives.
#[derive(Debug)]
struct Vdso {
    id: BuildId,
    info: ElfInfo,
    file: File,
}

impl Default for Store {
    fn default() -> Self {
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".debug"));
        let roots = home.into_iter().chain([PathBuf::from("/usr/lib/debug")]).collect();
        Self::with_roots(roots)
    }
}

impl Store {
    /// Looks below `roots`, each of which may have a `.build-id` tree.
    pub fn with_roots(roots: Vec<PathBuf>) -> Self {
        Self { hints: HashMap::new(), roots, found: HashMap::new() }
    }

    /// `path` was seen with `id` while recording.
    pub fn hint(&mut self, id: BuildId, path: impl Into<PathBuf>) {
        let (path, hints) = (path.into(), self.hints.entry(id).or_default());
        if !hints.contains(&path) {
            hints.push(path);
        }
    }

    /// What there is for `id`.
    pub fn lookup(&mut self, id: BuildId) -> &Binary {
        if !self.found.contains_key(&id) {
            let binary = self.search(id);
            self.found.insert(id, binary);
        }
        self.found.entry(id).or_default()
    }

    fn search(&self, id: BuildId) -> Binary {
        let mut binary = Binary::default();
        for path in self.hints.get(&id).into_iter().flatten() {
            let name = path.to_string_lossy().into_owned();
            if name == "[vdso]" {
                binary.name.get_or_insert(name);
                continue;
            }
            match verified(path, id) {
                Some(found) if binary.original.is_none() => {
                    binary.name = Some(name);
                    binary.original = Some(found);
                }
                Some(_) => {}
                None => {
                    binary.replaced |= path.exists();
                    binary.name.get_or_insert(name);
                }
            }
        }
        if let Some(vdso) = own_vdso().filter(|vdso| vdso.id == id) {
            use std::os::fd::AsRawFd;
            let path = PathBuf::from(format!("/proc/self/fd/{}", vdso.file.as_raw_fd()));
            binary.original = Some(Found { path, info: vdso.info.clone() });
            binary.name = Some("[vdso]".to_owned());
        }
        let hex = id.to_string();
        let Some((dir, rest)) = hex.split_at_checked(2) else {
            return binary;
        };
        for root in &self.roots {
            let base = root.join(".build-id").join(dir);
            if binary.original.is_none() {
                // perf's cache: a link to a directory with `elf`, or `vdso`.
                let cached = ["elf", "vdso", "exe"].map(|file| base.join(rest).join(file));
                binary.original = cached.iter().find_map(|path| verified(path, id));
            }
            if binary.debug.is_none() {
                let debug = [base.join(format!("{rest}.debug")), base.join(rest).join("debug")];
                binary.debug = debug.iter().find_map(|path| verified(path, id));
            }
        }
        if binary.name.is_none() {
            let any = binary.original.as_ref().or(binary.debug.as_ref());
            binary.name = any.map(|found| found.path.to_string_lossy().into_owned());
        }
        binary
    }
}

/// The file at `path`, if it is an ELF file whose note says `id`.
pub fn verified(path: &Path, id: BuildId) -> Option<Found> {
    let info = read_elf(path).ok()?;
    (info.build_id == Some(id)).then(|| Found { path: path.to_owned(), info })
}

/// Reads the facts of the ELF file at `path`.
pub fn read_elf(path: &Path) -> io::Result<ElfInfo> {
    let map = map_file(path)?;
    ElfInfo::parse(&map).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Maps a regular file for reading.
pub fn map_file(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // SAFETY: read-only and private. A file that shrinks meanwhile is a SIGBUS, not a wrong
    // value; programs, libraries and recordings are replaced by rename, not in place.
    unsafe { MmapOptions::new().map_copy_read_only(&file) }
}

/// Looks for the file with build ID `id` among those that process `pid` maps as code now.
pub fn find_in_process(pid: u32, id: BuildId) -> Option<PathBuf> {
    let vdso = own_vdso().filter(|vdso| vdso.id == id);
    if vdso.is_some() {
        return Some(PathBuf::from("[vdso]"));
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut seen = Vec::new();
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (_, prot) = (fields.next()?, fields.next()?);
        let path = line.get(line.find('/')?..)?;
        if prot.as_bytes().get(2) != Some(&b'x') || seen.contains(&path) {
            return None;
        }
        seen.push(path);
        // The process may live in another mount namespace.
        let inside = format!("/proc/{pid}/root{path}");
        verified(Path::new(&inside), id).map(|_| PathBuf::from(path))
    })
}

/// The running kernel's build ID, from `/sys/kernel/notes`.
pub fn running_kernel_build_id() -> Option<BuildId> {
    let notes = std::fs::read("/sys/kernel/notes").ok()?;
    build_id_in_notes(&notes)
}

/// The first GNU build ID in a run of 4-byte aligned notes in native byte order.
pub fn build_id_in_notes(notes: &[u8]) -> Option<BuildId> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut c = crate::cursor::Cursor::new(notes, 0);
    loop {
        let (name, desc) = (c.u32("namesz").ok()?, c.u32("descsz").ok()?);
        let type_ = c.u32("type").ok()?;
        let name_bytes = c.bytes(u64::from(name).next_multiple_of(4), "name").ok()?;
        let desc_bytes = c.bytes(u64::from(desc).next_multiple_of(4), "desc").ok()?;
        if type_ == NT_GNU_BUILD_ID && name_bytes == b"GNU\0" {
            return BuildId::new(desc_bytes.get(..desc as usize)?);
        }
    }
}

/// The build ID of this process's vDSO.
pub fn vdso_build_id() -> Option<BuildId> {
    own_vdso().map(|vdso| vdso.id)
}

/// This process's vDSO, read once.
fn own_vdso() -> Option<&'static Vdso> {
    static VDSO: OnceLock<Option<Vdso>> = OnceLock::new();
    VDSO.get_or_init(copy_vdso).as_ref()
}

/// Copies the vDSO out of this process's memory: its address is in the auxiliary vector.
fn copy_vdso() -> Option<Vdso> {
    const AT_SYSINFO_EHDR: usize = 33;
    let auxv = std::fs::read("/proc/self/auxv").ok()?;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(usize::from_ne_bytes);
    let start = auxv.chunks_exact(2 * size_of::<usize>()).find_map(|pair| {
        let (key, value) = pair.split_at_checked(size_of::<usize>())?;
        (word(key)? == AT_SYSINFO_EHDR).then(|| word(value)).flatten()
    })? as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let end = maps.lines().find_map(|line| {
        let (from, to) = line.split_ascii_whitespace().next()?.split_once('-')?;
        (u64::from_str_radix(from, 16).ok()? == start)
            .then(|| u64::from_str_radix(to, 16).ok())
            .flatten()
    })?;
    let mut image = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, start).ok()?;
    let info = ElfInfo::parse(&image).ok()?;
    let id = info.build_id?;
    let file = rustix::fs::memfd_create("vdso", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let file = File::from(file);
    file.write_all_at(&image, 0).ok()?;
    Some(Vdso { id, info, file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_and_its_vdso_have_ids() {
        assert!(running_kernel_build_id().is_some());
        let vdso = own_vdso().unwrap();
        assert!(vdso.info.has_dynsym);
        let mut store = Store::with_roots(Vec::new());
        assert_eq!(store.lookup(vdso.id).name.as_deref(), Some("[vdso]"));
    }

    #[test]
    fn hostile_notes_end() {
        assert_eq!(build_id_in_notes(&[0xff; 64]), None);
        assert_eq!(build_id_in_notes(&[]), None);
    }

    #[test]
    fn another_file_at_the_path_is_not_believed() {
        let me = std::env::current_exe().unwrap();
        let wrong = BuildId::new(&[0x5a; 20]).unwrap();
        let mut store = Store::with_roots(Vec::new());
        store.hint(wrong, &me);
        let binary = store.lookup(wrong);
        assert!(binary.original.is_none() && binary.replaced);
    }
}
