// SPDX-License-Identifier: GPL-2.0
//! Addresses for places in files: every build ID gets a range of its own, the same in all
//! processes, in order of first use.
//!
//! A file that can be found is laid out as a loader would do it, with a mapping for each
//! executable segment at the distance that the program headers say. Of a file that cannot be
//! found it is not known which parts are code: it is mapped as a whole, a [`WINDOW`] at a time,
//! and what of it is hit becomes a map record. Either way, address - start + pgoff is the file
//! offset, which is what tools compute.

use perf_bid_core::abi::BuildId;
use perf_bid_core::data::BuildIdRow;
use perf_bid_core::elf::Segment;
use perf_bid_core::store::Store;
use rustc_hash::FxHashMap;

/// Size of a range, in bytes.
pub const WINDOW: u64 = 1 << 32;

/// The first address. No process has mappings there by itself, so that addresses which stay as
/// they are do not get in between; and it is a user address to all that look at the sign.
const FIRST: u64 = 1 << 48;

/// Where ranges end: numbers up to here survive in JavaScript.
const LAST: u64 = 1 << 53;

const PAGE: u64 = 4096;

/// Index of a mapping in [`Layout::map`].
pub type MapId = usize;

/// A mapping that stands for a part of a file.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// The file.
    pub build_id: BuildId,
    /// First address.
    pub addr: u64,
    /// In bytes.
    pub len: u64,
    /// File offset of the first address.
    pub pgoff: u64,
}

impl Map {
    fn contains(&self, offset: u64) -> bool {
        offset.checked_sub(self.pgoff).is_some_and(|into| into < self.len)
    }
}

/// A file that was hit.
struct File {
    name: String,
    /// What a loader would map, as far as it is code.
    code: Vec<MapId>,
    /// By offset / [`WINDOW`].
    windows: FxHashMap<u64, MapId>,
}

/// All files that were hit, and where they are.
pub struct Layout {
    store: Store,
    /// The first path that the recording has for a build ID.
    paths: FxHashMap<BuildId, String>,
    files: FxHashMap<BuildId, File>,
    /// In order of first use.
    order: Vec<BuildId>,
    maps: Vec<Map>,
    next: u64,
}

impl Layout {
    /// Looks for files through `store`, at the paths of the recording's table first.
    pub fn new(mut store: Store, table: &[BuildIdRow]) -> Self {
        let mut paths = FxHashMap::default();
        for row in table.iter().filter(|row| !row.path.is_empty()) {
            store.hint(row.build_id, &row.path);
            paths.entry(row.build_id).or_insert_with(|| row.path.clone());
        }
        let (files, order, maps) = (FxHashMap::default(), Vec::new(), Vec::new());
        Self { store, paths, files, order, maps, next: FIRST }
    }

    /// A path that a map record of the recording gives.
    pub fn hint(&mut self, build_id: BuildId, path: &str) {
        self.store.hint(build_id, path);
        self.paths.entry(build_id).or_insert_with(|| path.to_owned());
    }

    /// The address of byte `offset` of a file, and the mapping that it is in; `None` if there
    /// are more files than addresses.
    pub fn place(&mut self, build_id: BuildId, offset: u64) -> Option<(u64, MapId)> {
        if !self.files.contains_key(&build_id) {
            self.add(build_id);
        }
        let file = self.files.get(&build_id)?;
        let mut code = file.code.iter().filter_map(|&id| Some((id, self.maps.get(id)?)));
        let window = offset / WINDOW;
        let id = match code.find(|(_, map)| map.contains(offset)) {
            Some((id, _)) => id,
            None => match file.windows.get(&window) {
                Some(&id) => id,
                None => self.add_window(build_id, window)?,
            },
        };
        let map = self.maps.get(id)?;
        Some((map.addr + (offset - map.pgoff), id))
    }

    /// The mapping with index `id`.
    pub fn map(&self, id: MapId) -> Option<&Map> {
        self.maps.get(id)
    }

    /// What the file is called.
    pub fn name(&self, build_id: BuildId) -> &str {
        self.files.get(&build_id).map_or("", |file| &file.name)
    }

    /// The build ID table of what was hit.
    pub fn table(&self) -> impl Iterator<Item = BuildIdRow> {
        let row = |&build_id| BuildIdRow {
            build_id,
            cpumode: perf_bid_core::abi::misc::USER,
            path: self.name(build_id).to_owned(),
        };
        self.order.iter().map(row)
    }

    fn add(&mut self, build_id: BuildId) {
        let binary = self.store.lookup(build_id);
        let recorded = self.paths.get(&build_id).cloned();
        let name = recorded.or_else(|| binary.name.clone());
        let name = name.unwrap_or_else(|| format!("[build-id:{build_id}]"));
        let found = binary.original.as_ref().filter(|_| name.starts_with('/'));
        let segments = found.map_or_else(Vec::new, |found| found.info.segments.clone());
        let code = self.add_code(build_id, &segments).unwrap_or_default();
        self.files.insert(build_id, File { name, code, windows: FxHashMap::default() });
        self.order.push(build_id);
    }

    /// Maps the executable segments; `None` if they do not fit into one range.
    fn add_code(&mut self, build_id: BuildId, segments: &[Segment]) -> Option<Vec<MapId>> {
        let lowest = segments.iter().map(|segment| segment.address).min()? & !(PAGE - 1);
        let code = segments.iter().filter(|segment| segment.executable && segment.file_size > 0);
        let maps = code.map(|segment| {
            let slack = segment.offset % PAGE;
            let at = segment.address.checked_sub(lowest)?.checked_sub(slack)?;
            let len = segment.file_size.checked_add(slack)?.checked_next_multiple_of(PAGE)?;
            let pgoff = segment.offset - slack;
            (at.checked_add(len)? <= WINDOW && at.is_multiple_of(PAGE)).then_some(())?;
            Some(Map { build_id, addr: self.next + at, len, pgoff })
        });
        let maps: Vec<_> = maps.collect::<Option<_>>()?;
        let overlap = |pair: &[Map]| matches!(pair, [a, b] if a.addr + a.len > b.addr);
        if maps.is_empty() || maps.windows(2).any(overlap) {
            return None;
        }
        self.take_range()?;
        let first = self.maps.len();
        self.maps.extend(maps);
        Some((first..self.maps.len()).collect())
    }

    fn add_window(&mut self, build_id: BuildId, window: u64) -> Option<MapId> {
        let addr = self.take_range()?;
        let id = self.maps.len();
        self.maps.push(Map { build_id, addr, len: WINDOW, pgoff: window * WINDOW });
        self.files.get_mut(&build_id)?.windows.insert(window, id);
        Some(id)
    }

    fn take_range(&mut self) -> Option<u64> {
        let addr = self.next;
        self.next = addr.checked_add(WINDOW).filter(|next| *next <= LAST)?;
        Some(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> BuildId {
        BuildId::new(&[byte; 20]).unwrap()
    }

    fn segment(offset: u64, file_size: u64, address: u64, executable: bool) -> Segment {
        Segment { offset, file_size, address, memory_size: file_size, executable }
    }

    /// A layout that finds no files.
    fn empty() -> Layout {
        Layout::new(Store::with_roots(Vec::new()), &[])
    }

    #[test]
    fn unknown_files_are_mapped_window_by_window() {
        let mut layout = empty();
        let (first, map) = layout.place(id(1), 0x1234).unwrap();
        assert_eq!(first, FIRST + 0x1234);
        assert_eq!(layout.place(id(1), 0x10), Some((FIRST + 0x10, map)));
        let (far, other) = layout.place(id(1), 5 * WINDOW + 7).unwrap();
        let far_map = *layout.map(other).unwrap();
        assert_eq!(far - far_map.addr + far_map.pgoff, 5 * WINDOW + 7);
        let (next, _) = layout.place(id(2), 0).unwrap();
        assert_eq!([far, next], [FIRST + WINDOW + 7, FIRST + 2 * WINDOW]);
        assert_eq!(layout.name(id(2)), format!("[build-id:{}]", "02".repeat(20)));
        assert!(layout.place(id(3), u64::MAX).is_some());
    }

    /// Offsets and addresses of lld's files differ by another number in each segment.
    #[test]
    fn segments_keep_their_distance() {
        let mut layout = empty();
        let segments = [
            segment(0, 0x800, 0, false),
            segment(0x800, 0x900, 0x1800, true),
            segment(0x1100, 0x10, 0x3100, true),
        ];
        let code = layout.add_code(id(1), &segments).unwrap();
        let maps: Vec<_> = code.iter().map(|&at| *layout.map(at).unwrap()).collect();
        let of = |map: &Map| (map.addr - FIRST, map.len, map.pgoff);
        assert_eq!(of(&maps[0]), (0x1000, 0x2000, 0));
        assert_eq!(of(&maps[1]), (0x3000, 0x1000, 0x1000));
    }

    #[test]
    fn what_no_loader_would_map_is_refused() {
        let odd = [
            segment(0x800, 0x900, 0x1801, true),
            segment(0, u64::MAX, 0, true),
            segment(0x1000, 0x1000, WINDOW, true),
            segment(0xfff, 1, 0xffe, true),
        ];
        for segment in odd {
            let below = Segment { executable: false, address: 0, ..segment };
            assert!(empty().add_code(id(1), &[below, segment]).is_none(), "{segment:?}");
        }
        let twice = [segment(0, 0x2000, 0, true), segment(0, 0x1000, 0x1000, true)];
        assert!(empty().add_code(id(1), &twice).is_none());
        assert!(empty().add_code(id(1), &[]).is_none());
    }

    #[test]
    fn addresses_run_out_without_harm() {
        let mut layout = empty();
        layout.next = LAST - WINDOW;
        assert!(layout.place(id(1), 0).is_some());
        assert_eq!(layout.place(id(2), 0), None);
    }
}
