// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid buildids`.

use std::path::PathBuf;

use clap::Args;

/// `perf-bid buildids`
#[derive(Args, Debug)]
pub struct Buildids {
    /// File to read
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,
}
