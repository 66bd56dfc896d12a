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
use crate::deferred;
use crate::entry::Entry;
use crate::entry::Status;
use crate::fill;
use crate::fill::CACHE;

pub(crate) use crate::count::all as counters;
pub(crate) use crate::fill::init;
pub(crate) use crate::fill::mapped;
pub(crate) use crate::fill::stack as read_files;

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

/// Makes entries of `frames`, which are new, without a page fault. Any context.
pub(crate) fn resolve_nofault(frames: &mut [Frame], context: OutputContext<'_>) {
    let rest = look(frames, context);

    if rest.left > 0 {
        read(frames, rest.left);
        Entry::replace_all(frames);
    }
    if rest.unknown_file {
        deferred::request_files();
    }
}

/// Makes entries of `frames`, which are new and were made of `addresses`, without waiting for the
/// address space, and has files read that are not in the cache. What is then left to the stack
/// map's reader stays as that has left it.
///
/// Task context, may sleep.
pub(crate) fn resolve_and_fill(frames: &mut [Frame], addresses: &[c_ulong]) {
    let mut rest = OutputContext::enter(|context| look(frames, context));

    if rest.unknown_file {
        read_files(addresses);
        for (frame, address) in frames.iter_mut().zip(addresses) {
            frame.renew(*address as u64);
        }
        rest = OutputContext::enter(|context| look(frames, context));
    }
    if rest.left > 0 {
        read(frames, rest.left);
    }
}

/// Asks the stack map's reader for those of `frames` that are still new.
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

/// Makes entries of what of `frames`, which are new, it can without a lock. Any context.
fn look(frames: &mut [Frame], context: OutputContext<'_>) -> Rest {
    let rcu = rcu::read_lock();
    let mm = CurrentMm::get(&rcu);
    // Not where this has interrupted itself: an event can be on what is done here.
    let mut claim = MEMOS.claim(context);
    let memo = claim.as_mut().and_then(|memos| memos.first_mut());

    let mut pass = Pass {
        rcu: &rcu,
        mm: mm.as_ref(),
        memo: memo.and_then(|memo| memo.open(mm.as_ref()?, CACHE.stamp())),
        unknown: [None; UNKNOWN],
        next_unknown: 0,
        rest: Rest::default(),
    };
    pass.run(frames);
    pass.rest
}

/// What is left to be done.
#[derive(Clone, Copy, Default)]
struct Rest {
    /// Frames that are still new.
    left: usize,
    /// One is in a file that could be in the cache, and is not.
    unknown_file: bool,
}

/// One look at the address space for a number of frames.
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
    fn run(&mut self, mut frames: &mut [Frame]) {
        while let [first, ..] = frames {
            let same = self.tell(first.value(), frames);
            frames = frames.get_mut(same..).unwrap_or_default();
        }
    }

    /// Tells the first of `frames`, which has `address`, what has become of it, and those after it
    /// that are in the same mapping. Returns how many there are.
    #[inline]
    fn tell(&mut self, address: u64, frames: &mut [Frame]) -> usize {
        if let Some((extent, outcome)) = self.memo.as_mut().and_then(|memo| memo.find(address)) {
            return outcome.tell(extent, frames);
        }
        let mut unknown = self.unknown.iter().map_while(Option::as_ref);
        if let Some(extent) = unknown.find(|extent| extent.contains(address)) {
            return self.leave(*extent, frames);
        }
        self.look_up(address, frames)
    }

    /// Leaves the first of `frames`, as long as they are in `extent`, to the stack map's reader.
    fn leave(&mut self, extent: Extent, frames: &mut [Frame]) -> usize {
        let inside = |frame: &&Frame| extent.contains(frame.value());
        let same = frames.iter().take_while(inside).count();

        self.rest.left = self.rest.left.wrapping_add(same);
        same
    }

    /// Looks up what `address` is in. As [`tell`](Self::tell).
    fn look_up(&mut self, address: u64, frames: &mut [Frame]) -> usize {
        let Some(mm) = self.mm else {
            return Outcome::unresolved(Status::NoMm, 0).tell(EVERYTHING, frames);
        };
        let one = Extent {
            start: address,
            size: 1,
        };
        let mapping = match mm.find(address) {
            Lookup::Mapping(mapping) => mapping,
            Lookup::Nothing => {
                return Outcome::unresolved(Status::Anon, address).tell(one, frames);
            }
            Lookup::Busy => {
                count(Counter::Busy);
                return self.leave(one, frames);
            }
        };

        let extent = mapping.extent();
        if let Some(outcome) = self.outcome(&mapping) {
            if let Some(memo) = &mut self.memo {
                memo.remember(&mapping, outcome);
            }
            return outcome.tell(extent, frames);
        }
        if let Some(slot) = self.unknown.get_mut(self.next_unknown) {
            *slot = Some(extent);
        }
        self.next_unknown = self.next_unknown.wrapping_add(1) % UNKNOWN;
        self.leave(extent, frames)
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

/// All addresses.
const EVERYTHING: Extent = Extent {
    start: 0,
    size: u64::MAX,
};

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

    /// Makes entries of the first of `frames`, as long as they are in `extent`. Returns how many
    /// are.
    #[inline]
    fn tell(&self, extent: Extent, frames: &mut [Frame]) -> usize {
        let Extent { start, size } = extent;
        let base = self.base;
        let entry = self.entry.words();
        let mut same: usize = 0;

        for frame in frames {
            let inside = frame.value().wrapping_sub(start);
            if inside >= size {
                break;
            }
            Entry::of_words(entry, inside.wrapping_add(base)).replace(frame);
            same = same.wrapping_add(1);
        }
        count::add_to(self.counter, same);
        same
    }
}
