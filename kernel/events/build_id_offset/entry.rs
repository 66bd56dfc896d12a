// SPDX-License-Identifier: GPL-2.0

//! The 32-byte entry.

use core::mem::offset_of;

use kernel::bindings;
use kernel::build_id::BuildId;
use kernel::build_id::Frame;
use kernel::build_id::Outcome;
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
/// `size` is 1 to 20 with [`Status::Resolved`] and 0 with any other; `data` is zero from `size` on;
/// `reserved` is 0.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Entry {
    size: u8,
    status: u8,
    reserved: u16,
    data: [u8; BUILD_ID_SIZE_MAX],
    offset: u64,
}

/// The size of an entry in a record.
pub(crate) const ENTRY_SIZE: u32 = size_of::<Entry>() as u32;

const _: () = {
    use bindings::perf_build_id as Id;
    use bindings::perf_sample_build_id_offset as Sample;

    assert!(size_of::<Entry>() == 32 && size_of::<Entry>() == size_of::<Sample>());
    assert!(size_of::<Entry>() == size_of::<Frame>());
    assert!(offset_of!(Entry, size) == offset_of!(Id, size));
    assert!(offset_of!(Entry, status) == offset_of!(Id, status));
    assert!(offset_of!(Entry, reserved) == offset_of!(Id, __reserved));
    assert!(offset_of!(Entry, data) == offset_of!(Id, data));
    assert!(offset_of!(Sample, build_id) == 0);
    assert!(offset_of!(Entry, offset) == offset_of!(Sample, offset));
};

impl Entry {
    /// An entry of something that is not resolved: an address, a marker or a cookie.
    pub(crate) const fn unresolved(status: Status, offset: u64) -> Self {
        // INVARIANT: No caller passes `Resolved`, and everything else is zero.
        Self {
            size: 0,
            status: status as u8,
            reserved: 0,
            data: [0; BUILD_ID_SIZE_MAX],
            offset,
        }
    }

    fn resolved(size: u8, data: [u8; BUILD_ID_SIZE_MAX], offset: u64) -> Self {
        // INVARIANT: The callers have these of a `Frame` that is resolved or a `BuildId`.
        Self {
            size,
            status: Status::Resolved as u8,
            reserved: 0,
            data,
            offset,
        }
    }

    /// The entry that a frame, once resolved or not, becomes. It was made with `address`.
    ///
    /// `vdso` finds the build ID of the vDSO.
    pub(crate) fn of_frame(
        frame: &Frame,
        address: u64,
        vdso: impl FnOnce() -> Option<BuildId>,
    ) -> Self {
        match frame.outcome() {
            Outcome::Resolved { size } => Self::resolved(size, *frame.build_id(), frame.value()),
            Outcome::Vdso => match vdso() {
                Some(id) => Self::resolved(id.size(), *id.padded(), frame.value()),
                None => Self::unresolved(Status::Anon, address),
            },
            Outcome::NoFile => Self::unresolved(Status::Anon, address),
            Outcome::NoBuildId => Self::unresolved(Status::NoBuildId, address),
            Outcome::NotResident => Self::unresolved(Status::Fault, address),
            Outcome::Busy => Self::unresolved(Status::Busy, address),
            Outcome::NoMm => Self::unresolved(Status::NoMm, address),
            Outcome::NoMemory => Self::unresolved(Status::NoMemory, address),
        }
    }

    /// Makes an entry of a frame that has a build ID, where it is. Returns whether it has.
    ///
    /// What most of them have, and quicker than [`Entry::of_frame`].
    #[inline]
    pub(crate) fn replace_resolved(frame: &mut Frame) -> bool {
        let Outcome::Resolved { size } = frame.outcome() else {
            return false;
        };
        let entry: &mut Self = zerocopy::transmute_mut!(frame);

        // INVARIANT: A frame that is resolved has a build ID of that size, zero padded, at the same
        // place, and the offset too.
        entry.size = size;
        entry.status = Status::Resolved as u8;
        entry.reserved = 0;
        true
    }

    /// Puts the entry where a frame was.
    pub(crate) fn replace(self, frame: &mut Frame) {
        *frame = zerocopy::transmute!(self);
    }
}
