// SPDX-License-Identifier: GPL-2.0
//! Callchains as folded stacks and as a flame graph (inferno).
//!
//! A folded stack is `command;outermost;…;innermost weight`. Kernel frames end in `_[k]`, as
//! the scripts that read folded stacks expect. Colours tell where code comes from: the
//! program, a shared library, the kernel, or nowhere known.

use std::collections::BTreeMap;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::io::Write;

use anyhow::Context;
use anyhow::Result;
use inferno::flamegraph::Options;
use inferno::flamegraph::TextTruncateDirection;
use inferno::flamegraph::color::Color;
use inferno::flamegraph::color::PaletteMap;

use super::names::Name;
use super::names::Names;
use super::profile::EventProfile;
use super::profile::Place;
use super::profile::Profile;

/// The stacks of an event.
#[derive(Debug, Default)]
pub struct Folded {
    /// With their periods, sorted.
    stacks: BTreeMap<String, u64>,
    colours: PaletteMap,
}

/// Names and adds up the stacks of an event.
pub fn fold(event: &EventProfile, profile: &Profile, names: &Names) -> Folded {
    let mut folded = Folded::default();
    // The root has no name.
    folded.colours.insert("", Kind::Command.colour(""));
    let mut labels: BTreeMap<Place, String> = BTreeMap::new();
    for ((comm, stack), weight) in &event.stacks {
        let comm = profile.comms.get(*comm as usize).map_or("?", String::as_str);
        let mut line = clean(comm);
        folded.colours.insert(&line, Kind::Command.colour(comm));
        for &place in stack.iter().rev() {
            let label = labels.entry(place).or_insert_with(|| {
                let name = names.get(place);
                let label = label(place, &name);
                folded.colours.insert(&label, Kind::of(place, &name).colour(&label));
                label
            });
            line.push(';');
            line.push_str(label);
        }
        let sum = folded.stacks.entry(line).or_default();
        *sum = sum.saturating_add(weight.period);
    }
    folded
}

fn label(place: Place, name: &Name) -> String {
    let label = clean(&name.label());
    if place.is_kernel() { format!("{label}_[k]") } else { label }
}

/// Semicolons separate frames, and a line is a stack.
fn clean(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}

/// Where code comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Command,
    Program,
    Library,
    Kernel,
    Unresolved,
}

impl Kind {
    fn of(place: Place, name: &Name) -> Self {
        let file = name.dso.rsplit('/').next().unwrap_or(&name.dso);
        match place {
            Place::Kernel { .. } => Self::Kernel,
            Place::File { .. } if file == "[vdso]" => Self::Library,
            Place::File { .. } if file.ends_with(".so") || file.contains(".so.") => Self::Library,
            Place::File { .. } => Self::Program,
            Place::Unresolved(_) | Place::Missing => Self::Unresolved,
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
            Self::Kernel => (90 + shade, 150 + shade, 205 + shade),
            Self::Unresolved => (190 + shade / 2, 190 + shade / 2, 190 + shade / 2),
        };
        Color { r, g, b }
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
    /// Draws the flame graph.
    pub fn draw(&mut self, out: impl Write, texts: &Texts<'_>) -> Result<()> {
        let mut options = Options::default();
        options.title = texts.title.to_owned();
        options.subtitle = Some(format!(
            "{} (red: program, yellow: library, blue: kernel, grey: not resolved)",
            texts.subtitle
        ));
        options.count_name = texts.unit.to_owned();
        options.palette_map = Some(&mut self.colours);
        options.text_truncate_direction = TextTruncateDirection::Right;
        // A fixed width has its labels in the file; else they appear only where scripts run.
        options.image_width = Some(1600);
        options.min_width = 0.05;
        options.no_sort = true;
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
