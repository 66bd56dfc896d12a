// SPDX-License-Identifier: GPL-2.0
//! What the frames of a profile are called. Each distinct frame is looked up once; frames in
//! one function become one [`Symbol`], so that everything later works with small numbers.

use std::fmt;
use std::sync::Arc;

use perf_bid_core::abi::BuildId;
use perf_bid_core::place::DsoId;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::profile::FrameId;
use perf_bid_core::profile::Profile;
use perf_bid_core::symbols::Function;
use perf_bid_core::symbols::NO_SYMBOLS;
use perf_bid_core::symbols::Resolved;
use perf_bid_core::symbols::Symbolizer;
use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;

/// Index of a [`Symbol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymId(pub u32);

/// Index of a [`DsoName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DsoIndex(u32);

/// Where code comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A file of its own that was executed.
    Program,
    /// Something that others use.
    Library,
    /// The kernel or a module.
    Kernel,
    /// Code made at run time.
    Jit,
    /// Nobody knows.
    Unresolved,
}

/// A function, or an address of which no more is known.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Where it is.
    pub dso: DsoIndex,
    /// Demangled; `None` if there is no symbol.
    pub name: Option<Arc<str>>,
    /// It is part of its caller's code.
    pub inlined: bool,
    /// The first place in it that was met: the only one if there is no symbol.
    pub place: Place,
    /// Source line of that place.
    pub source: Option<(Arc<str>, u32)>,
    /// How far into the function that place is.
    pub offset: Option<u64>,
}

/// What a DSO is called.
#[derive(Clone, Debug)]
pub struct DsoName {
    /// Whole path, or a word in brackets.
    pub long: String,
    /// Without directories.
    pub short: String,
    /// If it is known.
    pub build_id: Option<BuildId>,
    /// What it is.
    pub origin: Origin,
    /// Where the file was found.
    pub file: Option<String>,
    /// Why there is none.
    pub why_not: Option<String>,
}

/// What tells symbols apart.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Identity {
    dso: DsoIndex,
    name: Option<Arc<str>>,
    /// Of the function, or the address if there is no symbol.
    start: u64,
    inlined: bool,
    /// If lines are told apart.
    source: Option<(Arc<str>, u32)>,
    /// If lines are told apart and not known.
    offset: Option<u64>,
}

/// The functions of a frame.
#[derive(Clone, Copy)]
struct FrameNames {
    /// Part of [`Names::functions`].
    from: u32,
    to: u32,
    /// What samples that fell there belong to.
    own: SymId,
}

/// The names of all frames of a profile.
#[derive(Default)]
pub struct Names {
    symbols: Vec<Symbol>,
    dsos: Vec<DsoName>,
    /// Innermost function first, all frames after another.
    functions: Vec<SymId>,
    frames: Vec<FrameNames>,
    index: FxHashMap<Identity, SymId>,
    dso_index: FxHashMap<(DsoId, Arc<str>), DsoIndex>,
    words: FxHashMap<String, DsoIndex>,
}

/// How fine names are to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detail {
    /// Lines of one function are different.
    pub lines: bool,
    /// Inlined functions are functions.
    pub inlined: bool,
}

impl Names {
    /// Looks every frame up.
    pub fn find(profile: &Profile, symbolizer: &mut Symbolizer, detail: Detail) -> Self {
        let frames = profile.stacks.frames();
        let none = FrameNames { from: 0, to: 0, own: SymId(0) };
        let mut names = Self { frames: vec![none; frames.len()], ..Self::default() };
        // File by file, each from its beginning.
        let mut order: Vec<_> = frames.iter().copied().zip(0u32..).collect();
        order.sort_unstable();
        for (frame, id) in order {
            let resolved = symbolizer.resolve(&profile.dsos, frame);
            names.add(&profile.dsos, &resolved, frame, FrameId(id), detail);
        }
        names.take_origins(symbolizer);
        names
    }

    fn add(&mut self, dsos: &Dsos, resolved: &Resolved, frame: Frame, id: FrameId, detail: Detail) {
        let from = self.functions.len() as u32;
        let (dso, address) = self.whereabouts(dsos, resolved, frame.place);
        let functions = &resolved.functions;
        let own = match (functions.first(), functions.last()) {
            (Some(innermost), Some(last)) => {
                let called = functions.len().saturating_sub(1);
                for (at, function) in functions.iter().enumerate() {
                    if at == called || detail.inlined {
                        let symbol = self.intern(dso, frame.place, function, detail);
                        self.functions.push(symbol);
                    }
                }
                // As in perf: the function that was called, but the line that was run.
                let own = Function { source: innermost.source.clone(), ..last.clone() };
                self.intern(dso, frame.place, &own, detail)
            }
            _ => {
                let start = resolved.unnamed.filter(|_| !detail.lines);
                let symbol = self.unnamed(dso, frame.place, start, address);
                self.functions.push(symbol);
                symbol
            }
        };
        if let Some(slot) = self.frames.get_mut(id.0 as usize) {
            *slot = FrameNames { from, to: self.functions.len() as u32, own };
        }
    }

    /// Where names came from is known once they are there.
    fn take_origins(&mut self, symbolizer: &Symbolizer) {
        for origin in symbolizer.problems() {
            let dsos = self.dso_index.iter().filter(|((id, _), _)| Some(*id) == origin.dso);
            for (_, index) in dsos {
                let Some(dso) = self.dsos.get_mut(index.0 as usize) else { continue };
                let file = origin.debug.as_ref().or(origin.file.as_ref());
                dso.file = file.map(|path| path.display().to_string());
                dso.why_not = origin.problem.clone();
            }
        }
    }

    fn intern(&mut self, dso: DsoIndex, place: Place, f: &Function, detail: Detail) -> SymId {
        let without_line = detail.lines && f.source.is_none();
        let identity = Identity {
            dso,
            name: Some(f.name.clone()),
            start: f.start,
            inlined: f.inlined,
            source: f.source.clone().filter(|_| detail.lines),
            offset: f.offset.filter(|_| without_line),
        };
        self.symbol(identity, place, f.source.as_ref(), f.offset)
    }

    fn unnamed(&mut self, dso: DsoIndex, place: Place, start: Option<u64>, address: u64) -> SymId {
        // Functions without a name are told apart by where they begin.
        let name = start.map(|start| format!("[function {start:#x}]").into());
        let start = start.unwrap_or(address);
        let identity = Identity { dso, name, start, inlined: false, source: None, offset: None };
        self.symbol(identity, place, None, None)
    }

    fn symbol(
        &mut self,
        identity: Identity,
        place: Place,
        source: Option<&(Arc<str>, u32)>,
        offset: Option<u64>,
    ) -> SymId {
        if let Some(&id) = self.index.get(&identity) {
            return id;
        }
        let id = SymId(self.symbols.len() as u32);
        let Identity { dso, name, inlined, .. } = identity.clone();
        self.symbols.push(Symbol { dso, name, inlined, place, source: source.cloned(), offset });
        self.index.insert(identity, id);
        id
    }

    /// The DSO and the offset or address of a place.
    fn whereabouts(&mut self, dsos: &Dsos, resolved: &Resolved, place: Place) -> (DsoIndex, u64) {
        match place {
            Place::File { dso, offset } => (self.dso(dsos, resolved, dso), offset),
            Place::Memory { dso, address } => (self.dso(dsos, resolved, dso), address),
            Place::Unresolved(status) => (self.word(format!("[{status}]")), 0),
            Place::Missing => (self.word("[deferred, missing]".to_owned()), 0),
        }
    }

    fn dso(&mut self, dsos: &Dsos, resolved: &Resolved, id: DsoId) -> DsoIndex {
        // Modules may be told apart by their symbols only.
        let key = (id, resolved.file.clone());
        if let Some(&index) = self.dso_index.get(&key) {
            return index;
        }
        let index = match dsos.get(id) {
            None => self.word("[?]".to_owned()),
            Some(dso) => {
                let long = match &*resolved.file {
                    "" => "[no file found]".to_owned(),
                    name => name.to_owned(),
                };
                self.push_dso(DsoName {
                    short: short_name(&long, dso.kind),
                    origin: origin(&long, dso.kind),
                    build_id: dso.build_id,
                    file: None,
                    why_not: None,
                    long,
                })
            }
        };
        self.dso_index.insert(key, index);
        index
    }

    fn word(&mut self, word: String) -> DsoIndex {
        if let Some(&index) = self.words.get(&word) {
            return index;
        }
        let index = self.push_dso(DsoName {
            long: word.clone(),
            short: word.clone(),
            build_id: None,
            origin: Origin::Unresolved,
            file: None,
            why_not: None,
        });
        self.words.insert(word, index);
        index
    }

    fn push_dso(&mut self, dso: DsoName) -> DsoIndex {
        self.dsos.push(dso);
        DsoIndex(self.dsos.len() as u32 - 1)
    }

    /// The functions of a frame, innermost first; at least one.
    pub fn functions(&self, frame: FrameId) -> &[SymId] {
        let names = self.frames.get(frame.0 as usize);
        let part = names.map_or(0..0, |names| names.from as usize..names.to as usize);
        self.functions.get(part).unwrap_or_default()
    }

    /// What samples in a frame belong to: the function that was called there, not those inlined
    /// into it.
    pub fn own(&self, frame: FrameId) -> Option<SymId> {
        self.frames.get(frame.0 as usize).map(|names| names.own)
    }

    /// All symbols.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// A symbol of these names.
    pub fn get(&self, id: SymId) -> Option<&Symbol> {
        self.symbols.get(id.0 as usize)
    }

    /// The DSO of a symbol.
    pub fn dso_of(&self, id: SymId) -> Option<&DsoName> {
        self.get(id).and_then(|symbol| self.dsos.get(symbol.dso.0 as usize))
    }

    /// Number of files in which frames lie.
    pub fn files(&self) -> usize {
        let is_file = |dso: &&DsoName| matches!(dso.origin, Origin::Program | Origin::Library);
        self.dsos.iter().filter(is_file).count()
    }

    /// Number of build IDs of them.
    pub fn build_ids(&self) -> usize {
        let user = self.dsos.iter().filter(|dso| dso.origin != Origin::Kernel);
        user.filter_map(|dso| dso.build_id).collect::<FxHashSet<_>>().len()
    }

    /// Where code comes from.
    pub fn origin(&self, id: SymId) -> Origin {
        self.dso_of(id).map_or(Origin::Unresolved, |dso| dso.origin)
    }

    /// The symbol for a column beside its file.
    pub fn symbol_text(&self, id: SymId) -> SymbolText<'_> {
        SymbolText { symbol: self.get(id), file: None }
    }

    /// The symbol where its file is not seen.
    pub fn label(&self, id: SymId) -> SymbolText<'_> {
        SymbolText { symbol: self.get(id), file: self.dso_of(id).map(|dso| dso.short.as_str()) }
    }

    /// Build IDs for which no file was found, and why.
    pub fn without_file(&self) -> impl Iterator<Item = (BuildId, &str)> {
        self.dsos.iter().filter_map(|dso| Some((dso.build_id?, dso.why_not.as_deref()?)))
    }

    /// Why names may be those of another file than the one that was recorded.
    pub fn doubts(&self) -> impl Iterator<Item = &str> {
        let by_path = self.dsos.iter().filter(|dso| dso.build_id.is_none() && dso.file.is_some());
        by_path.filter_map(|dso| dso.why_not.as_deref()).filter(|why| *why != NO_SYMBOLS)
    }
}

/// How a symbol is written.
pub struct SymbolText<'a> {
    symbol: Option<&'a Symbol>,
    file: Option<&'a str>,
}

impl fmt::Display for SymbolText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(symbol) = self.symbol else { return f.write_str("[?]") };
        if let Some(name) = &symbol.name {
            f.write_str(name)?;
            return if symbol.inlined { f.write_str(" (inlined)") } else { Ok(()) };
        }
        match (symbol.place, self.file) {
            (Place::File { offset: at, .. } | Place::Memory { address: at, .. }, file) => {
                write!(f, "{}+{at:#x}", file.unwrap_or("[unknown]"))
            }
            (Place::Unresolved(_) | Place::Missing, file) => f.write_str(file.unwrap_or("-")),
        }
    }
}

/// As perf shortens it: the file's name, a module's name in brackets.
fn short_name(long: &str, kind: DsoKind) -> String {
    let file = match long.strip_suffix(" (deleted)").unwrap_or(long).rsplit('/').next() {
        Some(file) if !file.is_empty() && !long.starts_with(['[', '/']) => long.trim_end(),
        Some(file) if !file.is_empty() => file,
        _ => long,
    };
    if long.starts_with('[') || long.starts_with("//") {
        return long.to_owned();
    }
    match (kind, file.split_once(".ko")) {
        (DsoKind::Module, Some((module, _))) => format!("[{}]", module.replace('-', "_")),
        _ => file.to_owned(),
    }
}

fn origin(long: &str, kind: DsoKind) -> Origin {
    let file = long.rsplit('/').next().unwrap_or(long);
    match kind {
        DsoKind::Kernel | DsoKind::Module | DsoKind::Ksymbol { .. } => Origin::Kernel,
        DsoKind::Anon { .. } => Origin::Jit,
        DsoKind::Vdso => Origin::Library,
        DsoKind::File if file == "[vdso]" => Origin::Library,
        DsoKind::File if file.ends_with(".so") || file.contains(".so.") => Origin::Library,
        DsoKind::File => Origin::Program,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_are_shortened_as_perf_does() {
        for (long, kind, short) in [
            ("/usr/lib/libc.so.6", DsoKind::File, "libc.so.6"),
            ("/tmp/x (deleted)", DsoKind::File, "x"),
            ("[vdso]", DsoKind::Vdso, "[vdso]"),
            ("//anon", DsoKind::Anon { pid: 1 }, "//anon"),
            ("[kernel.kallsyms]", DsoKind::Kernel, "[kernel.kallsyms]"),
            ("/lib/modules/6/nf-nat.ko.xz", DsoKind::Module, "[nf_nat]"),
            ("/", DsoKind::File, "/"),
        ] {
            assert_eq!(short_name(long, kind), short);
        }
    }
}
