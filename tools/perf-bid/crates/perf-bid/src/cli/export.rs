// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid export`.

use std::path::PathBuf;

use clap::Args;

/// `perf-bid export`
#[derive(Args, Debug)]
pub struct Export {
    /// File to read
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,
}
