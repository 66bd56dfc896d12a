// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid script`.

use std::path::Path;
use std::path::PathBuf;

use clap::Args;

use super::Naming;

/// `perf-bid script`
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "\
Examples:
  perf-bid script | less                        as perf script prints it
  perf-bid script -F comm,tid,time,ip,sym       these fields only
  perf-bid script -F +srcline,-period           the default ones and a change
  perf-bid script --json | jq .comm             one object for each sample
  perf-bid script --comms xz --time 12.5,13     part of a recording

Fields: comm, tid, pid, time, cpu, event, period, addr, weight; of each frame ip, sym, symoff,
dso, dsoff, srcline, buildid, offset, status. In a recording with build IDs, ip is the file offset
where the file is known, and the address where it is not.")]
pub struct Script {
    /// File to read, `-` for standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,

    /// Fields to print, or changes to the default ones with + and -
    #[arg(
        short = 'F',
        long,
        value_name = "LIST",
        allow_hyphen_values = true,
        conflicts_with = "json"
    )]
    pub fields: Option<String>,

    /// One JSON object a line
    #[arg(long)]
    pub json: bool,

    /// Times in nanoseconds
    #[arg(long)]
    pub ns: bool,

    /// Instruction pointers only
    #[arg(short = 'G', long)]
    pub hide_call_graph: bool,

    /// At most this many frames of a callchain
    #[arg(long, value_name = "N")]
    pub max_stack: Option<usize>,

    /// Samples of threads with these names only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub comms: Vec<String>,

    /// Samples of these processes only
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// Samples of these threads only
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    pub tid: Vec<u32>,

    /// Samples that fell in these files only
    #[arg(long, value_name = "DSO", value_delimiter = ',')]
    pub dsos: Vec<String>,

    /// Samples that fell in these functions only
    #[arg(short = 'S', long, value_name = "SYMBOL", value_delimiter = ',')]
    pub symbols: Vec<String>,

    /// Samples of this time only, in seconds as they are printed; either may be left out
    #[arg(long, value_name = "START,END")]
    pub time: Option<String>,

    /// Print COMM, FORK and EXIT records too
    #[arg(long)]
    pub show_task_events: bool,

    /// Print map records too
    #[arg(long)]
    pub show_mmap_events: bool,

    /// Print records of lost events too
    #[arg(long)]
    pub show_lost_events: bool,

    /// Name a caller by the symbol at the return address, as perf does, and not by that of the
    /// call before it, which can be in another function
    #[arg(long)]
    pub return_addresses: bool,

    /// Say first where and how the file was recorded
    #[arg(long)]
    pub header: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub naming: Naming,
}

impl Script {
    /// All of `input` as JSON.
    pub fn as_json(input: &Path, naming: &Naming) -> Self {
        Self { input: input.to_owned(), json: true, naming: naming.clone(), ..Self::default() }
    }
}
