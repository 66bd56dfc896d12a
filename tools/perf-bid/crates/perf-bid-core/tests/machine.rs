// SPDX-License-Identifier: GPL-2.0
//! Address spaces of ordinary recordings, from records that are made byte by byte.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::io::Cursor;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::BuildIdRow;
use perf_bid_core::data::Features;
use perf_bid_core::data::PerfData;
use perf_bid_core::data::Writer;
use perf_bid_core::machine::KernelReference;
use perf_bid_core::machine::Machine;
use perf_bid_core::machine::RawFrame;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Place;
use perf_bid_core::profile;
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Stream;

const EXEC: u32 = 5;
const KERNEL: u64 = (-128i64) as u64;
const USER: u64 = (-512i64) as u64;
const USER_DEFERRED: u64 = (-640i64) as u64;
const TEXT: u64 = 0x40_0000;
const HUGE: u64 = 2 << 20;

fn attr(chains: bool) -> Attr {
    let bits = sample::IDENTIFIER | sample::IP | sample::TID | sample::TIME;
    let chain = if chains { sample::CALLCHAIN } else { 0 };
    Attr { sample_type: bits | chain, flags: flag::SAMPLE_ID_ALL, ..Attr::default() }
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn pair(first: u32, second: u32) -> u64 {
    u64::from_ne_bytes([first.to_ne_bytes(), second.to_ne_bytes()].concat().try_into().unwrap())
}

fn record(type_: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut out = type_.to_ne_bytes().to_vec();
    out.extend_from_slice(&misc.to_ne_bytes());
    out.extend_from_slice(&(8 + body.len() as u16).to_ne_bytes());
    out.extend_from_slice(body);
    out
}

/// The end of a record of thread `tid`.
fn end(pid: u32, tid: u32, time: u64) -> Vec<u8> {
    words(&[pair(pid, tid), time, 1])
}

fn name(text: &str) -> Vec<u8> {
    let mut out = text.as_bytes().to_vec();
    out.resize((text.len() + 1).next_multiple_of(8), 0);
    out
}

/// What an MMAP2 record says about the file.
#[derive(Clone, Copy)]
enum Key {
    Inode(u64),
    Id(u8),
}

/// An MMAP2 record, executable unless changed.
#[derive(Clone, Copy)]
struct Map {
    pid: u32,
    time: u64,
    addr: u64,
    len: u64,
    pgoff: u64,
    path: &'static str,
    key: Key,
    prot: u32,
    misc: u16,
}

fn map(pid: u32, time: u64, addr: u64, path: &'static str) -> Map {
    let key = Key::Inode(path.len() as u64);
    Map { pid, time, addr, len: 0x1000, pgoff: 0, path, key, prot: EXEC, misc: misc::USER }
}

impl Map {
    fn put(self) -> Vec<u8> {
        let tid = if self.pid == u32::MAX { 0 } else { self.pid };
        let mut body = words(&[pair(self.pid, tid), self.addr, self.len, self.pgoff]);
        let mut misc = self.misc;
        match self.key {
            Key::Inode(ino) => body.extend(words(&[pair(8, 1), ino, 0])),
            Key::Id(byte) => {
                misc |= misc::MMAP_BUILD_ID;
                body.extend([20, 0, 0, 0]);
                body.extend([byte; 20]);
            }
        }
        body.extend(words(&[pair(self.prot, 2)]));
        body.extend(name(self.path));
        body.extend(end(self.pid, tid, self.time));
        record(10, misc, &body)
    }

    /// As an MMAP record.
    fn put_v1(self) -> Vec<u8> {
        let body = words(&[pair(self.pid, self.pid), self.addr, self.len, self.pgoff]);
        let body = [body, name(self.path), end(self.pid, self.pid, self.time)].concat();
        record(1, self.misc, &body)
    }
}

fn comm(pid: u32, tid: u32, time: u64, text: &str, exec: bool) -> Vec<u8> {
    let body = [words(&[pair(pid, tid)]), name(text), end(pid, tid, time)].concat();
    record(3, if exec { misc::COMM_EXEC } else { 0 }, &body)
}

fn task(type_: u32, misc: u16, ids: [u32; 4], time: u64) -> Vec<u8> {
    let [pid, ppid, tid, ptid] = ids;
    let body = words(&[pair(pid, ppid), pair(tid, ptid), time]);
    record(type_, misc, &[body, end(ppid, ptid, time)].concat())
}

fn fork(pid: u32, ppid: u32, time: u64) -> Vec<u8> {
    task(7, 0, [pid, ppid, pid, ppid], time)
}

fn exit(pid: u32, tid: u32, time: u64) -> Vec<u8> {
    task(4, 0, [pid, 1, tid, 1], time)
}

fn hit(pid: u32, time: u64, ip: u64) -> Vec<u8> {
    record(9, misc::USER, &words(&[1, ip, pair(pid, pid), time]))
}

fn chain(mode: u16, pid: u32, time: u64, ip: u64, chain: &[u64]) -> Vec<u8> {
    let body = [words(&[1, ip, pair(pid, pid), time, chain.len() as u64]), words(chain)].concat();
    record(9, mode, &body)
}

/// A callchain that comes later, as plain addresses.
fn deferred(pid: u32, time: u64, cookie: u64, chain: &[u64]) -> Vec<u8> {
    let body = [words(&[cookie, chain.len() as u64]), words(chain), end(pid, pid, time)].concat();
    record(22, misc::USER, &body)
}

fn file(attr: Attr, records: &[Vec<u8>], table: &[BuildIdRow]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), &[(attr, vec![1])]).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    let features = Features { build_ids: table.to_vec(), ..Features::default() };
    writer.finish(&features).unwrap().0.into_inner()
}

/// Where the frames of all samples are, in words: `path+offset` or what else there is.
fn places(attr: Attr, records: &[Vec<u8>]) -> Vec<Vec<String>> {
    walk(attr, records, |_| false).0
}

fn walk(attr: Attr, records: &[Vec<u8>], has_jit: fn(u32) -> bool) -> (Vec<Vec<String>>, Machine) {
    let bytes = file(attr, records, &[]);
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let mut machine = Machine::new(&[]).with_jit(has_jit);
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    for item in Stream::new(&data) {
        match item.unwrap() {
            Item::Sample(joined) => {
                machine.frames(&joined, &mut raw);
                out.push(raw.iter().map(|frame| in_words(&machine, frame)).collect());
            }
            Item::Other(record) => machine.record(&record),
        }
    }
    (out, machine)
}

fn in_words(machine: &Machine, raw: &RawFrame) -> String {
    let path = |dso| machine.dsos.get(dso).unwrap().path.to_string();
    let place = match raw.frame.place {
        Place::File { dso, offset } => format!("{}+{offset:#x}", path(dso)),
        Place::Memory { dso, address } => format!("{}@{address:#x}", path(dso)),
        Place::Unresolved(status) => status.to_string(),
        Place::Missing => "missing".into(),
    };
    if raw.frame.caller { format!("{place} called") } else { place }
}

/// Where single instruction pointers are.
fn leaves(records: &[Vec<u8>]) -> Vec<String> {
    places(attr(false), records).into_iter().map(|frames| frames.join(" ")).collect()
}

#[test]
fn a_fork_copies_an_exec_clears_and_a_mapping_replaces() {
    let found = leaves(&[
        map(10, 1, TEXT, "/bin/a").put(),
        fork(11, 10, 2),
        hit(11, 3, TEXT + 1),
        map(11, 4, TEXT, "/lib/b").put(),
        hit(11, 5, TEXT + 2),
        hit(10, 6, TEXT + 3),
        comm(11, 11, 7, "x", false),
        hit(11, 8, TEXT + 4),
        comm(11, 11, 9, "x", true),
        hit(11, 10, TEXT + 5),
        hit(12, 11, TEXT),
    ]);
    let want = ["/bin/a+0x1", "/lib/b+0x2", "/bin/a+0x3", "/lib/b+0x4", "anon", "anon"];
    assert_eq!(found, want);
}

#[test]
fn made_up_forks_take_nothing_away() {
    let before_and_after = [
        vec![fork(11, 10, 0), map(10, 0, TEXT, "/bin/a").put(), map(11, 0, TEXT, "/bin/b").put()],
        vec![map(11, 0, TEXT, "/bin/b").put(), map(10, 0, TEXT, "/bin/a").put(), fork(11, 10, 0)],
        vec![
            map(10, 0, TEXT, "/bin/a").put(),
            map(10, 0, TEXT + 0x1000, "/bin/a").put(),
            map(11, 0, TEXT, "/bin/b").put(),
            // Marked, whatever its time is.
            task(7, misc::FORK_EXEC, [11, 10, 11, 10], 1),
            // Threads.
            task(7, misc::FORK_EXEC, [11, 11, 12, 11], 0),
            fork(12, 11, 0),
        ],
    ];
    for mut records in before_and_after {
        records.extend([hit(11, 5, TEXT), hit(10, 6, TEXT), hit(11, 7, TEXT + 0x1000)]);
        assert_eq!(leaves(&records), ["/bin/b+0x0", "/bin/a+0x0", "anon"]);
    }
}

#[test]
fn an_exec_is_called_by_the_old_program() {
    let k = 0xffff_ffff_8100_0000;
    let within = |time| chain(misc::KERNEL, 10, time, k, &[KERNEL, k, USER, TEXT + 7]);
    let found = places(
        attr(true),
        &[
            map(10, 1, TEXT, "/bin/a").put(),
            comm(10, 10, 2, "b", true),
            within(3),
            map(10, 4, 2 * TEXT, "/bin/b").put(),
            within(5),
            chain(misc::USER, 10, 6, 2 * TEXT, &[USER, 2 * TEXT, TEXT + 7]),
            within(7),
        ],
    );
    let user = |frames: &[String]| frames.last().unwrap().clone();
    let found: Vec<_> = found.iter().map(|frames| user(frames)).collect();
    assert_eq!(found, ["/bin/a+0x7", "/bin/a+0x7", "anon called", "anon"]);
}

#[test]
fn records_of_the_same_time_are_in_the_order_of_the_file() {
    let found = leaves(&[
        map(10, 1, TEXT, "/bin/a").put(),
        fork(11, 10, 5),
        comm(11, 11, 5, "b", true),
        map(11, 5, TEXT, "/bin/b").put(),
        hit(11, 5, TEXT),
        map(11, 5, TEXT, "/bin/c").put(),
        hit(11, 5, TEXT),
    ]);
    assert_eq!(found, ["/bin/b+0x0", "/bin/c+0x0"]);
}

#[test]
fn threads_share_and_outlive_the_first() {
    let found = leaves(&[
        fork(10, 1, 1),
        map(10, 2, TEXT, "/bin/a").put(),
        task(7, 0, [10, 10, 11, 10], 3),
        exit(10, 10, 4),
        hit(10, 60_000_000_000, TEXT),
        map(10, 60_000_000_001, TEXT, "/lib/b").put(),
        hit(10, 60_000_000_002, TEXT),
        exit(10, 11, 60_000_000_003),
        hit(10, 60_000_000_004, TEXT),
        fork(10, 500, 60_000_000_005),
        hit(10, 60_000_000_006, TEXT),
    ]);
    assert_eq!(found, ["/bin/a+0x0", "/lib/b+0x0", "/lib/b+0x0", "anon"]);
}

#[test]
fn what_cannot_be_run_hides_nothing() {
    let at = |time| map(10, time, TEXT, "/bin/a");
    let found = leaves(&[
        at(1).put(),
        Map { misc: misc::USER | misc::MMAP_DATA, path: "/data", ..at(2) }.put(),
        Map { misc: misc::USER | misc::MMAP_DATA, path: "/data", ..at(3) }.put_v1(),
        Map { prot: 1, path: "/data", ..at(4) }.put(),
        hit(10, 5, TEXT),
        Map { pgoff: 0x3000, path: "/lib/old", ..at(6) }.put_v1(),
        hit(10, 7, TEXT + 8),
    ]);
    assert_eq!(found, ["/bin/a+0x0", "/lib/old+0x3008"]);
}

#[test]
fn names_of_memory_are_no_files() {
    let names = ["//anon", "[heap]", "[stack]", "/dev/zero (deleted)", "/SYSV0 (deleted)"];
    for path in names.into_iter().chain(["/memfd:j (deleted)", "anon_inode:[x]", "[vsyscall]"]) {
        let found = leaves(&[map(10, 1, TEXT, path).put(), hit(10, 2, TEXT)]);
        assert_eq!(found, ["anon"], "{path}");
    }
    let found = leaves(&[
        map(10, 1, TEXT, "/tmp/x (deleted)").put(),
        hit(10, 2, TEXT),
        map(10, 3, TEXT, "[vdso]").put(),
        hit(10, 4, TEXT + 0x10),
        // A program that was run from memory has an ID.
        Map { key: Key::Id(7), ..map(10, 5, TEXT, "/memfd:x (deleted)") }.put(),
        hit(10, 6, TEXT),
    ]);
    assert_eq!(found, ["/tmp/x (deleted)+0x0", "[vdso]+0x10", "/memfd:x (deleted)+0x0"]);
}

#[test]
fn text_in_huge_pages_is_still_the_files() {
    let text = Map { len: 3 * HUGE, pgoff: 0x1000, ..map(10, 1, HUGE - 0x1000, "/bin/a") };
    let copy = Map { len: HUGE, ..map(10, 2, HUGE, "//anon") };
    let records = [text.put(), copy.put(), hit(10, 3, HUGE + 5)];
    assert_eq!(leaves(&records), ["/bin/a+0x2005"]);
    // Generated code, if there are names for it.
    let (found, _) = walk(attr(false), &records, |pid| pid == 10);
    assert_eq!(found, [["//anon@0x200005"]]);
    let other = Map { len: HUGE - 0x1000, ..copy };
    assert_eq!(leaves(&[text.put(), other.put(), hit(10, 3, HUGE + 5)]), ["anon"]);
}

#[test]
fn the_kernel_has_an_image_modules_and_code_without_a_file() {
    let kernel = |time, addr, path| Map { misc: misc::KERNEL, ..map(u32::MAX, time, addr, path) };
    let (image, module, bpf) =
        (0xffff_ffff_8100_0000, 0xffff_ffff_c000_0000, 0xffff_ffff_c010_0000);
    let ksymbol = |time, flags: u64| {
        let body = [words(&[bpf, 0x100 | 1 << 32 | flags << 48]), name("bpf_prog_1_f")].concat();
        record(17, 0, &[body, end(0, 0, time)].concat())
    };
    let hits = |time| {
        let hit = |address| chain(misc::KERNEL, 10, time, address, &[KERNEL, address]);
        [image + 1, module + 2, bpf + 3].map(hit).concat()
    };
    let text = kernel(1, image, "[kernel.kallsyms]_text");
    let records = [
        Map { len: 0x100_0000, pgoff: 0xffff_ffff_8000_0000, ..text }.put(),
        hits(2),
        kernel(3, module, "/lib/modules/m.ko").put(),
        ksymbol(3, 0),
        hits(4),
        ksymbol(5, 1),
        hits(6),
        Map {
            pgoff: image + 0x800,
            ..kernel(7, 0xffff_fe00_0000_0000, "__entry_SYSCALL_64_trampoline")
        }
        .put(),
        chain(misc::KERNEL, 10, 8, 0, &[KERNEL, 0xffff_fe00_0000_0010]),
    ];
    let (found, machine) = walk(attr(true), &records, |_| false);
    let found: Vec<_> = found.iter().map(|frames| frames[0].split('@').next().unwrap()).collect();
    let k = "[kernel.kallsyms]";
    let m = "/lib/modules/m.ko";
    assert_eq!(found, [k, k, k, k, m, "bpf_prog_1_f", k, m, k, k]);
    let reference = KernelReference { symbol: "_text".into(), address: 0xffff_ffff_8000_0000 };
    assert_eq!(machine.kernel_reference(), Some(&reference));
    assert!(machine.dsos.iter().any(|(_, dso)| dso.kind == DsoKind::Ksymbol { start: bpf }));
}

#[test]
fn callchains_change_mode_at_their_markers() {
    let k = 0xffff_ffff_8100_0000;
    let found = places(
        attr(true),
        &[
            map(10, 1, TEXT, "/bin/a").put(),
            chain(misc::KERNEL, 10, 2, k, &[KERNEL, k, k + 1, USER, TEXT, TEXT + 8]),
            chain(misc::USER, 10, 3, TEXT, &[TEXT + 3, TEXT + 9]),
            chain(misc::USER, 10, 4, TEXT, &[(-2176i64) as u64, k, USER, TEXT]),
            chain(misc::GUEST_KERNEL, 10, 5, k, &[k]),
        ],
    );
    let kernel = "[kernel.kallsyms]@0xffffffff81000000";
    let caller = "[kernel.kallsyms]@0xffffffff81000001 called";
    assert_eq!(found[0], [kernel, caller, "/bin/a+0x0", "/bin/a+0x8 called"]);
    assert_eq!(found[1], ["/bin/a+0x3", "/bin/a+0x9 called"]);
    assert_eq!(found[2], ["kernel", "/bin/a+0x0"]);
    assert_eq!(found[3], ["kernel"]);
}

#[test]
fn deferred_addresses_are_joined_in_the_address_space_they_are_of() {
    let k = 0xffff_ffff_8100_0000;
    let waits = |mode, time, cookie| {
        let (ip, own) = if mode == misc::USER { (TEXT + 1, vec![]) } else { (k, vec![KERNEL, k]) };
        chain(mode, 10, time, ip, &[own, vec![USER_DEFERRED, cookie]].concat())
    };
    let found = places(
        attr(true),
        &[
            map(10, 1, TEXT, "/bin/a").put(),
            waits(misc::USER, 2, 77),
            waits(misc::KERNEL, 3, 77),
            // The new program's mappings come before the old one's callchain.
            comm(10, 10, 4, "b", true),
            map(10, 5, TEXT, "/bin/b").put(),
            deferred(10, 6, 77, &[USER, TEXT + 1, TEXT + 8]),
            chain(misc::USER, 10, 7, TEXT, &[USER, TEXT]),
            // Never comes: where it ran is known all the same.
            waits(misc::USER, 8, 78),
            waits(misc::KERNEL, 9, 78),
        ],
    );
    let kernel = "[kernel.kallsyms]@0xffffffff81000000";
    assert_eq!(found[0], ["/bin/a+0x1", "/bin/a+0x8 called"]);
    assert_eq!(found[1], [kernel, "/bin/a+0x1", "/bin/a+0x8 called"]);
    assert_eq!(found[2], ["/bin/b+0x0"]);
    assert_eq!(found[3], ["/bin/b+0x1", "missing"]);
    assert_eq!(found[4], [kernel, "missing"]);
}

#[test]
fn build_ids_are_of_the_file_that_was_mapped() {
    let id = |byte| BuildId::new(&[byte; 20]).unwrap();
    let row =
        |path: &str, byte, cpumode| BuildIdRow { build_id: id(byte), cpumode, path: path.into() };
    let table = [
        row("[kernel.kallsyms]", 9, misc::KERNEL),
        row("/bin/a", 1, misc::USER),
        row("/bin/replaced", 2, misc::USER),
    ];
    let records = [
        map(10, 1, 0x1000, "/bin/a").put(),
        map(10, 1, 0x2000, "/bin/unlisted").put(),
        Map { key: Key::Id(5), ..map(10, 1, 0x3000, "/bin/twice") }.put(),
        Map { key: Key::Inode(1), ..map(10, 1, 0x4000, "/bin/replaced") }.put(),
        hit(10, 2, 0x1000),
        hit(10, 3, 0x2000),
        hit(10, 4, 0x3000),
        hit(10, 5, 0x4000),
        Map { key: Key::Id(6), ..map(10, 6, 0x3000, "/bin/twice") }.put(),
        Map { key: Key::Inode(2), ..map(10, 6, 0x4000, "/bin/replaced") }.put(),
        hit(10, 7, 0x3000),
        hit(10, 8, 0x3000),
        hit(10, 9, 0x4000),
        hit(10, 10, 0x9000),
    ];
    let bytes = file(attr(false), &records, &table);
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let profile = profile::read(&data, profile::Options::default(), |_| {});
    let mut rows: Vec<_> = profile
        .dsos
        .iter()
        .filter(|(id, _)| profile.hits(*id).samples > 0)
        .map(|(id, dso)| (&*dso.path, dso.build_id, profile.hits(id).frames))
        .collect();
    rows.sort();
    let mut want = [
        ("/bin/a", Some(id(1)), 1),
        ("/bin/unlisted", None, 1),
        ("/bin/twice", Some(id(5)), 1),
        ("/bin/twice", Some(id(6)), 2),
        ("/bin/replaced", None, 2),
    ];
    want.sort();
    assert_eq!(rows, want);
    assert_eq!(profile.dsos.get(perf_bid_core::place::DsoId(0)).unwrap().build_id, Some(id(9)));
    let totals = &profile.totals;
    assert_eq!((totals.samples, totals.frames, totals.resolved), (8, 8, 7));
    assert_eq!(totals.unresolved.get(&Status::Anon), Some(&1));
}

#[test]
fn generated_code_is_not_the_kernels() {
    let k = 0xffff_ffff_8100_0000;
    let jit = 0x7000_0000;
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    std::fs::write(&path, "70000000 1000 f\n").unwrap();
    let pid = std::process::id();
    let records = [
        map(pid, 1, TEXT, "/bin/a").put(),
        chain(misc::KERNEL, pid, 2, k, &[KERNEL, k, k, USER, jit, jit, jit, TEXT]),
        chain(misc::USER, pid, 3, k, &[(-2048i64) as u64, k]),
    ];
    let bytes = file(attr(true), &records, &[]);
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let options = profile::Options { stacks: true, ..profile::Options::default() };
    let profile = profile::read(&data, options, |_| {});
    std::fs::remove_file(&path).unwrap();
    let totals = &profile.totals;
    assert_eq!((totals.kernel_frames, totals.jit_frames, totals.resolved), (2, 3, 1));
    assert_eq!((totals.frames, totals.file_backed()), (7, 1));
}

#[test]
fn callchains_share_their_outer_part() {
    let records: Vec<_> = [(1, 5), (2, 6), (3, 5), (4, 6)]
        .iter()
        .map(|&(time, leaf)| {
            chain(misc::USER, 10, time, TEXT, &[USER, TEXT + leaf, TEXT + 1, TEXT + 2])
        })
        .collect();
    let records = [vec![map(10, 0, TEXT, "/bin/a").put()], records].concat();
    let bytes = file(attr(true), &records, &[]);
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let options = profile::Options { stacks: true, ..profile::Options::default() };
    let profile = profile::read(&data, options, |_| {});
    let mut rows: Vec<_> = profile.events[0]
        .sums
        .iter()
        .map(|(key, weight)| {
            let frames = profile.stacks.walk(key.stack).map(|id| profile.stacks.get(id).unwrap());
            let offsets = frames.map(|frame| match frame.place {
                Place::File { offset, .. } => offset,
                other => panic!("{other:?}"),
            });
            (offsets.collect::<Vec<_>>(), weight.samples)
        })
        .collect();
    rows.sort();
    assert_eq!(rows, [(vec![5, 1, 2], 2), (vec![6, 1, 2], 2)]);
    assert_eq!(profile.stacks.len(), 1 + 4);
}

#[test]
fn a_sample_with_an_empty_callchain_counts_where_it_was_taken() {
    // As of --kernel-callchains and --call-graph dwarf.
    let empty: [&[u64]; 2] = [&[], &[USER]];
    let mut records = vec![map(10, 0, TEXT, "/bin/a").put()];
    records.extend(empty.map(|entries| chain(misc::USER, 10, 1, TEXT + 5, entries)));
    let bytes = file(attr(true), &records, &[]);
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    for stacks in [true, false] {
        let options = profile::Options { stacks, ..profile::Options::default() };
        let profile = profile::read(&data, options, |_| {});
        let [(key, weight)] = profile.events[0].sums.iter().collect::<Vec<_>>()[..] else {
            panic!("{:?}", profile.events);
        };
        let frames: Vec<_> = profile
            .stacks
            .walk(key.stack)
            .map(|id| profile.stacks.get(id).unwrap().place)
            .collect();
        assert!(matches!(frames[..], [Place::File { offset: 5, .. }]), "{frames:?}");
        assert_eq!((weight.samples, profile.totals.frames), (2, 2));
    }
}

#[test]
fn a_kernel_sample_with_a_callchain_of_user_frames_counts_in_the_kernel() {
    // As of --user-callchains.
    const KERNEL_IP: u64 = 0xffff_ffff_8100_0010;
    let records = [
        map(10, 0, TEXT, "/bin/a").put(),
        chain(misc::KERNEL, 10, 1, KERNEL_IP, &[USER, TEXT + 5]),
        chain(misc::KERNEL, 10, 2, KERNEL_IP, &[KERNEL, KERNEL_IP, USER, TEXT + 5]),
    ];
    let bytes = file(attr(true), &records, &[]);
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let options = profile::Options { stacks: true, ..profile::Options::default() };
    let profile = profile::read(&data, options, |_| {});
    assert_eq!((profile.totals.kernel_frames, profile.totals.frames), (2, 4));
    // One stack: both samples are of the same place with the same caller.
    let weights: Vec<_> = profile.events[0].sums.values().map(|weight| weight.samples).collect();
    assert_eq!(weights, [2]);
}
