// SPDX-License-Identifier: GPL-2.0
//! `bid-oracle`: is every build ID and offset that the kernel puts into samples true?
//!
//! It records a command with addresses and with build IDs side by side, together with every
//! mapping the command makes, and then works out for **every** frame, from the mappings and
//! from the files themselves, what the kernel should have said. What it can prove wrong is a
//! mismatch, and one mismatch is a failure. What cannot be judged is counted by reason and
//! shown, never passed over.
//!
//! The parts: [`capture`] records, [`replay`] keeps the address spaces, [`files`] reads the
//! files' own notes, [`judge`] compares; in deferred mode, [`pairs`] sees to it that samples and
//! callchains belong together.

mod capture;
mod files;
mod judge;
mod pairs;
mod replay;
mod verdict;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use clap::Parser;

/// Checks every build ID and offset that the kernel reports while a command runs.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Example:
  bid-oracle --min-resolved 99 --min-samples 1000 -- python3 -m test.regrtest test_json

Exit status: 0 if all is true and the thresholds are met; 1 otherwise."
)]
pub struct Args {
    /// Event to sample
    #[arg(short, long, default_value = "cpu-clock")]
    pub event: String,

    /// Samples per second
    #[arg(short = 'F', long, default_value_t = 499, conflicts_with = "count",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub freq: u64,

    /// Events from one sample to the next
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Open the event this many times, so that several overflow together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub events: u32,

    /// Have user addresses resolved on the way back to user mode
    #[arg(long)]
    pub deferred: bool,

    /// Pages of each CPU's ring buffer, a power of two
    #[arg(short, long, default_value_t = 2048)]
    pub mmap_pages: usize,

    /// Fail below this percentage of file-backed frames resolved; with --deferred, of those
    /// that were deferred
    #[arg(long, value_name = "PERCENT")]
    pub min_resolved: Option<f64>,

    /// Fail below this many samples
    #[arg(long, value_name = "N")]
    pub min_samples: Option<u64>,

    /// Fail below this many distinct files with resolved frames
    #[arg(long, value_name = "N")]
    pub min_dsos: Option<u64>,

    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Command to run
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bid-oracle: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let capture = capture::run(args)?;
    let verdict = judge::judge(&capture).context("cannot make sense of the records")?;
    verdict.print(&mut std::io::stdout().lock())?;
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&verdict.to_json())?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    let failures = verdict.failures(args);
    for failure in &failures {
        println!("oracle: FAILED: {failure}");
    }
    if args.deferred {
        println!("{}", verdict.pairs.line());
    }
    println!("{}", verdict.line());
    Ok(failures.is_empty())
}
