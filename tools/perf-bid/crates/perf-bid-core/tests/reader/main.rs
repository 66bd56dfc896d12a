// SPDX-License-Identifier: GPL-2.0
//! Recordings of stock perf in all the forms it writes, the same of the other byte order, and
//! all of them damaged. How the recordings were made is in `data/README`.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod foreign;

use std::io::Cursor;
use std::io::Write;

use perf_bid_core::abi::flag;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::read_format;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::ByteOrder;
use perf_bid_core::data::DataError;
use perf_bid_core::data::Features;
use perf_bid_core::data::PerfData;
use perf_bid_core::data::Writer;
use perf_bid_core::data::finished_round;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::ReadValue;
use perf_bid_core::record::Record;
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Stream;
use proptest::prelude::*;

macro_rules! fixtures {
    ($($name:literal),*) => {
        [$(($name, include_bytes!(concat!("../data/", $name, ".perf")) as &[u8])),*]
    };
}

const FIXTURES: [(&str, &[u8]); 9] = fixtures![
    "plain",
    "two-events",
    "compressed",
    "pipe",
    "compressed-pipe",
    "tracepoint",
    "tracepoint-pipe",
    "group",
    "fields"
];

fn fixture(name: &str) -> &'static [u8] {
    FIXTURES.iter().find(|(its, _)| *its == name).unwrap().1
}

fn open(bytes: &[u8]) -> PerfData<&[u8]> {
    PerfData::from_bytes(bytes).unwrap()
}

/// Everything that a file says, as text.
fn contents(data: &PerfData<&[u8]>) -> Vec<String> {
    let mut rows: Vec<_> = Stream::new(data).map(|item| format!("{:?}", item.unwrap())).collect();
    rows.extend(data.events().iter().map(|event| format!("{event:?}")));
    rows.push(format!("{:?}", data.features()));
    rows
}

fn samples(data: &PerfData<&[u8]>) -> usize {
    let samples = Stream::new(data).filter(|item| matches!(item, Ok(Item::Sample(_))));
    samples.count()
}

/// The error at the end of the records, and how many items came before.
fn end(data: &PerfData<&[u8]>) -> (usize, Option<String>) {
    let items: Vec<_> = Stream::new(data).collect();
    let errors: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
    assert!(errors.len() <= 1);
    (items.len() - errors.len(), errors.first().map(|error| error.to_string()))
}

/// What perf itself counts in them (`perf report --stats`, `perf script`).
#[test]
fn stock_recordings_are_read_whole() {
    let expected: [(&str, usize, &[&str], bool, bool); 9] = [
        ("plain", 23, &["task-clock:ppp"], false, false),
        ("two-events", 54, &["cpu-clock", "page-faults"], false, false),
        ("compressed", 751, &["task-clock:ppp"], false, true),
        ("pipe", 24, &["task-clock:ppp"], true, false),
        ("compressed-pipe", 163, &["task-clock:ppp"], true, true),
        ("tracepoint", 2, &["sched:sched_process_fork"], false, false),
        ("tracepoint-pipe", 2, &["sched:sched_process_fork"], true, false),
        ("group", 11, &["cpu-clock", "task-clock"], false, false),
        ("fields", 4, &["task-clock:ppp"], false, false),
    ];
    for (name, samples_of, events, pipe, compressed) in expected {
        let data = open(fixture(name));
        assert_eq!(samples(&data), samples_of, "{name}");
        assert_eq!(end(&data).1, None, "{name}");
        let names: Vec<_> = data.events().iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, events, "{name}");
        assert_eq!((data.is_pipe(), data.is_compressed()), (pipe, compressed), "{name}");
        assert_eq!(data.byte_order(), ByteOrder::Little, "{name}");
        assert_eq!((data.notes(), data.feature_errors()), (&[][..], &[][..]), "{name}");
        let features = data.features();
        assert_eq!(features.hostname.as_deref(), Some("recorder"), "{name}");
        assert_eq!(features.arch.as_deref(), Some("x86_64"), "{name}");
        assert_eq!(features.compression.map(|c| c.kind), compressed.then_some(1), "{name}");
        assert!(features.pmus.contains(&(1, "software".into())), "{name}");
    }
}

#[test]
fn fields_of_stock_recordings() {
    let group = open(fixture("group"));
    let sample = Stream::new(&group).find_map(|item| match item.unwrap() {
        Item::Sample(joined) => Some(joined.sample),
        Item::Other(_) => None,
    });
    let read = sample.unwrap().read.unwrap();
    // As `perf script -D` shows the first one.
    let value = |value, id| ReadValue { value, id: Some(id), lost: Some(0) };
    let expected = [value(0x1e_cbd6, 0x1a12), value(0x1e_dbc1, 0x1a14)];
    assert_eq!(read.values().collect::<Vec<_>>(), expected);
    assert_eq!((read.time_enabled(), read.time_running()), (None, None));
    let described = &group.features().groups[..];
    assert_eq!(described.len(), 1);
    assert_eq!((described[0].leader, described[0].members), (0, 2));

    let fields = open(fixture("fields"));
    assert_eq!(fields.features().clock_data.unwrap().clockid, 1);
    let (mut reads, mut switches, mut stacks) = (0, 0, 0);
    for item in Stream::new(&fields) {
        match item.unwrap() {
            Item::Other(Record::Read(read)) => {
                reads += 1;
                let (enabled, running) = (read.values.time_enabled(), read.values.time_running());
                assert!(enabled.unwrap() >= running.unwrap());
                assert_eq!(read.values.values().count(), 1);
                assert_eq!(read.values.values().next().unwrap().lost, Some(0));
            }
            Item::Other(Record::Switch(switch)) => {
                switches += 1;
                assert!(switch.id.tid.is_some() && switch.other.is_none());
            }
            Item::Sample(joined) => {
                let sample = joined.sample;
                stacks += sample.stack_user.map_or(0, <[_]>::len);
                assert!(sample.addr.is_some() && sample.phys_addr.is_some());
                assert!(sample.cgroup.is_some() && sample.weight.is_some());
            }
            Item::Other(_) => {}
        }
    }
    assert!(reads > 0 && switches > 0 && stacks > 0);

    let section = |name| {
        let data = open(fixture(name));
        data.feature_sections().find(|(bit, _)| *bit == 1).map(|(_, bytes)| bytes.to_vec())
    };
    let (file, pipe) = (section("tracepoint").unwrap(), section("tracepoint-pipe").unwrap());
    assert_eq!(&file[1..8], b"\x08\x44tracin"[..7].as_ref());
    // In a pipe, it is a payload of whole double words.
    assert_eq!((pipe.len(), &pipe[..file.len()]), (file.len().next_multiple_of(8), &file[..]));
}

#[test]
fn the_other_byte_order_says_the_same() {
    for (name, native) in FIXTURES {
        if name.starts_with("compressed") {
            continue;
        }
        for long in [8, 4] {
            let foreign = foreign::file(native, long);
            let (data, ours) = (open(&foreign), open(native));
            assert_eq!(data.byte_order(), ByteOrder::Big, "{name}");
            assert_eq!(contents(&data), contents(&ours), "{name}");
            assert_eq!(data.feature_errors(), [], "{name}");
            assert_eq!(data.notes(), ours.notes(), "{name}");
            // Nothing was dropped, so that errors would have the right place.
            assert_eq!(data.data_len(), ours.data_len(), "{name}");
        }
    }
}

/// Attrs and records with everything in them, one of each type.
fn everything() -> Vec<u8> {
    let attr = Attr {
        type_: 4,
        config: 0x1122_3344_5566_7788,
        sample_period: 77,
        sample_type: (sample::MAX - 1) & !sample::WEIGHT,
        read_format: read_format::MAX - 1,
        // precise_ip 1, which is not 2 read backwards.
        flags: flag::SAMPLE_ID_ALL | flag::MMAP2 | flag::DEFER_OUTPUT | flag::INHERIT | 1 << 15,
        wakeup: 3,
        bp_type: 4,
        config1: 5,
        config2: 6,
        branch_sample_type: 1 << 17 | 1 << 19,
        sample_regs_user: 0b101,
        sample_stack_user: 7,
        clockid: -8,
        sample_regs_intr: 0b1,
        aux_watermark: 9,
        sample_max_stack: 10,
        aux_sample_size: 11,
        sig_data: 12,
        config3: 13,
    };
    let mut writer = Writer::new(Cursor::new(Vec::new()), &[(attr, vec![101])]).unwrap();
    for record in all_records() {
        writer.write(&record).unwrap();
    }
    let features = Features { hostname: Some("here".into()), ..Features::default() };
    writer.finish(&features).unwrap().0.into_inner()
}

fn record(type_: u32, misc: u16, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut out = type_.to_ne_bytes().to_vec();
    out.extend_from_slice(&misc.to_ne_bytes());
    out.extend_from_slice(&(8 + body.len() as u16).to_ne_bytes());
    out.extend_from_slice(&body);
    out
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn halves(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn shorts(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn entry(id: &[u8], status: u8, offset: u64) -> Vec<u8> {
    let mut out = vec![id.len() as u8, status, 0, 0];
    out.extend_from_slice(id);
    out.resize(24, 0);
    out.extend_from_slice(&offset.to_ne_bytes());
    out
}

fn all_records() -> Vec<Vec<u8>> {
    // pid tid, time, id, stream_id, cpu res, identifier
    let id_at =
        |time| [halves(&[5, 6]), words(&[time, 101, 102]), halves(&[3, 0]), words(&[101])].concat();
    let sample = record(
        9,
        misc::USER,
        &[
            &words(&[101, 102]),
            &halves(&[5, 6]),
            &words(&[103, 104, 101, 106]),
            &halves(&[3, 0]),
            &words(&[107]),
            &words(&[2, 50, 40, 1, 11, 0, 2, 22, 3]),
            &words(&[2, 201, 202]),
            &halves(&[12]),
            b"rawrawrawraw",
            // nr, hw_idx, two branches, two counters
            &words(&[2, 77, 1, 2, 0x123_4567_89ab, 3, 4, 5, 8, 9]),
            &words(&[2, 301, 302]),
            &words(&[8]),
            b"stacking",
            &words(&[8]),
            &halves(&[0x1111_2222]),
            &shorts(&[0x3333, 0x4444]),
            &words(&[110, 111]),
            &words(&[2, 303]),
            &words(&[112, 113, 4096, 8192]),
            &entry(&[7; 16], 0, 0x1234),
            &words(&[2]),
            &entry(&[7; 8], 0, 0x99),
            &entry(&[], 7, 0xabc),
            &words(&[4]),
            b"auxi",
        ],
    );
    let mut time = 103;
    let mut kernel = |type_, misc, parts: &[&[u8]]| {
        time += 1;
        record(type_, misc, &[&parts.concat(), &id_at(time)])
    };
    let map = [halves(&[5, 6]), words(&[0x1000, 0x2000, 0x3000])].concat();
    let path = b"/bin/x\0\0";
    let build_id = entry(&[9; 20], 0, 0);
    let user = |type_, parts: &[&[u8]]| record(type_, 0, parts);
    vec![
        sample,
        kernel(1, misc::MMAP_DATA, &[&map, path]),
        kernel(10, 0, &[&map, &halves(&[8, 1]), &words(&[99, 3]), &halves(&[5, 2]), path]),
        kernel(10, misc::MMAP_BUILD_ID, &[&map, &build_id[..24], &halves(&[5, 2]), path]),
        kernel(2, 0, &[&words(&[101, 17])]),
        kernel(3, misc::COMM_EXEC, &[&halves(&[5, 6]), b"name\0\0\0\0"]),
        kernel(4, 0, &[&halves(&[5, 1, 6, 2]), &words(&[108])]),
        kernel(7, 0, &[&halves(&[5, 1, 6, 2]), &words(&[109])]),
        kernel(5, 0, &[&words(&[110, 101, 102])]),
        kernel(6, 0, &[&words(&[111, 101, 102])]),
        kernel(8, 0, &[&halves(&[5, 6]), &words(&[1, 50, 40, 1, 11, 0])]),
        kernel(11, 0, &[&words(&[1, 2, 3])]),
        kernel(12, 0, &[&halves(&[5, 6])]),
        kernel(13, 0, &[&words(&[18])]),
        kernel(14, misc::SWITCH_OUT | misc::SWITCH_OUT_PREEMPT, &[]),
        kernel(15, misc::SWITCH_OUT, &[&halves(&[7, 8])]),
        kernel(16, 0, &[&halves(&[5, 6]), &words(&[2, 1, 2, 3, 4])]),
        kernel(17, 0, &[&words(&[0xffff_0000]), &halves(&[64]), &shorts(&[1, 0]), b"bpf_prog"]),
        kernel(18, 0, &[&shorts(&[1, 0]), &halves(&[42]), b"tagtagta"]),
        kernel(19, 0, &[&words(&[55]), b"/a/b\0\0\0\0"]),
        kernel(20, 0, &[&words(&[0xffff_0000]), &shorts(&[1, 2]), &[0x90, 0xcc, 0xe9, 0]]),
        kernel(21, 0, &[&words(&[31])]),
        kernel(22, 0, &[&words(&[0xc0de, 2, 1, 2])]),
        kernel(22, misc::CALLCHAIN_BUILD_ID, &[&words(&[0xc0de, 1]), &entry(&[9; 20], 0, 16)]),
        finished_round(),
        user(65, &[&words(&[4]), &[b'n'; 64]]),
        [user(66, &[&halves(&[8, 0])]), b"tracings".to_vec()].concat(),
        user(67, &[&halves(&[5]), &[7; 24], path]),
        user(69, &[&words(&[1, 101, 2, 3, 4])]),
        user(70, &[&halves(&[1, 0]), &words(&[1, 2])]),
        [
            user(71, &[&words(&[16, 0, 1]), &halves(&[0, 6, 3, 0])]),
            b"not a record at all"[..16].to_vec(),
        ]
        .concat(),
        user(72, &[&halves(&[1, 2, 3, 4, 5, 2]), &words(&[6, 7]), &[b'm'; 64], &halves(&[8, 9])]),
        user(73, &[&words(&[1, 5]), b"thread\0\0\0\0\0\0\0\0\0\0"]),
        user(74, &[&shorts(&[0, 2, 4, 5])]),
        user(74, &[&shorts(&[1, 1, 8, 0, 0]), &words(&[7]), &[0; 6]]),
        user(74, &[&shorts(&[1, 2, 4]), &halves(&[7, 8]), &[0; 2]]),
        user(74, &[&shorts(&[2]), &[1, 0], &shorts(&[0, 3])]),
        user(75, &[&words(&[1, 2, 3])]),
        user(76, &[&words(&[101]), &halves(&[1, 2]), &words(&[3, 4, 5])]),
        user(77, &[&words(&[1, 2])]),
        user(78, &[&words(&[2, 101]), b"renamed\0"]),
        user(78, &[&words(&[1, 101]), &words(&[1.5f64.to_bits()])]),
        user(78, &[&words(&[3, 101]), &shorts(&[0, 1, 4, 0])]),
        user(79, &[&words(&[1, 2, 3, 4, 5]), &[1, 0, 0, 0, 0, 0, 0, 0]]),
        user(82, &[]),
    ]
}

/// The records as they lie in a file, and what follows them.
fn raw_bytes(data: &PerfData<&[u8]>) -> Vec<(u32, u16, Vec<u8>, Vec<u8>)> {
    let records = data.records().map(Result::unwrap);
    let row = |raw: RawRecord<'_>| {
        (raw.type_, raw.misc, raw.body.to_vec(), data.payload(&raw).unwrap().to_vec())
    };
    records.map(row).collect()
}

#[test]
fn every_type_of_record_of_the_other_byte_order() {
    let native = everything();
    let foreign = foreign::file(&native, 8);
    let (ours, data) = (open(&native), open(&foreign));
    assert_eq!(contents(&data), contents(&ours));
    assert_eq!(raw_bytes(&data), raw_bytes(&ours));
    assert_eq!(raw_bytes(&ours).len(), all_records().len());
    let kinds: std::collections::HashSet<_> = contents(&ours)
        .iter()
        .map(|row| row.split(|c: char| !c.is_alphanumeric()).take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert!(kinds.contains("Other TextPoke") && kinds.contains("Other Namespaces"), "{kinds:?}");
    let sample = Stream::new(&data).find_map(|item| match item.unwrap() {
        Item::Sample(joined) => Some(joined.sample),
        Item::Other(_) => None,
    });
    let sample = sample.unwrap();
    assert_eq!((sample.weight, sample.weight_parts), (Some(0x1111_2222), Some((0x3333, 0x4444))));
    let branches = sample.branches.unwrap();
    let first = branches.entries[0];
    // 0x123456789ab: mispredicted, predicted, not in a transaction, an abort, then 16 bits.
    assert!(first.mispredicted() && first.predicted() && first.aborted());
    assert_eq!((first.in_transaction(), first.cycles(), first.kind()), (false, 0x789a, 0x6));
    assert_eq!((branches.hw_index, branches.counters.len()), (Some(77), 2));
}

#[test]
fn unknown_records_of_the_other_byte_order_are_counted() {
    let mut bytes = foreign::file(&everything(), 8);
    let at = bytes.len();
    let unknown = [0, 0, 0, 99, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8];
    // In place of FINISHED_ROUND and the user record behind it, which is longer.
    let round = bytes.windows(8).position(|bytes| bytes == [0, 0, 0, 68, 0, 0, 0, 8]).unwrap();
    bytes.splice(round..round, unknown.into_iter().chain(unknown));
    let data_len = u64::from_be_bytes(bytes[48..56].try_into().unwrap()) + 32;
    bytes[48..56].copy_from_slice(&data_len.to_be_bytes());
    assert_eq!(bytes.len(), at + 32);
    let native = everything();
    let (data, ours) = (open(&bytes), open(&native));
    assert_eq!(data.notes(), ["2 records of unknown type 99 passed over"]);
    assert_eq!(raw_bytes(&data), raw_bytes(&ours));
}

/// Type 83 as type 81, which has no size of its own and no padding.
fn older_compression(bytes: &[u8]) -> Vec<u8> {
    let (at, len) = (foreign::u64_at(bytes, 40) as usize, foreign::u64_at(bytes, 48) as usize);
    let mut out = bytes[..at].to_vec();
    let mut next = at;
    while next < at + len {
        let size = usize::from(foreign::u16_at(bytes, next + 6));
        let record_bytes = &bytes[next..next + size];
        if foreign::u32_at(record_bytes, 0) == 83 {
            let data_size = foreign::u64_at(record_bytes, 8) as usize;
            out.extend(record(81, 0, &[&record_bytes[16..16 + data_size]]));
        } else {
            out.extend_from_slice(record_bytes);
        }
        next += size;
    }
    let data_len = (out.len() - at) as u64;
    out[48..56].copy_from_slice(&data_len.to_ne_bytes());
    // The features are left out; that the file is compressed is seen without them only in one
    // that was not finished.
    out[48..56].fill(0);
    out
}

#[test]
fn both_forms_of_compression() {
    let newer = open(fixture("compressed"));
    let bytes = older_compression(fixture("compressed"));
    let older = open(&bytes);
    assert!(older.is_compressed());
    let (count, error) = end(&older);
    assert!(error.unwrap().contains("never finished"));
    assert_eq!(older.notes(), ["the recording was never finished"]);
    assert_eq!(count, Stream::new(&newer).count());
    assert_eq!(samples(&older), samples(&newer));
}

/// A plain file with some of its records compressed, cut into pieces of `piece` bytes.
fn compress(bytes: &[u8], piece: usize) -> Vec<u8> {
    use zstd::stream::raw::Operation;
    use zstd::stream::raw::OutBuffer;
    let (at, len) = (foreign::u64_at(bytes, 40) as usize, foreign::u64_at(bytes, 48) as usize);
    let mut out = bytes[..at].to_vec();
    let mut encoder = zstd::stream::raw::Encoder::new(1).unwrap();
    for piece in bytes[at..at + len].chunks(piece) {
        let mut buf = vec![0; 2 * piece.len() + 1000];
        let status = encoder.run_on_buffers(piece, &mut buf).unwrap();
        assert_eq!(status.bytes_read, piece.len());
        let mut rest = OutBuffer::around(&mut buf[status.bytes_written..]);
        assert_eq!(encoder.flush(&mut rest).unwrap(), 0);
        let written = status.bytes_written + rest.pos();
        let padding = vec![0; written.next_multiple_of(8) - written];
        out.extend(record(83, 0, &[&words(&[written as u64]), &buf[..written], &padding]));
    }
    out[48..56].fill(0);
    out
}

#[test]
fn records_may_be_split_between_compressed_ones() {
    let plain = open(fixture("plain"));
    for piece in [3, 17, 1000, 60_000] {
        let bytes = compress(fixture("plain"), piece);
        let data = open(&bytes);
        assert!(data.is_compressed());
        assert_eq!(data.data_len(), plain.data_len(), "{piece}");
        assert_eq!(raw_bytes_until_error(&data), raw_bytes_until_error(&plain), "{piece}");
    }
    // A file of the other byte order has compressed records of that order.
    let mut foreign = foreign::file(fixture("plain"), 8);
    let header: Vec<_> = foreign[..104].to_vec();
    foreign[40..48].reverse();
    foreign[48..56].reverse();
    let mut bytes = compress(&foreign, 1000);
    let at = foreign::u64_at(fixture("plain"), 40) as usize;
    bytes[..104].copy_from_slice(&header);
    bytes[48..56].fill(0);
    let mut next = at;
    while next < bytes.len() {
        let size = usize::from(foreign::u16_at(&bytes, next + 6));
        bytes[next..next + 4].reverse();
        bytes[next + 4..next + 6].reverse();
        bytes[next + 6..next + 8].reverse();
        bytes[next + 8..next + 16].reverse();
        next += size;
    }
    let data = open(&bytes);
    assert!(data.is_compressed());
    assert_eq!(raw_bytes_until_error(&data), raw_bytes_until_error(&plain));
}

fn raw_bytes_until_error(data: &PerfData<&[u8]>) -> Vec<(u32, Vec<u8>)> {
    data.records().map_while(Result::ok).map(|raw| (raw.type_, raw.body.to_vec())).collect()
}

#[test]
fn compression_that_goes_wrong() {
    let plain = fixture("plain");
    let at = foreign::u64_at(plain, 40) as usize;
    let with = |records: &[Vec<u8>]| {
        let mut bytes = plain[..at].to_vec();
        bytes[48..56].fill(0);
        let mut inner = bytes.clone();
        inner.extend(records.concat());
        let len = (inner.len() - at) as u64;
        inner[48..56].copy_from_slice(&len.to_ne_bytes());
        compress(&inner, 1 << 20)
    };
    let nested = with(&[finished_round(), record(81, 0, &[b"x"])]);
    let data = open(&nested);
    let (_, error) = end(&data);
    let error = error.unwrap();
    assert!(error.contains("type 81 within a compressed one"), "{error}");

    let mut garbage = compress(plain, 1000);
    garbage[at + 16..at + 40].fill(0xaa);
    let (count, error) = end(&open(&garbage));
    assert!(count == 0 && error.unwrap().contains("damaged"));

    // Its size reaches past the record.
    let mut long = compress(plain, 1000);
    long[at + 8..at + 16].copy_from_slice(&u64::MAX.to_ne_bytes());
    assert!(end(&open(&long)).1.unwrap().contains("compressed data needs"));

    // A little that becomes much: it has to go to a file, and is not kept in memory.
    let bomb = with(&vec![record(3, 0, &[&[0; 65_520]]); 200]);
    assert!(bomb.len() < 60_000);
    let data = open(&bomb);
    assert_eq!(data.data_len(), 200 * 65_528);

    // But not so much that a small file fills a disk. What fits is kept.
    let bomb = with(&vec![record(3, 0, &[&[0; 65_520]]); 1400]);
    let data = open(&bomb);
    assert!((64 << 20..1400 * 65_528).contains(&data.data_len()), "{}", data.data_len());
    let (count, error) = end(&data);
    assert_eq!(count as u64, data.data_len() / 65_528);
    assert!(error.unwrap().contains("more than 1024 times as long inside"));
}

/// Through FIFOs and readers that give a byte at a time.
#[test]
fn what_cannot_be_mapped() {
    struct Trickle<'a>(&'a [u8]);
    impl std::io::Read for Trickle<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let len = buf.len().min(7);
            self.0.read(&mut buf[..len])
        }
    }
    for (name, bytes) in FIXTURES {
        let piped = PerfData::from_reader(Trickle(bytes)).unwrap();
        let mapped = open(bytes);
        assert_eq!(piped.data_len(), mapped.data_len(), "{name}");
        assert_eq!(piped.features(), mapped.features(), "{name}");
        assert_eq!(piped.records().count(), mapped.records().count(), "{name}");
    }
    assert!(matches!(PerfData::from_reader(&b""[..]), Err(DataError::Empty)));
    assert!(matches!(PerfData::from_reader(&b"PERF"[..]), Err(DataError::NotPerfData)));
    assert!(PerfData::from_reader(&b"PERFILE2\x68\0\0\0\0\0\0\0"[..]).is_err());

    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(PerfData::open(dir.path()), Err(DataError::Directory)));
    let path = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let writer = std::thread::spawn({
        let path = path.clone();
        move || std::fs::File::create(path).unwrap().write_all(fixture("pipe")).unwrap()
    });
    let data = PerfData::open(&path).unwrap();
    writer.join().unwrap();
    assert_eq!(data.records().count(), open(fixture("pipe")).records().count());
}

#[test]
fn a_pipe_that_ends_early() {
    let whole = fixture("pipe");
    let all = open(whole).records().count();
    let (_, error) = end(&open(&whole[..whole.len() - 3]));
    assert_eq!(raw_bytes_until_error(&open(&whole[..whole.len() - 3])).len(), all - 1);
    assert!(error.unwrap().contains("in the middle of one"));
    let nothing = open(&whole[..16]);
    assert_eq!((nothing.events().len(), end(&nothing)), (0, (0, None)));
}

/// perf was killed before it could write sizes and features.
#[test]
fn a_recording_that_was_never_finished() {
    let whole = fixture("plain");
    let data = open(whole);
    let end_of_data = (foreign::u64_at(whole, 40) + data.data_len()) as usize;
    let mut bytes = whole[..end_of_data].to_vec();
    bytes[48..56].fill(0);
    let unfinished = open(&bytes);
    assert_eq!(unfinished.data_len(), data.data_len());
    let (count, error) = end(&unfinished);
    assert_eq!(count, Stream::new(&data).count());
    assert!(error.unwrap().contains("never finished"));
    assert_eq!(unfinished.notes(), ["the recording was never finished"]);

    bytes.truncate(end_of_data - 5);
    let cut = open(&bytes);
    assert_eq!(raw_bytes_until_error(&cut).len(), data.records().count() - 1);
    assert!(end(&cut).1.is_some());

    // One that is finished and empty.
    let writer = Writer::new(Cursor::new(Vec::new()), &[(Attr::default(), vec![1])]).unwrap();
    let empty = writer.finish(&Features::default()).unwrap().0.into_inner();
    let empty = open(&empty);
    assert_eq!((empty.data_len(), empty.notes(), end(&empty)), (0, &[][..], (0, None)));
}

#[test]
fn version_1_is_read() {
    for foreign in [false, true] {
        let mut bytes = match foreign {
            true => foreign::file(fixture("plain"), 8),
            false => fixture("plain").to_vec(),
        };
        bytes[..8].copy_from_slice(b"PERFFILE");
        assert_eq!(contents(&open(&bytes)), contents(&open(fixture("plain"))));
    }
}

/// Attrs of other sizes than ours, in a file of one event.
#[test]
fn attrs_of_any_size() {
    let attr = Attr { type_: 1, sample_type: sample::IP, ..Attr::default() };
    let file = |size: usize, last: u8| {
        let mut full = attr.to_bytes();
        full.resize(size, 0);
        full[4..8].copy_from_slice(&(size as u32).to_ne_bytes());
        if size > 136 {
            full[size - 1] = last;
        }
        let at = 104 + size as u64 + 16;
        let header = words(&[
            u64::from_le_bytes(*b"PERFILE2"),
            104,
            size as u64 + 16,
            104,
            size as u64 + 16,
            at,
            16,
            0,
            0,
        ]);
        [header, vec![0; 32], full, words(&[0, 0]), record(9, 0, &[&words(&[7])])].concat()
    };
    for size in (64..=256).step_by(8) {
        let bytes = file(size, 0);
        let data = open(&bytes);
        assert_eq!((samples(&data), data.notes()), (1, &[][..]), "{size}");
        assert_eq!(data.events()[0].attr, attr, "{size}");
    }
    let bytes = file(144, 1);
    assert!(open(&bytes).notes()[0].contains("144 bytes long"));
    assert!(PerfData::from_bytes(&file(56, 0)[..]).is_err());
}

/// Any damage to any recording: an answer or an error, an end, and errors at a place in it.
fn survives(bytes: &[u8]) -> Result<(), TestCaseError> {
    let data = match PerfData::from_bytes(bytes) {
        Ok(data) => data,
        Err(DataError::Malformed(error)) => {
            prop_assert!(error.offset <= bytes.len() as u64, "{error}");
            return Ok(());
        }
        Err(_) => return Ok(()),
    };
    let most = data.data_len() / 8 + 2;
    // What was compressed has places that the file itself does not reach to.
    let all = bytes.len() as u64 + if data.is_compressed() { data.data_len() } else { 0 };
    let mut count = 0;
    for item in Stream::new(&data) {
        count += 1;
        prop_assert!(count <= most);
        if let Err(error) = item {
            prop_assert!(error.offset <= all, "{error}");
        }
    }
    data.feature_sections().for_each(drop);
    Ok(())
}

fn run<S: Strategy>(
    cases: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    use proptest::test_runner::RngAlgorithm;
    use proptest::test_runner::TestRng;
    use proptest::test_runner::TestRunner;
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new_with_rng(config, rng).run(strategy, test).unwrap();
}

#[test]
fn damage_of_any_kind() {
    let mut inputs: Vec<_> = FIXTURES.iter().map(|(_, bytes)| bytes.to_vec()).collect();
    let plain =
        inputs.iter().zip(FIXTURES).filter(|(_, (name, _))| !name.starts_with("compressed"));
    let foreign: Vec<_> = plain.map(|(bytes, _)| foreign::file(bytes, 8)).collect();
    inputs.extend(foreign);
    inputs.push(everything());
    inputs.push(foreign::file(&everything(), 8));
    let change = (
        any::<prop::sample::Index>(),
        prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            Just(vec![0xff; 8]),
            Just(vec![0; 8]),
            prop::collection::vec(any::<u8>(), 1..9),
        ],
    );
    let cut = prop::option::weighted(0.2, any::<prop::sample::Index>());
    let strategy =
        (any::<prop::sample::Index>(), prop::collection::vec(change, 0..4), cut, any::<bool>());
    run(3000, &strategy, |(which, changes, cut, early)| {
        let mut bytes = inputs[which.index(inputs.len())].clone();
        for (at, new) in changes {
            // Headers, attrs and the first records are worth more than the rest.
            let range = if early { bytes.len().min(600) } else { bytes.len() };
            let at = at.index(range);
            let len = new.len().min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&new[..len]);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        survives(&bytes)
    });
}
