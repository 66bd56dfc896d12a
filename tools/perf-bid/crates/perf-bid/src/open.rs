// SPDX-License-Identifier: GPL-2.0
//! What every command that reads a recording begins with: open it ([`data`]), add it up
//! ([`profile`]), and set up what names its frames ([`symbolizer`]).

use std::fs::File;
use std::io;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use perf_bid_core::abi::BuildId;
use perf_bid_core::data::PerfData;
use perf_bid_core::debuginfod::Debuginfod;
use perf_bid_core::kernel::RecordedKernel;
use perf_bid_core::machine::Machine;
use perf_bid_core::profile;
use perf_bid_core::profile::Profile;
use perf_bid_core::record::FileKey;
use perf_bid_core::record::Record;
use perf_bid_core::store::Store;
use perf_bid_core::symbols::KERNEL;
use perf_bid_core::symbols::Options;
use perf_bid_core::symbols::Symbolizer;

use crate::cli::Naming;

/// Files below this size are read before a progress bar could be seen, in bytes.
const PROGRESS_FROM: u64 = 32 << 20;

/// The kernel's map record is among the first this many, if there is one.
const KERNEL_WITHIN: usize = 4096;

/// Longest time that servers may hold a report up, all files together.
const FETCH_LIMIT: Duration = Duration::from_secs(120);

/// Opens a recording; `-` is standard input. Errors name the file, and so does what is said of
/// the parts that were passed over.
pub fn data(path: &Path) -> Result<PerfData> {
    let data = open(path)?;
    for note in data.notes() {
        eprintln!("perf-bid: {}: {note}", path.display());
    }
    Ok(data)
}

fn open(path: &Path) -> Result<PerfData> {
    if path.as_os_str() != "-" {
        return PerfData::open(path).with_context(|| path.display().to_string());
    }
    let stdin = Path::new("/dev/stdin");
    let from = || "standard input".to_owned();
    if stdin.metadata().with_context(from)?.is_file() {
        return PerfData::open(stdin).with_context(from);
    }
    // What comes through a pipe is kept in a file without a name, so that the map of it costs
    // no memory that cannot be written back.
    let mut copy = tempfile::NamedTempFile::new().with_context(from)?;
    io::copy(&mut File::open(stdin).with_context(from)?, &mut copy).with_context(from)?;
    PerfData::open(copy.path()).with_context(from)
}

/// Adds a recording up, with a progress bar if it takes long and someone may watch.
pub fn profile(data: &PerfData, options: profile::Options) -> Profile {
    let Some(bar) = progress(data.data_len(), "reading") else {
        return profile::read(data, options, |_| {});
    };
    let profile = profile::read(data, options, |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    profile
}

/// A progress bar over `len` bytes of input on a terminal, if they are many.
pub fn progress(len: u64, what: &'static str) -> Option<ProgressBar> {
    if len < PROGRESS_FROM || !io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new(len);
    let style = ProgressStyle::with_template("{msg} {bar:40} {bytes}/{total_bytes} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    Some(bar)
}

/// What finds names of frames: in the files that the recording names, and where `args` says.
pub fn symbolizer(
    data: &PerfData,
    hints: &[(BuildId, Arc<str>)],
    args: &Naming,
    srcline: bool,
) -> Result<Symbolizer> {
    for named in [&args.symfs, &args.kallsyms, &args.vmlinux].into_iter().flatten() {
        named.metadata().with_context(|| named.display().to_string())?;
    }
    let mut store = Store::default();
    for (id, path) in hints {
        store.hint(*id, &**path);
    }
    if let Some(dir) = &args.symfs {
        store = store.symfs(dir);
    }
    if let Some(time) = data.modified() {
        store = store.recorded(time);
    }
    if args.fetch {
        let servers = Debuginfod::from_env(FETCH_LIMIT).context(
            "--fetch: no servers to ask; set DEBUGINFOD_URLS, e.g. to \
             https://debuginfod.elfutils.org",
        )?;
        store = store.fetcher(servers.into_fetcher());
    }
    let inline = args.wants_inlined();
    let kernel = recorded_kernel(data, args);
    Ok(Symbolizer::new(store, Options { inline, srcline, kernel, ..Options::default() }))
}

/// What the recording and the user say about the recorded kernel.
fn recorded_kernel(data: &PerfData, args: &Naming) -> RecordedKernel {
    let features = data.features();
    let mut machine = Machine::new(&features.build_ids);
    let mut in_record = None;
    for raw in data.records().map_while(Result::ok).take(KERNEL_WITHIN) {
        let Ok(record) = data.decode(&raw) else { continue };
        machine.record(&record);
        match record {
            Record::Mmap(mmap) if mmap.path.starts_with(KERNEL.as_bytes()) => {
                in_record = in_record.or(match mmap.file {
                    FileKey::BuildId(id) => Some(id),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    let in_table = machine.dsos.get(machine.kernel()).and_then(|dso| dso.build_id);
    let reference = machine.kernel_reference();
    RecordedKernel {
        build_id: in_table.or(in_record),
        boot_id: features.info.boot_id.clone(),
        reference: reference.map(|found| (found.symbol.clone(), found.address)),
        release: features.os_release.clone(),
        kallsyms: args.kallsyms.clone(),
        vmlinux: args.vmlinux.clone(),
    }
}
