// SPDX-License-Identifier: GPL-2.0
//! `perf-bid script` prints ordinary recordings as `perf script` of perf 7 does, line for line.
//! Three differences are meant:
//!
//! - A return address that is the first byte of a function (`+0x0`) belongs to the function
//!   before it, whose last instruction was the call. perf names the one after.
//! - Stubs of the linkage table have no name of their own; each tool makes one up.
//! - With file offsets, perf names the vDSO after a temporary copy it makes.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

/// Callchains of different depths, in the program, the C library and a child.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void leaf(volatile char *p) { for (long i = 0; i < 64; i++) p[i * 4096] = 1; }
__attribute__((noinline)) void deep(char *p, int depth) { if (depth) deep(p, depth - 1); else leaf(p); __asm__(""); }
int main(void) {
	for (int i = 0; i < 40; i++) {
		char *p = malloc(64 * 4096);
		deep(p, i % 7);
		free(p);
	}
	if (!fork()) execl("/bin/true", "true", (char *)0);
	wait(0);
	return 0;
}
"#;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn record(dir: &Path, args: &[&str]) {
    let version = run(Command::new("perf").arg("--version"));
    assert!(version.starts_with("perf version 7."), "this test compares with perf 7: {version}");
    std::fs::write(dir.join("w.c"), PROGRAM).unwrap();
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o", "w"];
    run(Command::new("gcc").current_dir(dir).args(flags).arg("w.c"));
    let always = ["record", "-q", "-e", "page-faults:u", "-c", "1", "-o", "perf.data"];
    run(Command::new("perf").current_dir(dir).args(always).args(args).args(["--", "./w"]));
}

fn compare(dir: &Path, args: &[&str]) {
    let script = |program: &str| {
        let mut command = Command::new(program);
        run(command.current_dir(dir).args(["script", "-i", "perf.data"]).args(args))
    };
    let (ours, perfs) = (script(env!("CARGO_BIN_EXE_perf-bid")), script("perf"));
    let (ours, perfs): (Vec<_>, Vec<_>) = (ours.lines().collect(), perfs.lines().collect());
    assert!(perfs.len() > 50, "{args:?}: {perfs:?}");
    assert_eq!(ours.len(), perfs.len(), "{args:?}");
    let differ: Vec<_> = ours.iter().zip(&perfs).filter(|(our, perf)| our != perf).collect();
    let meant =
        |perf: &str| ["+0x0 (", "@plt", "/perf-vdso.so-"].iter().any(|part| perf.contains(part));
    let differ: Vec<_> = differ.iter().filter(|(_, perf)| !meant(perf)).collect();
    assert!(differ.is_empty(), "{args:?}: {differ:#?}");
}

#[test]
fn lines_with_callchains_are_those_of_perf() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &["-g"]);
    for args in [
        &["--no-inline"] as &[&str],
        &["--no-inline", "-F", "comm,pid,tid,time,event,ip,sym,symoff,dso"],
        &["--no-inline", "-F", "ip,sym,symoff,dso,dsoff", "--ns"],
        &["--no-inline", "--show-task-events", "--show-mmap-events", "--ns"],
        &["--no-inline", "-G"],
        &["--no-inline", "--max-stack", "2", "--comms", "w"],
    ] {
        compare(dir.path(), args);
    }
}

#[test]
fn lines_of_single_addresses_are_those_of_perf() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &["--sample-cpu"]);
    for args in [
        &["--no-inline"] as &[&str],
        &["--no-inline", "-F", "comm,tid,cpu,time,period,ip,sym"],
        &["--no-inline", "--show-task-events", "--show-mmap-events"],
        &["--no-inline", "-F", "comm,time,event"],
    ] {
        compare(dir.path(), args);
    }
}
