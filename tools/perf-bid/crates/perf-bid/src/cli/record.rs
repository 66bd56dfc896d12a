// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

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
