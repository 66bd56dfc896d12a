// SPDX-License-Identifier: GPL-2.0

//! Giving memory back when there is little.
//!
//! C header: [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::bindings;
use crate::prelude::*;
use crate::str::CStr;

/// What can be asked to give memory back.
pub trait Shrink: 'static {
    /// How many objects could be freed.
    fn count() -> usize;

    /// Frees up to `count` objects, and returns how many. Called when memory is being
    /// reclaimed: must not wait for anything that allocates.
    fn scan(count: usize) -> usize;
}

/// A registered shrinker. It is unregistered when it is dropped, and not called after that.
///
/// # Invariants
///
/// `shrinker` is registered, with the functions of `T`.
pub struct Shrinker<T: Shrink> {
    shrinker: NonNull<bindings::shrinker>,
    _shrink: PhantomData<T>,
}

// SAFETY: It can be unregistered on another CPU than it was registered on.
unsafe impl<T: Shrink> Send for Shrinker<T> {}
// SAFETY: There is nothing to be done with a shared reference.
unsafe impl<T: Shrink> Sync for Shrinker<T> {}

impl<T: Shrink> Shrinker<T> {
    /// Registers `T` under a name for debugfs. May sleep.
    pub fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: The format has one conversion, for a string.
        let shrinker =
            unsafe { bindings::shrinker_alloc(0, c"%s".as_char_ptr(), name.as_char_ptr()) };
        let shrinker = NonNull::new(shrinker).ok_or(ENOMEM)?;

        // SAFETY: It is not registered yet, so this is the only user.
        let fields = unsafe { &mut *shrinker.as_ptr() };
        fields.count_objects = Some(count::<T>);
        fields.scan_objects = Some(scan::<T>);
        // SAFETY: All that must be set is.
        unsafe { bindings::shrinker_register(shrinker.as_ptr()) };

        // INVARIANT: As above.
        Ok(Self {
            shrinker,
            _shrink: PhantomData,
        })
    }
}

impl<T: Shrink> Drop for Shrinker<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::shrinker_free(self.shrinker.as_ptr()) };
    }
}

/// # Safety
///
/// None.
unsafe extern "C" fn count<T: Shrink>(
    _shrinker: *mut bindings::shrinker,
    _control: *mut bindings::shrink_control,
) -> c_ulong {
    // `SHRINK_EMPTY` and 0 differ for shrinkers of memory cgroups only.
    T::count()
}

/// # Safety
///
/// `control` must be valid.
unsafe extern "C" fn scan<T: Shrink>(
    _shrinker: *mut bindings::shrinker,
    control: *mut bindings::shrink_control,
) -> c_ulong {
    // SAFETY: By the safety requirement.
    T::scan(unsafe { (*control).nr_to_scan })
}
