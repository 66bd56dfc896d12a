// SPDX-License-Identifier: GPL-2.0
//! Records as the kernel writes them into a ring buffer and perf keeps them in perf.data.
//!
//! A record is an 8-byte header (`u32 type, u16 misc, u16 size`; `size` counts the header)
//! and a body whose fields depend on the event's attr. [`RawRecord`] is a record of known
//! length, [`Format`] the part of an attr that decides the layout, and [`Format::decode`]
//! turns the one into a [`Record`] that borrows from it.
//!
//! The field order of a sample is that of `PERF_RECORD_SAMPLE` in
//! `include/uapi/linux/perf_event.h`; the build-ID fields come after
//! `PERF_SAMPLE_CODE_PAGE_SIZE` and before `PERF_SAMPLE_AUX`. Addresses and offsets are in
//! bytes, times in nanoseconds of the event's clock.
//!
//! Why not the crate `linux-perf-data`: it stops at the sample bits it knows, so that it can
//! neither find the new fields nor the deferred chains, which are what this crate is for.

use std::borrow::Cow;

use zerocopy::native_endian::U64;

use crate::abi::BuildId;
use crate::abi::Entry;
use crate::abi::misc;
use crate::abi::read_format;
use crate::abi::record_type;
use crate::abi::sample;
use crate::attr::Attr;
use crate::cursor::Cursor;
use crate::cursor::Malformed;

type Result<T> = std::result::Result<T, Malformed>;

/// Size of a record header, in bytes.
pub const HEADER_SIZE: usize = 8;

/// `PERF_SAMPLE_BRANCH_HW_INDEX` of `perf_event_attr.branch_sample_type`.
const BRANCH_HW_INDEX: u64 = 1 << 17;
/// `PERF_SAMPLE_BRANCH_COUNTERS` of `perf_event_attr.branch_sample_type`.
const BRANCH_COUNTERS: u64 = 1 << 19;

/// A record whose length is known to fit; its body is not decoded.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// Where the header lies in the file or stream.
    pub offset: u64,
    /// [`record_type`].
    pub type_: u32,
    /// [`misc`] bits.
    pub misc: u16,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// Splits the first record off `bytes`, which lie at `offset`. `Ok(None)` at the end.
    pub fn split(bytes: &'a [u8], offset: u64) -> Result<Option<(Self, &'a [u8])>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut c = Cursor::new(bytes, offset);
        let type_ = c.u32("record header")?;
        let misc = c.u16("record header")?;
        let size = c.u16("record header")?;
        let body_len = u64::from(size).checked_sub(HEADER_SIZE as u64).ok_or_else(|| {
            Malformed::new(offset, format!("record of type {type_} claims a size of {size} bytes"))
        })?;
        let body = c.bytes(body_len, &format!("record of type {type_} with size {size}"))?;
        Ok(Some((Self { offset, type_, misc, body }, c.rest())))
    }

    /// A cursor over the body.
    pub fn cursor(&self) -> Cursor<'a> {
        Cursor::new(self.body, self.offset.saturating_add(HEADER_SIZE as u64))
    }

    /// `misc`'s processor mode: [`misc::USER`], [`misc::KERNEL`] and so on.
    pub fn cpumode(&self) -> u16 {
        self.misc & misc::CPUMODE_MASK
    }
}

/// The part of an attr that decides how its records are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    sample_type: u64,
    read_format: u64,
    branch_sample_type: u64,
    regs_user: u64,
    regs_intr: u64,
    sample_id_all: bool,
}

impl From<&Attr> for Format {
    fn from(attr: &Attr) -> Self {
        Self {
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            branch_sample_type: attr.branch_sample_type,
            regs_user: u64::from(attr.sample_regs_user.count_ones()),
            regs_intr: u64::from(attr.sample_regs_intr.count_ones()),
            sample_id_all: attr.sample_id_all(),
        }
    }
}

/// A decoded record; strings and arrays are borrowed.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// `PERF_RECORD_SAMPLE`
    Sample(Box<Sample<'a>>),
    /// `PERF_RECORD_MMAP` or `PERF_RECORD_MMAP2`
    Mmap(Mmap<'a>),
    /// `PERF_RECORD_COMM`
    Comm(Comm<'a>),
    /// `PERF_RECORD_FORK`
    Fork(Task),
    /// `PERF_RECORD_EXIT`
    Exit(Task),
    /// `PERF_RECORD_LOST`
    Lost(Lost),
    /// `PERF_RECORD_LOST_SAMPLES`
    LostSamples(Lost),
    /// `PERF_RECORD_CALLCHAIN_DEFERRED`
    Deferred(Deferred<'a>),
    /// perf.data's `PERF_RECORD_FINISHED_ROUND`: no later record is older than the round
    /// before this one.
    FinishedRound,
    /// A type this crate does not decode.
    Other(u32),
}

impl Record<'_> {
    /// The record's time, if it has one.
    pub fn time(&self) -> Option<u64> {
        match self {
            Self::Sample(sample) => sample.time,
            Self::Mmap(mmap) => mmap.id.time,
            Self::Comm(comm) => comm.id.time,
            Self::Fork(task) | Self::Exit(task) => Some(task.time),
            Self::Lost(lost) | Self::LostSamples(lost) => lost.id.time,
            Self::Deferred(deferred) => deferred.id.time,
            Self::FinishedRound | Self::Other(_) => None,
        }
    }
}

/// `struct sample_id`, the end of every record but a sample, if `sample_id_all` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SampleId {
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub time: Option<u64>,
    pub id: Option<u64>,
    pub stream_id: Option<u64>,
    pub cpu: Option<u32>,
}

/// `PERF_RECORD_SAMPLE`: a field is `None` if its bit is not in `sample_type`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Sample<'a> {
    /// Processor mode of the header: [`misc::USER`] and so on.
    pub cpumode: u16,
    /// From `PERF_SAMPLE_IDENTIFIER` or `PERF_SAMPLE_ID`.
    pub id: Option<u64>,
    pub ip: Option<u64>,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub time: Option<u64>,
    pub addr: Option<u64>,
    pub stream_id: Option<u64>,
    pub cpu: Option<u32>,
    pub period: Option<u64>,
    /// `PERF_SAMPLE_READ`, undecoded.
    pub read: Option<&'a [u8]>,
    pub callchain: Option<&'a [U64]>,
    pub raw: Option<&'a [u8]>,
    /// `PERF_SAMPLE_BRANCH_STACK` after its count, undecoded.
    pub branches: Option<&'a [u8]>,
    pub regs_user: Option<Regs<'a>>,
    pub stack_user: Option<&'a [u8]>,
    pub weight: Option<u64>,
    pub data_src: Option<u64>,
    pub transaction: Option<u64>,
    pub regs_intr: Option<Regs<'a>>,
    pub phys_addr: Option<u64>,
    pub cgroup: Option<u64>,
    pub data_page_size: Option<u64>,
    pub code_page_size: Option<u64>,
    /// `PERF_SAMPLE_BUILD_ID_OFFSET`: the instruction pointer.
    pub bid: Option<&'a Entry>,
    /// `PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET`: the callchain, innermost first.
    pub bid_callchain: Option<&'a [Entry]>,
    pub aux: Option<&'a [u8]>,
}

/// Registers of a sample; `values` is empty if `abi` is 0 (none).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Regs<'a> {
    pub abi: u64,
    pub values: &'a [U64],
}

/// What names the file of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FileKey {
    /// An MMAP record names no more than the path.
    None,
    /// Device and inode.
    Inode { maj: u32, min: u32, ino: u64, ino_generation: u64 },
    /// `attr.build_id` was set and the kernel could read the note.
    BuildId(BuildId),
}

/// `PERF_RECORD_MMAP` or `PERF_RECORD_MMAP2`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Mmap<'a> {
    pub pid: u32,
    pub tid: u32,
    pub addr: u64,
    pub len: u64,
    /// File offset of `addr`.
    pub pgoff: u64,
    pub file: FileKey,
    /// `PROT_*`; 0 for MMAP.
    pub prot: u32,
    /// `MAP_*`; 0 for MMAP.
    pub flags: u32,
    /// A path, or a name such as `//anon` or `[vdso]`.
    pub path: &'a [u8],
    /// Whether the mapping is not executable (`attr.mmap_data`).
    pub data: bool,
    pub id: SampleId,
}

/// `PERF_RECORD_COMM`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Comm<'a> {
    pub pid: u32,
    pub tid: u32,
    pub comm: &'a [u8],
    /// The name comes from an exec (`attr.comm_exec`).
    pub exec: bool,
    pub id: SampleId,
}

/// `PERF_RECORD_FORK` or `PERF_RECORD_EXIT`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Task {
    pub pid: u32,
    pub ppid: u32,
    pub tid: u32,
    pub ptid: u32,
    pub time: u64,
    /// `PERF_RECORD_MISC_FORK_EXEC`: not the parent's program; a tool made the record up.
    pub exec: bool,
    pub id: SampleId,
}

/// `PERF_RECORD_LOST` (records of any type) or `PERF_RECORD_LOST_SAMPLES`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Lost {
    pub lost: u64,
    pub id: SampleId,
}

/// A callchain that was captured on return to user mode.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Deferred<'a> {
    /// Joins it to the samples that wait for it.
    pub cookie: u64,
    pub frames: DeferredFrames<'a>,
    pub id: SampleId,
}

/// The two forms of `PERF_RECORD_CALLCHAIN_DEFERRED`.
#[derive(Clone, Copy, Debug)]
pub enum DeferredFrames<'a> {
    /// Plain addresses, after a context marker.
    Addresses(&'a [U64]),
    /// Build-ID form, marked by [`misc::CALLCHAIN_BUILD_ID`].
    Entries(&'a [Entry]),
}

impl Format {
    /// The `sample_type` bits this crate does not know; their fields' layout is unknown, so
    /// that samples which have them cannot be decoded.
    pub fn unknown_bits(&self) -> u64 {
        self.sample_type & !(sample::MAX - 1)
    }

    /// Decodes a record of any type.
    pub fn decode<'a>(&self, raw: &RawRecord<'a>) -> Result<Record<'a>> {
        Ok(match raw.type_ {
            record_type::SAMPLE => Record::Sample(Box::new(self.sample(raw)?)),
            record_type::MMAP | record_type::MMAP2 => Record::Mmap(self.mmap(raw)?),
            record_type::COMM => Record::Comm(self.comm(raw)?),
            record_type::FORK => Record::Fork(self.task(raw)?),
            record_type::EXIT => Record::Exit(self.task(raw)?),
            record_type::LOST => Record::Lost(self.lost(raw, true)?),
            record_type::LOST_SAMPLES => Record::LostSamples(self.lost(raw, false)?),
            record_type::CALLCHAIN_DEFERRED => Record::Deferred(self.deferred(raw)?),
            record_type::FINISHED_ROUND => Record::FinishedRound,
            other => Record::Other(other),
        })
    }

    /// The ID that tells which event wrote the record, if the format has one. The fields
    /// before it are the same for every event of a file, so that any event's format finds it
    /// when [`sample::IDENTIFIER`] is set.
    pub fn event_id(&self, raw: &RawRecord<'_>) -> Option<u64> {
        if raw.type_ >= record_type::USER_TYPE_START {
            return None;
        }
        if raw.type_ == record_type::SAMPLE {
            let at = self.id_position()?;
            let mut c = raw.cursor();
            c.skip(at, "fields before the ID").ok()?;
            return c.u64("sample ID").ok();
        }
        let mut c = raw.cursor();
        self.take_sample_id(&mut c).ok()?.id
    }

    /// A record's time without decoding the rest.
    pub fn time(&self, raw: &RawRecord<'_>) -> Option<u64> {
        if raw.type_ >= record_type::USER_TYPE_START || self.sample_type & sample::TIME == 0 {
            return None;
        }
        if raw.type_ == record_type::SAMPLE {
            let before = [sample::IDENTIFIER, sample::IP, sample::TID];
            let at = 8 * before.iter().filter(|&&bit| self.has(bit)).count() as u64;
            let mut c = raw.cursor();
            c.skip(at, "fields before the time").ok()?;
            return c.u64("time").ok();
        }
        let mut c = raw.cursor();
        self.take_sample_id(&mut c).ok()?.time
    }

    fn has(&self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    fn id_position(&self) -> Option<u64> {
        if self.has(sample::IDENTIFIER) {
            return Some(0);
        }
        let before = [sample::IP, sample::TID, sample::TIME, sample::ADDR];
        self.has(sample::ID).then(|| 8 * before.iter().filter(|&&bit| self.has(bit)).count() as u64)
    }

    /// Splits the `struct sample_id` off the end of the body and decodes it; `c` then ends
    /// where the record's own fields end.
    fn take_sample_id(&self, c: &mut Cursor<'_>) -> Result<SampleId> {
        let mut id = SampleId::default();
        if !self.sample_id_all {
            return Ok(id);
        }
        let bits = [
            sample::TID,
            sample::TIME,
            sample::ID,
            sample::STREAM_ID,
            sample::CPU,
            sample::IDENTIFIER,
        ];
        let len = 8 * bits.iter().filter(|&&bit| self.has(bit)).count();
        let whole = c.rest();
        let (body, tail) =
            whole.len().checked_sub(len).and_then(|at| whole.split_at_checked(at)).ok_or_else(
                || {
                    let have = whole.len();
                    c.error(format!("the sample_id at the end needs {len} bytes, {have} are left"))
                },
            )?;
        let mut t = Cursor::new(tail, c.offset().saturating_add(body.len() as u64));
        if self.has(sample::TID) {
            id.pid = Some(t.u32("sample_id.pid")?);
            id.tid = Some(t.u32("sample_id.tid")?);
        }
        if self.has(sample::TIME) {
            id.time = Some(t.u64("sample_id.time")?);
        }
        if self.has(sample::ID) {
            id.id = Some(t.u64("sample_id.id")?);
        }
        if self.has(sample::STREAM_ID) {
            id.stream_id = Some(t.u64("sample_id.stream_id")?);
        }
        if self.has(sample::CPU) {
            id.cpu = Some(t.u32("sample_id.cpu")?);
            t.skip(4, "sample_id.res")?;
        }
        if self.has(sample::IDENTIFIER) {
            id.id = Some(t.u64("sample_id.identifier")?);
        }
        c.truncate(body.len());
        Ok(id)
    }

    /// Appends a `struct sample_id`, if records of this format end in one; the fields that
    /// are not given are 0.
    pub(crate) fn put_sample_id(&self, out: &mut Vec<u8>, pid: u32, tid: u32, time: u64, id: u64) {
        if !self.sample_id_all {
            return;
        }
        let fields = [
            (sample::TID, u64::from_ne_bytes(pair(pid, tid))),
            (sample::TIME, time),
            (sample::ID, id),
            (sample::STREAM_ID, 0),
            (sample::CPU, 0),
            (sample::IDENTIFIER, id),
        ];
        for (_, value) in fields.iter().filter(|(bit, _)| self.has(*bit)) {
            out.extend_from_slice(&value.to_ne_bytes());
        }
    }

    fn sample<'a>(&self, raw: &RawRecord<'a>) -> Result<Sample<'a>> {
        if self.unknown_bits() != 0 {
            return Err(Malformed::new(
                raw.offset,
                format!("the event has unknown sample_type bits {:#x}", self.unknown_bits()),
            ));
        }
        let mut c = raw.cursor();
        let mut s = Sample { cpumode: raw.cpumode(), ..Sample::default() };
        if self.has(sample::IDENTIFIER) {
            s.id = Some(c.u64("sample identifier")?);
        }
        if self.has(sample::IP) {
            s.ip = Some(c.u64("sample ip")?);
        }
        if self.has(sample::TID) {
            s.pid = Some(c.u32("sample pid")?);
            s.tid = Some(c.u32("sample tid")?);
        }
        if self.has(sample::TIME) {
            s.time = Some(c.u64("sample time")?);
        }
        if self.has(sample::ADDR) {
            s.addr = Some(c.u64("sample addr")?);
        }
        if self.has(sample::ID) {
            s.id = Some(c.u64("sample id")?);
        }
        if self.has(sample::STREAM_ID) {
            s.stream_id = Some(c.u64("sample stream_id")?);
        }
        if self.has(sample::CPU) {
            s.cpu = Some(c.u32("sample cpu")?);
            c.skip(4, "sample cpu")?;
        }
        if self.has(sample::PERIOD) {
            s.period = Some(c.u64("sample period")?);
        }
        if self.has(sample::READ) {
            s.read = Some(self.read_values(&mut c)?);
        }
        if self.has(sample::CALLCHAIN) {
            let nr = c.u64("callchain nr")?;
            s.callchain = Some(c.u64s(nr, "callchain")?);
        }
        if self.has(sample::RAW) {
            let len = c.u32("raw size")?;
            s.raw = Some(c.bytes(len.into(), "raw data")?);
        }
        if self.has(sample::BRANCH_STACK) {
            s.branches = Some(self.branches(&mut c)?);
        }
        if self.has(sample::REGS_USER) {
            s.regs_user = Some(regs(&mut c, self.regs_user)?);
        }
        if self.has(sample::STACK_USER) {
            let len = c.u64("user stack size")?;
            s.stack_user = Some(c.bytes(len, "user stack")?);
            if len != 0 {
                c.skip(8, "user stack dyn_size")?;
            }
        }
        if self.has(sample::WEIGHT | sample::WEIGHT_STRUCT) {
            s.weight = Some(c.u64("weight")?);
        }
        if self.has(sample::DATA_SRC) {
            s.data_src = Some(c.u64("data_src")?);
        }
        if self.has(sample::TRANSACTION) {
            s.transaction = Some(c.u64("transaction")?);
        }
        if self.has(sample::REGS_INTR) {
            s.regs_intr = Some(regs(&mut c, self.regs_intr)?);
        }
        if self.has(sample::PHYS_ADDR) {
            s.phys_addr = Some(c.u64("phys_addr")?);
        }
        if self.has(sample::CGROUP) {
            s.cgroup = Some(c.u64("cgroup")?);
        }
        if self.has(sample::DATA_PAGE_SIZE) {
            s.data_page_size = Some(c.u64("data_page_size")?);
        }
        if self.has(sample::CODE_PAGE_SIZE) {
            s.code_page_size = Some(c.u64("code_page_size")?);
        }
        if self.has(sample::BUILD_ID_OFFSET) {
            s.bid = Some(c.entry("build ID of the ip")?);
        }
        if self.has(sample::CALLCHAIN_BUILD_ID_OFFSET) {
            let nr = c.u64("build-ID callchain nr")?;
            s.bid_callchain = Some(c.entries(nr, "build-ID callchain")?);
        }
        if self.has(sample::AUX) {
            let len = c.u64("aux size")?;
            s.aux = Some(c.bytes(len, "aux data")?);
        }
        Ok(s)
    }

    fn read_values<'a>(&self, c: &mut Cursor<'a>) -> Result<&'a [u8]> {
        let bit = |bit: u64| u64::from(self.read_format & bit != 0);
        let times = bit(read_format::TOTAL_TIME_ENABLED) + bit(read_format::TOTAL_TIME_RUNNING);
        let each = 1 + bit(read_format::ID) + bit(read_format::LOST);
        let words = if bit(read_format::GROUP) != 0 {
            let nr = u64::from_ne_bytes(
                c.rest()
                    .first_chunk()
                    .copied()
                    .ok_or_else(|| c.error("read_format nr is cut off"))?,
            );
            nr.checked_mul(each).and_then(|words| words.checked_add(1 + times))
        } else {
            Some(each + times)
        };
        let len = words.and_then(|words| words.checked_mul(8));
        let len = len.ok_or_else(|| c.error("read_format claims too many values"))?;
        c.bytes(len, "read_format values")
    }

    fn branches<'a>(&self, c: &mut Cursor<'a>) -> Result<&'a [u8]> {
        let nr = c.u64("branch stack nr")?;
        if self.branch_sample_type & BRANCH_HW_INDEX != 0 {
            c.skip(8, "branch stack hw_idx")?;
        }
        let each = if self.branch_sample_type & BRANCH_COUNTERS != 0 { 32 } else { 24 };
        let len = nr.checked_mul(each).ok_or_else(|| c.error("branch stack is too long"))?;
        c.bytes(len, "branch stack")
    }

    fn mmap<'a>(&self, raw: &RawRecord<'a>) -> Result<Mmap<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let pid = c.u32("mmap pid")?;
        let tid = c.u32("mmap tid")?;
        let addr = c.u64("mmap addr")?;
        let len = c.u64("mmap len")?;
        let pgoff = c.u64("mmap pgoff")?;
        let (mut file, mut prot, mut flags) = (FileKey::None, 0, 0);
        if raw.type_ == record_type::MMAP2 {
            file = mmap2_file(&mut c, raw.misc)?;
            prot = c.u32("mmap2 prot")?;
            flags = c.u32("mmap2 flags")?;
        }
        let path = c.string(c.rest().len() as u64, "mmap filename")?;
        let data = raw.misc & misc::MMAP_DATA != 0;
        Ok(Mmap { pid, tid, addr, len, pgoff, file, prot, flags, path, data, id })
    }

    fn comm<'a>(&self, raw: &RawRecord<'a>) -> Result<Comm<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let pid = c.u32("comm pid")?;
        let tid = c.u32("comm tid")?;
        let comm = c.string(c.rest().len() as u64, "comm")?;
        Ok(Comm { pid, tid, comm, exec: raw.misc & misc::COMM_EXEC != 0, id })
    }

    fn task(&self, raw: &RawRecord<'_>) -> Result<Task> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        Ok(Task {
            pid: c.u32("task pid")?,
            ppid: c.u32("task ppid")?,
            tid: c.u32("task tid")?,
            ptid: c.u32("task ptid")?,
            time: c.u64("task time")?,
            exec: raw.misc & misc::FORK_EXEC != 0,
            id,
        })
    }

    fn lost(&self, raw: &RawRecord<'_>, with_id: bool) -> Result<Lost> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        if with_id {
            c.skip(8, "lost id")?;
        }
        Ok(Lost { lost: c.u64("lost count")?, id })
    }

    fn deferred<'a>(&self, raw: &RawRecord<'a>) -> Result<Deferred<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let cookie = c.u64("deferred callchain cookie")?;
        let nr = c.u64("deferred callchain nr")?;
        let frames = if raw.misc & misc::CALLCHAIN_BUILD_ID != 0 {
            DeferredFrames::Entries(c.entries(nr, "deferred callchain entries")?)
        } else {
            DeferredFrames::Addresses(c.u64s(nr, "deferred callchain addresses")?)
        };
        Ok(Deferred { cookie, frames, id })
    }
}

/// Two words as they lie in memory, in the order given.
fn pair(first: u32, second: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    let words = first.to_ne_bytes().into_iter().chain(second.to_ne_bytes());
    bytes.iter_mut().zip(words).for_each(|(byte, value)| *byte = value);
    bytes
}

fn regs<'a>(c: &mut Cursor<'a>, nr: u64) -> Result<Regs<'a>> {
    let abi = c.u64("register abi")?;
    let values = c.u64s(if abi == 0 { 0 } else { nr }, "registers")?;
    Ok(Regs { abi, values })
}

fn mmap2_file(c: &mut Cursor<'_>, record_misc: u16) -> Result<FileKey> {
    if record_misc & misc::MMAP_BUILD_ID == 0 {
        return Ok(FileKey::Inode {
            maj: c.u32("mmap2 maj")?,
            min: c.u32("mmap2 min")?,
            ino: c.u64("mmap2 ino")?,
            ino_generation: c.u64("mmap2 ino_generation")?,
        });
    }
    let at = c.offset();
    let bytes = c.bytes(24, "mmap2 build ID")?;
    bytes
        .first()
        .and_then(|&size| bytes.get(4..4 + usize::from(size)))
        .and_then(BuildId::new)
        .map(FileKey::BuildId)
        .ok_or_else(|| Malformed::new(at, "mmap2 build ID size is not 1 to 20"))
}

/// A name from a record as text; bytes that are not UTF-8 are replaced.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
