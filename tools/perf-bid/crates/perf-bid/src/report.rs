// SPDX-License-Identifier: GPL-2.0
//! `perf-bid report`: where the samples of a recording fell, and through whom they got there.
//!
//! A recording is added up ([`crate::open::profile`]), its frames are named once each
//! ([`names`]), its callchains become trees of functions ([`calls`]), and those are grouped
//! into rows ([`rows`]) with trees of their own ([`tree`]). Everything shown comes from there:
//! tables, the terminal view, JSON, flame graphs and comparisons.

pub mod calls;
mod columns;
mod diff;
#[cfg(test)]
mod fixture;
pub mod flame;
mod graph;
pub mod header;
mod json;
pub mod names;
mod rows;
mod table;
mod tree;
mod tui;
mod view;

use std::fs::Permissions;
use std::io;
use std::io::BufWriter;
use std::io::IsTerminal;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use perf_bid_core::data::PerfData;
use perf_bid_core::profile;
use perf_bid_core::profile::EventProfile;
use perf_bid_core::profile::Profile;

use self::calls::Calls;
use self::calls::TaskDetail;
use self::flame::Folded;
use self::names::Detail;
use self::names::Names;
use self::table::Layout;
use self::table::grouped;
use self::view::Settings;
use self::view::View;
use crate::cli;
use crate::cli::SortKey;
use crate::open;

const STDOUT: &str = "cannot write to standard output";

/// Runs `perf-bid report`.
pub fn run(args: &cli::Report) -> Result<ExitCode> {
    if let [old, new] = args.diff.as_slice() {
        return run_diff(args, old, new);
    }
    let data = open::data(&args.input)?;
    if args.header_only {
        header::features(&mut io::stdout(), &data).context(STDOUT)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.flamegraph.is_some() && !header::has_callchains(&data) {
        bail!("{}: no callchains to draw; record with -g", args.input.display());
    }
    let recording = Recording::read(args, data)?;
    if let Some(path) = &args.flamegraph {
        let (mut folded, texts) = recording.fold(args)?;
        write_file(path, |out| folded.draw(out, &texts.borrow()))?;
    }
    if let Some(path) = &args.json {
        let value = recording.json(args);
        write_json(path, &value)?;
    }
    let json_on_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if args.totals {
        let line =
            header::totals_line(&recording.profile.totals, header::has_build_ids(&recording.data));
        writeln!(io::stdout(), "{line}").context(STDOUT)?;
    } else if wants_terminal(args) {
        recording.browse(args)?;
    } else if !json_on_stdout {
        recording.print(args).context(STDOUT)?;
    }
    Ok(recording.outcome(&args.input))
}

/// Draws the flame graph of a recording, for `perf-bid export`.
pub fn flamegraph(data: PerfData, from: &cli::Export) -> Result<ExitCode> {
    let args = cli::Report {
        input: from.input.clone(),
        naming: from.naming.clone(),
        flamegraph: Some(from.output.clone()),
        ..cli::Report::default()
    };
    if !header::has_callchains(&data) {
        bail!("{}: no callchains to draw; record with -g", args.input.display());
    }
    let recording = Recording::read(&args, data)?;
    let (mut folded, texts) = recording.fold(&args)?;
    write_file(&from.output, |out| folded.draw(out, &texts.borrow()))?;
    Ok(recording.outcome(&args.input))
}

fn run_diff(args: &cli::Report, old: &Path, new: &Path) -> Result<ExitCode> {
    let mut args =
        cli::Report { no_children: true, call_graph: vec![cli::GraphWord::None], ..args.clone() };
    if args.sort.is_empty() && args.fields.is_empty() {
        // A new build has another build ID, and no row of it would find its match.
        args.sort = vec![SortKey::Comm, SortKey::Dso, SortKey::Symbol];
    }
    let args = &args;
    let [before, after] =
        [Recording::read(args, open::data(old)?)?, Recording::read(args, open::data(new)?)?];
    let pairs: Vec<_> = after
        .profile
        .events
        .iter()
        .filter_map(|event| Some((before.event_like(event)?, event)))
        .map(|(old, new)| (before.view(args, old, false), after.view(args, new, false)))
        .collect();
    if pairs.is_empty() {
        bail!("{} and {} have no event in common", old.display(), new.display());
    }
    if let Some(path) = &args.flamegraph {
        let ((less, _), (more, texts)) = (before.fold(args)?, after.fold(args)?);
        let texts = OwnedTexts {
            title: format!("{}: changes since {}", new.display(), old.display()),
            subtitle: "widths: the new recording; red: more than before, blue: less".to_owned(),
            unit: texts.unit,
        };
        write_file(path, |out| flame::draw_diff(&less, &more, out, &texts.borrow()))?;
    }
    match &args.json {
        Some(path) => {
            let events: Vec<_> = pairs.iter().map(|(old, new)| diff::value(old, new)).collect();
            write_json(path, &serde_json::json!({ "events": events }))?;
        }
        None => {
            let layout = layout(args);
            let mut out = BufWriter::new(io::stdout().lock());
            let mut write = || -> io::Result<()> {
                writeln!(out, "# Baseline: {}", old.display())?;
                writeln!(out, "# New: {}\n#", new.display())?;
                for (old, new) in &pairs {
                    diff::write(&mut out, old, new, &layout)?;
                }
                out.flush()
            };
            write().context(STDOUT)?;
        }
    }
    let [first, second] = [before.outcome(old), after.outcome(new)];
    Ok(if first == ExitCode::SUCCESS { second } else { first })
}

/// A recording that has been read and named.
struct Recording {
    data: PerfData,
    profile: Profile,
    names: Names,
    kernel_refusal: Option<String>,
}

impl Recording {
    fn read(args: &cli::Report, data: PerfData) -> Result<Self> {
        let settings =
            Settings::new(args, header::has_callchains(&data), header::has_build_ids(&data));
        let keys = settings.keys();
        let options = profile::Options {
            stacks: settings.children || settings.graph.is_some() || args.flamegraph.is_some(),
            pid: keys.contains(&SortKey::Pid) || !args.filter.pid.is_empty(),
            tid: keys.contains(&SortKey::Tid) || !args.filter.tid.is_empty(),
        };
        let profile = open::profile(&data, options);
        let lines = keys.contains(&SortKey::Srcline);
        let mut symbolizer = open::symbolizer(&data, &profile.hints, &args.naming, lines)?;
        let detail = Detail { lines, inlined: args.naming.wants_inlined() };
        let names = Names::find(&profile, &mut symbolizer, detail);
        let kernel_refusal = symbolizer.kernel_problem().map(str::to_owned);
        Ok(Self { data, profile, names, kernel_refusal })
    }

    fn settings(&self, args: &cli::Report) -> Settings {
        let data = &self.data;
        Settings::new(args, header::has_callchains(data), header::has_build_ids(data))
    }

    fn view<'a>(&'a self, args: &cli::Report, event: &'a EventProfile, long: bool) -> View<'a> {
        let mut settings = self.settings(args);
        settings.long |= long;
        View::new(event, &self.profile, &self.names, &settings, &args.filter)
    }

    /// Events that have samples.
    fn events(&self) -> impl Iterator<Item = &EventProfile> {
        self.profile.events.iter().filter(|event| event.weight.samples > 0)
    }

    /// The event of the same name; names may be missing.
    fn event_like(&self, other: &EventProfile) -> Option<&EventProfile> {
        self.events().find(|event| event.name == other.name)
    }

    fn json(&self, args: &cli::Report) -> serde_json::Value {
        let events = self.profile.events.iter();
        let views: Vec<_> = events.map(|event| self.view(args, event, true)).collect();
        json::value(&self.data, &self.profile, &self.names, &views)
    }

    /// The stacks of the event with most samples: different events have different units.
    fn fold(&self, args: &cli::Report) -> Result<(Folded, OwnedTexts)> {
        let event = self.profile.events.iter().max_by_key(|event| event.weight.samples);
        let event = event.context("the file describes no event")?;
        let by_comm = TaskDetail { comm: true, ..TaskDetail::default() };
        let calls = Calls::build(event, &self.profile, &self.names, by_comm, &args.filter);
        let folded = flame::fold(&calls, &self.profile, &self.names);
        if folded.is_empty() {
            bail!("no samples to draw");
        }
        let what = self.data.features().cmdline.join(" ");
        let title = match what.split_once(" -- ") {
            Some((_, command)) => header::one_line(command, 100),
            // perf does not always say.
            None => match args.input.file_name() {
                Some(name) if name != "-" => header::one_line(&name.to_string_lossy(), 100),
                _ => "perf-bid".to_owned(),
            },
        };
        let mut subtitle = format!("{}, {} samples", event.name, grouped(calls.shown.samples));
        if header::has_build_ids(&self.data) {
            let percent = self.profile.totals.resolved_percent();
            subtitle +=
                &format!(", {percent:.2} % of file-backed user frames resolved by build ID");
        }
        let unit = if event.name.contains("clock") { "ns" } else { "events" };
        Ok((folded, OwnedTexts { title, subtitle, unit }))
    }

    fn print(&self, args: &cli::Report) -> io::Result<()> {
        let mut out = BufWriter::new(io::stdout().lock());
        let data = &self.data;
        if args.header {
            header::features(&mut out, data)?;
        }
        header::top(&mut out, data, &self.profile)?;
        let layout = layout(args);
        for event in self.events() {
            let view = self.view(args, event, false);
            table::write(&mut out, &view, &layout)?;
            writeln!(out, "#")?;
        }
        if self.events().next().is_none() {
            writeln!(out, "# No samples\n#")?;
        }
        self.bottom(&mut out)?;
        out.flush()
    }

    fn browse(&self, args: &cli::Report) -> Result<()> {
        let mut notes = Vec::new();
        header::top(&mut notes, &self.data, &self.profile)?;
        self.bottom(&mut notes)?;
        let notes = String::from_utf8_lossy(&notes);
        let notes = notes.lines().map(|line| line.trim_start_matches(['#', ' ']));
        let source = tui::Source {
            profile: &self.profile,
            names: &self.names,
            events: self.events().collect(),
            settings: self.settings(args),
            filter: &args.filter,
            notes: notes.filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        };
        tui::run(source)
    }

    fn bottom(&self, out: &mut impl Write) -> io::Result<()> {
        let bottom = header::Bottom {
            profile: &self.profile,
            names: &self.names,
            build_ids: header::has_build_ids(&self.data),
            kernel_refusal: self.kernel_refusal.as_deref(),
        };
        header::bottom(out, &self.data, &bottom)
    }

    /// Says what was wrong with the file, if anything was.
    fn outcome(&self, path: &Path) -> ExitCode {
        let Some(damage) = &self.profile.damage else {
            return ExitCode::SUCCESS;
        };
        eprintln!("perf-bid: {}: {damage}; what came before it is shown", path.display());
        ExitCode::FAILURE
    }
}

struct OwnedTexts {
    title: String,
    subtitle: String,
    unit: &'static str,
}

impl OwnedTexts {
    fn borrow(&self) -> flame::Texts<'_> {
        flame::Texts { title: &self.title, subtitle: &self.subtitle, unit: self.unit }
    }
}

/// Whether to browse: if asked to, or if there is a terminal and nothing else to do.
fn wants_terminal(args: &cli::Report) -> bool {
    let something_else = args.stdio
        || args.header
        || args.field_separator.is_some()
        || args.json.is_some()
        || args.flamegraph.is_some();
    args.tui || (!something_else && io::stdout().is_terminal() && io::stdin().is_terminal())
}

fn layout(args: &cli::Report) -> Layout {
    let terminal = io::stdout().is_terminal();
    let width = ratatui::crossterm::terminal::size().map_or(0, |(columns, _)| columns.into());
    let choice = anstream::AutoStream::choice(&io::stdout());
    Layout {
        separator: args.field_separator.clone(),
        width: if terminal { width } else { 0 },
        colours: choice != anstream::ColorChoice::Never,
    }
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    if path.as_os_str() == "-" {
        return io::stdout().write_all(text.as_bytes()).context(STDOUT);
    }
    write_file(path, |out| Ok(out.write_all(text.as_bytes())?))
}

/// Writes a file beside `path` and renames it; what is no regular file is written in place.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<()>,
) -> Result<()> {
    let shown = || path.display().to_string();
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        let file = std::fs::File::options().write(true).open(path).with_context(shown)?;
        let mut out = BufWriter::new(file);
        write(&mut out).with_context(shown)?;
        return out.flush().with_context(shown);
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Less what the umask takes away.
    let mode = Permissions::from_mode(0o666);
    let mut builder = tempfile::Builder::new();
    let file = builder.prefix(".perf-bid-").permissions(mode).tempfile_in(dir);
    let mut file = file.with_context(shown)?;
    let mut out = BufWriter::new(file.as_file_mut());
    write(&mut out).with_context(shown)?;
    out.flush().with_context(shown)?;
    drop(out);
    file.persist(path).with_context(shown)?;
    Ok(())
}
