// SPDX-License-Identifier: GPL-2.0
//! Inlined functions and source lines, from DWARF, by blazesym.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::CodeInfo;
use blazesym::symbolize::Input;
use blazesym::symbolize::Symbolizer;
use blazesym::symbolize::source::Elf;
use blazesym::symbolize::source::Source;
use rustc_hash::FxHashMap;

use crate::symbols::Options;

/// A function at an address, as DWARF tells it.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub(crate) struct Line {
    pub name: Arc<str>,
    /// Address of its first byte; inlined functions have none of their own.
    pub start: Option<u64>,
    pub source: Option<(Arc<str>, u32)>,
}

/// Reads DWARF, one file after the other as they are asked for.
pub(crate) struct Dwarf {
    symbolizer: Symbolizer,
    /// Paths of source files repeat.
    paths: FxHashMap<PathBuf, Arc<str>>,
}

impl fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dwarf")
    }
}

impl Dwarf {
    pub(crate) fn new(options: &Options) -> Self {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(true)
            .enable_inlined_fns(options.inline)
            .enable_demangling(options.demangle)
            .build();
        Self { symbolizer, paths: FxHashMap::default() }
    }

    /// The functions at virtual address `address` of the file at `path`, the one inlined last
    /// first; empty if DWARF does not say.
    pub(crate) fn at(&mut self, path: &Path, address: u64) -> Vec<Line> {
        let source = Source::Elf(Elf::new(path));
        // What blazesym cannot read tells us nothing; the symbol table still does.
        let found = self.symbolizer.symbolize_single(&source, Input::VirtOffset(address)).ok();
        let Some(symbol) = found.and_then(|found| found.into_sym()) else { return Vec::new() };
        let symbol = symbol.into_owned();
        // The line said with a function is where it was at; with one that has others inlined,
        // where it calls the next.
        let base = symbol.code_info.as_deref().and_then(|info| self.source(info));
        let mut lines =
            vec![Line { name: symbol.name.into(), start: Some(symbol.addr), source: base }];
        for inlined in &*symbol.inlined {
            let source = inlined.code_info.as_ref().and_then(|info| self.source(info));
            lines.push(Line { name: Arc::from(&*inlined.name), start: None, source });
        }
        lines.reverse();
        lines
    }

    fn source(&mut self, info: &CodeInfo<'_>) -> Option<(Arc<str>, u32)> {
        let path = match &info.dir {
            Some(dir) => dir.join(Path::new::<OsStr>(&info.file)),
            None => PathBuf::from(&*info.file),
        };
        let line = info.line?;
        let make = || Arc::from(&*path.to_string_lossy());
        Some((Arc::clone(self.paths.entry(path.clone()).or_insert_with(make)), line))
    }
}
