// SPDX-License-Identifier: GPL-2.0
//! The command line. Option names are those of `perf record` and `perf report` where perf has
//! the option.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;

/// Profiles that name code by build ID and file offset, without memory maps.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, or watch tasks or CPUs, and write samples to a file
    Record(Record),
    /// Show where the samples of a recording fell
    Report(Report),
}

/// `perf-bid record`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perf-bid record -g -- xz -k big.tar      profile a command, with callchains
  perf-bid record -e cpu-clock -F 999 -a -- sleep 10
  perf-bid record -p 1234,1240             until they end, or Ctrl-C

Exit status: that of the command (128 + N if signal N ended it); 1 on an error of its own.")]
pub struct Record {
    /// Event to sample; may be repeated or a list [default: cpu-cycles, or cpu-clock where
    /// there are no hardware counters]
    #[arg(short, long = "event", value_name = "EVENT", value_delimiter = ',')]
    pub event: Vec<String>,

    /// Samples per second [default: 4000]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub freq: Option<u64>,

    /// Events from one sample to the next
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Everything that runs on any CPU
    #[arg(short, long, conflicts_with_all = ["pid", "tid"])]
    pub all_cpus: bool,

    /// Processes that run already, with all their threads
    #[arg(short, long, value_name = "PID", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Vec<i32>,

    /// Threads that run already
    #[arg(short, long, value_name = "TID", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..))]
    pub tid: Vec<i32>,

    /// Record callchains
    #[arg(short = 'g')]
    pub callchain: bool,

    /// Have user addresses resolved when the sample is taken, where page faults are not
    /// allowed, even if the kernel can do it on the way back to user mode
    #[arg(long)]
    pub immediate: bool,

    /// File to write; an older one is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub output: PathBuf,

    /// Pages of each CPU's ring buffer, a power of two
    #[arg(short, long, value_name = "PAGES", default_value_t = 512)]
    pub mmap_pages: usize,

    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,

    /// Command to run and profile
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
