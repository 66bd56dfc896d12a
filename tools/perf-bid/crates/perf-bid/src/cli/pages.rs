// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid man` and `perf-bid completions`, which are for packagers.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `perf-bid man`
#[derive(Args, Debug)]
pub struct ManPages {
    /// Directory to write to
    pub dir: PathBuf,
}

/// `perf-bid completions`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perf-bid completions bash > /etc/bash_completion.d/perf-bid
  perf-bid completions zsh > ~/.zfunc/_perf-bid
  perf-bid completions fish > ~/.config/fish/completions/perf-bid.fish")]
pub struct Completions {
    /// What shell
    #[arg(value_enum)]
    pub shell: Shell,
}
