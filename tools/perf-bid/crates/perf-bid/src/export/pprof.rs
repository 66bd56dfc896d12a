// SPDX-License-Identifier: GPL-2.0
//! pprof's profile.proto, gzipped.
//!
//! Locations have the virtual addresses of their file, and mappings are the file's executable
//! segments at those addresses with the build ID: what a tool needs to look symbols up again,
//! without knowing where the file was mapped. Where the file is not at hand, file offsets
//! stand in, in a mapping of the whole file from address 0, from which pprof tools get the
//! same. Return addresses are those of the call, one byte before.

mod proto;

use std::io::Write;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use flate2::Compression;
use flate2::write::GzEncoder;
use perf_bid_core::abi::flag;
use perf_bid_core::elf::ElfInfo;
use perf_bid_core::elf::Segment;
use perf_bid_core::place::DsoId;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::profile::Key;
use perf_bid_core::profile::Profile;
use perf_bid_core::profile::Weight;
use perf_bid_core::store::read_elf;
use perf_bid_core::symbols::Function;
use perf_bid_core::symbols::Resolved;
use perf_bid_core::symbols::Symbolizer;
use prost::Message;
use rustc_hash::FxHashMap;

use super::Source;
use super::Written;
use crate::open;

/// Size of a page, in bytes: what mappings begin at a multiple of.
const PAGE: u64 = 4096;

/// Writes the profile.
pub fn write(source: &Source<'_>, out: &mut (dyn Write + Send)) -> Written {
    let profile = source.profile(true, true);
    let mut symbolizer = open::symbolizer(&source.data, &profile.hints, &source.args.naming, true)?;
    let mut builder = Builder::default();
    builder.string("");
    builder.describe(source, &profile);
    builder.locations(&profile, &mut symbolizer);
    builder.samples(source, &profile);
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&builder.pprof.encode_to_vec())?;
    gzip.finish()?;
    Ok(profile.damage)
}

#[derive(Default)]
struct Builder {
    pprof: proto::Profile,
    strings: FxHashMap<Arc<str>, i64>,
    functions: FxHashMap<(Arc<str>, Option<Arc<str>>), u64>,
    mappings: FxHashMap<(DsoId, u64), u64>,
    files: FxHashMap<DsoId, Option<ElfInfo>>,
}

impl Builder {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(&at) = self.strings.get(text) {
            return at;
        }
        let at = self.pprof.string_table.len() as i64;
        self.pprof.string_table.push(text.to_owned());
        self.strings.insert(text.into(), at);
        at
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType { kind: self.string(kind), unit: self.string(unit) }
    }

    /// Says what the values are, and when the profile is from.
    fn describe(&mut self, source: &Source<'_>, profile: &Profile) {
        for &event in &source.events {
            let name = source.event_name(event);
            // With one event, its samples are the samples.
            let samples = match source.events.len() {
                1 => "samples".to_owned(),
                _ => format!("{name}:samples"),
            };
            let (kind, unit) = match (source.is_clock(event), source.events.len()) {
                (true, 1) => ("cpu", "nanoseconds"),
                (true, _) => (name, "nanoseconds"),
                (false, _) => (name, "count"),
            };
            let types = [self.value_type(&samples, "count"), self.value_type(kind, unit)];
            self.pprof.sample_type.extend(types);
            if self.pprof.period_type.is_none() {
                self.pprof.period_type = Some(self.value_type(kind, unit));
                let attr = source.data.events().get(event).map(|event| &event.attr);
                let fixed = attr.filter(|attr| !attr.has_flags(flag::FREQ));
                self.pprof.period = fixed.map_or(0, |attr| attr.sample_period as i64);
                self.pprof.default_sample_type = self.string(kind);
            }
        }
        let (first, last) = profile.totals.times.unwrap_or((0, 0));
        let length = last.saturating_sub(first);
        let start = source.start(length).and_then(|start| start.duration_since(UNIX_EPOCH).ok());
        self.pprof.time_nanos = start.map_or(0, |start| start.as_nanos() as i64);
        self.pprof.duration_nanos = length as i64;
        let features = source.data.features();
        let command = features.cmdline.join(" ");
        let comments = [("command", &command)];
        for (key, value) in comments.into_iter().filter(|(_, value)| !value.is_empty()) {
            let comment = self.string(&format!("{key}: {value}"));
            self.pprof.comment.push(comment);
        }
    }

    /// One location for each distinct frame, with the frame's number plus one as its ID.
    fn locations(&mut self, profile: &Profile, symbolizer: &mut Symbolizer) {
        let frames = profile.stacks.frames();
        let resolved: Vec<_> =
            frames.iter().map(|&frame| symbolizer.resolve(&profile.dsos, frame)).collect();
        for origin in symbolizer.problems() {
            let info = origin.file.as_ref().and_then(|path| read_elf(path).ok());
            self.files.extend(origin.dso.map(|dso| (dso, info)));
        }
        for ((&frame, resolved), id) in frames.iter().zip(&resolved).zip(1u64..) {
            let (mapping_id, address) = self.address(&profile.dsos, frame, resolved);
            let line = self.lines(frame, resolved);
            self.pprof.location.push(proto::Location { id, mapping_id, address, line });
        }
    }

    fn lines(&mut self, frame: Frame, resolved: &Resolved) -> Vec<proto::Line> {
        let word = match frame.place {
            Place::Unresolved(status) => Some(format!("[{status}]")),
            Place::Missing => Some("[deferred, missing]".to_owned()),
            _ => resolved.unnamed.map(|start| format!("[function {start:#x}]")),
        };
        match word.filter(|_| resolved.functions.is_empty()) {
            Some(word) => {
                vec![proto::Line { function_id: self.function(&word.into(), None), line: 0 }]
            }
            None => resolved.functions.iter().map(|function| self.line(function)).collect(),
        }
    }

    fn line(&mut self, function: &Function) -> proto::Line {
        let file = function.source.as_ref().map(|(file, _)| file.clone());
        let line = function.source.as_ref().map_or(0, |(_, line)| i64::from(*line));
        proto::Line { function_id: self.function(&function.name, file), line }
    }

    fn function(&mut self, name: &Arc<str>, file: Option<Arc<str>>) -> u64 {
        let key = (name.clone(), file);
        if let Some(&id) = self.functions.get(&key) {
            return id;
        }
        let id = self.pprof.function.len() as u64 + 1;
        let name = self.string(&key.0);
        let filename = key.1.as_ref().map_or(0, |file| self.string(file));
        self.pprof.function.push(proto::Function { id, name, system_name: name, filename });
        self.functions.insert(key, id);
        id
    }

    /// The mapping and the address of a frame; 0 if it has none.
    fn address(&mut self, dsos: &Dsos, frame: Frame, resolved: &Resolved) -> (u64, u64) {
        let back = u64::from(frame.caller);
        match frame.place {
            Place::File { dso, offset } => {
                let offset = offset.saturating_sub(back);
                let file = self.files.get(&dso).and_then(Option::as_ref);
                let found = file.and_then(|info| {
                    let in_segment = |segment: &&Segment| {
                        segment.executable
                            && offset.wrapping_sub(segment.offset) < segment.file_size
                    };
                    Some((*info.segments.iter().find(in_segment)?, info.address_of(offset)?))
                });
                match found {
                    Some((segment, address)) => {
                        let mapping = self.segment(dsos, dso, resolved, &segment);
                        (mapping, address)
                    }
                    None => (self.whole(dsos, dso, resolved, 0, offset), offset),
                }
            }
            Place::Memory { dso, address } => {
                let address = address.saturating_sub(back);
                (self.whole(dsos, dso, resolved, u64::MAX, address), address)
            }
            Place::Unresolved(_) | Place::Missing => (0, 0),
        }
    }

    fn segment(&mut self, dsos: &Dsos, dso: DsoId, resolved: &Resolved, segment: &Segment) -> u64 {
        // As it is mapped: by whole pages.
        let before = segment.address % PAGE;
        let start = segment.address - before;
        let end = segment.address.saturating_add(segment.memory_size);
        let id = self.mapping(dsos, dso, resolved, segment.offset);
        if let Some(mapping) = self.pprof.mapping.get_mut(id as usize - 1) {
            mapping.memory_start = start;
            mapping.memory_limit = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
            mapping.file_offset = segment.offset.saturating_sub(before);
        }
        id
    }

    /// A mapping that grows with the addresses in it; `start` is the lowest it may begin at.
    fn whole(&mut self, dsos: &Dsos, dso: DsoId, resolved: &Resolved, start: u64, at: u64) -> u64 {
        let id = self.mapping(dsos, dso, resolved, u64::MAX);
        if let Some(mapping) = self.pprof.mapping.get_mut(id as usize - 1) {
            let start = start.min(at - at % PAGE);
            let is_new = mapping.memory_limit == 0;
            mapping.memory_start = if is_new { start } else { mapping.memory_start.min(start) };
            let end = at.saturating_add(1).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
            mapping.memory_limit = mapping.memory_limit.max(end);
        }
        id
    }

    fn mapping(&mut self, dsos: &Dsos, dso: DsoId, resolved: &Resolved, part: u64) -> u64 {
        if let Some(&id) = self.mappings.get(&(dso, part)) {
            return id;
        }
        let id = self.pprof.mapping.len() as u64 + 1;
        let build_id = dsos.get(dso).and_then(|dso| dso.build_id);
        let filename = self.string(&resolved.file);
        let build_id = build_id.map_or(0, |build_id| self.string(&build_id.to_string()));
        let named = proto::Mapping { has_functions: true, ..proto::Mapping::default() };
        self.pprof.mapping.push(proto::Mapping { id, filename, build_id, ..named });
        self.mappings.insert((dso, part), id);
        id
    }

    /// One sample for each thread and callchain, with the values of all events.
    fn samples(&mut self, source: &Source<'_>, profile: &Profile) {
        let width = 2 * source.events.len();
        let mut sums: FxHashMap<Key, Vec<i64>> = FxHashMap::default();
        for (&event, column) in source.events.iter().zip((0..).step_by(2)) {
            let Some(event) = profile.events.get(event) else { continue };
            for (key, &Weight { samples, period }) in &event.sums {
                let values = sums.entry(*key).or_insert_with(|| vec![0; width]);
                let own = values.iter_mut().skip(column);
                own.zip([samples, period]).for_each(|(value, sum)| *value = clamp(sum));
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable();
        let keys = ["comm", "pid", "tid"].map(|key| self.string(key));
        for (key, value) in sums {
            let comm = profile.comms.get(key.comm.0 as usize).map_or("?", |comm| comm);
            let text = self.string(comm);
            let [comm, pid, tid] = keys;
            let number = |key, num: u32| proto::Label { key, text: 0, number: num.into() };
            let label = vec![
                proto::Label { key: comm, text, number: 0 },
                number(pid, key.pid),
                number(tid, key.tid),
            ];
            let frames = profile.stacks.walk(key.stack);
            let location_id = frames.map(|frame| u64::from(frame.0) + 1).collect();
            self.pprof.sample.push(proto::Sample { location_id, value, label });
        }
    }
}

fn clamp(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
