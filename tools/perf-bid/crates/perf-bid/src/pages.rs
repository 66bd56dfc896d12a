// SPDX-License-Identifier: GPL-2.0
//! Manual pages and shell completions, made from the definition of the command line.

use std::io;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use clap::CommandFactory;

use crate::cli;
use crate::cli::Cli;

/// Runs `perf-bid man`: a page for each command.
pub fn man(args: &cli::ManPages) -> Result<ExitCode> {
    let shown = || args.dir.display().to_string();
    std::fs::create_dir_all(&args.dir).with_context(shown)?;
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.dir).with_context(shown)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `perf-bid completions`.
pub fn completions(args: &cli::Completions) -> Result<ExitCode> {
    let mut command = Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "perf-bid", &mut script);
    io::stdout().write_all(&script).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
