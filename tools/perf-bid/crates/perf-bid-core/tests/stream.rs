// SPDX-License-Identifier: GPL-2.0
//! Order, joins and damage in whole files that are made in memory.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::io::Cursor;

use perf_bid_core::abi::Status;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::Features;
use perf_bid_core::data::PerfData;
use perf_bid_core::data::Writer;
use perf_bid_core::data::finished_round;
use perf_bid_core::record::Record;
use perf_bid_core::stream::Counts;
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Limits;
use perf_bid_core::stream::Stream;
use proptest::prelude::*;

fn attr() -> Attr {
    Attr {
        sample_type: sample::IDENTIFIER | sample::TID | sample::TIME | sample::BUILD_ID_OFFSET,
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
    out.extend_from_slice(&(8 + body.len() as u16).to_ne_bytes());
    out.extend_from_slice(body);
    out
}

fn tids(tid: u32) -> u64 {
    tids_of(tid, tid)
}

fn tids_of(pid: u32, tid: u32) -> u64 {
    u64::from_ne_bytes([pid.to_ne_bytes(), tid.to_ne_bytes()].concat().try_into().unwrap())
}

fn entry(status: u8, value: u64) -> Vec<u8> {
    let mut out = vec![0, status];
    out.resize(24, 0);
    out.extend_from_slice(&value.to_ne_bytes());
    out
}

fn sample_at(time: u64, tid: u32, status: u8, value: u64) -> Vec<u8> {
    let body = [words(&[1, tids(tid), time]), entry(status, value)].concat();
    record(9, misc::USER, &body)
}

fn deferred(time: u64, tid: u32, cookie: u64, ip: u64) -> Vec<u8> {
    let body = [words(&[cookie, 1]), entry(4, ip), words(&[tids(tid), time, 1])].concat();
    record(22, misc::CALLCHAIN_BUILD_ID, &body)
}

fn exit(time: u64, tid: u32) -> Vec<u8> {
    record(4, 0, &words(&[tids(tid), tids(tid), time, tids(tid), time, 1]))
}

fn file(records: &[Vec<u8>]) -> Vec<u8> {
    write(records, attr())
}

fn write(records: &[Vec<u8>], attr: Attr) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), &[(attr, vec![1])]).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    let features = Features { hostname: Some("here".into()), ..Features::default() };
    writer.finish(&features).unwrap().0.into_inner()
}

/// Time of a sample, the address it is joined to, and whether its callchain is missing.
type Row = (u64, Option<u64>, bool);

/// The samples in the order they come.
fn samples(bytes: &[u8]) -> Vec<Row> {
    joined(bytes, Limits::default()).0
}

fn joined(bytes: &[u8], limits: Limits) -> (Vec<Row>, Counts) {
    let data = PerfData::from_bytes(bytes).unwrap();
    let mut stream = Stream::with_limits(&data, limits);
    let items = std::iter::from_fn(|| stream.next()).map(Result::unwrap);
    let rows = items.filter_map(|item| match item {
        Item::Sample(joined) => {
            let leaf = joined.leaf().map(|entry| entry.offset());
            Some((joined.sample.time.unwrap(), leaf, joined.missing))
        }
        Item::Other(_) => None,
    });
    (rows.collect(), stream.counts())
}

fn waits(time: u64, tid: u32, cookie: u64) -> Vec<u8> {
    sample_at(time, tid, 3, cookie)
}

/// A COMM record of thread `tid` of process `pid`.
fn comm(time: u64, pid: u32, tid: u32, exec: bool) -> Vec<u8> {
    let task = tids_of(pid, tid);
    let body = [words(&[task]), b"name\0\0\0\0".to_vec(), words(&[task, time, 1])].concat();
    record(3, if exec { misc::COMM_EXEC } else { 0 }, &body)
}

fn fork(time: u64, tid: u32, parent: u32) -> Vec<u8> {
    let pairs = [tids_of(tid, parent), tids_of(tid, parent)];
    record(7, 0, &words(&[pairs[0], pairs[1], time, tids(parent), time, 1]))
}

#[test]
fn buffers_of_several_cpus_are_put_in_order() {
    let at = |time| sample_at(time, 5, 4, time);
    let records = [
        [at(10), at(30)].concat(),
        [at(20), at(40)].concat(),
        finished_round(),
        [at(35), at(50)].concat(),
        [at(45), at(60)].concat(),
        finished_round(),
        at(55),
    ];
    let times: Vec<_> = samples(&file(&records)).into_iter().map(|(time, ..)| time).collect();
    assert_eq!(times, [10, 20, 30, 35, 40, 45, 50, 55, 60]);
    // Without marks, and in any order.
    let times = samples(&file(&[at(3), at(1), at(2), at(2)]));
    assert_eq!(times.iter().map(|(time, ..)| *time).collect::<Vec<_>>(), [1, 2, 2, 3]);
}

#[test]
fn chains_join_by_thread_and_cookie() {
    let records = [
        waits(1, 5, 100),
        waits(2, 6, 100),
        waits(3, 5, 100),
        sample_at(4, 5, 4, 0x44),
        deferred(5, 5, 100, 0x55),
        // A second record for the same cookie, as another event gets it.
        deferred(5, 5, 100, 0x56),
    ];
    let (mut rows, counts) = joined(&file(&records), Limits::default());
    rows.sort();
    let expected =
        [(1, Some(0x55), false), (2, None, true), (3, Some(0x55), false), (4, Some(0x44), false)];
    assert_eq!(rows, expected);
    let expected = Counts { deferred: 3, missing: 1, records: 1, repeated: 1, unclaimed: 0 };
    assert_eq!(counts, expected);
}

/// On the last steps to user mode, and behind an exec, samples come after their record.
#[test]
fn a_record_serves_later_samples_too() {
    let records = [
        waits(1, 5, 100),
        deferred(2, 5, 100, 0x55),
        waits(3, 5, 100),
        comm(4, 5, 5, true),
        waits(5, 5, 100),
        waits(6, 5, 101),
        waits(7, 6, 100),
        deferred(8, 5, 101, 0x56),
        // The cookie is over.
        waits(9, 5, 100),
        // Between the old program and the new one's name.
        waits(10, 5, 102),
        comm(11, 5, 5, true),
        deferred(12, 5, 102, 0x57),
    ];
    let (mut rows, counts) = joined(&file(&records), Limits::default());
    rows.sort();
    let expected = [
        (1, Some(0x55), false),
        (3, Some(0x55), false),
        (5, Some(0x55), false),
        (6, Some(0x56), false),
        (7, None, true),
        (9, None, true),
        (10, Some(0x57), false),
    ];
    assert_eq!(rows, expected);
    assert_eq!((counts.deferred, counts.missing, counts.unclaimed), (7, 2, 0));
}

#[test]
fn a_later_record_ends_the_wait_of_its_own_thread_alone() {
    let records = [
        waits(1, 5, 100),
        waits(2, 6, 200),
        deferred(3, 5, 101, 0x99),
        sample_at(4, 7, 4, 0x44),
        deferred(5, 6, 200, 0x66),
    ];
    let (rows, counts) = joined(&file(&records), Limits::default());
    assert_eq!(rows, [(1, None, true), (4, Some(0x44), false), (2, Some(0x66), false)]);
    assert_eq!((counts.records, counts.unclaimed), (2, 1));
}

#[test]
fn the_records_of_a_thread_keep_their_order() {
    let records = [
        waits(1, 5, 100),
        comm(2, 5, 5, false),
        sample_at(3, 5, 4, 0x33),
        waits(4, 5, 100),
        sample_at(5, 6, 4, 0x44),
        deferred(6, 5, 100, 0x55),
        sample_at(7, 5, 4, 0x77),
    ];
    let bytes = file(&records);
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let order: Vec<_> = Stream::new(&data)
        .filter_map(|item| match item.unwrap() {
            Item::Sample(joined) => joined.sample.time,
            Item::Other(Record::Comm(comm)) => comm.id.time,
            Item::Other(_) => None,
        })
        .collect();
    assert_eq!(order, [5, 1, 2, 3, 4, 7]);
}

/// The kernel writes the EXIT record before it does what is pending.
#[test]
fn a_thread_that_ends_is_remembered_for_a_while() {
    let late = 1_000_000_000;
    let soon = [waits(1, 5, 100), exit(2, 5), deferred(late, 5, 100, 0x55)];
    assert_eq!(samples(&file(&soon)), [(1, Some(0x55), false)]);
    let never = [
        waits(1, 5, 100),
        exit(2, 5),
        sample_at(late + 3, 6, 4, 0x44),
        deferred(late + 4, 5, 100, 0x55),
    ];
    let (rows, counts) = joined(&file(&never), Limits::default());
    assert_eq!(rows, [(1, None, true), (late + 3, Some(0x44), false)]);
    assert_eq!(counts.unclaimed, 1);
    // Its ID is somebody else's by now.
    let again = [waits(1, 5, 100), exit(2, 5), fork(3, 5, 1), deferred(4, 5, 100, 0x55)];
    assert_eq!(samples(&file(&again)), [(1, None, true)]);
    let other = [
        waits(1, 5, 100),
        exit(2, 5),
        fork(3, 5, 1),
        waits(4, 5, 101),
        sample_at(late + 3, 6, 4, 0x44),
        deferred(late + 4, 5, 101, 0x55),
    ];
    let mut rows = samples(&file(&other));
    rows.sort();
    let expected = [(1, None, true), (4, Some(0x55), false), (late + 3, Some(0x44), false)];
    assert_eq!(rows, expected);
}

/// A thread that calls exec has the ID of its process from then on.
#[test]
fn exec_in_a_thread() {
    let of_thread = |time, tid, cookie| {
        record(9, misc::USER, &[words(&[1, tids_of(5, tid), time]), entry(3, cookie)].concat())
    };
    let records = [
        of_thread(1, 6, 100),
        of_thread(1, 7, 200),
        waits(1, 8, 100),
        exit(2, 7),
        deferred(3, 5, 100, 0x55),
        comm(4, 5, 5, true),
        waits(5, 5, 100),
    ];
    let (rows, counts) = joined(&file(&records), Limits::default());
    let expected =
        [(1, Some(0x55), false), (1, None, true), (5, Some(0x55), false), (1, None, true)];
    assert_eq!(rows, expected);
    assert_eq!((counts.records, counts.unclaimed), (1, 0));
}

/// A pair of cookies in one sample that contradict each other, a sample or a record without a
/// thread, a record without frames.
#[test]
fn what_cannot_be_joined_is_missing() {
    let mut body = [words(&[1, tids(5), 1]), entry(3, 100)].concat();
    body.extend([words(&[1]), entry(3, 101)].concat());
    let contradictory = record(9, misc::USER, &body);
    let empty = record(22, misc::CALLCHAIN_BUILD_ID, &words(&[101, 0, tids(5), 3, 1]));
    let chained = |records: &[Vec<u8>]| {
        let attr = attr();
        let sample_type = attr.sample_type | sample::CALLCHAIN_BUILD_ID_OFFSET;
        write(records, Attr { sample_type, ..attr })
    };
    let records =
        [contradictory, deferred(2, 5, 100, 0x55), deferred(2, 5, 101, 0x55), empty.clone()];
    let (rows, counts) = joined(&chained(&records), Limits::default());
    assert_eq!(rows, [(1, None, true)]);
    assert_eq!((counts.unclaimed, counts.repeated), (2, 1));

    let (rows, counts) = joined(&file(&[waits(1, 5, 101), empty]), Limits::default());
    assert_eq!(rows, [(1, None, true)]);
    assert_eq!((counts.records, counts.missing, counts.unclaimed), (1, 1, 0));

    let sample_type = attr().sample_type & !sample::TID;
    let nobody = record(9, misc::USER, &[words(&[1, 1]), entry(3, 100)].concat());
    let its = [words(&[100, 1]), entry(4, 0x55), words(&[2, 1])].concat();
    let its = record(22, misc::CALLCHAIN_BUILD_ID, &its);
    let bytes = write(&[nobody, its], Attr { sample_type, ..attr() });
    assert_eq!(samples(&bytes), [(1, None, true)]);
}

#[test]
fn waiting_samples_are_bounded() {
    let limits = Limits { waiting: 1000, ..Limits::default() };
    let mut records: Vec<_> = (0..2000).map(|at| waits(at, at as u32, at)).collect();
    records.extend((0..2000).map(|at| deferred(2000 + at, at as u32, at, at)));
    let (rows, counts) = joined(&file(&records), limits);
    assert_eq!(rows.len(), 2000);
    let missing: Vec<_> = rows.iter().filter(|(.., missing)| *missing).collect();
    assert_eq!((missing.len(), counts.missing, counts.unclaimed), (1000, 1000, 1000));
    assert!(missing.iter().all(|(time, ..)| *time < 1000));
    assert!(rows.iter().all(|(time, leaf, missing)| *missing || *leaf == Some(*time)));
}

/// What is held back at a time, over files of any length.
#[test]
fn what_is_held_back_does_not_grow_with_the_file() {
    let most = |count: u64, limits: Limits, mark: bool| {
        let records: Vec<_> = (1..=count)
            .flat_map(|at| {
                let tid = at as u32;
                let mut records = vec![waits(10 * at, tid, at)];
                // Of three, one is joined, one is lost, and one has no end in the file.
                match at % 3 {
                    0 => records.push(deferred(10 * at + 1, tid, at, at)),
                    1 => records.push(exit(10 * at + 1, tid)),
                    _ => {}
                }
                if mark && at % 64 == 0 {
                    records.push(finished_round());
                }
                records
            })
            .collect();
        let bytes = file(&records);
        let data = PerfData::from_bytes(&bytes[..]).unwrap();
        let mut stream = Stream::with_limits(&data, limits);
        let (mut most, mut samples) = (0, 0);
        while let Some(item) = stream.next() {
            samples += u64::from(matches!(item.unwrap(), Item::Sample(_)));
            most = most.max(stream.held());
        }
        let counts = stream.counts();
        assert_eq!((samples, counts.deferred, counts.records), (count, count, count / 3));
        assert_eq!(counts.missing, count - count / 3);
        most
    };
    let limits = Limits { unsorted: 1 << 20, waiting: 500 };
    assert!(most(5_000, limits, true) < 1000);
    assert_eq!(most(5_000, limits, true), most(50_000, limits, true));
    let limits = Limits { unsorted: 200, waiting: 500 };
    assert!(most(50_000, limits, false) <= 702);
}

proptest! {
    /// Threads that enter the kernel, are sampled there and leave with a record, on CPUs whose
    /// buffers are read in turn. Some records are lost, some come twice. Whatever happens, each
    /// sample comes out once, joined to the record of its own thread and cookie or to none; and
    /// to one whenever that is in the file.
    #[test]
    fn any_threads_and_losses(
        steps in prop::collection::vec((0..4u32, 0..3usize, 0..10u8), 0..200),
        waiting in prop_oneof![Just(2usize), Just(1 << 16)],
        every in 1..40usize,
    ) {
        let mut cookies = [0u64; 4];
        // The same cookies in all threads, which no kernel gives out.
        let mut next = [0u64; 4];
        let mut rings = [const { Vec::new() }; 3];
        let mut records = Vec::new();
        let mut lost = std::collections::HashSet::new();
        let mut expected = std::collections::BTreeMap::new();
        let ip = |tid: u32, cookie: u64| u64::from(tid) << 32 | cookie;
        for (at, (tid, cpu, what)) in steps.iter().enumerate() {
            let time = 1 + at as u64;
            let cookie = &mut cookies[*tid as usize];
            let ring: &mut Vec<u8> = &mut rings[*cpu];
            match what {
                0..5 => {
                    if *cookie == 0 {
                        next[*tid as usize] += 1;
                        *cookie = next[*tid as usize];
                    }
                    expected.insert(time, ip(*tid, *cookie));
                    ring.extend(waits(time, *tid, *cookie));
                }
                5..8 if *cookie != 0 => {
                    ring.extend(deferred(time, *tid, *cookie, ip(*tid, *cookie)));
                    if *what == 7 {
                        ring.extend(deferred(time, *tid, *cookie, ip(*tid, *cookie)));
                    }
                    *cookie = 0;
                }
                8 if *cookie != 0 => {
                    lost.insert(ip(*tid, *cookie));
                    *cookie = 0;
                }
                _ => ring.extend(comm(time, *tid, *tid, false)),
            }
            if at % every == 0 {
                records.extend(rings.iter_mut().map(std::mem::take));
                records.push(finished_round());
            }
        }
        let pending: Vec<_> = (0..4).map(|tid| ip(tid, cookies[tid as usize])).collect();
        records.extend(rings);
        let (rows, counts) = joined(&file(&records), Limits { unsorted: 1 << 20, waiting });
        prop_assert_eq!(rows.len(), expected.len());
        let mut missing = 0;
        for (time, leaf, is_missing) in rows {
            let own = expected.remove(&time).unwrap();
            missing += u64::from(is_missing);
            prop_assert_eq!(leaf, (!is_missing).then_some(own));
            if waiting > 2 {
                prop_assert_eq!(is_missing, lost.contains(&own) || pending.contains(&own));
            }
        }
        prop_assert_eq!(counts.missing, missing);
    }
}

#[test]
fn what_comes_before_the_damage_is_kept() {
    let mut bytes = file(&[sample_at(1, 5, 4, 1), sample_at(2, 5, 4, 2), sample_at(3, 5, 4, 3)]);
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let third = data.records().nth(2).unwrap().unwrap().offset as usize;
    bytes[third + 6..third + 8].copy_from_slice(&4u16.to_ne_bytes());
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let items: Vec<_> = Stream::new(&data).collect();
    assert_eq!(items.len(), 3);
    assert!(items[..2].iter().all(|item| matches!(item, Ok(Item::Sample(_)))));
    let error = items[2].as_ref().unwrap_err();
    assert_eq!(error.offset, third as u64, "{error}");
}

/// Any one byte of a file wrong, at every place: an answer or an error, and an end.
#[test]
fn one_wrong_byte_anywhere() {
    let records = [
        sample_at(1, 5, 3, 9),
        finished_round(),
        deferred(2, 5, 9, 1),
        exit(3, 5),
        sample_at(4, 5, 4, 1),
    ];
    let whole = file(&records);
    let longest = whole.len();
    let mut bytes = whole.clone();
    for at in 0..whole.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            bytes[at] = byte;
            if let Ok(data) = PerfData::from_bytes(&bytes[..]) {
                let count = Stream::new(&data).take(longest).count();
                assert!(count < longest, "byte {at} = {byte}: no end");
            }
        }
        bytes[at] = whole[at];
    }
    // Nor does a file that is cut off anywhere.
    for len in 0..whole.len() {
        if let Ok(data) = PerfData::from_bytes(&whole[..len]) {
            assert!(Stream::new(&data).count() < longest);
        }
    }
}

#[test]
fn events_are_told_apart_by_their_ids() {
    let first = attr();
    let second = Attr { type_: 1, ..attr() };
    let mut writer =
        Writer::new(Cursor::new(Vec::new()), &[(first, vec![1, 2]), (second, vec![3])]).unwrap();
    for id in [1u64, 3, 2] {
        let body = [words(&[id, tids(5), 10]), entry(4, id)].concat();
        writer.write(&record(9, misc::USER, &body)).unwrap();
    }
    let features = Features {
        events: vec![("one".into(), vec![1, 2]), ("two".into(), vec![3])],
        ..Features::default()
    };
    let bytes = writer.finish(&features).unwrap().0.into_inner();
    let data = PerfData::from_bytes(&bytes[..]).unwrap();
    let of: Vec<_> = data
        .records()
        .map(|raw| data.event_of(&raw.unwrap()).map(|(_, event)| event.name.clone()).unwrap())
        .collect();
    assert_eq!(of, ["one", "two", "one"]);
    let Record::Sample(sample) = data.decode(&data.records().next().unwrap().unwrap()).unwrap()
    else {
        panic!("not a sample");
    };
    assert_eq!(sample.bid.unwrap().status(), Status::Anon);
}
