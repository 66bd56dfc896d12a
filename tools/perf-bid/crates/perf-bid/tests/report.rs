// SPDX-License-Identifier: GPL-2.0
//! `perf-bid report` on recordings that the test makes byte by byte: the test's own program
//! is the file whose functions are hit.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod recording;

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::context;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::BuildIdRow;
use perf_bid_core::data::Features;
use perf_bid_core::data::Writer;
use perf_bid_core::elf::ElfInfo;
use recording::ID;
use recording::Me;
use recording::entry;
use recording::pair;
use recording::record;
use recording::words;

fn me() -> (PathBuf, ElfInfo) {
    let me = Me::new();
    (me.path, me.info)
}

/// The landmark's offset in the test's file.
fn landmark() -> u64 {
    Me::new().landmark
}

fn attr(chain: bool) -> Attr {
    Attr {
        type_: 1,
        sample_period: 1000,
        sample_type: sample::IDENTIFIER
            | sample::TID
            | sample::TIME
            | sample::CPU
            | sample::PERIOD
            | sample::BUILD_ID_OFFSET
            | if chain { sample::CALLCHAIN_BUILD_ID_OFFSET } else { 0 },
        flags: flag::SAMPLE_ID_ALL | flag::DEFER_CALLCHAIN,
        ..Attr::default()
    }
}

fn sample_id(pid: u32, time: u64) -> Vec<u8> {
    words(&[pair(pid, pid), time, 0, ID])
}

fn sample_record(pid: u32, time: u64, bid: &[u8], chain: Option<&[Vec<u8>]>) -> Vec<u8> {
    let mut body = words(&[ID, pair(pid, pid), time, 0, 1000]);
    body.extend_from_slice(bid);
    if let Some(chain) = chain {
        body.extend_from_slice(&words(&[chain.len() as u64]));
        chain.iter().for_each(|entry| body.extend_from_slice(entry));
    }
    record(9, misc::USER, &body)
}

fn comm(pid: u32, name: &str, time: u64) -> Vec<u8> {
    let mut body = words(&[pair(pid, pid)]);
    let mut text = name.as_bytes().to_vec();
    text.resize((name.len() + 1).next_multiple_of(8), 0);
    body.extend_from_slice(&text);
    body.extend_from_slice(&sample_id(pid, time));
    record(3, 0, &body)
}

fn deferred(pid: u32, time: u64, cookie: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut body = words(&[cookie, entries.len() as u64]);
    entries.iter().for_each(|entry| body.extend_from_slice(entry));
    body.extend_from_slice(&sample_id(pid, time));
    record(22, misc::CALLCHAIN_BUILD_ID, &body)
}

fn write(dir: &Path, chain: bool, build_ids: Vec<BuildIdRow>, records: &[Vec<u8>]) -> PathBuf {
    let path = dir.join("perf.data");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = Writer::new(file, &[(attr(chain), vec![ID])]).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    let features = Features {
        build_ids,
        events: vec![("cpu-clock".into(), vec![ID])],
        cmdline: vec!["perf-bid".into(), "record".into(), "--".into(), "landmark".into()],
        ..Features::default()
    };
    writer.finish(&features).unwrap();
    path
}

fn hint(id: BuildId, path: &Path) -> BuildIdRow {
    let path = path.to_string_lossy().into_owned();
    BuildIdRow { build_id: id, cpumode: misc::USER, path }
}

fn report(input: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    command.arg("report").arg("-i").arg(input).args(args);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{out}\n{}", String::from_utf8_lossy(&output.stderr));
    out
}

#[test]
fn a_symbol_is_found_by_build_id_and_offset() {
    let (path, info) = me();
    let id = info.build_id.expect("the test program has a build ID");
    let dir = tempfile::tempdir().unwrap();
    let hit = entry(id.as_bytes(), 0, landmark());
    let anon = entry(&[], 4, 0x7000);
    let mut records = vec![comm(5, "landmark", 1)];
    records.extend((0..3).map(|at| sample_record(5, 10 + at, &hit, None)));
    records.push(sample_record(5, 20, &anon, None));
    records.push(sample_record(6, 21, &entry(&[], 200, 1), None));
    let input = write(dir.path(), false, vec![hint(id, &path)], &records);
    let out = text(&report(&input, &[]));
    let row = out.lines().find(|line| line.contains("perf_bid_test_landmark")).expect(&out);
    assert!(row.contains("60.00%") && row.contains(&id.short()), "{out}");
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    assert!(row.contains(&file) && !row.contains(&*path.to_string_lossy()), "{out}");
    let long = text(&report(&input, &["-v"]));
    assert!(long.contains(&*path.to_string_lossy()), "{long}");
    assert!(out.contains("[anon]") && out.contains("[status 200]"), "{out}");
    assert!(out.contains("3 of 4 (75.00 %)"), "{out}");
    let out = text(&report(&input, &["--totals"]));
    let line = "5 samples, 5 frames, 75.00 % of file-backed user frames resolved by build ID, \
                0 synthesized map records\n";
    assert_eq!(out, line);
}

#[test]
fn a_file_with_another_id_is_not_believed() {
    let (path, _) = me();
    let id = BuildId::new(&[9; 20]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let records = [sample_record(5, 10, &entry(id.as_bytes(), 0, landmark()), None)];
    let input = write(dir.path(), false, vec![hint(id, &path)], &records);
    let out = text(&report(&input, &[]));
    assert!(!out.contains("perf_bid_test_landmark"), "{out}");
    assert!(out.contains("has another build ID now"), "{out}");
    assert!(out.contains(&format!("[unknown]+{:#x}", landmark())), "{out}");
}

#[test]
fn deferred_chains_are_joined_and_missing_ones_counted() {
    let (path, info) = me();
    let id = info.build_id.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let chain = |cookie| {
        [
            entry(&[], 1, context::KERNEL),
            entry(&[], 2, 0xffff_ffff_8100_0000),
            entry(&[], 1, context::USER_DEFERRED),
            entry(&[], 3, cookie),
        ]
    };
    let late = [
        entry(&[], 1, context::USER),
        entry(id.as_bytes(), 0, landmark()),
        entry(id.as_bytes(), 0, landmark() + 1),
    ];
    let records = [
        comm(5, "late", 1),
        sample_record(5, 10, &entry(&[], 3, 7), Some(&chain(7))),
        sample_record(5, 11, &entry(&[], 3, 8), Some(&chain(8))),
        deferred(5, 12, 7, &late),
        deferred(6, 13, 8, &late),
    ];
    let input = write(dir.path(), true, vec![hint(id, &path)], &records);
    let svg = dir.path().join("out.svg");
    let out = text(&report(&input, &["--flamegraph", svg.to_str().unwrap()]));
    assert!(out.contains("perf_bid_test_landmark"), "{out}");
    assert!(out.contains("[deferred, missing]"), "{out}");
    assert!(out.contains("Deferred callchains: 2, of which 1 missing"), "{out}");
    assert!(out.contains("4 frames: 2 in user mode, 2 in the kernel"), "{out}");
    let totals = text(&report(&input, &["--totals"]));
    assert!(totals.ends_with(", 1 of 2 deferred callchains missing\n"), "{totals}");
    let json = text(&report(&input, &["--json", "-"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let count = |what: &str| json["totals"][what].as_u64();
    assert_eq!((count("deferred_chains"), count("missing_deferred_chains")), (Some(2), Some(1)));
    assert_eq!(count("unclaimed_deferred_records"), Some(1));
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("perf_bid_test_landmark") && svg.contains("landmark"), "no function");
}

#[test]
fn json_has_the_same_numbers() {
    let (path, info) = me();
    let id = info.build_id.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let records = [sample_record(5, 10, &entry(id.as_bytes(), 0, landmark()), None)];
    let input = write(dir.path(), false, vec![hint(id, &path)], &records);
    let out = text(&report(&input, &["--json", "-"]));
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["totals"]["resolved_user_frames"], 1);
    assert_eq!(value["totals"]["synthesized_map_records"], 0);
    let row = &value["events"][0]["rows"][0];
    assert!(row["symbol"].as_str().unwrap().contains("perf_bid_test_landmark"), "{out}");
}

/// Map records that a tool made up have no event's ID.
#[test]
fn synthesized_map_records_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let map = |event: u64, time: u64| {
        let mut body = words(&[pair(5, 5), 0x1000, 0x1000, 0, pair(8, 1), 42, 0, pair(5, 2)]);
        body.extend_from_slice(b"/bin/x\0\0");
        body.extend_from_slice(&words(&[pair(5, 5), time, 0, event]));
        record(10, misc::USER, &body)
    };
    let records =
        [map(0, 0), map(ID, 5), map(ID, 6), sample_record(5, 10, &entry(&[], 4, 1), None)];
    let input = write(dir.path(), false, vec![], &records);
    let out = text(&report(&input, &[]));
    assert!(out.contains("Map records: 1 synthesized, 2 of new mappings"), "{out}");
}

#[test]
fn every_truncation_is_an_error_or_a_marked_partial_result() {
    let (path, info) = me();
    let id = info.build_id.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let records = [
        sample_record(5, 10, &entry(id.as_bytes(), 0, landmark()), None),
        sample_record(5, 11, &entry(id.as_bytes(), 0, landmark()), None),
    ];
    let input = write(dir.path(), false, vec![hint(id, &path)], &records);
    let whole = std::fs::read(&input).unwrap();
    let short = dir.path().join("short.data");
    let word = |at: usize| u64::from_ne_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    let data_end = word(40) + word(48);
    for len in (0..data_end).step_by(9) {
        std::fs::write(&short, &whole[..len]).unwrap();
        let output = report(&short, &[]);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{len}: {err}");
        assert!(err.starts_with("perf-bid: ") && err.contains("short.data"), "{len}: {err}");
        assert!(!err.contains("panicked"), "{len}: {err}");
    }
}

#[test]
fn wrong_inputs_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let check = |name: &str, bytes: Option<&[u8]>, says: &str| {
        let path = dir.path().join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).unwrap();
        }
        let output = report(&path, &[]);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}: {err}");
        assert!(err.contains(says), "{name}: {err}");
    };
    check("missing", None, "No such file");
    check("empty", Some(b""), "empty");
    check("text", Some(b"hello, this is no recording"), "not a perf.data file");
    let output = report(&write(dir.path(), false, vec![], &[]), &["--flamegraph", "x.svg"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("record with -g"));
}

#[test]
fn a_full_disk_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let records = [sample_record(5, 10, &entry(&[9; 20], 0, 0), Some(&[entry(&[9; 20], 0, 0)]))];
    let input = write(dir.path(), true, vec![], &records);
    let cases: [(&[&str], &str); 4] = [
        (&[], "standard output"),
        (&["--totals"], "standard output"),
        (&["--json", "-"], "standard output"),
        (&["--flamegraph", "/dev/full"], "/dev/full"),
    ];
    for (args, says) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
        command.arg("report").arg("-i").arg(&input).args(args);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
}

fn landmarks(dir: &Path, periods: usize) -> PathBuf {
    let (path, info) = me();
    let id = info.build_id.unwrap();
    let chain = [
        entry(&[], 1, context::USER),
        entry(id.as_bytes(), 0, landmark()),
        entry(&[8; 20], 0, 0x10),
    ];
    let mut records = vec![comm(5, "one", 1), comm(6, "two", 1)];
    for at in 0..periods as u64 {
        let leaf = entry(id.as_bytes(), 0, landmark());
        records.push(sample_record(5, 10 + at, &leaf, Some(&chain)));
    }
    records.push(sample_record(6, 9999, &entry(&[8; 20], 0, 0x10), Some(&chain[2..])));
    write(dir, true, vec![hint(id, &path)], &records)
}

#[test]
fn callees_count_for_their_callers_unless_told_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let input = landmarks(dir.path(), 3);
    let rows = |args: &[&str]| {
        let args: Vec<_> = ["-t", "|", "--sort", "comm,sym"].iter().chain(args).copied().collect();
        let out = text(&report(&input, &args));
        out.lines()
            .filter(|line| line.contains('%') && !line.starts_with('#'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let expected = [
        "75.00%|75.00%|one|[.] perf_bid_test_landmark",
        "75.00%|0.00%|one|[.] [unknown]+0x10",
        "25.00%|25.00%|two|[.] [unknown]+0x10",
    ];
    assert_eq!(rows(&[]), expected);
    let expected =
        ["75.00%|3|3000|one|[.] perf_bid_test_landmark", "25.00%|1|1000|two|[.] [unknown]+0x10"];
    assert_eq!(rows(&["--no-children", "-n", "--show-total-period"]), expected);
    assert_eq!(
        rows(&["--comms", "two", "--percentage", "relative"]),
        ["100.00%|100.00%|two|[.] [unknown]+0x10"]
    );
    assert_eq!(rows(&["--pid", "6", "--no-children"]), ["25.00%|two|[.] [unknown]+0x10"]);
    assert_eq!(rows(&["--limit", "1"]).len(), 1);
    assert_eq!(rows(&["--percent-limit", "50"]).len(), 2);
    let fields = text(&report(&input, &["-F", "sample,overhead,pid", "-t", ","]));
    assert!(
        fields.contains("# Samples,Overhead,Pid:Command\n3,75.00%,5:one\n1,25.00%,6:two\n"),
        "{fields}"
    );
    let output = report(&input, &["-F", "nonsense"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("overhead_children"));
    let header = text(&report(&input, &["--header-only"]));
    assert!(header.contains("# event : name = cpu-clock, type = 1"), "{header}");
    assert!(!header.contains('%'), "{header}");
}

#[test]
fn a_pipe_is_read_like_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let input = landmarks(dir.path(), 2);
    let expected = text(&report(&input, &[]));
    let mut cat =
        Command::new("cat").arg(&input).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    let piped = command.args(["report", "-i", "-"]).stdin(cat.stdout.take().unwrap()).output();
    assert_eq!(text(&piped.unwrap()), expected);
    assert!(cat.wait().unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    let file = std::fs::File::open(&input).unwrap();
    let redirected = command.args(["report", "-i", "-"]).stdin(file).output();
    assert_eq!(text(&redirected.unwrap()), expected);
}

#[test]
fn what_came_before_damage_is_shown_with_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let input = landmarks(dir.path(), 9);
    let mut bytes = std::fs::read(&input).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (data, len) = (word(40), word(48));
    // A record in the middle claims to be shorter than its header.
    let mut at = data;
    while at < data + len / 2 {
        at += usize::from(u16::from_ne_bytes([bytes[at + 6], bytes[at + 7]]));
    }
    bytes[at + 6..at + 8].copy_from_slice(&4u16.to_ne_bytes());
    std::fs::write(&input, &bytes).unwrap();
    let output = report(&input, &["--sort", "sym"]);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(out.contains("perf_bid_test_landmark"), "{out}");
    assert!(err.contains(&format!("{at}")) || err.contains(&format!("{at:#x}")), "{at}: {err}");
    assert!(err.contains("what came before it is shown"), "{err}");
}

#[test]
fn a_file_that_ends_before_its_features_is_shown_and_says_so_in_three_lines() {
    let dir = tempfile::tempdir().unwrap();
    let input = landmarks(dir.path(), 9);
    let bytes = std::fs::read(&input).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    std::fs::write(&input, &bytes[..word(40) + word(48)]).unwrap();
    let out = text(&report(&input, &[]));
    let said: Vec<_> = out.lines().filter(|line| line.contains("unreadable")).collect();
    assert_eq!(said.len(), 3, "{out}");
    assert!(said[0].contains("at byte 0x"), "{out}");
    // The header has a bit for each.
    let features: u32 = bytes[72..104].iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(said[2], format!("# unreadable features, left out: {} more", features - 2));
}

#[test]
fn two_recordings_are_compared() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (old, new) = (landmarks(dirs[0].path(), 1), landmarks(dirs[1].path(), 3));
    let svg = dirs[0].path().join("diff.svg");
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    command.args(["report", "--diff"]).arg(&old).arg(&new).args(["--sort", "sym", "-t", ","]);
    let out = text(&command.arg("--flamegraph").arg(&svg).output().unwrap());
    let rows = "50.00%,75.00%,+25.00%,[.] perf_bid_test_landmark\n50.00%,25.00%,-25.00%,[.] [unknown]+0x10\n";
    assert!(out.contains(rows), "{out}");
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("perf.data: changes since ") && svg.contains("perf_bid_test_landmark"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    command.args(["report", "--diff"]).arg(&old).arg(&new).args(["--sort", "sym", "--json", "-"]);
    let json: serde_json::Value = serde_json::from_str(&text(&command.output().unwrap())).unwrap();
    assert_eq!(json["events"][0]["rows"][0]["delta"], 25.0);
    // Another build of a program is to be found beside the old one.
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    let out =
        text(&command.args(["report", "-t,", "--diff"]).arg(&old).arg(&new).output().unwrap());
    assert!(out.contains("# Baseline,New,Delta,Command,Shared Object,Symbol\n"), "{out}");
}

#[test]
fn an_older_output_survives_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("out.svg");
    std::fs::write(&svg, "old").unwrap();
    let empty = write(dir.path(), true, vec![], &[]);
    let output = report(&empty, &["--flamegraph", svg.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no samples to draw"));
    assert_eq!(std::fs::read_to_string(&svg).unwrap(), "old");
    let output = report(&landmarks(dir.path(), 1), &["--flamegraph", svg.to_str().unwrap()]);
    text(&output);
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<?xml"));
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_file_that_changed_after_the_recording_is_doubted() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let (program, data) = (dir.path().join("program"), dir.path().join("perf.data"));
    std::fs::copy("/bin/sh", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let strip = ["--remove-section", ".note.gnu.build-id"];
    let stripped = Command::new("objcopy").args(strip).arg(&program).status().unwrap();
    assert!(stripped.success());
    let recorded = Command::new(env!("CARGO_BIN_EXE_perf-bid"))
        .args(["record", "-q", "--plain", "-e", "page-faults:u", "-c", "1", "-o"])
        .arg(&data)
        .arg("--")
        .arg(&program)
        .args(["-c", ":"])
        .status()
        .unwrap();
    assert!(recorded.success());
    let footer = || text(&report(&data, &["--sort", "dso,sym"]));
    assert!(!footer().contains("has changed since"), "{}", footer());
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    std::fs::File::options().write(true).open(&program).unwrap().set_modified(later).unwrap();
    assert!(footer().contains("has changed since"), "{}", footer());
}
