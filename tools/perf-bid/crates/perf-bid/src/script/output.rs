// SPDX-License-Identifier: GPL-2.0
//! Standard output, written by a thread of its own while the next lines are being made.

use std::io;
use std::io::Write;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::sync_channel;

/// Bytes that are written at once.
const CHUNK: usize = 256 << 10;

/// Buffers beside the one that is being filled.
const SPARE: usize = 2;

/// A buffer before standard output.
#[derive(Debug)]
pub struct Output {
    /// Lines go here, at the end.
    pub buffer: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
}

impl Output {
    /// Passes the buffer on if it is full; whether it was. Fails if nobody reads any more.
    pub fn flush_if_full(&mut self) -> Result<bool, Closed> {
        let full = self.buffer.len() >= CHUNK;
        if full {
            self.flush()?;
        }
        Ok(full)
    }

    fn flush(&mut self) -> Result<(), Closed> {
        let mut next = self.empty.recv().map_err(|_| Closed)?;
        next.clear();
        self.full.send(std::mem::replace(&mut self.buffer, next)).map_err(|_| Closed)
    }
}

/// The other side has stopped; why, its own error says.
#[derive(Debug)]
pub struct Closed;

/// Writes to `to` what `fill` puts into the buffer.
///
/// If that fails, `fill` learns no more than that it may stop.
pub fn write<T>(
    mut to: impl Write + Send,
    fill: impl FnOnce(&mut Output) -> Result<T, Closed>,
) -> io::Result<T> {
    let (full, full_rx) = sync_channel::<Vec<u8>>(SPARE);
    let (empty_tx, empty) = sync_channel(SPARE + 1);
    for _ in 0..SPARE {
        // There is room, and the receiver is right here.
        let _ = empty_tx.send(Vec::with_capacity(CHUNK + CHUNK / 4));
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for buffer in full_rx {
                to.write_all(&buffer)?;
                // The other side may have ended already.
                let _ = empty_tx.send(buffer);
            }
            to.flush()
        });
        let mut output = Output { buffer: Vec::new(), full, empty };
        let filled = fill(&mut output).and_then(|value| output.flush().map(|()| value));
        drop(output);
        let written = writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer died")));
        written.and_then(|()| filled.map_err(|Closed| io::Error::other("the writer stopped")))
    })
}
