// SPDX-License-Identifier: GPL-2.0
//! `perf-bid record` as a user meets it. On a kernel with the build-ID bits it records; on any
//! other it says what is missing. Both are checked, whichever kernel runs the tests.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::process::Output;

use perf_bid_core::session::accepts_build_id_bits;
use perf_bid_core::session::accepts_deferral;

fn record(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    command.current_dir(dir).arg("record").args(args);
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_command_is_recorded_or_the_kernel_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["-e", "cpu-clock", "-g", "--", "sh", "-c", "exit 7"];
    let (code, err) = record(dir.path(), &command);
    let file = dir.path().join("perf.data");
    if accepts_build_id_bits() {
        assert_eq!(code, Some(7), "{err}");
        assert!(err.contains("0 synthesized map records"), "{err}");
        let mode = if accepts_deferral() { ", deferred," } else { ", immediate," };
        assert!(err.contains(mode), "{err}");
        assert!(file.exists());
    } else {
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains("CONFIG_PERF_BUILD_ID_OFFSET=y"), "{err}");
        assert!(!file.exists());
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.iter().all(|path| *path == file), "{left:?}");
}

#[test]
fn the_mode_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let (code, err) =
        record(dir.path(), &["-e", "cpu-clock,task-clock", "--immediate", "--", "true"]);
    if accepts_build_id_bits() {
        assert!(code == Some(0) && err.contains(", immediate,"), "{err}");
    } else {
        assert!(code == Some(1) && err.contains("CONFIG_PERF_BUILD_ID_OFFSET=y"), "{err}");
    }
}

#[test]
fn mistakes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32, &str); 11] = [
        (&[], 1, "nothing to record"),
        (&["-e", "no-such-event", "--", "true"], 1, "unknown event `no-such-event`"),
        (&["-e", "", "--", "true"], 1, "empty event name"),
        (&["-e", "cpu-clock:u", "--", "true"], 1, "not supported, use `cpu-clock`"),
        (&["-o", "-", "--", "true"], 1, "standard output is not supported"),
        (&["-p", "2147483647"], 1, "no process or thread 2147483647"),
        (&["-m", "3", "--", "true"], 1, "not a power of two"),
        (&["-F", "999999999", "--", "true"], 1, "perf_event_max_sample_rate"),
        (&["-F", "0", "--", "true"], 2, "0 is not in"),
        (&["-F", "1", "-c", "1", "--", "true"], 2, "cannot be used with"),
        (&["-o", "no/such/dir/x", "-p", "1", "--", "true"], 1, "not both"),
    ];
    for (args, code, says) in cases {
        let (got, err) = record(dir.path(), args);
        assert_eq!(got, Some(code), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
        // Of the command, which was forked and shall not run, nothing is heard.
        assert!(!err.contains("fatal runtime error"), "{args:?}: {err}");
    }
}

#[test]
fn a_full_disk_is_named() {
    if !accepts_build_id_bits() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (code, err) = record(dir.path(), &["-e", "cpu-clock", "-o", "/dev/full", "--", "true"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("cannot write /dev/full"), "{err}");
}

/// An error must not cost the recording that was there before.
#[test]
fn an_older_recording_survives_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    std::fs::write(&file, "older").unwrap();
    let (code, _) = record(dir.path(), &["-e", "cpu-clock", "--", "/no/such/program"]);
    assert_eq!(code, Some(1));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "older");
}
