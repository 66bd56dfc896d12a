// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid report`.

use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

/// `perf-bid report`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perf-bid report                              a table of the hottest symbols
  perf-bid report --sort dso,buildid           which files
  perf-bid report --flamegraph out.svg         callchains as a flame graph

A row in [brackets] is an address the kernel could not resolve, with the reason it gave.")]
pub struct Report {
    /// File to read
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,

    /// Plain text on standard output (the only view so far)
    #[arg(long)]
    pub stdio: bool,

    /// Leave out rows below this share
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub percent_limit: f64,

    /// Columns to group by
    #[arg(short, long, value_delimiter = ',', value_enum,
          default_values = ["comm", "dso", "buildid", "symbol"])]
    pub sort: Vec<SortKey>,

    /// Show at most this many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,

    /// Write a flame graph of the callchains
    #[arg(long, value_name = "SVG")]
    pub flamegraph: Option<PathBuf>,

    /// Write totals and rows as JSON, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Print one line of totals and no table
    #[arg(long)]
    pub totals: bool,
}

/// A column to group by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Name of the thread
    Comm,
    /// Path of the file, or what there is instead of one
    Dso,
    /// Function
    #[value(alias = "sym")]
    Symbol,
    /// First 12 digits of the build ID
    #[value(alias = "build-id")]
    Buildid,
}
