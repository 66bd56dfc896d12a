// SPDX-License-Identifier: GPL-2.0
//! Every command that reads, on recordings by stock perf that were cut off and damaged: each
//! ends soon, by itself, in little memory, and says what is wrong.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

/// Where the recordings are.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../perf-bid-core/tests/data");

/// What a command may use: seconds of a processor, in a build without optimization, and KiB of
/// addresses (most of them are never touched).
const LIMITS: &str = "ulimit -t 10 && ulimit -v 1048576 && exec \"$@\"";

/// All that reads a recording; `OUT` is a file to write.
const COMMANDS: [&[&str]; 11] = [
    &["script"],
    &["script", "--json"],
    &["report", "--stdio"],
    &["report", "--flamegraph", "OUT"],
    &["inject", "--sample-buildids", "-o", "OUT"],
    &["inject", "--sample-buildids", "--keep-mmaps", "--keep-addresses", "-o", "OUT"],
    &["inject", "--to-mmaps", "-o", "OUT"],
    &["export", "--format", "folded", "-o", "OUT"],
    &["export", "--format", "pprof", "-o", "OUT"],
    &["export", "--format", "firefox", "-o", "OUT"],
    &["buildids"],
];

/// Numbers that differ from run to run in nothing.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

fn recordings() -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(DATA)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "perf"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 9, "{paths:?}");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Runs one command in `dir`, where its input is.
fn run(dir: &Path, command: &[&str]) -> Output {
    let errors = File::create(dir.join("errors")).unwrap();
    let args = command.iter().map(|arg| if *arg == "OUT" { "out" } else { arg });
    let mut perf_bid = Command::new("sh");
    perf_bid.args(["-c", LIMITS, "sh", env!("CARGO_BIN_EXE_perf-bid"), command[0], "-i", "in"]);
    perf_bid.args(args.skip(1)).current_dir(dir).stderr(errors).output().unwrap()
}

/// Runs `command` on `input`; it must end in one of the two ways that it may.
fn survives(dir: &Path, command: &[&str], input: &[u8], what: &str) {
    std::fs::write(dir.join("in"), input).unwrap();
    let output = run(dir, command);
    let errors = std::fs::read_to_string(dir.join("errors")).unwrap();
    let code = output.status.code();
    let said = code == Some(0) || errors.contains("perf-bid: ");
    if !matches!(code, Some(0 | 1)) || !said || errors.contains("panicked") {
        let kept = std::env::temp_dir().join("perf-bid-hostile.data");
        std::fs::write(&kept, input).unwrap();
        let signal = output.status.signal();
        panic!("{command:?} on {what} ({}): {code:?}, {signal:?}\n{errors}", kept.display());
    }
}

/// Runs the commands in turn on `count` inputs that `make` makes of each recording.
fn all_survive(count: usize, mut make: impl FnMut(&mut Vec<u8>, usize) -> String) {
    let dir = tempfile::tempdir().unwrap();
    let mut commands = COMMANDS.iter().cycle();
    for (index, recording) in recordings().iter().enumerate() {
        for round in 0..count {
            let mut input = recording.clone();
            let what = format!("recording {index}, {}", make(&mut input, round));
            survives(dir.path(), commands.next().unwrap(), &input, &what);
        }
    }
}

#[test]
fn cut_off() {
    let mut random = Random(1);
    all_survive(16, |input, round| {
        // Within and right behind the headers, and then anywhere between two words.
        let len = match round {
            0..8 => [1, 8, 15, 16, 24, 103, 104, 120][round],
            _ => 8 * random.below(input.len() / 8),
        };
        input.truncate(len);
        format!("cut at {len}")
    });
}

#[test]
fn flipped_bits() {
    let mut random = Random(2);
    all_survive(12, |input, _| {
        let bits: Vec<_> = (0..3).map(|_| random.below(input.len() * 8)).collect();
        bits.iter().for_each(|bit| input[bit / 8] ^= 1 << (bit % 8));
        format!("bits {bits:?}")
    });
}

#[test]
fn gigantic_numbers() {
    let mut random = Random(3);
    all_survive(16, |input, round| {
        let number = [u64::MAX, 1 << 63, 1 << 40, 0xffff_ffff, 0][round % 5];
        // Half of them where sizes and offsets of sections are.
        let end = if round % 2 == 0 { 32 } else { input.len() / 8 };
        let at = 8 * random.below(end);
        input[at..at + 8].copy_from_slice(&number.to_le_bytes());
        format!("{number:#x} at {at}")
    });
}

/// Runs all commands on `input`; each must say `why`. Returns whether all left no file.
fn all_say(input: &[u8], why: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    for command in COMMANDS {
        survives(dir.path(), command, input, why);
        let errors = std::fs::read_to_string(dir.path().join("errors")).unwrap();
        assert!(errors.contains(why), "{command:?} does not say {why:?}: {errors}");
    }
    !dir.path().join("out").exists()
}

#[test]
fn what_is_no_recording_is_refused() {
    let mut old = recordings().swap_remove(0);
    old[..8].copy_from_slice(b"PERFFILF");
    for other in [&[0; 4096][..], b"\x7fELF\x02\x01\x01", &old] {
        assert!(all_say(other, "not a perf.data file"));
    }
    assert!(all_say(b"", "the file is empty"));
}

#[test]
fn attrs_of_impossible_sizes() {
    let plain = std::fs::read(Path::new(DATA).join("plain.perf")).unwrap();
    // Where the attrs section begins is in the header.
    let attrs = u64::from_le_bytes(plain[24..32].try_into().unwrap()) as usize;
    let stating = |size: u32| {
        let mut input = plain.clone();
        input[attrs + 4..attrs + 8].copy_from_slice(&size.to_le_bytes());
        input
    };
    for size in [1, 63] {
        assert!(all_say(&stating(size), "at byte 0x78: perf_event_attr is shorter than 64 bytes"));
    }
    // How much of it there is, the header says.
    for size in [4096, u32::MAX] {
        let dir = tempfile::tempdir().unwrap();
        survives(dir.path(), COMMANDS[2], &stating(size), "a large attr");
        let errors = std::fs::read_to_string(dir.path().join("errors")).unwrap();
        assert!(errors.contains(&format!("says that it is {size} bytes long")), "{errors}");
    }
}
