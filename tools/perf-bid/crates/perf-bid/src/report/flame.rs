// SPDX-License-Identifier: GPL-2.0
//! Calls as folded stacks and as a flame graph (inferno).
//!
//! A folded stack is `command;outermost;…;innermost weight`. Frames are marked as the scripts
//! that read folded stacks expect: `_[k]` kernel, `_[i]` inlined, `_[j]` made at run time.
//! Colours tell where code comes from.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::io::Write;

use anyhow::Context;
use anyhow::Result;
use inferno::flamegraph::Options;
use inferno::flamegraph::TextTruncateDirection;
use inferno::flamegraph::color::BackgroundColor;
use inferno::flamegraph::color::Color;
use inferno::flamegraph::color::PaletteMap;
use perf_bid_core::profile::Profile;

use super::calls::Calls;
use super::calls::NodeId;
use super::columns::printable;
use super::names::Names;
use super::names::Origin;
use super::names::SymId;

/// Boxes narrower than this are not drawn, in percent of the whole.
const NARROWEST: f64 = 0.01;

/// Stacks with their weights.
#[derive(Debug, Default)]
pub struct Folded {
    /// With their periods, sorted.
    pub stacks: BTreeMap<String, u64>,
    colours: PaletteMap,
    kinds: HashSet<Kind>,
}

/// The stacks of calls that were built by thread name, but for those too light to be seen.
pub fn fold(calls: &Calls, profile: &Profile, names: &Names) -> Folded {
    let mut folded = Folded::default();
    // The root has no name.
    folded.colours.insert("", Kind::Command.colour(""));
    let least = (calls.shown.period as f64 * NARROWEST / 100.0) as u64;
    let mut labels: BTreeMap<SymId, String> = BTreeMap::new();
    for root in calls.roots() {
        let comm = comm(calls, root, profile);
        folded.colours.insert(&comm, Kind::Command.colour(&comm));
        let mut todo = vec![(root, comm)];
        while let Some((id, stack)) = todo.pop() {
            let Some(node) = calls.node(id) else { continue };
            let mut own = node.total.period;
            for callee in calls.callees(id) {
                let Some(callee_node) = calls.node(callee) else { continue };
                // What is not drawn stays part of what it is in.
                if callee_node.total.period <= least {
                    continue;
                }
                own = own.saturating_sub(callee_node.total.period);
                let symbol = callee_node.symbol;
                let label = labels.entry(symbol).or_insert_with(|| folded.label(names, symbol));
                todo.push((callee, format!("{stack};{label}")));
            }
            if own > 0 {
                let sum = folded.stacks.entry(stack).or_default();
                *sum = sum.saturating_add(own);
            }
        }
    }
    folded
}

fn comm(calls: &Calls, root: NodeId, profile: &Profile) -> String {
    let task = calls.node(root).and_then(|node| calls.tasks.get(node.task.0 as usize));
    let comm = task.and_then(|task| profile.comms.get(task.comm?.0 as usize));
    clean(comm.map_or("?", |comm| comm))
}

/// Semicolons separate frames, and a line is a stack.
pub fn clean(name: &str) -> String {
    printable(name).replace(';', ":")
}

/// Where code comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Command,
    Program,
    Library,
    Inlined,
    Kernel,
    Jit,
    Unresolved,
}

impl Kind {
    fn of(names: &Names, symbol: SymId) -> Self {
        match names.origin(symbol) {
            Origin::Kernel => Self::Kernel,
            Origin::Jit => Self::Jit,
            Origin::Unresolved => Self::Unresolved,
            _ if names.get(symbol).is_some_and(|symbol| symbol.inlined) => Self::Inlined,
            Origin::Program => Self::Program,
            Origin::Library => Self::Library,
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Self::Kernel => "_[k]",
            Self::Inlined => "_[i]",
            Self::Jit => "_[j]",
            _ => "",
        }
    }

    /// A shade of the kind's colour that is the same for the same name.
    fn colour(self, name: &str) -> Color {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let shade = (hasher.finish() % 48) as u8;
        let (r, g, b) = match self {
            Self::Command => (205 + shade / 4, 205 + shade / 4, 225 + shade / 2),
            Self::Program => (207 + shade, 70 + shade, 60 + shade / 2),
            Self::Library => (225 + shade / 2, 195 + shade, 70 + shade),
            Self::Inlined => (200 + shade, 125 + shade, 175 + shade),
            Self::Kernel => (90 + shade, 150 + shade, 205 + shade),
            Self::Jit => (100 + shade, 190 + shade, 110 + shade),
            Self::Unresolved => (190 + shade / 2, 190 + shade / 2, 190 + shade / 2),
        };
        Color { r, g, b }
    }

    /// Of the kinds that have a colour of their own: what to call it.
    fn legend(self) -> Option<&'static str> {
        match self {
            Self::Command => None,
            Self::Program => Some("red: program"),
            Self::Library => Some("yellow: library"),
            Self::Inlined => Some("pink: inlined"),
            Self::Kernel => Some("blue: kernel"),
            Self::Jit => Some("green: made at run time"),
            Self::Unresolved => Some("grey: not resolved"),
        }
    }
}

/// What is written over and under the graph.
#[derive(Debug)]
pub struct Texts<'a> {
    /// First line.
    pub title: &'a str,
    /// Second line.
    pub subtitle: &'a str,
    /// What the widths count.
    pub unit: &'a str,
}

impl Folded {
    /// What a frame is called in a stack.
    pub fn label(&mut self, names: &Names, symbol: SymId) -> String {
        let kind = Kind::of(names, symbol);
        self.kinds.insert(kind);
        let name = names.get(symbol).filter(|_| kind == Kind::Inlined);
        let label = match name.and_then(|symbol| symbol.name.as_deref()) {
            Some(name) => clean(name),
            None => clean(&names.label(symbol).to_string()),
        };
        let label = label + kind.mark();
        self.colours.insert(&label, kind.colour(&label));
        label
    }

    fn legend(&self) -> String {
        let kinds = [
            Kind::Program,
            Kind::Library,
            Kind::Inlined,
            Kind::Kernel,
            Kind::Jit,
            Kind::Unresolved,
        ];
        let there = kinds.iter().filter(|kind| self.kinds.contains(kind));
        there.filter_map(|kind| kind.legend()).collect::<Vec<_>>().join(", ")
    }

    /// Draws the flame graph.
    pub fn draw(&mut self, out: impl Write, texts: &Texts<'_>) -> Result<()> {
        let mut options = options(texts);
        options.subtitle = Some(format!("{} ({})", texts.subtitle, self.legend()));
        options.palette_map = Some(&mut self.colours);
        let lines: Vec<_> =
            self.stacks.iter().map(|(stack, weight)| format!("{stack} {weight}")).collect();
        inferno::flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
            .context("cannot draw the flame graph")
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }
}

/// Draws how `after` differs from `before`: widths are those of `after`, red is more and blue
/// is less than before.
pub fn draw_diff(
    before: &Folded,
    after: &Folded,
    out: impl Write,
    texts: &Texts<'_>,
) -> Result<()> {
    let sum = |folded: &Folded| folded.stacks.values().fold(0u64, |a, &b| a.saturating_add(b));
    // Recordings of different length are made comparable.
    let scale = sum(after) as f64 / sum(before).max(1) as f64;
    let of = |folded: &Folded, stack: &str| folded.stacks.get(stack).copied().unwrap_or(0);
    let mut lines: Vec<_> = after
        .stacks
        .keys()
        .chain(before.stacks.keys().filter(|stack| !after.stacks.contains_key(*stack)))
        .map(|stack| {
            let old = (of(before, stack) as f64 * scale) as u64;
            format!("{stack} {old} {}", of(after, stack))
        })
        .collect();
    lines.sort_unstable();
    let mut options = options(texts);
    inferno::flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
        .context("cannot draw the flame graph")
}

fn options<'a>(texts: &Texts<'_>) -> Options<'a> {
    let mut options = Options::default();
    options.title = texts.title.to_owned();
    options.subtitle = Some(texts.subtitle.to_owned());
    options.count_name = texts.unit.to_owned();
    // None of the colours of frames.
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 250, g: 250, b: 252 }));
    options.text_truncate_direction = TextTruncateDirection::Right;
    // A fixed width has its labels in the file; else they appear only where scripts run.
    options.image_width = Some(1600);
    options.min_width = NARROWEST;
    options.no_sort = true;
    options
}
