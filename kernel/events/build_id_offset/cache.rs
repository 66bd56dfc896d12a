// SPDX-License-Identifier: GPL-2.0

//! Build IDs of files, found without a lock.
//!
//! A file is known by its [`FileVersion`]; what is stored is its build ID, or that it has none.
//! Both are plain numbers: an entry holds no reference to the file, the file system, or anything
//! else, and one whose file is gone is never found again, until something takes its place.
//!
//! The table is an array of [`Chunk`]s of one page, each allocated when it is first needed. An
//! entry can be in one of [`WAYS`] neighbouring slots of one chunk. A slot is a sequence lock that
//! nobody waits for: a reader that meets a writer takes it that there is nothing, and so does a
//! writer. Hence both can run in any context, also in an NMI on top of each other.
//!
//! Of a file that could not be read, the time of the next try is stored in the same way. For who
//! looks for an answer, it is as if there was nothing.
//!
//! Chunks are freed a grace period after they are taken out of the array: when the last event goes,
//! and when memory is short.

use core::ptr;

use kernel::bindings;
use kernel::build_id::BuildId;
use kernel::build_id::BUILD_ID_SIZE_MAX;
use kernel::mm::speculative::FileVersion;
use kernel::prelude::*;
use kernel::sync::atomic::Acquire;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Full;
use kernel::sync::atomic::Relaxed;
use kernel::sync::atomic::Release;
use kernel::sync::barrier::smp_mb;
use kernel::sync::barrier::Read;
use kernel::sync::barrier::Write;
use kernel::sync::rcu;
use kernel::types::Opaque;

/// Chunks in the array, a power of two: at most 64 KiB, and about a thousand files.
const CHUNKS: usize = 16;

/// Slots in a chunk: what a page has room for.
const SLOTS: usize = 63;

/// Slots in which an entry can be.
const WAYS: usize = 4;

/// In place of the size of a build ID: the file could not be read.
const UNREADABLE: u8 = u8::MAX;

const _: () = assert!(UNREADABLE as usize > BUILD_ID_SIZE_MAX);

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has this build ID.
    Id(BuildId),
    /// It has none.
    NoId,
}

/// What became of something that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// It is there, in place of nothing or of an older version of the same file.
    Yes,
    /// It is there, and another file is not any more.
    Evicted,
    /// It is not: there is no memory for it, or another writer was faster.
    No,
}

/// The table.
///
/// # Invariants
///
/// Each of `chunks` is null, or points to a [`Chunk`] that came from a [`KBox`] and is freed no
/// earlier than a grace period after it stopped pointing to it.
pub(crate) struct Cache {
    chunks: [Atomic<*mut Chunk>; CHUNKS],
    /// Which of the slots is the next to be evicted from.
    hand: Atomic<i32>,
    /// How often something was to be forgotten.
    forgotten: Atomic<i64>,
}

#[repr(C)]
struct Chunk {
    /// First, for `kvfree_call_rcu()`.
    rcu: Opaque<bindings::kvfree_rcu_head>,
    slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Chunk>() <= kernel::page::PAGE_SIZE);

/// One entry: a cache line.
struct Slot {
    /// Odd while it is written.
    sequence: Atomic<i64>,
    /// The inode's number; 0 in an empty slot.
    inode: Atomic<i64>,
    ctime_sec: Atomic<i64>,
    /// Nanoseconds of the change time in the low half, and the size of the build ID above: 0 if the
    /// file has none, [`UNREADABLE`] if that is not known.
    ctime_nsec_and_size: Atomic<i64>,
    /// The build ID, zero padded; or the time of the next try, and zeroes.
    id: [Atomic<i64>; 3],
    _spare: i64,
}

impl Cache {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        // INVARIANT: All are null.
        Self {
            chunks: [const { Atomic::new(ptr::null_mut()) }; CHUNKS],
            hand: Atomic::new(0),
            forgotten: Atomic::new(0),
        }
    }

    /// A number that changes when something is [forgotten](Self::forget), for what was copied from
    /// here. Any context.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.forgotten.load(Acquire) as u64
    }

    /// What is known of a version of a file. Any context.
    #[inline]
    pub(crate) fn get(&self, version: &FileVersion, _rcu: &rcu::Guard) -> Option<Answer> {
        let place = Place::of(version);

        self.ways(place)?.iter().find_map(|slot| slot.get(version))
    }

    /// When to try again to read a version of a file, if that has failed. Any context.
    pub(crate) fn next_try(&self, version: &FileVersion, _rcu: &rcu::Guard) -> Option<u64> {
        let place = Place::of(version);

        self.ways(place)?
            .iter()
            .find_map(|slot| slot.next_try(version))
    }

    /// Stores what is known of a version of a file, if there is memory. Any context.
    pub(crate) fn put(&self, version: &FileVersion, answer: Answer, rcu: &rcu::Guard) -> Stored {
        match answer {
            Answer::Id(id) => self.store(version, id.size(), id.to_words(), rcu),
            Answer::NoId => self.store(version, 0, [0; 3], rcu),
        }
    }

    /// Stores that a version of a file could not be read, and when to try again, if there is
    /// memory. Any context.
    pub(crate) fn put_unreadable(
        &self,
        version: &FileVersion,
        next_try: u64,
        rcu: &rcu::Guard,
    ) -> Stored {
        self.store(version, UNREADABLE, [next_try as i64, 0, 0], rcu)
    }

    fn store(&self, version: &FileVersion, size: u8, words: [i64; 3], _rcu: &rcu::Guard) -> Stored {
        let Some(ways) = self.ways(Place::of(version)) else {
            return Stored::No;
        };
        let inode = version.sequence() as i64;
        let has = |inode: i64| ways.iter().find(|slot| slot.inode.load(Relaxed) == inode);

        let (slot, stored) = match has(inode).or_else(|| has(0)) {
            Some(slot) => (Some(slot), Stored::Yes),
            None => {
                let hand = self.hand.fetch_add(1, Relaxed) as usize;
                (ways.get(hand % WAYS), Stored::Evicted)
            }
        };
        match slot {
            Some(slot) if slot.put(version, size, words) => stored,
            _ => Stored::No,
        }
    }

    /// Makes memory for a version of a file. May sleep.
    pub(crate) fn reserve(&self, version: &FileVersion) -> Result {
        let Some(chunk) = self.chunks.get(Place::of(version).chunk) else {
            return Ok(());
        };
        if !chunk.load(Relaxed).is_null() {
            return Ok(());
        }

        let new = KBox::into_raw(KBox::new(Chunk::new(), GFP_KERNEL)?);
        // INVARIANT: It came from a `KBox`. `Full` orders its initialization before this.
        if chunk.cmpxchg(ptr::null_mut(), new, Full).is_err() {
            // SAFETY: It came from `into_raw()` above, and nobody else has seen it.
            drop(unsafe { KBox::from_raw(new) });
        }
        Ok(())
    }

    /// Forgets a file, whatever its version: it is about to change without a trace.
    ///
    /// Task context.
    pub(crate) fn forget(&self, version: &FileVersion, _rcu: &rcu::Guard) {
        let place = Place::of(version);
        let inode = version.sequence() as i64;

        self.forgotten.fetch_add(1, Full);
        for slot in self.ways(place).unwrap_or_default() {
            if slot.inode.load(Relaxed) == inode && !slot.clear() {
                // Somebody is writing to it at this very moment: nothing else is certain.
                self.free_chunk(place.chunk);
                return;
            }
        }
    }

    /// Frees everything, and returns how many chunks there were. Does not wait for readers.
    pub(crate) fn free(&self) -> usize {
        let freed = |at| usize::from(self.free_chunk(at));

        (0..CHUNKS).fold(0, |sum, at| freed(at).saturating_add(sum))
    }

    /// How many chunks there are.
    pub(crate) fn len(&self) -> usize {
        let used = |chunk: &Atomic<*mut Chunk>| usize::from(!chunk.load(Relaxed).is_null());

        self.chunks
            .iter()
            .fold(0, |sum, chunk| used(chunk).saturating_add(sum))
    }

    /// Frees a chunk. Returns whether there was one.
    fn free_chunk(&self, at: usize) -> bool {
        let Some(chunk) = self.chunks.get(at) else {
            return false;
        };
        // INVARIANT: It is null.
        let chunk = chunk.xchg(ptr::null_mut(), Full);
        if chunk.is_null() {
            return false;
        }
        // SAFETY: It was published, hence came from a `KBox`, and now it no longer is, hence this
        // is the only call for it. It has nothing to be dropped, and `rcu` is for nothing else.
        unsafe { bindings::kvfree_call_rcu((*chunk).rcu.get(), chunk.cast()) };
        true
    }

    /// The slots that an entry can be in.
    #[inline]
    fn ways(&self, place: Place) -> Option<&[Slot]> {
        let chunk = self.chunks.get(place.chunk)?.load(Acquire);

        // SAFETY: By the type invariant it is null or valid for the caller's RCU read section.
        let chunk = unsafe { chunk.as_ref() }?;
        chunk.slots.get(place.slot..place.slot.wrapping_add(WAYS))
    }
}

/// Where in the table an entry is.
#[derive(Clone, Copy)]
struct Place {
    chunk: usize,
    slot: usize,
}

impl Place {
    #[inline]
    fn of(version: &FileVersion) -> Self {
        // Numbers are handed out one after the other: neighbours get different chunks.
        let hash = version.sequence().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Of other bits than the chunk, or the two would go together.
        let slot = (((hash << 4) >> 32) * (SLOTS - WAYS + 1) as u64) >> 32;

        Self {
            chunk: (hash >> 60) as usize % CHUNKS,
            slot: slot as usize,
        }
    }
}

impl Chunk {
    fn new() -> Self {
        Self {
            rcu: Opaque::zeroed(),
            slots: [const { Slot::new() }; SLOTS],
        }
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            sequence: Atomic::new(0),
            inode: Atomic::new(0),
            ctime_sec: Atomic::new(0),
            ctime_nsec_and_size: Atomic::new(0),
            id: [const { Atomic::new(0) }; 3],
            _spare: 0,
        }
    }

    #[inline]
    fn get(&self, version: &FileVersion) -> Option<Answer> {
        match self.read(version)? {
            (0, _) => Some(Answer::NoId),
            // None for a file that could not be read.
            (size, words) => BuildId::from_words(&words, size).map(Answer::Id),
        }
    }

    fn next_try(&self, version: &FileVersion) -> Option<u64> {
        match self.read(version)? {
            (UNREADABLE, [time, ..]) => Some(time as u64),
            _ => None,
        }
    }

    /// The size and the words of the entry, if it is of this version.
    #[inline]
    fn read(&self, version: &FileVersion) -> Option<(u8, [i64; 3])> {
        let (sec, nsec) = version.ctime();

        if self.inode.load(Relaxed) != version.sequence() as i64 {
            return None;
        }
        let before = self.sequence.load(Acquire);
        let inode = self.inode.load(Relaxed);
        let ctime_sec = self.ctime_sec.load(Relaxed);
        let nsec_and_size = self.ctime_nsec_and_size.load(Relaxed);
        let [first, second, third] = &self.id;
        let id = [first, second, third].map(|word| word.load(Relaxed));
        smp_mb(Read);
        if before % 2 != 0 || self.sequence.load(Relaxed) != before {
            return None;
        }

        if inode != version.sequence() as i64 || ctime_sec != sec || nsec_and_size as u32 != nsec {
            return None;
        }
        Some(((nsec_and_size >> 32) as u8, id))
    }

    /// Returns whether it was done.
    #[inline]
    fn put(&self, version: &FileVersion, size: u8, words: [i64; 3]) -> bool {
        let (sec, nsec) = version.ctime();

        self.write(|| {
            self.inode.store(version.sequence() as i64, Relaxed);
            self.ctime_sec.store(sec, Relaxed);
            self.ctime_nsec_and_size
                .store(i64::from(size) << 32 | i64::from(nsec), Relaxed);
            for (word, value) in self.id.iter().zip(words) {
                word.store(value, Relaxed);
            }
        })
    }

    /// Returns whether it was done.
    fn clear(&self) -> bool {
        self.write(|| self.inode.store(0, Relaxed))
    }

    /// Has `store` done by the one writer at a time. Returns whether it was.
    #[inline]
    fn write(&self, store: impl FnOnce()) -> bool {
        let sequence = self.sequence.load(Relaxed);
        if sequence % 2 != 0 {
            return false;
        }
        let odd = sequence.wrapping_add(1);
        if self.sequence.cmpxchg(sequence, odd, Acquire).is_err() {
            return false;
        }
        smp_mb(Write);
        store();
        self.sequence.store(odd.wrapping_add(1), Release);
        true
    }
}

const _: () = assert!(BUILD_ID_SIZE_MAX <= size_of::<[i64; 3]>());
