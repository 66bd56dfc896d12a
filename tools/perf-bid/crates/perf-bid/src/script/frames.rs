// SPDX-License-Identifier: GPL-2.0
//! Frames as bytes to print, each distinct one made once.

use std::ops::Range;
use std::sync::Arc;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Status;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::symbols::Resolved;
use perf_bid_core::symbols::Symbolizer;
use rustc_hash::FxHashMap;

/// What is known about a frame.
#[derive(Clone, Debug)]
pub struct Named {
    /// The functions there.
    pub resolved: Resolved,
    /// Path of the file, or a word in brackets.
    pub dso: Arc<str>,
    /// What the frame is in.
    pub kind: Option<DsoKind>,
    /// Of the file.
    pub build_id: Option<BuildId>,
    /// Where.
    pub place: Place,
}

impl Named {
    /// The byte offset in the file, if it is in one.
    pub fn offset(&self) -> Option<u64> {
        match self.place {
            Place::File { offset, .. } => Some(offset),
            _ => None,
        }
    }

    /// Whether it was resolved, or why not.
    pub fn status(&self) -> Status {
        match (self.place, self.kind) {
            (Place::File { .. }, _) => Status::Resolved,
            (Place::Memory { .. }, Some(DsoKind::Anon { .. })) => Status::Anon,
            (Place::Memory { .. }, _) => Status::Kernel,
            (Place::Unresolved(status), _) => status,
            (Place::Missing, _) => Status::Deferred,
        }
    }
}

/// The frames so far.
#[derive(Debug)]
pub struct Frames {
    symbolizer: Symbolizer,
    choice: Choice,
    reasons: bool,
    /// Look return addresses up as they are.
    as_recorded: bool,
    /// What is printed of each frame after its value: a line for each function there. All lines
    /// are in `text`, one after the other; `ends` is where each of them ends.
    lines: FxHashMap<Frame, Range<u32>>,
    ends: Vec<usize>,
    text: Vec<u8>,
    chosen: FxHashMap<Frame, bool>,
    /// Whether any was in the kernel.
    kernel: bool,
}

/// Which samples to print, by what they fell in; empty lists choose all.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Names of files, with or without directories.
    pub dsos: Vec<String>,
    /// Functions.
    pub symbols: Vec<String>,
}

impl Frames {
    /// None yet. `reasons`: the recording has build IDs, so that a frame without has a reason
    /// for it.
    pub fn new(symbolizer: Symbolizer, choice: Choice, reasons: bool) -> Self {
        let (lines, ends, text, chosen, as_recorded) = Default::default();
        let kernel = false;
        Self { symbolizer, choice, reasons, as_recorded, lines, ends, text, chosen, kernel }
    }

    /// Looks return addresses up as they are, not the calls before them.
    pub fn with_recorded(self, as_recorded: bool) -> Self {
        Self { as_recorded, ..self }
    }

    /// The lines of a frame, as `render` makes the one of each function.
    pub fn get(
        &mut self,
        dsos: &Dsos,
        frame: Frame,
        render: impl Fn(&Named, usize) -> Vec<u8>,
    ) -> impl ExactSizeIterator<Item = &[u8]> {
        let lines = match self.lines.get(&frame) {
            Some(lines) => lines.clone(),
            None => self.render(dsos, frame, render),
        };
        lines.map(|at| self.line(at as usize))
    }

    fn render(
        &mut self,
        dsos: &Dsos,
        frame: Frame,
        render: impl Fn(&Named, usize) -> Vec<u8>,
    ) -> Range<u32> {
        let named = self.name(dsos, frame);
        let from = self.ends.len() as u32;
        for at in 0..named.resolved.functions.len().max(1) {
            self.text.extend_from_slice(&render(&named, at));
            self.ends.push(self.text.len());
        }
        let lines = from..self.ends.len() as u32;
        self.lines.insert(frame, lines.clone());
        lines
    }

    fn line(&self, at: usize) -> &[u8] {
        let end = |at: usize| self.ends.get(at).copied().unwrap_or_default();
        let start = at.checked_sub(1).map_or(0, end);
        self.text.get(start..end(at)).unwrap_or_default()
    }

    /// Whether the frame is in a function and a file that were asked for.
    pub fn is_chosen(&mut self, dsos: &Dsos, frame: Frame) -> bool {
        if self.choice.is_all() {
            return true;
        }
        if let Some(&chosen) = self.chosen.get(&frame) {
            return chosen;
        }
        let named = self.name(dsos, frame);
        let chosen = self.choice.takes(&named);
        self.chosen.insert(frame, chosen);
        chosen
    }

    fn name(&mut self, dsos: &Dsos, frame: Frame) -> Named {
        let frame = Frame { caller: frame.caller && !self.as_recorded, ..frame };
        let resolved = self.symbolizer.resolve(dsos, frame);
        let dso = match frame.place {
            Place::File { dso, .. } | Place::Memory { dso, .. } => dsos.get(dso),
            Place::Unresolved(_) | Place::Missing => None,
        };
        let kind = dso.map(|dso| dso.kind);
        let build_id = dso.and_then(|dso| dso.build_id);
        self.kernel |= matches!(kind, Some(DsoKind::Kernel | DsoKind::Module));
        let dso = self.dso_name(&resolved, frame.place, build_id);
        Named { resolved, dso, kind, build_id, place: frame.place }
    }

    fn dso_name(&self, resolved: &Resolved, place: Place, id: Option<BuildId>) -> Arc<str> {
        match (place, id) {
            (Place::Missing, _) => "[deferred, missing]".into(),
            (Place::Unresolved(status), _) if self.reasons => format!("[{status}]").into(),
            (Place::Unresolved(_), _) => "[unknown]".into(),
            (_, Some(id)) if resolved.file.is_empty() => {
                let id = id.to_string();
                format!("[{}]", id.get(..12).unwrap_or(&id)).into()
            }
            (_, None) if resolved.file.is_empty() => "[unknown]".into(),
            _ => resolved.file.clone(),
        }
    }

    /// Why kernel symbols are not shown, if any were wanted.
    pub fn kernel_problem(&self) -> Option<&str> {
        self.symbolizer.kernel_problem().filter(|_| self.kernel)
    }
}

impl Choice {
    fn is_all(&self) -> bool {
        self.dsos.is_empty() && self.symbols.is_empty()
    }

    fn takes(&self, named: &Named) -> bool {
        let base = named.dso.rsplit('/').next().unwrap_or(&named.dso);
        let dso = |wanted: &String| *wanted == *named.dso || wanted == base;
        let symbol = |wanted: &String| named.resolved.functions.iter().any(|f| *f.name == **wanted);
        (self.dsos.is_empty() || self.dsos.iter().any(dso))
            && (self.symbols.is_empty() || self.symbols.iter().any(symbol))
    }
}
