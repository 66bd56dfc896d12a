// SPDX-License-Identifier: GPL-2.0

//! Resolving and writing while the sample is taken.
//!
//! Everything here runs in any context.

use kernel::build_id::Frame;
use kernel::perf_event;
use kernel::perf_event::Callchain;
use kernel::perf_event::OutputContext;
use kernel::perf_event::OutputHandle;
use kernel::perf_event::PerfEvent;
use kernel::perf_event::SampleData;
use kernel::perf_event::SampleRegs;
use kernel::perf_event::SampleType;
use kernel::prelude::*;

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
    if !fields.intersects(SampleType::ANY_BUILD_ID_OFFSET) {
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

    let user = ip && regs.are_of_user_mode(event);
    data.set_is_user(user);
    // Only then: what a user part has on the stack can look like anything.
    let deferred = event.defer_callchain()
        && (data.callchain().is_some_and(|chain| is_deferred(&chain))
            || (user && may_defer(event)));
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
    #[inline]
    fn get(&self, at: usize) -> u64 {
        let cut = if self.cut != 0 && at.saturating_add(2) >= self.count {
            self.cut
        } else {
            0
        };

        self.chain.get(at.wrapping_add(cut)).unwrap_or(0)
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
    let context = handle.context();

    if !data.flags().contains(SampleType::CALLCHAIN_BUILD_ID_OFFSET) {
        put_ip(handle, context, ip);
        return;
    }

    let count = usize::from(data.build_id_count());
    let mut claim = BUFFERS.claim(context);
    if let (true, Some(frames)) = (cfg!(debug_assertions), &mut claim) {
        frames.fill(zerocopy::transmute!(POISON));
    }
    let buffer = claim
        .as_mut()
        .and_then(|buffer| split_buffer(buffer, count));

    let deferred = data.cookie().is_some();
    let chain = data
        .callchain()
        .map(|chain| Kept::new(chain, count, deferred));

    match (buffer, chain) {
        (Some((fields, addresses)), Some(chain)) => {
            put_resolved(handle, context, ip, &chain, fields, addresses);
        }
        (_, chain) => {
            put_ip(handle, context, ip);
            put_unresolved(handle, chain.as_ref(), count);
        }
    }
}

/// The parts of one of the [`BUFFERS`] for `count` entries: a frame that ends with their number,
/// and the frames; and their addresses.
#[inline]
fn split_buffer(buffer: &mut [Frame], count: usize) -> Option<(&mut [Frame], &mut [c_ulong])> {
    let (fields, rest) = buffer.split_at_mut_checked(count.wrapping_add(1))?;
    let addresses = <[c_ulong]>::mut_from_bytes(rest.as_mut_bytes()).ok()?;

    Some((fields, addresses.get_mut(..count)?))
}

/// Resolves the instruction pointer alone, and writes it.
fn put_ip(handle: &mut OutputHandle, context: OutputContext<'_>, ip: Ip) {
    match ip {
        Ip::None => (),
        Ip::Known(entry) => handle.put(&entry),
        Ip::User(address) => {
            let mut frame = Frame::new(address);

            resolver::resolve_nofault(
                &[address as c_ulong],
                core::slice::from_mut(&mut frame),
                context,
            );
            handle.put(&frame);
        }
    }
}

/// Resolves the instruction pointer and the callchain in the parts of a [buffer](split_buffer), and
/// writes both.
///
/// Once something is resolved, the callchain is not looked at again: an event on what the resolver
/// does has had its own captured to the same buffer, and it can be one of the kernel. So its user
/// addresses are copied to `addresses` before.
fn put_resolved(
    handle: &mut OutputHandle,
    context: OutputContext<'_>,
    ip: Ip,
    chain: &Kept<'_>,
    fields: &mut [Frame],
    addresses: &mut [c_ulong],
) {
    let Some((number, frames)) = fields.split_first_mut() else {
        return;
    };
    let len = frames.len();
    number.renew(len as u64);
    let user = fill(chain, frames);

    // One call for all: the instruction pointer borrows the place of the marker that the user part
    // begins with.
    let lent = match ip {
        Ip::User(address) if 0 < user && user < len => Some(address),
        _ => {
            put_ip(handle, context, ip);
            None
        }
    };
    let first = user.wrapping_sub(usize::from(lent.is_some()));
    let batch = frames.get_mut(first..).unwrap_or_default();
    let addresses = addresses.get_mut(..batch.len()).unwrap_or_default();

    if user < len {
        copy_user(chain, user, lent, addresses);
        resolver::resolve_nofault(addresses, batch, context);
    }
    if let (Some(_), [frame, ..]) = (lent, batch) {
        handle.put(frame);
        Entry::unresolved(Status::Context, chain::CONTEXT_USER).replace(frame);
    }

    if let Some(bytes) = fields.as_bytes().get(Frame::VALUE_OFFSET..) {
        handle.put(bytes);
    }
}

/// Fills `frames` with what a callchain has before its user addresses. Returns where these begin.
fn fill(chain: &Kept<'_>, frames: &mut [Frame]) -> usize {
    let mut part = Part::FIRST;
    let len = frames.len();

    for (frame, at) in frames.iter_mut().zip(0..len) {
        let value = chain.get(at);
        match part.classify(value) {
            // All the others are, too.
            Kind::User => return at,
            kind => known(kind, value).replace(frame),
        }
    }
    len
}

/// Fills `addresses` with one, if there is one, and then with the user addresses that a callchain
/// has from `user` on, and with 0 where there are not enough.
fn copy_user(chain: &Kept<'_>, user: usize, one: Option<u64>, addresses: &mut [c_ulong]) {
    let to = match (one, addresses) {
        (Some(address), [first, rest @ ..]) => {
            *first = address as c_ulong;
            rest
        }
        (_, all) => all,
    };
    let copied = chain.chain.copy_from(user, to);

    for address in to.get_mut(copied..).unwrap_or_default() {
        *address = 0;
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
