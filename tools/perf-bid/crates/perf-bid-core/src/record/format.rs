// SPDX-License-Identifier: GPL-2.0
//! [`Format`]: how the records of one event are laid out, and their decoder.

use zerocopy::FromBytes;
use zerocopy::native_endian::U64;

use super::Aux;
use super::AuxOutputHwId;
use super::BpfEvent;
use super::BranchEntry;
use super::Branches;
use super::Cgroup;
use super::Comm;
use super::Deferred;
use super::DeferredFrames;
use super::FileKey;
use super::ItraceStart;
use super::Ksymbol;
use super::Lost;
use super::Mmap;
use super::Namespaces;
use super::RawRecord;
use super::Read;
use super::ReadValues;
use super::Record;
use super::Regs;
use super::Result;
use super::Sample;
use super::SampleId;
use super::Switch;
use super::Task;
use super::TextPoke;
use super::Throttle;
use super::fields::words_of;
use crate::abi::BuildId;
use crate::abi::misc;
use crate::abi::read_format;
use crate::abi::record_type;
use crate::abi::sample;
use crate::attr::Attr;
use crate::cursor::Cursor;
use crate::cursor::Malformed;

/// `PERF_SAMPLE_BRANCH_HW_INDEX` of `perf_event_attr.branch_sample_type`.
pub(super) const BRANCH_HW_INDEX: u64 = 1 << 17;
/// `PERF_SAMPLE_BRANCH_COUNTERS` of `perf_event_attr.branch_sample_type`.
pub(super) const BRANCH_COUNTERS: u64 = 1 << 19;

/// The part of an attr that decides how its records are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    sample_type: u64,
    pub(super) read_format: u64,
    pub(super) branch_sample_type: u64,
    pub(super) regs_user: u64,
    pub(super) regs_intr: u64,
    sample_id_all: bool,
    id: Position,
    time: Position,
}

/// Where a double word is that records of all types have: in a sample, bytes from the start of
/// the body; in others, from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    in_sample: Option<u8>,
    from_end: Option<u8>,
}

impl Position {
    fn find(self, type_: u32, body: &[u8]) -> Option<&[u8; 8]> {
        let at = if type_ == record_type::SAMPLE {
            self.in_sample?.into()
        } else if type_ < record_type::USER_TYPE_START {
            body.len().checked_sub(self.from_end?.into())?
        } else {
            return None;
        };
        body.get(at..)?.first_chunk()
    }
}

/// Size of those fields of `order` that are in `sample_type`, each 8 bytes.
fn size_of_fields(sample_type: u64, order: &[u64]) -> u8 {
    order.iter().filter(|&&bit| sample_type & bit != 0).count() as u8 * 8
}

impl From<&Attr> for Format {
    fn from(attr: &Attr) -> Self {
        let set = attr.sample_type;
        let has = |bit| set & bit != 0;
        let size = |order: &[u64]| size_of_fields(set, order);
        let all = attr.sample_id_all();
        let id_in_sample =
            has(sample::ID).then(|| size(&[sample::IP, sample::TID, sample::TIME, sample::ADDR]));
        let id_from_end =
            has(sample::ID).then(|| size(&[sample::ID, sample::STREAM_ID, sample::CPU]));
        // The identifier is the first in a sample, and the last elsewhere.
        let (first, last) = if has(sample::IDENTIFIER) { (Some(0), Some(8)) } else { (None, None) };
        let time_in_sample = size(&[sample::IDENTIFIER, sample::IP, sample::TID]);
        let time_from_end =
            size(&[sample::TIME, sample::ID, sample::STREAM_ID, sample::CPU, sample::IDENTIFIER]);
        Self {
            sample_type: set,
            read_format: attr.read_format,
            branch_sample_type: attr.branch_sample_type,
            regs_user: u64::from(attr.sample_regs_user.count_ones()),
            regs_intr: u64::from(attr.sample_regs_intr.count_ones()),
            sample_id_all: all,
            id: Position {
                in_sample: first.or(id_in_sample),
                from_end: last.or(id_from_end).filter(|_| all),
            },
            time: Position {
                in_sample: has(sample::TIME).then_some(time_in_sample),
                from_end: (has(sample::TIME) && all).then_some(time_from_end),
            },
        }
    }
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
            record_type::SAMPLE => Record::Sample(self.sample(raw)?),
            record_type::MMAP | record_type::MMAP2 => Record::Mmap(self.mmap(raw)?),
            record_type::COMM => Record::Comm(self.comm(raw)?),
            record_type::FORK => Record::Fork(self.task(raw)?),
            record_type::EXIT => Record::Exit(self.task(raw)?),
            record_type::LOST => Record::Lost(self.lost(raw, true)?),
            record_type::LOST_SAMPLES => Record::LostSamples(self.lost(raw, false)?),
            record_type::CALLCHAIN_DEFERRED => Record::Deferred(self.deferred(raw)?),
            record_type::THROTTLE => Record::Throttle(self.throttle(raw)?),
            record_type::UNTHROTTLE => Record::Unthrottle(self.throttle(raw)?),
            record_type::READ => Record::Read(self.read(raw)?),
            record_type::AUX => Record::Aux(self.aux(raw)?),
            record_type::AUX_OUTPUT_HW_ID => Record::AuxOutputHwId(self.aux_output_hw_id(raw)?),
            record_type::ITRACE_START => Record::ItraceStart(self.itrace_start(raw)?),
            record_type::SWITCH | record_type::SWITCH_CPU_WIDE => Record::Switch(self.switch(raw)?),
            record_type::NAMESPACES => Record::Namespaces(self.namespaces(raw)?),
            record_type::KSYMBOL => Record::Ksymbol(self.ksymbol(raw)?),
            record_type::BPF_EVENT => Record::BpfEvent(self.bpf_event(raw)?),
            record_type::CGROUP => Record::Cgroup(self.cgroup(raw)?),
            record_type::TEXT_POKE => Record::TextPoke(self.text_poke(raw)?),
            record_type::FINISHED_ROUND => Record::FinishedRound,
            other => Record::Other(other),
        })
    }

    /// The ID that tells which event wrote the record, if the format has one. The fields
    /// before it are the same for every event of a file, so that any event's format finds it
    /// when [`sample::IDENTIFIER`] is set.
    pub fn event_id(&self, raw: &RawRecord<'_>) -> Option<u64> {
        self.id.find(raw.type_, raw.body).map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// The same, of a record of the other byte order with this type and body.
    pub(crate) fn foreign_event_id(&self, type_: u32, body: &[u8]) -> Option<u64> {
        self.id.find(type_, body).map(|bytes| u64::from_ne_bytes(*bytes).swap_bytes())
    }

    /// Whether records of both formats have their ID at the same place.
    pub(crate) fn same_id_position(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Whether samples tell which event they are of.
    pub(crate) fn has_event_id(&self) -> bool {
        self.id.in_sample.is_some()
    }

    /// A record's time without decoding the rest.
    pub fn time(&self, raw: &RawRecord<'_>) -> Option<u64> {
        self.time.find(raw.type_, raw.body).map(|bytes| u64::from_ne_bytes(*bytes))
    }

    pub(super) fn has(&self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    pub(super) fn sample_id_all(&self) -> bool {
        self.sample_id_all
    }

    /// Size of the `struct sample_id` at the end of records, in bytes.
    pub(super) fn sample_id_len(&self) -> usize {
        let bits = [
            sample::TID,
            sample::TIME,
            sample::ID,
            sample::STREAM_ID,
            sample::CPU,
            sample::IDENTIFIER,
        ];
        if self.sample_id_all { size_of_fields(self.sample_type, &bits).into() } else { 0 }
    }

    /// Refuses samples with fields of unknown size.
    pub(super) fn check_bits(&self, offset: u64) -> Result<()> {
        let unknown = self.unknown_bits();
        if unknown == 0 {
            return Ok(());
        }
        Err(Malformed::new(offset, format!("the event has unknown sample_type bits {unknown:#x}")))
    }

    /// The same for the counter values within.
    pub(super) fn check_read_format(&self, offset: u64) -> Result<()> {
        let unknown = self.read_format & !(read_format::MAX - 1);
        if unknown == 0 {
            return Ok(());
        }
        Err(Malformed::new(offset, format!("the event has unknown read_format bits {unknown:#x}")))
    }

    /// Splits the `struct sample_id` off the end of the body and decodes it; `c` then ends
    /// where the record's own fields end.
    fn take_sample_id(&self, c: &mut Cursor<'_>) -> Result<SampleId> {
        let mut id = SampleId::default();
        if !self.sample_id_all {
            return Ok(id);
        }
        let len = self.sample_id_len();
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

    /// Decodes a sample; `raw` is one.
    #[inline]
    pub(crate) fn sample<'a>(&self, raw: &RawRecord<'a>) -> Result<Sample<'a>> {
        self.check_bits(raw.offset)?;
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
        if self.has(sample::WEIGHT) {
            s.weight = Some(c.u64("weight")?);
        } else if self.has(sample::WEIGHT_STRUCT) {
            let weight = c.u64("weight")?;
            s.weight = Some(weight & 0xffff_ffff);
            s.weight_parts = Some(((weight >> 32) as u16, (weight >> 48) as u16));
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

    pub(super) fn read_values<'a>(&self, c: &mut Cursor<'a>) -> Result<ReadValues<'a>> {
        self.check_read_format(c.offset())?;
        let nr = if self.read_format & read_format::GROUP != 0 {
            c.clone().u64("read_format nr")?
        } else {
            0
        };
        let words = words_of(self.read_format, nr)
            .ok_or_else(|| c.error("read_format claims too many values"))?;
        let words = c.u64s(words, "read_format values")?;
        Ok(ReadValues { words, read_format: self.read_format })
    }

    pub(super) fn branches<'a>(&self, c: &mut Cursor<'a>) -> Result<Branches<'a>> {
        let nr = c.u64("branch stack nr")?;
        let hw_index = if self.branch_sample_type & BRANCH_HW_INDEX != 0 {
            Some(c.u64("branch stack hw_idx")?)
        } else {
            None
        };
        let len = nr.saturating_mul(BranchEntry::SIZE);
        let entries = <[BranchEntry]>::ref_from_bytes(c.bytes(len, "branch stack")?)
            .map_err(|_| c.error("branch stack is cut off"))?;
        let counted = self.branch_sample_type & BRANCH_COUNTERS != 0;
        let counters = c.u64s(if counted { nr } else { 0 }, "branch counters")?;
        Ok(Branches { hw_index, entries, counters })
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
            exec: raw.misc & misc::FORK_EXEC != 0,
            time: c.u64("task time")?,
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

    fn throttle(&self, raw: &RawRecord<'_>) -> Result<Throttle> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        Ok(Throttle {
            time: c.u64("throttle time")?,
            event_id: c.u64("throttle id")?,
            stream_id: c.u64("throttle stream_id")?,
            id,
        })
    }

    fn read<'a>(&self, raw: &RawRecord<'a>) -> Result<Read<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let (pid, tid) = (c.u32("read pid")?, c.u32("read tid")?);
        Ok(Read { pid, tid, values: self.read_values(&mut c)?, id })
    }

    fn aux(&self, raw: &RawRecord<'_>) -> Result<Aux> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let (offset, size) = (c.u64("aux offset")?, c.u64("aux size")?);
        Ok(Aux { offset, size, flags: c.u64("aux flags")?, id })
    }

    fn aux_output_hw_id(&self, raw: &RawRecord<'_>) -> Result<AuxOutputHwId> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        Ok(AuxOutputHwId { hw_id: c.u64("hw_id")?, id })
    }

    fn itrace_start(&self, raw: &RawRecord<'_>) -> Result<ItraceStart> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        Ok(ItraceStart { pid: c.u32("itrace pid")?, tid: c.u32("itrace tid")?, id })
    }

    fn switch(&self, raw: &RawRecord<'_>) -> Result<Switch> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let out = raw.misc & misc::SWITCH_OUT != 0;
        let preempted = out && raw.misc & misc::SWITCH_OUT_PREEMPT != 0;
        let other = if raw.type_ == record_type::SWITCH_CPU_WIDE {
            Some((c.u32("switch pid")?, c.u32("switch tid")?))
        } else {
            None
        };
        Ok(Switch { out, preempted, other, id })
    }

    fn namespaces<'a>(&self, raw: &RawRecord<'a>) -> Result<Namespaces<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let (pid, tid) = (c.u32("namespaces pid")?, c.u32("namespaces tid")?);
        let nr = c.u64("namespaces nr")?;
        let links = c.bytes(nr.saturating_mul(16), "namespaces")?;
        let links =
            <[[U64; 2]]>::ref_from_bytes(links).map_err(|_| c.error("namespaces are cut off"))?;
        Ok(Namespaces { pid, tid, links, id })
    }

    fn ksymbol<'a>(&self, raw: &RawRecord<'a>) -> Result<Ksymbol<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        Ok(Ksymbol {
            addr: c.u64("ksymbol addr")?,
            len: c.u32("ksymbol len")?,
            kind: c.u16("ksymbol type")?,
            flags: c.u16("ksymbol flags")?,
            name: c.string(c.rest().len() as u64, "ksymbol name")?,
            id,
        })
    }

    fn bpf_event<'a>(&self, raw: &RawRecord<'a>) -> Result<BpfEvent<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        Ok(BpfEvent {
            kind: c.u16("bpf type")?,
            flags: c.u16("bpf flags")?,
            prog_id: c.u32("bpf id")?,
            tag: c.bytes(8, "bpf tag")?,
            id,
        })
    }

    fn cgroup<'a>(&self, raw: &RawRecord<'a>) -> Result<Cgroup<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let cgroup = c.u64("cgroup id")?;
        Ok(Cgroup { cgroup, path: c.string(c.rest().len() as u64, "cgroup path")?, id })
    }

    fn text_poke<'a>(&self, raw: &RawRecord<'a>) -> Result<TextPoke<'a>> {
        let mut c = raw.cursor();
        let id = self.take_sample_id(&mut c)?;
        let addr = c.u64("text poke addr")?;
        let (old, new) = (c.u16("text poke old_len")?, c.u16("text poke new_len")?);
        let old = c.bytes(old.into(), "text poke old bytes")?;
        Ok(TextPoke { addr, old, new: c.bytes(new.into(), "text poke new bytes")?, id })
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

pub(super) fn regs<'a>(c: &mut Cursor<'a>, nr: u64) -> Result<Regs<'a>> {
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
