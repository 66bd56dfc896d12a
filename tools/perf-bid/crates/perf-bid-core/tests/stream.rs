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
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Stream;
use perf_bid_core::stream::WAITING_MAX;

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
    u64::from_ne_bytes([tid.to_ne_bytes(), tid.to_ne_bytes()].concat().try_into().unwrap())
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
    let mut writer = Writer::new(Cursor::new(Vec::new()), &[(attr(), vec![1])]).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    let features = Features { hostname: Some("here".into()), ..Features::default() };
    writer.finish(&features).unwrap().0.into_inner()
}

/// Times of the samples in the order they come, with what they are joined to.
fn samples(bytes: &[u8]) -> Vec<(u64, Option<u64>, bool)> {
    let data = PerfData::from_bytes(bytes).unwrap();
    let joined = Stream::new(&data).map(Result::unwrap).filter_map(|item| match item {
        Item::Sample(joined) => Some(joined),
        Item::Other(_) => None,
    });
    joined
        .map(|joined| {
            let leaf = joined.leaf().map(|entry| entry.offset());
            (joined.sample.time.unwrap(), leaf, joined.missing)
        })
        .collect()
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
    let waits = |time, tid, cookie| sample_at(time, tid, 3, cookie);
    let records = [
        waits(1, 5, 100),
        waits(2, 6, 100),
        waits(3, 5, 100),
        sample_at(4, 5, 4, 0x44),
        deferred(5, 5, 100, 0x55),
        // A second record for the same cookie, as another event gets it.
        deferred(5, 5, 100, 0x56),
        waits(6, 5, 101),
        exit(7, 5),
        deferred(8, 5, 101, 0x57),
    ];
    let mut joined = samples(&file(&records));
    joined.sort();
    let expected = [
        (1, Some(0x55), false),
        (2, None, true),
        (3, Some(0x55), false),
        (4, Some(0x44), false),
        (6, None, true),
    ];
    assert_eq!(joined, expected);
}

#[test]
fn waiting_samples_are_bounded() {
    let count = WAITING_MAX as u64 + 1000;
    let mut records: Vec<_> = (0..count).map(|at| sample_at(at, 5, 3, at)).collect();
    records.extend((0..count).map(|at| deferred(count + at, 5, at, at)));
    let joined = samples(&file(&records));
    assert_eq!(joined.len() as u64, count);
    let missing: Vec<_> = joined.iter().filter(|(.., missing)| *missing).collect();
    assert_eq!(missing.len(), 1000);
    assert!(missing.iter().all(|(time, ..)| *time < 1000));
    assert!(joined.iter().all(|(time, leaf, missing)| *missing || *leaf == Some(*time)));
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
