// SPDX-License-Identifier: GPL-2.0
//! `perf-bid check`

use std::process::ExitCode;

use anyhow::Result;
use anyhow::bail;

use crate::cli;

/// Runs `perf-bid check`.
pub fn run(_args: &cli::Check) -> Result<ExitCode> {
    bail!("check: not there yet");
}
