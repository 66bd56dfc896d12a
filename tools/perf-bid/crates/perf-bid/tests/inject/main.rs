// SPDX-License-Identifier: GPL-2.0
//! `perf-bid inject` in both directions: on recordings that stock perf makes here and now, and
//! on files made for one case each.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod made;
mod recorded;
mod reference;

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

/// A directory for one test.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `perf-bid inject` here; exit code and what it says.
    fn inject(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
        let Output { status, stderr, .. } =
            command.current_dir(self.0.path()).arg("inject").args(args).output().unwrap();
        (status.code(), String::from_utf8_lossy(&stderr).into_owned())
    }

    /// The same, which must succeed.
    fn convert(&self, args: &[&str]) -> String {
        let (code, says) = self.inject(args);
        assert_eq!(code, Some(0), "{args:?}: {says}");
        says
    }

    /// Runs another command here, which must succeed; what it prints.
    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new(args[0]);
        command.current_dir(self.0.path()).args(&args[1..]);
        let Output { status, stdout, stderr } =
            command.output().unwrap_or_else(|error| panic!("{args:?}: {error}"));
        let says = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{args:?}: {says}");
        String::from_utf8_lossy(&stdout).into_owned()
    }
}

fn files_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
