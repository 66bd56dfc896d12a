// SPDX-License-Identifier: GPL-2.0
//! Where records go: a file, or a pipe.

use std::fs::File;
use std::fs::Metadata;
use std::io;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::Features;
use perf_bid_core::data::PipeWriter;
use perf_bid_core::data::Writer;
use perf_bid_core::event;
use perf_bid_core::event::EventSpec;

use super::output::Output;

/// A recording in the making.
pub enum Sink {
    /// A file with a header that is filled in at the end.
    File(Box<Writer<Output>>),
    /// Records only.
    Pipe(Box<PipeWriter<File>>),
}

/// Whether `path` can only be written from front to back.
pub fn is_pipe(path: &Path) -> bool {
    path.as_os_str() == "-" || path.metadata().is_ok_and(|meta| meta.file_type().is_fifo())
}

/// Whether there can be other files beside `path`, under names that begin with it.
pub fn can_have_others(path: &Path) -> bool {
    let special = |meta: Metadata| !meta.is_file() && !meta.is_dir();
    path.as_os_str() != "-" && !path.metadata().is_ok_and(special)
}

impl Sink {
    /// Starts a recording at `path`, `-` for standard output. `features` has what is known
    /// beforehand.
    pub fn create(
        path: &Path,
        events: &[(Attr, Vec<u64>)],
        features: &Features,
        compression: Option<i32>,
    ) -> Result<Self> {
        if is_pipe(path) {
            let mut writer = PipeWriter::new(open_pipe(path)?, events, features)?;
            compression.map_or(Ok(()), |level| writer.compress(level))?;
            return Ok(Self::Pipe(Box::new(writer)));
        }
        let output = Output::create(path)
            .with_context(|| format!("cannot write next to {}", path.display()))?;
        let mut writer = Writer::new(output, events)
            .with_context(|| format!("cannot write {}", path.display()))?;
        compression.map_or(Ok(()), |level| writer.compress(level))?;
        let named = events.iter().zip(&features.events);
        let tracepoints = named.filter(|((attr, _), _)| EventSpec::is_tracepoint(attr));
        let names: Vec<_> = tracepoints.map(|(_, (name, _))| name.as_str()).collect();
        if !names.is_empty() {
            let data = event::tracing_data(&names);
            writer.describe_tracepoints(data.context("cannot read tracepoints' formats")?);
        }
        Ok(Self::File(Box::new(writer)))
    }

    /// Appends bytes of whole records.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        match self {
            Self::File(writer) => writer.write(records),
            Self::Pipe(writer) => writer.write(records),
        }
    }

    /// Bytes of records so far.
    pub fn len(&self) -> u64 {
        match self {
            Self::File(writer) => writer.data_len(),
            Self::Pipe(writer) => writer.written(),
        }
    }

    /// Whether counts that are known at the end have to be records of their own.
    pub fn is_pipe(&self) -> bool {
        matches!(self, Self::Pipe(_))
    }

    /// Completes the recording; a file moves to `path`. Returns its size. Nothing may be
    /// written afterwards.
    pub fn finish(&mut self, features: &Features, path: &Path) -> io::Result<u64> {
        match self {
            Self::File(writer) => {
                let size = writer.close(features)?;
                writer.get_mut().keep(path)?;
                Ok(size)
            }
            Self::Pipe(writer) => writer.finish(features),
        }
    }

    /// After a failure to write: keeps what did get into the file, at `path` if that can be.
    /// Returns where it is, if there is anything to keep.
    pub fn salvage(&mut self, features: &Features, path: &Path) -> Option<PathBuf> {
        let Self::File(writer) = self else {
            return None;
        };
        if !writer.get_mut().is_beside() || writer.salvage(features).is_err() {
            return None;
        }
        match writer.get_mut().keep(path) {
            Ok(()) => Some(path.to_owned()),
            Err(_) => writer.get_mut().leave(),
        }
    }
}

fn open_pipe(path: &Path) -> Result<File> {
    if path.as_os_str() != "-" {
        let file = File::options().write(true).open(path);
        return file.with_context(|| format!("cannot open {}", path.display()));
    }
    let stdout = io::stdout();
    if stdout.is_terminal() {
        bail!("-o -: a profile is nothing for a terminal; send it through a pipe or to a file");
    }
    Ok(File::from(stdout.as_fd().try_clone_to_owned()?))
}
