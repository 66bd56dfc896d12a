// SPDX-License-Identifier: GPL-2.0

//! Buffers for what is too large for the stack of an interrupt.

use core::cell::UnsafeCell;
use core::ops::Deref;
use core::ops::DerefMut;
use core::ptr;

use super::OutputContext;

use crate::alloc::flags::__GFP_ZERO;
use crate::bindings;
use crate::cpu;
use crate::prelude::*;
use crate::sync::atomic::Acquire;
use crate::sync::atomic::Atomic;
use crate::sync::atomic::Full;
use crate::sync::atomic::Relaxed;
use crate::sync::atomic::Release;
use crate::types::NotThreadSafe;
use crate::types::Opaque;

/// Task, softirq, hard interrupt, NMI: the levels at which one context can interrupt another.
const LEVELS: usize = 4;

/// The index of the slot of this CPU and interrupt level. Any context.
#[inline]
pub(super) fn current_slot() -> usize {
    // SAFETY: Always possible.
    let cpu = unsafe { bindings::raw_smp_processor_id() } as usize;
    // SAFETY: Always possible.
    let level = usize::from(unsafe { bindings::interrupt_context_level() });

    cpu.wrapping_mul(LEVELS).wrapping_add(level)
}

/// Buffers of equal length, one for every possible CPU and interrupt level.
///
/// They are there between [`alloc`](Self::alloc) and [`free`](Self::free). Meanwhile code of any
/// context can [`claim`](Self::claim) the one of its CPU and level, without a lock.
///
/// # Invariants
///
/// `set` is null, or points to a [`Set`] that came from a [`KBox`] and is freed no earlier than a
/// grace period after `set` stopped pointing to it.
pub struct ContextBuffers<T> {
    set: Atomic<*mut Set<T>>,
}

/// # Invariants
///
/// `slots` has one element for every possible CPU and level.
#[repr(C)]
struct Set<T> {
    /// First, for `free_set()`.
    rcu: Opaque<bindings::callback_head>,
    slots: KVec<Slot<T>>,
}

struct Slot<T> {
    /// 1 while a [`Claim`] exists.
    busy: Atomic<i32>,
    items: UnsafeCell<KVec<T>>,
}

impl<T: Copy> ContextBuffers<T> {
    /// Makes the place where the buffers will be.
    pub const fn new() -> Self {
        // INVARIANT: `set` is null.
        Self {
            set: Atomic::new(ptr::null_mut()),
        }
    }

    /// Allocates buffers of `len` items, all zeroes.
    ///
    /// Fails with [`EBUSY`] where there are some already. May sleep.
    pub fn alloc(&self, len: usize) -> Result
    where
        T: Zeroable,
    {
        let cpus = usize::try_from(cpu::nr_cpu_ids()).unwrap_or(usize::MAX);
        let count = cpus.checked_mul(LEVELS).ok_or(EOVERFLOW)?;
        let mut slots = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let mut items = KVec::with_capacity(len, GFP_KERNEL | __GFP_ZERO)?;
            // SAFETY: There is room for them, and zeroes are what they are to be.
            unsafe { items.inc_len(len) };
            slots.push_within_capacity(Slot {
                busy: Atomic::new(0),
                items: UnsafeCell::new(items),
            })?;
        }
        let set = KBox::new(
            Set {
                rcu: Opaque::uninit(),
                slots,
            },
            GFP_KERNEL,
        )?;

        let set = KBox::into_raw(set);
        // INVARIANT: `set` came from a `KBox`. `Full` orders its initialization before this.
        if self.set.cmpxchg(ptr::null_mut(), set, Full).is_err() {
            // SAFETY: It came from `into_raw()` above, and nobody else has seen it.
            drop(unsafe { KBox::from_raw(set) });
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Frees the buffers, if there are any, when the last that can have a claim is done.
    ///
    /// Does not wait for that.
    pub fn free(&self) {
        // INVARIANT: `set` is null.
        let set = self.set.xchg(ptr::null_mut(), Full);
        if set.is_null() {
            return;
        }
        // SAFETY: `set` was published, hence came from a `KBox`, and now it no longer is, hence
        // this is the only call for it. Its `rcu` is used for nothing else, and `free_set::<T>` is
        // what frees a `Set<T>`.
        unsafe { bindings::call_rcu((*set).rcu.get(), Some(free_set::<T>)) };
    }

    /// Whether there are buffers.
    pub fn exist(&self) -> bool {
        !self.set.load(Relaxed).is_null()
    }

    /// Claims the buffer of this CPU and interrupt level.
    ///
    /// Returns [`None`] where there are no buffers, and where something at the same level on this
    /// CPU holds the claim. Can be called in any context.
    #[inline]
    pub fn claim<'a>(&'a self, context: OutputContext<'a>) -> Option<Claim<'a, T>> {
        let set = self.set.load(Acquire);
        if set.is_null() {
            return None;
        }
        // SAFETY: By the type invariant, as the RCU read lock is held for `'a`. Nobody has more
        // than a shared reference.
        let slots: &'a KVec<Slot<T>> = unsafe { &(*set).slots };

        let slot = slots.get(context.slot)?;

        // What interrupts this between the two is of another level, or is done when this goes on.
        if slot.busy.load(Relaxed) != 0 {
            return None;
        }
        slot.busy.store(1, Relaxed);

        // SAFETY: Of all that could reach this slot, namely what runs on this CPU at this level,
        // only this has set `busy`. `busy` is not cleared before the claim is dropped.
        let items: &'a mut [T] = unsafe { &mut *slot.items.get() };

        Some(Claim {
            items,
            busy: &slot.busy,
            _cpu: NotThreadSafe,
        })
    }
}

impl<T: Copy> Default for ContextBuffers<T> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: The buffers can be allocated on one CPU and freed on another.
unsafe impl<T: Send> Send for ContextBuffers<T> {}
// SAFETY: A buffer is only reached through a `Claim`, of which there is one at a time.
unsafe impl<T: Send> Sync for ContextBuffers<T> {}

/// Frees a [`Set`] after a grace period.
///
/// # Safety
///
/// `rcu` must be the first field of a `Set<T>` that came from a [`KBox`], and nobody have access
/// to it any more.
unsafe extern "C" fn free_set<T>(rcu: *mut bindings::callback_head) {
    // SAFETY: By the safety requirement, and `Set` is `repr(C)`.
    drop(unsafe { KBox::from_raw(rcu.cast::<Set<T>>()) });
}

/// The exclusive use of one of the [`ContextBuffers`], until dropped.
pub struct Claim<'a, T> {
    items: &'a mut [T],
    busy: &'a Atomic<i32>,
    _cpu: NotThreadSafe,
}

impl<T> Deref for Claim<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.items
    }
}

impl<T> DerefMut for Claim<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.items
    }
}

impl<T> Drop for Claim<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Nobody on another CPU looks, but what was written must not move behind this.
        self.busy.store(0, Release);
    }
}
