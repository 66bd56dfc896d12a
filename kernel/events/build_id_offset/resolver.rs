// SPDX-License-Identifier: GPL-2.0

//! Resolving user addresses of the current task.
//!
//! What is asked first takes no lock and reads no file: the address space is looked at
//! [without its lock](kernel::mm::speculative), and the file's build ID is in the
//! [cache](crate::cache). What is not there is left to the stack map's reader, which takes the
//! mmap lock if it is free and reads the file if that is in memory, and to the next return to user
//! mode, where the cache is filled.

use kernel::build_id;
use kernel::build_id::Frame;
use kernel::build_id::Vdso;
use kernel::mm::speculative::Content;
use kernel::mm::speculative::CurrentMm;
use kernel::mm::speculative::Lookup;
use kernel::mm::speculative::Mapping;
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
pub(crate) use crate::fill::start;
pub(crate) use crate::fill::stop;

/// Mappings that are remembered while a callchain is resolved: those of a program and the
/// libraries that call each other.
const RECENT: usize = 8;

/// Makes entries of `frames`, which are new, without a page fault. Any context.
pub(crate) fn resolve_nofault(frames: &mut [Frame]) {
    let rest = look(frames);

    if rest.left > 0 {
        read(frames, rest.left);
        Entry::replace_all(frames);
    }
    if rest.unknown_file {
        fill::request();
    }
}

/// Makes entries of `frames`, which are new and were made of `addresses`, without waiting for the
/// address space, and has files read that are not in the cache. What is then left to the stack
/// map's reader stays as that has left it.
///
/// Task context, may sleep.
pub(crate) fn resolve_and_fill(frames: &mut [Frame], addresses: &[c_ulong]) {
    let mut rest = look(frames);

    if rest.unknown_file {
        fill::stack(addresses);
        for (frame, address) in frames.iter_mut().zip(addresses) {
            frame.renew(*address as u64);
        }
        rest = look(frames);
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

/// How many pages the cache has.
pub(crate) fn cache_len() -> usize {
    CACHE.len()
}

/// Makes entries of what of `frames`, which are new, it can without a lock. Any context.
fn look(frames: &mut [Frame]) -> Rest {
    let rcu = rcu::read_lock();
    let mut pass = Pass::new(&rcu);

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
    mm: Option<CurrentMm<'a>>,
    recent: [Option<Range>; RECENT],
    /// The place of the next in `recent`.
    next: usize,
    rest: Rest,
}

/// Addresses of which the same is known.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    size: u64,
    /// What is added to an address's distance from `start`: for an offset that of `start` in what
    /// is mapped, and where the entry is to have the address, `start` itself.
    base: u64,
    known: Known,
}

/// What becomes of a frame, but for the offset.
#[derive(Clone, Copy)]
enum Known {
    Entry(Entry, Counter),
    /// It stays new: another has to be asked.
    Nothing,
}

impl<'a> Pass<'a> {
    #[inline]
    fn new(rcu: &'a rcu::Guard) -> Self {
        Self {
            rcu,
            mm: CurrentMm::get(rcu),
            recent: [None; RECENT],
            next: 0,
            rest: Rest::default(),
        }
    }

    #[inline]
    fn run(&mut self, mut frames: &mut [Frame]) {
        while let [first, ..] = frames {
            let address = first.value();
            let mut recent = self.recent.iter().map_while(Option::as_ref);
            let same = match recent.find(|range| range.contains(address)) {
                Some(range) => range.tell(frames, &mut self.rest),
                None => self.look_up(address).tell(frames, &mut self.rest),
            };
            frames = frames.get_mut(same..).unwrap_or_default();
        }
    }

    /// Looks up what `address` is in.
    fn look_up(&mut self, address: u64) -> Range {
        let Some(mm) = &self.mm else {
            return Range::everything(Known::unresolved(Status::NoMm, Counter::NoFile));
        };
        let mapping = match mm.find(address) {
            Lookup::Mapping(mapping) => mapping,
            Lookup::Nothing => {
                return Range::one(address, Known::unresolved(Status::Anon, Counter::NoFile));
            }
            Lookup::Busy => {
                count(Counter::Busy);
                return Range::one(address, Known::Nothing);
            }
        };

        let range = self.range_of(&mapping);
        if let Some(slot) = self.recent.get_mut(self.next) {
            *slot = Some(range);
        }
        self.next = self.next.wrapping_add(1) % RECENT;
        range
    }

    /// What is known of what is mapped.
    #[inline]
    fn range_of(&mut self, mapping: &Mapping) -> Range {
        let in_file = |known| Range::of(mapping, mapping.offset_of(mapping.start()), known);
        let in_memory = |known| Range::of(mapping, mapping.start(), known);

        let version = match mapping.content() {
            Content::File(version) => version,
            Content::Vdso => {
                return match Vdso::current().and_then(|vdso| vdso.build_id()) {
                    Some(id) => in_file(Known::Entry(Entry::resolved(&id, 0), Counter::Vdso)),
                    None => in_memory(Known::unresolved(Status::Anon, Counter::NoFile)),
                };
            }
            Content::Memory => {
                return in_memory(Known::unresolved(Status::Anon, Counter::NoFile));
            }
        };

        if !version.is_stable() {
            count(Counter::Unstable);
            self.rest.unknown_file |= version.is_unnumbered();
            return in_memory(Known::Nothing);
        }
        match CACHE.get(&version, self.rcu) {
            Some(Answer::Id(id)) => {
                in_file(Known::Entry(Entry::resolved(&id, 0), Counter::Hit))
            }
            Some(Answer::NoId) => in_memory(Known::unresolved(
                Status::NoBuildId,
                Counter::NegativeHit,
            )),
            None => {
                count(Counter::Miss);
                self.rest.unknown_file |= version.is_settled();
                in_memory(Known::Nothing)
            }
        }
    }
}

impl Known {
    fn unresolved(status: Status, counter: Counter) -> Self {
        Self::Entry(Entry::unresolved(status, 0), counter)
    }
}

impl Range {
    #[inline]
    fn of(mapping: &Mapping, base: u64, known: Known) -> Self {
        let start = mapping.start();

        Self {
            start,
            size: mapping.end().wrapping_sub(start),
            base,
            known,
        }
    }

    fn one(address: u64, known: Known) -> Self {
        Self {
            start: address,
            size: 1,
            base: address,
            known,
        }
    }

    fn everything(known: Known) -> Self {
        Self {
            start: 0,
            size: u64::MAX,
            base: 0,
            known,
        }
    }

    #[inline]
    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }

    /// Tells the first of `frames` what became of them, as long as they are in this range. Returns
    /// how many are.
    #[inline]
    fn tell(&self, frames: &mut [Frame], rest: &mut Rest) -> usize {
        let Known::Entry(entry, counter) = self.known else {
            let inside = |frame: &&Frame| self.contains(frame.value());
            let same = frames.iter().take_while(inside).count();

            rest.left = rest.left.wrapping_add(same);
            return same;
        };

        // In registers, all of it: this is where the time goes.
        let (start, size, base) = (self.start, self.size, self.base);
        let [first, second, third] = entry.build_id();
        let mut same: usize = 0;

        for frame in frames {
            let inside = frame.value().wrapping_sub(start);
            if inside >= size {
                break;
            }
            Entry::with_build_id([first, second, third], inside.wrapping_add(base)).replace(frame);
            same = same.wrapping_add(1);
        }
        count::add(counter, same);
        same
    }
}
