// SPDX-License-Identifier: GPL-2.0

//! Which events there are, and what exists because of them.
//!
//! While there is an event with one of the sample types, the static key of the hooks is on. While
//! there is one with `PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET`, there are buffers to resolve a
//! callchain in. An inherited event is not counted: it does not outlive its parent.

use kernel::build_id::Frame;
use kernel::perf_event::ContextBuffers;
use kernel::perf_event::PerfEvent;
use kernel::perf_event::SampleType;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::global_lock;
use kernel::sync::rcu;

use crate::deferred;
use crate::hooks;
use crate::resolver;
use crate::room;

/// Where callchains are resolved: a frame that has their number, the frames, and their addresses.
pub(crate) static BUFFERS: ContextBuffers<Frame> = ContextBuffers::new();

/// The events that are there.
struct Counts {
    nr_build_id_offset_events: usize,
    nr_callchain_build_id_offset_events: usize,
}

impl Counts {
    fn is_zero(&self) -> bool {
        self.nr_build_id_offset_events == 0 && self.nr_callchain_build_id_offset_events == 0
    }
}

/// The events that [want](wants_deferred_output) a deferred callchain.
static NR_DEFERRED_OUTPUT_EVENTS: Atomic<i32> = Atomic::new(0);

/// Whether there is an event that wants a deferred callchain.
pub(crate) fn any_deferred_output() -> bool {
    NR_DEFERRED_OUTPUT_EVENTS.load(Relaxed) > 0
}

/// Whether `event` is to get a deferred callchain with build IDs.
pub(crate) fn wants_deferred_output(event: &PerfEvent) -> bool {
    let fields = event.sample_type();

    event.defer_output() && fields.intersects(SampleType::ANY_BUILD_ID_OFFSET)
}

global_lock! {
    // SAFETY: Initialized by `init()`, which the perf core calls before the first event.
    unsafe(uninit) static COUNTS: Mutex<Counts> = Counts {
        nr_build_id_offset_events: 0,
        nr_callchain_build_id_offset_events: 0,
    };
}

/// To be called once, at boot.
///
/// # Safety
///
/// Must be called before any other function of this module, and not again.
pub(crate) unsafe fn init() {
    // SAFETY: By the safety requirement.
    unsafe { COUNTS.init() };
}

/// Counts `event`, and makes what it needs.
///
/// Task context, may sleep. On failure nothing has been counted.
pub(crate) fn get(event: &PerfEvent) -> Result {
    let sample_type = event.sample_type();
    let mut counts = COUNTS.lock();
    let callchain = sample_type.contains(SampleType::CALLCHAIN_BUILD_ID_OFFSET);
    let more = counts
        .nr_callchain_build_id_offset_events
        .checked_add(usize::from(callchain))
        .ok_or(EOVERFLOW)?;

    deferred::start()?;
    if counts.is_zero() {
        resolver::start()?;
    }
    if callchain && counts.nr_callchain_build_id_offset_events == 0 {
        if let Err(error) = BUFFERS.alloc(buffer_len()) {
            if counts.is_zero() {
                resolver::stop();
            }
            return Err(error);
        }
    }
    counts.nr_callchain_build_id_offset_events = more;
    if sample_type.contains(SampleType::BUILD_ID_OFFSET) {
        counts.nr_build_id_offset_events = counts.nr_build_id_offset_events.saturating_add(1);
    }
    if wants_deferred_output(event) {
        NR_DEFERRED_OUTPUT_EVENTS.add(1, Relaxed);
    }
    hooks::enable();
    Ok(())
}

/// Undoes [`get`].
///
/// Task context, may sleep.
pub(crate) fn put(event: &PerfEvent) {
    let sample_type = event.sample_type();

    let mut counts = COUNTS.lock();
    if sample_type.contains(SampleType::CALLCHAIN_BUILD_ID_OFFSET) {
        counts.nr_callchain_build_id_offset_events =
            counts.nr_callchain_build_id_offset_events.saturating_sub(1);
        if counts.nr_callchain_build_id_offset_events == 0 {
            BUFFERS.free();
        }
    }
    if sample_type.contains(SampleType::BUILD_ID_OFFSET) {
        counts.nr_build_id_offset_events = counts.nr_build_id_offset_events.saturating_sub(1);
    }
    if wants_deferred_output(event) {
        NR_DEFERRED_OUTPUT_EVENTS.add(-1, Relaxed);
    }

    if counts.is_zero() {
        resolver::stop();
        // A sample that was sized with the hooks must be written with them. Both are in one RCU
        // read section.
        rcu::synchronize_rcu_expedited();
    }
    hooks::disable();
}

/// What exists because of events.
pub(crate) struct Existing {
    pub(crate) ip_events: usize,
    pub(crate) callchain_events: usize,
    pub(crate) deferred_events: usize,
    pub(crate) buffers: bool,
}

/// Counts what exists because of events.
///
/// Task context, may sleep.
pub(crate) fn existing() -> Existing {
    let counts = COUNTS.lock();

    Existing {
        ip_events: counts.nr_build_id_offset_events,
        callchain_events: counts.nr_callchain_build_id_offset_events,
        deferred_events: usize::try_from(NR_DEFERRED_OUTPUT_EVENTS.load(Relaxed))
            .unwrap_or(usize::MAX),
        buffers: BUFFERS.exist() || resolver::buffers_exist(),
    }
}

/// The length of a buffer.
fn buffer_len() -> usize {
    let len = callchain_len();
    let addresses = len.saturating_mul(size_of::<c_ulong>());

    len.saturating_add(1)
        .saturating_add(addresses.div_ceil(size_of::<Frame>()))
}

/// The most entries of a callchain that can be captured and that a record has room for.
///
/// The sysctls stay as they are while there is an event that captures callchains.
fn callchain_len() -> usize {
    let (frames, contexts) = hooks::callchain_limits();

    frames
        .saturating_add(contexts)
        .min(usize::from(room::ENTRIES_MAX))
}
