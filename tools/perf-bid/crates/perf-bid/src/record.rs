// SPDX-License-Identifier: GPL-2.0
//! `perf-bid record`: opens events with the build-ID bits, moves what the kernel writes from
//! the ring buffers to a perf.data file and, at the end, adds the table of the build IDs that
//! were hit.
//!
//! Where the kernel can, user addresses are resolved on the way back to user mode, and come in
//! records of their own.
//!
//! No map record is made up by this program unless asked for. The kernel's own MMAP2 records
//! of *new* mappings are kept, as hints to where files are.

mod counter;
mod machine;
mod open;
pub mod output;
mod recording;
mod scan;
mod signals;
mod sink;
mod synth;
mod target;
pub mod units;

use std::fmt;
use std::io::Write;
use std::io::stderr;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::ExitCode;
use std::process::ExitStatus;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use self::counter::Counter;
use self::open::Opened;
use self::recording::Recording;
use self::signals::Signals;
use self::target::Target;
use crate::cli;
use crate::cli::SwitchOutput;

/// How long records may wait in a buffer that does not fill.
const PERIOD: Duration = Duration::from_millis(200);

/// Why a recording ended.
enum End {
    /// The command has.
    Command(ExitStatus),
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// A limit of time or size was reached, or what was watched has ended.
    Done,
}

/// Runs `perf-bid record`.
pub fn run(args: &cli::Record) -> Result<ExitCode> {
    if args.switch_output.is_some() && !sink::can_have_others(&args.output) {
        bail!(
            "--switch-output: a pipe or a device is no file that others follow; name one with -o"
        );
    }
    let signals = Signals::new().context("cannot take signals over")?;
    let mut target = Target::resolve(args)?;
    let opened = open::open(args, &target)?;
    if args.verbose {
        tell(&opened, &target);
    }
    let mut recording = Recording::new(args, opened, &target)?;
    let mut child = None;
    let result = begin(args, &mut target, &mut recording, &mut child).and_then(|()| {
        let end = follow(args, &target, &mut recording, child.as_mut(), signals)?;
        recording.end_file()?;
        Ok(end)
    });
    match result {
        Ok(End::Command(status)) => Ok(exit_code(status)),
        Ok(End::Signal) => Ok(end_command(child)?.map_or(ExitCode::SUCCESS, exit_code)),
        Ok(End::Done) => {
            end_command(child)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let error = recording.give_up(error);
            end_command(child)?;
            Err(error)
        }
    }
}

/// Says what was opened.
fn tell(opened: &Opened, target: &Target) {
    for (name, attr) in &opened.events {
        say(format_args!(
            "event {name}: type {} config {:#x} {} {} sample_type {:#x} flags {:#x}",
            attr.type_,
            attr.config,
            if attr.has_flags(perf_bid_core::abi::flag::FREQ) { "frequency" } else { "period" },
            attr.sample_period,
            attr.sample_type,
            attr.flags
        ));
    }
    say(format_args!(
        "{} events open for {} on {} CPUs, {} bytes of ring buffers, {}",
        opened.session.len(),
        if target.is_tasks() {
            format!("{} threads", target.tasks.len())
        } else {
            "all threads".to_owned()
        },
        target.cpus.len(),
        opened.session.ring_bytes(),
        opened.mode
    ));
}

/// Lets the command and the events run, unless `--delay` says later.
fn begin(
    args: &cli::Record,
    target: &mut Target,
    recording: &mut Recording<'_>,
    child: &mut Option<Child>,
) -> Result<()> {
    if args.delay.is_none() {
        recording.make_up(target)?;
        // Those of a command start at its exec.
        if !target.is_command {
            enable(recording)?;
        }
    }
    *child = target.start()?;
    Ok(())
}

/// Says something on standard error. A recording goes on when nobody listens any more.
fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{text}");
}

fn enable(recording: &Recording<'_>) -> Result<()> {
    recording.session.enable().context("cannot start the events")
}

/// Moves records until there is a reason to end.
fn follow(
    args: &cli::Record,
    target: &Target,
    recording: &mut Recording<'_>,
    mut child: Option<&mut Child>,
    mut signals: Signals,
) -> Result<End> {
    let start = Instant::now();
    // What is beyond the end of the clock never comes.
    let mut enable_at = args.delay.and_then(|ms| start.checked_add(Duration::from_millis(ms)));
    let stop_at = args.duration.and_then(|duration| start.checked_add(duration));
    let mut switch = Switch::new(args.switch_output);
    let mut counter = Counter::new(args.quiet, !args.command.is_empty());
    let end = loop {
        let deadlines = [enable_at, stop_at, switch.at];
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let sleep = deadlines.into_iter().flatten().map(left).min().unwrap_or(PERIOD).min(PERIOD);
        let alive = recording.session.wait(Some(signals.wake()), sleep)?;
        recording.drain()?;
        counter.show(recording.samples(), recording.size(), recording.lost());
        if enable_at.is_some_and(is_over) {
            recording.make_up(target)?;
            enable(recording)?;
            enable_at = None;
        }
        if let Some(status) = child.as_mut().map(|child| child.try_wait()).transpose()?.flatten() {
            break End::Command(status);
        }
        if signals.stop() {
            break End::Signal;
        }
        let full = args.max_size.is_some_and(|max| recording.size() >= max);
        let gone = !alive && !target.is_command;
        if full || gone || stop_at.is_some_and(is_over) {
            break End::Done;
        }
        if switch.is_due(recording.size(), signals.take_switch()) {
            recording.switch(target)?;
        }
    };
    recording.session.disable().context("cannot stop the events")?;
    while recording.drain()? > 0 {}
    Ok(end)
}

fn is_over(at: Instant) -> bool {
    at <= Instant::now()
}

/// When the next file is due.
struct Switch {
    when: Option<SwitchOutput>,
    at: Option<Instant>,
}

impl Switch {
    fn new(when: Option<SwitchOutput>) -> Self {
        let mut switch = Self { when, at: None };
        switch.set();
        switch
    }

    fn set(&mut self) {
        if let Some(SwitchOutput::Time(time)) = self.when {
            self.at = Instant::now().checked_add(time);
        }
    }

    fn is_due(&mut self, size: u64, signal: bool) -> bool {
        let due = match self.when {
            None => false,
            Some(SwitchOutput::Signal) => signal,
            Some(SwitchOutput::Size(most)) => size >= most,
            Some(SwitchOutput::Time(_)) => self.at.is_some_and(is_over),
        };
        if due {
            self.set();
        }
        due
    }
}

/// Ends the command, if it still runs. Ctrl-C has reached it too; a signal to this process
/// alone, a limit or an error has not.
fn end_command(child: Option<Child>) -> Result<Option<ExitStatus>> {
    let Some(mut child) = child else {
        return Ok(None);
    };
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may just have ended, which is what was wanted.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    Ok(Some(child.wait()?))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
