// SPDX-License-Identifier: GPL-2.0
//! Recordings by stock perf of a program built for it.

use std::collections::HashMap;

use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::sample;
use perf_bid_core::data::PerfData;
use perf_bid_core::record::Record;

use super::Dir;
use super::reference::Spaces;
use super::reference::is_user;
use super::reference::records;
use super::reference::samples;
use super::reference::user_after;

/// Two programs and a library: a parent that forks, and a child that becomes another program.
const LIBRARY: &str = "
__attribute__((noinline)) unsigned leaf(unsigned n)
{
	volatile unsigned sum = 0;
	for (unsigned i = 0; i < 20000; i++)
		sum += i ^ n;
	return sum;
}
__attribute__((noinline)) unsigned middle(unsigned n) { return leaf(n) + 1; }
";
const PROGRAM: &str = "
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
unsigned middle(unsigned);
__attribute__((noinline)) unsigned outer(unsigned n) { return middle(n) + 1; }
int main(int argc, char **argv)
{
	volatile unsigned sum = 0;
	if (argc > 1 && !fork())
		return execl(argv[1], argv[1], (char *)0);
	if (!fork())
		argc = 0;
	for (int i = 0; i < 3000; i++)
		sum += outer(i);
	while (argc && wait(0) > 0)
		;
	return 0;
}
";

impl Dir {
    /// Records the programs to `a.data`. The second one has no build ID.
    fn record(&self, args: &[&str]) {
        std::fs::write(self.path("lib.c"), LIBRARY).unwrap();
        std::fs::write(self.path("prog.c"), PROGRAM).unwrap();
        let cc = ["gcc", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
        let rpath = format!("-Wl,-rpath,{}", self.0.path().display());
        let build = |args: &[&str]| self.run(&[&cc[..], args].concat());
        build(&["-shared", "-fPIC", "-Wl,--build-id=md5", "-o", "libleaf.so", "lib.c"]);
        build(&["-Wl,--build-id", &rpath, "-o", "first", "prog.c", "libleaf.so"]);
        build(&["-static", "-Wl,--build-id=none", "-o", "second", "prog.c", "lib.c"]);
        let perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "4000", "-g", "-o", "a.data"];
        self.run(&[&perf[..], args, &["--", "./first", "./second"]].concat());
    }

    fn open(&self, name: &str) -> PerfData {
        PerfData::open(&self.path(name)).unwrap()
    }

    fn report(&self, name: &str) -> String {
        let sort = "comm,dso,symbol";
        let perf = ["perf", "report", "--stdio", "--no-children", "-g", "none", "-s", sort, "-i"];
        let text = self.run(&[&perf[..], &[name]].concat());
        let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut rows: Vec<_> = rows.map(str::trim_end).collect();
        // Rows of equal weight come in the order of their addresses.
        rows.sort();
        rows.join("\n")
    }
}

#[test]
fn every_frame_is_where_the_maps_say() {
    let dir = Dir::new();
    dir.record(&[]);
    dir.convert(&["--sample-buildids", "-i", "a.data", "-o", "b.data"]);
    let (before, after) = (dir.open("a.data"), dir.open("b.data"));
    let mut spaces = Spaces::of(&before);
    let mut converted = samples(&after).into_iter();
    let mut by_status = HashMap::new();
    let mut check = |spaces: &Spaces, pid, user: bool, address: u64, entry: &Entry| {
        assert_eq!(entry.violation(), None);
        *by_status.entry(entry.status()).or_insert(0) += 1;
        if !user {
            assert_eq!((entry.status(), entry.offset()), (Status::Kernel, address));
            return;
        }
        match spaces.find(pid, address) {
            // The vDSO's is known from elsewhere.
            (None, Some("[vdso]")) => {}
            (Some((id, offset)), _) => {
                assert_eq!((entry.build_id(), entry.offset()), (Some(id), offset));
            }
            (None, path) => {
                let file =
                    path.is_some_and(|path| path.starts_with('/') && !path.starts_with("//"));
                let expected = if file { Status::NoBuildId } else { Status::Anon };
                assert_eq!((entry.status(), entry.offset()), (expected, address), "{path:?}");
            }
        }
    };
    for record in records(&before) {
        spaces.take(&record);
        let Record::Sample(sample) = record else {
            continue;
        };
        let twin = converted.next().unwrap();
        let of = |s: &perf_bid_core::record::Sample<'_>| (s.pid, s.tid, s.time, s.period, s.cpu);
        assert_eq!(of(&sample), of(&twin));
        assert!(twin.ip.is_none() && twin.callchain.is_none());
        let pid = sample.pid.unwrap();
        check(&spaces, pid, is_user(&sample), sample.ip.unwrap(), twin.bid.unwrap());
        let (chain, entries) = (sample.callchain.unwrap(), twin.bid_callchain.unwrap());
        assert_eq!(chain.len(), entries.len());
        let mut user = is_user(&sample);
        for (value, entry) in chain.iter().map(|value| value.get()).zip(entries) {
            match user_after(value) {
                Some(after) => {
                    user = after;
                    assert_eq!((entry.status(), entry.offset()), (Status::Context, value));
                }
                None => check(&spaces, pid, user, value, entry),
            }
        }
    }
    assert!(converted.next().is_none());
    assert!(by_status[&Status::Resolved] > 300 && by_status[&Status::NoBuildId] > 30);
    // Of the maps, nothing but the kernel's is left.
    let maps = records(&after).into_iter();
    assert!(maps.filter(|r| matches!(r, Record::Mmap(m) if m.pid != u32::MAX)).next().is_none());
    let hit: Vec<_> = after.features().build_ids.iter().map(|row| row.path.as_str()).collect();
    for name in ["first", "libleaf.so"] {
        let path = dir.path(name).canonicalize().unwrap();
        assert_eq!(hit.iter().filter(|hit| **hit == path.to_str().unwrap()).count(), 1, "{hit:?}");
    }
}

/// What stock perf shows of the recording is what it shows after two conversions.
#[test]
fn there_and_back() {
    let dir = Dir::new();
    dir.record(&[]);
    dir.convert(&["--sample-buildids", "--keep-mmaps", "-i", "a.data", "-o", "b.data"]);
    let says = dir.convert(&["--to-mmaps", "-i", "b.data", "-o", "c.data"]);
    assert!(says.contains("map records made up"), "{says}");
    let report = dir.report("a.data");
    assert!(report.contains("libleaf.so") && report.contains("leaf"), "{report}");
    assert_eq!(report, dir.report("c.data"));

    let (a, c) = (dir.open("a.data"), dir.open("c.data"));
    let [before, after] = [&a, &c].map(|data| &data.events()[0].attr.sample_type);
    assert_eq!(before, after);
    let lengths = |data| {
        let samples = samples(data).into_iter();
        samples
            .map(|s| (s.time, s.tid, s.cpu, s.period, s.cpumode, s.callchain.unwrap().len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(lengths(&a), lengths(&c));

    // Frame by frame. Samples of an exec have addresses of a program that is gone, of which
    // perf thinks that it is still mapped.
    let fields = "comm,tid,time,event,period,ip,sym,symoff,dso";
    let frames = |name| {
        let text = dir.run(&["perf", "script", "-F", fields, "-i", name]);
        let frame = |line: &str| match line.strip_prefix('\t') {
            Some(frame) => frame.trim_start().split_once(' ').map(|(_, rest)| rest.to_owned()),
            None => Some(line.to_owned()),
        };
        text.lines().filter_map(frame).collect::<Vec<_>>()
    };
    let (before, after) = (frames("a.data"), frames("c.data"));
    assert_eq!(before.len(), after.len());
    let differ = before.iter().zip(&after).filter(|(before, after)| before != after);
    let differ: Vec<_> = differ.collect();
    assert!(
        differ.len() * 200 <= before.len(),
        "{} of {}: {differ:#?}",
        differ.len(),
        before.len()
    );
    assert!(differ.iter().all(|(_, after)| after.contains("[unknown]")), "{differ:#?}");
}

/// Map records are there before they are needed, and lead from addresses to the file offsets of
/// the build-ID profile.
#[test]
fn made_up_maps_lead_to_the_same_offsets() {
    let dir = Dir::new();
    dir.record(&[]);
    dir.convert(&["--sample-buildids", "-i", "a.data", "-o", "b.data"]);
    dir.convert(&["--to-mmaps", "-i", "b.data", "-o", "c.data"]);
    let says = dir.convert(&["--to-mmaps", "--no-buildid-mmap", "-i", "b.data", "-o", "d.data"]);
    assert!(!says.contains("left out"), "{says}");
    let b = dir.open("b.data");
    for name in ["c.data", "d.data"] {
        let data = dir.open(name);
        let mut spaces = Spaces::of(&data);
        let mut profile = samples(&b).into_iter();
        let mut resolved = 0;
        // In the order of the file: it is sorted.
        let mut last = 0;
        for raw in data.records() {
            let record = data.decode(&raw.unwrap()).unwrap();
            let time = record.time().unwrap_or(last);
            assert!(time >= last, "{name}: {time} after {last}");
            last = time;
            spaces.take(&record);
            let Record::Sample(sample) = record else {
                continue;
            };
            let twin = profile.next().unwrap();
            let entries = twin.bid_callchain.unwrap();
            let chain = sample.callchain.unwrap();
            assert_eq!(chain.len(), entries.len());
            let own = std::iter::once((sample.ip.unwrap(), twin.bid.unwrap()));
            let pairs = own.chain(chain.iter().map(|value| value.get()).zip(entries));
            for (address, entry) in pairs {
                match entry.build_id() {
                    Some(id) => {
                        let place = spaces.find(sample.pid.unwrap(), address).0;
                        assert_eq!(place, Some((id, entry.offset())), "{name}");
                        resolved += 1;
                    }
                    None => assert_eq!(address, entry.offset()),
                }
            }
        }
        assert!(resolved > 300, "{name}: {resolved}");
    }
    assert_eq!(dir.report("c.data"), dir.report("d.data"));
}

/// Recordings without build IDs in them, with other fields, several events, compressed, or
/// through a pipe.
#[test]
fn other_recordings_of_the_same() {
    let cases: [&[&str]; 3] = [
        &["-N", "-B", "--no-buildid-mmap"],
        &["-z"],
        &["-e", "page-faults", "--call-graph", "dwarf,1024", "-d", "--sample-cpu"],
    ];
    for args in cases {
        let dir = Dir::new();
        dir.record(args);
        let says = dir.convert(&["--sample-buildids", "-i", "a.data", "-o", "b.data"]);
        let left_out = args.contains(&"-d");
        assert_eq!(says.contains("left out of the samples: ADDR"), left_out, "{says}");
        assert_eq!(says.contains("--call-graph dwarf"), left_out, "{says}");
        dir.convert(&["--to-mmaps", "-i", "b.data", "-o", "c.data"]);
        let (a, b, c) = (dir.open("a.data"), dir.open("b.data"), dir.open("c.data"));
        for (before, after) in a.events().iter().zip(b.events()) {
            let gone = sample::ADDR | sample::REGS_USER | sample::STACK_USER;
            assert_eq!(after.attr.sample_type & gone, 0);
            assert_eq!((&before.ids, &before.name), (&after.ids, &after.name));
        }
        let keys = |data| {
            let samples = samples(data).into_iter();
            samples.map(|s| (s.id, s.time, s.tid, s.cpu, s.period)).collect::<Vec<_>>()
        };
        assert!(keys(&a).len() > 100);
        assert!(keys(&a) == keys(&b) && keys(&b) == keys(&c), "{args:?}");
        let names = samples(&b);
        let resolved = names.iter().filter(|s| s.bid.unwrap().build_id().is_some()).count();
        assert!(resolved > 50, "{args:?}: {resolved} of {}", names.len());
        dir.report("c.data");
    }
}

/// A file that has changed since is not the one that ran.
#[test]
fn a_file_that_was_replaced_is_not_believed() {
    let dir = Dir::new();
    dir.record(&["-N", "-B", "--no-buildid-mmap"]);
    let of_library = || {
        dir.convert(&["--sample-buildids", "-i", "a.data", "-o", "b.data"]);
        let b = dir.open("b.data");
        b.features().build_ids.iter().filter(|row| row.path.ends_with("/libleaf.so")).count()
    };
    assert_eq!(of_library(), 1);
    std::fs::remove_file(dir.path("libleaf.so")).unwrap();
    assert_eq!(of_library(), 0);
    dir.run(&["gcc", "-shared", "-fPIC", "-Wl,--build-id", "-o", "libleaf.so", "lib.c"]);
    assert_eq!(of_library(), 0);
}
