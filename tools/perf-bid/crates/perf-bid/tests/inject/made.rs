// SPDX-License-Identifier: GPL-2.0
//! Files made record by record: what stock perf cannot be made to record at will, and bad input.

use std::io::Cursor;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::Features;
use perf_bid_core::data::PerfData;
use perf_bid_core::data::Writer;
use perf_bid_core::record::DeferredFrames;
use perf_bid_core::record::Record;

use super::Dir;
use super::files_in;
use super::reference::records;
use super::reference::samples;

const KERNEL: u64 = (-128i64) as u64;
const USER: u64 = (-512i64) as u64;
const USER_DEFERRED: u64 = (-640i64) as u64;

/// `HEADER_CPU_TOPOLOGY`, which this crate does not decode.
const TOPOLOGY: u8 = 13;

fn attr() -> Attr {
    Attr {
        sample_type: sample::IDENTIFIER
            | sample::IP
            | sample::TID
            | sample::TIME
            | sample::CALLCHAIN,
        flags: flag::SAMPLE_ID_ALL,
        ..Attr::default()
    }
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn record(type_: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut out = type_.to_ne_bytes().to_vec();
    out.extend_from_slice(&misc.to_ne_bytes());
    out.extend_from_slice(&u16::try_from(8 + body.len()).unwrap().to_ne_bytes());
    out.extend_from_slice(body);
    out
}

/// Process and thread, both `tid`.
fn task(tid: u32) -> u64 {
    u64::from_ne_bytes([tid.to_ne_bytes(), tid.to_ne_bytes()].concat().try_into().unwrap())
}

fn sample_of(time: u64, mode: u16, ip: u64, chain: &[u64]) -> Vec<u8> {
    let head = words(&[1, ip, task(5), time, chain.len() as u64]);
    record(9, mode, &[head, words(chain)].concat())
}

fn id(byte: u8) -> BuildId {
    BuildId::new(&[byte; 20]).unwrap()
}

/// `/lib/BYTE` of process 5 at `addr`, from file offset 0x2000 on, 0x1000 bytes.
fn map(time: u64, addr: u64, byte: u8) -> Vec<u8> {
    let mut body = words(&[task(5), addr, 0x1000, 0x2000]);
    body.extend_from_slice(&[20, 0, 0, 0]);
    body.extend_from_slice(id(byte).as_bytes());
    body.extend_from_slice(&[5, 0, 0, 0, 2, 0, 0, 0]);
    body.extend_from_slice(format!("/lib/{byte:02x}\0").as_bytes());
    body.extend_from_slice(&words(&[task(5), time, 1]));
    record(10, misc::USER | misc::MMAP_BUILD_ID, &body)
}

fn deferred(time: u64, cookie: u64, chain: &[u64]) -> Vec<u8> {
    let head = words(&[cookie, chain.len() as u64]);
    record(22, 0, &[head, words(chain), words(&[task(5), time, 1])].concat())
}

fn bytes(attr: &Attr, records: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), &[(attr.clone(), vec![1])]).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    let features = Features { hostname: Some("here".into()), ..Features::default() };
    let topology: (u8, &[u8]) = (TOPOLOGY, b"what it says");
    writer.finish_with(&features, &[topology]).unwrap().0.into_inner()
}

impl Dir {
    fn make(&self, name: &str, attr: &Attr, records: &[Vec<u8>]) {
        std::fs::write(self.path(name), bytes(attr, records)).unwrap();
    }

    fn read(&self, name: &str) -> PerfData {
        PerfData::open(&self.path(name)).unwrap()
    }
}

/// `-i a.data -o b.data` and options.
fn profile<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--sample-buildids", "-i", "a.data", "-o", "b.data"], more].concat()
}

const BACK: [&str; 5] = ["--to-mmaps", "-i", "b.data", "-o", "c.data"];

/// Status and offset of each entry of the only sample's callchain.
fn entries(data: &PerfData) -> Vec<(Status, u64)> {
    let samples = samples(data);
    assert_eq!(samples.len(), 1);
    let chain = samples[0].bid_callchain.unwrap();
    chain.iter().map(|entry| (entry.status(), entry.offset())).collect()
}

#[test]
fn markers_and_kernel_addresses_stay() {
    let dir = Dir::new();
    let text = 0xffff_ffff_8100_0000;
    // A broken stack can hold -1, which is no marker.
    let chain = [KERNEL, text, USER, 0x7000_0123, 0x1, u64::MAX];
    dir.make(
        "a.data",
        &attr(),
        &[map(1, 0x7000_0000, 7), sample_of(2, misc::KERNEL, text, &chain)],
    );
    let says = dir.convert(&profile(&[]));
    assert!(
        says.contains("3 user frames, 33.33 % of them by build ID, 2 anon, 2 kernel"),
        "{says}"
    );
    let b = dir.read("b.data");
    let expected = [
        (Status::Context, KERNEL),
        (Status::Kernel, text),
        (Status::Context, USER),
        (Status::Resolved, 0x2123),
        (Status::Anon, 1),
        (Status::Anon, u64::MAX),
    ];
    assert_eq!(entries(&b), expected);
    let row = &b.features().build_ids[0];
    assert_eq!((row.build_id, row.path.as_str()), (id(7), "/lib/07"));
    assert_eq!(b.features().hostname.as_deref(), Some("here"));
    let topology = b.feature_sections().find(|(bit, _)| *bit == u32::from(TOPOLOGY)).unwrap();
    assert_eq!(topology.1, b"what it says");
}

/// A deferred callchain of plain addresses becomes one of entries, and part of its samples on
/// the way back. Samples of other threads that came between stay in order.
#[test]
fn deferred_callchains() {
    let dir = Dir::new();
    let text = 0xffff_ffff_8100_0000;
    let other = {
        let head = words(&[1, 0x44, task(6), 4, 1, 0x44]);
        record(9, misc::USER, &head)
    };
    let flags = attr().flags | flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT;
    dir.make(
        "a.data",
        &Attr { flags, ..attr() },
        &[
            map(1, 0x7000_0000, 7),
            sample_of(2, misc::KERNEL, text, &[KERNEL, text, USER_DEFERRED, 99]),
            sample_of(3, misc::USER, 0x7000_0010, &[USER_DEFERRED, 99]),
            other,
            deferred(5, 99, &[USER, 0x7000_0010, 0x7000_0ff0, 0x66]),
            // Its callchain is lost.
            sample_of(6, misc::KERNEL, text, &[KERNEL, text, USER_DEFERRED, 100]),
        ],
    );
    dir.convert(&profile(&[]));
    let b = dir.read("b.data");
    let all = records(&b);
    let chain = all.iter().find_map(|record| match record {
        Record::Deferred(deferred) => Some(deferred),
        _ => None,
    });
    let chain = chain.unwrap();
    assert_eq!((chain.cookie, chain.id.time, chain.id.tid), (99, Some(5), Some(5)));
    let DeferredFrames::Entries(frames) = chain.frames else {
        panic!("{chain:?}");
    };
    let places: Vec<_> = frames.iter().map(|frame| (frame.build_id(), frame.offset())).collect();
    assert_eq!(places, [(Some(id(7)), 0x2010), (Some(id(7)), 0x2ff0), (None, 0x66)]);
    let first = samples(&b)[0].bid_callchain.unwrap().to_vec();
    let last = first.last().unwrap();
    assert_eq!((last.status(), last.offset()), (Status::Deferred, 99));

    let says = dir.convert(&BACK);
    assert!(says.contains("1 samples without their deferred callchain"), "{says}");
    let c = dir.read("c.data");
    let c_flags = c.events()[0].attr.flags;
    assert_eq!(c_flags & (flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT), 0);
    assert!(!records(&c).iter().any(|record| matches!(record, Record::Deferred(_))));
    let times: Vec<_> =
        c.records().filter_map(|raw| c.decode(&raw.unwrap()).unwrap().time()).collect();
    assert!(times.is_sorted() && times.len() == 5, "{times:?}");
    let samples = samples(&c);
    let chain = |at: usize| -> Vec<_> {
        samples[at].callchain.unwrap().iter().map(|value| value.get()).collect()
    };
    let base = samples[1].ip.unwrap() - 0x2010;
    let user = [USER, base + 0x2010, base + 0x2ff0, 0x66];
    assert_eq!(chain(0), [&[KERNEL, text][..], &user].concat());
    assert_eq!(chain(1), user);
    assert_eq!(chain(2), [0x44]);
    assert_eq!(chain(3), [KERNEL, text]);
}

/// Of a callchain that does not fit, the innermost frames are kept.
#[test]
fn no_record_is_too_long() {
    for raw_len in [0, 40_000, 65_400u32] {
        let dir = Dir::new();
        let with_raw = Attr { sample_type: attr().sample_type | sample::RAW, ..attr() };
        let room = (65_528 - 48 - 8 - raw_len as usize) / 8;
        let chain: Vec<_> =
            (0..room.min(5000) as u64).map(|at| 0x7000_0000 + at % 0x1000).collect();
        let mut body = words(&[1, chain[0], task(5), 2, chain.len() as u64]);
        body.extend_from_slice(&words(&chain));
        body.extend_from_slice(&(raw_len + 4).to_ne_bytes());
        body.resize(body.len() + raw_len as usize + 4, 0xee);
        dir.make("a.data", &with_raw, &[map(1, 0x7000_0000, 7), record(9, misc::USER, &body)]);
        let says = dir.convert(&profile(&[]));
        let b = dir.read("b.data");
        let all = samples(&b);
        // Header and fields, the instruction pointer's entry, the raw data, the length.
        let taken = 8 + 24 + 32 + 8 + raw_len as usize + 8;
        let Some(fits) = 65_528usize.checked_sub(taken) else {
            assert!(all.is_empty() && says.contains("1 samples left out"), "{raw_len}: {says}");
            continue;
        };
        let kept = chain.len().min(fits / 32).min(2046);
        let entries = all[0].bid_callchain.unwrap();
        assert_eq!(entries.len(), kept, "{raw_len}");
        let same = entries.iter().zip(&chain);
        assert!(same.clone().all(|(e, ip)| e.offset() == ip - 0x7000_0000 + 0x2000));
        assert_eq!(all[0].raw.unwrap().len(), raw_len as usize + 4);
        let cut = chain.len() - kept;
        assert!(cut > 0 && says.contains(&format!("{cut} outermost frames left out")), "{says}");
    }
}

/// Two events, one of which has no callchain, and fields after the new ones.
#[test]
fn fields_that_hold_addresses_go_if_not_kept() {
    let sample_type = attr().sample_type
        | sample::ADDR
        | sample::REGS_USER
        | sample::STACK_USER
        | sample::DATA_SRC
        | sample::AUX;
    let attr = Attr { sample_type, sample_regs_user: 3, sample_stack_user: 16, ..attr() };
    // Address; callchain; registers (ABI and two); stack with its dynamic size; data source; AUX.
    let body = words(&[
        1,
        0x7000_0010,
        task(5),
        2,
        0xadd7,
        1,
        0x7000_0020,
        2,
        11,
        12,
        16,
        21,
        22,
        8,
        0xda7a,
        8,
        31,
    ]);
    let all = [map(1, 0x7000_0000, 7), record(9, misc::USER, &body)];
    for keep in [false, true] {
        let dir = Dir::new();
        dir.make("a.data", &attr, &all);
        let more: &[&str] = if keep { &["--keep-addresses", "--keep-mmaps"] } else { &[] };
        let says = dir.convert(&profile(more));
        let gone = "left out of the samples: ADDR, REGS_USER, STACK_USER, AUX";
        assert_eq!(says.contains(gone), !keep, "{says}");
        let b = dir.read("b.data");
        assert_eq!(b.events()[0].attr.sample_stack_user, if keep { 16 } else { 0 });
        let samples = samples(&b);
        let s = &samples[0];
        assert_eq!((s.bid.unwrap().offset(), s.data_src), (0x2010, Some(0xda7a)));
        assert_eq!(s.bid_callchain.unwrap()[0].offset(), 0x2020);
        assert_eq!(s.addr, keep.then_some(0xadd7));
        let stack = s.stack_user.map(<[u8]>::to_vec);
        assert_eq!(stack, keep.then(|| words(&[21, 22])));
        assert_eq!(s.aux.map(<[u8]>::to_vec), keep.then(|| words(&[31])));
        let values = s.regs_user.map(|regs| regs.values.iter().map(|v| v.get()).collect());
        assert_eq!(values, keep.then(|| vec![11, 12]));
        let maps = records(&b).into_iter().filter(|record| matches!(record, Record::Mmap(_)));
        assert_eq!(maps.count(), usize::from(keep));
        // And what was kept is not disturbed on the way back.
        dir.convert(&BACK);
        let c = dir.read("c.data");
        assert_eq!(super::reference::samples(&c)[0].addr, keep.then_some(0xadd7));
    }
}

/// A later mapping replaces an earlier one, also when its record was written first.
#[test]
fn records_are_taken_in_the_order_of_their_times() {
    let dir = Dir::new();
    let at = |time| sample_of(time, misc::USER, 0x7000_0010, &[0x7000_0010]);
    dir.make("a.data", &attr(), &[map(4, 0x7000_0000, 8), at(5), at(3), map(2, 0x7000_0000, 7)]);
    dir.convert(&profile(&[]));
    let b = dir.read("b.data");
    let ids: Vec<_> = samples(&b).iter().map(|s| (s.time, s.bid.unwrap().build_id())).collect();
    assert_eq!(ids, [(Some(3), Some(id(7))), (Some(5), Some(id(8)))]);
}

#[test]
fn what_there_is_nothing_to_do_about_is_said() {
    let dir = Dir::new();
    dir.make("a.data", &attr(), &[map(1, 0x7000_0000, 7)]);
    let (code, says) = dir.inject(&["-i", "a.data", "-o", "b.data"]);
    assert_eq!(code, Some(2));
    assert!(says.contains("--sample-buildids") && says.contains("--to-mmaps"), "{says}");
    let (code, says) = dir.inject(&["--to-mmaps", "-i", "a.data", "-o", "b.data"]);
    assert!(code == Some(1) && says.contains("an ordinary recording already"), "{says}");
    dir.convert(&profile(&["-q"]));
    let (code, says) = dir.inject(&["--sample-buildids", "-i", "b.data", "-o", "c.data"]);
    assert!(code == Some(1) && says.contains("carry build IDs already"), "{says}");
    let none = Attr { sample_type: sample::TID, ..attr() };
    dir.make("d.data", &none, &[]);
    let (code, says) = dir.inject(&["--sample-buildids", "-i", "d.data", "-o", "c.data"]);
    assert!(code == Some(1) && says.contains("record with"), "{says}");
    assert_eq!(files_in(dir.0.path()), ["a.data", "b.data", "d.data"]);
    // Input and output may be the same.
    dir.convert(&["--to-mmaps", "-q", "-i", "b.data", "-o", "b.data"]);
    assert_eq!(files_in(dir.0.path()), ["a.data", "b.data", "b.data.old", "d.data"]);
}

/// Cut off anywhere: what came before is converted, and the exit code says that it is not all.
#[test]
fn truncated_input() {
    let dir = Dir::new();
    let at = |time| sample_of(time, misc::USER, 0x7000_0010, &[0x7000_0010, 0x7000_0020]);
    let all: Vec<_> = [map(1, 0x7000_0000, 7)].into_iter().chain((2..12).map(at)).collect();
    let whole = bytes(&attr(), &all);
    let records_at =
        whole.len() - whole.windows(8).rev().position(|w| w == &all[0][..8]).unwrap() - 8;
    let records_end = records_at + all.iter().map(Vec::len).sum::<usize>();
    for len in (0..records_end).step_by(13) {
        std::fs::write(dir.path("a.data"), &whole[..len]).unwrap();
        std::fs::write(dir.path("b.data"), "older").unwrap();
        let _ = std::fs::remove_file(dir.path("b.data.old"));
        let (code, says) = dir.inject(&profile(&[]));
        assert_eq!(code, Some(1), "{len}: {says}");
        if says.contains("has what came before it") {
            let older = std::fs::read_to_string(dir.path("b.data.old")).unwrap();
            assert_eq!(older, "older", "{len}");
            let whole = len.saturating_sub(records_at + all[0].len()) / all[1].len();
            assert_eq!(samples(&dir.read("b.data")).len(), whole, "{len}");
        } else {
            assert!(len < records_at + 8, "{len}: {says}");
            assert_eq!(std::fs::read_to_string(dir.path("b.data")).unwrap(), "older", "{len}");
        }
        let left = files_in(dir.0.path());
        assert!(left.iter().all(|name| !name.contains("tmp")), "{left:?}");
    }
}

/// Bytes that are wrong anywhere in the records: no crash, and no older file lost.
#[test]
fn bits_flipped() {
    let dir = Dir::new();
    let flags = attr().flags | flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT;
    let all = [
        map(1, 0x7000_0000, 7),
        sample_of(2, misc::USER, 0x7000_0010, &[USER_DEFERRED, 99]),
        deferred(5, 99, &[USER, 0x7000_0010, 0x7000_0ff0, 0x66]),
    ];
    let whole = bytes(&Attr { flags, ..attr() }, &all);
    for (at, value) in (0..whole.len()).step_by(3).flat_map(|at| [(at, 0xff), (at, 0)]) {
        let mut bad = whole.clone();
        bad[at] = value;
        std::fs::write(dir.path("a.data"), &bad).unwrap();
        let (code, says) = dir.inject(&profile(&["-q"]));
        assert!(matches!(code, Some(0 | 1)), "{at}: {code:?} {says}");
        if dir.path("b.data").exists() {
            let (code, says) = dir.inject(&BACK);
            assert!(matches!(code, Some(0 | 1)), "{at}: {code:?} {says}");
        }
    }
}

/// A full disk is named, and what was there before stays.
#[test]
fn nothing_is_lost_when_writing_fails() {
    let dir = Dir::new();
    dir.make("a.data", &attr(), &[map(1, 0x7000_0000, 7)]);
    let to = |output| dir.inject(&["--sample-buildids", "-i", "a.data", "-o", output]);
    let (code, says) = to("/dev/full");
    assert!(code == Some(1) && says.contains("cannot write /dev/full"), "{says}");
    let (code, says) = to("no/such/dir/x");
    assert!(code == Some(1) && says.contains("cannot write no/such/dir/x"), "{says}");
    let (code, says) = to("-");
    assert!(code == Some(1) && says.contains("name a file"), "{says}");
    assert_eq!(files_in(dir.0.path()), ["a.data"]);
}

/// How many records there are; all must be whole.
fn decoded(data: &PerfData) -> usize {
    let records = data.records().map(|raw| data.decode(&raw.unwrap()).unwrap());
    records.count()
}

/// A recording that went through a pipe has a record for the description of tracepoints, with a
/// payload behind it, where a file has a section.
#[test]
fn descriptions_of_tracepoints_move_into_the_header() {
    const TRACING_DATA: u32 = 1;
    let dir = Dir::new();
    let recordings = concat!(env!("CARGO_MANIFEST_DIR"), "/../perf-bid-core/tests/data");
    let described = |data: &PerfData| {
        let mut sections = data.feature_sections();
        sections.find(|(bit, _)| *bit == TRACING_DATA).map(|(_, bytes)| bytes.to_vec()).unwrap()
    };
    for name in ["tracepoint.perf", "tracepoint-pipe.perf"] {
        std::fs::copy(format!("{recordings}/{name}"), dir.path("a.data")).unwrap();
        dir.convert(&profile(&[]));
        dir.convert(&BACK);
        for converted in ["b.data", "c.data"] {
            let data = dir.read(converted);
            assert!(decoded(&data) > 0);
            assert!(described(&data) == described(&dir.read("a.data")), "{name}: {converted}");
        }
    }
}

/// Without a feature section that says so, too.
#[test]
fn hardware_traces_are_refused() {
    const AUXTRACE: u32 = 71;
    let dir = Dir::new();
    let trace = [record(AUXTRACE, 0, &words(&[16, 0, 0, 0, 0])), vec![0; 16]].concat();
    let all = [map(1, 0x7000_0000, 7), sample_of(2, misc::USER, 0x7000_0010, &[]), trace];
    dir.make("a.data", &attr(), &all);
    let (code, says) = dir.inject(&profile(&[]));
    assert!(code == Some(1) && says.contains("it holds a hardware trace"), "{says}");
    assert!(says.contains("b.data has what came before it"), "{says}");
    // Order is by time, and the trace has none.
    assert!(decoded(&dir.read("b.data")) <= 1);
}
