// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid check`.

use clap::Args;

/// `perf-bid check`
#[derive(Args, Debug)]
pub struct Check {}
