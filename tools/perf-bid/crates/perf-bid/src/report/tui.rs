// SPDX-License-Identifier: GPL-2.0
//! The report in a terminal. [`app`] is what is shown and what keys do to it, [`draw`] is how it
//! looks; here is the terminal itself, which is given back as it was however this ends.

mod app;
mod draw;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event;
use ratatui::crossterm::event::Event;
use ratatui::crossterm::event::KeyEventKind;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;

use self::app::App;
pub use self::app::Source;

/// How long a signal may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(200);

/// Exit status after a signal that the terminal did not survive.
const HUNG_UP: i32 = 129;

/// Browses a profile until the user has seen enough.
pub fn run(source: Source<'_>) -> Result<()> {
    let mut app = App::new(source);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch signals")?;
    }
    exit_if_stuck(Arc::clone(&stop));
    // Also restores the terminal should anything panic.
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let result = browse(&mut app, &mut terminal, &stop, colours);
    ratatui::try_restore().context("cannot restore the terminal")?;
    result
}

/// Ends the process if a signal is not acted upon: waiting for keys never ends on a terminal
/// that was hung up.
fn exit_if_stuck(stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PATIENCE);
        }
        std::thread::sleep(PATIENCE * 5);
        ratatui::restore();
        std::process::exit(HUNG_UP);
    });
}

fn browse(
    app: &mut App<'_>,
    terminal: &mut DefaultTerminal,
    stop: &AtomicBool,
    colours: bool,
) -> Result<()> {
    while !app.is_done() && !stop.load(Ordering::Relaxed) {
        terminal.draw(|frame| draw::draw(frame, app, colours)).context("cannot draw")?;
        // All that is there before drawing again: held keys must not lag behind.
        let mut wait = PATIENCE;
        while event::poll(wait).context("cannot read keys")? {
            match event::read().context("cannot read keys")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => app.key(key),
                _ => {}
            }
            wait = Duration::ZERO;
        }
    }
    Ok(())
}
