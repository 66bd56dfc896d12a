// SPDX-License-Identifier: GPL-2.0
//! Recordings that a test makes byte by byte. The test's own program is the file whose
//! functions are hit.

#![allow(dead_code, reason = "each test uses some of it")]

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::context;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::BuildIdRow;
use perf_bid_core::data::Features;
use perf_bid_core::data::Writer;
use perf_bid_core::elf::ElfInfo;
use perf_bid_core::store::read_elf;

/// ID of the only event.
pub const ID: u64 = 77;

/// A function to be found by name at its address.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn perf_bid_test_landmark(x: u64) -> u64 {
    std::hint::black_box(x).wrapping_mul(3)
}

/// This program.
pub struct Me {
    pub path: PathBuf,
    pub info: ElfInfo,
    pub id: BuildId,
    /// File offset of `perf_bid_test_landmark`.
    pub landmark: u64,
}

impl Me {
    pub fn new() -> Self {
        let path = std::env::current_exe().unwrap();
        let info = read_elf(&path).unwrap();
        let id = info.build_id.expect("the test program has a build ID");
        let address = perf_bid_test_landmark as *const () as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let found = maps.lines().find_map(|line| {
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            let (from, to) = fields[0].split_once('-').unwrap();
            let [from, to, pgoff] =
                [from, to, fields[2]].map(|digits| u64::from_str_radix(digits, 16).unwrap());
            (from..to).contains(&address).then(|| address - from + pgoff)
        });
        Self { path, info, id, landmark: found.unwrap() }
    }

    /// An entry `into` bytes into the landmark.
    pub fn hit(&self, into: u64) -> Vec<u8> {
        entry(self.id.as_bytes(), 0, self.landmark + into)
    }

    pub fn hint(&self) -> BuildIdRow {
        let path = self.path.to_string_lossy().into_owned();
        BuildIdRow { build_id: self.id, cpumode: misc::USER, path }
    }
}

/// `struct perf_sample_build_id_offset`, spelled out.
pub fn entry(id: &[u8], status: u8, offset: u64) -> Vec<u8> {
    let mut out = vec![id.len() as u8, status, 0, 0];
    out.extend_from_slice(id);
    out.resize(24, 0);
    out.extend_from_slice(&offset.to_ne_bytes());
    out
}

/// The marker before user frames.
pub fn user_marker() -> Vec<u8> {
    entry(&[], 1, context::USER)
}

/// What a sample has in place of user frames that come later.
pub fn awaits(cookie: u64) -> [Vec<u8>; 2] {
    [entry(&[], 1, context::USER_DEFERRED), entry(&[], 3, cookie)]
}

/// A record with its header.
pub fn record(type_: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut out = type_.to_ne_bytes().to_vec();
    out.extend_from_slice(&misc.to_ne_bytes());
    out.extend_from_slice(&(8 + body.len() as u16).to_ne_bytes());
    out.extend_from_slice(body);
    out
}

/// Double words as they lie in a record.
pub fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Two words in place of a double word.
pub fn pair(a: u32, b: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&a.to_ne_bytes());
    bytes[4..].copy_from_slice(&b.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn sample_id(pid: u32, time: u64) -> Vec<u8> {
    words(&[pair(pid, pid), time, 3, ID])
}

/// A sample with a callchain, of the only thread of `pid`, on CPU 3, with a period of 1000.
pub fn sample_record(pid: u32, time: u64, chain: &[Vec<u8>]) -> Vec<u8> {
    let mut body = words(&[ID, pair(pid, pid), time, 3, 1000, chain.len() as u64]);
    chain.iter().for_each(|entry| body.extend_from_slice(entry));
    record(9, misc::USER, &body)
}

pub fn comm(pid: u32, name: &str, time: u64) -> Vec<u8> {
    let mut body = words(&[pair(pid, pid)]);
    let mut text = name.as_bytes().to_vec();
    text.resize((name.len() + 1).next_multiple_of(8), 0);
    body.extend_from_slice(&text);
    body.extend_from_slice(&sample_id(pid, time));
    record(3, 0, &body)
}

pub fn exit(pid: u32, time: u64) -> Vec<u8> {
    let mut body = words(&[pair(pid, 1), pair(pid, 1), time]);
    body.extend_from_slice(&sample_id(pid, time));
    record(4, 0, &body)
}

pub fn deferred(pid: u32, time: u64, cookie: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut body = words(&[cookie, entries.len() as u64]);
    entries.iter().for_each(|entry| body.extend_from_slice(entry));
    body.extend_from_slice(&sample_id(pid, time));
    record(22, misc::CALLCHAIN_BUILD_ID, &body)
}

/// Writes a recording of cpu-clock.
pub fn write(dir: &Path, build_ids: Vec<BuildIdRow>, records: &[Vec<u8>]) -> PathBuf {
    let path = dir.join("perf.data");
    let fields = [sample::IDENTIFIER, sample::TID, sample::TIME, sample::CPU, sample::PERIOD];
    let sample_type = fields.iter().fold(sample::CALLCHAIN_BUILD_ID_OFFSET, |all, one| all | one);
    let flags = flag::SAMPLE_ID_ALL | flag::DEFER_CALLCHAIN;
    let attr = Attr { type_: 1, sample_period: 1000, sample_type, flags, ..Attr::default() };
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = Writer::new(file, &[(attr, vec![ID])]).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    let features = Features {
        build_ids,
        events: vec![("cpu-clock".into(), vec![ID])],
        cmdline: vec!["perf-bid".into(), "record".into(), "--".into(), "landmark".into()],
        ..Features::default()
    };
    writer.finish(&features).unwrap();
    path
}

/// Runs perf-bid on a recording.
pub fn perf_bid(command: &str, input: &Path, args: &[&str]) -> Output {
    let mut perf_bid = Command::new(env!("CARGO_BIN_EXE_perf-bid"));
    perf_bid.arg(command).arg("-i").arg(input).args(args).output().unwrap()
}

/// What a command that succeeded wrote to standard output.
pub fn text(output: &Output) -> String {
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{out}\n{}", String::from_utf8_lossy(&output.stderr));
    out
}
