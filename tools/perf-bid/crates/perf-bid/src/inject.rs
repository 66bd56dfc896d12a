// SPDX-License-Identifier: GPL-2.0
//! `perf-bid inject`

use std::process::ExitCode;

use anyhow::Result;
use anyhow::bail;

use crate::cli;

/// Runs `perf-bid inject`.
pub fn run(_args: &cli::Inject) -> Result<ExitCode> {
    bail!("inject: not there yet");
}
