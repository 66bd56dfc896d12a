// SPDX-License-Identifier: GPL-2.0
//! `--sample-buildids`: from addresses to build IDs and file offsets. The result is what a
//! kernel with the build-ID bits would have written: the user entries of a callchain are
//! resolved, those of the kernel are not, context markers stay, and a callchain that was
//! deferred still is.

use std::ops::Deref;
use std::time::SystemTime;

use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::ENTRIES_MAX;
use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::context;
use perf_bid_core::abi::misc;
use perf_bid_core::abi::record_type;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::cursor::Malformed;
use perf_bid_core::data::EventDesc;
use perf_bid_core::data::PerfData;
use perf_bid_core::encode::RECORD_MAX;
use perf_bid_core::encode::put_raw;
use perf_bid_core::encode::put_record;
use perf_bid_core::record::DeferredFrames;
use perf_bid_core::record::HEADER_SIZE;
use perf_bid_core::record::Parts;
use perf_bid_core::record::Record;
use perf_bid_core::stream::Sorted;
use perf_bid_core::stream::Undecoded;
use zerocopy::FromBytes;
use zerocopy::IntoBytes;
use zerocopy::native_endian::U64;

use super::HEADER_RECORDS;
use super::KERNEL_PID;
use super::Progress;
use super::STACK_USER;
use super::Sink;
use super::Summary;
use super::TRACE;
use super::Written;
use super::resolver::Resolver;
use crate::cli;

/// Fields that hold addresses of a process, or what was at them.
const ADDRESSES: [(u64, &str); 7] = [
    (sample::ADDR, "ADDR"),
    (sample::BRANCH_STACK, "BRANCH_STACK"),
    (sample::REGS_USER, "REGS_USER"),
    (sample::STACK_USER, STACK_USER),
    (sample::REGS_INTR, "REGS_INTR"),
    (sample::PHYS_ADDR, "PHYS_ADDR"),
    (sample::AUX, "AUX"),
];

/// `HEADER_BRANCH_STACK`
const BRANCH_STACK_FEATURE: u32 = 15;

/// What is to be done to the samples of one event.
struct Plan {
    /// The instruction pointer becomes `PERF_SAMPLE_BUILD_ID_OFFSET`.
    ip: bool,
    /// The callchain becomes `PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET`.
    chain: bool,
    /// The samples have another form than before.
    changed: bool,
    attr: Attr,
}

impl Plan {
    fn of(event: &EventDesc, keep_addresses: bool) -> Self {
        let mut attr = event.attr.clone();
        let has = |bit| event.attr.has_sample(bit);
        let ip = has(sample::IP) && !has(sample::BUILD_ID_OFFSET);
        let chain = has(sample::CALLCHAIN) && !has(sample::CALLCHAIN_BUILD_ID_OFFSET);
        attr.sample_type &= !(sample::IP | sample::CALLCHAIN);
        attr.sample_type |= if ip { sample::BUILD_ID_OFFSET } else { 0 };
        attr.sample_type |= if chain { sample::CALLCHAIN_BUILD_ID_OFFSET } else { 0 };
        if !keep_addresses {
            ADDRESSES.iter().for_each(|(bit, _)| attr.sample_type &= !bit);
            attr.branch_sample_type = 0;
            attr.sample_regs_user = 0;
            attr.sample_stack_user = 0;
            attr.sample_regs_intr = 0;
            attr.aux_sample_size = 0;
        }
        Self { ip, chain, changed: attr.sample_type != event.attr.sample_type, attr }
    }
}

/// Converts `data` and gives the result its name.
pub fn convert<B: Deref<Target = [u8]>>(
    args: &cli::Inject,
    data: &PerfData<B>,
    recorded: Option<SystemTime>,
    progress: &Progress,
) -> Result<Written> {
    let plans: Vec<_> =
        data.events().iter().map(|event| Plan::of(event, args.keep_addresses)).collect();
    if !plans.iter().any(|plan| plan.ip || plan.chain) {
        bail!(
            "{}: no event's samples have addresses to convert; {}",
            args.input.display(),
            if data.events().iter().any(|event| event.attr.wants_build_ids()) {
                "they carry build IDs already"
            } else {
                "record with an instruction pointer or callchains"
            }
        );
    }
    let converter = Converter {
        data,
        sink: Sink::create(&args.output, data, plans.iter().map(|plan| &plan.attr))?,
        resolver: Resolver::new(data.features(), recorded),
        summary: Summary { left_out: left_out(data, &plans), ..Summary::default() },
        plans,
        keep_mmaps: args.keep_mmaps,
        chain: Vec::new(),
    };
    converter.run(progress)
}

/// The names of the fields that go.
fn left_out<B: Deref<Target = [u8]>>(data: &PerfData<B>, plans: &[Plan]) -> Vec<&'static str> {
    let all = |of: &dyn Fn(usize) -> u64| (0..plans.len()).map(of).fold(0, |all, bits| all | bits);
    let before = all(&|at| data.events().get(at).map_or(0, |event| event.attr.sample_type));
    let after = all(&|at| plans.get(at).map_or(0, |plan| plan.attr.sample_type));
    let gone = ADDRESSES.iter().filter(|(bit, _)| before & !after & bit != 0);
    gone.map(|(_, name)| *name).collect()
}

struct Converter<'a, 'p, B> {
    data: &'a PerfData<B>,
    plans: Vec<Plan>,
    sink: Sink<'p>,
    resolver: Resolver,
    summary: Summary,
    keep_mmaps: bool,
    /// A field or record in the making.
    chain: Vec<u8>,
}

impl<B: Deref<Target = [u8]>> Converter<'_, '_, B> {
    fn run(mut self, progress: &Progress) -> Result<Written> {
        let mut damage = None;
        let mut count = 0u32;
        let mut records = Sorted::new(self.data);
        while !self.sink.failed
            && let Some(record) = records.next()
        {
            match record.and_then(|record| self.record(&record).map(|()| record.time)) {
                Ok(time) => self.sink.done(time),
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) {
                progress.set(records.position());
            }
        }
        let hit = self.resolver.into_hit();
        let with_branches =
            self.plans.iter().any(|plan| plan.attr.has_sample(sample::BRANCH_STACK));
        let left_out: &[u32] = if with_branches { &[] } else { &[BRANCH_STACK_FEATURE] };
        let len = self.sink.finish(self.data, hit, left_out)?;
        Ok(Written { summary: self.summary, len, damage })
    }

    /// Appends what becomes of a record.
    fn record(&mut self, record: &Undecoded<'_>) -> Result<(), Malformed> {
        let raw = &record.raw;
        let plan = self.plans.get(record.event);
        let changes = plan.is_some_and(|plan| plan.changed);
        match raw.type_ {
            record_type::SAMPLE => {
                self.summary.samples += 1;
                if changes {
                    return self.sample(record);
                }
            }
            record_type::CALLCHAIN_DEFERRED
                if changes && raw.misc & misc::CALLCHAIN_BUILD_ID == 0 =>
            {
                return self.deferred(record);
            }
            record_type::MMAP | record_type::MMAP2 => {
                let decoded = self.data.decode(raw)?;
                self.resolver.record(&decoded);
                // The kernel's maps go with its addresses.
                let kernels = matches!(decoded, Record::Mmap(mmap) if mmap.pid == KERNEL_PID);
                if !kernels && !self.keep_mmaps {
                    return Ok(());
                }
            }
            record_type::COMM | record_type::FORK | record_type::EXIT => {
                self.resolver.record(&self.data.decode(raw)?);
            }
            type_ if HEADER_RECORDS.contains(&type_) => return Ok(()),
            record_type::AUXTRACE => return Err(Malformed::new(raw.offset, TRACE)),
            _ => {}
        }
        put_raw(&mut self.sink.buffer, raw);
        Ok(())
    }

    fn sample(&mut self, record: &Undecoded<'_>) -> Result<(), Malformed> {
        let (Some(plan), Some(event)) =
            (self.plans.get(record.event), self.data.events().get(record.event))
        else {
            return Ok(());
        };
        let raw = &record.raw;
        let mut parts = Parts::of(&event.format, raw)?;
        let pid = word(parts.get(sample::TID)).map_or(0, u32::from_ne_bytes);
        let mut entries = Entries::new(&mut self.resolver, &mut self.summary, pid, raw.cpumode());
        let bid;
        if plan.ip {
            let ip = word(parts.get(sample::IP)).map_or(0, u64::from_ne_bytes);
            bid = entries.frame(ip);
            parts.set(sample::BUILD_ID_OFFSET, bid.as_bytes());
        }
        if plan.chain {
            let room = RECORD_MAX.saturating_sub(parts.record_len(plan.attr.sample_type));
            let words = parts.get(sample::CALLCHAIN).get(8..).unwrap_or_default();
            entries.chain(addresses(words), room, &mut self.chain);
            parts.set(sample::CALLCHAIN_BUILD_ID_OFFSET, &self.chain);
        }
        if !parts.put(&mut self.sink.buffer, raw.misc, plan.attr.sample_type) {
            self.summary.too_long += 1;
        }
        Ok(())
    }

    /// A callchain that was deferred, in the form with addresses.
    fn deferred(&mut self, record: &Undecoded<'_>) -> Result<(), Malformed> {
        let raw = &record.raw;
        let Record::Deferred(deferred) = self.data.decode(raw)? else {
            return Ok(());
        };
        let DeferredFrames::Addresses(chain) = deferred.frames else {
            return Ok(());
        };
        // The event has the other form as well.
        if !self.plans.get(record.event).is_some_and(|plan| plan.chain) {
            return Ok(());
        }
        let sample_id = raw.body.get(16 + 8 * chain.len()..).unwrap_or_default();
        let room = RECORD_MAX.saturating_sub(HEADER_SIZE + 8 + sample_id.len());
        let pid = deferred.id.pid.unwrap_or(0);
        let mut entries = Entries::new(&mut self.resolver, &mut self.summary, pid, misc::USER);
        // It begins with a marker, which the other form does without.
        let chain = match chain.split_first() {
            Some((first, rest)) if first.get() == context::USER => rest,
            _ => chain,
        };
        entries.chain(chain, room, &mut self.chain);
        let cookie = deferred.cookie.to_ne_bytes();
        let body = [&cookie, self.chain.as_slice(), sample_id].concat();
        let misc = raw.misc | misc::CALLCHAIN_BUILD_ID;
        if !put_record(&mut self.sink.buffer, raw.type_, misc, &body) {
            self.summary.too_long += 1;
        }
        Ok(())
    }
}

/// Turns the addresses of one record into entries.
struct Entries<'a> {
    resolver: &'a mut Resolver,
    summary: &'a mut Summary,
    pid: u32,
    /// Addresses are the process's own; otherwise the kernel's, or a guest's.
    user: bool,
}

impl<'a> Entries<'a> {
    fn new(resolver: &'a mut Resolver, summary: &'a mut Summary, pid: u32, cpumode: u16) -> Self {
        Self { resolver, summary, pid, user: cpumode == misc::USER }
    }

    fn frame(&mut self, address: u64) -> Entry {
        if !self.user {
            self.summary.kernel += 1;
            return Entry::unresolved(Status::Kernel, address);
        }
        let entry = self.resolver.entry(self.pid, address);
        self.summary.count(entry.status());
        entry
    }

    /// Replaces `out` by a callchain in build-ID form, its length first, of at most `room` bytes.
    fn chain(&mut self, chain: &[U64], room: usize, out: &mut Vec<u8>) {
        let max = (room.saturating_sub(8) / Entry::SIZE).min(ENTRIES_MAX as usize);
        let kept = chain.get(..max).unwrap_or(chain);
        self.summary.clamped += (chain.len() - kept.len()) as u64;
        out.clear();
        out.extend_from_slice(&(kept.len() as u64).to_ne_bytes());
        let mut cookie = false;
        for value in kept.iter().map(|value| value.get()) {
            let entry = if std::mem::take(&mut cookie) {
                Entry::unresolved(Status::Deferred, value)
            } else if context::is_marker(value) {
                self.user = value == context::USER;
                cookie = value == context::USER_DEFERRED;
                Entry::unresolved(Status::Context, value)
            } else {
                self.frame(value)
            };
            out.extend_from_slice(entry.as_bytes());
        }
    }
}

/// The first bytes of a field.
fn word<const N: usize>(field: &[u8]) -> Option<[u8; N]> {
    field.first_chunk().copied()
}

/// A field as double words.
fn addresses(bytes: &[u8]) -> &[U64] {
    <[U64]>::ref_from_bytes(bytes).unwrap_or_default()
}
