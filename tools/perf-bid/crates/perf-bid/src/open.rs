// SPDX-License-Identifier: GPL-2.0
//! What every command that reads a recording begins with: open it ([`data`]), add it up
//! ([`profile`]), and set up what names its frames ([`Namer`]).

use std::fs::File;
use std::io;
use std::io::IsTerminal;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::misc;
use perf_bid_core::data::PerfData;
use perf_bid_core::place::Dso;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::profile;
use perf_bid_core::profile::Profile;
use perf_bid_core::store::Store;
use perf_bid_core::symbols::Lookup;
use perf_bid_core::symbols::Symbols;

use crate::cli::Naming;

/// Files below this size are read before a progress bar could be seen, in bytes.
const PROGRESS_FROM: u64 = 32 << 20;

/// Opens a recording; `-` is standard input. Errors name the file.
pub fn data(path: &Path) -> Result<PerfData> {
    if path.as_os_str() != "-" {
        return PerfData::open(path).with_context(|| path.display().to_string());
    }
    let stdin = Path::new("/dev/stdin");
    let from = || "standard input".to_owned();
    if stdin.metadata().with_context(from)?.is_file() {
        return PerfData::open(stdin).with_context(from);
    }
    // What comes through a pipe is kept in a file without a name, so that the map of it costs
    // no memory that cannot be written back.
    let mut copy = tempfile::NamedTempFile::new().with_context(from)?;
    io::copy(&mut File::open(stdin).with_context(from)?, &mut copy).with_context(from)?;
    PerfData::open(copy.path()).with_context(from)
}

/// Adds a recording up, with a progress bar if it takes long and someone may watch.
pub fn profile(data: &PerfData, options: profile::Options) -> Profile {
    let Some(bar) = progress(data.data_len(), "reading") else {
        return profile::read(data, options, |_| {});
    };
    let profile = profile::read(data, options, |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    profile
}

/// A progress bar over `len` bytes of input on a terminal, if they are many.
pub fn progress(len: u64, what: &'static str) -> Option<ProgressBar> {
    if len < PROGRESS_FROM || !io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new(len);
    let style = ProgressStyle::with_template("{msg} {bar:40} {bytes}/{total_bytes} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    Some(bar)
}

/// A function at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Demangled.
    pub name: Arc<str>,
    /// In bytes from its start.
    pub offset: Option<u64>,
    /// Where it begins; tells functions of the same name in one file apart.
    pub start: u64,
    /// File and line.
    pub source: Option<(Arc<str>, u32)>,
    /// It has no code of its own there but is part of the next one.
    pub inlined: bool,
}

/// Where the file of a [`Dso`] is on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// What to call it; empty if nobody knows.
    pub name: String,
    /// The file that symbols come from.
    pub file: Option<PathBuf>,
    /// Why there is no such file.
    pub why_not: Option<String>,
}

/// Finds names of frames.
#[derive(Debug)]
pub struct Namer {
    symbols: Symbols,
}

impl Namer {
    /// Knows the files that the recording names, and those that are asked for.
    pub fn new(data: &PerfData, hints: &[(BuildId, Arc<str>)], _args: &Naming) -> Result<Self> {
        let mut store = Store::default();
        for (id, path) in hints {
            store.hint(*id, &**path);
        }
        let features = data.features();
        let kernel = features.build_ids.iter().find(|row| row.cpumode == misc::KERNEL);
        let boot = features.info.boot_id.as_deref();
        let symbols = Symbols::new(store, kernel.map(|row| row.build_id), boot);
        Ok(Self { symbols })
    }

    /// The functions at a frame, innermost first; empty if there is no symbol.
    pub fn resolve(&mut self, dsos: &Dsos, frame: Frame) -> Vec<Function> {
        // A return address may be the first byte of the next function: the call is before it.
        let back = u64::from(frame.caller);
        let found = match frame.place {
            Place::File { dso, offset } => match dsos.get(dso).and_then(|dso| dso.build_id) {
                Some(id) => self.in_file(id, offset.saturating_sub(back)),
                None => None,
            },
            Place::Memory { dso, address } => match dsos.get(dso).map(|dso| dso.kind) {
                Some(DsoKind::Kernel | DsoKind::Module) => {
                    self.in_kernel(address.saturating_sub(back))
                }
                _ => None,
            },
            Place::Unresolved(_) | Place::Missing => None,
        };
        found.into_iter().collect()
    }

    fn in_file(&mut self, id: BuildId, offset: u64) -> Option<Function> {
        let (name, into) = match self.symbols.in_file(id, &[offset]).pop()? {
            Lookup::Symbol(symbol) => (symbol.name, symbol.offset),
            Lookup::Function(start) => {
                (format!("[function {start:#x}]"), offset.saturating_sub(start))
            }
            Lookup::Unknown => return None,
        };
        Some(Function {
            name: name.into(),
            offset: Some(into),
            start: offset.saturating_sub(into),
            source: None,
            inlined: false,
        })
    }

    fn in_kernel(&mut self, address: u64) -> Option<Function> {
        let symbol = self.symbols.in_kernel(&[address]).pop()??;
        Some(Function {
            start: address.saturating_sub(symbol.offset),
            name: symbol.name.into(),
            offset: Some(symbol.offset),
            source: None,
            inlined: false,
        })
    }

    /// Where the file of `dso` is.
    pub fn locate(&mut self, dso: &Dso) -> Located {
        let recorded = dso.path.to_string();
        let Some(id) = dso.build_id.filter(|_| dso.kind == DsoKind::File) else {
            return Located { name: recorded, ..Located::default() };
        };
        let binary = self.symbols.binary(id);
        let name = binary.name.clone().unwrap_or(recorded);
        let file = binary.original.as_ref().map(|found| found.path.clone());
        let why_not = file.is_none().then(|| match (binary.replaced, &binary.debug) {
            (true, _) => format!("{name} has another build ID now"),
            (false, Some(debug)) => format!(
                "only a debug file, {}, whose offsets are not those of the original",
                debug.path.display()
            ),
            (false, None) if name.is_empty() => "no file with this build ID".to_owned(),
            (false, None) => format!("{name}: no file with this build ID"),
        });
        Located { name, file, why_not }
    }

    /// Why kernel symbols are not shown.
    pub fn kernel_refusal(&self) -> Option<&str> {
        self.symbols.kernel_refusal()
    }
}
