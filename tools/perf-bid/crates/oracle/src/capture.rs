// SPDX-License-Identifier: GPL-2.0
//! Runs the command under events that record addresses and build IDs side by side, and keeps
//! everything the kernel writes in memory.

use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::read_format;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::event::EventSpec;
use perf_bid_core::record::Format;
use perf_bid_core::session::Config;
use perf_bid_core::session::Session;
use perf_bid_core::session::accepts_deferral;
use perf_bid_core::session::kernel_release;
use perf_bid_core::session::online_cpus;
use perf_bid_core::workload::Workload;

use crate::Args;

/// `CLOCK_MONOTONIC`: the same on every CPU, so that records of different CPUs can be put in
/// order.
const CLOCK_MONOTONIC: i32 = 1;

/// What was recorded.
#[derive(Debug)]
pub struct Capture {
    /// Of all events.
    pub format: Format,
    /// IDs of each event.
    pub ids: Vec<Vec<u64>>,
    /// What each CPU's ring buffer gave, in order: whole records, back to back.
    pub rings: Vec<Vec<u8>>,
    /// Samples lost, by the events' own count.
    pub lost: u64,
    /// User addresses were to be deferred.
    pub deferred: bool,
    /// The command's.
    pub status: ExitStatus,
}

/// Runs the command to its end.
pub fn run(args: &Args) -> Result<Capture> {
    let mut words = args.command.iter().cloned();
    let program = words.next().context("no command")?;
    let shown = program.to_string_lossy().into_owned();
    let workload = Workload::fork(program, words.collect())
        .with_context(|| format!("cannot start {shown}"))?;
    if args.deferred && !accepts_deferral() {
        bail!("this kernel ({}) does not defer callchains with build IDs", kernel_release());
    }
    let events = events(args)?;
    let cpus = online_cpus().context("cannot list the CPUs")?;
    let tasks = [workload.pid()];
    let config = Config { events: &events, tasks: &tasks, cpus: &cpus, pages: args.mmap_pages };
    let mut session = Session::open(&config)?;
    let (_, attr) = events.first().context("no event")?;
    let format = Format::from(attr);
    let ids = (0..events.len()).map(|index| session.ids(index)).collect::<Result<_, _>>()?;
    let mut rings = vec![Vec::new(); cpus.len()];
    let mut child = workload.start().with_context(|| format!("cannot run {shown}"))?;
    let status = loop {
        session.wait(None::<&std::fs::File>, Duration::from_millis(50))?;
        let status = child.try_wait()?;
        drain(&mut session, &mut rings);
        if let Some(status) = status {
            break status;
        }
    };
    session.disable()?;
    while drain(&mut session, &mut rings) > 0 {}
    let lost = session.lost()?.unwrap_or(0);
    if rings.iter().all(Vec::is_empty) {
        bail!("the kernel wrote no record at all");
    }
    Ok(Capture { format, ids, rings, lost, deferred: args.deferred, status })
}

fn drain(session: &mut Session, rings: &mut [Vec<u8>]) -> usize {
    let drained = session.drain(|index, run, wrapped| {
        if let Some(ring) = rings.get_mut(index) {
            ring.extend_from_slice(run);
            ring.extend_from_slice(wrapped);
        }
        Ok::<_, std::convert::Infallible>(())
    });
    match drained {
        Ok(bytes) => bytes,
        Err(never) => match never {},
    }
}

fn events(args: &Args) -> Result<Vec<(String, Attr)>> {
    let spec = EventSpec::parse(&args.event)?;
    let attr = Attr {
        sample_period: args.count.unwrap_or(args.freq),
        sample_type: sample::IDENTIFIER
            | sample::IP
            | sample::TID
            | sample::TIME
            | sample::CPU
            | sample::CALLCHAIN
            | sample::NEW,
        read_format: read_format::ID | read_format::LOST,
        flags: spec.attr().flags
            | flag::DISABLED
            | flag::INHERIT
            | flag::ENABLE_ON_EXEC
            | flag::SAMPLE_ID_ALL
            | flag::USE_CLOCKID
            | flag::WATERMARK
            | if args.count.is_none() { flag::FREQ } else { 0 }
            // Each event has its own records to be judged.
            | if args.deferred { flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT } else { 0 },
        clockid: CLOCK_MONOTONIC,
        wakeup: 1 << 16,
        ..spec.attr()
    };
    let side_band = flag::MMAP
        | flag::MMAP2
        | flag::MMAP_DATA
        | flag::BUILD_ID
        | flag::COMM
        | flag::COMM_EXEC
        | flag::TASK;
    let first = Attr { flags: attr.flags | side_band, ..attr.clone() };
    let others = (1..args.events).map(|_| attr.clone());
    Ok(std::iter::once(first).chain(others).map(|attr| (spec.name.clone(), attr)).collect())
}
