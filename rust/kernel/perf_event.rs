// SPDX-License-Identifier: GPL-2.0

//! Perf events: samples and the records they become.
//!
//! A *sample* is taken when an event overflows, in whatever context that happens: task, softirq,
//! hard interrupt or NMI. It becomes a record in three steps, and the types here are what the perf
//! core hands out in each:
//!
//! 1. *prepare*: the [`SampleData`] is filled in as far as the event's [`SampleType`] asks, and
//!    the size of each field that has no fixed size is added up;
//! 2. *begin*: the record gets its place in a ring buffer, as long as the sizes say;
//! 3. *output*: the fields are written through the [`OutputHandle`], as long as was said.
//!
//! Nothing here allocates, sleeps, takes a lock or panics, but for
//! [`ContextBuffers::alloc`] and [`ContextBuffers::free`].
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::BitOr;
use core::ptr::NonNull;
use core::slice;

use zerocopy::Immutable;

use crate::bindings;
use crate::prelude::*;
use crate::sync::rcu;
use crate::types::NotThreadSafe;
use crate::types::Opaque;
#[cfg(CONFIG_PERF_BUILD_ID_OFFSET)]
use crate::unwind::Cookie;

mod context_buffers;
pub use self::context_buffers::Claim;
pub use self::context_buffers::ContextBuffers;

/// A set of `PERF_SAMPLE_*` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleType(u64);

impl SampleType {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// `PERF_SAMPLE_IP`
    pub const IP: Self = Self::of(bindings::perf_event_sample_format_PERF_SAMPLE_IP);
    /// `PERF_SAMPLE_CALLCHAIN`
    pub const CALLCHAIN: Self = Self::of(bindings::perf_event_sample_format_PERF_SAMPLE_CALLCHAIN);
    /// `PERF_SAMPLE_STACK_USER`
    pub const STACK_USER: Self =
        Self::of(bindings::perf_event_sample_format_PERF_SAMPLE_STACK_USER);
    /// `PERF_SAMPLE_REGS_INTR`
    pub const REGS_INTR: Self = Self::of(bindings::perf_event_sample_format_PERF_SAMPLE_REGS_INTR);
    /// `PERF_SAMPLE_AUX`
    pub const AUX: Self = Self::of(bindings::perf_event_sample_format_PERF_SAMPLE_AUX);
    /// `PERF_SAMPLE_BUILD_ID_OFFSET`
    pub const BUILD_ID_OFFSET: Self =
        Self::of(bindings::perf_event_sample_format_PERF_SAMPLE_BUILD_ID_OFFSET);
    /// `PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET`
    pub const CALLCHAIN_BUILD_ID_OFFSET: Self =
        Self::of(bindings::perf_event_sample_format_PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET);
    /// Both of the above.
    pub const ANY_BUILD_ID_OFFSET: Self =
        Self(Self::BUILD_ID_OFFSET.0 | Self::CALLCHAIN_BUILD_ID_OFFSET.0);

    const fn of(bit: u32) -> Self {
        Self(bit as u64)
    }

    /// The set of these bits.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits of this set.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether all of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is in this set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for SampleType {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A perf event.
///
/// # Invariants
///
/// The event stays in being, and its attributes as they are, for the lifetime of a reference.
#[repr(transparent)]
pub struct PerfEvent(Opaque<bindings::perf_event>);

impl PerfEvent {
    /// Makes a reference of what the perf core hands to a hook.
    ///
    /// # Safety
    ///
    /// `event` must point to an event whose attributes have been set, and which stays for `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(event: *const bindings::perf_event) -> &'a Self {
        // SAFETY: By the safety requirement, and `Self` is transparent.
        unsafe { &*event.cast() }
    }

    #[inline]
    fn attr(&self) -> &bindings::perf_event_attr {
        // SAFETY: By the type invariant, the attributes are there and do not change.
        unsafe { &(*self.0.get()).attr }
    }

    /// `attr.sample_type`
    #[inline]
    pub fn sample_type(&self) -> SampleType {
        SampleType(self.attr().sample_type)
    }

    /// `attr.defer_callchain`
    #[inline]
    pub fn defer_callchain(&self) -> bool {
        self.attr().defer_callchain() != 0
    }

    /// `attr.defer_output`
    #[inline]
    pub fn defer_output(&self) -> bool {
        self.attr().defer_output() != 0
    }

    /// How many registers `PERF_SAMPLE_REGS_INTR` samples.
    #[inline]
    pub fn regs_intr_count(&self) -> u32 {
        self.attr().sample_regs_intr.count_ones()
    }

    /// Whether the event belongs to another task than the current one.
    ///
    /// Only to be asked while the event takes a sample.
    #[inline]
    pub fn is_cross_task(&self) -> bool {
        // SAFETY: An event that takes a sample has a context, whose task does not change meanwhile.
        let owner = unsafe { (*(*self.0.get()).ctx).task };

        // SAFETY: Reading the current task's pointer is always possible.
        !owner.is_null() && owner != unsafe { bindings::get_current() }
    }

    /// The size of the `struct sample_id` that a record other than a sample ends with.
    #[inline]
    pub fn sample_id_size(&self) -> u32 {
        if self.attr().sample_id_all() == 0 {
            return 0;
        }
        // SAFETY: By the type invariant. It does not change once the event is active.
        u32::from(unsafe { (*self.0.get()).id_header_size })
    }

    /// Writes a record of `kind` to the event's buffer, with what `put` writes, which must be
    /// `size` bytes, as its body, and the `struct sample_id` of the event.
    ///
    /// It is lost, and the buffer counts it, when there is no room. Can be called in any context.
    pub fn output_record(&self, kind: RecordType, size: u32, put: impl FnOnce(&mut OutputHandle)) {
        const HEADER_SIZE: u32 = size_of::<bindings::perf_event_header>() as u32;

        let Ok(size) = u16::try_from(HEADER_SIZE.saturating_add(size)) else {
            return;
        };
        let mut header = bindings::perf_event_header::default();
        let mut handle = MaybeUninit::<bindings::perf_output_handle>::uninit();
        let mut data = MaybeUninit::<bindings::perf_sample_data>::uninit();
        let event = self.0.get();

        // SAFETY: By the type invariant; the functions fill in as much of `data` and `handle` as
        // those that come after them look at.
        unsafe {
            bindings::perf_event_header__init(
                &raw mut header,
                data.as_mut_ptr(),
                kind.type_,
                kind.misc,
                size,
                event,
            );
            if bindings::perf_output_begin(
                handle.as_mut_ptr(),
                data.as_mut_ptr(),
                event,
                header.size.into(),
            ) != 0
            {
                return;
            }
            bindings::perf_output_copy(
                handle.as_mut_ptr(),
                (&raw const header).cast(),
                HEADER_SIZE,
            );
        }

        // SAFETY: `perf_output_begin()` has succeeded, and `perf_output_end()` comes below.
        put(unsafe { OutputHandle::from_raw(handle.as_mut_ptr()) });

        // SAFETY: As above.
        unsafe {
            bindings::perf_event__output_id_sample(event, handle.as_mut_ptr(), data.as_mut_ptr());
            bindings::perf_output_end(handle.as_mut_ptr());
        }
    }
}

/// What kind of record one is that is not a sample.
#[derive(Clone, Copy)]
pub struct RecordType {
    type_: u32,
    misc: u16,
}

impl RecordType {
    /// `PERF_RECORD_CALLCHAIN_DEFERRED` with `PERF_RECORD_MISC_CALLCHAIN_BUILD_ID`
    pub const CALLCHAIN_DEFERRED_BUILD_ID: Self = Self {
        type_: bindings::perf_event_type_PERF_RECORD_CALLCHAIN_DEFERRED,
        misc: (bindings::PERF_RECORD_MISC_USER | bindings::PERF_RECORD_MISC_CALLCHAIN_BUILD_ID)
            as u16,
    };
}

/// Calls `each` with every event that is to get side-band records from the current task: the
/// CPU-wide events of this CPU, and the events of the task.
///
/// Preemption is disabled meanwhile, and the RCU read lock held.
#[cfg(CONFIG_PERF_BUILD_ID_OFFSET)]
pub fn for_each_side_band<F: FnMut(&PerfEvent)>(mut each: F) {
    /// # Safety
    ///
    /// `event` must be an active event, and `data` point to an `F` that nobody else uses.
    unsafe extern "C" fn call<F: FnMut(&PerfEvent)>(
        event: *mut bindings::perf_event,
        data: *mut c_void,
    ) {
        // SAFETY: By the safety requirement.
        let (event, each) = unsafe { (PerfEvent::from_raw(event), &mut *data.cast::<F>()) };

        each(event);
    }

    // SAFETY: `call::<F>` is called with active events and `each`, in this call.
    unsafe { bindings::perf_iterate_side_band(Some(call::<F>), (&raw mut each).cast()) };
}

/// The time in nanoseconds. Any context, NMI included.
#[inline]
pub fn now() -> u64 {
    // SAFETY: It can be called in any context.
    unsafe { bindings::ktime_get_mono_fast_ns() }
}

/// Whether the current task is exiting: signals no longer end what it waits for.
#[inline]
pub fn current_is_exiting() -> bool {
    // SAFETY: The current task is valid, and only itself changes its flags.
    let flags = unsafe { (*bindings::get_current()).flags };

    flags & bindings::PF_EXITING != 0
}

/// Whether the current task has a user mode of its own, as opposed to a kernel thread or a worker
/// that a user process has in the kernel.
#[inline]
pub fn current_is_user_task() -> bool {
    // SAFETY: The current task is valid.
    unsafe { bindings::is_user_task(bindings::get_current()) }
}

/// What has been found out for one sample.
///
/// # Invariants
///
/// It has been initialized for an event, and a field that [`SampleData::flags`] names is valid.
#[repr(transparent)]
pub struct SampleData(Opaque<bindings::perf_sample_data>);

impl SampleData {
    /// Makes a reference of what the perf core hands to a hook.
    ///
    /// # Safety
    ///
    /// `data` must point to sample data that `perf_sample_data_init()` was called on, and to which
    /// nobody else has access for `'a`. Where its `sample_flags` have `PERF_SAMPLE_CALLCHAIN`, the
    /// callchain must stay readable for `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(data: *mut bindings::perf_sample_data) -> &'a mut Self {
        // SAFETY: By the safety requirement, and `Self` is transparent.
        unsafe { &mut *data.cast() }
    }

    #[inline]
    fn raw(&self) -> &bindings::perf_sample_data {
        // SAFETY: By the type invariant. Fields that are not valid yet are plain integers and
        // pointers, and none is read before `flags()` says so.
        unsafe { &*self.0.get() }
    }

    #[inline]
    fn raw_mut(&mut self) -> &mut bindings::perf_sample_data {
        // SAFETY: As in `raw()`, and the access is exclusive.
        unsafe { &mut *self.0.get() }
    }

    /// The fields that are filled in.
    #[inline]
    pub fn flags(&self) -> SampleType {
        SampleType(self.raw().sample_flags)
    }

    /// Says that `fields` are filled in.
    #[inline]
    pub fn set_flags(&mut self, fields: SampleType) {
        self.raw_mut().sample_flags |= fields.0;
    }

    /// The sampled instruction pointer.
    #[inline]
    pub fn ip(&self) -> Option<u64> {
        self.flags().contains(SampleType::IP).then(|| self.raw().ip)
    }

    /// The callchain.
    #[inline]
    pub fn callchain(&self) -> Option<Callchain<'_>> {
        self.flags()
            .contains(SampleType::CALLCHAIN)
            .then(|| Callchain {
                entry: self.raw().callchain,
                _data: PhantomData,
            })
    }

    /// The size in bytes of the record, as far as fields are filled in.
    #[inline]
    pub fn size(&self, event: &PerfEvent) -> u32 {
        // SAFETY: By the type invariants both are valid, and the function only reads.
        unsafe { bindings::perf_sample_data_size(self.0.get(), event.0.get()) }
    }

    /// Adds `bytes` to the record, for a field that has no fixed size.
    #[inline]
    pub fn grow(&mut self, bytes: u32) {
        let data = self.raw_mut();

        data.dyn_size = data.dyn_size.wrapping_add(u64::from(bytes));
    }

    /// Cuts up to `count` entries off the outer end of the callchain, of which the record holds
    /// a copy, and returns how many it were.
    #[inline]
    pub fn trim_callchain(&mut self, count: u64) -> u64 {
        let Some(chain) = self.callchain() else {
            return 0;
        };
        let len = chain.len();
        let cut = len.min(count);
        if cut == 0 {
            return 0;
        }

        let data = self.raw_mut();
        // SAFETY: There is a callchain. As it is not empty it is not the one that all events
        // share, but in the buffer of this context.
        unsafe { (*data.callchain).nr = len.wrapping_sub(cut) };
        data.dyn_size = data
            .dyn_size
            .wrapping_sub(cut.wrapping_mul(size_of::<u64>() as u64));
        cut
    }

    /// How many callchain entries the record has room for.
    #[cfg(CONFIG_PERF_BUILD_ID_OFFSET)]
    #[inline]
    pub fn build_id_count(&self) -> u16 {
        self.raw().build_id_nr
    }

    /// Whether the instruction pointer is one of user mode.
    #[cfg(CONFIG_PERF_BUILD_ID_OFFSET)]
    #[inline]
    pub fn is_user(&self) -> bool {
        self.raw().build_id_user
    }

    /// Sets whether the instruction pointer is one of user mode.
    #[cfg(CONFIG_PERF_BUILD_ID_OFFSET)]
    #[inline]
    pub fn set_is_user(&mut self, user: bool) {
        self.raw_mut().build_id_user = user;
    }

    /// The cookie of the record that the user part of this sample follows in.
    #[cfg(CONFIG_PERF_BUILD_ID_OFFSET)]
    #[inline]
    pub fn cookie(&self) -> Option<u64> {
        match self.raw().build_id_cookie {
            0 => None,
            cookie => Some(cookie),
        }
    }

    /// Sets whether, and in which record, the user part of this sample follows.
    #[cfg(CONFIG_PERF_BUILD_ID_OFFSET)]
    #[inline]
    pub fn set_cookie(&mut self, cookie: Option<Cookie>) {
        self.raw_mut().build_id_cookie = cookie.map_or(0, Cookie::get);
    }

    /// Sets how many callchain entries the record has room for.
    #[cfg(CONFIG_PERF_BUILD_ID_OFFSET)]
    #[inline]
    pub fn set_build_id_count(&mut self, count: u16) {
        self.raw_mut().build_id_nr = count;
    }
}

/// A captured callchain, innermost entry first, with its `PERF_CONTEXT_*` markers.
///
/// It is in a buffer that belongs to this CPU and interrupt level. An event that overflows while
/// another is being written at the same level captures its own there, hence every access looks
/// anew, and an entry can be gone.
///
/// # Invariants
///
/// `entry` is readable for `'a`, with room for `nr` entries.
pub struct Callchain<'a> {
    entry: *const bindings::perf_callchain_entry,
    _data: PhantomData<&'a SampleData>,
}

impl Callchain<'_> {
    /// The number of entries.
    #[inline]
    pub fn len(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { (&raw const (*self.entry).nr).read_volatile() }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        if index as u64 >= self.len() {
            return None;
        }
        // SAFETY: By the type invariant, there is room for `nr` entries, of which this is one.
        Some(unsafe { (*self.entry).ip.as_ptr().add(index).read_volatile() })
    }

    /// Copies the entries from `index` on, as many as there are and `to` has room for, and returns
    /// how many.
    ///
    /// On x86 that is one `memcpy()`, in which nothing of the same level can come in between, as it
    /// is `noinstr`. Elsewhere it can be probed, hence each entry is copied by itself.
    #[inline]
    pub fn copy_from(&self, index: usize, to: &mut [c_ulong]) -> usize {
        // SAFETY: By the type invariant, there is room for `nr` entries. That they may change is
        // what the cells are for.
        let entries: &[UnsafeCell<u64>] =
            unsafe { slice::from_raw_parts((*self.entry).ip.as_ptr().cast(), self.len() as usize) };
        let entries = entries.get(index..).unwrap_or_default();

        for (to, entry) in to.iter_mut().zip(entries) {
            // SAFETY: As above.
            *to = unsafe {
                if cfg!(CONFIG_X86) {
                    entry.get().read()
                } else {
                    entry.get().read_volatile()
                }
            } as c_ulong;
        }
        entries.len().min(to.len())
    }
}

/// The registers that a sample is taken of.
///
/// # Invariants
///
/// They are valid.
#[repr(transparent)]
pub struct SampleRegs(Opaque<bindings::pt_regs>);

impl SampleRegs {
    /// Makes a reference of what the perf core hands to a hook.
    ///
    /// # Safety
    ///
    /// `regs` must point to registers that do not change for `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(regs: *mut bindings::pt_regs) -> &'a Self {
        // SAFETY: By the safety requirement, and `Self` is transparent.
        unsafe { &*regs.cast() }
    }

    /// Whether they are those of user mode of the host: what the header of the sample says.
    #[inline]
    pub fn are_of_user_mode(&self, event: &PerfEvent) -> bool {
        // SAFETY: By the type invariants, and the function only reads.
        let misc = unsafe { bindings::perf_misc_flags(event.0.get(), self.0.get()) } as u32;

        misc & bindings::PERF_RECORD_MISC_CPUMODE_MASK == bindings::PERF_RECORD_MISC_USER
    }
}

/// A record on its way into the ring buffer.
///
/// # Invariants
///
/// `perf_output_begin()` has succeeded and `perf_output_end()` has not been called: preemption is
/// disabled and the RCU read lock is held.
#[repr(transparent)]
pub struct OutputHandle(Opaque<bindings::perf_output_handle>);

impl OutputHandle {
    /// Makes a reference of what the perf core hands to a hook.
    ///
    /// # Safety
    ///
    /// `handle` must be one that `perf_output_begin()` has set up, and which `perf_output_end()` is
    /// not called on during `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(handle: *mut bindings::perf_output_handle) -> &'a mut Self {
        // SAFETY: By the safety requirement, and `Self` is transparent.
        unsafe { &mut *handle.cast() }
    }

    /// Writes `value` to the record.
    #[inline]
    pub fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &T) {
        let bytes = value.as_bytes();
        let size = bytes.len() as u32;

        // SAFETY: By the type invariant, and `bytes` is readable. The C code wraps around in the
        // ring buffer: it does not write outside of it, whatever the size.
        unsafe { bindings::perf_output_copy(self.0.get(), bytes.as_ptr().cast(), size) };
    }

    /// Evidence of the context that a record is written in.
    #[inline]
    pub fn context<'a>(self: &&'a mut Self) -> OutputContext<'a> {
        // SAFETY: By the type invariant, which holds for `'a`.
        unsafe { OutputContext::new() }
    }
}

/// Evidence that preemption is disabled and the RCU read lock is held.
///
/// # Invariants
///
/// That is so for `'a`, and `slot` is that of this CPU and interrupt level.
#[derive(Clone, Copy)]
pub struct OutputContext<'a> {
    /// Among those of [`ContextBuffers`].
    slot: usize,
    _context: PhantomData<&'a ()>,
    _cpu: NotThreadSafe,
}

impl<'a> OutputContext<'a> {
    /// # Safety
    ///
    /// Preemption must be disabled and the RCU read lock be held for `'a`.
    #[inline]
    unsafe fn new() -> Self {
        // INVARIANT: By the safety requirement the CPU stays the same, and a level is not left
        // before what was begun there has ended.
        Self {
            slot: context_buffers::current_slot(),
            _context: PhantomData,
            _cpu: NotThreadSafe,
        }
    }

    /// The RCU read lock.
    #[inline]
    pub fn rcu(&self) -> &'a rcu::Guard {
        const _: () = assert!(size_of::<rcu::Guard>() == 0);

        // SAFETY: It has no size, and what it stands for is so by the type invariant.
        unsafe { NonNull::dangling().as_ref() }
    }

    /// Calls `within` in such a context. It must not sleep. Any context.
    #[inline]
    pub fn enter<R>(within: impl FnOnce(OutputContext<'_>) -> R) -> R {
        // SAFETY: Always possible, and undone below.
        unsafe { bindings::preempt_disable() };
        let rcu = rcu::read_lock();

        // SAFETY: As of here, until the call returns.
        let result = within(unsafe { OutputContext::new() });

        drop(rcu);
        // SAFETY: As above.
        unsafe { bindings::preempt_enable() };
        result
    }
}
