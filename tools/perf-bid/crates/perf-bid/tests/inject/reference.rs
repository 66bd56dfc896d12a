// SPDX-License-Identifier: GPL-2.0
//! Where code is, computed from map records in the plainest way: a list of mappings for each
//! process, the last one first.

use std::collections::HashMap;

use object::Object;
use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::misc;
use perf_bid_core::data::PerfData;
use perf_bid_core::record::FileKey;
use perf_bid_core::record::Mmap;
use perf_bid_core::record::Record;
use perf_bid_core::record::Sample;

/// Start, length, file offset, build ID (if the file is known to have one) and path.
type Map = (u64, u64, u64, Option<BuildId>, String);

/// What an address is: a place in a file with a build ID, or none.
pub type Place = Option<(BuildId, u64)>;

/// The address spaces of a recording, at one point.
#[derive(Default)]
pub struct Spaces {
    maps: HashMap<u32, Vec<Map>>,
    table: HashMap<String, BuildId>,
}

impl Spaces {
    pub fn of(data: &PerfData) -> Self {
        let rows = data.features().build_ids.iter();
        Self {
            table: rows.map(|row| (row.path.clone(), row.build_id)).collect(),
            ..Self::default()
        }
    }

    pub fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Comm(comm) if comm.exec => drop(self.maps.remove(&comm.pid)),
            Record::Fork(task) if task.pid != task.ppid => {
                let parents = self.maps.get(&task.ppid).cloned().unwrap_or_default();
                self.maps.insert(task.pid, parents);
            }
            Record::Mmap(mmap) => self.map(mmap),
            _ => {}
        }
    }

    /// perf's table has only what it saw on top of callchains; for others the file tells.
    fn map(&mut self, mmap: &Mmap<'_>) {
        let path = String::from_utf8_lossy(mmap.path).into_owned();
        let id = match mmap.file {
            FileKey::BuildId(id) => Some(id),
            _ => self.table.get(&path).copied(),
        };
        let id = id.or_else(|| build_id_at(&path));
        let map = (mmap.addr, mmap.len, mmap.pgoff, id, path);
        self.maps.entry(mmap.pid).or_default().push(map);
    }

    /// Build ID and file offset, and the path, of the mapping that came last.
    pub fn find(&self, pid: u32, address: u64) -> (Place, Option<&str>) {
        let maps = self.maps.get(&pid).into_iter().flatten().rev();
        let mut hits = maps.filter(|(start, len, ..)| address.wrapping_sub(*start) < *len);
        hits.next().map_or((None, None), |(start, _, pgoff, id, path)| {
            (id.map(|id| (id, address - start + pgoff)), Some(path.as_str()))
        })
    }
}

fn build_id_at(path: &str) -> Option<BuildId> {
    let bytes = path.starts_with('/').then(|| std::fs::read(path).ok())??;
    BuildId::new(object::File::parse(&*bytes).ok()?.build_id().ok()??)
}

/// The records of a file by time, in the order of the file where that is the same.
pub fn records(data: &PerfData) -> Vec<Record<'_>> {
    let mut all: Vec<_> = data
        .records()
        .map(|raw| data.decode(&raw.unwrap()).unwrap())
        .map(|record| (record.time().unwrap_or(0), record))
        .collect();
    all.sort_by_key(|(time, _)| *time);
    all.into_iter().map(|(_, record)| record).collect()
}

pub fn samples(data: &PerfData) -> Vec<Sample<'_>> {
    let sample = |record| match record {
        Record::Sample(sample) => Some(sample),
        _ => None,
    };
    records(data).into_iter().filter_map(sample).collect()
}

/// Whether the addresses after a marker are the process's own; `None` if it is no marker.
pub fn user_after(value: u64) -> Option<bool> {
    // PERF_CONTEXT_MAX is -4095; the markers are those with a meaning.
    let markers = [32i64, 128, 512, 640, 2048, 2176, 2560];
    let marker = markers.into_iter().find(|marker| value == (-marker) as u64);
    marker.map(|marker| marker == 512)
}

pub fn is_user(sample: &Sample<'_>) -> bool {
    sample.cpumode == misc::USER
}
