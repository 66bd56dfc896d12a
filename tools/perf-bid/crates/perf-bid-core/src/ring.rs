// SPDX-License-Identifier: GPL-2.0
//! The ring buffer of a perf event: pages shared with the kernel, which writes records at
//! `data_head` while the reader gives them back through `data_tail`
//! (`struct perf_event_mmap_page` in `include/uapi/linux/perf_event.h`).
//!
//! A record may wrap around the end of the buffer. [`Ring::drain`] hands out what is there as
//! at most two runs of bytes and releases them afterwards, so that a caller which only copies
//! pays for one copy.
//!
//! ```
//! use perf_bid_core::attr::Attr;
//! use perf_bid_core::event::EventSpec;
//! use perf_bid_core::record::Format;
//! use perf_bid_core::record::RawRecord;
//! use perf_bid_core::record::Record;
//! use perf_bid_core::ring::Ring;
//! use perf_bid_core::sys::Event;
//! use perf_bid_core::sys::Target;
//!
//! // Every page fault of this thread, wherever it runs.
//! let attr = Attr::builder(&EventSpec::parse("page-faults:u")?).period(1).build()?;
//! let event = Event::open(&attr, Target { pid: 0, cpu: -1 })?;
//! let mut ring = Ring::map(&event, 8)?;
//! event.enable()?;
//! let touched = vec![1u8; 1 << 20];
//! event.disable()?;
//!
//! let mut records = Vec::new();
//! ring.drain(|run, wrapped| {
//!     records.extend_from_slice(run);
//!     records.extend_from_slice(wrapped);
//!     Ok::<_, std::convert::Infallible>(())
//! })?;
//! let format = Format::from(&attr);
//! let (mut rest, mut samples) = (records.as_slice(), 0);
//! while let Some((raw, after)) = RawRecord::split(rest, 0)? {
//!     samples += usize::from(matches!(format.decode(&raw)?, Record::Sample(_)));
//!     rest = after;
//! }
//! assert!(samples > 0, "{} bytes touched", touched.len());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::sys::Event;

/// Offsets within `struct perf_event_mmap_page`, in bytes.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// A mapped ring buffer.
#[derive(Debug)]
pub struct Ring {
    // Invariant: a live shared read-write mapping of `page + size` bytes, whose first page is
    // the control page; `size` is a power of two and a multiple of `page`.
    base: NonNull<u8>,
    page: usize,
    size: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `drain` takes `&mut self`,
// so that only one thread at a time reads and moves the tail.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a buffer of `pages` data pages, a power of two, for `event`.
    pub fn map(event: &Event, pages: usize) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "ring buffer size");
        if !pages.is_power_of_two() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a ring buffer of {pages} pages: not a power of two"),
            ));
        }
        let page = rustix::param::page_size();
        let size = pages.checked_mul(page).ok_or_else(invalid)?;
        let len = size.checked_add(page).ok_or_else(invalid)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that
        // is in use.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(invalid)?;
        Ok(Self { base, page, size })
    }

    /// Size of the data area, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Hands the bytes the kernel has written since the last call to `take`, oldest first, as
    /// one or two runs, then gives their room back. Returns how many bytes there were. They
    /// are whole records; one of them may be split between the runs.
    pub fn drain<E>(
        &mut self,
        take: impl FnOnce(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        // Acquire: what the kernel wrote before it moved the head is read after.
        let head = self.control(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.control(DATA_TAIL).load(Ordering::Relaxed);
        let have = (head.wrapping_sub(tail) as usize).min(self.size);
        if have == 0 {
            return Ok(0);
        }
        let start = (tail as usize) & (self.size - 1);
        let first = have.min(self.size - start);
        // SAFETY: [start, start + first) lies in the data area; the kernel does not write to
        // it again before the tail moves past it, below.
        let run = unsafe { std::slice::from_raw_parts(self.data().add(start).as_ptr(), first) };
        // SAFETY: [0, have - first) lies in the data area, as have <= size; same as above.
        let wrapped = unsafe { std::slice::from_raw_parts(self.data().as_ptr(), have - first) };
        let result = take(run, wrapped);
        // Release: the reads above are done before the kernel may overwrite.
        self.control(DATA_TAIL).store(head, Ordering::Release);
        result.map(|()| have)
    }

    fn data(&self) -> NonNull<u8> {
        // SAFETY: the data area starts one page into the mapping.
        unsafe { self.base.add(self.page) }
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is one of the two constants above, within the control page and a
        // multiple of 8; the kernel accesses the field as a whole u64 too.
        unsafe { self.base.add(offset).cast().as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, by the invariant, and no borrow of it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size + self.page) };
    }
}
