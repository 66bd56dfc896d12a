// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid buildids`.

use std::path::PathBuf;

use clap::Args;

use super::Naming;

/// `perf-bid buildids`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perf-bid buildids                  the files that were hit, and where they are
  DEBUGINFOD_URLS=https://debuginfod.elfutils.org perf-bid buildids --fetch
  perf-bid buildids --all --json     everything the recording knows of")]
pub struct Buildids {
    /// File to read, `-` for standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,

    /// Files with hits only (the default)
    #[arg(short = 'H', long, overrides_with = "all")]
    pub with_hits: bool,

    /// Files without hits too, if the recording gives their build IDs
    #[arg(short, long, overrides_with = "with_hits")]
    pub all: bool,

    /// Write JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub naming: Naming,
}
