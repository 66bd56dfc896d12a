// SPDX-License-Identifier: GPL-2.0
//! `perf-bid export`, `buildids`, `check`, `man` and `completions`. What is exported is read
//! back here by other means than it was written with.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod protobuf;
mod recording;

use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use perf_bid_core::abi::BuildId;
use protobuf::Message;
use recording::Me;
use recording::comm;
use recording::entry;
use recording::exit;
use recording::perf_bid;
use recording::sample_record;
use recording::text;
use recording::user_marker;
use recording::write;
use serde_json::Value;

/// A file that is nowhere.
const ABSENT: [u8; 20] = [0xab; 20];

/// Three samples of two threads; the landmark is called from a file that is nowhere.
fn recording(dir: &Path, me: &Me) -> PathBuf {
    let chain = || [user_marker(), me.hit(4), entry(&ABSENT, 0, 0x1235)];
    let records = [
        comm(5, "one;two", 1000),
        comm(6, "three", 1000),
        sample_record(5, 2000, &chain()),
        sample_record(5, 3000, &chain()),
        sample_record(6, 4000, &[user_marker(), entry(&[], 4, 0x7000)]),
        exit(5, 5000),
    ];
    write(dir, vec![me.hint()], &records)
}

fn export(dir: &Path, name: &str, args: &[&str]) -> PathBuf {
    let (me, path) = (Me::new(), dir.join(name));
    let input = recording(dir, &me);
    let output = ["-o", path.to_str().unwrap()];
    text(&perf_bid("export", &input, &[&output, args].concat()));
    path
}

#[test]
fn folded_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let me = Me::new();
    let lines = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let folded = lines(export(dir.path(), "x.folded", &[]));
    let (first, second) = folded.trim_end().split_once('\n').unwrap();
    assert!(first.starts_with("one:two;") && first.ends_with(";perf_bid_test_landmark 2000"));
    assert_eq!(second, "three;[anon] 1000");
    let counted = lines(export(dir.path(), "y.folded", &["--weights", "samples", "--all"]));
    assert!(counted.starts_with("cpu-clock;one:two;") && counted.contains(" 2\n"), "{counted}");
    let speedscope = lines(export(dir.path(), "z.txt", &["-f", "speedscope"]));
    assert!(speedscope.contains("three;[anon] 1000\n"), "{speedscope}");
    // Standard output takes it, too.
    let input = recording(dir.path(), &me);
    assert_eq!(text(&perf_bid("export", &input, &["-f", "folded", "-o", "-"])), folded);
}

#[test]
fn pprof_names_files_by_build_id_and_virtual_address() {
    let dir = tempfile::tempdir().unwrap();
    let me = Me::new();
    let file = std::fs::File::open(export(dir.path(), "x.pb.gz", &[])).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let profile = Message::parse(&bytes);
    let strings: Vec<_> = profile.texts(6);
    let string = |index: u64| strings[index as usize].as_str();
    assert_eq!(strings[0], "");
    let types: Vec<_> = profile.messages(1);
    let types: Vec<_> = types.iter().map(|t| (string(t.number(1)), string(t.number(2)))).collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    let mappings = profile.messages(3);
    let mine = mappings.iter().find(|m| string(m.number(6)) == me.id.to_string()).unwrap();
    assert_eq!(string(mine.number(5)), me.path.to_string_lossy());
    let absent = BuildId::new(&ABSENT).unwrap().to_string();
    let absent = mappings.iter().find(|m| string(m.number(6)) == absent).unwrap();
    // Without the file, offsets stand for addresses.
    assert_eq!((absent.number(2), absent.number(4)), (0, 0));
    assert_eq!((mine.number(7), absent.number(7)), (1, 0), "which functions are known");
    let locations = profile.messages(4);
    let of = |mapping: &Message| {
        let id = mapping.number(1);
        locations.iter().find(|location| location.number(2) == id).unwrap()
    };
    // A return address names the call before it.
    assert_eq!(of(absent).number(3), 0x1234);
    let landmark = of(mine);
    let address = me.info.address_of(me.landmark + 4).unwrap();
    assert_eq!(landmark.number(3), address);
    assert!((mine.number(2)..mine.number(3)).contains(&address));
    // What pprof does with a position-independent file: mapped where it says it would be.
    let segment = me.info.segments.iter().find(|segment| segment.executable).unwrap();
    assert_eq!(mine.number(2) - mine.number(4), segment.address - segment.offset);
    let function = landmark.messages(4)[0].number(1);
    let functions = profile.messages(5);
    let function = functions.iter().find(|f| f.number(1) == function).unwrap();
    assert_eq!(string(function.number(2)), "perf_bid_test_landmark");
    let samples = profile.messages(2);
    assert_eq!(samples.len(), 2);
    let first = samples.iter().find(|sample| sample.packed(2) == [2, 2000]).unwrap();
    assert_eq!(first.packed(1), [landmark.number(1), of(absent).number(1)]);
    let labels: Vec<_> = first.messages(3);
    let labels: Vec<_> =
        labels.iter().map(|l| (string(l.number(1)), string(l.number(2)), l.number(3))).collect();
    assert_eq!(labels, [("comm", "one;two", 0), ("pid", "", 5), ("tid", "", 5)]);
    assert_eq!(profile.number(10), 2000);
    assert_eq!(profile.number(12), 1000);
}

#[test]
fn the_firefox_profiler_gets_threads_and_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let me = Me::new();
    let path = export(dir.path(), "x.json", &[]);
    let profile: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let threads = profile["threads"].as_array().unwrap();
    let names: Vec<_> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one;two", "three"]);
    let one = &threads[0];
    assert_eq!(one["samples"]["length"], 2);
    assert_eq!(one["samples"]["timeDeltas"], serde_json::json!([0.0, 0.001]));
    assert_eq!(one["unregisterTime"], 0.003);
    assert!(threads[1]["unregisterTime"].is_null());
    let libs = profile["libs"].as_array().unwrap();
    let mine = libs.iter().find(|lib| lib["codeId"] == me.id.to_string()).unwrap();
    assert_eq!(mine["path"], *me.path.to_string_lossy());
    // A breakpad ID is a GUID, whose first three fields are little-endian, and an age.
    let id = me.id.as_bytes();
    let guid = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15].map(|at| id[at]);
    let guid: String = guid.iter().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(mine["breakpadId"], format!("{guid}0"));
    let strings = &profile["shared"]["stringArray"];
    let strings = if strings.is_null() { &one["stringArray"] } else { strings };
    assert!(strings.as_array().unwrap().iter().any(|s| s == "perf_bid_test_landmark"), "{strings}");
    let base = me.info.segments.iter().map(|segment| segment.address).min().unwrap();
    let relative = me.info.address_of(me.landmark + 4).unwrap() - base;
    let addresses = one["frameTable"]["address"].as_array().unwrap();
    assert!(addresses.contains(&relative.into()), "{relative:#x} {addresses:?}");
}

#[test]
fn json_lines_are_those_of_script() {
    let dir = tempfile::tempdir().unwrap();
    let path = export(dir.path(), "x.jsonl", &[]);
    let input = recording(dir.path(), &Me::new());
    let script = text(&perf_bid("script", &input, &["--json"]));
    assert_eq!(std::fs::read_to_string(path).unwrap(), script);
}

#[test]
fn a_flame_graph_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let svg = std::fs::read_to_string(export(dir.path(), "x.svg", &[])).unwrap();
    assert!(svg.contains("<svg") && svg.contains("perf_bid_test_landmark"), "{svg}");
}

#[test]
fn every_format_says_that_the_recording_is_damaged() {
    let (dir, me) = (tempfile::tempdir().unwrap(), Me::new());
    // A size that is less than that of the header.
    let bad = [9u32.to_ne_bytes(), 4u32.rotate_left(16).to_ne_bytes()].concat();
    let records = [sample_record(5, 2000, &[user_marker(), me.hit(4)]), bad];
    let input = write(dir.path(), vec![me.hint()], &records);
    for format in ["folded", "flamegraph", "pprof", "firefox", "speedscope", "jsonl"] {
        let path = dir.path().join(format);
        let output = perf_bid("export", &input, &["-f", format, "-o", path.to_str().unwrap()]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{format}: {err}");
        assert!(err.contains("at byte 0x"), "{format}: {err}");
        assert!(path.metadata().unwrap().len() > 0, "{format}");
    }
}

#[test]
fn an_older_file_stays_when_there_is_nothing_new() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.folded");
    std::fs::write(&path, "older").unwrap();
    let input = recording(dir.path(), &Me::new());
    for args in [&["-e", "no-such-event"] as &[&str], &["--fetch"]] {
        let output = ["-o", path.to_str().unwrap()];
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
        command.env_remove("DEBUGINFOD_URLS").arg("export").arg("-i").arg(&input);
        let failed = command.args(output).args(args).output().unwrap();
        assert_eq!(failed.status.code(), Some(1), "{args:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "older", "{args:?}");
    }
    let unknown = perf_bid("export", &input, &["-o", "x.unknown"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("--format"));
}

#[test]
fn build_ids_are_counted_and_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let me = Me::new();
    let input = recording(dir.path(), &me);
    let rows: Value =
        serde_json::from_str(&text(&perf_bid("buildids", &input, &["--json"]))).unwrap();
    let row =
        |id: String| rows.as_array().unwrap().iter().find(|row| row["build_id"] == id).unwrap();
    let mine = row(me.id.to_string());
    assert_eq!((&mine["samples"], &mine["frames"]), (&2.into(), &2.into()));
    assert_eq!(mine["file"], *me.path.to_string_lossy());
    assert!(mine["problem"].is_null(), "{mine}");
    let absent = row(BuildId::new(&ABSENT).unwrap().to_string());
    assert!(absent["file"].is_null() && absent["problem"].is_string(), "{absent}");
    let table = text(&perf_bid("buildids", &input, &["-H"]));
    let line = table.lines().find(|line| line.starts_with(&me.id.to_string())).unwrap();
    assert!(line.ends_with(&*me.path.to_string_lossy()), "{table}");
    assert!(table.contains("problem: "), "{table}");
}

#[test]
fn check_says_what_it_found_and_its_status_agrees() {
    let check = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_perf-bid")).arg("check").args(args).output().unwrap()
    };
    let output = check(&["--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let can = found["can_record_build_ids"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!can)));
    assert_eq!(can, perf_bid_core::session::accepts_build_id_bits());
    let checks = found["checks"].as_array().unwrap();
    for check in checks.iter().filter(|check| check["check"] != "config") {
        // Every gap comes with what to do about it.
        assert_eq!(check["state"] == "good", check["advice"].is_null(), "{check}");
    }
    let plain = check(&[]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("build IDs in samples") && !plain.contains('\x1b'), "{plain}");
}

#[test]
fn manual_pages_and_completions_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let perf_bid = || Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    assert!(perf_bid().arg("man").arg(dir.path()).status().unwrap().success());
    let page = std::fs::read_to_string(dir.path().join("perf-bid-script.1")).unwrap();
    assert!(page.contains("max\\-stack") && page.contains("Examples"), "{page}");
    let all = std::fs::read_to_string(dir.path().join("perf-bid.1")).unwrap();
    assert!(all.contains("perf\\-bid\\-export(1)") && !all.contains("completions"), "{all}");
    for shell in ["bash", "zsh", "fish"] {
        let output = perf_bid().args(["completions", shell]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("max-stack"), "{shell}");
    }
}
