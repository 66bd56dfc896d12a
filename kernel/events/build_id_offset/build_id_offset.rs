// SPDX-License-Identifier: GPL-2.0

//! `PERF_SAMPLE_BUILD_ID_OFFSET` and `PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET`.
//!
//! A sample's user addresses, its instruction pointer and the user part of its callchain, are
//! written as 32-byte *entries* of a build ID and a file offset, or of an address and the reason
//! why it was not resolved. The record formats are in
//! [`include/uapi/linux/perf_build_id.h`](srctree/include/uapi/linux/perf_build_id.h) and
//! [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h).
//!
//! | module | what | context |
//! | --- | --- | --- |
//! | [`hooks`] | what the perf core calls | as each says |
//! | [`account`] | which events there are, and what exists because of them | task |
//! | [`room`] | how many entries fit into a record | any, pure |
//! | [`chain`] | which entries of a callchain are user addresses | any, pure |
//! | [`entry`] | an entry and its statuses | any, pure |
//! | [`resolver`] | from an address to a build ID | any |
//! | `cache` | the build IDs of files, found without a lock | any |
//! | `fill` | how they get there | task, may fault |
//! | `count` | what becomes of addresses, while somebody wants to know | any |
//! | [`immediate`] | resolving and writing while the sample is taken | any |
//! | [`deferred`] | resolving before the return to user mode | task, may fault |
//! | [`state`] | the file that tells what exists | task |
//!
//! *Any* includes NMI: no allocation, no lock, no sleep, and no operation that could panic.
//!
//! A sample is sized when it is prepared, and resolved when it is written: the size of a record
//! depends on how many entries it has and not on what becomes of them, and nothing has to be kept
//! between the two, where a BPF program may run and take samples of its own.

mod account;
#[cfg(CONFIG_PERF_BUILD_ID_OFFSET_CACHE)]
mod cache;
mod chain;
#[cfg(CONFIG_PERF_BUILD_ID_OFFSET_CACHE)]
mod count;
mod deferred;
mod entry;
#[cfg(CONFIG_PERF_BUILD_ID_OFFSET_CACHE)]
mod fill;
pub mod hooks;
mod immediate;
#[cfg_attr(not(CONFIG_PERF_BUILD_ID_OFFSET_CACHE), path = "uncached.rs")]
mod resolver;
mod room;
mod state;

use kernel::prelude::*;

module! {
    type: state::State,
    name: "perf_build_id_offset",
    authors: ["Rust for Linux Contributors"],
    description: "Build ID and file offset in perf samples",
    license: "GPL",
}
