// SPDX-License-Identifier: GPL-2.0
//! The record decoder on records that the test spells out field by field, on every prefix of
//! them, on hostile counts, and on noise.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use perf_bid_core::abi::Status;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::read_format;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::record::DeferredFrames;
use perf_bid_core::record::FileKey;
use perf_bid_core::record::Format;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::ReadValue;
use perf_bid_core::record::Record;
use proptest::prelude::*;

/// All bits but WEIGHT_STRUCT, which shares its field with WEIGHT.
const ALL: u64 = (sample::MAX - 1) & !sample::WEIGHT_STRUCT;

fn attr(sample_type: u64) -> Attr {
    Attr {
        sample_type,
        read_format: read_format::GROUP | read_format::ID | read_format::TOTAL_TIME_ENABLED,
        branch_sample_type: 1 << 17,
        sample_regs_user: 0b101,
        sample_regs_intr: 0b1,
        flags: flag::SAMPLE_ID_ALL,
        ..Attr::default()
    }
}

fn words(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_ne_bytes()));
}

fn pair(a: u32, b: u32) -> u64 {
    u64::from_ne_bytes([a.to_ne_bytes(), b.to_ne_bytes()].concat().try_into().unwrap())
}

fn entry(out: &mut Vec<u8>, id: &[u8], status: u8, offset: u64) {
    let start = out.len();
    out.extend_from_slice(&[id.len() as u8, status, 0, 0]);
    out.extend_from_slice(id);
    out.resize(start + 24, 0);
    words(out, &[offset]);
}

fn record(type_: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut out = type_.to_ne_bytes().to_vec();
    out.extend_from_slice(&misc.to_ne_bytes());
    out.extend_from_slice(&(8 + body.len() as u16).to_ne_bytes());
    out.extend_from_slice(body);
    out
}

/// A sample with the given bits, in the order of `PERF_RECORD_SAMPLE` in perf_event.h.
fn sample_record(bits: u64) -> Vec<u8> {
    let mut b = Vec::new();
    let has = |bit| bits & bit != 0;
    if has(sample::IDENTIFIER) {
        words(&mut b, &[101]);
    }
    if has(sample::IP) {
        words(&mut b, &[102]);
    }
    if has(sample::TID) {
        words(&mut b, &[pair(103, 104)]);
    }
    if has(sample::TIME) {
        words(&mut b, &[105]);
    }
    if has(sample::ADDR) {
        words(&mut b, &[106]);
    }
    if has(sample::ID) {
        words(&mut b, &[101]);
    }
    if has(sample::STREAM_ID) {
        words(&mut b, &[107]);
    }
    if has(sample::CPU) {
        words(&mut b, &[pair(3, 0)]);
    }
    if has(sample::PERIOD) {
        words(&mut b, &[108]);
    }
    if has(sample::READ) {
        words(&mut b, &[2, 50, 1, 11, 2, 22]);
    }
    if has(sample::CALLCHAIN) {
        words(&mut b, &[2, 201, 202]);
    }
    if has(sample::RAW) {
        b.extend_from_slice(&12u32.to_ne_bytes());
        b.extend_from_slice(b"rawrawrawraw");
    }
    if has(sample::BRANCH_STACK) {
        words(&mut b, &[1, 77, 1, 2, 3]);
    }
    if has(sample::REGS_USER) {
        words(&mut b, &[2, 301, 302]);
    }
    if has(sample::STACK_USER) {
        words(&mut b, &[8, 0x5555, 8]);
    }
    if has(sample::WEIGHT | sample::WEIGHT_STRUCT) {
        words(&mut b, &[109]);
    }
    if has(sample::DATA_SRC) {
        words(&mut b, &[110]);
    }
    if has(sample::TRANSACTION) {
        words(&mut b, &[111]);
    }
    if has(sample::REGS_INTR) {
        words(&mut b, &[2, 303]);
    }
    if has(sample::PHYS_ADDR) {
        words(&mut b, &[112]);
    }
    if has(sample::CGROUP) {
        words(&mut b, &[113]);
    }
    if has(sample::DATA_PAGE_SIZE) {
        words(&mut b, &[4096]);
    }
    if has(sample::CODE_PAGE_SIZE) {
        words(&mut b, &[8192]);
    }
    if has(sample::BUILD_ID_OFFSET) {
        entry(&mut b, &[7; 16], 0, 0x1234);
    }
    if has(sample::CALLCHAIN_BUILD_ID_OFFSET) {
        words(&mut b, &[2]);
        entry(&mut b, &[7; 8], 0, 0x99);
        entry(&mut b, &[], 7, 0xabc);
    }
    if has(sample::AUX) {
        words(&mut b, &[8, 0x7777]);
    }
    record(9, misc::USER, &b)
}

fn decode<'a>(format: &Format, bytes: &'a [u8]) -> Record<'a> {
    let (raw, rest) = RawRecord::split(bytes, 0).unwrap().unwrap();
    assert!(rest.is_empty());
    format.decode(&raw).unwrap()
}

#[test]
fn all_fields_at_once() {
    let format = Format::from(&attr(ALL));
    let bytes = sample_record(ALL);
    let Record::Sample(s) = decode(&format, &bytes) else { panic!("not a sample") };
    assert_eq!((s.id, s.ip, s.pid, s.tid), (Some(101), Some(102), Some(103), Some(104)));
    assert_eq!((s.time, s.addr, s.stream_id), (Some(105), Some(106), Some(107)));
    assert_eq!((s.cpu, s.period), (Some(3), Some(108)));
    assert_eq!(s.read.unwrap().words().len(), 6);
    assert_eq!(s.callchain.unwrap().iter().map(|ip| ip.get()).collect::<Vec<_>>(), [201, 202]);
    assert_eq!(s.raw, Some(&b"rawrawrawraw"[..]));
    assert_eq!(s.branches.unwrap().entries.len(), 1);
    assert_eq!(s.regs_user.unwrap().values.len(), 2);
    assert_eq!(s.stack_user.unwrap(), 0x5555u64.to_ne_bytes());
    assert_eq!((s.weight, s.data_src, s.transaction), (Some(109), Some(110), Some(111)));
    assert_eq!(s.regs_intr.unwrap().values[0].get(), 303);
    assert_eq!((s.phys_addr, s.cgroup), (Some(112), Some(113)));
    assert_eq!((s.data_page_size, s.code_page_size), (Some(4096), Some(8192)));
    let bid = s.bid.unwrap();
    assert_eq!(bid.build_id().unwrap().as_bytes(), [7; 16]);
    assert_eq!(bid.offset(), 0x1234);
    let chain = s.bid_callchain.unwrap();
    assert_eq!(chain[0].build_id().unwrap().as_bytes(), [7; 8]);
    assert_eq!((chain[1].status(), chain[1].offset()), (Status::Busy, 0xabc));
    assert_eq!(s.aux.unwrap(), 0x7777u64.to_ne_bytes());
}

/// Each bit beside the new ones, alone: nothing shifts the new fields.
#[test]
fn every_bit_beside_the_new_ones() {
    for bit in 0..27 {
        let bits = sample::NEW | sample::IDENTIFIER | 1 << bit;
        let format = Format::from(&attr(bits));
        let bytes = sample_record(bits);
        let Record::Sample(s) = decode(&format, &bytes) else { panic!("not a sample") };
        assert_eq!(s.bid.unwrap().offset(), 0x1234, "bit {bit}");
        assert_eq!(s.bid_callchain.unwrap()[1].offset(), 0xabc, "bit {bit}");
        let (raw, _) = RawRecord::split(&bytes, 0).unwrap().unwrap();
        assert_eq!(format.event_id(&raw), Some(101), "bit {bit}");
    }
}

#[test]
fn every_prefix_is_an_error_with_an_offset_inside() {
    let format = Format::from(&attr(ALL));
    let bytes = sample_record(ALL);
    for len in 8..bytes.len() {
        // A record whose header says that it is shorter.
        let mut short = bytes[..len].to_vec();
        short[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
        let (raw, _) = RawRecord::split(&short, 1000).unwrap().unwrap();
        let error = format.decode(&raw).unwrap_err();
        assert!((1008..=1000 + len as u64).contains(&error.offset), "{len}: {error}");
        // One that is cut off by the end of the file.
        assert!(RawRecord::split(&bytes[..len], 0).is_err(), "{len}");
    }
    for size in 0..8u16 {
        let mut tiny = bytes.clone();
        tiny[6..8].copy_from_slice(&size.to_ne_bytes());
        assert!(RawRecord::split(&tiny, 0).unwrap_err().what.contains("size"), "{size}");
    }
}

#[test]
fn hostile_counts() {
    for nr in [3, 1 << 11, 1 << 59, 1 << 60, 1 << 61, u64::MAX / 32, u64::MAX] {
        for (bit, name) in [
            (sample::CALLCHAIN_BUILD_ID_OFFSET, "build-ID callchain"),
            (sample::CALLCHAIN, "callchain"),
            (sample::AUX, "aux"),
            (sample::STACK_USER, "user stack"),
            (sample::BRANCH_STACK, "branch stack"),
        ] {
            let mut body = Vec::new();
            words(&mut body, &[nr]);
            let bytes = record(9, 0, &body);
            let (raw, _) = RawRecord::split(&bytes, 0).unwrap().unwrap();
            let error = Format::from(&attr(bit)).decode(&raw).unwrap_err();
            assert!(error.what.contains(name), "{nr}: {error}");
        }
    }
}

#[test]
fn unknown_sample_bits_are_refused() {
    let format = Format::from(&attr(sample::IP | 1 << 27));
    let bytes = record(9, 0, &[0; 64]);
    let (raw, _) = RawRecord::split(&bytes, 0).unwrap().unwrap();
    assert!(format.decode(&raw).unwrap_err().what.contains("0x8000000"));
}

fn side_band(type_: u32, misc: u16, fields: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    fields(&mut body);
    // sample_id for TID, TIME, CPU and IDENTIFIER.
    words(&mut body, &[pair(5, 6), 777, pair(1, 0), 42]);
    record(type_, misc, &body)
}

fn side_format() -> Format {
    let bits = sample::TID | sample::TIME | sample::CPU | sample::IDENTIFIER | sample::NEW;
    Format::from(&attr(bits))
}

#[test]
fn side_band_records() {
    let format = side_format();
    let map = |misc: u16, id: [u64; 3]| {
        side_band(10, misc, |b| {
            words(b, &[pair(5, 6), 0x1000, 0x2000, 0x3000]);
            words(b, &id);
            words(b, &[pair(5, 2)]);
            b.extend_from_slice(b"/bin/x\0\0");
        })
    };
    let bytes = map(misc::USER, [pair(8, 1), 99, 3]);
    let Record::Mmap(m) = decode(&format, &bytes) else { panic!("not a map") };
    assert_eq!((m.pid, m.tid, m.addr, m.len, m.pgoff), (5, 6, 0x1000, 0x2000, 0x3000));
    assert_eq!(m.file, FileKey::Inode { maj: 8, min: 1, ino: 99, ino_generation: 3 });
    assert_eq!((m.prot, m.flags, m.path, m.data), (5, 2, &b"/bin/x"[..], false));
    assert_eq!((m.id.time, m.id.id, m.id.cpu), (Some(777), Some(42), Some(1)));

    let mut id = [0u8; 24];
    id[0] = 3;
    id[4..7].copy_from_slice(&[1, 2, 3]);
    let id = id.as_chunks::<8>().0.iter().map(|chunk| u64::from_ne_bytes(*chunk));
    let id: [u64; 3] = id.collect::<Vec<_>>().try_into().unwrap();
    let bytes = map(misc::MMAP_BUILD_ID | misc::MMAP_DATA, id);
    let Record::Mmap(m) = decode(&format, &bytes) else { panic!("not a map") };
    let FileKey::BuildId(id) = m.file else { panic!("no build ID") };
    assert_eq!((id.as_bytes(), m.data), (&[1, 2, 3][..], true));
    let bad = map(misc::MMAP_BUILD_ID, [21, 0, 0]);
    let (raw, _) = RawRecord::split(&bad, 0).unwrap().unwrap();
    assert!(format.decode(&raw).is_err());

    let bytes = side_band(3, misc::COMM_EXEC, |b| {
        words(b, &[pair(5, 6)]);
        b.extend_from_slice(b"name\0\0\0\0");
    });
    let Record::Comm(c) = decode(&format, &bytes) else { panic!("not a name") };
    assert_eq!((c.pid, c.tid, c.comm, c.exec), (5, 6, &b"name"[..], true));

    let bytes = side_band(7, 0, |b| words(b, &[pair(5, 1), pair(6, 2), 776]));
    let Record::Fork(f) = decode(&format, &bytes) else { panic!("not a fork") };
    assert_eq!((f.pid, f.ppid, f.tid, f.ptid, f.time), (5, 1, 6, 2, 776));
    let bytes = side_band(2, 0, |b| words(b, &[42, 17]));
    assert!(matches!(decode(&format, &bytes), Record::Lost(lost) if lost.lost == 17));
    let bytes = side_band(13, 0, |b| words(b, &[18]));
    assert!(matches!(decode(&format, &bytes), Record::LostSamples(lost) if lost.lost == 18));
    let (raw, _) = RawRecord::split(&bytes, 0).unwrap().unwrap();
    assert_eq!((format.time(&raw), format.event_id(&raw)), (Some(777), Some(42)));
}

#[test]
fn records_about_tasks_and_the_kernel() {
    let format = side_format();
    let bytes = side_band(5, 0, |b| words(b, &[700, 42, 43]));
    let Record::Throttle(t) = decode(&format, &bytes) else { panic!("not a throttle") };
    assert_eq!((t.time, t.event_id, t.stream_id), (700, 42, 43));
    let bytes = side_band(6, 0, |b| words(b, &[700, 42, 43]));
    assert_eq!(decode(&format, &bytes).time(), Some(700));
    let bytes = side_band(14, misc::SWITCH_OUT | misc::SWITCH_OUT_PREEMPT, |_| {});
    let Record::Switch(s) = decode(&format, &bytes) else { panic!("not a switch") };
    assert_eq!((s.out, s.preempted, s.other, s.id.tid), (true, true, None, Some(6)));
    let bytes = side_band(15, misc::SWITCH_OUT_PREEMPT, |b| words(b, &[pair(7, 8)]));
    let Record::Switch(s) = decode(&format, &bytes) else { panic!("not a switch") };
    assert_eq!((s.out, s.preempted, s.other), (false, false, Some((7, 8))));
    let bytes = side_band(16, 0, |b| words(b, &[pair(5, 6), 2, 1, 2, 3, 4]));
    let Record::Namespaces(n) = decode(&format, &bytes) else { panic!("not namespaces") };
    assert_eq!((n.pid, n.tid, n.links.len()), (5, 6, 2));
    assert_eq!(n.links[1].map(|word| word.get()), [3, 4]);
    let bytes = side_band(17, 0, |b| {
        words(b, &[0xffff_0000, u64::from_ne_bytes([64, 0, 0, 0, 1, 0, 2, 0])]);
        b.extend_from_slice(b"program\0");
    });
    let Record::Ksymbol(k) = decode(&format, &bytes) else { panic!("not a symbol") };
    assert_eq!((k.addr, k.len, k.kind, k.flags), (0xffff_0000, 64, 1, 2));
    assert_eq!(k.name, b"program");
    let bytes = side_band(18, 0, |b| {
        b.extend_from_slice(&[1, 0, 2, 0, 42, 0, 0, 0]);
        b.extend_from_slice(b"tagtagta");
    });
    let Record::BpfEvent(e) = decode(&format, &bytes) else { panic!("not a BPF event") };
    assert_eq!((e.kind, e.flags, e.prog_id, e.tag), (1, 2, 42, &b"tagtagta"[..]));
    let bytes = side_band(19, 0, |b| {
        words(b, &[55]);
        b.extend_from_slice(b"/a/b\0\0\0\0");
    });
    let Record::Cgroup(c) = decode(&format, &bytes) else { panic!("not a cgroup") };
    assert_eq!((c.cgroup, c.path), (55, &b"/a/b"[..]));
    let bytes = side_band(20, 0, |b| {
        words(b, &[0xffff_0000]);
        b.extend_from_slice(&[1, 0, 2, 0, 0x90, 0xcc, 0xe9, 0]);
    });
    let Record::TextPoke(p) = decode(&format, &bytes) else { panic!("not a poke") };
    assert_eq!((p.addr, p.old, p.new), (0xffff_0000, &[0x90][..], &[0xcc, 0xe9][..]));
}

#[test]
fn records_about_counts_and_traces() {
    let format = side_format();
    let bytes = side_band(8, 0, |b| words(b, &[pair(5, 6), 1, 50, 10, 42]));
    let Record::Read(r) = decode(&format, &bytes) else { panic!("not a read") };
    assert_eq!((r.pid, r.tid, r.values.time_enabled()), (5, 6, Some(50)));
    let value = ReadValue { value: 10, id: Some(42), lost: None };
    assert_eq!(r.values.values().collect::<Vec<_>>(), [value]);
    let bytes = side_band(11, 0, |b| words(b, &[1, 2, 3]));
    let Record::Aux(a) = decode(&format, &bytes) else { panic!("not aux") };
    assert_eq!((a.offset, a.size, a.flags), (1, 2, 3));
    let bytes = side_band(12, 0, |b| words(b, &[pair(7, 8)]));
    let Record::ItraceStart(i) = decode(&format, &bytes) else { panic!("not a start") };
    assert_eq!((i.pid, i.tid), (7, 8));
    let bytes = side_band(21, 0, |b| words(b, &[31]));
    let Record::AuxOutputHwId(h) = decode(&format, &bytes) else { panic!("not an ID") };
    assert_eq!((h.hw_id, h.id.time), (31, Some(777)));
}

/// Every `read_format`, as `struct read_format` in perf_event.h has it.
#[test]
fn every_read_format() {
    for set in 0..read_format::MAX {
        let has = |bit: u64| set & bit != 0;
        let (group, id, lost) =
            (has(read_format::GROUP), has(read_format::ID), has(read_format::LOST));
        let times = [
            has(read_format::TOTAL_TIME_ENABLED).then_some(50),
            has(read_format::TOTAL_TIME_RUNNING).then_some(40),
        ];
        let values: &[u64] = if group { &[1000, 2000, 3000] } else { &[1000] };
        let mut fields = Vec::new();
        let rest = |value: u64| [id.then_some(value + 1), lost.then_some(value + 2)];
        if group {
            fields.push(3);
            fields.extend(times.iter().flatten());
            values.iter().for_each(|&value| {
                fields.push(value);
                fields.extend(rest(value).iter().flatten());
            });
        } else {
            fields.push(1000);
            fields.extend(times.iter().flatten());
            fields.extend(rest(1000).iter().flatten());
        }
        let mut body = Vec::new();
        words(&mut body, &fields);
        let format = Format::from(&Attr { read_format: set, ..attr(sample::READ) });
        let bytes = record(9, 0, &body);
        let Record::Sample(s) = decode(&format, &bytes) else { panic!("not a sample") };
        let read = s.read.unwrap();
        assert_eq!([read.time_enabled(), read.time_running()], times, "{set:#b}");
        let expected: Vec<_> = values
            .iter()
            .map(|&value| ReadValue { value, id: rest(value)[0], lost: rest(value)[1] })
            .collect();
        assert_eq!(read.values().collect::<Vec<_>>(), expected, "{set:#b}");
    }
    let format = Format::from(&Attr { read_format: 1 << 5, ..attr(sample::READ) });
    let bytes = record(9, 0, &[0; 64]);
    let (raw, _) = RawRecord::split(&bytes, 0).unwrap().unwrap();
    assert!(format.decode(&raw).unwrap_err().what.contains("read_format bits 0x20"));
}

#[test]
fn both_forms_of_deferred_chains() {
    let format = side_format();
    let bytes = side_band(22, misc::USER | misc::CALLCHAIN_BUILD_ID, |b| {
        words(b, &[0xc0de, 2]);
        entry(b, &[9; 20], 0, 0x10);
        entry(b, &[], 9, 0x20);
    });
    let Record::Deferred(d) = decode(&format, &bytes) else { panic!("not deferred") };
    let DeferredFrames::Entries(entries) = d.frames else { panic!("not in build-ID form") };
    assert_eq!((d.cookie, entries.len(), d.id.tid), (0xc0de, 2, Some(6)));
    assert_eq!(entries[1].status(), Status::NoMemory);
    let bytes = side_band(22, misc::USER, |b| words(b, &[0xc0de, 2, 1, 2]));
    let Record::Deferred(d) = decode(&format, &bytes) else { panic!("not deferred") };
    assert!(matches!(d.frames, DeferredFrames::Addresses(ips) if ips.len() == 2));
    // The plain form read as the other is too short.
    let bytes = side_band(22, misc::CALLCHAIN_BUILD_ID, |b| words(b, &[0xc0de, 2, 1, 2]));
    let (raw, _) = RawRecord::split(&bytes, 0).unwrap().unwrap();
    assert!(format.decode(&raw).is_err());
}

fn seeded() -> ProptestConfig {
    ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() }
}

/// Runs `test` on a fixed sequence of inputs, so that a failure comes back.
fn run<S: Strategy>(strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    use proptest::test_runner::RngAlgorithm;
    use proptest::test_runner::TestRng;
    use proptest::test_runner::TestRunner;
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]);
    TestRunner::new_with_rng(seeded(), rng).run(strategy, test).unwrap();
}

/// Any bytes, under any format, with the types that are decoded being likely.
#[test]
fn noise_never_panics() {
    let types = prop_oneof![Just(9u32), Just(22), Just(10), 0u32..30, any::<u32>()];
    let body = prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..400);
    let inputs = (types, any::<u16>(), body, any::<u64>(), any::<u64>(), any::<bool>());
    run(&inputs, |(type_, misc, body, bits, shape, id_all)| {
        let attr = Attr {
            sample_type: bits & (sample::MAX - 1),
            read_format: shape & 31,
            branch_sample_type: shape,
            sample_regs_user: shape >> 32,
            sample_regs_intr: shape >> 48,
            flags: if id_all { flag::SAMPLE_ID_ALL } else { 0 },
            ..Attr::default()
        };
        let format = Format::from(&attr);
        let bytes = record(type_, misc, &body);
        let (raw, rest) = RawRecord::split(&bytes, 64).unwrap().unwrap();
        prop_assert!(rest.is_empty());
        let (_, _) = (format.time(&raw), format.event_id(&raw));
        if let Err(error) = format.decode(&raw) {
            prop_assert!(error.offset >= 64 && error.offset <= 64 + bytes.len() as u64);
        }
        Ok(())
    });
}

/// A good record with one byte changed: an answer or an error.
#[test]
fn one_wrong_byte_never_panics() {
    let inputs = (any::<u32>(), any::<prop::sample::Index>(), any::<u8>());
    run(&inputs, |(bits, at, byte)| {
        let bits = u64::from(bits) & ALL;
        let mut bytes = sample_record(bits);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(Some((raw, _))) = RawRecord::split(&bytes, 0) {
            let _ = Format::from(&attr(bits)).decode(&raw);
        }
        Ok(())
    });
}
