// SPDX-License-Identifier: GPL-2.0
//! From a build ID or a path to files: where the original and its debug file are on this
//! machine.
//!
//! Nothing found by name is believed until its own build ID note says the same ID: a path
//! recorded yesterday may hold another version today. Looked at, in this order:
//!
//! 1. paths recorded with the profile (map records, build ID table), below `--symfs` if given;
//! 2. the same paths as living processes of the recording see them, and the files they map,
//!    which may have been deleted or lie in another mount namespace;
//! 3. the vDSO of this process, for its own ID;
//! 4. perf's cache (`$PERF_BUILDID_DIR`, `~/.debug`): `.build-id/xx/yyyy…/elf` and `…/debug`,
//!    and the same below the recorded path;
//! 5. `.build-id/xx/yyyy….debug` of `/usr/lib/debug`, and what `.gnu_debuglink` of the
//!    original names;
//! 6. a server, if there is a [`Fetcher`].
//!
//! An ordinary recording may know a file by its path alone. Then the file at the path is all
//! there is; what speaks against it is said.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::SystemTime;

use memmap2::Mmap;
use memmap2::MmapOptions;

use crate::abi::BuildId;
use crate::elf::ElfInfo;
use crate::elf::crc32;
use crate::place::Dso;
use crate::place::DsoKind;

/// What the kernel calls the vDSO.
const VDSO: &str = "[vdso]";

/// An ELF file whose note has been checked.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Found {
    pub path: PathBuf,
    pub info: ElfInfo,
}

/// What is known about one build ID, or one path.
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
    /// What a reader of the results should know: the file may be another one, or why none was
    /// found.
    pub problem: Option<String>,
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

    /// The file with DWARF, if any.
    pub fn dwarf_file(&self) -> Option<&Found> {
        self.original.iter().chain(&self.debug).find(|found| found.info.has_dwarf)
    }

    fn wants_debug(&self, dwarf: bool) -> bool {
        let files = || self.original.iter().chain(&self.debug);
        !files().any(|found| found.info.has_symtab)
            || (dwarf && !files().any(|found| found.info.has_dwarf))
    }

    /// Takes a file that was verified, for what it is good for.
    fn take(&mut self, found: Found) {
        if found.info.has_contents() && self.original.is_none() {
            self.original = Some(found);
        } else if self.debug.is_none() && found.info.has_symtab {
            self.debug = Some(found);
        }
    }

    /// Says why there is no file, unless something has been said.
    fn explain(&mut self) {
        if self.original.is_some() || self.problem.is_some() {
            return;
        }
        let name = self.name.as_deref().unwrap_or("no recorded path");
        let why = match (self.replaced, &self.debug) {
            (true, _) => format!("{name} has another build ID now"),
            (false, Some(debug)) if !debug.info.has_contents() => format!(
                "only a debug file, {}, whose offsets are not those of the original",
                debug.path.display()
            ),
            (false, Some(_)) => return,
            (false, None) => format!("{name}: no file with this build ID"),
        };
        self.problem = Some(why);
    }
}

/// Which of the two files of a build ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The program or library itself.
    Executable,
    /// Its symbols and debug information.
    Debug,
}

/// Gets a file from elsewhere: its path, or `None` if there is none. What went wrong is added
/// to the list, once.
pub type Fetch = dyn FnMut(BuildId, Part, &mut Vec<String>) -> Option<PathBuf>;

/// A [`Fetch`] of a [`Store`].
pub struct Fetcher(pub Box<Fetch>);

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetcher")
    }
}

/// Finds files by build ID or path, each once.
#[derive(Debug)]
pub struct Store {
    hints: HashMap<BuildId, Vec<PathBuf>>,
    /// Processes of the recording: if they live, they have their files.
    processes: Vec<u32>,
    roots: Vec<PathBuf>,
    /// What recorded paths are below, if not `/`.
    symfs: Option<PathBuf>,
    fetcher: Option<Fetcher>,
    /// When the recording ended.
    recorded: Option<SystemTime>,
    /// Files with DWARF are worth looking for.
    dwarf: bool,
    found: HashMap<BuildId, Binary>,
    complaints: Vec<String>,
}

/// This process's vDSO, as a file that others can open while the process lives.
#[derive(Debug)]
struct Vdso {
    id: BuildId,
    info: ElfInfo,
    file: File,
}

impl Vdso {
    fn found(&self) -> Found {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        Found { path, info: self.info.clone() }
    }
}

impl Default for Store {
    fn default() -> Self {
        let set = std::env::var_os("PERF_BUILDID_DIR").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".debug"));
        let cache = set.or_else(home);
        let roots = cache.into_iter().chain([PathBuf::from("/usr/lib/debug")]).collect();
        Self::with_roots(roots)
    }
}

impl Store {
    /// Looks below `roots`, each of which may have a `.build-id` tree.
    pub fn with_roots(roots: Vec<PathBuf>) -> Self {
        Self {
            hints: HashMap::new(),
            processes: Vec::new(),
            roots,
            symfs: None,
            fetcher: None,
            recorded: None,
            dwarf: false,
            found: HashMap::new(),
            complaints: Vec::new(),
        }
    }

    /// Recorded paths are below `dir`.
    pub fn symfs(mut self, dir: impl Into<PathBuf>) -> Self {
        self.symfs = Some(dir.into());
        self
    }

    /// What is not on this machine is asked of `fetcher`.
    pub fn fetcher(mut self, fetcher: Fetcher) -> Self {
        self.fetcher = Some(fetcher);
        self
    }

    /// The recording ended at `time`: a file changed since, without a build ID to compare, is
    /// doubtful.
    pub fn recorded(mut self, time: SystemTime) -> Self {
        self.recorded = Some(time);
        self
    }

    /// Files with DWARF are worth looking for even where there are symbols.
    pub fn want_dwarf(&mut self) {
        self.dwarf = true;
    }

    /// `path` was seen with `id` while recording.
    pub fn hint(&mut self, id: BuildId, path: impl Into<PathBuf>) {
        let (path, hints) = (path.into(), self.hints.entry(id).or_default());
        if !hints.contains(&path) {
            hints.push(path);
        }
    }

    /// Process `pid` was seen while recording, and may still have files that are nowhere else.
    pub fn process(&mut self, pid: u32) {
        if !self.processes.contains(&pid) {
            self.processes.push(pid);
        }
    }

    /// What there is for a DSO of a recording.
    pub fn find(&mut self, dso: &Dso) -> Binary {
        match dso.build_id {
            Some(id) => {
                if !dso.path.is_empty() {
                    self.hint(id, &*dso.path);
                }
                self.lookup(id).clone()
            }
            None => self.by_path(dso),
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

    fn search(&mut self, id: BuildId) -> Binary {
        let mut binary = Binary::default();
        let hints = self.hints.get(&id).cloned().unwrap_or_default();
        for path in &hints {
            self.try_recorded(path, id, &mut binary);
        }
        if binary.original.is_none() {
            let found = self.processes.iter().find_map(|&pid| in_map_files(pid, id));
            found.into_iter().for_each(|found| binary.take(found));
        }
        if let Some(vdso) = own_vdso().filter(|vdso| vdso.id == id) {
            binary.original = Some(vdso.found());
            binary.name = Some(VDSO.to_owned());
        }
        self.search_roots(id, &hints, &mut binary);
        self.follow_link(&mut binary);
        self.fetch_missing(id, &mut binary);
        if binary.name.is_none() {
            let any = binary.original.as_ref().or(binary.debug.as_ref());
            binary.name = any.map(|found| found.path.to_string_lossy().into_owned());
        }
        binary.explain();
        binary
    }

    /// Looks at `path`, here and as living processes see it.
    fn try_recorded(&self, path: &Path, id: BuildId, binary: &mut Binary) {
        let name = path.to_string_lossy().into_owned();
        if !path.is_absolute() {
            // `[vdso]` and the like.
            binary.name.get_or_insert(name);
            return;
        }
        let here = self.below_symfs(path);
        match verified(&here, id) {
            Some(found) => {
                if binary.original.is_none() {
                    binary.name = Some(name);
                }
                binary.take(found);
                return;
            }
            None => {
                binary.replaced |= here.exists();
                binary.name.get_or_insert(name);
            }
        }
        let inside = |pid: &u32| verified(&in_process(*pid, path), id);
        if let Some(found) = self.processes.iter().find_map(inside) {
            binary.take(found);
        }
    }

    fn below_symfs(&self, path: &Path) -> PathBuf {
        match &self.symfs {
            Some(dir) => below(dir, path),
            None => path.to_owned(),
        }
    }

    fn search_roots(&self, id: BuildId, hints: &[PathBuf], binary: &mut Binary) {
        let hex = id.to_string();
        let Some((dir, rest)) = hex.split_at_checked(2) else { return };
        for root in &self.roots {
            let base = root.join(".build-id").join(dir);
            // perf's cache has a link to a directory, distributions one to the file.
            let mut places = vec![base.join(rest)];
            places.extend(hints.iter().map(|hint| below(root, hint).join(&hex)));
            if binary.original.is_none() {
                let files = places
                    .iter()
                    .flat_map(|place| ["elf", "vdso", "exe"].map(|file| place.join(file)));
                let found = files.chain([base.join(rest)]).find_map(|path| verified(&path, id));
                found.into_iter().for_each(|found| binary.take(found));
            }
            if binary.debug.is_none() {
                let files = places.iter().map(|place| place.join("debug"));
                let mut files = [base.join(format!("{rest}.debug"))].into_iter().chain(files);
                binary.debug = files.find_map(|path| verified(&path, id));
            }
        }
    }

    /// Follows the `.gnu_debuglink` of the original.
    fn follow_link(&self, binary: &mut Binary) {
        if binary.debug.is_some() || !binary.wants_debug(self.dwarf) {
            return;
        }
        let Some(original) = &binary.original else { return };
        let Some(link) = &original.info.debug_link else { return };
        let Some(dir) = original.path.parent() else { return };
        let below_roots = self.roots.iter().map(|root| below(root, dir));
        let mut dirs = [dir.to_owned(), dir.join(".debug")].into_iter().chain(below_roots);
        binary.debug = dirs.find_map(|dir| linked(&dir.join(&link.name), original, link.crc));
    }

    /// What went wrong with servers, each thing once.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Asks for what is still missing.
    fn fetch_missing(&mut self, id: BuildId, binary: &mut Binary) {
        if binary.original.is_none()
            && let Some(found) = self.fetch(id, Part::Executable)
        {
            binary.take(found);
        }
        if binary.debug.is_none() && binary.wants_debug(self.dwarf) {
            binary.debug = self.fetch(id, Part::Debug);
        }
    }

    fn fetch(&mut self, id: BuildId, part: Part) -> Option<Found> {
        let Fetcher(fetch) = self.fetcher.as_mut()?;
        let path = fetch(id, part, &mut self.complaints)?;
        verified(&path, id)
    }

    /// The file at a path, in want of a build ID.
    fn by_path(&self, dso: &Dso) -> Binary {
        let path = Path::new(&*dso.path);
        let mut binary = Binary { name: Some(dso.path.to_string()), ..Binary::default() };
        if dso.kind == DsoKind::Vdso {
            binary.original = own_vdso().map(Vdso::found);
            binary.problem = Some("no build ID recorded: this kernel's vDSO is shown".to_owned());
            return binary;
        }
        let inside = self.processes.iter().map(|&pid| in_process(pid, path));
        let mut error = None;
        for candidate in [self.below_symfs(path)].into_iter().chain(inside) {
            match read_elf(&candidate) {
                Ok(info) => {
                    binary.problem = self.doubt(&candidate);
                    let id = info.build_id.or(info.cut_id);
                    binary.original = Some(Found { path: candidate, info });
                    if let Some(id) = id {
                        self.search_roots(id, &[path.to_owned()], &mut binary);
                    }
                    self.follow_link(&mut binary);
                    return binary;
                }
                Err(why) => error = error.or(Some(why)),
            }
        }
        binary.problem = error.map(|error| format!("{}: {error}", path.display()));
        binary
    }

    /// What speaks against a file that only its path names.
    fn doubt(&self, path: &Path) -> Option<String> {
        let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
        (changed > self.recorded?)
            .then(|| format!("{} has changed since, and no build ID was recorded", path.display()))
    }

    /// Files that may have the symbols of the kernel with build ID `id`: copies of kallsyms,
    /// and `vmlinux` files whose note says so.
    pub fn kernel_files(&mut self, id: BuildId, release: Option<&str>) -> Vec<PathBuf> {
        let hex = id.to_string();
        let Some((dir, rest)) = hex.split_at_checked(2) else { return Vec::new() };
        let cached = |root: &PathBuf| root.join(".build-id").join(dir).join(rest);
        let mut files: Vec<_> = Vec::new();
        for root in &self.roots {
            files.extend(["vmlinux", "elf", "debug"].map(|name| cached(root).join(name)));
            files.push(root.join(".build-id").join(dir).join(format!("{rest}.debug")));
        }
        if let Some(release) = release.filter(|release| !release.contains('/')) {
            let known = [
                format!("/boot/vmlinux-{release}"),
                format!("/usr/lib/debug/boot/vmlinux-{release}"),
                format!("/lib/modules/{release}/build/vmlinux"),
                format!("/lib/modules/{release}/vmlinux"),
                format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
            ];
            files.extend(known.iter().map(|path| self.below_symfs(Path::new(path))));
        }
        files.retain(|path| verified(path, id).is_some_and(|found| found.info.has_symtab));
        let copies = self.roots.iter().map(|root| cached(root).join("kallsyms"));
        files.splice(..0, copies.filter(|path| path.is_file()));
        if files.is_empty() {
            files.extend(self.fetch(id, Part::Debug).map(|found| found.path));
        }
        files
    }
}

/// Where `path` is below `dir`.
fn below(dir: &Path, path: &Path) -> PathBuf {
    dir.join(path.strip_prefix("/").unwrap_or(path))
}

/// Where `path` of process `pid` is for us: it may live in another mount namespace.
fn in_process(pid: u32, path: &Path) -> PathBuf {
    below(Path::new(&format!("/proc/{pid}/root")), path)
}

/// The debug file at `path`, if it belongs to `original`: by its build ID, or by the CRC where
/// neither has one.
fn linked(path: &Path, original: &Found, crc: u32) -> Option<Found> {
    let map = map_file(path).ok()?;
    let info = ElfInfo::parse(&map).ok()?;
    let ids = (original.info.build_id.or(original.info.cut_id), info.build_id.or(info.cut_id));
    let belongs = match ids {
        (Some(original), Some(debug)) => original == debug,
        _ => crc32(&map) == crc,
    };
    belongs.then(|| Found { path: path.to_owned(), info })
}

/// A file with build ID `id` that process `pid` maps now, even if it has been deleted. Only the
/// superuser may open `map_files`, but everyone the programs of his own processes.
fn in_map_files(pid: u32, id: BuildId) -> Option<Found> {
    if let Some(found) = verified(Path::new(&format!("/proc/{pid}/exe")), id) {
        return Some(found);
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let code = rest.as_bytes().get(2) == Some(&b'x') && rest.contains('/');
        let path = PathBuf::from(format!("/proc/{pid}/map_files/{range}"));
        code.then(|| verified(&path, id)).flatten()
    })
}

/// The file at `path`, if it is an ELF file whose note says `id`.
pub fn verified(path: &Path, id: BuildId) -> Option<Found> {
    let info = read_elf(path).ok()?;
    info.has_id(id).then(|| Found { path: path.to_owned(), info })
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
        return Some(PathBuf::from(VDSO));
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
