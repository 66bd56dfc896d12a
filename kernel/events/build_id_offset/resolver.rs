// SPDX-License-Identifier: GPL-2.0

//! Resolving user addresses of the current task.
//!
//! What is asked first takes no lock and reads no file: the address space is looked at
//! [without its lock](kernel::mm::speculative), and the file's build ID is in the
//! [cache](crate::cache). What came of that is remembered for the next sample, for as long as the
//! address space and the file stay as they are. What is not known is left to the stack map's
//! reader, which takes the mmap lock if it is free and reads the file if that is in memory, and to
//! the next return to user mode, where the cache is filled.

use kernel::build_id;
use kernel::build_id::Frame;
use kernel::build_id::Vdso;
use kernel::mm::speculative::Content;
use kernel::mm::speculative::CurrentMm;
use kernel::mm::speculative::Extent;
use kernel::mm::speculative::Lookup;
use kernel::mm::speculative::Mapping;
use kernel::mm::speculative::Memo;
use kernel::mm::speculative::Open;
use kernel::perf_event::ContextBuffers;
use kernel::perf_event::OutputContext;
use kernel::prelude::*;
use kernel::sync::rcu;

use crate::cache::Answer;
use crate::count;
use crate::count::count;
use crate::count::Counter;
use crate::entry::Entry;
use crate::entry::Status;
use crate::fill;
use crate::fill::CACHE;

pub(crate) use crate::count::all as counters;
pub(crate) use crate::fill::init;
pub(crate) use crate::fill::mapped;

/// Mappings that are remembered: those of a program and the libraries that call each other.
const REMEMBERED: usize = 24;

/// Mappings of which nothing is known, in one callchain.
const UNKNOWN: usize = 4;

/// What becomes of addresses, remembered from one sample to the next.
static MEMOS: ContextBuffers<Memo<Outcome, REMEMBERED>> = ContextBuffers::new();

/// Makes what there is while there are events. May sleep.
pub(crate) fn start() -> Result {
    fill::start()?;
    MEMOS.alloc(1).inspect_err(|_| fill::stop())
}

/// Undoes [`start`]. May sleep.
pub(crate) fn stop() {
    MEMOS.free();
    fill::stop();
}

/// Makes entries of `addresses` in `frames`, without a page fault. Any context.
pub(crate) fn resolve_nofault(
    addresses: &[c_ulong],
    frames: &mut [Frame],
    context: OutputContext<'_>,
) {
    let rest = look(addresses, frames, context);

    if rest.left > 0 {
        read(frames, rest.left);
        Entry::replace_all(frames);
    }
    if rest.unknown_file {
        fill::request();
    }
}

/// Makes entries of `addresses` in `frames`, without waiting for the address space, and has files
/// read that are not in the cache. Returns whether any are left as the stack map's reader has left
/// them.
///
/// Task context, may sleep.
pub(crate) fn resolve_and_fill(addresses: &[c_ulong], frames: &mut [Frame]) -> bool {
    let mut rest = OutputContext::enter(|context| look(addresses, frames, context));

    if rest.unknown_file {
        fill::stack(addresses);
        rest = OutputContext::enter(|context| look(addresses, frames, context));
    }
    if rest.left > 0 {
        read(frames, rest.left);
    }
    rest.left > 0
}

/// Asks the stack map's reader for those of `frames` that are new.
#[cold]
fn read(frames: &mut [Frame], left: usize) {
    count::add(Counter::Left, left);
    build_id::resolve_nofault(frames);
}

/// Whether there is memory for what is remembered.
pub(crate) fn buffers_exist() -> bool {
    MEMOS.exist()
}

/// How many pages the cache has.
pub(crate) fn cache_len() -> usize {
    CACHE.len()
}

/// Makes entries in `frames` of those of `addresses` that it can without a lock, and new frames of
/// the others. Any context.
fn look(addresses: &[c_ulong], frames: &mut [Frame], context: OutputContext<'_>) -> Rest {
    let rcu = context.rcu();
    let mm = CurrentMm::get(rcu);
    // Not where this has interrupted itself: an event can be on what is done here.
    let mut claim = MEMOS.claim(context);
    let memo = claim.as_mut().and_then(|memos| memos.first_mut());

    let mut pass = Pass {
        rcu,
        mm: mm.as_ref(),
        memo: memo.and_then(|memo| memo.open(mm.as_ref()?, CACHE.stamp())),
        unknown: [None; UNKNOWN],
        next_unknown: 0,
        rest: Rest::default(),
    };
    pass.run(Batch::new(addresses, frames));
    pass.rest
}

/// What is left to be done.
#[derive(Clone, Copy, Default)]
struct Rest {
    /// New frames.
    left: usize,
    /// One is in a file that could be in the cache, and is not.
    unknown_file: bool,
}

/// Addresses, and the frames that are to be made of them.
struct Batch<'a> {
    /// No more than there are frames.
    addresses: &'a [c_ulong],
    frames: &'a mut [Frame],
    /// How many are made.
    done: usize,
}

impl<'a> Batch<'a> {
    fn new(addresses: &'a [c_ulong], frames: &'a mut [Frame]) -> Self {
        Self {
            addresses: addresses.get(..frames.len()).unwrap_or(addresses),
            frames,
            done: 0,
        }
    }

    /// The next address.
    #[inline]
    fn next(&self) -> Option<u64> {
        self.addresses.get(self.done).map(|address| *address as u64)
    }

    /// Has `make` make frames of the next addresses, as long as they are in `extent`, by their
    /// distance from its start. Returns how many there were.
    #[inline]
    fn make(&mut self, extent: Extent, make: impl Fn(&mut Frame, u64)) -> usize {
        let Extent { start, size } = extent;
        let frames = self.frames.get_mut(self.done..).unwrap_or_default();
        let addresses = self.addresses.get(self.done..).unwrap_or_default();
        let mut same: usize = 0;

        for (frame, address) in frames.iter_mut().zip(addresses) {
            let inside = (*address as u64).wrapping_sub(start);
            if inside >= size {
                break;
            }
            make(frame, inside);
            same = same.wrapping_add(1);
        }
        self.done = self.done.wrapping_add(same);
        same
    }
}

/// One look at the address space for a number of addresses.
struct Pass<'a> {
    rcu: &'a rcu::Guard,
    mm: Option<&'a CurrentMm<'a>>,
    memo: Option<Open<'a, Outcome, REMEMBERED>>,
    unknown: [Option<Extent>; UNKNOWN],
    next_unknown: usize,
    rest: Rest,
}

/// What becomes of an address.
#[derive(Clone, Copy, Zeroable)]
struct Outcome {
    /// The entry, but for the offset.
    entry: Entry,
    /// What is added to the distance from the start of the mapping: for an offset that of the start
    /// in what is mapped, and where the entry is to have the address, the start itself.
    base: u64,
    /// The [`Counter`], as a number, of which 0 is one.
    counter: usize,
}

impl Pass<'_> {
    #[inline]
    fn run(&mut self, mut batch: Batch<'_>) {
        while let Some(address) = batch.next() {
            self.make(address, &mut batch);
        }
    }

    /// Makes frames of the next addresses, of which `address` is the first, as long as they are in
    /// the same mapping.
    #[inline]
    fn make(&mut self, address: u64, batch: &mut Batch<'_>) {
        if let Some((extent, outcome)) = self.memo.as_mut().and_then(|memo| memo.find(address)) {
            return outcome.make(extent, batch);
        }
        let mut unknown = self.unknown.iter().map_while(Option::as_ref);
        if let Some(extent) = unknown.find(|extent| extent.contains(address)) {
            return self.leave(*extent, batch);
        }
        self.look_up(address, batch);
    }

    /// Leaves the next addresses, as long as they are in `extent`, to the stack map's reader.
    fn leave(&mut self, extent: Extent, batch: &mut Batch<'_>) {
        let Extent { start, .. } = extent;
        let same = batch.make(extent, |frame, inside| {
            frame.renew(inside.wrapping_add(start))
        });

        self.rest.left = self.rest.left.wrapping_add(same);
    }

    /// Looks up what `address` is in. As [`make`](Self::make).
    fn look_up(&mut self, address: u64, batch: &mut Batch<'_>) {
        let one = Extent {
            start: address,
            size: 1,
        };
        let Some(mm) = self.mm else {
            return Outcome::unresolved(Status::NoMm, address).make(one, batch);
        };
        let mapping = match mm.find(address) {
            Lookup::Mapping(mapping) => mapping,
            Lookup::Nothing => {
                return Outcome::unresolved(Status::Anon, address).make(one, batch);
            }
            Lookup::Busy => {
                count(Counter::Busy);
                return self.leave(one, batch);
            }
        };

        let extent = mapping.extent();
        if let Some(outcome) = self.outcome(&mapping) {
            if let Some(memo) = &mut self.memo {
                memo.remember(&mapping, outcome);
            }
            return outcome.make(extent, batch);
        }
        if let Some(slot) = self.unknown.get_mut(self.next_unknown) {
            *slot = Some(extent);
        }
        self.next_unknown = self.next_unknown.wrapping_add(1) % UNKNOWN;
        self.leave(extent, batch);
    }

    /// What becomes of addresses in a mapping. [`None`] if another has to be asked.
    #[inline]
    fn outcome(&mut self, mapping: &Mapping) -> Option<Outcome> {
        let start = mapping.extent().start;
        let resolved = |id, counter: Counter| Outcome {
            entry: Entry::resolved(&id, 0),
            base: mapping.offset_of(start),
            counter: counter as usize,
        };

        let version = match mapping.content() {
            Content::File(version) => version,
            Content::Memory => return Some(Outcome::unresolved(Status::Anon, start)),
            Content::Vdso => {
                let id = Vdso::current().and_then(|vdso| vdso.build_id());
                return Some(match id {
                    Some(id) => resolved(id, Counter::Vdso),
                    None => Outcome::unresolved(Status::Anon, start),
                });
            }
        };

        if !version.is_stable() {
            count(Counter::Unstable);
            self.rest.unknown_file |= version.is_unnumbered();
            return None;
        }
        match CACHE.get(&version, self.rcu) {
            Some(Answer::Id(id)) => Some(resolved(id, Counter::Hit)),
            Some(Answer::NoId) => Some(Outcome::unresolved(Status::NoBuildId, start)),
            None => {
                count(Counter::Miss);
                self.rest.unknown_file |= fill::is_worth_reading(&version, self.rcu);
                None
            }
        }
    }
}

impl Outcome {
    /// Addresses from `start` on are not resolved.
    fn unresolved(status: Status, start: u64) -> Self {
        Self {
            entry: Entry::unresolved(status, 0),
            base: start,
            counter: match status {
                Status::NoBuildId => Counter::NegativeHit,
                _ => Counter::NoFile,
            } as usize,
        }
    }

    /// Makes entries of the next addresses, as long as they are in `extent`.
    #[inline]
    fn make(&self, extent: Extent, batch: &mut Batch<'_>) {
        let base = self.base;
        let entry = self.entry.words();
        let same = batch.make(extent, |frame, inside| {
            Entry::of_words(entry, inside.wrapping_add(base)).replace(frame);
        });

        count::add_to(self.counter, same);
    }
}
