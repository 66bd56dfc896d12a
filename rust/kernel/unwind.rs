// SPDX-License-Identifier: GPL-2.0

//! Deferred unwinding of the user stack.
//!
//! The user stack of a task does not change while the task is in the kernel, but it can only be
//! walked where page faults are allowed. Whoever wants it in another context, up to NMI,
//! *requests* it there ([`Work::request`]) and gets a [`Cookie`]. On the way back to user mode the
//! stack is walked once, and each registered [`Work`] that has made a request has its
//! [`Callback`] called with the [`StackTrace`] and the same cookie. When a task executes another
//! program while a request is pending, all works are called, as the stack is gone for those that
//! would ask later in the same entry context: a callback can be called without a request.
//!
//! The time from the entry into the kernel to the return is an *entry context*. It has one cookie,
//! however many requests are made and whoever makes them, and no other entry context of any task
//! has the same one before some four billion more on the same CPU have had theirs.
//!
//! C header: [`include/linux/unwind_deferred.h`](srctree/include/linux/unwind_deferred.h)

use core::marker::PhantomData;
use core::num::NonZeroU64;

use crate::bindings;
use crate::error::to_result;
use crate::prelude::*;
use crate::types::Opaque;

/// Names an entry context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie(NonZeroU64);

impl Cookie {
    #[inline]
    fn new(cookie: u64) -> Option<Self> {
        NonZeroU64::new(cookie).map(Self)
    }

    /// The cookie of the entry context that the current task is in, without a request.
    ///
    /// It is made where there was none. Returns [`None`] for a task that has no user mode to return
    /// to. Can be called in any context.
    #[inline]
    pub fn current() -> Option<Self> {
        // SAFETY: Always possible.
        Self::new(unsafe { bindings::unwind_user_get_cookie() })
    }

    /// The number that stands for it in records.
    #[inline]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// The user stack of the current task, innermost frame first.
///
/// # Invariants
///
/// `trace` has `nr` entries, which stay as they are for `'a`.
pub struct StackTrace<'a> {
    trace: &'a bindings::unwind_stacktrace,
}

impl StackTrace<'_> {
    /// The addresses.
    #[inline]
    pub fn addresses(&self) -> &[c_ulong] {
        let len = self.trace.nr as usize;
        if len == 0 || self.trace.entries.is_null() {
            return &[];
        }
        // SAFETY: By the type invariant.
        unsafe { core::slice::from_raw_parts(self.trace.entries, len) }
    }
}

/// What is to be done with a stack that was requested.
pub trait Callback: Send + Sync + 'static {
    /// Called in the task that the stack belongs to, before it returns to user mode, executes
    /// another program or exits. In the second case it may not have been requested.
    ///
    /// May sleep and take page faults. The trace is empty where the stack could not be walked.
    fn unwound(&self, trace: &StackTrace<'_>, cookie: Cookie);
}

/// A registered user of the unwinder.
///
/// When it is dropped its callback has been called for the last time.
///
/// # Invariants
///
/// `work` is registered, with [`Work::called`] as its function.
#[pin_data(PinnedDrop)]
pub struct Work<T: Callback> {
    #[pin]
    work: Opaque<bindings::unwind_work>,
    callback: T,
    _callback: PhantomData<T>,
}

// SAFETY: A work can be unregistered on another CPU than it was registered on.
unsafe impl<T: Callback> Send for Work<T> {}
// SAFETY: Requests can be made everywhere at once, and `T` is `Sync`.
unsafe impl<T: Callback> Sync for Work<T> {}

impl<T: Callback> Work<T> {
    /// Registers `callback`.
    ///
    /// Fails with [`EBUSY`] when as many are registered as there can be, and with [`ENOSYS`] on an
    /// architecture without the unwinder. May sleep.
    pub fn new(callback: T) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            callback,
            _callback: PhantomData,
            // INVARIANT: It is registered when this has succeeded.
            work <- Opaque::try_ffi_init(|work| {
                // SAFETY: `work` is pinned, and unregistered before it goes.
                to_result(unsafe { bindings::unwind_deferred_init(work, Some(Self::called)) })
            }),
        })
    }

    /// Requests the current task's stack.
    ///
    /// Any number of requests in an entry context has the callback called once. Fails with
    /// [`EINVAL`] for a task that has no user mode to return to or is exiting. Can be called in any
    /// context, NMI included where the architecture can do that.
    #[inline]
    pub fn request(&self) -> Result<Cookie> {
        let mut cookie = 0;
        // SAFETY: By the type invariant, and `cookie` is valid for a write.
        let pending =
            unsafe { bindings::unwind_deferred_request(self.work.get(), &raw mut cookie) };

        if pending < 0 {
            return Err(EINVAL);
        }
        Cookie::new(cookie).ok_or(EINVAL)
    }

    /// The work's function.
    ///
    /// # Safety
    ///
    /// To be called by the unwinder, with a `work` that is the field of a `Self`.
    unsafe extern "C" fn called(
        work: *mut bindings::unwind_work,
        trace: *mut bindings::unwind_stacktrace,
        cookie: u64,
    ) {
        // SAFETY: By the safety requirement; unregistering waits until this is done.
        let this = unsafe { &*crate::container_of!(Opaque::cast_from(work), Self, work) };
        // SAFETY: The unwinder hands over a trace that stays as it is for the call.
        let trace = unsafe { &*trace };
        // INVARIANT: As above; the unwinder sets `nr` for the `entries` that there are.
        let trace = StackTrace { trace };

        if let Some(cookie) = Cookie::new(cookie) {
            this.callback.unwound(&trace, cookie);
        }
    }
}

#[pinned_drop]
impl<T: Callback> PinnedDrop for Work<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant.
        unsafe { bindings::unwind_deferred_cancel(self.work.get()) };
    }
}
