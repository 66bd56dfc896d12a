// SPDX-License-Identifier: GPL-2.0
//! Records other than samples, for `--show-task-events` and the like.

use perf_bid_core::record::FileKey;
use perf_bid_core::record::Mmap;
use perf_bid_core::record::Record;
use perf_bid_core::record::SampleId;
use perf_bid_core::record::Task;
use perf_bid_core::record::text;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::cli;

/// The end of a record, if it is one to print.
pub fn shown(args: &cli::Script, record: &Record<'_>) -> Option<SampleId> {
    let (wanted, id) = match record {
        Record::Comm(comm) => (args.show_task_events, comm.id),
        Record::Fork(task) | Record::Exit(task) => (args.show_task_events, task.id),
        Record::Mmap(mmap) => (args.show_mmap_events, mmap.id),
        Record::Lost(lost) | Record::LostSamples(lost) => (args.show_lost_events, lost.id),
        _ => return None,
    };
    wanted.then_some(id)
}

/// The record as perf prints it.
pub fn line(record: &Record<'_>) -> String {
    match record {
        Record::Comm(comm) => {
            let exec = if comm.exec { " exec" } else { "" };
            let name = text(comm.comm);
            format!("PERF_RECORD_COMM{exec}: {name}:{}/{}", comm.pid, comm.tid)
        }
        Record::Fork(task) => format!("PERF_RECORD_FORK{}", tasks(task)),
        Record::Exit(task) => format!("PERF_RECORD_EXIT{}", tasks(task)),
        Record::Mmap(mmap) => mapping(mmap),
        Record::Lost(lost) => format!("PERF_RECORD_LOST lost {}", lost.lost),
        Record::LostSamples(lost) => format!("PERF_RECORD_LOST_SAMPLES lost {}", lost.lost),
        _ => String::new(),
    }
}

fn tasks(task: &Task) -> String {
    format!("({}:{}):({}:{})", task.pid, task.tid, task.ppid, task.ptid)
}

fn mapping(mmap: &Mmap<'_>) -> String {
    let Mmap { addr, len, pgoff, .. } = mmap;
    let task = format!("{}/{}", mmap.pid as i32, mmap.tid);
    let path = text(mmap.path);
    let file = match mmap.file {
        FileKey::None => {
            let kind = if mmap.data { 'r' } else { 'x' };
            return format!(
                "PERF_RECORD_MMAP {task}: [{addr:#x}({len:#x}) @ {pgoff:#x}]: {kind} {path}"
            );
        }
        FileKey::Inode { maj, min, ino, ino_generation } => {
            format!("{maj:02x}:{min:02x} {ino} {ino_generation}")
        }
        FileKey::BuildId(id) => format!("<{id}>"),
    };
    // As printf writes %#x.
    let pgoff = if *pgoff == 0 { "0".to_owned() } else { format!("{pgoff:#x}") };
    let prot = protection(mmap);
    format!("PERF_RECORD_MMAP2 {task}: [{addr:#x}({len:#x}) @ {pgoff} {file}]: {prot} {path}")
}

fn protection(mmap: &Mmap<'_>) -> String {
    const MAP_SHARED: u32 = 1;
    let prot = [(1, 'r'), (2, 'w'), (4, 'x')];
    let prot = prot.map(|(bit, letter)| if mmap.prot & bit != 0 { letter } else { '-' });
    let shared = if mmap.flags & MAP_SHARED != 0 { 's' } else { 'p' };
    prot.into_iter().chain([shared]).collect()
}

/// The record's own members for JSON.
pub fn members(record: &Record<'_>) -> Map<String, Value> {
    let value = match record {
        Record::Comm(comm) => json!({ "type": "comm", "name": text(comm.comm), "exec": comm.exec }),
        Record::Fork(task) => json!({
            "type": "fork", "child": { "pid": task.pid, "tid": task.tid },
            "parent": { "pid": task.ppid, "tid": task.ptid },
        }),
        Record::Exit(_) => json!({ "type": "exit" }),
        Record::Mmap(mmap) => json!({
            "type": "mmap", "address": hex(mmap.addr), "size": hex(mmap.len),
            "offset": hex(mmap.pgoff), "dso": text(mmap.path), "protection": protection(mmap),
            "build_id": match mmap.file {
                FileKey::BuildId(id) => Value::from(id.to_string()),
                _ => Value::Null,
            },
        }),
        Record::Lost(lost) | Record::LostSamples(lost) => {
            json!({ "type": "lost", "lost": lost.lost })
        }
        _ => Value::Null,
    };
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}
