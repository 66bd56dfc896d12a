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
use kernel::mm::speculative::Content;
use kernel::mm::speculative::CurrentMm;
use kernel::mm::speculative::Lookup;
use kernel::mm::speculative::Mapping;
use kernel::sync::rcu;

use crate::cache::Answer;
use crate::count;
use crate::count::count;
use crate::count::Counter;
use crate::fill;
use crate::fill::CACHE;

/// Mappings that are remembered while a callchain is resolved: those of a program and the
/// libraries that call each other.
const RECENT: usize = 4;

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

/// Resolves what it can without a lock, any context.
pub(crate) fn look(frames: &mut [Frame]) -> Rest {
    let rcu = rcu::read_lock();
    Pass::new(&rcu).run(frames)
}

/// What is left to be done.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rest {
    /// Frames of which nothing has become.
    pub(crate) left: i64,
    /// One is in a file that could be in the cache, and is not.
    pub(crate) unknown_file: bool,
}

/// One look at the address space for a number of frames.
struct Pass<'a> {
    rcu: &'a rcu::Guard,
    mm: Option<CurrentMm<'a>>,
    recent: [Option<(Mapping, Known)>; RECENT],
    /// Which of them is the next to be replaced.
    oldest: usize,
    rest: Rest,
}

/// What is known of a mapping's content.
#[derive(Clone, Copy)]
enum Known {
    File(Answer),
    Vdso,
    NoFile,
    NoMm,
    /// Nothing: another has to be asked.
    Unknown,
}

impl<'a> Pass<'a> {
    #[inline]
    fn new(rcu: &'a rcu::Guard) -> Self {
        Self {
            rcu,
            mm: CurrentMm::get(rcu),
            recent: [None; RECENT],
            oldest: 0,
            rest: Rest::default(),
        }
    }

    #[inline]
    fn run(mut self, frames: &mut [Frame]) -> Rest {
        for frame in frames.iter_mut().filter(|frame| frame.is_new()) {
            self.frame(frame);
        }
        self.rest
    }

    #[inline]
    fn frame(&mut self, frame: &mut Frame) {
        let (known, offset) = self.known(frame.value());

        match known {
            Known::File(Answer::Id(id)) => {
                count(Counter::Hit);
                frame.set_resolved(&id, offset);
            }
            Known::File(Answer::NoId) => {
                count(Counter::NegativeHit);
                frame.set_no_build_id();
            }
            Known::Vdso => {
                count(Counter::Vdso);
                frame.set_vdso(offset);
            }
            Known::NoFile => {
                count(Counter::NoFile);
                frame.set_no_file();
            }
            Known::NoMm => frame.set_no_mm(),
            Known::Unknown => self.rest.left = self.rest.left.wrapping_add(1),
        }
    }

    /// What is known of an address, and its offset in what is mapped there.
    #[inline]
    fn known(&mut self, address: u64) -> (Known, u64) {
        let recent = self.recent.iter().flatten();
        if let Some((mapping, known)) = recent.copied().find(|(mapping, _)| mapping.contains(address))
        {
            return (known, mapping.offset_of(address));
        }

        let mapping = match self.mm.as_ref().map(|mm| mm.find(address)) {
            Some(Lookup::Mapping(mapping)) => mapping,
            Some(Lookup::Nothing) => return (Known::NoFile, 0),
            Some(Lookup::Busy) => {
                count(Counter::Busy);
                return (Known::Unknown, 0);
            }
            None => return (Known::NoMm, 0),
        };
        let known = self.content(&mapping);
        if let Some(slot) = self.recent.get_mut(self.oldest) {
            *slot = Some((mapping, known));
        }
        self.oldest = self.oldest.wrapping_add(1) % RECENT;
        (known, mapping.offset_of(address))
    }

    #[inline]
    fn content(&mut self, mapping: &Mapping) -> Known {
        let version = match mapping.content() {
            Content::File(version) => version,
            Content::Vdso => return Known::Vdso,
            Content::Memory => return Known::NoFile,
        };
        // One that is not stable may be in the cache from before: who writes to it has not yet.
        if !version.is_stable() {
            count(Counter::Unstable);
            self.rest.unknown_file |= version.is_unnumbered();
            return Known::Unknown;
        }
        match CACHE.get(&version, self.rcu) {
            Some(answer) => Known::File(answer),
            None => {
                count(Counter::Miss);
                self.rest.unknown_file |= version.is_settled();
                Known::Unknown
            }
        }
    }
}
