// SPDX-License-Identifier: GPL-2.0
//! `perf-bid script` on recordings that the test makes byte by byte.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod recording;

use std::io::BufRead;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use recording::Me;
use recording::awaits;
use recording::comm;
use recording::deferred;
use recording::entry;
use recording::exit;
use recording::perf_bid;
use recording::sample_record;
use recording::text;
use recording::user_marker;
use recording::write;
use serde_json::Value;

/// Thread 5 is sampled at 10 and gets its callchain at 30; thread 6 is sampled between.
fn two_threads(dir: &tempfile::TempDir, me: &Me) -> PathBuf {
    let records = [
        comm(5, "waits", 1_000_000_001),
        comm(6, "does not", 1_000_000_002),
        sample_record(5, 1_000_000_010, &awaits(9)),
        sample_record(6, 1_000_000_020, &[user_marker(), me.hit(2), entry(&[], 4, 0x7000)]),
        deferred(5, 1_000_000_030, 9, &[user_marker(), me.hit(1)]),
        exit(5, 1_000_000_040),
    ];
    write(dir.path(), vec![me.hint()], &records)
}

#[test]
fn deferred_callchains_are_joined_and_in_order() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let input = two_threads(&dir, &me);
    let out = text(&perf_bid("script", &input, &["--ns"]));
    let (path, at) = (me.path.display(), me.landmark);
    let expected = format!(
        "waits       5 [003]     1.000000010:       1000 cpu-clock: \n\
         \t{:16x} perf_bid_test_landmark+0x1 ({path})\n\
         \n\
         does not       6 [003]     1.000000020:       1000 cpu-clock: \n\
         \t{:16x} perf_bid_test_landmark+0x2 ({path})\n\
         \t            7000 [unknown] ([anon])\n\
         \n",
        at + 1,
        at + 2
    );
    assert_eq!(out, expected);
}

#[test]
fn fields_of_our_own() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let input = two_threads(&dir, &me);
    let fields = ["-F", "tid,sym,buildid,offset,status", "--tid", "6"];
    let out = text(&perf_bid("script", &input, &fields));
    let offset = me.landmark + 2;
    let expected = format!(
        "      6 \n\tperf_bid_test_landmark {} {offset:#x} resolved\n\t[unknown] - - anon\n\n",
        me.id
    );
    assert_eq!(out, expected);
    let bad = perf_bid("script", &input, &["-F", "comm,nonsense"]);
    let message = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(!bad.status.success() && message.contains("`nonsense`"), "{message}");
    let bad = perf_bid("script", &input, &["-F", "+addr"]);
    let message = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(!bad.status.success() && message.contains("cpu-clock have no addr"), "{message}");
}

#[test]
fn what_was_not_asked_for_is_left_out() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let input = two_threads(&dir, &me);
    let names = |args: &[&str]| {
        let out = text(&perf_bid("script", &input, &[args, &["-F", "comm"]].concat()));
        out.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["waits", "does not"]);
    assert_eq!(names(&["--comms", "waits,other"]), ["waits"]);
    assert_eq!(names(&["--pid", "6"]), ["does not"]);
    assert_eq!(names(&["--time", "1.000000015,"]), ["does not"]);
    assert_eq!(names(&["--time", ",1.000000010"]), ["waits"]);
    assert_eq!(names(&["-S", "perf_bid_test_landmark"]), ["waits", "does not"]);
    assert!(names(&["-S", "main"]).is_empty());
    let file = me.path.file_name().unwrap().to_string_lossy();
    assert_eq!(names(&["--dsos", &file]), ["waits", "does not"]);
    assert!(names(&["--dsos", "libc.so.6"]).is_empty());
    let out = text(&perf_bid("script", &input, &["--max-stack", "1", "--tid", "6"]));
    assert_eq!(out.lines().filter(|line| line.starts_with('\t')).count(), 1, "{out}");
    let out = text(&perf_bid("script", &input, &["-G"]));
    assert_eq!(out.lines().count(), 2, "{out}");
    let tasks = text(&perf_bid("script", &input, &["--show-task-events", "--pid", "5"]));
    assert!(tasks.contains("1.000000: PERF_RECORD_COMM: waits:5/5\n"), "{tasks}");
    assert!(tasks.contains("1.000000: PERF_RECORD_EXIT(5:5):(1:1)\n"), "{tasks}");
}

#[test]
fn json_has_an_object_for_each_sample() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let input = two_threads(&dir, &me);
    let out = text(&perf_bid("script", &input, &["--json", "--show-task-events"]));
    let objects: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = objects.iter().map(|object| object["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["comm", "comm", "sample", "sample", "exit"]);
    let (first, second) = (&objects[2], &objects[3]);
    assert_eq!((&first["comm"], &first["pid"]), (&"waits".into(), &5.into()));
    assert_eq!((&first["time"], &first["cpu"]), (&1_000_000_010u64.into(), &3.into()));
    assert_eq!((&first["event"], &first["period"]), (&"cpu-clock".into(), &1000.into()));
    let frame = &first["frames"][0];
    assert_eq!(frame["symbol"], "perf_bid_test_landmark");
    assert_eq!(frame["symoff"], 1);
    assert_eq!(frame["dso"], *me.path.to_string_lossy());
    assert_eq!(frame["build_id"], me.id.to_string());
    assert_eq!(frame["offset"], format!("{:#x}", me.landmark + 1));
    assert_eq!(frame["status"], "resolved");
    assert_eq!(second["frames"][1], serde_json::json!({"address": "0x7000", "status": "anon"}));
}

#[test]
fn a_sample_whose_callchain_never_came_says_so() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let records = [sample_record(5, 10, &awaits(9)), sample_record(6, 20, &[me.hit(0)])];
    let input = write(dir.path(), vec![me.hint()], &records);
    let out = text(&perf_bid("script", &input, &["-F", "tid,ip,sym,dso"]));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[..2], ["      5 ", "\t                 [unknown] ([deferred, missing])"]);
    assert!(lines[3].starts_with("      6"), "{out}");
}

#[test]
fn what_comes_before_the_damage_is_printed() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let mut records = vec![sample_record(5, 10, &[me.hit(0)])];
    // A size that is less than that of the header.
    records.push([9u32.to_ne_bytes(), 4u32.rotate_left(16).to_ne_bytes()].concat());
    let input = write(dir.path(), vec![me.hint()], &records);
    let output = perf_bid("script", &input, &[]);
    assert_eq!(output.status.code(), Some(1));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("perf_bid_test_landmark"), "{out}");
    assert!(err.contains("at byte 0x") && err.contains("what came before it is shown"), "{err}");
}

#[test]
fn where_to_look_for_symbols_has_to_exist() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let input = write(dir.path(), vec![me.hint()], &[sample_record(5, 10, &[me.hit(0)])]);
    for option in ["--symfs", "--kallsyms", "--vmlinux"] {
        let output = perf_bid("script", &input, &[option, "/nonexistent"]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert!(err.contains("/nonexistent: No such file or directory"), "{option}: {err}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let records: Vec<_> =
        (0..20_000).map(|time| sample_record(5, 10 + time, &[me.hit(0)])).collect();
    let input = write(dir.path(), vec![me.hint()], &records);
    let mut child = Command::new(env!("CARGO_BIN_EXE_perf-bid"))
        .args(["script", "-i"])
        .arg(&input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("cpu-clock"), "{line}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn standard_input_is_read() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    let input = two_threads(&dir, &me);
    let mut child = Command::new(env!("CARGO_BIN_EXE_perf-bid"))
        .args(["script", "-i", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = std::fs::read(&input).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output), text(&perf_bid("script", &input, &[])));
}
