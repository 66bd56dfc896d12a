// SPDX-License-Identifier: GPL-2.0
//! `perf-bid script`

use std::process::ExitCode;

use anyhow::Result;
use anyhow::bail;

use crate::cli;

/// Runs `perf-bid script`.
pub fn run(_args: &cli::Script) -> Result<ExitCode> {
    bail!("script: not there yet");
}
