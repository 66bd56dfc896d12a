// SPDX-License-Identifier: GPL-2.0
//! Options of every command that names code: where symbols come from.

use std::path::PathBuf;

use clap::Args;

/// Where symbols come from.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Symbols")]
pub struct Naming {
    /// Look for files below this directory
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,

    /// Take kernel symbols from this copy of /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub kallsyms: Option<PathBuf>,

    /// Take kernel symbols from this kernel image
    #[arg(short = 'k', long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,

    /// Fetch missing files from the servers in DEBUGINFOD_URLS
    #[arg(long)]
    pub fetch: bool,

    /// Show inlined functions as frames of their own (the default)
    #[arg(long, overrides_with = "no_inline")]
    pub inline: bool,

    /// Show only functions that were called
    #[arg(long)]
    pub no_inline: bool,
}

impl Naming {
    /// Whether inlined functions are asked for.
    pub fn wants_inlined(&self) -> bool {
        self.inline || !self.no_inline
    }
}
