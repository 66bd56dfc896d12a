// SPDX-License-Identifier: GPL-2.0
//! `perf-bid buildids`: the build IDs of a recording, how often they were hit, and where
//! their files are on this machine.

use std::collections::BTreeMap;
use std::io;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use perf_bid_core::abi::BuildId;
use perf_bid_core::place::DsoId;
use perf_bid_core::place::Place;
use perf_bid_core::profile;
use perf_bid_core::profile::Profile;
use perf_bid_core::profile::StackId;
use perf_bid_core::symbols::Symbolizer;
use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;
use serde_json::Value;
use serde_json::json;

use crate::cli;
use crate::open;

/// A file, or the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// As recorded, or as found; empty if nobody knows.
    name: String,
    /// Samples with a frame in it.
    samples: u64,
    /// Frames in it.
    frames: u64,
    /// Where it is.
    file: Option<String>,
    /// Where its symbols are, if elsewhere.
    debug: Option<String>,
    /// Why there is no file or no symbol.
    problem: Option<String>,
}

/// Runs `perf-bid buildids`.
pub fn run(args: &cli::Buildids) -> Result<ExitCode> {
    let data = open::data(&args.input)?;
    let options = profile::Options { stacks: true, ..profile::Options::default() };
    let profile = open::profile(&data, options);
    let mut symbolizer = open::symbolizer(&data, &profile.hints, &args.naming, false)?;
    let (rows, without) = rows(&profile, &mut symbolizer, args.all);
    let mut out = io::stdout().lock();
    let written = if args.json { write_json(&mut out, &rows) } else { write(&mut out, &rows) };
    written.context("cannot write to standard output")?;
    for complaint in symbolizer.complaints() {
        eprintln!("perf-bid: {complaint}");
    }
    if without > 0 {
        eprintln!(
            "perf-bid: {without} files were hit of which the recording has no build ID \
             (perf-bid inject --sample-buildids reads them from the files)"
        );
    }
    if let Some(damage) = &profile.damage {
        eprintln!("perf-bid: {}: {damage}; what came before it counts", args.input.display());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The files by build ID, most samples first, and the number of files that were hit and have
/// none.
fn rows(profile: &Profile, symbolizer: &mut Symbolizer, all: bool) -> (Vec<(BuildId, Row)>, usize) {
    let hits = hits(profile);
    // Symbols are looked for when the first frame is resolved.
    let mut first = FxHashMap::default();
    for &frame in profile.stacks.frames() {
        if let Place::File { dso, .. } | Place::Memory { dso, .. } = frame.place {
            first.entry(dso).or_insert(frame);
        }
    }
    for frame in first.into_values() {
        symbolizer.resolve(&profile.dsos, frame);
    }
    let mut rows: BTreeMap<BuildId, Row> = BTreeMap::new();
    let mut without = 0;
    for (id, dso) in profile.dsos.iter() {
        let hits = hits.get(&id).copied().unwrap_or_default();
        let Some(build_id) = dso.build_id else {
            without += usize::from(hits.frames > 0);
            continue;
        };
        if hits.frames == 0 && !all {
            continue;
        }
        let row = rows.entry(build_id).or_default();
        row.samples += hits.samples;
        row.frames += hits.frames;
        if row.name.is_empty() {
            row.name = dso.path.to_string();
        }
        if let Some(origin) = symbolizer.problems().find(|origin| origin.dso == Some(id)) {
            let text = |path: &Path| path.display().to_string();
            row.file = origin.file.as_deref().map(text);
            row.debug = origin.debug.as_deref().map(text);
            row.problem = origin.problem.clone();
        }
    }
    let named = profile.hints.iter().filter(|(id, _)| all || rows.contains_key(id));
    for (id, path) in named.cloned().collect::<Vec<_>>() {
        let row = rows.entry(id).or_default();
        if row.name.is_empty() {
            row.name = path.to_string();
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(id, row)| (std::cmp::Reverse((row.samples, row.frames)), *id));
    (rows, without)
}

#[derive(Clone, Copy, Default)]
struct Hits {
    samples: u64,
    frames: u64,
}

fn hits(profile: &Profile) -> FxHashMap<DsoId, Hits> {
    let mut samples: FxHashMap<StackId, u64> = FxHashMap::default();
    for (key, weight) in profile.events.iter().flat_map(|event| &event.sums) {
        *samples.entry(key.stack).or_default() += weight.samples;
    }
    let mut hits: FxHashMap<DsoId, Hits> = FxHashMap::default();
    let mut seen = FxHashSet::default();
    for (stack, samples) in samples {
        seen.clear();
        for frame in profile.stacks.walk(stack).filter_map(|id| profile.stacks.get(id)) {
            if let Place::File { dso, .. } | Place::Memory { dso, .. } = frame.place {
                let hits = hits.entry(dso).or_default();
                hits.frames += samples;
                hits.samples += if seen.insert(dso) { samples } else { 0 };
            }
        }
    }
    hits
}

fn write(out: &mut impl Write, rows: &[(BuildId, Row)]) -> io::Result<()> {
    let width = rows.iter().map(|(id, _)| id.to_string().len()).max().unwrap_or(0).max(8);
    writeln!(out, "{:width$} {:>9} {:>9}  file", "build ID", "samples", "frames")?;
    for (id, row) in rows {
        let id = id.to_string();
        let name = if row.name.is_empty() { "[no path recorded]" } else { &row.name };
        writeln!(out, "{id:width$} {:>9} {:>9}  {name}", row.samples, row.frames)?;
        let indent = width + 22;
        if let Some(file) = row.file.as_ref().filter(|file| **file != row.name) {
            writeln!(out, "{:indent$}found: {file}", "")?;
        }
        if let Some(debug) = &row.debug {
            writeln!(out, "{:indent$}symbols: {debug}", "")?;
        }
        if let Some(problem) = &row.problem {
            writeln!(out, "{:indent$}problem: {problem}", "")?;
        }
    }
    out.flush()
}

fn write_json(out: &mut impl Write, rows: &[(BuildId, Row)]) -> io::Result<()> {
    let rows: Vec<Value> = rows
        .iter()
        .map(|(id, row)| {
            json!({
                "build_id": id.to_string(),
                "samples": row.samples,
                "frames": row.frames,
                "path": Some(&row.name).filter(|name| !name.is_empty()),
                "file": row.file,
                "debug_file": row.debug,
                "problem": row.problem,
            })
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &rows)?;
    writeln!(out)?;
    out.flush()
}
