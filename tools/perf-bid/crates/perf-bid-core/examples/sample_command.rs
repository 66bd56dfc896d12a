// SPDX-License-Identifier: GPL-2.0
//! Runs a command and prints where each sample fell, as build ID and file offset on a kernel
//! with `CONFIG_PERF_BUILD_ID_OFFSET`, as an address on any other.
//!
//!     cargo run --example sample_command -- ls -R /usr

use std::error::Error;
use std::ffi::OsString;

use perf_bid_core::abi::Entry;
use perf_bid_core::attr::Attr;
use perf_bid_core::attr::AttrBuilder;
use perf_bid_core::event::EventSpec;
use perf_bid_core::record::Format;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::Record;
use perf_bid_core::session::Config;
use perf_bid_core::session::Session;
use perf_bid_core::session::accepts_build_id_bits;
use perf_bid_core::session::online_cpus;
use perf_bid_core::workload::Workload;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().unwrap_or_else(|| OsString::from("ls"));
    let workload = Workload::fork(program, words.collect())?;

    let clock = EventSpec::parse("cpu-clock:u")?;
    let attr = Attr::builder(&clock)
        .frequency(999)
        .when(accepts_build_id_bits(), AttrBuilder::build_id_offset)
        .inherit()
        .enable_on_exec()
        .build()?;
    let events = [(clock.name, attr.clone())];
    let (tasks, cpus) = ([workload.pid()], online_cpus()?);
    let mut session =
        Session::open(&Config { events: &events, tasks: &tasks, cpus: &cpus, pages: 128 })?;

    workload.start()?.wait()?;
    let format = Format::from(&attr);
    session.drain(|_, run, wrapped| {
        // A record may be split between the two runs.
        print_samples(&format, &[run, wrapped].concat())
    })?;
    println!("{} samples lost", session.lost()?.unwrap_or(0));
    Ok(())
}

fn print_samples(format: &Format, records: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut rest = records;
    while let Some((raw, after)) = RawRecord::split(rest, 0)? {
        rest = after;
        let Record::Sample(sample) = format.decode(&raw)? else {
            continue;
        };
        match sample.bid.map(|entry| (entry, entry.build_id())) {
            Some((entry, Some(id))) => println!("{id} {:#x}", entry.offset()),
            Some((entry, None)) => println!("{} {:#x}", Entry::status(entry), entry.offset()),
            None => println!("{:#x}", sample.ip.unwrap_or(0)),
        }
    }
    Ok(())
}
