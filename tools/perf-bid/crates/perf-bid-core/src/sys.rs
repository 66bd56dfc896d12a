// SPDX-License-Identifier: GPL-2.0
//! The system calls of perf events: `perf_event_open(2)`, the `PERF_EVENT_IOC_*` ioctls and
//! `read(2)` of an event. All of the crate's calls into the kernel that need `unsafe` are
//! here and in [`ring`](crate::ring).

use std::io;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use crate::abi::read_format;
use crate::attr::Attr;

/// `PERF_FLAG_FD_CLOEXEC`
const FD_CLOEXEC: libc::c_ulong = 1 << 3;

// `_IO('$', nr)`, and `_IOR('$', 7, __u64 *)`, from include/uapi/linux/perf_event.h.
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_ID: libc::c_ulong = 0x8000_2407 | ((size_of::<*const u64>() as libc::c_ulong) << 16);

/// Whose events are counted: `pid` and `cpu` of `perf_event_open(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// A thread, 0 for the caller, or -1 for every thread of `cpu`.
    pub pid: i32,
    /// A CPU, or -1 for wherever the thread runs.
    pub cpu: i32,
}

/// An open perf event; closed on drop.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    read_format: u64,
}

impl Event {
    /// Opens an event that leads its own group.
    pub fn open(attr: &Attr, target: Target) -> io::Result<Self> {
        let bytes = attr.to_bytes();
        // SAFETY: `bytes` holds a perf_event_attr whose `size` field is its own length, and it
        // lives until the call returns.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                bytes.as_ptr(),
                target.pid,
                target.cpu,
                -1,
                FD_CLOEXEC,
            )
        };
        let fd =
            i32::try_from(fd).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just handed out this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, read_format: attr.read_format })
    }

    /// Starts counting.
    pub fn enable(&self) -> io::Result<()> {
        self.ioctl(IOC_ENABLE, 0)
    }

    /// Stops counting; records already written stay in the ring buffer.
    pub fn disable(&self) -> io::Result<()> {
        self.ioctl(IOC_DISABLE, 0)
    }

    /// Sends this event's records to the ring buffer of `other`, an event of the same CPU.
    pub fn set_output(&self, other: &Event) -> io::Result<()> {
        self.ioctl(IOC_SET_OUTPUT, other.fd.as_raw_fd() as libc::c_ulong)
    }

    /// The ID that this event's records carry.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        self.ioctl(IOC_ID, &raw mut id as libc::c_ulong)?;
        Ok(id)
    }

    /// Records lost by this event, children included, if `attr.read_format` asks for
    /// [`read_format::LOST`] and not for a group.
    pub fn lost(&self) -> io::Result<Option<u64>> {
        if self.read_format & read_format::GROUP != 0 || self.read_format & read_format::LOST == 0 {
            return Ok(None);
        }
        let before =
            [read_format::TOTAL_TIME_ENABLED, read_format::TOTAL_TIME_RUNNING, read_format::ID];
        let words = 2 + before.iter().filter(|&&bit| self.read_format & bit != 0).count();
        let mut bytes = vec![0; 8 * words];
        let mut file = std::fs::File::from(self.fd.try_clone()?);
        file.read_exact(&mut bytes)?;
        Ok(bytes.last_chunk().copied().map(u64::from_ne_bytes))
    }

    fn ioctl(&self, request: libc::c_ulong, arg: libc::c_ulong) -> io::Result<()> {
        // SAFETY: `request` is one of the constants above. `arg` is a number for all of them
        // but IOC_ID, for which it points to a live u64.
        let ret = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, arg) };
        if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Whether this process ignores a signal, as `sigaction(2)` tells.
pub fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    // SAFETY: `struct sigaction` is numbers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: Nothing is set, and `action` is a live value to be written to.
    let ret = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(action.sa_sigaction == libc::SIG_IGN) }
}

/// Hundredths of a second since the epoch.
pub fn now_in_hundredths() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec.saturating_mul(100).saturating_add(now.tv_nsec / 10_000_000)
}

/// A time in hundredths of a second since the epoch as the local `YYYYMMDDhhmmss` and
/// hundredths, as perf puts it into file names.
pub fn local_timestamp(hundredths: i64) -> String {
    let seconds: libc::time_t = hundredths.div_euclid(100);
    // SAFETY: `struct tm` is numbers and a pointer, for which zero is a value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to live values of their types.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut tm) };
    format!(
        "{:04}{:02}{:02}{:02}{:02}{:02}{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        hundredths.rem_euclid(100)
    )
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
