// SPDX-License-Identifier: GPL-2.0
//! The report as text: a header, a table sorted by overhead for each event, and a footer that
//! says how much of it is known.

use std::collections::HashMap;
use std::io;
use std::io::Write;

use super::names::Names;
use super::profile::EventProfile;
use super::profile::Profile;
use super::profile::Weight;
use super::profile::percent;
use crate::cli::SortKey;

/// One row: the cells of the chosen columns and what they stand for.
#[derive(Clone, Debug)]
pub struct Row {
    /// In the order of the columns.
    pub cells: Vec<String>,
    /// Sum.
    pub weight: Weight,
}

/// Groups an event's samples by the columns, heaviest first.
pub fn rows(
    event: &EventProfile,
    profile: &Profile,
    names: &Names,
    columns: &[SortKey],
) -> Vec<Row> {
    let mut groups: HashMap<Vec<String>, Weight> = HashMap::new();
    for (&(comm, place), weight) in &event.places {
        let name = names.get(place);
        let cell = |column: &SortKey| match column {
            SortKey::Comm => profile.comms.get(comm as usize).cloned().unwrap_or_default(),
            SortKey::Dso => name.dso.clone(),
            SortKey::Buildid => name.build_id.map_or_else(|| "-".to_owned(), |id| id.short()),
            SortKey::Symbol => {
                let mode = if place.is_kernel() { 'k' } else { '.' };
                format!("[{mode}] {}", name.symbol_or_offset())
            }
        };
        groups.entry(columns.iter().map(cell).collect()).or_default().add(*weight);
    }
    let mut rows: Vec<_> =
        groups.into_iter().map(|(cells, weight)| Row { cells, weight }).collect();
    rows.sort_by(|a, b| {
        let by_weight =
            (b.weight.period, b.weight.samples).cmp(&(a.weight.period, a.weight.samples));
        by_weight.then_with(|| a.cells.cmp(&b.cells))
    });
    rows
}

/// Which rows to show.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Smallest share, in percent.
    pub percent: f64,
    /// Most rows.
    pub rows: Option<usize>,
}

/// Writes the table of one event.
pub fn write(
    out: &mut impl Write,
    name: &str,
    event: &EventProfile,
    rows: &[Row],
    columns: &[SortKey],
    limits: Limits,
) -> io::Result<()> {
    writeln!(out, "# Event: {name}")?;
    writeln!(
        out,
        "# Samples: {}   Period: {}",
        grouped(event.weight.samples),
        grouped(event.weight.period)
    )?;
    writeln!(out, "#")?;
    let shown: Vec<_> = rows
        .iter()
        .filter(|row| share(row, event) >= limits.percent)
        .take(limits.rows.unwrap_or(usize::MAX))
        .collect();
    let titles: Vec<_> = columns.iter().map(|column| title(*column)).collect();
    let widths: Vec<_> = titles
        .iter()
        .enumerate()
        .map(|(at, title)| {
            let cells = shown.iter().filter_map(|row| row.cells.get(at));
            cells.map(|cell| cell.chars().count()).chain([title.len()]).max().unwrap_or(0)
        })
        .collect();
    writeln!(out, "# Overhead   Samples  {}", line(&titles, &widths))?;
    let dots: Vec<_> = widths.iter().map(|&width| ".".repeat(width)).collect();
    writeln!(out, "# ........  ........  {}", line(&dots, &widths))?;
    for row in &shown {
        let cells = line(&row.cells, &widths);
        writeln!(out, "  {:7.2}%  {:>8}  {cells}", share(row, event), row.weight.samples)?;
    }
    let hidden = rows.len() - shown.len();
    if hidden > 0 {
        writeln!(out, "# ({hidden} more rows)")?;
    }
    Ok(())
}

fn share(row: &Row, event: &EventProfile) -> f64 {
    percent(row.weight.period, event.weight.period)
}

fn title(column: SortKey) -> &'static str {
    match column {
        SortKey::Comm => "Command",
        SortKey::Dso => "DSO",
        SortKey::Symbol => "Symbol",
        SortKey::Buildid => "Build ID",
    }
}

fn line(cells: &[impl AsRef<str>], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{:width$}", cell.as_ref()));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// A number with commas between its thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Writes what is known about the whole: how many frames were resolved, and why others not.
pub fn footer(out: &mut impl Write, profile: &Profile, names: &Names) -> io::Result<()> {
    let totals = &profile.totals;
    writeln!(
        out,
        "# {} frames: {} in user mode, {} in the kernel",
        grouped(totals.frames),
        grouped(totals.frames - totals.kernel_frames),
        grouped(totals.kernel_frames)
    )?;
    writeln!(
        out,
        "# File-backed user frames resolved by build ID: {} of {} ({:.2} %), {} build IDs",
        grouped(totals.resolved),
        grouped(totals.file_backed()),
        totals.resolved_percent(),
        totals.build_ids.len()
    )?;
    if !totals.unresolved.is_empty() {
        let reasons: Vec<_> = totals
            .unresolved
            .iter()
            .map(|(status, count)| format!("{} [{status}]", grouped(*count)))
            .collect();
        writeln!(out, "# Other user frames: {}", reasons.join(", "))?;
    }
    if totals.chains.deferred > 0 {
        writeln!(
            out,
            "# Deferred callchains: {}, of which {} missing",
            grouped(totals.chains.deferred),
            grouped(totals.chains.missing)
        )?;
    }
    writeln!(
        out,
        "# Map records: {} synthesized, {} of new mappings",
        totals.synthesized_maps, totals.kernel_maps
    )?;
    for (id, why) in names.without_file.iter().take(8) {
        writeln!(out, "# No symbols for {}: {why}", id.short())?;
    }
    if names.without_file.len() > 8 {
        writeln!(out, "# (and for {} more)", names.without_file.len() - 8)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(super::grouped(number), text);
        }
    }
}
