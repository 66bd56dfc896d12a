// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid export`.

use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use super::Naming;

/// `perf-bid export`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perf-bid export -o xz.svg                    a flame graph
  perf-bid export -o xz.pb.gz                  for go tool pprof and the like
  perf-bid export -o xz.json                   for https://profiler.firefox.com
  perf-bid export -f speedscope -o xz.txt      for https://www.speedscope.app
  perf-bid export -f folded -o - | sort -nrk2  stacks, counted

Without --format, the end of the name decides: .svg, .pb.gz or .pprof, .json (Firefox Profiler),
.jsonl, .folded or .txt.")]
pub struct Export {
    /// File to read, `-` for standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,

    /// What to write
    #[arg(short, long, value_enum)]
    pub format: Option<Format>,

    /// File to write, `-` for standard output
    #[arg(short, long, value_name = "FILE", value_parser = super::output())]
    pub output: PathBuf,

    /// This event only [default: the one with most samples]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all")]
    pub event: Option<String>,

    /// All events; in folded stacks, its event is then the outermost frame of each
    #[arg(short, long)]
    pub all: bool,

    /// What folded stacks count
    #[arg(short, long, value_enum, default_value_t = Weights::Period)]
    pub weights: Weights,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub naming: Naming,
}

/// A format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each stack: `comm;outermost;…;innermost weight`
    Folded,
    /// A flame graph (SVG)
    #[value(alias = "svg")]
    Flamegraph,
    /// A gzipped profile.proto, with build IDs
    Pprof,
    /// Firefox Profiler: threads over time
    Firefox,
    /// Folded stacks without marks for kernel and inlined frames, as speedscope reads them
    Speedscope,
    /// One JSON object for each sample, as `perf-bid script --json`
    Jsonl,
}

/// What to add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weights {
    /// Samples
    Samples,
    /// Periods: nanoseconds of clocks, else events
    Period,
}
