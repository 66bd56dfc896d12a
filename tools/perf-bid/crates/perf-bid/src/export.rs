// SPDX-License-Identifier: GPL-2.0
//! `perf-bid export`: a profile in the formats of other tools.

mod firefox;
mod folded;
mod pprof;

use std::io::BufWriter;
use std::io::Write;
use std::io::stdout;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::record_type;
use perf_bid_core::cursor::Malformed;
use perf_bid_core::data::PerfData;
use perf_bid_core::profile;
use perf_bid_core::profile::Profile;

use crate::cli;
use crate::cli::Format;
use crate::open;
use crate::report;
use crate::script;

/// A recording and what of it to export.
#[derive(Debug)]
pub struct Source<'a> {
    args: &'a cli::Export,
    data: PerfData,
    /// Indices of the events.
    events: Vec<usize>,
}

/// Runs `perf-bid export`.
pub fn run(args: &cli::Export) -> Result<ExitCode> {
    let Some(format) = args.format.or_else(|| guess(&args.output)) else {
        bail!("{}: the name does not say what to write; use --format", args.output.display());
    };
    let data = open::data(&args.input)?;
    let shown = args.input.display();
    if format == Format::Flamegraph {
        return flamegraph(args, data);
    }
    let events = chosen(args, &data).with_context(|| shown.to_string())?;
    let source = Source { args, data, events };
    let mut damage = None;
    write(&args.output, |out| {
        damage = match format {
            Format::Folded => folded::write(&source, out, true)?,
            Format::Speedscope => folded::write(&source, out, false)?,
            Format::Pprof => pprof::write(&source, out)?,
            Format::Firefox => firefox::write(&source, out)?,
            Format::Jsonl | Format::Flamegraph => {
                let script = cli::Script::as_json(&args.input, &args.naming);
                script::write(&script, &source.data, out)?
            }
        };
        Ok(())
    })?;
    if let Some(damage) = damage {
        eprintln!("perf-bid: {shown}: {damage}; what came before it is written");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn guess(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?;
    let ends = [
        (".svg", Format::Flamegraph),
        (".pb.gz", Format::Pprof),
        (".pprof", Format::Pprof),
        (".jsonl", Format::Jsonl),
        (".json", Format::Firefox),
        (".folded", Format::Folded),
        (".txt", Format::Folded),
    ];
    ends.iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| *format)
}

fn flamegraph(args: &cli::Export, data: PerfData) -> Result<ExitCode> {
    if args.event.is_some() || args.all {
        bail!("a flame graph shows the event with most samples; --event and --all do not apply");
    }
    if args.output.as_os_str() == "-" {
        bail!("a flame graph is written to a file; say -o FILE.svg");
    }
    report::flamegraph(data, args)
}

/// Writes a file, or to standard output.
fn write(path: &Path, write: impl FnOnce(&mut (dyn Write + Send)) -> Result<()>) -> Result<()> {
    if path.as_os_str() != "-" {
        return report::write_file(path, write);
    }
    let mut out = BufWriter::new(stdout());
    write(&mut out)?;
    out.flush().context("cannot write to standard output")
}

/// The events that were asked for, or else the one with most samples.
fn chosen(args: &cli::Export, data: &PerfData) -> Result<Vec<usize>> {
    let mut samples = vec![0u64; data.events().len()];
    for raw in data.records().map_while(Result::ok) {
        if raw.type_ == record_type::SAMPLE
            && let Some((event, _)) = data.event_of(&raw)
            && let Some(samples) = samples.get_mut(event)
        {
            *samples += 1;
        }
    }
    let all = samples.iter().zip(0usize..);
    if let Some(wanted) = &args.event {
        let named = data.events().iter().position(|event| event.name == *wanted);
        let names: Vec<_> = data.events().iter().map(|event| event.name.as_str()).collect();
        let named = named
            .with_context(|| format!("no event `{wanted}`; there are: {}", names.join(", ")))?;
        return Ok(vec![named]);
    }
    if args.all {
        return Ok(all.filter(|(samples, _)| **samples > 0).map(|(_, event)| event).collect());
    }
    let most = all.max_by_key(|(samples, _)| **samples);
    Ok(most.map(|(_, event)| event).into_iter().collect())
}

impl Source<'_> {
    /// The recording, added up.
    fn profile(&self, pid: bool, tid: bool) -> Profile {
        open::profile(&self.data, profile::Options { stacks: true, pid, tid })
    }

    /// What an event is called.
    fn event_name(&self, event: usize) -> &str {
        match self.data.events().get(event) {
            Some(event) if !event.name.is_empty() => &event.name,
            _ => "unnamed",
        }
    }

    /// Whether the periods of an event are nanoseconds.
    fn is_clock(&self, event: usize) -> bool {
        const SOFTWARE: u32 = 1;
        const CLOCKS: [u64; 2] = [0, 1];
        let event = self.data.events().get(event);
        event.is_some_and(|e| e.attr.type_ == SOFTWARE && CLOCKS.contains(&e.attr.config))
    }

    /// When it was recorded, more or less: perf.data has no wall-clock time, but the file was
    /// complete when the recording ended. `length` in nanoseconds.
    fn start(&self, length: u64) -> Option<SystemTime> {
        let end = self.args.input.metadata().ok().filter(|meta| meta.is_file())?.modified().ok()?;
        end.checked_sub(Duration::from_nanos(length))
    }
}

/// What a format's writer returns: where the recording stopped making sense, if it did.
type Written = Result<Option<Malformed>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_the_format() {
        let guessed = |name: &str| guess(Path::new(name));
        assert_eq!(guessed("a/b.svg"), Some(Format::Flamegraph));
        assert_eq!(guessed("x.pb.gz"), Some(Format::Pprof));
        assert_eq!(guessed("x.json"), Some(Format::Firefox));
        assert_eq!(guessed("x.jsonl"), Some(Format::Jsonl));
        assert_eq!(guessed("json"), None);
        assert_eq!(guessed("-"), None);
    }
}
