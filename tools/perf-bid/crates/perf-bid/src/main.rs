// SPDX-License-Identifier: GPL-2.0
//! `perf-bid`: record and report profiles whose samples name code by build ID and file
//! offset, on a kernel with `CONFIG_PERF_BUILD_ID_OFFSET`. Found by `perf` as `perf bid` once
//! it is in perf's exec path.

mod buildids;
mod check;
mod cli;
mod export;
mod inject;
mod open;
mod pages;
mod record;
mod report;
mod script;

use std::io::Write;
use std::io::stderr;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let result = match &cli.command {
        cli::Command::Record(args) => record::run(args),
        cli::Command::Script(args) => script::run(args),
        cli::Command::Report(args) => report::run(args),
        cli::Command::Inject(args) => inject::run(args),
        cli::Command::Export(args) => export::run(args),
        cli::Command::Buildids(args) => buildids::run(args),
        cli::Command::Check(args) => check::run(args),
        cli::Command::Man(args) => pages::man(args),
        cli::Command::Completions(args) => pages::completions(args),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Where this cannot be said, the exit status still is.
            let _ = writeln!(stderr(), "perf-bid: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// `perf-bid report | head` is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
