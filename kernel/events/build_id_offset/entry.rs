// SPDX-License-Identifier: GPL-2.0

//! The 32-byte entry.

use core::mem::offset_of;

use kernel::bindings;
use kernel::build_id::BuildId;
use kernel::build_id::Frame;
use kernel::build_id::Outcome;
use kernel::build_id::Vdso;
use kernel::build_id::BUILD_ID_SIZE_MAX;
use kernel::prelude::*;
use zerocopy_derive::Immutable;
use zerocopy_derive::KnownLayout;

/// Why an entry's offset is what it is: `enum perf_build_id_offset_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Resolved = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_RESOLVED as u8,
    Context = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_CONTEXT as u8,
    Kernel = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_KERNEL as u8,
    Deferred = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_DEFERRED as u8,
    Anon = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_ANON as u8,
    NoBuildId = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_NO_BUILD_ID as u8,
    Fault = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_FAULT as u8,
    Busy = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_BUSY as u8,
    NoMm = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_NO_MM as u8,
    NoMemory = bindings::perf_build_id_offset_status_PERF_BUILD_ID_OFFSET_NO_MEMORY as u8,
}

/// `struct perf_sample_build_id_offset`.
///
/// # Invariants
///
/// `build_id` has the bytes of a `struct perf_build_id`: its `size` is 1 to 20 with
/// [`Status::Resolved`] and 0 with any other; `data` is zero from `size` on; `__reserved` is 0.
/// Hence an entry that takes the place of a [`Frame`] is neither [new](Frame::is_new) nor
/// [read](Frame::is_read).
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Zeroable)]
pub(crate) struct Entry {
    /// In words, which are quicker to copy than the fields are.
    build_id: [u64; 3],
    offset: u64,
}

/// The bytes of a `struct perf_build_id`.
#[repr(C)]
#[derive(IntoBytes)]
struct Bytes {
    /// `size`, `status` and `__reserved`.
    head: [u8; 4],
    data: [u8; BUILD_ID_SIZE_MAX],
}

/// The size of an entry in a record.
pub(crate) const ENTRY_SIZE: u32 = size_of::<Entry>() as u32;

const _: () = {
    use bindings::perf_build_id as Id;
    use bindings::perf_sample_build_id_offset as Sample;

    assert!(size_of::<Entry>() == 32 && size_of::<Entry>() == size_of::<Sample>());
    assert!(size_of::<Entry>() == size_of::<Frame>() && align_of::<Entry>() <= align_of::<Frame>());
    assert!(offset_of!(Id, size) == 0);
    assert!(offset_of!(Id, status) == 1);
    assert!(offset_of!(Id, __reserved) == 2);
    assert!(offset_of!(Id, data) == 4);
    assert!(offset_of!(Sample, build_id) == 0 && size_of::<Id>() == size_of::<[u64; 3]>());
    assert!(offset_of!(Entry, offset) == offset_of!(Sample, offset));
};

impl Entry {
    /// An entry of something that is not resolved: an address, a marker or a cookie.
    #[inline]
    pub(crate) const fn unresolved(status: Status, offset: u64) -> Self {
        // INVARIANT: No caller passes `Resolved`, and everything else is zero.
        Self {
            build_id: [
                u64::from_ne_bytes([0, status as u8, 0, 0, 0, 0, 0, 0]),
                0,
                0,
            ],
            offset,
        }
    }

    /// An entry of what is at `offset` of the file that has this build ID.
    #[inline]
    pub(crate) fn resolved(id: &BuildId, offset: u64) -> Self {
        Self::with_id(id.size(), id.padded(), offset)
    }

    #[inline]
    fn with_id(size: u8, data: &[u8; BUILD_ID_SIZE_MAX], offset: u64) -> Self {
        let head = [size, Status::Resolved as u8, 0, 0];

        // INVARIANT: The callers have these of a `BuildId` or a `Frame` that is resolved.
        Self {
            build_id: zerocopy::transmute!(Bytes { head, data: *data }),
            offset,
        }
    }

    /// The words before the offset.
    #[inline]
    #[cfg_attr(not(CONFIG_PERF_BUILD_ID_OFFSET_CACHE), allow(dead_code))]
    pub(crate) fn words(&self) -> [u64; 3] {
        self.build_id
    }

    /// An entry like the one that has these [`words`](Self::words).
    #[inline]
    #[cfg_attr(not(CONFIG_PERF_BUILD_ID_OFFSET_CACHE), allow(dead_code))]
    pub(crate) fn of_words([first, second, third]: [u64; 3], offset: u64) -> Self {
        // INVARIANT: As those of the other.
        Self {
            build_id: [first, second, third],
            offset,
        }
    }

    /// The entry that a frame becomes which the stack map's reader has seen.
    ///
    /// `vdso` finds the vDSO of the current task.
    pub(crate) fn of_frame(frame: &Frame, vdso: impl FnOnce() -> Option<Vdso>) -> Self {
        let value = frame.value();
        let unresolved = |status| Self::unresolved(status, value);

        match frame.outcome() {
            Outcome::Resolved { size } => Self::with_id(size, frame.build_id(), value),
            Outcome::Vdso => {
                vdso().map_or(unresolved(Status::Busy), |vdso| Self::of_vdso(&vdso, value))
            }
            Outcome::NoFile => unresolved(Status::Anon),
            Outcome::NoBuildId => unresolved(Status::NoBuildId),
            Outcome::NotResident => unresolved(Status::Fault),
            Outcome::Busy => unresolved(Status::Busy),
            Outcome::NoMm => unresolved(Status::NoMm),
            Outcome::NoMemory => unresolved(Status::NoMemory),
        }
    }

    /// An entry of what is at `offset` of the vDSO's image.
    pub(crate) fn of_vdso(vdso: &Vdso, offset: u64) -> Self {
        match vdso.build_id() {
            Some(id) => Self::resolved(&id, offset),
            None => Self::unresolved(Status::Anon, vdso.address_of(offset)),
        }
    }

    /// Puts the entry where a frame was.
    #[inline]
    pub(crate) fn replace(self, frame: &mut Frame) {
        *frame = zerocopy::transmute!(self);
    }

    /// Puts entries where the stack map's reader has left frames.
    pub(crate) fn replace_all(frames: &mut [Frame]) {
        for frame in frames.iter_mut().filter(|frame| frame.is_read()) {
            Self::of_frame(frame, Vdso::current).replace(frame);
        }
    }
}
