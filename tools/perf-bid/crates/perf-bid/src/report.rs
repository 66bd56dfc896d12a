// SPDX-License-Identifier: GPL-2.0
//! `perf-bid report`: where the samples of a recording fell, by command, file and function.
//! Everything is derived from build IDs and file offsets; map records serve as hints to where
//! files are, nothing more.

mod flame;
mod json;
mod names;
mod profile;
mod table;

use std::fs::File;
use std::io;
use std::io::BufWriter;
use std::io::IsTerminal;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::sample;
use perf_bid_core::data::PerfData;
use perf_bid_core::store::Store;
use perf_bid_core::symbols::Symbols;

use self::names::Names;
use self::profile::Profile;
use crate::cli;

/// Files below this size are read before a progress bar could be seen, in bytes.
const PROGRESS_FROM: u64 = 32 << 20;

const STDOUT: &str = "cannot write to standard output";

/// Runs `perf-bid report`.
pub fn run(args: &cli::Report) -> Result<ExitCode> {
    let shown = args.input.display();
    let data = PerfData::open(&args.input).with_context(|| shown.to_string())?;
    if !data.events().iter().any(|event| event.attr.wants_build_ids()) {
        bail!(
            "{shown}: its samples carry no build IDs; it was not recorded by perf-bid (perf's \
             own recordings: use perf report)"
        );
    }
    let with_chains =
        data.events().iter().any(|event| event.attr.has_sample(sample::CALLCHAIN_BUILD_ID_OFFSET));
    if args.flamegraph.is_some() && !with_chains {
        bail!("{shown}: no callchains to draw; record with -g");
    }
    let profile = read(&data, args.flamegraph.is_some());
    let (mut symbols, kernel) = symbols(&data, &profile);
    let names = Names::find(&profile, &mut symbols, kernel);
    if let Some(path) = &args.flamegraph {
        draw(&data, &profile, &names, path)?;
    }
    if let Some(path) = &args.json {
        let value = json::value(&data, &profile, &names, &args.sort);
        let text = serde_json::to_string_pretty(&value)?;
        if path.as_os_str() == "-" {
            writeln!(io::stdout(), "{text}").context(STDOUT)?;
        } else {
            std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
        }
    }
    let json_on_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if args.totals {
        writeln!(io::stdout(), "{}", totals_line(&profile)).context(STDOUT)?;
    } else if !json_on_stdout {
        print(args, &data, &profile, &names, symbols.kernel_refusal()).context(STDOUT)?;
    }
    if let Some(damage) = &profile.damage {
        eprintln!("perf-bid: {shown}: {damage}; what came before it is shown");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn read(data: &PerfData, stacks: bool) -> Profile {
    if data.data_len() < PROGRESS_FROM || !io::stderr().is_terminal() {
        return profile::read(data, stacks, |_| {});
    }
    let bar = ProgressBar::new(data.data_len());
    if let Ok(style) = ProgressStyle::with_template("reading {bar:40} {bytes}/{total_bytes}") {
        bar.set_style(style);
    }
    let profile = profile::read(data, stacks, |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    profile
}

fn symbols(data: &PerfData, profile: &Profile) -> (Symbols, Option<BuildId>) {
    let mut store = Store::default();
    for (id, path) in &profile.hints {
        store.hint(*id, path);
    }
    let mut kernel = None;
    for row in &data.features().build_ids {
        match row.cpumode {
            misc::KERNEL => kernel = Some(row.build_id),
            _ if !row.path.is_empty() => store.hint(row.build_id, &row.path),
            _ => {}
        }
    }
    let boot = data.features().info.boot_id.as_deref();
    (Symbols::new(store, kernel, boot), kernel)
}

fn print(
    args: &cli::Report,
    data: &PerfData,
    profile: &Profile,
    names: &Names,
    kernel_refusal: Option<&str>,
) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let features = data.features();
    if !features.cmdline.is_empty() {
        writeln!(out, "# Recorded by: {}", one_line(&features.cmdline.join(" "), 200))?;
    }
    let lost = profile.totals.lost.max(features.info.lost_samples);
    writeln!(
        out,
        "# Kernel: {}   Samples: {}   Lost: {}",
        features.os_release.as_deref().unwrap_or("unknown"),
        table::grouped(profile.totals.samples),
        table::grouped(lost)
    )?;
    let limits = table::Limits { percent: args.percent_limit, rows: args.limit };
    for (desc, event) in data.events().iter().zip(&profile.events) {
        writeln!(out, "#")?;
        let rows = table::rows(event, profile, names, &args.sort);
        let name = if desc.name.is_empty() { "unnamed" } else { &desc.name };
        table::write(&mut out, name, event, &rows, &args.sort, limits)?;
    }
    writeln!(out, "#")?;
    table::footer(&mut out, profile, names)?;
    if let (true, Some(why)) = (profile.totals.kernel_frames > 0, kernel_refusal) {
        writeln!(out, "# No kernel symbols: {why}")?;
    }
    for error in data.feature_errors() {
        writeln!(out, "# Unreadable feature: {error}")?;
    }
    Ok(out.flush()?)
}

/// At most `max` characters, without line breaks and other control characters.
fn one_line(text: &str, max: usize) -> String {
    let mut line: String =
        text.chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

fn totals_line(profile: &Profile) -> String {
    let totals = &profile.totals;
    let chains = match totals.chains.deferred {
        0 => String::new(),
        deferred => {
            format!(", {} of {deferred} deferred callchains missing", totals.chains.missing)
        }
    };
    format!(
        "{} samples, {} frames, {:.2} % of file-backed user frames resolved by build ID, {} \
         synthesized map records{chains}",
        totals.samples,
        totals.frames,
        totals.resolved_percent(),
        totals.synthesized_maps
    )
}

fn draw(data: &PerfData, profile: &Profile, names: &Names, path: &std::path::Path) -> Result<()> {
    // Different events have different units: the heaviest in samples is drawn.
    let events = data.events().iter().zip(&profile.events);
    let (desc, event) = events
        .max_by_key(|(_, event)| event.weight.samples)
        .context("the file describes no event")?;
    let mut folded = flame::fold(event, profile, names);
    if folded.is_empty() {
        bail!("no samples to draw");
    }
    let what = data.features().cmdline.join(" ");
    let title = match what.split_once(" -- ") {
        Some((_, command)) => one_line(command, 100),
        None => "perf-bid".to_owned(),
    };
    let subtitle = format!(
        "{}, {} samples, {:.2} % of file-backed user frames resolved by build ID",
        desc.name,
        table::grouped(event.weight.samples),
        profile.totals.resolved_percent()
    );
    let unit = if desc.name.ends_with("clock") { "ns" } else { "events" };
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let texts = flame::Texts { title: &title, subtitle: &subtitle, unit };
    let mut out = BufWriter::new(file);
    folded.draw(&mut out, &texts).with_context(|| path.display().to_string())?;
    out.flush().with_context(|| path.display().to_string())
}
