// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid check`.

use clap::Args;

/// `perf-bid check`
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 if this user can record build IDs here, else 1.")]
pub struct Check {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}
