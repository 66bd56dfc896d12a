// SPDX-License-Identifier: GPL-2.0
//! Records of the other byte order, turned into this machine's in place, field by field.
//!
//! Sizes do not change. What has no byte order stays as it is: paths, build IDs, user stacks,
//! raw and AUX data, whose inner layout only their writer knows.

use super::Format;
use super::fields::BRANCH_FLAGS;
use super::fields::words_of;
use super::format::BRANCH_COUNTERS;
use super::format::BRANCH_HW_INDEX;
use crate::abi::Entry;
use crate::abi::misc;
use crate::abi::read_format;
use crate::abi::record_type;
use crate::abi::sample;
use crate::attr;
use crate::cursor::Malformed;

type Result<T> = std::result::Result<T, Malformed>;

/// A position in bytes of the other order. Each step turns a field and returns its value.
#[derive(Debug)]
pub(crate) struct Swapper<'a> {
    rest: &'a mut [u8],
    offset: u64,
}

impl<'a> Swapper<'a> {
    /// Starts at the first of `bytes`, which lie at `offset` in their file.
    pub(crate) fn new(bytes: &'a mut [u8], offset: u64) -> Self {
        Self { rest: bytes, offset }
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> Malformed {
        Malformed::new(self.offset, what)
    }

    fn left(&self) -> u64 {
        self.rest.len() as u64
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, field: &str) -> Result<&'a mut [u8]> {
        if len > self.left() {
            let have = self.left();
            return Err(self.error(format!("{field} needs {len} bytes, {have} are left")));
        }
        let (taken, rest) = std::mem::take(&mut self.rest).split_at_mut(len as usize);
        self.rest = rest;
        self.offset = self.offset.saturating_add(len);
        Ok(taken)
    }

    /// Passes over what has no byte order.
    pub(crate) fn skip(&mut self, len: u64, field: &str) -> Result<()> {
        self.take(len, field).map(drop)
    }

    fn turn<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let at = self.offset;
        let bytes = self.take(N as u64, field)?;
        bytes.reverse();
        (&*bytes).try_into().map_err(|_| Malformed::new(at, format!("{field} is cut off")))
    }

    pub(crate) fn u16(&mut self, field: &str) -> Result<u16> {
        self.turn(field).map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self, field: &str) -> Result<u32> {
        self.turn(field).map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self, field: &str) -> Result<u64> {
        self.turn(field).map(u64::from_ne_bytes)
    }

    /// A word of bit fields of these widths, the first one at the lowest bit in one byte order
    /// and at the highest in the other; within a field, bits keep their order.
    pub(crate) fn bit_fields(&mut self, widths: &[u32], field: &str) -> Result<()> {
        let at = self.offset;
        let bytes = self.take(8, field)?;
        bytes.reverse();
        let word = (&*bytes).try_into().map(u64::from_ne_bytes);
        let word = word.map_err(|_| Malformed::new(at, format!("{field} is cut off")))?;
        bytes.copy_from_slice(&attr::foreign_bit_fields(word, widths).to_ne_bytes());
        Ok(())
    }

    pub(crate) fn u32s(&mut self, nr: u64, field: &str) -> Result<()> {
        let bytes = self.take(nr.saturating_mul(4), field)?;
        bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        Ok(())
    }

    pub(crate) fn u64s(&mut self, nr: u64, field: &str) -> Result<()> {
        let bytes = self.take(nr.saturating_mul(8), field)?;
        bytes.chunks_exact_mut(8).for_each(<[u8]>::reverse);
        Ok(())
    }

    /// All whole double words that are left.
    pub(crate) fn rest_u64s(&mut self, field: &str) -> Result<()> {
        self.u64s(self.left() / 8, field)
    }

    /// Build ID and offset; the build ID is bytes.
    fn entries(&mut self, nr: u64, field: &str) -> Result<()> {
        let bytes = self.take(nr.saturating_mul(Entry::SIZE as u64), field)?;
        for entry in bytes.chunks_exact_mut(Entry::SIZE) {
            if let Some(offset) = entry.last_chunk_mut::<8>() {
                offset.reverse();
            }
        }
        Ok(())
    }

    /// Splits off the last `len` bytes.
    fn split_end(&mut self, len: u64, field: &str) -> Result<Swapper<'a>> {
        let own = self.left().checked_sub(len).ok_or_else(|| {
            let have = self.left();
            self.error(format!("{field} needs {len} bytes, {have} are left"))
        })?;
        let offset = self.offset;
        let body = self.take(own, field)?;
        let end = Swapper { rest: std::mem::take(&mut self.rest), offset: self.offset };
        *self = Swapper { rest: body, offset };
        Ok(end)
    }
}

/// Turns the header of a record; `bytes` starts with it. Returns type and `misc`.
pub(crate) fn header(bytes: &mut [u8], offset: u64) -> Result<(u32, u16)> {
    let mut s = Swapper::new(bytes, offset);
    let type_ = s.u32("record header")?;
    let misc = s.u16("record header")?;
    s.u16("record header")?;
    Ok((type_, misc))
}

impl Format {
    /// Turns the body of a record the kernel wrote. `Ok(false)`: a type that is not known.
    pub(crate) fn swap(&self, type_: u32, misc: u16, body: Swapper<'_>) -> Result<bool> {
        let mut s = body;
        if type_ == record_type::SAMPLE {
            self.swap_sample(&mut s)?;
            return Ok(true);
        }
        self.swap_sample_id(&mut s)?;
        match type_ {
            record_type::MMAP | record_type::MMAP2 => {
                s.u32("mmap pid")?;
                s.u32("mmap tid")?;
                s.u64s(3, "mmap range")?;
                if type_ == record_type::MMAP2 {
                    swap_mmap2(&mut s, misc)?;
                }
            }
            record_type::LOST => s.u64s(2, "lost count")?,
            record_type::COMM => s.u32s(2, "comm task")?,
            record_type::EXIT | record_type::FORK => {
                s.u32s(4, "task")?;
                s.u64("task time")?;
            }
            record_type::THROTTLE | record_type::UNTHROTTLE => s.u64s(3, "throttle")?,
            record_type::READ => {
                s.u32s(2, "read task")?;
                self.swap_read(&mut s)?;
            }
            record_type::AUX => s.u64s(3, "aux")?,
            record_type::ITRACE_START => s.u32s(2, "itrace task")?,
            record_type::LOST_SAMPLES | record_type::AUX_OUTPUT_HW_ID => s.u64s(1, "value")?,
            record_type::SWITCH => {}
            record_type::SWITCH_CPU_WIDE => s.u32s(2, "switch task")?,
            record_type::NAMESPACES => {
                s.u32s(2, "namespaces task")?;
                let nr = s.u64("namespaces nr")?;
                s.u64s(nr.saturating_mul(2), "namespaces")?;
            }
            record_type::KSYMBOL => {
                s.u64("ksymbol addr")?;
                s.u32("ksymbol len")?;
                s.u16("ksymbol type")?;
                s.u16("ksymbol flags")?;
            }
            record_type::BPF_EVENT => {
                s.u16("bpf type")?;
                s.u16("bpf flags")?;
                s.u32("bpf id")?;
            }
            record_type::CGROUP => s.u64s(1, "cgroup id")?,
            record_type::TEXT_POKE => {
                s.u64("text poke addr")?;
                s.u16("text poke old_len")?;
                s.u16("text poke new_len")?;
            }
            record_type::CALLCHAIN_DEFERRED => {
                s.u64("deferred callchain cookie")?;
                let nr = s.u64("deferred callchain nr")?;
                if misc & misc::CALLCHAIN_BUILD_ID != 0 {
                    s.entries(nr, "deferred callchain entries")?;
                } else {
                    s.u64s(nr, "deferred callchain addresses")?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn swap_sample_id(&self, s: &mut Swapper<'_>) -> Result<()> {
        let mut t = s.split_end(self.sample_id_len() as u64, "the sample_id at the end")?;
        if !self.sample_id_all() {
            return Ok(());
        }
        if self.has(sample::TID) {
            t.u32s(2, "sample_id task")?;
        }
        for bit in [sample::TIME, sample::ID, sample::STREAM_ID] {
            if self.has(bit) {
                t.u64("sample_id")?;
            }
        }
        if self.has(sample::CPU) {
            t.u32s(2, "sample_id cpu")?;
        }
        t.rest_u64s("sample_id identifier")
    }

    fn swap_sample(&self, s: &mut Swapper<'_>) -> Result<()> {
        self.check_bits(s.offset)?;
        for bit in [sample::IDENTIFIER, sample::IP] {
            if self.has(bit) {
                s.u64("sample id or ip")?;
            }
        }
        if self.has(sample::TID) {
            s.u32s(2, "sample task")?;
        }
        for bit in [sample::TIME, sample::ADDR, sample::ID, sample::STREAM_ID] {
            if self.has(bit) {
                s.u64("sample time, addr or id")?;
            }
        }
        if self.has(sample::CPU) {
            s.u32s(2, "sample cpu")?;
        }
        if self.has(sample::PERIOD) {
            s.u64("sample period")?;
        }
        if self.has(sample::READ) {
            self.swap_read(s)?;
        }
        if self.has(sample::CALLCHAIN) {
            let nr = s.u64("callchain nr")?;
            s.u64s(nr, "callchain")?;
        }
        if self.has(sample::RAW) {
            let len = s.u32("raw size")?;
            s.skip(len.into(), "raw data")?;
        }
        if self.has(sample::BRANCH_STACK) {
            self.swap_branches(s)?;
        }
        self.swap_end_of_sample(s)
    }

    /// From the user registers on.
    fn swap_end_of_sample(&self, s: &mut Swapper<'_>) -> Result<()> {
        if self.has(sample::REGS_USER) {
            swap_regs(s, self.regs_user)?;
        }
        if self.has(sample::STACK_USER) {
            let len = s.u64("user stack size")?;
            s.skip(len, "user stack")?;
            if len != 0 {
                s.u64("user stack dyn_size")?;
            }
        }
        // The three parts of WEIGHT_STRUCT are laid out to be the same number either way.
        if self.has(sample::WEIGHT | sample::WEIGHT_STRUCT) {
            s.u64("weight")?;
        }
        for bit in [sample::DATA_SRC, sample::TRANSACTION] {
            if self.has(bit) {
                s.u64("data_src or transaction")?;
            }
        }
        if self.has(sample::REGS_INTR) {
            swap_regs(s, self.regs_intr)?;
        }
        let words =
            [sample::PHYS_ADDR, sample::CGROUP, sample::DATA_PAGE_SIZE, sample::CODE_PAGE_SIZE];
        for bit in words {
            if self.has(bit) {
                s.u64("phys_addr, cgroup or page size")?;
            }
        }
        if self.has(sample::BUILD_ID_OFFSET) {
            s.entries(1, "build ID of the ip")?;
        }
        if self.has(sample::CALLCHAIN_BUILD_ID_OFFSET) {
            let nr = s.u64("build-ID callchain nr")?;
            s.entries(nr, "build-ID callchain")?;
        }
        if self.has(sample::AUX) {
            let len = s.u64("aux size")?;
            s.skip(len, "aux data")?;
        }
        Ok(())
    }

    fn swap_read(&self, s: &mut Swapper<'_>) -> Result<()> {
        self.check_read_format(s.offset)?;
        let words = if self.read_format & read_format::GROUP != 0 {
            let nr = s.u64("read_format nr")?;
            words_of(self.read_format, nr).map(|words| words - 1)
        } else {
            words_of(self.read_format, 0)
        };
        s.u64s(words.unwrap_or(u64::MAX), "read_format values")
    }

    fn swap_branches(&self, s: &mut Swapper<'_>) -> Result<()> {
        let nr = s.u64("branch stack nr")?;
        if self.branch_sample_type & BRANCH_HW_INDEX != 0 {
            s.u64("branch stack hw_idx")?;
        }
        if nr > s.left() {
            return Err(s.error(format!("branch stack claims {nr} entries")));
        }
        for _ in 0..nr {
            s.u64s(2, "branch stack")?;
            s.bit_fields(&BRANCH_FLAGS, "branch flags")?;
        }
        if self.branch_sample_type & BRANCH_COUNTERS != 0 {
            s.u64s(nr, "branch counters")?;
        }
        Ok(())
    }
}

fn swap_mmap2(s: &mut Swapper<'_>, record_misc: u16) -> Result<()> {
    if record_misc & misc::MMAP_BUILD_ID != 0 {
        s.skip(24, "mmap2 build ID")?;
    } else {
        s.u32s(2, "mmap2 device")?;
        s.u64s(2, "mmap2 inode")?;
    }
    s.u32s(2, "mmap2 prot and flags")
}

fn swap_regs(s: &mut Swapper<'_>, nr: u64) -> Result<()> {
    let abi = s.u64("register abi")?;
    s.u64s(if abi == 0 { 0 } else { nr }, "registers")
}

/// Turns the body of one of perf's own records. `Ok(false)`: a type that is not known.
pub(crate) fn user_record(type_: u32, body: Swapper<'_>) -> Result<bool> {
    let mut s = body;
    match type_ {
        record_type::HEADER_ATTR => {
            attr::swap(&mut s)?;
            s.rest_u64s("event IDs")?;
        }
        record_type::HEADER_EVENT_TYPE => s.u64s(1, "event type")?,
        record_type::HEADER_TRACING_DATA | record_type::HEADER_BUILD_ID => s.u32s(1, "size")?,
        record_type::FINISHED_ROUND | record_type::FINISHED_INIT | record_type::COMPRESSED => {}
        record_type::COMPRESSED2 => s.u64s(1, "compressed size")?,
        record_type::ID_INDEX | record_type::STAT_CONFIG | record_type::STAT_ROUND => {
            s.rest_u64s("values")?
        }
        record_type::AUXTRACE_INFO => {
            s.u32("auxtrace type")?;
            s.skip(4, "auxtrace info")?;
            s.rest_u64s("auxtrace info")?;
        }
        record_type::AUXTRACE => {
            s.u64s(3, "auxtrace")?;
            s.u32s(3, "auxtrace")?;
        }
        record_type::AUXTRACE_ERROR => swap_auxtrace_error(&mut s)?,
        record_type::THREAD_MAP => {
            let nr = s.u64("thread map nr")?;
            for _ in 0..nr {
                s.u64("thread map pid")?;
                s.skip(16, "thread map name")?;
            }
        }
        record_type::CPU_MAP => swap_cpu_map(&mut s)?,
        record_type::STAT => {
            s.u64("stat id")?;
            s.u32s(2, "stat cpu")?;
            s.u64s(3, "stat values")?;
        }
        record_type::EVENT_UPDATE => swap_event_update(&mut s)?,
        // The last double word is flags of a byte each, and older ones lack all after the third.
        record_type::TIME_CONV => s.u64s(s.left().min(40) / 8, "time conversion")?,
        record_type::HEADER_FEATURE => s.u64s(1, "feature")?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn swap_auxtrace_error(s: &mut Swapper<'_>) -> Result<()> {
    s.u32s(5, "auxtrace error")?;
    let form = s.u32("auxtrace error format")?;
    s.u64("auxtrace error ip")?;
    if form >= 1 {
        s.u64("auxtrace error time")?;
    }
    if form >= 2 {
        s.skip(64, "auxtrace error message")?;
        s.u32s(2, "auxtrace error guest")?;
    }
    Ok(())
}

fn swap_event_update(s: &mut Swapper<'_>) -> Result<()> {
    let kind = s.u64("event update type")?;
    s.u64("event update id")?;
    match kind {
        event_update::SCALE => s.u64s(1, "event update scale"),
        event_update::CPUS => swap_cpu_map(s),
        _ => Ok(()),
    }
}

/// `PERF_EVENT_UPDATE__*`
pub(crate) mod event_update {
    pub(crate) const SCALE: u64 = 1;
    pub(crate) const NAME: u64 = 2;
    pub(crate) const CPUS: u64 = 3;
}

/// `struct perf_record_cpu_map_data`: a list of CPUs, a mask, or a range.
fn swap_cpu_map(s: &mut Swapper<'_>) -> Result<()> {
    let kind = s.u16("cpu map type")?;
    match kind {
        0 => {
            let nr = s.u16("cpu map nr")?;
            (0..nr).try_for_each(|_| s.u16("cpu map cpu").map(drop))
        }
        1 => {
            let nr = s.u16("cpu map nr")?;
            match s.u16("cpu map long_size")? {
                4 => s.u32s(nr.into(), "cpu mask"),
                8 => s.skip(4, "cpu map padding").and_then(|()| s.u64s(nr.into(), "cpu mask")),
                other => Err(s.error(format!("cpu map of words of {other} bytes"))),
            }
        }
        _ => {
            s.skip(2, "cpu map any")?;
            s.u16("cpu map start")?;
            s.u16("cpu map end").map(drop)
        }
    }
}
