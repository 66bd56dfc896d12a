// SPDX-License-Identifier: GPL-2.0
//! `perf-bid inject`: ordinary recordings become build-ID profiles, and build-ID profiles
//! ordinary recordings. Records are read in time order and written as they come; what is held
//! in memory is the state of the recorded machine, not its samples.

mod addresses;
mod chains;
mod layout;
mod places;
mod resolver;
mod sink;

use std::io;
use std::io::IsTerminal;
use std::ops::Deref;
use std::process::ExitCode;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::record_type;
use perf_bid_core::cursor::Malformed;
use perf_bid_core::data::PerfData;

use self::sink::Sink;
use crate::cli;

/// Files below this size are read before a progress bar could be seen, in bytes.
const PROGRESS_FROM: u64 = 32 << 20;

/// `pid` of the kernel's own map records.
const KERNEL_PID: u32 = u32::MAX;

/// HEADER_ATTR, HEADER_EVENT_TYPE, HEADER_TRACING_DATA, HEADER_BUILD_ID and HEADER_FEATURE
/// describe a file that was written to a pipe; the new one has a header for that.
const HEADER_RECORDS: [u32; 5] =
    [64, 65, record_type::HEADER_TRACING_DATA, record_type::HEADER_BUILD_ID, 80];

/// What cannot be converted.
const TRACE: &str = "it holds a hardware trace; make samples of it first: perf inject --itrace";

/// Name of a sample field.
const STACK_USER: &str = "STACK_USER";

/// `HEADER_AUXTRACE`
const AUXTRACE: u32 = 18;

/// Runs `perf-bid inject`.
pub fn run(args: &cli::Inject) -> Result<ExitCode> {
    let shown = args.input.display();
    if args.output.as_os_str() == "-" {
        bail!("-o -: standard output is not supported, name a file");
    }
    let data = PerfData::open(&args.input).with_context(|| shown.to_string())?;
    let recorded = args.input.metadata().and_then(|meta| meta.modified()).ok();
    let written = convert(args, &data, recorded)?;
    for note in data.notes() {
        eprintln!("perf-bid: {shown}: {note}");
    }
    for line in data.unreadable_features() {
        eprintln!("perf-bid: {shown}: {line}");
    }
    if !args.quiet {
        written.summary.print(args, written.len);
    }
    if let Some(damage) = &written.damage {
        eprintln!("perf-bid: {shown}: {damage}; {} has what came before it", args.output.display());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Converts `data`, which was complete at `recorded`, and gives the result its name.
pub fn convert<B: Deref<Target = [u8]>>(
    args: &cli::Inject,
    data: &PerfData<B>,
    recorded: Option<SystemTime>,
) -> Result<Written> {
    if data.feature_sections().any(|(bit, _)| bit == AUXTRACE) {
        bail!("{}: {TRACE}", args.input.display());
    }
    let progress = Progress::new(data.data_len());
    let written = if args.sample_buildids {
        places::convert(args, data, recorded, &progress)?
    } else {
        addresses::convert(args, data, &progress)?
    };
    progress.finish();
    Ok(written)
}

/// A file that is complete, as far as its input was.
pub struct Written {
    summary: Summary,
    /// In bytes.
    len: u64,
    damage: Option<Malformed>,
}

/// A count for each status byte.
#[derive(Debug)]
struct ByStatus([u64; 256]);

impl Default for ByStatus {
    fn default() -> Self {
        Self([0; 256])
    }
}

/// What was converted.
#[derive(Debug, Default)]
struct Summary {
    samples: u64,
    /// User frames, in callchains, deferred ones and instruction pointers, by what they became.
    user: ByStatus,
    /// Frames that stay as they are: the kernel's.
    kernel: u64,
    /// Outermost frames that did not fit into their record.
    clamped: u64,
    /// Samples that did not fit into a record at all.
    too_long: u64,
    /// Samples whose deferred callchain is not in the file.
    missing: u64,
    /// Map records made up.
    maps: u64,
    /// Names of sample fields that were left out.
    left_out: Vec<&'static str>,
}

impl Summary {
    fn count(&mut self, status: Status) {
        if let Some(count) = self.user.0.get_mut(usize::from(status.to_byte())) {
            *count += 1;
        }
    }

    fn print(&self, args: &cli::Inject, len: u64) {
        let total: u64 = self.user.0.iter().sum();
        let resolved = self.user.0.first().copied().unwrap_or(0);
        let percent = perf_bid_core::profile::percent(resolved, total);
        let by_status = (0..=u8::MAX).map(Status::from_byte).zip(self.user.0);
        let rest: String = by_status
            .filter(|(status, count)| *status != Status::Resolved && *count > 0)
            .map(|(status, count)| format!(", {count} {status}"))
            .collect();
        eprintln!(
            "{}: {:.1} MB, {} samples, {total} user frames, {percent:.2} % of them by build ID{rest}, \
             {} kernel frames",
            args.output.display(),
            len as f64 / 1e6,
            self.samples,
            self.kernel,
        );
        let notes = [
            (self.maps, "map records made up"),
            (self.clamped, "outermost frames left out, as a record holds no more"),
            (self.too_long, "samples left out, as a record cannot hold them"),
            (self.missing, "samples without their deferred callchain, which is not in the file"),
        ];
        for (count, what) in notes.iter().filter(|(count, _)| *count > 0) {
            eprintln!("{count} {what}");
        }
        if !self.left_out.is_empty() {
            let fields = self.left_out.join(", ");
            eprintln!("left out of the samples: {fields} (--keep-addresses keeps them)");
        }
        if self.left_out.contains(&STACK_USER) {
            eprintln!(
                "user callchains that are still to be made from copied stacks (--call-graph \
                 dwarf) are gone with them"
            );
        }
    }
}

/// A bar, on a terminal.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(len: u64) -> Self {
        if len < PROGRESS_FROM || !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new(len);
        let style = "converting {bar:40} {bytes}/{total_bytes}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(Some(bar))
    }

    fn set(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(bytes);
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
