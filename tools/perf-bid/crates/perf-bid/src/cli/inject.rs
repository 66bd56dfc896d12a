// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid inject`.

use std::path::PathBuf;

use clap::Args;

/// `perf-bid inject`
#[derive(Args, Debug)]
pub struct Inject {
    /// File to read
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,
}
