// SPDX-License-Identifier: GPL-2.0
//! Signals: SIGINT, SIGTERM and SIGHUP end a recording, SIGUSR2 asks for a new file, SIGCHLD
//! says that the command has ended. Each of them also ends a sleep.

use std::io;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use perf_bid_core::sys::is_ignored;
use signal_hook::consts::SIGCHLD;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::consts::SIGUSR2;

/// What has come in.
pub struct Signals {
    stop: Arc<AtomicBool>,
    switch: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    /// Takes the signals over from now on.
    pub fn new() -> io::Result<Self> {
        let (stop, switch) = (Arc::default(), Arc::default());
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let mut flags = vec![(SIGINT, &stop), (SIGTERM, &stop), (SIGUSR2, &switch)];
        // Who started this with nohup(1) wants it to go on.
        if !is_ignored(SIGHUP)? {
            flags.push((SIGHUP, &stop));
        }
        for (signal, flag) in flags {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, woken.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, woken)?;
        Ok(Self { stop, switch, wake })
    }

    /// Readable once a signal has come in.
    pub fn wake(&self) -> &UnixStream {
        &self.wake
    }

    /// Whether the recording shall end.
    pub fn stop(&mut self) -> bool {
        let mut bytes = [0; 64];
        while self.wake.read(&mut bytes).is_ok_and(|len| len > 0) {}
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether a new file has been asked for since the last call.
    pub fn take_switch(&self) -> bool {
        self.switch.swap(false, Ordering::Relaxed)
    }
}
