// SPDX-License-Identifier: GPL-2.0
//! Where converted records go.

use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::Features;
use perf_bid_core::data::Writer;
use perf_bid_core::data::finished_round;

use crate::record::output::Output;

/// Bytes that are written at once.
const CHUNK: usize = 1 << 18;

/// Records between two marks.
const ROUND: u32 = 1 << 16;

/// A file in the making, whose records are in order.
pub struct Sink<'p> {
    path: &'p Path,
    writer: Writer<Output>,
    /// Records not written yet.
    pub buffer: Vec<u8>,
    /// Records since the last FINISHED_ROUND.
    round: u32,
    latest: u64,
    sorted: bool,
}

impl<'p> Sink<'p> {
    /// Starts the file at `path`, for events with these attrs and IDs.
    pub fn create(path: &'p Path, events: &[(Attr, Vec<u64>)]) -> Result<Self> {
        let output = Output::create(path).with_context(|| cannot_write(path))?;
        let writer = Writer::new(output, events).with_context(|| cannot_write(path))?;
        let buffer = Vec::with_capacity(2 * CHUNK);
        Ok(Self { path, writer, buffer, round: 0, latest: 0, sorted: true })
    }

    /// A record has been appended to the buffer.
    pub fn done(&mut self, time: Option<u64>) -> Result<()> {
        if let Some(time) = time {
            self.sorted &= time >= self.latest;
            self.latest = self.latest.max(time);
        }
        self.round += 1;
        // A mark tells readers that nothing older is to come, so that they can let go of what
        // they hold. In a file without order it would be a lie.
        if self.round >= ROUND && self.sorted {
            self.round = 0;
            self.buffer.extend_from_slice(&finished_round());
        }
        if self.buffer.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.writer.write(&self.buffer).with_context(|| cannot_write(self.path))?;
        self.buffer.clear();
        Ok(())
    }

    /// Completes the file and gives it its name; returns its size in bytes.
    pub fn finish(mut self, features: &Features) -> Result<u64> {
        self.flush()?;
        let (output, len) =
            self.writer.finish(features).with_context(|| cannot_write(self.path))?;
        output.keep().with_context(|| cannot_write(self.path))?;
        Ok(len)
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
