// SPDX-License-Identifier: GPL-2.0
//! `perf-bid buildids`

use std::process::ExitCode;

use anyhow::Result;
use anyhow::bail;

use crate::cli;

/// Runs `perf-bid buildids`.
pub fn run(_args: &cli::Buildids) -> Result<ExitCode> {
    bail!("buildids: not there yet");
}
