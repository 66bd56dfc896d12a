// SPDX-License-Identifier: GPL-2.0
//! A recording, added up: by event, thread name and callchain. What it holds grows with the
//! number of distinct frames and callchains, not with the number of samples.

use std::ops::Deref;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::abi::BuildId;
use crate::abi::Status;
use crate::cursor::Malformed;
use crate::data::PerfData;
use crate::machine::CommId;
use crate::machine::KernelReference;
use crate::machine::Machine;
use crate::machine::RawFrame;
use crate::place::DsoId;
use crate::place::DsoKind;
use crate::place::Dsos;
use crate::place::Frame;
use crate::place::Place;
use crate::record::Mmap;
use crate::record::Record;
use crate::stream::Counts;
use crate::stream::Item;
use crate::stream::Joined;
use crate::stream::Stream;

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
        self.samples = self.samples.saturating_add(other.samples);
        self.period = self.period.saturating_add(other.period);
    }
}

/// Index of a distinct frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// Index of a distinct callchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

impl StackId {
    /// The callchain without frames.
    pub const EMPTY: StackId = StackId(0);
}

/// Callchains that share what they have in common: each is a frame and the callchain of its
/// caller.
#[derive(Clone, Debug)]
pub struct Stacks {
    frames: Vec<Frame>,
    frame_index: FxHashMap<Frame, FrameId>,
    /// The caller's callchain and the innermost frame.
    nodes: Vec<(StackId, FrameId)>,
    node_index: FxHashMap<(StackId, FrameId), StackId>,
}

impl Default for Stacks {
    fn default() -> Self {
        // The first node stands for the empty callchain, and its frame is never looked at.
        Self {
            frames: Vec::new(),
            frame_index: FxHashMap::default(),
            nodes: vec![(StackId::EMPTY, FrameId(0))],
            node_index: FxHashMap::default(),
        }
    }
}

impl Stacks {
    /// The index of `frame`, which is added if it is new.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        let frames = &mut self.frames;
        *self.frame_index.entry(frame).or_insert_with(|| {
            frames.push(frame);
            FrameId(frames.len() as u32 - 1)
        })
    }

    /// The callchain in which `frame` is called from `caller`.
    pub fn push(&mut self, caller: StackId, frame: FrameId) -> StackId {
        let nodes = &mut self.nodes;
        *self.node_index.entry((caller, frame)).or_insert_with(|| {
            nodes.push((caller, frame));
            StackId(nodes.len() as u32 - 1)
        })
    }

    /// All distinct frames, by index.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The frame with index `id`.
    pub fn get(&self, id: FrameId) -> Option<Frame> {
        self.frames.get(id.0 as usize).copied()
    }

    /// The frames of a callchain, innermost first.
    pub fn walk(&self, stack: StackId) -> impl Iterator<Item = FrameId> {
        let mut at = stack;
        std::iter::from_fn(move || {
            if at == StackId::EMPTY {
                return None;
            }
            let &(caller, frame) = self.nodes.get(at.0 as usize)?;
            at = caller;
            Some(frame)
        })
    }

    /// The caller's callchain and the innermost frame of `stack`; `None` if it is empty.
    pub fn split(&self, stack: StackId) -> Option<(StackId, FrameId)> {
        if stack == StackId::EMPTY { None } else { self.nodes.get(stack.0 as usize).copied() }
    }

    /// Number of distinct callchains, the empty one included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no callchain but the empty one.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }
}

/// What samples are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct Key {
    pub comm: CommId,
    pub pid: u32,
    pub tid: u32,
    pub stack: StackId,
}

/// The sums of one event.
#[derive(Clone, Debug, Default)]
pub struct EventProfile {
    /// From the file; may be empty.
    pub name: String,
    /// All samples.
    pub weight: Weight,
    /// By thread name and callchain (and process or thread, if asked for).
    pub sums: FxHashMap<Key, Weight>,
}

/// What to tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whole callchains; otherwise the innermost frame only.
    pub stacks: bool,
    /// Processes of the same name; otherwise [`Key::pid`] is 0.
    pub pid: bool,
    /// Threads of the same name; otherwise [`Key::tid`] is 0.
    pub tid: bool,
}

/// Counts over the whole recording.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Samples, all events together.
    pub samples: u64,
    /// Frames, of callchains or of single instruction pointers.
    pub frames: u64,
    /// Of them, frames in the kernel: in its image, in modules, in BPF programs.
    pub kernel_frames: u64,
    /// Frames in generated code that has names of its own (`perf-PID.map`).
    pub jit_frames: u64,
    /// User frames in a file, by build ID or by mapping.
    pub resolved: u64,
    /// User frames that are not, by reason.
    pub unresolved: FxHashMap<Status, u64>,
    /// Deferred callchains, and how many are missing.
    pub chains: Counts,
    /// Records the kernel dropped.
    pub lost: u64,
    /// Map records that no event wrote: made up by a tool.
    pub synthesized_maps: u64,
    /// Map records of mappings made while recording.
    pub kernel_maps: u64,
    /// Times of the first and the last sample, in nanoseconds.
    pub times: Option<(u64, u64)>,
}

impl Totals {
    /// User frames that lie in a file, as far as is known.
    pub fn file_backed(&self) -> u64 {
        let elsewhere = [Status::Anon, Status::NoMm, Status::Kernel];
        let in_files = self.unresolved.iter().filter(|(status, _)| !elsewhere.contains(status));
        self.resolved + in_files.map(|(_, count)| count).sum::<u64>()
    }

    /// Percentage of file-backed user frames that have a build ID.
    pub fn resolved_percent(&self) -> f64 {
        percent(self.resolved, self.file_backed())
    }
}

/// `part` of `whole` in percent; 100 if there is nothing to have a part of.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// How often a DSO was hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Samples whose innermost frame is in it.
    pub samples: u64,
    /// Frames in it.
    pub frames: u64,
}

/// A recording, added up.
#[derive(Debug)]
pub struct Profile {
    /// In the order of the file's events.
    pub events: Vec<EventProfile>,
    /// What the frames are in.
    pub dsos: Dsos,
    /// How often each was hit, by [`DsoId`]; those past the end were not.
    pub hits: Vec<Hits>,
    /// The distinct frames and callchains.
    pub stacks: Stacks,
    /// Names of threads, by [`CommId`].
    pub comms: Vec<Arc<str>>,
    /// Paths that the recording gives for build IDs.
    pub hints: Vec<(BuildId, Arc<str>)>,
    /// What kernel addresses are relative to, if the recording says so.
    pub kernel_reference: Option<KernelReference>,
    /// Counts.
    pub totals: Totals,
    /// Where the file stopped making sense; the sums are of what came before.
    pub damage: Option<Malformed>,
}

impl Profile {
    /// How often a DSO was hit.
    pub fn hits(&self, dso: DsoId) -> Hits {
        self.hits.get(dso.0 as usize).copied().unwrap_or_default()
    }
}

/// Reads a file to its end. `progress` is called now and then with the number of bytes read.
pub fn read<B: Deref<Target = [u8]>>(
    data: &PerfData<B>,
    options: Options,
    mut progress: impl FnMut(u64),
) -> Profile {
    let mut builder = Builder::new(data, options);
    let mut stream = Stream::new(data);
    let mut count = 0u32;
    while let Some(item) = stream.next() {
        match item {
            Ok(Item::Sample(joined)) => builder.sample(&joined),
            Ok(Item::Other(record)) => builder.other(&record),
            Err(error) => builder.damage = Some(error),
        }
        count = count.wrapping_add(1);
        if count.is_multiple_of(4096) {
            progress(stream.position());
        }
    }
    builder.totals.chains = stream.counts();
    builder.finish()
}

fn hits_of(hits: &mut Vec<Hits>, dso: DsoId) -> &mut Hits {
    let index = dso.0 as usize;
    if index >= hits.len() {
        hits.resize(index + 1, Hits::default());
    }
    // The index is below the length now.
    #[allow(clippy::indexing_slicing)]
    &mut hits[index]
}

/// Number of threads whose last callchain is at hand.
const RECENT: usize = 64;

/// The last callchains of some threads. The next one mostly has the outer part in common.
#[derive(Debug)]
struct Recent {
    /// By the low bits of the thread's ID. Each is a frame and the callchain up to it, outermost
    /// first; whose callchain it was does not matter.
    slots: [Vec<(Frame, StackId)>; RECENT],
}

/// A callchain that is entered from its outer end on, along an older one.
struct Walk<'a> {
    chain: &'a mut Vec<(Frame, StackId)>,
    depth: usize,
    stack: StackId,
}

impl Recent {
    fn walk(&mut self, tid: u32) -> Walk<'_> {
        // In range by the remainder.
        #[allow(clippy::indexing_slicing)]
        let chain = &mut self.slots[tid as usize % RECENT];
        Walk { chain, depth: 0, stack: StackId::EMPTY }
    }
}

impl Walk<'_> {
    fn enter(&mut self, frame: Frame, stacks: &mut Stacks) {
        match self.chain.get(self.depth) {
            Some(&(same, stack)) if same == frame => self.stack = stack,
            _ => {
                let id = stacks.frame(frame);
                self.stack = stacks.push(self.stack, id);
                self.chain.truncate(self.depth);
                self.chain.push((frame, self.stack));
            }
        }
        self.depth += 1;
    }

    fn finish(self) -> StackId {
        self.stack
    }
}

struct Builder {
    machine: Machine,
    options: Options,
    events: Vec<EventProfile>,
    stacks: Stacks,
    recent: Recent,
    hits: Vec<Hits>,
    totals: Totals,
    damage: Option<Malformed>,
    /// IDs of events.
    ids: FxHashMap<u64, ()>,
    frames: Vec<RawFrame>,
}

impl Builder {
    fn new<B: Deref<Target = [u8]>>(data: &PerfData<B>, options: Options) -> Self {
        let named = |name: &String| EventProfile { name: name.clone(), ..EventProfile::default() };
        Self {
            machine: Machine::new(&data.features().build_ids),
            options,
            events: data.events().iter().map(|event| named(&event.name)).collect(),
            stacks: Stacks::default(),
            recent: Recent { slots: [const { Vec::new() }; RECENT] },
            hits: Vec::new(),
            totals: Totals::default(),
            damage: None,
            ids: data.events().iter().flat_map(|event| &event.ids).map(|&id| (id, ())).collect(),
            frames: Vec::new(),
        }
    }

    fn finish(mut self) -> Profile {
        self.sum_up();
        Profile {
            events: self.events,
            comms: self.machine.comm_names().to_vec(),
            hints: self.machine.hints(),
            kernel_reference: self.machine.kernel_reference().cloned(),
            dsos: self.machine.dsos,
            hits: self.hits,
            stacks: self.stacks,
            totals: self.totals,
            damage: self.damage,
        }
    }

    /// Adds the hits up by kind of DSO.
    fn sum_up(&mut self) {
        let totals = &mut self.totals;
        for ((_, dso), hits) in self.machine.dsos.iter().zip(&self.hits) {
            let sum = match dso.kind {
                DsoKind::File | DsoKind::Vdso => &mut totals.resolved,
                DsoKind::Anon { .. } => &mut totals.jit_frames,
                DsoKind::Kernel | DsoKind::Module | DsoKind::Ksymbol { .. } => {
                    &mut totals.kernel_frames
                }
            };
            *sum += hits.frames;
        }
        let unresolved = totals.unresolved.values().sum::<u64>();
        let placed = totals.resolved + totals.jit_frames + totals.kernel_frames;
        totals.frames = placed + unresolved;
    }

    fn sample(&mut self, joined: &Joined<'_>) {
        let sample = &joined.sample;
        let tid = sample.tid.unwrap_or(0);
        let comm = self.machine.comm(tid);
        let weight = Weight { samples: 1, period: sample.period.unwrap_or(1) };
        self.machine.frames_from_ip(joined, &mut self.frames);
        self.count(sample.time);
        let with = |wanted: bool, value: u32| if wanted { value } else { 0 };
        let key = Key {
            comm,
            pid: with(self.options.pid, sample.pid.unwrap_or(0)),
            tid: with(self.options.tid, tid),
            stack: self.stack(tid),
        };
        let Some(event) = self.events.get_mut(joined.event) else {
            return;
        };
        event.weight.add(weight);
        event.sums.entry(key).or_default().add(weight);
    }

    fn count(&mut self, time: Option<u64>) {
        let totals = &mut self.totals;
        totals.samples += 1;
        let mut leaf = 1;
        for raw in &self.frames {
            match raw.frame.place {
                Place::File { dso, .. } | Place::Memory { dso, .. } => {
                    let hits = hits_of(&mut self.hits, dso);
                    hits.frames += 1;
                    hits.samples += leaf;
                }
                Place::Unresolved(status) => *totals.unresolved.entry(status).or_default() += 1,
                Place::Missing => {}
            }
            leaf = 0;
        }
        if let Some(time) = time {
            let (first, last) = totals.times.unwrap_or((time, time));
            totals.times = Some((first.min(time), last.max(time)));
        }
    }

    /// The callchain of the frames at hand, which are those of thread `tid`.
    fn stack(&mut self, tid: u32) -> StackId {
        let anon = Place::Unresolved(Status::Anon);
        let frames = &self.frames;
        let frames = if self.options.stacks { frames } else { frames.get(..1).unwrap_or_default() };
        // Every real stack begins in a program or a library. Addresses of no file at its outer
        // end are what a walk along missing frame pointers came upon.
        let outer = frames.iter().rev().take_while(|raw| raw.frame.place == anon).count();
        let real = frames.len().saturating_sub(outer).max(1);
        let mut walk = self.recent.walk(tid);
        let mut last = None;
        for raw in frames.get(..real).unwrap_or(frames).iter().rev() {
            // Runs of unresolved frames tell no more than one of them.
            if last == Some(raw.frame.place) && matches!(raw.frame.place, Place::Unresolved(_)) {
                continue;
            }
            last = Some(raw.frame.place);
            walk.enter(raw.frame, &mut self.stacks);
        }
        walk.finish()
    }

    fn other(&mut self, record: &Record<'_>) {
        match record {
            Record::Lost(lost) | Record::LostSamples(lost) => self.totals.lost += lost.lost,
            Record::Mmap(mmap) => self.mmap(mmap),
            _ => {}
        }
        self.machine.record(record);
    }

    fn mmap(&mut self, mmap: &Mmap<'_>) {
        // The kernel signs its records with the ID of the event that asked for them.
        let by_event = match mmap.id.id {
            Some(id) => self.ids.contains_key(&id),
            None => mmap.id.time.is_some_and(|time| time != 0),
        };
        let totals = &mut self.totals;
        let count = if by_event { &mut totals.kernel_maps } else { &mut totals.synthesized_maps };
        *count += 1;
    }
}
