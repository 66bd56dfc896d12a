// SPDX-License-Identifier: GPL-2.0
//! Adds samples up: by event, command and place for the table, and by whole stack for the
//! flame graph. What it holds grows with the number of distinct places and stacks, not with
//! the number of samples.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;
use std::ops::Deref;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::cursor::Malformed;
use perf_bid_core::data::PerfData;
use perf_bid_core::record::FileKey;
use perf_bid_core::record::Mmap;
use perf_bid_core::record::Record;
use perf_bid_core::record::text;
use perf_bid_core::stream::Counts;
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Joined;
use perf_bid_core::stream::Stream;

/// Where a frame is, as far as the recording tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A byte of a file. `caller`: it is a return address, so that the call lies before it.
    File { id: BuildId, offset: u64, caller: bool },
    /// A kernel address.
    Kernel { address: u64, caller: bool },
    /// Not resolved, for the reason given; the address is of no use to anyone else.
    Unresolved(Status),
    /// Announced for later, and not in the file.
    Missing,
}

impl Place {
    fn new(entry: &Entry, caller: bool) -> Self {
        match (entry.status(), entry.build_id()) {
            (_, Some(id)) => Self::File { id, offset: entry.offset(), caller },
            (Status::Kernel, None) => Self::Kernel { address: entry.offset(), caller },
            (status, None) => Self::Unresolved(status),
        }
    }

    /// Whether the frame runs in the kernel.
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel { .. })
    }
}

/// Samples and what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
}

impl Weight {
    /// Adds `other` in.
    pub fn add(&mut self, other: Weight) {
        self.samples += other.samples;
        self.period = self.period.saturating_add(other.period);
    }
}

/// Counts over the whole recording.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Samples, all events together.
    pub samples: u64,
    /// Frames: callchain entries without markers, or instruction pointers where there is no
    /// callchain.
    pub frames: u64,
    /// Of them, frames in the kernel.
    pub kernel_frames: u64,
    /// User frames with a build ID.
    pub resolved: u64,
    /// User frames without, by reason.
    pub unresolved: BTreeMap<Status, u64>,
    /// Deferred callchains, and how many are missing.
    pub chains: Counts,
    /// Records the kernel dropped.
    pub lost: u64,
    /// Map records that no event wrote: made up by a tool.
    pub synthesized_maps: u64,
    /// Map records of mappings made while recording.
    pub kernel_maps: u64,
    /// Distinct build IDs in user frames.
    pub build_ids: HashSet<BuildId>,
}

impl Totals {
    /// User frames that lie in a file, as far as is known.
    pub fn file_backed(&self) -> u64 {
        let elsewhere = [Status::Anon, Status::NoMm];
        let in_files = self.unresolved.iter().filter(|(status, _)| !elsewhere.contains(status));
        self.resolved + in_files.map(|(_, count)| count).sum::<u64>()
    }

    /// Percentage of file-backed user frames that have a build ID.
    pub fn resolved_percent(&self) -> f64 {
        percent(self.resolved, self.file_backed())
    }

    fn count(&mut self, entry: &Entry) {
        self.frames += 1;
        match (entry.status(), entry.build_id()) {
            (_, Some(id)) => {
                self.resolved += 1;
                self.build_ids.insert(id);
            }
            (Status::Kernel, None) => self.kernel_frames += 1,
            (status, None) => *self.unresolved.entry(status).or_default() += 1,
        }
    }
}

/// `part` of `whole` in percent; 100 if there is nothing to have a part of.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// The sums of one event.
#[derive(Clone, Debug, Default)]
pub struct EventProfile {
    /// All samples.
    pub weight: Weight,
    /// By command (index into [`Profile::comms`]) and place of the instruction pointer.
    pub places: HashMap<(u32, Place), Weight>,
    /// By command and callchain, innermost first; filled only if asked for.
    pub stacks: HashMap<(u32, Box<[Place]>), Weight>,
}

/// A recording, added up.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// In the order of the file's events.
    pub events: Vec<EventProfile>,
    /// Names of threads.
    pub comms: Vec<String>,
    /// Counts.
    pub totals: Totals,
    /// Paths that map records give for build IDs.
    pub hints: Vec<(BuildId, String)>,
    /// Where the file stopped making sense; the sums are of what came before.
    pub damage: Option<Malformed>,
}

/// Reads a file to its end. `progress` is called now and then with the number of bytes read.
pub fn read<B: Deref<Target = [u8]>>(
    data: &PerfData<B>,
    stacks: bool,
    mut progress: impl FnMut(u64),
) -> Profile {
    let mut builder = Builder::new(data, stacks);
    let mut stream = Stream::new(data);
    let mut count = 0u32;
    while let Some(item) = stream.next() {
        match item {
            Ok(Item::Sample(joined)) => builder.sample(&joined),
            Ok(Item::Other(record)) => builder.other(&record),
            Err(error) => builder.profile.damage = Some(error),
        }
        count = count.wrapping_add(1);
        if count.is_multiple_of(4096) {
            progress(stream.position());
        }
    }
    builder.profile.totals.chains = stream.counts();
    builder.profile
}

struct Builder {
    profile: Profile,
    stacks: bool,
    ids: HashSet<u64>,
    comm_of: HashMap<u32, u32>,
    comm_index: HashMap<String, u32>,
    hinted: HashSet<BuildId>,
}

impl Builder {
    fn new<B: Deref<Target = [u8]>>(data: &PerfData<B>, stacks: bool) -> Self {
        let events = vec![EventProfile::default(); data.events().len()];
        let mut builder = Self {
            profile: Profile { events, ..Profile::default() },
            stacks,
            ids: data.events().iter().flat_map(|event| event.ids.iter().copied()).collect(),
            comm_of: HashMap::new(),
            comm_index: HashMap::new(),
            hinted: HashSet::new(),
        };
        let idle = builder.comm("swapper");
        builder.comm_of.insert(0, idle);
        builder
    }

    fn comm(&mut self, name: &str) -> u32 {
        if let Some(&index) = self.comm_index.get(name) {
            return index;
        }
        let index = self.profile.comms.len() as u32;
        self.profile.comms.push(name.to_owned());
        self.comm_index.insert(name.to_owned(), index);
        index
    }

    fn sample(&mut self, joined: &Joined<'_>) {
        let tid = joined.sample.tid.unwrap_or(0);
        let comm = match self.comm_of.get(&tid) {
            Some(&comm) => comm,
            None => {
                let comm = self.comm(&format!(":{tid}"));
                self.comm_of.insert(tid, comm);
                comm
            }
        };
        let weight = Weight { samples: 1, period: joined.sample.period.unwrap_or(1) };
        let totals = &mut self.profile.totals;
        totals.samples += 1;
        let leaf = joined.leaf();
        match joined.sample.bid_callchain {
            Some(_) => joined.frames().for_each(|entry| totals.count(entry)),
            None => leaf.into_iter().for_each(|entry| totals.count(entry)),
        }
        let place = leaf.map_or(Place::Missing, |entry| Place::new(entry, false));
        let Some(event) = self.profile.events.get_mut(joined.event) else {
            return;
        };
        event.weight.add(weight);
        event.places.entry((comm, place)).or_default().add(weight);
        if self.stacks {
            event.stacks.entry((comm, stack(joined, place))).or_default().add(weight);
        }
    }

    fn other(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(comm) => {
                let name = self.comm(&text(comm.comm));
                self.comm_of.insert(comm.tid, name);
            }
            Record::Fork(task) => {
                if let Some(&comm) = self.comm_of.get(&task.ptid) {
                    self.comm_of.insert(task.tid, comm);
                }
            }
            Record::Lost(lost) | Record::LostSamples(lost) => self.profile.totals.lost += lost.lost,
            Record::Mmap(mmap) => self.mmap(mmap),
            _ => {}
        }
    }

    fn mmap(&mut self, mmap: &Mmap<'_>) {
        // The kernel signs its records with the ID of the event that asked for them.
        let by_event = match mmap.id.id {
            Some(id) => self.ids.contains(&id),
            None => mmap.id.time.is_some_and(|time| time != 0),
        };
        let totals = &mut self.profile.totals;
        let count = if by_event { &mut totals.kernel_maps } else { &mut totals.synthesized_maps };
        *count += 1;
        if let FileKey::BuildId(id) = mmap.file
            && self.hinted.insert(id)
        {
            self.profile.hints.push((id, text(mmap.path).into_owned()));
        }
    }
}

fn stack(joined: &Joined<'_>, leaf: Place) -> Box<[Place]> {
    let mut places: Vec<Place> = Vec::new();
    let mut in_kernel = true;
    for entry in joined.frames() {
        // The first frame of each context is where it runs, the others are return addresses.
        let kernel = entry.status() == Status::Kernel;
        let first = places.is_empty() || (in_kernel && !kernel);
        in_kernel = kernel;
        let place = Place::new(entry, !first);
        // Runs of unresolved frames tell no more than one of them.
        if !matches!(place, Place::Unresolved(_)) || places.last() != Some(&place) {
            places.push(place);
        }
    }
    // Every real stack begins in a program or a library. Addresses of no file at its outer end
    // are what a walk along missing frame pointers came upon.
    while places.len() > 1 && places.last() == Some(&Place::Unresolved(Status::Anon)) {
        places.pop();
    }
    if joined.missing {
        places.push(Place::Missing);
    }
    if places.is_empty() {
        places.push(leaf);
    }
    places.into_boxed_slice()
}
