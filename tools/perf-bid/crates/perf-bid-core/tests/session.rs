// SPDX-License-Identifier: GPL-2.0
//! Events and ring buffers on the running kernel, with the sample bits that every kernel has.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::time::Duration;
use std::time::Instant;

use perf_bid_core::abi::flag;
use perf_bid_core::abi::read_format;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::event::EventSpec;
use perf_bid_core::record::Format;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::Record;
use perf_bid_core::session::Config;
use perf_bid_core::session::OpenError;
use perf_bid_core::session::Session;
use perf_bid_core::session::accepts_build_id_bits;
use perf_bid_core::session::online_cpus;
use perf_bid_core::workload::Workload;

fn attr(extra: u64) -> Attr {
    Attr {
        sample_period: 100_000,
        sample_type: sample::IDENTIFIER
            | sample::IP
            | sample::TID
            | sample::TIME
            | sample::CPU
            | extra,
        read_format: read_format::ID | read_format::LOST,
        flags: flag::DISABLED
            | flag::INHERIT
            | flag::ENABLE_ON_EXEC
            | flag::EXCLUDE_KERNEL
            | flag::EXCLUDE_CALLCHAIN_KERNEL
            | flag::COMM
            | flag::COMM_EXEC
            | flag::MMAP
            | flag::MMAP2
            | flag::SAMPLE_ID_ALL,
        wakeup: 1,
        ..EventSpec::parse("task-clock").unwrap().attr()
    }
}

/// Runs a shell that counts; returns what the events wrote.
fn run(pages: usize, script: &str) -> (Format, Vec<u64>, Vec<Vec<u8>>, u64) {
    let workload = Workload::fork("/bin/sh".into(), vec!["-c".into(), script.into()]).unwrap();
    let attr = attr(sample::CALLCHAIN);
    let events = [("task-clock".to_owned(), attr.clone())];
    let cpus = online_cpus().unwrap();
    let tasks = [workload.pid()];
    let config = Config { events: &events, tasks: &tasks, cpus: &cpus, pages };
    let mut session = Session::open(&config).expect(
        "perf_event_open() must work to test it: run as root or with \
         kernel.perf_event_paranoid <= 2",
    );
    let mut child = workload.start().unwrap();
    assert!(child.wait().unwrap().success());
    let mut rings = vec![Vec::new(); cpus.len()];
    session
        .drain(|index, run, wrapped| {
            rings[index].extend_from_slice(run);
            rings[index].extend_from_slice(wrapped);
            Ok::<_, ()>(())
        })
        .unwrap();
    let lost = session.lost().unwrap().unwrap();
    (Format::from(&attr), session.ids(0).unwrap(), rings, lost)
}

#[test]
fn a_command_is_sampled_from_exec_to_exit() {
    let script = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
    let (format, ids, rings, lost) = run(256, script);
    assert_eq!(lost, 0);
    let (mut samples, mut execs, mut maps) = (0, 0, 0);
    for ring in &rings {
        let mut rest = ring.as_slice();
        while let Some((raw, after)) = RawRecord::split(rest, 0).unwrap() {
            rest = after;
            assert!(ids.contains(&format.event_id(&raw).unwrap()));
            match format.decode(&raw).unwrap() {
                Record::Sample(sample) => {
                    samples += 1;
                    assert!(sample.callchain.is_some_and(|chain| !chain.is_empty()));
                }
                Record::Comm(comm) if comm.exec => {
                    execs += 1;
                    assert_eq!(comm.comm, b"sh");
                }
                Record::Mmap(_) => maps += 1,
                _ => {}
            }
        }
    }
    assert!(
        samples > 20 && execs == 1 && maps > 0,
        "{samples} samples, {execs} execs, {maps} maps"
    );
}

#[test]
fn a_full_ring_loses_whole_records_and_says_so() {
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let (format, _, rings, lost) = run(1, script);
    assert!(lost > 0);
    for ring in &rings {
        let mut rest = ring.as_slice();
        while let Some((raw, after)) = RawRecord::split(rest, 0).unwrap() {
            rest = after;
            format.decode(&raw).unwrap();
        }
    }
}

#[test]
fn a_child_that_is_not_started_ends() {
    let workload = Workload::fork("/bin/true".into(), Vec::new()).unwrap();
    let proc = format!("/proc/{}", workload.pid());
    assert!(std::path::Path::new(&proc).exists());
    drop(workload);
    let start = Instant::now();
    while std::path::Path::new(&proc).exists() {
        assert!(start.elapsed() < Duration::from_secs(10), "the child still waits");
        std::thread::sleep(Duration::from_millis(10));
    }
    let missing = Workload::fork("/no/such/program".into(), Vec::new()).unwrap();
    assert_eq!(missing.start().unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

fn open(attr: Attr, task: i32, pages: usize) -> Result<Session, OpenError> {
    let events = [("task-clock".to_owned(), attr)];
    let cpus = online_cpus().unwrap();
    Session::open(&Config { events: &events, tasks: &[task], cpus: &cpus, pages })
}

#[test]
fn errors_name_their_cause() {
    let gone = open(attr(0), i32::MAX, 1).unwrap_err();
    assert!(matches!(gone, OpenError::NoTask(i32::MAX)), "{gone}");
    let pages = open(attr(0), 0, 3).unwrap_err().to_string();
    assert!(pages.contains("3 pages"), "{pages}");
    let bad = Attr { sample_type: 1 << 62, ..attr(0) };
    let bad = open(bad, 0, 1).unwrap_err();
    assert!(matches!(bad, OpenError::Invalid { .. }), "{bad}");
    // Both outcomes are right; which one depends on the kernel.
    match (open(attr(sample::NEW), 0, 1), accepts_build_id_bits()) {
        (Ok(_), true) => {}
        (Err(error @ OpenError::NoBuildIdBits { .. }), false) => {
            assert!(error.to_string().contains("CONFIG_PERF_BUILD_ID_OFFSET"), "{error}");
        }
        (result, accepts) => panic!("{accepts}: {result:?}"),
    }
}
