// SPDX-License-Identifier: GPL-2.0
//! Looks over the records on their way from the ring buffers to the file, for what the file
//! shall say at its end: how much there is, which build IDs were hit and where their files
//! are. Only IDs that samples have hit are ever looked up, each once, when it first appears;
//! the processes' maps are not recorded.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;
use std::path::Path;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::misc;
use perf_bid_core::attr::Attr;
use perf_bid_core::cursor::Malformed;
use perf_bid_core::data::BuildIdRow;
use perf_bid_core::data::comm_record;
use perf_bid_core::record::DeferredFrames;
use perf_bid_core::record::FileKey;
use perf_bid_core::record::Format;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::Record;
use perf_bid_core::record::text;
use perf_bid_core::store;

/// Most processes that are asked for the file of one build ID.
const TRIES_MAX: usize = 16;

/// A build ID that was hit.
#[derive(Debug, Default)]
struct Hit {
    path: Option<String>,
    /// Processes that were asked for it.
    tried: Vec<u32>,
}

/// What to look up on the way.
#[derive(Clone, Copy, Debug)]
pub struct LookUp {
    /// Names of threads that are older than the recording. Those of a command's children
    /// are recorded by the kernel.
    pub names: bool,
    /// Where the files are whose build ID was hit.
    pub files: bool,
}

/// What has gone by since a file was begun.
#[derive(Debug)]
pub struct Scan {
    attr: Attr,
    format: Format,
    first_id: u64,
    look_up: LookUp,
    /// Threads whose name is in the file.
    named: HashSet<u32>,
    /// Paths that records tell of, or that were looked up for an earlier file.
    hints: HashMap<BuildId, String>,
    hit: BTreeMap<BuildId, Hit>,
    kernel_hit: bool,
    /// Samples seen.
    pub samples: u64,
    /// Records the kernel says it dropped, in the buffers' own words.
    pub lost_records: u64,
    /// Times of the first and the last sample.
    pub times: Option<(u64, u64)>,
}

impl Scan {
    /// All events must have the same record format as `attr`.
    pub fn new(attr: &Attr, first_id: u64, look_up: LookUp) -> Self {
        Self {
            attr: attr.clone(),
            format: Format::from(attr),
            first_id,
            look_up,
            named: HashSet::new(),
            hints: HashMap::new(),
            hit: BTreeMap::new(),
            kernel_hit: false,
            samples: 0,
            lost_records: 0,
            times: None,
        }
    }

    /// Starts over for the next file: the names of threads are in the last one, and are
    /// looked up again with `names`.
    pub fn next_file(&mut self, names: bool) {
        let hit = std::mem::take(&mut self.hit);
        let mut hints = std::mem::take(&mut self.hints);
        hints.extend(hit.into_iter().filter_map(|(id, hit)| Some((id, hit.path?))));
        let look_up = LookUp { names, ..self.look_up };
        *self = Self { hints, ..Self::new(&self.attr, self.first_id, look_up) };
    }

    /// Looks over whole records. Appends to `names` the COMM records to write before them.
    pub fn take(&mut self, records: &[u8], names: &mut Vec<u8>) -> Result<(), Malformed> {
        // Names are written before the records, and must not be younger than any of them:
        // what comes from the buffer of one CPU can be older than what came from another's.
        let times = || each(records).filter_map(|raw| self.format.time(&raw.ok()?));
        let oldest = self.look_up.names.then(|| times().min()).flatten().unwrap_or(0);
        for raw in each(records) {
            match self.format.decode(&raw?)? {
                Record::Sample(sample) => {
                    self.samples += 1;
                    self.kernel_hit |= sample.cpumode == misc::KERNEL;
                    let (pid, tid) = (sample.pid.unwrap_or(0), sample.tid.unwrap_or(0));
                    let time = sample.time.unwrap_or(0);
                    let (first, last) = self.times.unwrap_or((time, time));
                    self.times = Some((first.min(time), last.max(time)));
                    self.name(pid, tid, oldest, names);
                    let entries =
                        sample.bid.into_iter().chain(sample.bid_callchain.into_iter().flatten());
                    entries.for_each(|entry| self.hit(entry, pid));
                }
                Record::Deferred(deferred) => {
                    if let DeferredFrames::Entries(entries) = deferred.frames {
                        let pid = deferred.id.pid.unwrap_or(0);
                        entries.iter().for_each(|entry| self.hit(entry, pid));
                    }
                }
                Record::Mmap(mmap) => {
                    if let FileKey::BuildId(id) = mmap.file {
                        self.hints.entry(id).or_insert_with(|| text(mmap.path).into_owned());
                    }
                }
                Record::Comm(comm) => self.known(comm.tid),
                Record::Fork(task) => self.known(task.tid),
                Record::Lost(lost) | Record::LostSamples(lost) => self.lost_records += lost.lost,
                _ => {}
            }
        }
        Ok(())
    }

    /// The build ID table: every ID that was hit.
    pub fn build_ids(&self) -> Vec<BuildIdRow> {
        let mut rows: Vec<_> = self
            .hit
            .iter()
            .map(|(&build_id, hit)| BuildIdRow {
                build_id,
                cpumode: misc::USER,
                // A hint may have come after the first hit.
                path: hit
                    .path
                    .as_ref()
                    .or_else(|| self.hints.get(&build_id))
                    .cloned()
                    .unwrap_or_default(),
            })
            .collect();
        let kernel =
            (self.kernel_hit && self.look_up.files).then(store::running_kernel_build_id).flatten();
        rows.extend(kernel.map(|build_id| BuildIdRow {
            build_id,
            cpumode: misc::KERNEL,
            path: "[kernel.kallsyms]".to_owned(),
        }));
        rows
    }

    fn known(&mut self, tid: u32) {
        if self.look_up.names {
            self.named.insert(tid);
        }
    }

    fn name(&mut self, pid: u32, tid: u32, time: u64, names: &mut Vec<u8>) {
        if !self.look_up.names || !self.named.insert(tid) {
            return;
        }
        // Thread 0 is the idle task, which has no entry in /proc.
        let comm = match tid {
            0 => Ok(b"swapper\n".to_vec()),
            _ => std::fs::read(format!("/proc/{pid}/task/{tid}/comm")),
        };
        if let Ok(comm) = comm {
            let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
            names.extend(comm_record(&self.attr, pid, tid, comm, time, self.first_id));
        }
    }

    fn hit(&mut self, entry: &Entry, pid: u32) {
        if entry.status() == Status::Kernel {
            self.kernel_hit = true;
        }
        let Some(id) = entry.build_id() else { return };
        let hit = self.hit.entry(id).or_default();
        if hit.path.is_some() || hit.tried.len() >= TRIES_MAX || hit.tried.contains(&pid) {
            return;
        }
        // A process may have gone on to another program since: others are asked too.
        hit.tried.push(pid);
        hit.path = self.hints.get(&id).cloned();
        if hit.path.is_some() || !self.look_up.files {
            return;
        }
        hit.path = store::find_in_process(pid, id).map(|path| display(&path));
    }
}

/// The records in a run of whole records.
fn each(records: &[u8]) -> impl Iterator<Item = Result<RawRecord<'_>, Malformed>> {
    let (mut rest, mut offset) = (records, 0);
    std::iter::from_fn(move || match RawRecord::split(rest, offset) {
        Ok(found) => found.map(|(raw, after)| {
            offset += (rest.len() - after.len()) as u64;
            rest = after;
            Ok(raw)
        }),
        Err(error) => {
            rest = &[];
            Some(Err(error))
        }
    })
}

fn display(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use perf_bid_core::abi::record_type;
    use perf_bid_core::event::EventSpec;

    use super::*;

    fn sample_at(time: u64, pid: u32) -> Vec<u8> {
        let pid = pid.to_ne_bytes();
        let mut body = [7u64.to_ne_bytes(), 0x10u64.to_ne_bytes()].concat();
        body.extend([pid, pid].concat());
        body.extend(
            [time.to_ne_bytes(), [0; 8], 1u64.to_ne_bytes(), [0, 4, 0, 0, 0, 0, 0, 0]].concat(),
        );
        body.extend([0; 24]);
        let mut out = record_type::SAMPLE.to_ne_bytes().to_vec();
        out.extend([misc::USER.to_ne_bytes(), (8 + body.len() as u16).to_ne_bytes()].concat());
        out.extend(body);
        out
    }

    #[test]
    fn names_are_older_than_every_sample_of_their_pass() {
        let clock = EventSpec::parse("cpu-clock").unwrap();
        let attr = Attr::builder(&clock).period(1).build_id_offset().build().unwrap();
        let mut scan = Scan::new(&attr, 7, LookUp { names: true, files: true });
        let me = std::process::id();
        let records = [sample_at(20, me), sample_at(10, me)].concat();
        let mut names = Vec::new();
        scan.take(&records, &mut names).unwrap();
        let (raw, rest) = RawRecord::split(&names, 0).unwrap().unwrap();
        assert!(rest.is_empty(), "one name for one thread");
        let Record::Comm(comm) = Format::from(&attr).decode(&raw).unwrap() else {
            panic!("not a name");
        };
        assert_eq!((comm.pid, comm.id.time, comm.id.id), (me, Some(10), Some(7)));
        assert_eq!((scan.samples, scan.times), (2, Some((10, 20))));
        assert!(scan.take(&records[..50], &mut names).is_err());
    }
}
