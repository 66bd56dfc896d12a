// SPDX-License-Identifier: GPL-2.0
//! `perf-bid report` shows what `perf report` shows of the same ordinary recording.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Several functions, a recursive one, and the C library.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define CALLED __attribute__((noinline))
CALLED static long leaf(long n) { volatile long s = 0; for (long i = 0; i < n; i++) s += i; return s; }
CALLED static long rec(int d) { long r = leaf(100000); return d ? r + rec(d - 1) + leaf(d) : r; }
CALLED static long mid(long n) { return leaf(n) + rec(5); }
static int cmp(const void *a, const void *b) { return *(int *)a - *(int *)b; }
CALLED static void sorter(void) {
	static int v[2000];
	for (int i = 0; i < 2000; i++) v[i] = rand();
	qsort(v, 2000, sizeof(int), cmp);
}
int main(void) {
	clock_t end = clock() + CLOCKS_PER_SEC;
	do { mid(400000); sorter(); } while (clock() < end);
	return 0;
}
"#;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn record(dir: &Path) {
    std::fs::write(dir.join("w.c"), PROGRAM).unwrap();
    let flags = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o", "w"];
    run(Command::new("gcc").current_dir(dir).args(flags).arg("w.c"));
    let args = ["record", "-q", "-g", "-F", "999", "-e", "cpu-clock:u", "-o", "perf.data"];
    run(Command::new("perf").current_dir(dir).args(args).args(["--", "./w"]));
}

/// Shares by what else is in the row. Addresses of no file are left out: we say no more of them
/// than how many there are.
fn rows(text: &str, columns: usize) -> BTreeMap<String, Vec<f64>> {
    let mut rows: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains('%') && !line.starts_with('#')) {
        let cells: Vec<_> = line.split(';').map(str::trim).collect();
        let name = cells[columns..].join(" ");
        // Stubs of indirect functions have no name of their own; each tool makes one up.
        if name.contains("[unknown]") || name.contains("[anon]") || name.ends_with("@plt") {
            continue;
        }
        let shares =
            cells[..columns].iter().map(|cell| cell.trim_end_matches('%').parse().unwrap());
        let sums = rows.entry(name).or_insert_with(|| vec![0.0; columns]);
        sums.iter_mut().zip(shares).for_each(|(sum, share): (_, f64)| *sum += share);
    }
    rows
}

#[test]
fn shares_are_those_of_perf() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path());
    for (columns, args) in [
        (1, &["--no-children", "--sort", "comm,dso,sym"] as &[&str]),
        (1, &["--no-children", "--sort", "dso"]),
        (2, &["--children", "--sort", "comm,dso,sym"]),
        (2, &["--children", "--sort", "dso"]),
        (1, &["--no-children", "--sort", "sym", "--dsos", "w"]),
        (1, &["--no-children", "--sort", "sym", "--dsos", "w", "--percentage", "relative"]),
        // Not with --children: what perf then shows depends on the order of the samples.
        (1, &["--no-children", "--sort", "comm,sym", "-S", "leaf,cmp"]),
    ] {
        let both = ["report", "-i", "perf.data", "--stdio", "--no-inline", "-g", "none", "-t", ";"];
        let report = |program: &str| {
            let mut command = Command::new(program);
            run(command.current_dir(dir.path()).args(both).args(args))
        };
        let (ours, perfs) = (report(env!("CARGO_BIN_EXE_perf-bid")), report("perf"));
        let (our_rows, perf_rows) = (rows(&ours, columns), rows(&perfs, columns));
        assert!(!perf_rows.is_empty(), "{args:?}: {perfs}");
        let names = |rows: &BTreeMap<String, Vec<f64>>| rows.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&our_rows), names(&perf_rows), "{args:?}");
        for (name, shares) in &perf_rows {
            let near = our_rows[name].iter().zip(shares).all(|(a, b)| (a - b).abs() < 0.011);
            assert!(near, "{args:?}: {name}: {:?}, perf says {shares:?}", our_rows[name]);
        }
    }
}

/// The caller of a function that calls itself, found both ways.
#[test]
fn call_trees_lead_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path());
    let tree = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
        command.current_dir(dir.path()).args(["report", "-i", "perf.data", "--stdio"]);
        let out = run(command.args(["--sort", "sym"]).args(args));
        let from = out.find("[.] rec").unwrap_or_else(|| panic!("{out}"));
        let rest = &out[from..];
        rest.split("\n\n").next().unwrap().to_owned()
    };
    let callees = tree(&[]);
    assert!(callees.contains("--leaf") && !callees.contains("mid"), "{callees}");
    let callers = tree(&["-g", "callee"]);
    assert!(callers.contains("mid") && callers.contains("main"), "{callers}");
}
