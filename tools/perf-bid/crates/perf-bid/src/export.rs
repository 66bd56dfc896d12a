// SPDX-License-Identifier: GPL-2.0
//! `perf-bid export`

use std::process::ExitCode;

use anyhow::Result;
use anyhow::bail;

use crate::cli;

/// Runs `perf-bid export`.
pub fn run(_args: &cli::Export) -> Result<ExitCode> {
    bail!("export: not there yet");
}
