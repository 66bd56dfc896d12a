// SPDX-License-Identifier: GPL-2.0

//! Which entries of a callchain are user addresses.
//!
//! A captured callchain is a list of `u64`: parts that each begin with a `PERF_CONTEXT_*` marker.
//! The user part comes last. Hence what looks like a marker there is none, but a return address
//! that somebody has put on the user stack.

use kernel::bindings;

const CONTEXT_MIN: u64 = bindings::perf_callchain_context_PERF_CONTEXT_MAX as u64;
pub(crate) const CONTEXT_USER: u64 = bindings::perf_callchain_context_PERF_CONTEXT_USER as u64;
pub(crate) const CONTEXT_USER_DEFERRED: u64 =
    bindings::perf_callchain_context_PERF_CONTEXT_USER_DEFERRED as u64;

/// What an entry of a callchain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A `PERF_CONTEXT_*` marker.
    Marker,
    /// An address that is not one of user mode on this machine.
    Kernel,
    /// An address of the current task's user mode.
    User,
    /// The cookie of a callchain that follows in a record of its own.
    Cookie,
}

/// The part of a callchain that the next entry belongs to.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Kernel,
    User,
    Deferred,
}

impl Part {
    /// The part that a callchain begins with.
    pub(crate) const FIRST: Self = Self::Kernel;

    /// Tells what the next entry is, and goes on to the one after it.
    pub(crate) fn classify(&mut self, value: u64) -> Kind {
        match self {
            Self::User => Kind::User,
            Self::Deferred => Kind::Cookie,
            Self::Kernel if value < CONTEXT_MIN => Kind::Kernel,
            Self::Kernel => {
                *self = match value {
                    CONTEXT_USER => Self::User,
                    CONTEXT_USER_DEFERRED => Self::Deferred,
                    _ => Self::Kernel,
                };
                Kind::Marker
            }
        }
    }
}
