// SPDX-License-Identifier: GPL-2.0
//! Where converted records go.

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::channel;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::misc;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::BuildIdRow;
use perf_bid_core::data::ByteOrder;
use perf_bid_core::data::Features;
use perf_bid_core::data::PerfData;
use perf_bid_core::data::Writer;
use perf_bid_core::data::finished_round;

use crate::record::output::Output;

/// Bytes that are written at once.
const CHUNK: usize = 1 << 18;

/// Records between two marks.
const ROUND: u32 = 1 << 13;

/// Features of the file that was read, not of what is in it: `HEADER_AUXTRACE`,
/// `HEADER_DIR_FORMAT`, `HEADER_COMPRESSED`.
const NOT_COPIED: [u32; 3] = [super::AUXTRACE, 24, 27];

/// Chunks that wait for being written.
const WAITING: usize = 4;

/// A file in the making, whose records are in order. A thread of its own writes it: an entry is
/// four times as long as an address, so that most of the time goes there.
pub struct Sink<'p> {
    path: &'p Path,
    /// Records not handed over yet.
    pub buffer: Vec<u8>,
    chunks: SyncSender<Vec<u8>>,
    /// Chunks to fill again.
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<io::Result<Writer<Output>>>,
    /// Records since the last FINISHED_ROUND.
    round: u32,
    latest: u64,
    sorted: bool,
    /// Nothing more can be written.
    pub failed: bool,
}

impl<'p> Sink<'p> {
    /// Starts the file at `path`, for the events of `data` with other attrs, one for each.
    pub fn create<'a, B: Deref<Target = [u8]>>(
        path: &'p Path,
        data: &PerfData<B>,
        attrs: impl Iterator<Item = &'a Attr>,
    ) -> Result<Self> {
        let events = attrs.zip(data.events());
        let events: Vec<_> =
            events.map(|(attr, event)| (attr.clone(), event.ids.clone())).collect();
        let output = Output::create(path).with_context(|| cannot_write(path))?;
        let writer = Writer::new(output, &events).with_context(|| cannot_write(path))?;
        let (chunks, full) = sync_channel(WAITING);
        let (used, empty) = channel();
        let thread = std::thread::Builder::new().spawn(move || write(writer, &full, &used));
        let thread = thread.context("cannot start a thread")?;
        let buffer = Vec::with_capacity(2 * CHUNK);
        Ok(Self {
            path,
            buffer,
            chunks,
            empty,
            thread,
            round: 0,
            latest: 0,
            sorted: true,
            failed: false,
        })
    }

    /// A record has been appended to the buffer.
    pub fn done(&mut self, time: Option<u64>) {
        // perf itself adds records with time 0: they are of no time.
        if let Some(time) = time.filter(|time| *time != 0) {
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
        if self.buffer.len() >= CHUNK {
            self.flush();
        }
    }

    /// Hands the buffer over. If the thread has ended, it says why when it is joined.
    fn flush(&mut self) {
        let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(2 * CHUNK));
        let chunk = std::mem::replace(&mut self.buffer, next);
        self.failed |= self.chunks.send(chunk).is_err();
    }

    /// Completes the file with the features of `data` and gives it its name; returns its size in
    /// bytes. `hit` becomes the build ID table.
    pub fn finish<B: Deref<Target = [u8]>>(
        mut self,
        data: &PerfData<B>,
        hit: Vec<BuildIdRow>,
        left_out: &[u32],
    ) -> Result<u64> {
        self.flush();
        drop(self.chunks);
        let writer = match self.thread.join() {
            Ok(writer) => writer.with_context(|| cannot_write(self.path))?,
            Err(_) => bail!("{}: the thread that writes has ended", cannot_write(self.path)),
        };
        let mut features = data.features().clone();
        let table = std::mem::replace(&mut features.build_ids, hit);
        // Kernel addresses stay, and with them what tells whose they are.
        features.build_ids.extend(table.into_iter().filter(|row| row.cpumode == misc::KERNEL));
        // What this crate does not write is in the byte order of its file.
        let native = data.byte_order() == ByteOrder::NATIVE;
        let copied = |bit: u32| !Features::writes(bit) && !NOT_COPIED.contains(&bit);
        let others = data
            .feature_sections()
            .filter(|(bit, _)| native && copied(*bit) && !left_out.contains(bit))
            .filter_map(|(bit, bytes)| Some((u8::try_from(bit).ok()?, bytes)));
        let others: Vec<_> = others.collect();
        let finished = writer.finish_with(&features, &others);
        let (mut output, len) = finished.with_context(|| cannot_write(self.path))?;
        output.keep(self.path).with_context(|| cannot_write(self.path))?;
        Ok(len)
    }
}

/// Writes chunks until there are no more.
fn write(
    mut writer: Writer<Output>,
    chunks: &Receiver<Vec<u8>>,
    used: &Sender<Vec<u8>>,
) -> io::Result<Writer<Output>> {
    for mut chunk in chunks {
        writer.write(&chunk)?;
        chunk.clear();
        // Nobody wants it any more when the last records are on their way.
        let _ = used.send(chunk);
    }
    Ok(writer)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
