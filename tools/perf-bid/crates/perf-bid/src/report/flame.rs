// SPDX-License-Identifier: GPL-2.0
//! Callchains as folded stacks and as a flame graph (inferno).
//!
//! A folded stack is `command;outermost;…;innermost weight`. Kernel frames end in `_[k]`,
//! which gives them a colour of their own.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context;
use anyhow::Result;
use inferno::flamegraph::Options;
use inferno::flamegraph::color::MultiPalette;
use inferno::flamegraph::color::Palette;

use super::names::Names;
use super::profile::EventProfile;
use super::profile::Place;
use super::profile::Profile;

/// The stacks of an event with their periods, sorted.
pub fn folded(event: &EventProfile, profile: &Profile, names: &Names) -> BTreeMap<String, u64> {
    let mut labels: BTreeMap<Place, String> = BTreeMap::new();
    let mut folded: BTreeMap<String, u64> = BTreeMap::new();
    for ((comm, stack), weight) in &event.stacks {
        let comm = profile
            .comms
            .get(*comm as usize)
            .map_or("?", String::as_str);
        let mut line = clean(comm);
        for &place in stack.iter().rev() {
            line.push(';');
            line.push_str(labels.entry(place).or_insert_with(|| label(place, names)));
        }
        let sum = folded.entry(line).or_default();
        *sum = sum.saturating_add(weight.period);
    }
    folded
}

fn label(place: Place, names: &Names) -> String {
    let label = clean(&names.get(place).label());
    if place.is_kernel() {
        format!("{label}_[k]")
    } else {
        label
    }
}

/// Semicolons separate frames, and a line is a stack.
fn clean(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}

/// Draws the flame graph.
pub fn draw(
    out: impl Write,
    folded: &BTreeMap<String, u64>,
    title: &str,
    subtitle: &str,
    unit: &str,
) -> Result<()> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some(subtitle.to_owned());
    options.count_name = unit.to_owned();
    options.colors = Palette::Multi(MultiPalette::Java);
    options.hash = true;
    options.min_width = 0.05;
    options.no_sort = true;
    let lines: Vec<_> = folded
        .iter()
        .map(|(stack, weight)| format!("{stack} {weight}"))
        .collect();
    inferno::flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
        .context("cannot draw the flame graph")
}
