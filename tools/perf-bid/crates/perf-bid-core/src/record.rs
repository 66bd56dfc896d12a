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

mod fields;
mod format;
mod parts;
pub(crate) mod swap;

use std::borrow::Cow;

use zerocopy::native_endian::U64;

pub use self::fields::BranchEntry;
pub use self::fields::Branches;
pub use self::fields::ReadValue;
pub use self::fields::ReadValues;
pub use self::format::Format;
pub use self::parts::Parts;
use crate::abi::BuildId;
use crate::abi::Entry;
use crate::abi::misc;
use crate::cursor::Cursor;
use crate::cursor::Malformed;

type Result<T> = std::result::Result<T, Malformed>;

/// Size of a record header, in bytes.
pub const HEADER_SIZE: usize = 8;

/// A record whose length is known to fit; its body is not decoded.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// Where the header lies in the file or stream; of a compressed file, where it would lie if
    /// it were not.
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
    #[inline]
    pub fn split(bytes: &'a [u8], offset: u64) -> Result<Option<(Self, &'a [u8])>> {
        let Some((&[t0, t1, t2, t3, m0, m1, s0, s1], rest)) = bytes.split_first_chunk() else {
            return if bytes.is_empty() { Ok(None) } else { Err(cut_off(offset, bytes.len())) };
        };
        let type_ = u32::from_ne_bytes([t0, t1, t2, t3]);
        let misc = u16::from_ne_bytes([m0, m1]);
        let size = u16::from_ne_bytes([s0, s1]);
        let len = usize::from(size).checked_sub(HEADER_SIZE);
        let Some((body, rest)) = len.and_then(|len| rest.split_at_checked(len)) else {
            return Err(bad_size(offset, type_, size, bytes.len()));
        };
        Ok(Some((Self { offset, type_, misc, body }, rest)))
    }

    /// The next record at `c`, which may be of the other byte order. `Ok(None)` at the end.
    pub(crate) fn take(c: &mut Cursor<'a>) -> Result<Option<Self>> {
        let (offset, have) = (c.offset(), c.rest().len());
        if have == 0 {
            return Ok(None);
        }
        let (type_, misc) = (c.u32("record header")?, c.u16("record header")?);
        let size = c.u16("record header")?;
        let len = u64::from(size).checked_sub(HEADER_SIZE as u64);
        let body = len.and_then(|len| c.bytes(len, "record").ok());
        let body = body.ok_or_else(|| bad_size(offset, type_, size, have))?;
        Ok(Some(Self { offset, type_, misc, body }))
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

#[cold]
fn cut_off(offset: u64, have: usize) -> Malformed {
    Malformed::new(offset, format!("a record header needs {HEADER_SIZE} bytes, {have} are left"))
}

/// Why a record with this size is none.
#[cold]
pub(crate) fn bad_size(offset: u64, type_: u32, size: u16, have: usize) -> Malformed {
    let what = if usize::from(size) < HEADER_SIZE {
        format!("record of type {type_} claims a size of {size} bytes")
    } else {
        format!("record of type {type_} with size {size}, {have} bytes are left")
    };
    Malformed::new(offset, what)
}

/// A decoded record; strings and arrays are borrowed.
#[derive(Clone, Debug)]
// Nearly all records are samples: a box for each would cost more than the room of the others.
#[allow(clippy::large_enum_variant)]
pub enum Record<'a> {
    /// `PERF_RECORD_SAMPLE`
    Sample(Sample<'a>),
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
    /// `PERF_RECORD_THROTTLE`: samples came too fast.
    Throttle(Throttle),
    /// `PERF_RECORD_UNTHROTTLE`
    Unthrottle(Throttle),
    /// `PERF_RECORD_READ`: the counts of a task that ended (`attr.inherit_stat`).
    Read(Read<'a>),
    /// `PERF_RECORD_AUX`: where new data lies in the AUX area.
    Aux(Aux),
    /// `PERF_RECORD_AUX_OUTPUT_HW_ID`
    AuxOutputHwId(AuxOutputHwId),
    /// `PERF_RECORD_ITRACE_START`
    ItraceStart(ItraceStart),
    /// `PERF_RECORD_SWITCH` or `PERF_RECORD_SWITCH_CPU_WIDE`
    Switch(Switch),
    /// `PERF_RECORD_NAMESPACES`
    Namespaces(Namespaces<'a>),
    /// `PERF_RECORD_KSYMBOL`
    Ksymbol(Ksymbol<'a>),
    /// `PERF_RECORD_BPF_EVENT`
    BpfEvent(BpfEvent<'a>),
    /// `PERF_RECORD_CGROUP`
    Cgroup(Cgroup<'a>),
    /// `PERF_RECORD_TEXT_POKE`
    TextPoke(TextPoke<'a>),
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
            Self::Fork(task) | Self::Exit(task) => Some(task.time),
            Self::Throttle(throttle) | Self::Unthrottle(throttle) => Some(throttle.time),
            other => other.sample_id().and_then(|id| id.time),
        }
    }

    /// The fields at the end of the record, which a sample has elsewhere.
    pub fn sample_id(&self) -> Option<&SampleId> {
        match self {
            Self::Sample(_) | Self::FinishedRound | Self::Other(_) => None,
            Self::Mmap(mmap) => Some(&mmap.id),
            Self::Comm(comm) => Some(&comm.id),
            Self::Fork(task) | Self::Exit(task) => Some(&task.id),
            Self::Lost(lost) | Self::LostSamples(lost) => Some(&lost.id),
            Self::Throttle(throttle) | Self::Unthrottle(throttle) => Some(&throttle.id),
            Self::Read(read) => Some(&read.id),
            Self::Aux(aux) => Some(&aux.id),
            Self::AuxOutputHwId(hw_id) => Some(&hw_id.id),
            Self::ItraceStart(start) => Some(&start.id),
            Self::Switch(switch) => Some(&switch.id),
            Self::Namespaces(namespaces) => Some(&namespaces.id),
            Self::Ksymbol(ksymbol) => Some(&ksymbol.id),
            Self::BpfEvent(event) => Some(&event.id),
            Self::Cgroup(cgroup) => Some(&cgroup.id),
            Self::TextPoke(poke) => Some(&poke.id),
            Self::Deferred(deferred) => Some(&deferred.id),
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
    pub read: Option<ReadValues<'a>>,
    pub callchain: Option<&'a [U64]>,
    pub raw: Option<&'a [u8]>,
    pub branches: Option<Branches<'a>>,
    pub regs_user: Option<Regs<'a>>,
    pub stack_user: Option<&'a [u8]>,
    /// From `PERF_SAMPLE_WEIGHT`, or the first of the three of `PERF_SAMPLE_WEIGHT_STRUCT`.
    pub weight: Option<u64>,
    /// The other two of `PERF_SAMPLE_WEIGHT_STRUCT`, for which each architecture has a meaning:
    /// on x86 and powerpc, the first is the instruction's latency.
    pub weight_parts: Option<(u16, u16)>,
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

/// `PERF_RECORD_THROTTLE` or `PERF_RECORD_UNTHROTTLE`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Throttle {
    pub time: u64,
    pub event_id: u64,
    pub stream_id: u64,
    pub id: SampleId,
}

/// `PERF_RECORD_READ`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Read<'a> {
    pub pid: u32,
    pub tid: u32,
    pub values: ReadValues<'a>,
    pub id: SampleId,
}

/// `PERF_RECORD_AUX`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Aux {
    pub offset: u64,
    pub size: u64,
    /// `PERF_AUX_FLAG_*`
    pub flags: u64,
    pub id: SampleId,
}

/// `PERF_RECORD_AUX_OUTPUT_HW_ID`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct AuxOutputHwId {
    pub hw_id: u64,
    pub id: SampleId,
}

/// `PERF_RECORD_ITRACE_START`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ItraceStart {
    pub pid: u32,
    pub tid: u32,
    pub id: SampleId,
}

/// `PERF_RECORD_SWITCH` or `PERF_RECORD_SWITCH_CPU_WIDE`; `id` has the task.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Switch {
    /// The task was switched out, not in.
    pub out: bool,
    /// It could have gone on.
    pub preempted: bool,
    /// Process and thread that come next (out) or came before (in), if CPU-wide.
    pub other: Option<(u32, u32)>,
    pub id: SampleId,
}

/// `PERF_RECORD_NAMESPACES`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Namespaces<'a> {
    pub pid: u32,
    pub tid: u32,
    /// Device and inode for each kind of namespace, in the order of `NET_NS_INDEX` and so on.
    pub links: &'a [[U64; 2]],
    pub id: SampleId,
}

/// `PERF_RECORD_KSYMBOL`: kernel code that came or went, such as a BPF program.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Ksymbol<'a> {
    pub addr: u64,
    pub len: u32,
    /// `PERF_RECORD_KSYMBOL_TYPE_*`
    pub kind: u16,
    /// Bit 0: it went.
    pub flags: u16,
    pub name: &'a [u8],
    pub id: SampleId,
}

/// `PERF_RECORD_BPF_EVENT`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct BpfEvent<'a> {
    /// `PERF_BPF_EVENT_*`: 1 loaded, 2 unloaded.
    pub kind: u16,
    pub flags: u16,
    pub prog_id: u32,
    pub tag: &'a [u8],
    pub id: SampleId,
}

/// `PERF_RECORD_CGROUP`
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Cgroup<'a> {
    pub cgroup: u64,
    pub path: &'a [u8],
    pub id: SampleId,
}

/// `PERF_RECORD_TEXT_POKE`: the kernel changed its own code.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct TextPoke<'a> {
    pub addr: u64,
    pub old: &'a [u8],
    pub new: &'a [u8],
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

/// A name from a record as text; bytes that are not UTF-8 are replaced.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
