// SPDX-License-Identifier: GPL-2.0
//! Records that a recorder adds to those of the kernel: the end of a round, and what the
//! kernel would have said of tasks that are older than the recording.

use crate::abi::BUILD_ID_MAX;
use crate::abi::BuildId;
use crate::abi::misc;
use crate::abi::record_type;
use crate::attr::Attr;
use crate::record::Format;
use crate::record::HEADER_SIZE;

/// Longest path in a record, the NUL not included.
const PATH_MAX: usize = 4095;

/// `TASK_COMM_LEN` without the NUL.
const COMM_MAX: usize = 15;

/// The `struct sample_id` of a record that is made up: when, and of which event.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The attr that decides which fields there are.
    pub attr: &'a Attr,
    /// Nanoseconds of the event's clock; 0 is before everything else.
    pub time: u64,
    /// An ID of the event; 0, which no event has, marks what is not the kernel's.
    pub id: u64,
}

/// A mapping of a process that ran before the recording.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Mapping<'a> {
    pub pid: u32,
    pub start: u64,
    pub len: u64,
    /// File offset of `start`, in bytes.
    pub pgoff: u64,
    /// The file's build ID, or its device and inode.
    pub build_id: Option<BuildId>,
    pub maj: u32,
    pub min: u32,
    pub ino: u64,
    /// `PROT_*`
    pub prot: u32,
    /// `MAP_*`
    pub flags: u32,
    /// [`misc::USER`] or [`misc::KERNEL`].
    pub cpumode: u16,
    pub path: &'a [u8],
}

/// A record's bytes; `None` if `body` is too long for a record.
pub(super) fn record(type_: u32, misc: u16, body: &[u8]) -> Option<Vec<u8>> {
    let size = u16::try_from(HEADER_SIZE + body.len()).ok()?;
    let mut out = Vec::with_capacity(size.into());
    out.extend_from_slice(&type_.to_ne_bytes());
    out.extend_from_slice(&misc.to_ne_bytes());
    out.extend_from_slice(&size.to_ne_bytes());
    out.extend_from_slice(body);
    Some(out)
}

/// A record whose body is short by the way it is made.
fn short_record(type_: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    record(type_, misc, body).unwrap_or_default()
}

/// A string with its NUL, padded to 8 bytes.
fn put_padded(out: &mut Vec<u8>, text: &[u8]) {
    let end = out.len() + (text.len() + 1).next_multiple_of(8);
    out.extend_from_slice(text);
    out.resize(end, 0);
}

impl Stamp<'_> {
    fn put(&self, out: &mut Vec<u8>, pid: u32, tid: u32) {
        Format::from(self.attr).put_sample_id(out, pid, tid, self.time, self.id);
    }
}

/// The record that ends a pass over all ring buffers.
pub fn finished_round() -> Vec<u8> {
    short_record(record_type::FINISHED_ROUND, 0, &[])
}

/// A COMM record for a thread that had its name before the recording began.
pub fn comm_record(attr: &Attr, pid: u32, tid: u32, comm: &[u8], time: u64, id: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&pid.to_ne_bytes());
    body.extend_from_slice(&tid.to_ne_bytes());
    put_padded(&mut body, comm.get(..COMM_MAX).unwrap_or(comm));
    Stamp { attr, time, id }.put(&mut body, pid, tid);
    short_record(record_type::COMM, 0, &body)
}

/// A FORK record for a thread that ran before the recording began.
pub fn fork_record(stamp: Stamp<'_>, pid: u32, ppid: u32, tid: u32, ptid: u32) -> Vec<u8> {
    let mut body = Vec::new();
    [pid, ppid, tid, ptid].iter().for_each(|word| body.extend_from_slice(&word.to_ne_bytes()));
    body.extend_from_slice(&stamp.time.to_ne_bytes());
    stamp.put(&mut body, pid, tid);
    short_record(record_type::FORK, 0, &body)
}

/// How many samples of the event of `stamp` were dropped, as perf itself adds it at the end.
pub fn lost_samples_record(stamp: Stamp<'_>, lost: u64) -> Vec<u8> {
    let mut body = lost.to_ne_bytes().to_vec();
    stamp.put(&mut body, 0, 0);
    short_record(record_type::LOST_SAMPLES, 0, &body)
}

/// An MMAP2 record for a mapping that was there before the recording began.
pub fn mmap2_record(stamp: Stamp<'_>, map: &Mapping<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    [map.pid, map.pid].iter().for_each(|word| body.extend_from_slice(&word.to_ne_bytes()));
    let range = [map.start, map.len, map.pgoff];
    range.iter().for_each(|word| body.extend_from_slice(&word.to_ne_bytes()));
    match map.build_id {
        Some(id) => {
            let bytes = id.as_bytes();
            body.extend_from_slice(&[bytes.len() as u8, 0, 0, 0]);
            body.extend_from_slice(bytes);
            body.resize(body.len() + BUILD_ID_MAX - bytes.len(), 0);
        }
        None => {
            body.extend_from_slice(&map.maj.to_ne_bytes());
            body.extend_from_slice(&map.min.to_ne_bytes());
            body.extend_from_slice(&map.ino.to_ne_bytes());
            body.extend_from_slice(&[0; 8]);
        }
    }
    body.extend_from_slice(&map.prot.to_ne_bytes());
    body.extend_from_slice(&map.flags.to_ne_bytes());
    put_padded(&mut body, map.path.get(..PATH_MAX).unwrap_or(map.path));
    stamp.put(&mut body, map.pid, map.pid);
    let build_id = if map.build_id.is_some() { misc::MMAP_BUILD_ID } else { 0 };
    short_record(record_type::MMAP2, map.cpumode | build_id, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::flag;
    use crate::abi::sample;
    use crate::record::FileKey;
    use crate::record::RawRecord;
    use crate::record::Record;

    #[test]
    fn what_is_made_up_can_be_read() {
        let attr = Attr {
            sample_type: sample::TID | sample::TIME | sample::IDENTIFIER,
            flags: flag::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let stamp = Stamp { attr: &attr, time: 5, id: 0 };
        let map = Mapping {
            pid: 7,
            start: 0x1000,
            len: 0x2000,
            pgoff: 0x3000,
            build_id: BuildId::new(&[1; 8]),
            maj: 1,
            min: 2,
            ino: 3,
            prot: 5,
            flags: 2,
            cpumode: misc::USER,
            path: b"/bin/x",
        };
        let plain = Mapping { build_id: None, path: &[b'x'; 9999], ..map };
        let bytes = [
            fork_record(stamp, 7, 1, 8, 7),
            mmap2_record(stamp, &map),
            mmap2_record(stamp, &plain),
        ]
        .concat();
        let format = Format::from(&attr);
        let mut rest = bytes.as_slice();
        let mut next = || {
            let (raw, after) = RawRecord::split(rest, 0).unwrap().unwrap();
            rest = after;
            format.decode(&raw).unwrap()
        };
        let Record::Fork(task) = next() else { panic!("not a FORK") };
        assert_eq!((task.pid, task.ppid, task.tid, task.ptid, task.time), (7, 1, 8, 7, 5));
        let Record::Mmap(read) = next() else { panic!("not an MMAP2") };
        assert_eq!(
            (read.addr, read.len, read.pgoff, read.path),
            (0x1000, 0x2000, 0x3000, map.path)
        );
        assert_eq!(Some(read.file), map.build_id.map(FileKey::BuildId));
        assert_eq!((read.id.pid, read.id.time, read.id.id), (Some(7), Some(5), Some(0)));
        let Record::Mmap(read) = next() else { panic!("not an MMAP2") };
        let inode = FileKey::Inode { maj: 1, min: 2, ino: 3, ino_generation: 0 };
        assert_eq!((read.file, read.path.len()), (inode, PATH_MAX));
        assert!(rest.is_empty());
    }
}
