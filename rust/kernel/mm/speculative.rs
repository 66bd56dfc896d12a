// SPDX-License-Identifier: GPL-2.0

//! Looking a user address up without a lock.
//!
//! [`CurrentMm::find`] tells which file is behind an address of the current task, and which
//! [version](FileVersion) of it, in any context, NMI included: it takes no lock and no reference,
//! waits for nothing, and gives up after a bounded number of tries. What it returns are plain
//! values that were all true at one moment between the call and the return.
//!
//! # How
//!
//! The tree of VMAs, the VMAs, `struct file` and inodes can be *read* under RCU at any time: the
//! nodes of the tree and inodes are freed after a grace period; VMAs and files are in slabs that
//! are `SLAB_TYPESAFE_BY_RCU`, whose objects may become other objects of the same type, but
//! nothing else. By induction, each pointer that is followed was in an object that was alive
//! within the read section, and points to one that was. So no read faults. Whether what was read
//! belongs together is another matter, and decided afterwards, in one of two ways.
//!
//! **Nothing has changed.** `mm->mm_lock_seq` is odd while the mmap lock is held for writing
//! (`mmap_write_lock()`, `mmap_write_unlock()`). If it was even before the first read and is the
//! same after the last one, nobody has changed the address space in between. This is what
//! `mmap_lock_speculate_try_begin()` and `mmap_lock_speculate_retry()` promise, in
//! `include/linux/mmap_lock.h`, and what uprobes go by. As a VMA holds a reference to its file,
//! and that to its inode, all of them were alive for all of the time.
//!
//! **This VMA has not changed.** Somebody who has the mmap lock may be the current task itself,
//! interrupted in the middle of `mmap()`, or another thread that does little else. Before a VMA is
//! changed, moved or taken out of the tree it is write-locked (`vma_start_write()`): its
//! `vm_lock_seq` becomes the present, odd value of `mm_lock_seq`. It keeps that value until it is
//! write-locked again. With *before* and *after* for `mm_lock_seq` ahead of the first read and
//! behind the last one, a VMA was not write-locked at any time between the two if its
//! `vm_lock_seq` was the same both times and is none of *before*..=*after*. Besides, it
//! must be attached (`vm_refcnt` is not 0) and of this `mm` at the end, lest it has been freed, and
//! its memory has become another VMA, which begins with a `vm_lock_seq` that is none of the
//! above. If that one is attached by now, it was write-locked for it, and `vm_lock_seq` tells.
//!
//! The second way needs the writer's stores to be seen in their order: `vm_lock_seq` first, then
//! the VMA. `__vma_start_write()` has no barrier between the two that readers without a reference
//! could rely on, so it is used on x86 only, where stores are seen in order ([`STORES_IN_ORDER`]).
//! Elsewhere, a writer means [`Lookup::Busy`].
//!
//! That there is *no* mapping at an address can be told in the first way only.
//!
//! **The change is our own.** If `mm_lock_seq` is odd and the owner of the mmap lock is the current
//! task, what was interrupted is a change that the task itself makes, and nobody else makes one.
//! `fork()`, for one, write-locks every VMA and changes none, and takes its time. All that is read
//! then is what the interrupted code has left there, in the order of the program: other CPUs do not
//! matter. Of a VMA with a file, the fields above change together with its place in the tree, and
//! the file's `i_mmap_rwsem` is held for writing for as long as they do not belong together
//! (`vma_prepare()`, `vma_complete()`, with `commit_merge()`, `__split_vma()` or `vma_shrink()` in
//! between). A new VMA is put into the tree when all of them are set (`mmap_region()`,
//! `copy_vma()`), and one that goes is taken out before it is freed (`vms_gather_munmap_vmas()`,
//! `vms_complete_munmap_vmas()`). So they can be believed if the current task does not hold that
//! semaphore. On `PREEMPT_RT` semaphores do not tell whose they are, and this is
//! [`Lookup::Busy`], too, as is any VMA without a file.
//!
//! What was found in the first way can be [remembered](Memo).

use core::ptr;

use pin_init::Zeroable;

use crate::bindings;
use crate::build_id::Vdso;
use crate::fs::File;
use crate::page::PAGE_SIZE;
use crate::sync::atomic::atomic_load;
use crate::sync::atomic::Acquire;
use crate::sync::atomic::Relaxed;
use crate::sync::barrier::smp_mb;
use crate::sync::barrier::Read;
use crate::sync::rcu;
use crate::task::Task;

mod memo;
pub use self::memo::Extent;
pub use self::memo::Memo;
use self::memo::Moment;
pub use self::memo::Open;
use self::memo::Source;

/// How often an address is looked up anew when the address space has changed meanwhile.
const TRIES: usize = 4;

/// A flag of the file system's in a change time.
const CTIME_QUERIED: u32 = bindings::I_CTIME_QUERIED;

/// A superblock of the kernel's own, that nobody has mounted.
const KERNEL_MOUNT: usize = bindings::SB_KERNMOUNT;

/// Whether a file system is one whose inodes have change times that the kernel itself keeps, that
/// move with each change of a file's content, and that are multiples of `s_time_gran`.
///
/// FAT, for one, rounds to two seconds and does not say so; FUSE and NFS have it from a server, and
/// GFS2 and OCFS2 from other machines.
const fn keeps_change_times(magic: usize) -> bool {
    matches!(
        magic as u32,
        bindings::TMPFS_MAGIC
            | bindings::RAMFS_MAGIC
            | bindings::EXT4_SUPER_MAGIC
            | bindings::XFS_SUPER_MAGIC
            | bindings::BTRFS_SUPER_MAGIC
            | bindings::F2FS_SUPER_MAGIC
            | bindings::EROFS_SUPER_MAGIC_V1
            | bindings::SQUASHFS_MAGIC
            | bindings::ISOFS_SUPER_MAGIC
    )
}

/// Whether other CPUs see a CPU's stores in the order in which it has made them.
const STORES_IN_ORDER: bool = cfg!(CONFIG_X86);

/// The current task's address space.
///
/// # Invariants
///
/// `mm` is that of the current task, and not null.
pub struct CurrentMm<'a> {
    mm: *mut bindings::mm_struct,
    _rcu: &'a rcu::Guard,
}

/// What there is at an address.
#[derive(Clone, Copy)]
pub enum Lookup {
    /// A mapping.
    Mapping(Mapping),
    /// No mapping.
    Nothing,
    /// It could not be told at this moment.
    Busy,
}

/// A mapping.
///
/// # Invariants
///
/// If there is a `moment`, the mapping and its `source` were in the address space at that moment.
#[derive(Clone, Copy)]
pub struct Mapping {
    start: u64,
    end: u64,
    /// Offset of `start` in the file, in bytes.
    base: u64,
    content: Content,
    source: Source,
    moment: Option<Moment>,
}

/// What is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A file.
    File(FileVersion),
    /// The vDSO.
    Vdso,
    /// Neither.
    Memory,
}

impl Mapping {
    /// Whether `address` is in this mapping.
    #[inline]
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Where it is.
    #[inline]
    pub fn extent(&self) -> Extent {
        Extent {
            start: self.start,
            size: self.end.wrapping_sub(self.start),
        }
    }

    /// The file offset of an address in the mapping; in the vDSO, the offset in its image.
    #[inline]
    pub fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.base)
    }

    /// What is mapped.
    #[inline]
    pub fn content(&self) -> Content {
        self.content
    }
}

/// What tells whether a file has the same content as before.
///
/// `i_sequence` is a number that an inode gets once and no other inode ever has
/// (`get_inode_sequence_number()`). An inode that is evicted and read in again gets a new one: what
/// happened to the file meanwhile, on a file system that was not mounted even, does not matter.
/// As long as the inode lives, its change time moves with each write, truncation and hole, on file
/// systems [of which that is known](keeps_change_times). It is the file there that a mapping of an
/// overlay has. A server can change a file without the kernel's knowledge (NFS, 9p, FUSE):
/// [`FileVersion::is_stable`] says no. Nor does it believe in files that nobody has opened, like
/// those of memfd_create(2): who can write to them is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
pub struct FileVersion {
    sequence: u64,
    ctime_sec: i64,
    ctime_nsec: u32,
    /// What change times are multiples of on this file system, in nanoseconds.
    granularity: u32,
    /// The kernel keeps the change time.
    kept: bool,
    /// Somebody can write to the file now.
    writable: bool,
}

impl FileVersion {
    /// A version that is made up, for tests.
    pub const fn new(sequence: u64, ctime_sec: i64, ctime_nsec: u32) -> Self {
        Self {
            sequence,
            ctime_sec,
            ctime_nsec,
            granularity: 1,
            kept: true,
            writable: false,
        }
    }

    /// The version of an open file. Gives its inode a number if it has none.
    #[inline]
    pub fn of_file(file: &File) -> Self {
        // SAFETY: An open file has an inode for as long as it is open.
        let inode = unsafe { (*file.as_ptr()).f_inode };
        // SAFETY: As above.
        unsafe { bindings::get_inode_sequence_number(inode) };
        // SAFETY: As above.
        unsafe { Self::read(inode) }
    }

    /// Reads the fields of an inode.
    ///
    /// # Safety
    ///
    /// `inode` must point to memory that is, or within the present RCU read section was, an inode.
    #[inline]
    unsafe fn read(inode: *mut bindings::inode) -> Self {
        // SAFETY: By the safety requirement; a superblock is freed a grace period after its inodes.
        // That fields may change is why they are read like this.
        unsafe {
            let writers: *mut i32 = (&raw mut (*inode).i_writecount).cast();
            let sequence: *mut i64 = (&raw mut (*inode).i_sequence).cast();
            let flags = ptr::read_volatile(&raw const (*inode).i_flags);
            let (kept, granularity) = change_times(ptr::read_volatile(&raw const (*inode).i_sb));
            Self {
                sequence: atomic_load(sequence, Relaxed) as u64,
                ctime_sec: ptr::read_volatile(&raw const (*inode).i_ctime_sec),
                ctime_nsec: ptr::read_volatile(&raw const (*inode).i_ctime_nsec) & !CTIME_QUERIED,
                granularity,
                kept: kept && flags & bindings::S_NOCMTIME == 0,
                writable: atomic_load(writers, Relaxed) > 0,
            }
        }
    }

    /// Whether `inode`, of which this is a [stable](Self::is_stable) version, still has it.
    ///
    /// # Safety
    ///
    /// As for [`FileVersion::read`].
    #[inline]
    unsafe fn is_still(&self, inode: *mut bindings::inode) -> bool {
        // SAFETY: By the safety requirement. What else there is to a version does not change.
        unsafe {
            let writers: *mut i32 = (&raw mut (*inode).i_writecount).cast();
            let nsec = ptr::read_volatile(&raw const (*inode).i_ctime_nsec);

            ptr::read_volatile((&raw const (*inode).i_sequence).cast::<u64>()) == self.sequence
                && ptr::read_volatile(&raw const (*inode).i_ctime_sec) == self.ctime_sec
                && nsec & !CTIME_QUERIED == self.ctime_nsec
                && ptr::read_volatile(writers) <= 0
        }
    }

    /// The inode's number; 0 if it has none.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The change time: seconds and nanoseconds.
    #[inline]
    pub fn ctime(&self) -> (i64, u32) {
        (self.ctime_sec, self.ctime_nsec)
    }

    /// Whether this version can be known by its number and change time: the kernel keeps the
    /// latter, and nobody has the file open for writing.
    ///
    /// Who has can be about to write, with the change time already moved; and what is written
    /// through a shared mapping moves it once at most.
    #[inline]
    pub fn is_stable(&self) -> bool {
        self.sequence != 0 && self.kept && !self.writable
    }

    /// Whether the inode has yet to be given a number before this can be [stable](Self::is_stable).
    #[inline]
    pub fn is_unnumbered(&self) -> bool {
        self.sequence == 0 && self.kept
    }

    /// Whether the next change of the file, whenever it comes, will make a difference.
    ///
    /// Change times are taken from a clock that moves in ticks, and file systems store them with
    /// less than that. Only a version that is older than a few of either cannot be mistaken for
    /// the one that a change right now makes.
    #[inline]
    pub fn is_settled(&self) -> bool {
        const MARGIN: i64 = 100 * 1_000_000;

        // SAFETY: It can be called in any context.
        let now = unsafe { bindings::ktime_get_real_fast_ns() } as i64;
        let changed = self
            .ctime_sec
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(self.ctime_nsec));
        let margin = i64::from(self.granularity)
            .saturating_mul(2)
            .saturating_add(MARGIN);

        now.saturating_sub(changed) > margin
    }
}

/// Whether the change times of a superblock's inodes can be relied on, and what they are multiples
/// of, in nanoseconds.
///
/// # Safety
///
/// `sb` must be null, or a superblock that was alive within the present RCU read section.
#[inline]
unsafe fn change_times(sb: *mut bindings::super_block) -> (bool, u32) {
    if sb.is_null() {
        return (false, 0);
    }
    // SAFETY: By the safety requirement.
    let (magic, granularity, flags) = unsafe {
        (
            ptr::read_volatile(&raw const (*sb).s_magic),
            ptr::read_volatile(&raw const (*sb).s_time_gran),
            ptr::read_volatile(&raw const (*sb).s_flags),
        )
    };
    let kept = keeps_change_times(magic) && flags & KERNEL_MOUNT == 0;

    (kept, granularity)
}

impl<'a> CurrentMm<'a> {
    /// The address space of the current task; [`None`] if it has none, as kernel threads and
    /// exiting tasks.
    #[inline]
    pub fn get(rcu: &'a rcu::Guard) -> Option<Self> {
        // SAFETY: `current` is valid, and `mm` is changed by the task itself only.
        let mm = unsafe { (*Task::current_raw()).mm };

        // INVARIANT: As checked.
        (!mm.is_null()).then_some(Self { mm, _rcu: rcu })
    }

    /// `mm_lock_seq`: odd while somebody changes the address space.
    #[inline]
    pub fn sequence(&self) -> u32 {
        // SAFETY: By the type invariant; it is read as the seqcount's own functions do.
        unsafe {
            let sequence = &raw mut (*self.mm).__bindgen_anon_1.mm_lock_seq.sequence;
            atomic_load(sequence.cast::<i32>(), Acquire) as u32
        }
    }

    /// The address space as it is now, if there is something to know it by later.
    #[inline]
    fn moment(&self) -> Option<Moment> {
        Moment::new(self.context(), self.sequence())
    }

    /// A number that no other address space ever has; 0 if there is none.
    #[inline]
    fn context(&self) -> u64 {
        #[cfg(CONFIG_X86)]
        // SAFETY: By the type invariant. It does not change.
        return unsafe { (*self.mm).__bindgen_anon_1.context.ctx_id };

        #[cfg(not(CONFIG_X86))]
        0
    }

    /// What there is at `address`.
    #[inline]
    pub fn find(&self, address: u64) -> Lookup {
        for _ in 0..TRIES {
            if let Some(found) = self.try_find(address) {
                return found;
            }
        }
        self.find_in_own_change(address).unwrap_or(Lookup::Busy)
    }

    /// One try. [`None`] if what was read may not belong together.
    #[inline]
    fn try_find(&self, address: u64) -> Option<Lookup> {
        let before = self.sequence();
        let unchanged = |after: u32| before == after && before.is_multiple_of(2);

        // SAFETY: By the type invariant; the tree can be read under RCU.
        let vma: *mut bindings::vm_area_struct = unsafe {
            bindings::mtree_load(&raw mut (*self.mm).__bindgen_anon_1.mm_mt, address as usize)
        }
        .cast();
        if vma.is_null() {
            smp_mb(Read);
            return unchanged(self.sequence()).then_some(Lookup::Nothing);
        }

        // SAFETY: It was in the tree within this read section.
        let read = unsafe { Candidate::read(vma) };
        smp_mb(Read);
        // SAFETY: As above.
        let still = unsafe { read.is_still(vma, self.mm) };
        let after = self.sequence();

        // INVARIANT: Nobody has changed the address space meanwhile.
        let moment = unchanged(after)
            .then(|| Moment::new(self.context(), before))
            .flatten();
        if !unchanged(after) && !(STORES_IN_ORDER && still && read.is_unlocked(before, after)) {
            return None;
        }
        let mapping = read.finish(moment);
        mapping
            .contains(address)
            .then_some(Lookup::Mapping(mapping))
    }

    /// The file at `address` while the current task is changing its address space. [`None`] if it
    /// is not, or what was read may not belong together.
    #[cold]
    fn find_in_own_change(&self, address: u64) -> Option<Lookup> {
        // SAFETY: By the type invariant.
        let is_own = unsafe { is_held_by_current(&raw mut (*self.mm).__bindgen_anon_1.mmap_lock) };
        // The count moves while the lock is held.
        if !is_own || self.sequence().is_multiple_of(2) {
            return None;
        }

        // SAFETY: By the type invariant; the tree can be read under RCU.
        let vma: *mut bindings::vm_area_struct = unsafe {
            bindings::mtree_load(&raw mut (*self.mm).__bindgen_anon_1.mm_mt, address as usize)
        }
        .cast();
        if vma.is_null() {
            return None;
        }
        // SAFETY: It is in the tree, which does not change before this returns.
        let file = unsafe { ptr::read_volatile(&raw const (*vma).vm_file) };
        if file.is_null() {
            return None;
        }
        // SAFETY: The VMA has a reference to the file, and that to what is mapped.
        if unsafe { is_held_by_current(&raw mut (*(*file).f_mapping).i_mmap_rwsem) } {
            return None;
        }
        // SAFETY: As above.
        let mapping = unsafe { Candidate::read(vma) }.finish(None);
        mapping
            .contains(address)
            .then_some(Lookup::Mapping(mapping))
    }
}

/// Whether the current task is known to hold a semaphore for writing. If so, it does until it goes
/// on.
///
/// # Safety
///
/// `semaphore` must be valid.
#[cfg(not(CONFIG_PREEMPT_RT))]
unsafe fn is_held_by_current(semaphore: *mut bindings::rw_semaphore) -> bool {
    // SAFETY: By the safety requirement; others may write to it meanwhile, atomically.
    let owner = unsafe { atomic_load((&raw mut (*semaphore).owner).cast::<usize>(), Relaxed) };

    // Beside the pointer, readers have a bit set.
    owner == Task::current_raw().addr()
}

/// What the current task holds is not known there.
///
/// # Safety
///
/// As of the other.
#[cfg(CONFIG_PREEMPT_RT)]
unsafe fn is_held_by_current(_semaphore: *mut bindings::rw_semaphore) -> bool {
    false
}

/// What was read from a VMA and not verified yet.
struct Candidate {
    lock_seq: u32,
    start: u64,
    end: u64,
    pgoff: u64,
    is_vdso: bool,
    inode: *mut bindings::inode,
    file: Option<FileVersion>,
}

impl Candidate {
    /// # Safety
    ///
    /// `vma` must have been in the tree within the present RCU read section.
    #[inline]
    unsafe fn read(vma: *mut bindings::vm_area_struct) -> Self {
        // SAFETY: By the safety requirement it is, or was, a VMA, and its memory still has that
        // type.
        let (lock_seq, start, end, pgoff, special, file) = unsafe {
            let lock_seq = ptr::read_volatile(&raw const (*vma).vm_lock_seq);
            smp_mb(Read);
            let range = &raw const (*vma).__bindgen_anon_1.__bindgen_anon_1;
            (
                lock_seq,
                ptr::read_volatile(&raw const (*range).vm_start),
                ptr::read_volatile(&raw const (*range).vm_end),
                ptr::read_volatile(&raw const (*vma).vm_pgoff),
                !ptr::read_volatile(&raw const (*vma).vm_ops).is_null(),
                ptr::read_volatile(&raw const (*vma).vm_file),
            )
        };

        let inode = if file.is_null() {
            ptr::null_mut()
        } else {
            // SAFETY: A VMA's file was alive when the VMA was, within this read section, and its
            // memory is still one.
            unsafe { ptr::read_volatile(&raw const (*file).f_inode) }
        };
        // SAFETY: As for the file, and inodes are freed after a grace period.
        let file = (!inode.is_null()).then(|| unsafe { FileVersion::read(inode) });

        Self {
            lock_seq,
            start: start as u64,
            end: end as u64,
            pgoff: pgoff as u64,
            is_vdso: special && file.is_none() && is_vdso(start, end),
            inode,
            file,
        }
    }

    /// Whether the VMA is one of `mm`, and has not been locked since it was read.
    ///
    /// # Safety
    ///
    /// As for [`Candidate::read`].
    #[inline]
    unsafe fn is_still(
        &self,
        vma: *mut bindings::vm_area_struct,
        mm: *mut bindings::mm_struct,
    ) -> bool {
        // SAFETY: By the safety requirement.
        unsafe {
            let refcnt: *mut i32 = (&raw mut (*vma).vm_refcnt).cast();

            ptr::read_volatile(&raw const (*vma).vm_mm) == mm
                && atomic_load(refcnt, Acquire) != 0
                && ptr::read_volatile(&raw const (*vma).vm_lock_seq) == self.lock_seq
        }
    }

    /// Whether the VMA was last locked at none of the values `before..=after` of the address
    /// space's sequence count, which wraps.
    #[inline]
    fn is_unlocked(&self, before: u32, after: u32) -> bool {
        self.lock_seq.wrapping_sub(before) > after.wrapping_sub(before)
    }

    #[inline]
    fn finish(self, moment: Option<Moment>) -> Mapping {
        let content = match self.file {
            Some(version) => Content::File(version),
            None if self.is_vdso => Content::Vdso,
            None => Content::Memory,
        };
        let base = match content {
            Content::File(_) => self.pgoff.wrapping_mul(PAGE_SIZE as u64),
            _ => 0,
        };

        Mapping {
            start: self.start,
            end: self.end,
            base,
            content,
            source: Source::new(self.inode, self.file.unwrap_or(FileVersion::new(0, 0, 0))),
            moment,
        }
    }
}

/// Whether the current task's vDSO is mapped at `start..end`, as a whole.
fn is_vdso(start: usize, end: usize) -> bool {
    Vdso::current().is_some_and(|vdso| vdso.is_mapped_at(start, end))
}
