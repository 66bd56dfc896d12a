// SPDX-License-Identifier: GPL-2.0
//! `perf-bid record` as a user meets it. On a kernel with the build-ID bits it records them; on
//! any other it says what is missing, and records plain addresses. Both are checked, whichever
//! kernel runs the tests; `scripts/guest/record` has more for the former.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::process::ChildStderr;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use perf_bid_core::abi::sample;
use perf_bid_core::data::PerfData;
use perf_bid_core::record::Record;
use perf_bid_core::session::accepts_build_id_bits;
use perf_bid_core::session::accepts_deferral;

/// Counts for a moment.
const SPIN: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    command.current_dir(dir).arg("record").args(args);
    command
}

fn record(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(dir, args).output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// A recording with addresses, which every kernel can make.
fn plain(dir: &Path, args: &[&str]) -> String {
    let (code, err) = record(dir, &[&["--plain", "-e", "cpu-clock"], args].concat());
    assert_eq!(code, Some(0), "{args:?}: {err}");
    err
}

/// A recording with addresses that goes on meanwhile, and what it has said.
struct Running {
    child: Child,
    /// Nobody listens without.
    errors: Option<BufReader<ChildStderr>>,
    said: String,
}

/// After a test that has failed, nothing goes on.
impl Drop for Running {
    fn drop(&mut self) {
        // Not SIGKILL: it takes its command along.
        if self.child.try_wait().unwrap().is_none() {
            self.signal("-TERM");
            self.child.wait().unwrap();
        }
    }
}

impl Running {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let args = [&["--plain", "-e", "cpu-clock"], args].concat();
        Self::spawn(&mut command(dir, &args))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let errors = child.stderr.take().map(BufReader::new);
        Self { child, errors, said: String::new() }
    }

    /// Waits until it has said `what` so many times. With `-v`, it says what is open before
    /// the command begins.
    fn until(&mut self, what: &str, times: usize) {
        while self.said.matches(what).count() < times {
            let len = self.errors.as_mut().unwrap().read_line(&mut self.said).unwrap();
            assert!(len > 0, "it ended before `{what}`: {}", self.said);
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Ends it, and the command with it; returns what it has said.
    fn terminate(self) -> String {
        self.signal("-TERM");
        let (code, err) = self.end();
        assert_eq!(code, TERMINATED, "{err}");
        err
    }

    fn end(mut self) -> (Option<i32>, String) {
        self.errors.as_mut().unwrap().read_to_string(&mut self.said).unwrap();
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.said))
    }
}

/// What a file has: samples, the processes they are of, and MMAP2 records.
#[derive(Default)]
struct Contents {
    samples: usize,
    pids: Vec<u32>,
    maps: usize,
}

fn read(path: &Path) -> Contents {
    let data = PerfData::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut contents = Contents::default();
    for raw in data.records() {
        match data.decode(&raw.unwrap()).unwrap() {
            Record::Sample(sample) => {
                contents.samples += 1;
                contents.pids.extend(sample.pid);
            }
            Record::Mmap(_) => contents.maps += 1,
            _ => {}
        }
    }
    contents
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
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
        assert!(err.contains("`--plain` records addresses"), "{err}");
        assert!(!file.exists());
    }
    let left = files(dir.path());
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
fn plain_addresses_work_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let err = plain(dir.path(), &["-g", "-d", "--max-stack", "5", "--", "sh", "-c", SPIN]);
    assert!(err.contains(", plain addresses,"), "{err}");
    let path = dir.path().join("perf.data");
    let contents = read(&path);
    assert!(contents.samples > 20 && contents.maps > 0, "{err}");
    let data = PerfData::open(&path).unwrap();
    let attr = &data.events()[0].attr;
    assert!(attr.has_sample(sample::CALLCHAIN | sample::ADDR) && !attr.wants_build_ids());
    assert_eq!((attr.sample_max_stack, data.events()[0].name.as_str()), (5, "cpu-clock"));
}

/// The command says how long to record; it is not what is recorded.
#[test]
fn a_process_is_recorded_until_a_command_ends() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(dir.path().join("go")).status().unwrap().success());
    let script = format!("read line <go; {SPIN}; : >done; exec sleep 1000");
    let mut watched = Command::new("sh");
    let mut watched = watched.current_dir(dir.path()).args(["-c", &script]).spawn().unwrap();
    let pid = watched.id();
    let command = ": >go; while [ ! -e done ]; do sleep 0.02; done";
    plain(dir.path(), &["-g", "-p", &pid.to_string(), "--", "sh", "-c", command]);
    watched.kill().unwrap();
    watched.wait().unwrap();
    let contents = read(&dir.path().join("perf.data"));
    assert!(contents.samples > 20);
    assert!(contents.pids.iter().all(|of| *of == pid));
    // Its mappings are older than the recording: they are there all the same.
    assert!(contents.maps > 2);
}

/// What is watched ends before the command.
#[test]
fn nothing_left_to_watch_ends_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let mut watched = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = watched.id().to_string();
    let mut running = Running::start(dir.path(), &["-v", "-p", &pid, "--", "sleep", "1000"]);
    running.until("events open", 1);
    drop(watched.stdin.take());
    watched.wait().unwrap();
    let (code, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn limits_end_a_recording_and_its_command() {
    let dir = tempfile::tempdir().unwrap();
    let start = Instant::now();
    plain(dir.path(), &["--duration", "0.3", "--", "sleep", "100"]);
    plain(dir.path(), &[&["-F", "max", "--max-size", "20K"], &SPIN_ON[..]].concat());
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(read(&dir.path().join("perf.data")).samples > 20);
    assert!(dir.path().join("perf.data.old").exists());
}

/// Uses the processor until it is stopped.
const SPIN_ON: [&str; 4] = ["--", "sh", "-c", "while :; do :; done"];

/// What the shell says that was ended together with its recording.
const TERMINATED: Option<i32> = Some(128 + 15);

#[test]
fn what_never_comes_ends_no_recording() {
    let dir = tempfile::tempdir().unwrap();
    let seconds = "--switch-output=10000000000000000000s";
    for args in [&["--duration", "1e19"][..], &["-D", "10000000000000000000"], &[seconds]] {
        plain(dir.path(), &[args, &["--", "true"]].concat());
    }
}

#[test]
fn files_are_switched_and_the_oldest_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--switch-output=8K", "--switch-max-files", "2"];
    let mut running = Running::start(dir.path(), &[&args[..], &SPIN_ON].concat());
    running.until("written to", 3);
    running.terminate();
    let files = files(dir.path());
    assert_eq!(files.len(), 2, "{files:?}");
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let stamp = name.strip_prefix("perf.data.").unwrap();
        assert!(stamp.len() == 16 && stamp.bytes().all(|byte| byte.is_ascii_digit()), "{name}");
        // Each file is a whole one: it also has the mappings of the command.
        let contents = read(file);
        assert!(contents.maps > 0, "{name}: {} samples", contents.samples);
    }
}

/// What collects the files may take them away before they are to be dropped.
#[test]
fn a_file_that_is_gone_need_not_be_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-v", "--switch-output", "--switch-max-files", "2"];
    let mut running = Running::start(dir.path(), &[&args[..], &SPIN_ON].concat());
    running.until("events open", 1);
    for round in 1..=3 {
        running.signal("-USR2");
        running.until("written to", round);
        // But for the one in the making.
        files(dir.path())
            .into_iter()
            .filter(|file| !file.to_str().unwrap().contains(".tmp-"))
            .for_each(|file| std::fs::remove_file(file).unwrap());
    }
    let err = running.terminate();
    assert_eq!(files(dir.path()).len(), 1, "{err}");
}

/// Who reads what it says may end first.
#[test]
fn a_recording_goes_on_unheard() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-v", "--", "sh", "-c", "while [ ! -e go ]; do :; done; exit 7"];
    let mut running = Running::start(dir.path(), &args);
    running.until("events open", 1);
    drop(running.errors.take());
    std::fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(7));
    assert!(dir.path().join("perf.data").exists());
}

/// Files that end faster than the time in their names goes on: each is kept, none is renamed.
#[test]
fn no_file_takes_the_name_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let often = ["-F", "max", "-m", "1", "--switch-output=1B"];
    let mut running = Running::start(dir.path(), &[&often[..], &SPIN_ON].concat());
    running.until("written to", 30);
    let err = running.terminate();
    let files = files(dir.path());
    assert_eq!(files.len(), err.matches("written to").count(), "{err}");
    for file in &files {
        let stamp = file.extension().unwrap().to_str().unwrap();
        assert!(stamp.len() == 16 && err.contains(stamp), "{}: {err}", file.display());
    }
}

/// The signals come from the command, once it has been sampled.
#[test]
fn a_signal_ends_a_recording_in_good_order() {
    let dir = tempfile::tempdir().unwrap();
    // SIGUSR2 means something with --switch-output only.
    let script = format!("{SPIN}; kill -USR2 $PPID; {SPIN}; kill -TERM $PPID; exec sleep 1000");
    let running = Running::start(dir.path(), &["--", "sh", "-c", &script]);
    let (code, err) = running.end();
    // The command got a SIGTERM, too.
    assert_eq!(code, TERMINATED, "{err}");
    assert!(read(&dir.path().join("perf.data")).samples > 20, "{err}");
}

/// Records a script, the way `how` has it.
fn hung_up(dir: &Path, how: &[&str], output: &str, script: &str) -> (Option<i32>, String) {
    let (program, args) = how.split_first().unwrap();
    let mut command = Command::new(program);
    command.current_dir(dir).args(args).arg(env!("CARGO_BIN_EXE_perf-bid"));
    command.args(["record", "--plain", "-e", "cpu-clock", "-o", output, "--", "sh", "-c", script]);
    Running::spawn(&mut command).end()
}

/// A terminal that goes away ends a recording, but not one that was started with nohup(1).
#[test]
fn hanging_up_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{SPIN}; kill -HUP $PPID; exec sleep 1000");
    let (code, err) = hung_up(dir.path(), &["env", "--default-signal=HUP"], "off", &script);
    assert_eq!(code, TERMINATED, "{err}");
    assert!(read(&dir.path().join("off")).samples > 20, "{err}");

    let script = format!("kill -HUP $PPID; {SPIN}; exit 7");
    let (code, err) = hung_up(dir.path(), &["nohup"], "on", &script);
    assert_eq!(code, Some(7), "{err}");
    assert!(read(&dir.path().join("on")).samples > 20, "{err}");
}

#[test]
fn compressed_records_are_smaller() {
    let dir = tempfile::tempdir().unwrap();
    let spin = ["--", "sh", "-c", SPIN];
    plain(dir.path(), &[&["-g", "-o", "a"], &spin[..]].concat());
    plain(dir.path(), &[&["-g", "-z", "-o", "b"], &spin[..]].concat());
    // Of the records alone: the rest is as long in both. How long they are is in the header.
    let size = |name: &str| {
        let file = std::fs::read(dir.path().join(name)).unwrap();
        u64::from_ne_bytes(file[48..56].try_into().unwrap())
    };
    assert!(2 * size("b") < size("a"), "{} and {}", size("a"), size("b"));
}

/// Standard output is the profile's alone: what the command writes goes to standard error.
#[test]
fn a_pipe_starts_with_its_own_header() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--plain", "-e", "cpu-clock", "-o", "-", "--", "sh", "-c", "echo said"];
    let output = command(dir.path(), &args).output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout.starts_with(&u64::from_le_bytes(*b"PERFILE2").to_ne_bytes()));
    assert_eq!(output.stdout[8..16], 16u64.to_ne_bytes());
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("said\n") && err.contains("written to standard output"), "{err}");
    assert!(files(dir.path()).is_empty());
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--plain", "-q", "-e", "cpu-clock", "-a", "-o", "-", "--", "sleep", "100"];
    let mut child =
        command(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn mistakes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32, &str); 23] = [
        (&[], 1, "nothing to record"),
        (&["-e", "cpu-clok", "--", "true"], 1, "did you mean `cpu-clock`"),
        (&["-e", "", "--", "true"], 1, "empty event name"),
        (&["-e", "cpu-clock:x", "--", "true"], 1, "modifier `x`"),
        (&["-e", "{cs,cycles}", "--", "true"], 1, "groups are not supported"),
        (&["-e", "cpu-clock:u", "--all-kernel", "--", "true"], 1, "neither user nor kernel"),
        (&["--call-graph", "dwarf", "--", "true"], 1, "use fp or defer"),
        (&["--call-graph", "lbr", "--", "true"], 1, "use fp or defer"),
        (&["--call-graph", "defer", "--immediate", "--", "true"], 1, "contradict"),
        (&["--max-stack", "65535", "--", "true"], 1, "perf_event_max_stack"),
        (&["-p", "2147483647"], 1, "no process or thread 2147483647"),
        (&["-u", "no-such-user"], 1, "/etc/passwd"),
        (&["-C", "65000"], 1, "not online"),
        (&["-C", "x"], 1, "not a list of CPUs"),
        (&["-m", "3", "--", "true"], 2, "not a power of two"),
        (&["-F", "999999999", "--", "true"], 1, "perf_event_max_sample_rate"),
        (&["-F", "0", "--", "true"], 2, "from 1, or `max`"),
        (&["-F", "1", "-c", "1", "--", "true"], 2, "cannot be used with"),
        (&["--switch-output", "-o", "-", "--", "true"], 1, "a pipe or a device"),
        (&["--switch-output", "-o", "/dev/null", "--", "true"], 1, "a pipe or a device"),
        (&["--switch-output=x", "--", "true"], 2, "a size such as 100M"),
        (&["--max-size", "1X", "--", "true"], 2, "is no size"),
        (&["--plain", "-o", "no/such/dir/x", "-e", "cs", "--", "true"], 1, "no/such/dir/x"),
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
    let dir = tempfile::tempdir().unwrap();
    let args = ["--plain", "-e", "cpu-clock", "-o", "/dev/full", "--", "true"];
    let (code, err) = record(dir.path(), &args);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("cannot write /dev/full"), "{err}");
}

/// An error must not cost the recording that was there before.
#[test]
fn an_older_recording_survives_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    std::fs::write(&file, "older").unwrap();
    let (code, _) = record(dir.path(), &["--plain", "-e", "cpu-clock", "--", "/no/such/program"]);
    assert_eq!(code, Some(1));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "older");
    assert_eq!(files(dir.path()), [file]);
}

/// Nor must it cost the new one.
#[test]
fn a_recording_without_a_name_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    std::fs::write(&file, "older").unwrap();
    std::fs::create_dir_all(dir.path().join("perf.data.old/full")).unwrap();
    let command = ["--plain", "-e", "cpu-clock", "--", "sh", "-c", SPIN];
    let (code, err) = record(dir.path(), &command);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("cannot be moved to perf.data.old"), "{err}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "older");
    let (_, kept) = err.trim_end().rsplit_once("what was recorded before is in ").expect(&err);
    assert!(read(&dir.path().join(kept)).samples > 20, "{err}");
}
