// SPDX-License-Identifier: GPL-2.0
//! The live counter on a terminal.

use std::io::IsTerminal;
use std::io::stderr;
use std::io::stdout;
use std::time::Instant;

use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;

/// Shows what has been recorded so far.
pub struct Counter {
    bar: ProgressBar,
    last: (Instant, u64),
}

impl Counter {
    /// Shown on a terminal that the command does not write to.
    pub fn new(quiet: bool, command: bool) -> Self {
        let shown = !quiet && stderr().is_terminal() && !(command && stdout().is_terminal());
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self { bar, last: (Instant::now(), 0) }
    }

    /// Shows these numbers, a few times a second.
    pub fn show(&mut self, samples: u64, bytes: u64, lost: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let (at, before) = self.last;
        let elapsed = at.elapsed().as_secs_f64();
        if elapsed < 0.25 {
            return;
        }
        self.last = (Instant::now(), samples);
        let rate = samples.saturating_sub(before) as f64 / elapsed;
        let mb = bytes as f64 / 1e6;
        self.bar.set_message(format!("{samples} samples, {rate:.0}/s, {mb:.1} MB, {lost} lost"));
        self.bar.tick();
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
