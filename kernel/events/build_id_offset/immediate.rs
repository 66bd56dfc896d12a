// SPDX-License-Identifier: GPL-2.0

//! Resolving and writing while the sample is taken.
//!
//! Everything here runs in any context.

use kernel::build_id::Frame;
use kernel::perf_event;
use kernel::perf_event::Callchain;
use kernel::perf_event::OutputHandle;
use kernel::perf_event::PerfEvent;
use kernel::perf_event::SampleData;
use kernel::perf_event::SampleRegs;
use kernel::perf_event::SampleType;

use crate::account::BUFFERS;
use crate::chain;
use crate::chain::Kind;
use crate::chain::Part;
use crate::deferred;
use crate::entry::Entry;
use crate::entry::Status;
use crate::resolver;
use crate::room::Pending;
use crate::room::Room;

/// The sample types that the new ones among `fields` are made from.
pub(crate) fn needs(fields: SampleType) -> SampleType {
    let made_from = |field, what| {
        if fields.contains(field) {
            what
        } else {
            SampleType::NONE
        }
    };

    made_from(SampleType::BUILD_ID_OFFSET, SampleType::IP)
        | made_from(SampleType::CALLCHAIN_BUILD_ID_OFFSET, SampleType::CALLCHAIN)
}

/// With debug assertions, what a frame has that nothing was written to: the tests find it in a
/// record.
const POISON: [u8; size_of::<Frame>()] = [0x6b; size_of::<Frame>()];

/// The fields that are sized after `PERF_SAMPLE_STACK_USER` has taken what it wants.
fn pending_after_stack(data: &SampleData, event: &PerfEvent) -> Pending {
    let wanted = |field| event.sample_type().contains(field) && !data.flags().contains(field);

    Pending {
        stack_user: false,
        regs_intr: wanted(SampleType::REGS_INTR).then(|| event.regs_intr_count()),
        aux: wanted(SampleType::AUX),
    }
}

/// The size of a record so far with what the fields after `PERF_SAMPLE_STACK_USER` need, if it is
/// one with the new fields.
pub(crate) fn header_size_with_pending(data: &SampleData, event: &PerfEvent, size: u16) -> u16 {
    let fields = event.sample_type();
    if !fields.contains(SampleType::BUILD_ID_OFFSET)
        && !fields.contains(SampleType::CALLCHAIN_BUILD_ID_OFFSET)
    {
        return size;
    }
    let pending = pending_after_stack(data, event).size();

    size.saturating_add(u16::try_from(pending).unwrap_or(u16::MAX))
}

/// Makes room in the record for the new fields, and requests what is deferred.
pub(crate) fn prepare(data: &mut SampleData, event: &PerfEvent, regs: &SampleRegs) {
    let fields = event.sample_type();
    let ip = fields.contains(SampleType::BUILD_ID_OFFSET);
    let callchain = fields.contains(SampleType::CALLCHAIN_BUILD_ID_OFFSET);
    let pending = Pending {
        stack_user: fields.contains(SampleType::STACK_USER)
            && !data.flags().contains(SampleType::STACK_USER),
        ..pending_after_stack(data, event)
    };

    let user = regs.are_of_user_mode(event);
    data.set_is_user(user);
    // Only then: what a user part has on the stack can look like anything.
    let deferred = event.defer_callchain()
        && (data.callchain().is_some_and(|chain| is_deferred(&chain))
            || (ip && user && may_defer(event)));
    data.set_cookie(if deferred { deferred::request() } else { None });

    let find = |data: &SampleData| {
        let len = callchain.then(|| data.callchain().map_or(0, |chain| chain.len()));
        Room::find(data.size(event), pending.size(), ip, len)
    };

    let mut room = find(data);
    if room.excess > 0 && fields.contains(SampleType::CALLCHAIN) {
        // The old callchain alone is too long for the record. It is ours to shorten.
        data.trim_callchain(u64::from(room.excess.div_ceil(8)));
        room = find(data);
    }
    if room.excess > 0 {
        // Better a record without the new fields than one whose size has wrapped.
        return;
    }

    data.grow(room.size);
    if ip {
        data.set_flags(SampleType::BUILD_ID_OFFSET);
    }
    if callchain {
        data.set_flags(SampleType::CALLCHAIN_BUILD_ID_OFFSET);
        data.set_build_id_count(room.count);
    }
}

/// Whether the current task has a user part that can be deferred: what `perf_callchain()` goes by.
fn may_defer(event: &PerfEvent) -> bool {
    !event.is_cross_task() && perf_event::current_is_user_task()
}

/// A callchain, cut to what the record has room for.
///
/// What is cut is at the outer end, but before the cookie of a deferred user part: without that,
/// the two could not be put together again.
struct Kept<'a> {
    chain: Callchain<'a>,
    count: usize,
    /// How many entries are cut before the last two.
    cut: usize,
}

impl<'a> Kept<'a> {
    fn new(chain: Callchain<'a>, count: usize, deferred: bool) -> Self {
        let cut = if deferred && count >= 2 && is_deferred(&chain) {
            chain.len().saturating_sub(count as u64) as usize
        } else {
            0
        };
        Self { chain, count, cut }
    }

    /// The entry at `at`; 0 if it is gone.
    fn get(&self, at: usize) -> u64 {
        let in_tail = self.cut != 0 && at.saturating_add(2) >= self.count;
        let at = at.saturating_add(if in_tail { self.cut } else { 0 });

        self.chain.get(at).unwrap_or(0)
    }
}

/// Whether the user part of a callchain is deferred.
fn is_deferred(chain: &Callchain<'_>) -> bool {
    chain
        .len()
        .checked_sub(2)
        .and_then(|at| chain.get(usize::try_from(at).ok()?))
        .is_some_and(|value| value == chain::CONTEXT_USER_DEFERRED)
}

/// The sample's instruction pointer, on its way to an entry.
#[derive(Clone, Copy)]
enum Ip {
    /// Not asked for.
    None,
    /// To be resolved.
    User(u64),
    /// Known without.
    Known(Entry),
}

impl Ip {
    fn of(data: &SampleData, event: &PerfEvent) -> Self {
        if !data.flags().contains(SampleType::BUILD_ID_OFFSET) {
            return Self::None;
        }
        let Some(ip) = data.ip() else {
            return Self::Known(Entry::unresolved(Status::Busy, 0));
        };
        if !data.is_user() {
            Self::Known(Entry::unresolved(Status::Kernel, ip))
        } else if event.is_cross_task() {
            // As for callchains, nothing is told of a task that the event does not belong to.
            Self::Known(Entry::unresolved(Status::Busy, ip))
        } else if let Some(cookie) = data.cookie() {
            Self::Known(Entry::unresolved(Status::Deferred, cookie))
        } else {
            Self::User(ip)
        }
    }
}

/// Resolves and writes the new fields, as long as [`prepare`] has said.
pub(crate) fn output(handle: &mut OutputHandle, data: &SampleData, event: &PerfEvent) {
    let ip = Ip::of(data, event);

    if !data.flags().contains(SampleType::CALLCHAIN_BUILD_ID_OFFSET) {
        put_ip(handle, ip);
        return;
    }

    let count = usize::from(data.build_id_count());
    let context = handle.context();
    let mut claim = BUFFERS.claim(context);
    if let (true, Some(frames)) = (cfg!(debug_assertions), &mut claim) {
        frames.fill(zerocopy::transmute!(POISON));
    }
    let frames = claim.as_mut().and_then(|frames| frames.get_mut(..count));

    let deferred = data.cookie().is_some();
    let chain = data
        .callchain()
        .map(|chain| Kept::new(chain, count, deferred));

    match (frames, chain) {
        (Some(frames), Some(chain)) => put_resolved(handle, ip, &chain, frames),
        (_, chain) => {
            put_ip(handle, ip);
            put_unresolved(handle, chain.as_ref(), count);
        }
    }
}

/// Resolves the instruction pointer alone, and writes it.
fn put_ip(handle: &mut OutputHandle, ip: Ip) {
    match ip {
        Ip::None => (),
        Ip::Known(entry) => handle.put(&entry),
        Ip::User(address) => {
            let mut frame = Frame::new(address);

            resolver::resolve_nofault(core::slice::from_mut(&mut frame), handle.context());
            handle.put(&frame);
        }
    }
}

/// Resolves the instruction pointer and the callchain in `frames`, and writes both.
///
/// Once something is resolved, the callchain is not looked at again: an event on what the resolver
/// does has had its own captured to the same buffer, and it can be one of the kernel.
fn put_resolved(handle: &mut OutputHandle, ip: Ip, chain: &Kept<'_>, frames: &mut [Frame]) {
    let user = fill(chain, frames);
    let len = frames.len();

    // One call for all: the instruction pointer borrows the place of the marker that the user part
    // begins with.
    match (ip, frames.get_mut(user.saturating_sub(1)..)) {
        (Ip::User(address), Some(batch @ [_, _, ..])) if user < len => {
            if let [lent, ..] = batch {
                lent.renew(address);
            }
            resolver::resolve_nofault(batch, handle.context());
            if let [lent, ..] = batch {
                handle.put(lent);
                Entry::unresolved(Status::Context, chain::CONTEXT_USER).replace(lent);
            }
        }
        _ => {
            put_ip(handle, ip);
            if let Some(batch @ [_, ..]) = frames.get_mut(user..) {
                resolver::resolve_nofault(batch, handle.context());
            }
        }
    }

    handle.put(&(len as u64));
    handle.put(frames);
}

/// Fills `frames` with what a callchain has, user addresses as such and everything else as the
/// entry that it becomes. Returns where the user addresses begin.
fn fill(chain: &Kept<'_>, frames: &mut [Frame]) -> usize {
    let mut part = Part::FIRST;
    let len = frames.len();
    let mut user = len;

    for (frame, at) in frames.iter_mut().zip(0..len) {
        let value = chain.get(at);
        match part.classify(value) {
            // All the others are, too.
            Kind::User => {
                user = at;
                break;
            }
            kind => known(kind, value).replace(frame),
        }
    }
    fill_user(
        chain.chain.values_from(user),
        frames.get_mut(user..).unwrap_or_default(),
    );
    user
}

/// Fills `frames` with user addresses, and with 0 where there are not enough.
#[inline]
fn fill_user(addresses: impl Iterator<Item = u64>, frames: &mut [Frame]) {
    let mut filled: usize = 0;

    for (frame, address) in frames.iter_mut().zip(addresses) {
        frame.renew(address);
        filled = filled.wrapping_add(1);
    }
    for frame in frames.get_mut(filled..).unwrap_or_default() {
        frame.renew(0);
    }
}

/// The entry of what is not resolved.
fn known(kind: Kind, value: u64) -> Entry {
    let status = match kind {
        Kind::Marker => Status::Context,
        Kind::Kernel => Status::Kernel,
        Kind::Cookie => Status::Deferred,
        Kind::User => Status::Busy,
    };
    Entry::unresolved(status, value)
}

/// Writes a callchain as it is: something at the same level uses the buffer already.
fn put_unresolved(handle: &mut OutputHandle, chain: Option<&Kept<'_>>, count: usize) {
    let mut part = Part::FIRST;

    handle.put(&(count as u64));
    for at in 0..count {
        let value = chain.map_or(0, |chain| chain.get(at));
        handle.put(&known(part.classify(value), value));
    }
}
