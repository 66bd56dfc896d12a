// SPDX-License-Identifier: GPL-2.0
//! From a frame to function names and source lines.
//!
//! The way for user code: the DSO names a file ([`Store`]), that file's program headers turn
//! the offset into a virtual address, and that address is looked up among the stubs of the
//! linkage table ([`Plt`]) and in the best symbol table there is ([`SymbolTable`], which also
//! says how perf chooses). Where there is no symbol, the unwind table tells at least where
//! the function begins ([`Functions`]). Inlined functions and source lines are from DWARF, and
//! only if asked for: reading it costs a thousand times what a symbol does.
//!
//! Kernel addresses are looked up among the symbols of the recorded kernel ([`Kernel`]), those
//! of memory without a file in what a just-in-time compiler wrote ([`JitMap`]).
//!
//! A return address may be the first byte of the next function, if the call never returns. So
//! callers are looked up one byte before; the offset said is that of the recorded address, as
//! in `perf script`.

use std::path::PathBuf;
use std::sync::Arc;

use memmap2::Mmap;
use rustc_hash::FxHashMap;

use crate::demangle::demangle;
use crate::dwarf::Dwarf;
use crate::dwarf::Line;
use crate::functions::Functions;
use crate::jit;
use crate::jit::JitMap;
use crate::kernel::Kernel;
use crate::kernel::RecordedKernel;
use crate::place::Dso;
use crate::place::DsoId;
use crate::place::DsoKind;
use crate::place::Dsos;
use crate::place::Frame;
use crate::place::Place;
use crate::plt::Plt;
use crate::store::Binary;
use crate::store::Store;
use crate::store::map_file;
use crate::symtab::SymbolTable;

/// What perf and we call the kernel.
pub const KERNEL: &str = "[kernel.kallsyms]";

/// What the kernel calls the padding before a function, in which there is no call.
const PADDING: &[u8] = b"__pfx_";

/// What to look up, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name the functions that were inlined at a place.
    pub inline: bool,
    /// Say the source file and line.
    pub srcline: bool,
    /// Show names as the programmer wrote them.
    pub demangle: bool,
    /// The kernel that was recorded.
    pub kernel: RecordedKernel,
    /// Where just-in-time compilers write `perf-PID.map`.
    pub jit_dir: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inline: false,
            srcline: false,
            demangle: true,
            kernel: RecordedKernel::default(),
            jit_dir: PathBuf::from("/tmp"),
        }
    }
}

/// All that is known about a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The function that was inlined last first; empty if there is no name.
    pub functions: Vec<Function>,
    /// The DSO of the place.
    pub dso: Option<DsoId>,
    /// What to call the file: a path, or a word in brackets. A kernel address of a module is
    /// in `[module]` here, whatever its DSO is. Empty if the place has no DSO.
    pub file: Arc<str>,
    /// Where the function begins that has no name, in the terms of the place.
    pub unnamed: Option<u64>,
}

/// A function at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Demangled, if that was asked for.
    pub name: Arc<str>,
    /// In bytes, from `start` to the recorded place.
    pub offset: Option<u64>,
    /// Where it begins, in the terms of the place: a file offset, or an address. Inlined
    /// functions say those of the function they were inlined into, as in perf.
    pub start: u64,
    /// Source file and line.
    pub source: Option<(Arc<str>, u32)>,
    /// It has no code of its own here.
    pub inlined: bool,
}

/// The [problem](Origin::problem) of a file that is the right one.
pub const NO_SYMBOLS: &str = "no symbols";

/// Where the names of a DSO are from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The DSO.
    pub dso: Option<DsoId>,
    /// The file itself.
    pub file: Option<PathBuf>,
    /// Another file, with its symbols.
    pub debug: Option<PathBuf>,
    /// Why there is no file or no symbol in it, or why those may be wrong.
    pub problem: Option<String>,
}

/// Finds names for frames. What was found for a frame is not kept: a caller that asks for one
/// again has a use for the answer, and knows a smaller form of it.
#[derive(Debug)]
pub struct Symbolizer {
    store: Store,
    options: Options,
    objects: FxHashMap<DsoId, Object>,
    kernel: Option<Result<Kernel, String>>,
    dwarf: Option<Dwarf>,
    names: FxHashMap<(DsoId, u64), Arc<str>>,
    modules: FxHashMap<Vec<u8>, Arc<str>>,
    nothing: Arc<str>,
}

/// What a [`DsoId`] stands for, opened.
#[derive(Debug)]
struct Object {
    file: Arc<str>,
    origin: Origin,
    code: Code,
}

#[derive(Debug)]
enum Code {
    File(Box<Image>),
    Kernel,
    Jit(JitMap),
    /// All of it is one function, named as the DSO is.
    Function {
        start: u64,
    },
}

/// A file with its symbols.
#[derive(Debug)]
struct Image {
    binary: Binary,
    /// Of the original.
    map: Option<Mmap>,
    tables: Vec<(Mmap, SymbolTable)>,
    /// Read when the first address in a stub is looked up.
    plt: Option<Option<Plt>>,
}

/// What was found at an address of an [`Image`].
enum InImage {
    Symbol { name: Vec<u8>, start: u64 },
    Stub { name: String, start: u64 },
    Unnamed { start: u64 },
}

impl Symbolizer {
    /// Looks for files through `store`.
    pub fn new(mut store: Store, options: Options) -> Self {
        let dwarf = (options.inline || options.srcline).then(|| Dwarf::new(&options));
        if dwarf.is_some() {
            store.want_dwarf();
        }
        Self {
            store,
            options,
            objects: FxHashMap::default(),
            kernel: None,
            dwarf,
            names: FxHashMap::default(),
            modules: FxHashMap::default(),
            nothing: Arc::from(""),
        }
    }

    /// All that is known about `frame`, whose DSO is in `dsos`: always the same table.
    pub fn resolve(&mut self, dsos: &Dsos, frame: Frame) -> Resolved {
        let resolved = self.look_up(dsos, frame);
        if frame.caller && resolved.functions.is_empty() && resolved.unnamed.is_none() {
            // No call can be between functions: this was no return address.
            return self.look_up(dsos, Frame { caller: false, ..frame });
        }
        resolved
    }

    /// Where the names are from, for each DSO that a frame was resolved in.
    pub fn problems(&self) -> impl Iterator<Item = &Origin> {
        let mut origins: Vec<_> = self.objects.values().map(|object| &object.origin).collect();
        origins.sort_by_key(|origin| origin.dso);
        origins.into_iter()
    }

    /// What went wrong with servers that were asked for files.
    pub fn complaints(&self) -> &[String] {
        self.store.complaints()
    }

    /// Why kernel addresses have no names, if so.
    pub fn kernel_problem(&self) -> Option<&str> {
        self.kernel.as_ref()?.as_ref().err().map(String::as_str)
    }

    fn look_up(&mut self, dsos: &Dsos, frame: Frame) -> Resolved {
        let back = u64::from(frame.caller);
        let (id, at) = match frame.place {
            Place::File { dso, offset } => (dso, offset),
            Place::Memory { dso, address } => (dso, address),
            Place::Unresolved(_) | Place::Missing => return self.unknown(None),
        };
        let Some(dso) = dsos.get(id) else { return self.unknown(None) };
        if !self.objects.contains_key(&id) {
            let object = self.open(id, dso);
            self.objects.insert(id, object);
        }
        let Some(object) = self.objects.get_mut(&id) else { return self.unknown(Some(id)) };
        let at = at.saturating_sub(back);
        let file = Arc::clone(&object.file);
        let mut resolved = Resolved { dso: Some(id), file, ..Resolved::default() };
        match &mut object.code {
            Code::File(image) => {
                let Some(address) = image.binary.address_of(at) else { return resolved };
                let found = if frame.caller { image.called_at(address) } else { image.at(address) };
                let dwarf = self.dwarf.as_mut().zip(image.binary.dwarf_file());
                let lines = dwarf.map(|(dwarf, file)| dwarf.at(&file.path, address));
                let at = Looked { id, at, address, back };
                self.in_image(&mut resolved, at, found, lines.unwrap_or_default());
            }
            Code::Kernel => self.in_kernel(&mut resolved, id, at, back),
            Code::Function { start } => {
                let name = Arc::clone(&object.file);
                let into = (at + back).saturating_sub(*start);
                resolved.functions.push(Function::at(name, into, *start));
            }
            Code::Jit(map) => {
                if let Some((name, start)) = map.at(at) {
                    // Code at one address has had several names, maybe: none is kept.
                    let name = shown(name, self.options.demangle);
                    resolved.functions.push(Function::at(name, at + back - start, start));
                }
            }
        }
        resolved
    }

    fn unknown(&self, dso: Option<DsoId>) -> Resolved {
        Resolved { dso, file: Arc::clone(&self.nothing), ..Resolved::default() }
    }

    fn open(&mut self, id: DsoId, dso: &Dso) -> Object {
        let origin = Origin { dso: Some(id), ..Origin::default() };
        match dso.kind {
            DsoKind::File | DsoKind::Vdso => self.open_file(origin, dso),
            DsoKind::Kernel | DsoKind::Module => self.open_kernel(origin, dso),
            DsoKind::Ksymbol { start } => {
                let code = Code::Function { start };
                Object { file: Arc::clone(&dso.path), origin, code }
            }
            DsoKind::Anon { pid } => {
                let paths = jit::candidates(&self.options.jit_dir, pid);
                let (file, map, problem) = match jit::read(&paths) {
                    Ok((path, map)) => (Some(path), map, None),
                    Err(_) => (None, JitMap::default(), Some(no_jit_map(&paths))),
                };
                let origin = Origin { file, problem, ..origin };
                let name = if dso.path.is_empty() { "[anon]".into() } else { dso.path.clone() };
                Object { file: name, origin, code: Code::Jit(map) }
            }
        }
    }

    fn open_file(&mut self, origin: Origin, dso: &Dso) -> Object {
        let binary = self.store.find(dso);
        let name = match (&*dso.path, &binary.name) {
            ("", Some(name)) => Arc::from(&**name),
            ("", None) => Arc::from("[no file found]"),
            _ => Arc::clone(&dso.path),
        };
        let path = |found: &crate::store::Found| found.path.clone();
        let mut origin = Origin {
            file: binary.original.as_ref().map(path),
            debug: binary.debug.as_ref().map(path),
            problem: binary.problem.clone(),
            ..origin
        };
        let image = Image::open(binary);
        if image.tables.is_empty() && origin.file.is_some() && origin.problem.is_none() {
            origin.problem = Some(NO_SYMBOLS.to_owned());
        }
        Object { file: name, origin, code: Code::File(Box::new(image)) }
    }

    fn open_kernel(&mut self, origin: Origin, dso: &Dso) -> Object {
        let (options, store) = (&self.options, &mut self.store);
        let kernel = self.kernel.get_or_insert_with(|| Kernel::load(&options.kernel, store));
        let origin = match kernel {
            Ok(kernel) => Origin { file: Some(kernel.path.clone()), ..origin },
            Err(why) => Origin { problem: Some(why.clone()), ..origin },
        };
        let named = !dso.path.is_empty() && dso.kind == DsoKind::Module;
        let file = if named { dso.path.clone() } else { Arc::from(KERNEL) };
        Object { file, origin, code: Code::Kernel }
    }

    /// A name is converted once for each function.
    fn name(&mut self, id: DsoId, start: u64, raw: &[u8]) -> Arc<str> {
        let demangled = self.options.demangle;
        Arc::clone(self.names.entry((id, start)).or_insert_with(|| shown(raw, demangled)))
    }

    fn in_image(
        &mut self,
        resolved: &mut Resolved,
        looked: Looked,
        found: Option<InImage>,
        mut lines: Vec<Line>,
    ) {
        let base = lines.pop();
        let (name, start) = match (found, &base) {
            (Some(InImage::Symbol { name, start }), _) => {
                (self.name(looked.id, start, &name), start)
            }
            (Some(InImage::Stub { name, start }), _) => (Arc::from(name), start),
            (_, Some(Line { name, start: Some(start), .. })) => (Arc::clone(name), *start),
            (Some(InImage::Unnamed { start }), _) => {
                resolved.unnamed = looked.offset_of(start);
                return;
            }
            (None, _) => return,
        };
        let offset = looked.address.saturating_add(looked.back).saturating_sub(start);
        let begin = looked.offset_of(start).unwrap_or_default();
        let (inline, srcline) = (self.options.inline, self.options.srcline);
        resolved.functions.reserve_exact(1 + if inline { lines.len() } else { 0 });
        let source = |source: Option<(Arc<str>, u32)>| source.filter(|_| srcline);
        if inline {
            let inlined = lines.into_iter().map(|line| Function {
                source: source(line.source),
                inlined: true,
                ..Function::at(line.name, offset, begin)
            });
            resolved.functions.extend(inlined);
        }
        let source = source(base.and_then(|line| line.source));
        resolved.functions.push(Function { source, ..Function::at(name, offset, begin) });
    }

    fn in_kernel(&mut self, resolved: &mut Resolved, id: DsoId, at: u64, back: u64) {
        let Some(Ok(kernel)) = &self.kernel else { return };
        let Some(found) = kernel.at(at) else { return };
        if back > 0 && found.name.starts_with(PADDING) {
            return;
        }
        if let Some(module) = found.module {
            let make = || Arc::from(format!("[{}]", String::from_utf8_lossy(module)));
            resolved.file = Arc::clone(self.modules.entry(module.to_vec()).or_insert_with(make));
        }
        let (start, name) = (found.start, found.name.to_vec());
        let name = self.name(id, start, &name);
        resolved.functions.push(Function::at(name, at + back - start, start));
    }
}

/// A place in a file that is being looked up.
#[derive(Clone, Copy)]
struct Looked {
    id: DsoId,
    /// File offset.
    at: u64,
    /// The same, as an address.
    address: u64,
    /// How far before the recorded place that is.
    back: u64,
}

impl Looked {
    /// The file offset of `start`, which is in the same segment.
    fn offset_of(&self, start: u64) -> Option<u64> {
        self.at.checked_sub(self.address.checked_sub(start)?)
    }
}

impl Function {
    fn at(name: Arc<str>, offset: u64, start: u64) -> Self {
        Self { name, offset: Some(offset), start, source: None, inlined: false }
    }
}

impl Image {
    fn open(binary: Binary) -> Self {
        let map = binary.original.as_ref().and_then(|found| map_file(&found.path).ok());
        let read = |found: &crate::store::Found| {
            let map = map_file(&found.path).ok()?;
            let table = SymbolTable::parse_elf(&map);
            (!table.is_empty()).then_some((map, table))
        };
        let tables = binary.symbol_files().filter_map(read).collect();
        Self { binary, map, tables, plt: None }
    }

    fn at(&mut self, address: u64) -> Option<InImage> {
        if let Some(stub) = self.stub_at(address) {
            return Some(stub);
        }
        let found = self.tables.iter().find_map(|(map, table)| table.at(map, address));
        if let Some(found) = found {
            return Some(InImage::Symbol { name: found.name.to_vec(), start: found.start });
        }
        let info = &self.binary.original.as_ref()?.info;
        let functions = Functions::parse(self.map.as_ref()?, info)?;
        functions.start_of(address).map(|start| InImage::Unnamed { start })
    }

    /// The same for the last byte of a call. The kernel calls signal handlers so that they
    /// return to the first byte of a function; there is no call before it, nor mostly anything.
    fn called_at(&mut self, address: u64) -> Option<InImage> {
        let found = self.at(address);
        if !matches!(found, None | Some(InImage::Unnamed { .. })) {
            return found;
        }
        let back = address.saturating_add(1);
        let begins = self
            .at(back)
            .filter(|at| matches!(at, InImage::Symbol { start, .. } if *start == back));
        begins.or(found)
    }

    fn stub_at(&mut self, address: u64) -> Option<InImage> {
        let info = &self.binary.original.as_ref()?.info;
        info.stubs.all().find(|section| section.distance(address).is_some())?;
        let (map, tables) = (self.map.as_ref()?, &self.tables);
        let plt = self.plt.get_or_insert_with(|| Plt::parse(map, info)).as_ref()?;
        let chooser = |address| {
            let found = tables.iter().find_map(|(map, table)| table.at(map, address))?;
            Some(demangle(found.name))
        };
        let stub = plt.at(map, address, chooser)?;
        Some(InImage::Stub { name: stub.name, start: stub.start })
    }
}

fn shown(raw: &[u8], demangled: bool) -> Arc<str> {
    if demangled {
        return Arc::from(&*demangle(raw));
    }
    Arc::from(&*String::from_utf8_lossy(raw))
}

fn no_jit_map(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("no {}", paths.join(", nor "))
}
