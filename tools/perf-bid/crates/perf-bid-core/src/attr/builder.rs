// SPDX-License-Identifier: GPL-2.0
//! Puts together an [`Attr`] that the kernel takes, one decision at a time.

use thiserror::Error;

use super::Attr;
use crate::abi::flag;
use crate::abi::read_format;
use crate::abi::sample;
use crate::event::EventSpec;
use crate::event::Sampling;

/// Builds an [`Attr`]; made by [`Attr::builder`].
///
/// What every attr gets: it starts disabled, its records end in a `sample_id`, samples have
/// [`IDENTIFIER`](sample::IDENTIFIER), IP, TID, TIME, CPU and PERIOD, and a read tells how many
/// were lost.
///
/// ```
/// use perf_bid_core::abi::flag;
/// use perf_bid_core::abi::sample;
/// use perf_bid_core::attr::Attr;
/// use perf_bid_core::event::EventSpec;
///
/// let attr = Attr::builder(&EventSpec::parse("cpu-clock:u")?)
///     .frequency(999)
///     .build_id_offset() // the sample's IP as build ID and file offset
///     .callchain_build_id_offset() // its callchain, too
///     .deferred() // resolved on the way back to user mode, where page faults are allowed
///     .deferred_output() // and delivered to this event's ring buffer
///     .build()?;
/// assert!(attr.has_sample(sample::NEW));
/// assert!(attr.has_flags(flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT | flag::EXCLUDE_KERNEL));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// What cannot work is refused before the kernel answers with a bare `EINVAL`:
///
/// ```
/// use perf_bid_core::attr::Attr;
/// use perf_bid_core::attr::BuildError;
/// use perf_bid_core::event::EventSpec;
///
/// let clock = EventSpec::parse("cpu-clock")?;
/// let nothing_to_defer = Attr::builder(&clock).period(1000).deferred().build();
/// assert_eq!(nothing_to_defer, Err(BuildError::NothingToDefer));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct AttrBuilder {
    attr: Attr,
    sampling: Option<Sampling>,
}

/// Why an attr would not work.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BuildError {
    #[error("a period or a frequency of 0 never takes a sample")]
    NoSamples,
    #[error("neither a period nor a frequency is given")]
    NoSampling,
    #[error("neither user nor kernel mode is left to count in")]
    NothingToCount,
    #[error("user and kernel frames are both left out of the callchains")]
    EmptyCallchains,
    #[error("deferred, but there is neither a callchain nor a build ID to defer")]
    NothingToDefer,
    #[error("what is deferred shall be delivered, but callchains are not recorded")]
    NothingToDeliver,
}

impl Attr {
    /// Starts an attr that counts `event` and samples it as often as its name says, if it
    /// does.
    pub fn builder(event: &EventSpec) -> AttrBuilder {
        let attr = event.attr();
        AttrBuilder { attr, sampling: event.sampling }
            .sample(
                sample::IDENTIFIER
                    | sample::IP
                    | sample::TID
                    | sample::TIME
                    | sample::CPU
                    | sample::PERIOD,
            )
            .flags(flag::DISABLED | flag::SAMPLE_ID_ALL)
            .read_format(read_format::ID | read_format::LOST)
    }
}

impl AttrBuilder {
    /// A sample once in `events` occurrences.
    pub fn period(mut self, events: u64) -> Self {
        self.sampling = Some(Sampling::Period(events));
        self
    }

    /// `hz` samples a second, for which the kernel adapts the period.
    pub fn frequency(mut self, hz: u64) -> Self {
        self.sampling = Some(Sampling::Frequency(hz));
        self
    }

    /// The instruction pointer as build ID and file offset. Needs
    /// `CONFIG_PERF_BUILD_ID_OFFSET`.
    pub fn build_id_offset(self) -> Self {
        self.sample(sample::BUILD_ID_OFFSET)
    }

    /// The callchain as build IDs and file offsets. Needs `CONFIG_PERF_BUILD_ID_OFFSET`.
    pub fn callchain_build_id_offset(self) -> Self {
        self.sample(sample::CALLCHAIN_BUILD_ID_OFFSET)
    }

    /// The callchain as addresses.
    pub fn callchain(self) -> Self {
        self.sample(sample::CALLCHAIN)
    }

    /// Leaves the user part of the callchain, and the build IDs, to the return to user mode.
    /// A sample has a cookie in their place; some event on the same ring buffer must ask for
    /// the records that follow, see [`AttrBuilder::deferred_output`].
    pub fn deferred(self) -> Self {
        self.flags(flag::DEFER_CALLCHAIN)
    }

    /// Delivers what was deferred by any event of the task, as
    /// `PERF_RECORD_CALLCHAIN_DEFERRED`. One event of a ring buffer is enough.
    pub fn deferred_output(self) -> Self {
        self.flags(flag::DEFER_OUTPUT)
    }

    /// Most frames of a callchain, above which the sysctl does not let it go.
    pub fn max_stack(mut self, frames: u16) -> Self {
        self.attr.sample_max_stack = frames;
        self
    }

    /// User mode only, in callchains too: those of user-mode samples have kernel frames
    /// otherwise.
    pub fn user_only(self) -> Self {
        self.flags(flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV | flag::EXCLUDE_CALLCHAIN_KERNEL)
    }

    /// Kernel mode only.
    pub fn kernel_only(self) -> Self {
        self.flags(flag::EXCLUDE_USER)
    }

    /// Counts the children of the task, too.
    pub fn inherit(self) -> Self {
        self.flags(flag::INHERIT)
    }

    /// Starts at the task's next `exec`.
    pub fn enable_on_exec(self) -> Self {
        self.flags(flag::ENABLE_ON_EXEC)
    }

    /// Also reports names, forks, exits and new mappings, these with their build IDs.
    pub fn side_band(self) -> Self {
        self.flags(
            flag::MMAP | flag::MMAP2 | flag::BUILD_ID | flag::COMM | flag::COMM_EXEC | flag::TASK,
        )
    }

    /// Stamps records by the clock `id` of `clock_gettime(2)`.
    pub fn clock(mut self, id: i32) -> Self {
        self.attr.clockid = id;
        self.flags(flag::USE_CLOCKID)
    }

    /// Wakes a reader up once `bytes` are in the ring buffer.
    pub fn watermark(mut self, bytes: u32) -> Self {
        self.attr.wakeup = bytes;
        self.flags(flag::WATERMARK)
    }

    /// More fields of a sample, from [`sample`].
    pub fn sample(mut self, bits: u64) -> Self {
        self.attr.sample_type |= bits;
        self
    }

    /// More [`flag`]s.
    pub fn flags(mut self, bits: u64) -> Self {
        self.attr.flags |= bits;
        self
    }

    /// Applies `change` if `condition` holds, for what depends on an option.
    pub fn when(self, condition: bool, change: impl FnOnce(Self) -> Self) -> Self {
        if condition { change(self) } else { self }
    }

    fn read_format(mut self, bits: u64) -> Self {
        self.attr.read_format |= bits;
        self
    }

    /// The finished attr, if it makes sense.
    pub fn build(self) -> Result<Attr, BuildError> {
        let mut attr = self.attr;
        match self.sampling.ok_or(BuildError::NoSampling)? {
            Sampling::Period(0) | Sampling::Frequency(0) => return Err(BuildError::NoSamples),
            Sampling::Period(events) => attr.sample_period = events,
            Sampling::Frequency(hz) => {
                attr.sample_period = hz;
                attr.flags |= flag::FREQ;
            }
        }
        let callchain = attr.sample_type & (sample::CALLCHAIN | sample::CALLCHAIN_BUILD_ID_OFFSET);
        if attr.has_flags(flag::EXCLUDE_USER | flag::EXCLUDE_KERNEL) {
            return Err(BuildError::NothingToCount);
        }
        if callchain != 0
            && attr.has_flags(flag::EXCLUDE_CALLCHAIN_USER | flag::EXCLUDE_CALLCHAIN_KERNEL)
        {
            return Err(BuildError::EmptyCallchains);
        }
        let deferrable = callchain != 0 || attr.wants_build_ids();
        if attr.has_flags(flag::DEFER_CALLCHAIN) && !deferrable {
            return Err(BuildError::NothingToDefer);
        }
        if attr.has_flags(flag::DEFER_OUTPUT) && !deferrable {
            return Err(BuildError::NothingToDeliver);
        }
        Ok(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(event: &str) -> AttrBuilder {
        Attr::builder(&EventSpec::parse(event).unwrap())
    }

    #[test]
    fn the_name_and_the_calls_add_up() {
        let attr = builder("cpu-clock:u").period(5).side_band().inherit().build().unwrap();
        assert!(attr.has_flags(flag::EXCLUDE_KERNEL | flag::INHERIT | flag::MMAP2));
        assert!(!attr.has_flags(flag::FREQ) && attr.sample_period == 5 && !attr.wants_build_ids());
        let attr = builder("cpu-clock").frequency(5).watermark(7).clock(1).build().unwrap();
        assert!(attr.has_flags(flag::FREQ | flag::WATERMARK | flag::USE_CLOCKID));
        assert_eq!((attr.sample_period, attr.wakeup, attr.clockid), (5, 7, 1));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let clock = || builder("cpu-clock").period(1);
        let cases = [
            (builder("cpu-clock"), BuildError::NoSampling),
            (builder("cpu-clock").frequency(0), BuildError::NoSamples),
            (builder("cpu-clock:u").period(1).kernel_only(), BuildError::NothingToCount),
            (
                clock()
                    .callchain()
                    .flags(flag::EXCLUDE_CALLCHAIN_USER | flag::EXCLUDE_CALLCHAIN_KERNEL),
                BuildError::EmptyCallchains,
            ),
            (clock().deferred(), BuildError::NothingToDefer),
            (clock().deferred_output(), BuildError::NothingToDeliver),
        ];
        for (builder, error) in cases {
            assert_eq!(builder.build(), Err(error));
        }
        assert!(clock().build_id_offset().deferred().deferred_output().build().is_ok());
    }
}
