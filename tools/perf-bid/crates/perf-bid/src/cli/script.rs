// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid script`.

use std::path::PathBuf;

use clap::Args;

/// `perf-bid script`
#[derive(Args, Debug)]
pub struct Script {
    /// File to read
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,
}
