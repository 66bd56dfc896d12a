// SPDX-License-Identifier: GPL-2.0
//! A recording of a machine of the other byte order shows what the same recording of this one
//! does, in every command. The swapping is the reader's test's own, and knows nothing of the
//! reader.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "../../perf-bid-core/tests/reader/foreign.rs"]
#[allow(dead_code, reason = "the reader's test uses the rest")]
mod foreign;

use std::path::Path;
use std::process::Command;

const FIXTURES: [&str; 5] = ["plain", "fields", "group", "tracepoint", "two-events"];

fn fixture(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../perf-bid-core/tests/data");
    std::fs::read(dir.join(format!("{name}.perf"))).unwrap()
}

/// What a command prints for `input`, which `args` has in place of `IN`.
fn printed(dir: &Path, input: &[u8], args: &[&str]) -> String {
    std::fs::write(dir.join("in"), input).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    let output = command.current_dir(dir).args(args).args(["-i", "in"]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(output.stderr));
    text(output.stdout)
}

fn same(args: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    for name in FIXTURES {
        let native = fixture(name);
        let expected = printed(dir.path(), &native, args);
        assert!(!expected.is_empty(), "{name}");
        // Recorders of 64 and of 32 bits lay the feature bits out in different ways.
        for long in [8, 4] {
            let found = printed(dir.path(), &foreign::file(&native, long), args);
            assert_eq!(found, expected, "{name}, {long} bytes");
        }
    }
}

#[test]
fn the_same_report() {
    same(&["report", "--stdio"]);
    same(&["report", "--stdio", "--no-children", "--sort", "comm,dso,sym", "-n"]);
}

#[test]
fn the_same_script() {
    same(&["script"]);
    same(&["script", "--json"]);
}

#[test]
fn the_same_stacks() {
    same(&["export", "--format", "folded", "-o", "-"]);
}

#[test]
fn the_same_profile_of_build_ids() {
    let dir = tempfile::tempdir().unwrap();
    let inject = ["inject", "-q", "--sample-buildids", "-o", "out"];
    let native = fixture("plain");
    printed(dir.path(), &native, &inject);
    let expected = std::fs::read(dir.path().join("out")).unwrap();
    let expected = printed(dir.path(), &expected, &["report", "--stdio"]);
    printed(dir.path(), &foreign::file(&native, 8), &inject);
    let found = std::fs::read(dir.path().join("out")).unwrap();
    assert_eq!(printed(dir.path(), &found, &["report", "--stdio"]), expected);
}
