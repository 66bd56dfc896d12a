// SPDX-License-Identifier: GPL-2.0

//! Filling the [cache](crate::cache), where files may be read.
//!
//! - An executable mapping that is made while there is an event has its file read before the task
//!   returns to user mode, hence before any of its code runs.
//! - A sample that meets a file that is not in the cache [requests](request) that what is on the
//!   stack at the return to user mode be read.
//!
//! A file is stored with the version that it had before and after it was read, and only if nobody
//! could write to it meanwhile. Writers through a shared mapping are not seen in the change time:
//! when such a mapping is made, [`mapped`] counts it, and the file is forgotten.
//!
//! One that could not be read is left alone for a [while](PATIENCE).

use kernel::build_id;
use kernel::build_id::BuildId;
use kernel::fs::File;
use kernel::mm::speculative::FileVersion;
use kernel::mm::virt::flags;
use kernel::mm::virt::VmaRef;
use kernel::perf_event;
use kernel::prelude::*;
use kernel::shrinker::Shrink;
use kernel::shrinker::Shrinker;
use kernel::sync::aref::ARef;
use kernel::sync::global_lock;
use kernel::sync::rcu;
use kernel::sync::SetOnce;
use kernel::task_work;
use kernel::task_work::TaskWork;
use kernel::unwind::Callback;
use kernel::unwind::Cookie;
use kernel::unwind::StackTrace;
use kernel::unwind::Work;

use crate::cache::Answer;
use crate::cache::Cache;
use crate::cache::Stored;
use crate::count::count;
use crate::count::Counter;
use crate::hooks;

/// How long to wait for the next try after a file could not be read, in nanoseconds.
///
/// What is wrong with it may be over at any time, and nobody says so: a disk that does not answer,
/// a lack of memory.
const PATIENCE: u64 = 1_000_000_000;

/// The build IDs of files.
pub(crate) static CACHE: Cache = Cache::new();

/// What decides whether something may be stored.
struct State {
    /// There while there are events. Its shrinker frees the cache when memory is short.
    shrinker: Option<Shrinker<Files>>,
    /// Shared mappings that were made of files open for writing.
    writers: u64,
}

global_lock! {
    // SAFETY: Initialized by `init()`, which the perf core calls before the first event.
    unsafe(uninit) static STATE: Mutex<State> = State {
        shrinker: None,
        writers: 0,
    };
}

/// The registration with the unwinder. Without one, nothing is filled at a sample's request.
///
/// It is made for the first event and stays, as that of [`deferred`](crate::deferred).
static WORK: SetOnce<Pin<KBox<Work<Stack>>>> = SetOnce::new();

/// To be called once, at boot.
///
/// # Safety
///
/// Must be called before any other function of this module, and not again.
pub(crate) unsafe fn init() {
    // SAFETY: By the safety requirement.
    unsafe { STATE.init() };
}

/// Begins to fill the cache. May sleep.
pub(crate) fn start() -> Result {
    let shrinker = Shrinker::new(c"perf_build_id_offset")?;

    // Where the architecture has no unwinder, mappings that are there already stay unknown, and
    // the stack map's reader resolves what it can.
    if WORK.as_ref().is_none() {
        if let Ok(work) = KBox::pin_init(Work::new(Stack), GFP_KERNEL) {
            WORK.populate(work);
        }
    }
    STATE.lock().shrinker = Some(shrinker);
    Ok(())
}

/// Ends it, and frees the cache. May sleep.
pub(crate) fn stop() {
    let shrinker = STATE.lock().shrinker.take();

    // Not with the lock held: it waits for calls of the shrinker.
    drop(shrinker);
    CACHE.free();
}

/// The cache, as the shrinker sees it.
struct Files;

impl Shrink for Files {
    fn count() -> usize {
        CACHE.len()
    }

    fn scan(_count: usize) -> usize {
        CACHE.free()
    }
}

/// A mapping was made, or its protection changed.
///
/// Task context, with the mmap lock held for writing.
pub(crate) fn mapped(vma: &VmaRef) {
    let Some(file) = build_id::file_of(vma) else {
        return;
    };
    let has = |bits| vma.flags() & bits == bits;

    if has(flags::SHARED | flags::MAYWRITE) {
        written(file);
    } else if has(flags::EXEC) && !is_known(&FileVersion::of_file(file)) {
        // If there is no memory, a sample will ask for it.
        let _ = task_work::add_to_current(Fill(file.into()));
    }
}

/// A file can be changed from now on without a trace in its change time.
fn written(file: &File) {
    let mut state = STATE.lock();

    state.writers = state.writers.wrapping_add(1);
    CACHE.forget(&FileVersion::of_file(file), &rcu::read_lock());
}

/// Whether there is nothing to be done for a version of a file.
fn is_known(version: &FileVersion) -> bool {
    !version.is_stable() || CACHE.get(version, &rcu::read_lock()).is_some()
}

/// Whether it makes sense to read a version of a file, of which nothing is known. Any context.
pub(crate) fn is_worth_reading(version: &FileVersion, rcu: &rcu::Guard) -> bool {
    version.is_settled() && is_due(version, rcu)
}

/// Whether a version of a file is not to be left alone for now.
fn is_due(version: &FileVersion, rcu: &rcu::Guard) -> bool {
    let next_try = CACHE.next_try(version, rcu);

    next_try.is_none_or(|time| perf_event::now() >= time)
}

/// The file of a new mapping, to be read.
struct Fill(ARef<File>);

impl TaskWork for Fill {
    fn run(self) {
        fill(&self.0);
    }
}

/// Reads a file's build ID, and stores it.
///
/// Task context, may sleep.
fn fill(file: &File) {
    let version = FileVersion::of_file(file);
    if is_known(&version) {
        return;
    }
    if !version.is_settled() {
        count(Counter::Unsettled);
        return;
    }
    if !is_due(&version, &rcu::read_lock()) {
        return;
    }

    let writers = STATE.lock().writers;
    let found = BuildId::of_file(file);

    let state = STATE.lock();
    // Who has it open for writing from here on is seen by whoever looks it up; who maps it has to
    // wait for the lock, and has it forgotten then.
    let still = FileVersion::of_file(file) == version && state.writers == writers;
    if !still || state.shrinker.is_none() {
        count(Counter::Changed);
        return;
    }
    // With the lock held, lest there is memory after the last event has gone.
    if CACHE.reserve(&version).is_err() {
        count(Counter::NoMemory);
        return;
    }
    count(store(&version, found));
}

/// Stores what was found in a file.
fn store(version: &FileVersion, found: Result<Option<BuildId>>) -> Counter {
    let rcu = rcu::read_lock();
    let answer = match found {
        Ok(id) => id.map_or(Answer::NoId, Answer::Id),
        Err(error) => {
            // Who is being killed cannot read, others may.
            if error != EINTR {
                let next_try = perf_event::now().saturating_add(PATIENCE);
                CACHE.put_unreadable(version, next_try, &rcu);
            }
            return Counter::Unreadable;
        }
    };

    match CACHE.put(version, answer, &rcu) {
        Stored::Yes => Counter::Filled,
        Stored::Evicted => Counter::Evicted,
        Stored::No => Counter::NoMemory,
    }
}

/// Has the files on the current task's stack read before it returns to user mode. Any context.
pub(crate) fn request() {
    if let Some(work) = WORK.as_ref() {
        // An exiting task has no use for it, and no other file either.
        let _ = work.request();
    }
}

/// The files on a stack, to be read.
struct Stack;

impl Callback for Stack {
    fn unwound(&self, trace: &StackTrace<'_>, _cookie: Cookie) {
        // All callbacks are called before an exec, whoever has asked.
        if hooks::users() > 0 {
            stack(trace.addresses());
        }
    }
}

/// Reads the files that `addresses` of the current task are in.
///
/// Task context, may sleep.
pub(crate) fn stack(addresses: &[c_ulong]) {
    // A task that exits can no longer be killed out of waiting for a file.
    if perf_event::current_is_exiting() {
        return;
    }
    let mut last = None;
    for address in addresses {
        let found = build_id::file_at(*address);
        let pointer = found.as_ref().map(|file| file.as_ptr());

        if let (Some(file), true) = (&found, pointer != last) {
            fill(file);
        }
        last = pointer;
    }
}
