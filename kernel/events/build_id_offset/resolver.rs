// SPDX-License-Identifier: GPL-2.0

//! Resolving user addresses of the current task.
//!
//! What is asked first takes no lock and reads no file: the address space is looked at
//! [without its lock](kernel::mm::speculative), and the file's build ID is in the
//! [cache](crate::cache). What is not there is left to the stack map's reader, which takes the
//! mmap lock if it is free and reads the file if that is in memory, and to the next return to user
//! mode, where the cache is filled.

use kernel::build_id;
use kernel::build_id::BuildId;
use kernel::build_id::Frame;
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

/// Resolves `frames` without a page fault, any context.
pub(crate) fn resolve_nofault(frames: &mut [Frame]) {
    let rest = look(frames);

    if rest.left > 0 {
        count::add(Counter::Left, rest.left);
        build_id::resolve_nofault(frames);
    }
    if rest.unknown_file {
        fill::request();
    }
}

/// Resolves `frames`, which were made of `addresses`, without waiting for the address space, and
/// has files read that are not in the cache.
///
/// Task context, may sleep.
pub(crate) fn resolve_and_fill(frames: &mut [Frame], addresses: &[c_ulong]) {
    let mut rest = look(frames);

    if rest.unknown_file {
        fill::stack(addresses);
        rest = look(frames);
    }
    if rest.left > 0 {
        count::add(Counter::Left, rest.left);
        build_id::resolve_nofault(frames);
    }
}

/// How many pages the cache has.
pub(crate) fn cache_len() -> usize {
    CACHE.len()
}

/// Resolves what it can without a lock, any context.
fn look(frames: &mut [Frame]) -> Rest {
    let rcu = rcu::read_lock();
    Pass::new(&rcu).run(frames)
}

/// What is left to be done.
#[derive(Clone, Copy, Default)]
struct Rest {
    /// Frames of which nothing has become.
    left: i64,
    /// One is in a file that could be in the cache, and is not.
    unknown_file: bool,
}

/// One look at the address space for a number of frames.
struct Pass<'a> {
    rcu: &'a rcu::Guard,
    mm: Option<CurrentMm<'a>>,
    recent: [Option<Recent>; RECENT],
    /// How many there have been.
    seen: usize,
    rest: Rest,
}

/// A mapping that one of the frames is in.
#[derive(Clone, Copy)]
struct Recent {
    start: u64,
    size: u64,
    /// Offset of `start` in what is mapped.
    base: u64,
    known: Known,
}

/// What is known of a mapping's content.
#[derive(Clone, Copy)]
enum Known {
    Id(BuildId),
    NoId,
    Vdso,
    NoFile,
    /// Nothing: another has to be asked.
    Nothing,
}

impl<'a> Pass<'a> {
    #[inline]
    fn new(rcu: &'a rcu::Guard) -> Self {
        Self {
            rcu,
            mm: CurrentMm::get(rcu),
            recent: [None; RECENT],
            seen: 0,
            rest: Rest::default(),
        }
    }

    #[inline]
    fn run(mut self, frames: &mut [Frame]) -> Rest {
        for frame in frames.iter_mut().filter(|frame| frame.is_new()) {
            if !self.resolve_like_another(frame) {
                self.look_up(frame);
            }
        }
        self.rest
    }

    /// Resolves a frame that is in the mapping of one before. Returns whether it is.
    #[inline]
    fn resolve_like_another(&mut self, frame: &mut Frame) -> bool {
        let address = frame.value();

        for recent in self.recent.iter().map_while(Option::as_ref) {
            let inside = address.wrapping_sub(recent.start);
            if inside < recent.size {
                let offset = inside.wrapping_add(recent.base);
                recent.known.tell(offset, frame, &mut self.rest);
                return true;
            }
        }
        false
    }

    /// Looks a frame's mapping up, and resolves it.
    fn look_up(&mut self, frame: &mut Frame) {
        let address = frame.value();
        let Some(mm) = &self.mm else {
            frame.set_no_mm();
            return;
        };
        let mapping = match mm.find(address) {
            Lookup::Mapping(mapping) => mapping,
            Lookup::Nothing => {
                Known::NoFile.tell(0, frame, &mut self.rest);
                return;
            }
            Lookup::Busy => {
                count(Counter::Busy);
                Known::Nothing.tell(0, frame, &mut self.rest);
                return;
            }
        };

        let known = self.content(&mapping);
        known.tell(mapping.offset_of(address), frame, &mut self.rest);
        if let Some(slot) = self.recent.get_mut(self.seen % RECENT) {
            *slot = Some(Recent::new(&mapping, known));
        }
        self.seen = self.seen.wrapping_add(1);
    }

    /// What is known of what is mapped.
    #[inline]
    fn content(&mut self, mapping: &Mapping) -> Known {
        let version = match mapping.content() {
            Content::File(version) => version,
            Content::Vdso => return Known::Vdso,
            Content::Memory => return Known::NoFile,
        };

        if !version.is_stable() {
            count(Counter::Unstable);
            self.rest.unknown_file |= version.is_unnumbered();
            return Known::Nothing;
        }
        match CACHE.get(&version, self.rcu) {
            Some(Answer::Id(id)) => Known::Id(id),
            Some(Answer::NoId) => Known::NoId,
            None => {
                count(Counter::Miss);
                self.rest.unknown_file |= fill::is_worth_reading(&version, self.rcu);
                Known::Nothing
            }
        }
    }
}

impl Recent {
    #[inline]
    fn new(mapping: &Mapping, known: Known) -> Self {
        let start = mapping.start();

        Self {
            start,
            size: mapping.end().wrapping_sub(start),
            base: mapping.offset_of(start),
            known,
        }
    }
}

impl Known {
    /// Tells a frame what became of it, at `offset` of what is mapped.
    #[inline]
    fn tell(&self, offset: u64, frame: &mut Frame, rest: &mut Rest) {
        match self {
            Self::Id(id) => {
                count(Counter::Hit);
                frame.set_resolved(id, offset);
            }
            Self::NoId => {
                count(Counter::NegativeHit);
                frame.set_no_build_id();
            }
            Self::Vdso => {
                count(Counter::Vdso);
                frame.set_vdso(offset);
            }
            Self::NoFile => {
                count(Counter::NoFile);
                frame.set_no_file();
            }
            Self::Nothing => rest.left = rest.left.wrapping_add(1),
        }
    }
}
