// SPDX-License-Identifier: GPL-2.0
//! A set of events over tasks and CPUs, with one ring buffer for each CPU, and errors that
//! say what to do when the kernel refuses.
//!
//! Events are opened for every pair of task and CPU, as inherited events can have a ring
//! buffer only if they are bound to a CPU; the first event of a CPU owns its buffer, the
//! others write to the same. `examples/sample_command.rs` shows a session from its attr to the
//! decoded records.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::Resource;
use rustix::process::Rlimit;
use thiserror::Error;

use crate::abi::flag;
use crate::abi::sample;
use crate::attr::Attr;
use crate::ring::Ring;
use crate::sys::Event;
use crate::sys::Target;

/// Why the events could not be opened, in words a person can act on.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum OpenError {
    #[error(
        "this kernel ({release}) cannot put build IDs into samples: perf_event_open() rejects \
         {bits} with EINVAL. It takes a kernel with the \
         perf build-ID-offset patches and CONFIG_PERF_BUILD_ID_OFFSET=y{config}"
    )]
    NoBuildIdBits { release: String, bits: &'static str, config: String },
    #[error("not permitted to open `{event}`{whom}: {remedy}")]
    Permission { event: String, whom: String, remedy: String },
    #[error("there is no process or thread {0}")]
    NoTask(i32),
    #[error(
        "`{event}` is not available here{why}; software events such as cpu-clock work everywhere"
    )]
    NoEvent { event: String, why: &'static str },
    #[error(
        "the kernel ({release}) rejects `{event}` (EINVAL), with and without build IDs: the \
         period, the frequency or the combination of options is not one it supports"
    )]
    Invalid { event: String, release: String },
    #[error(
        "too many open files for {events} events: the limit is {limit}. Raise it (ulimit -Hn, as \
         root), or record fewer threads, events or CPUs"
    )]
    TooManyFiles { events: usize, limit: u64 },
    #[error(
        "cannot map a ring buffer of {pages} pages: over the limit for locked memory. Use a \
         smaller -m, or raise kernel.perf_event_mlock_kb"
    )]
    Locked { pages: usize },
    #[error("cannot {what}: {error}")]
    Other { what: String, error: io::Error },
}

/// What to open.
#[derive(Clone, Debug)]
pub struct Config<'a> {
    /// The events, with the names to use in errors.
    pub events: &'a [(String, Attr)],
    /// Threads; -1 for everything that runs on the CPUs.
    pub tasks: &'a [i32],
    /// CPUs, see [`online_cpus`].
    pub cpus: &'a [u32],
    /// Data pages of each ring buffer, a power of two.
    pub pages: usize,
}

/// Open events and their buffers.
#[derive(Debug)]
pub struct Session {
    events: Vec<(usize, Event)>,
    rings: Vec<Ring>,
    /// For each event, whether its task and the children that inherited it have ended.
    ended: Vec<bool>,
}

impl Session {
    /// Opens every event on every pair of task and CPU. Tasks that end and CPUs that go
    /// offline meanwhile are passed over if others remain. The soft limit of open files is
    /// raised to the hard one: there is a file for each event, task and CPU.
    pub fn open(config: &Config<'_>) -> Result<Self, OpenError> {
        raise_open_files();
        let mut session = Self { events: Vec::new(), rings: Vec::new(), ended: Vec::new() };
        let mut gone = None;
        for &cpu in config.cpus {
            let mut owner = None;
            for &pid in config.tasks {
                let target = Target { pid, cpu: cpu as i32 };
                for (index, (name, attr)) in config.events.iter().enumerate() {
                    let event = match Event::open(attr, target) {
                        Ok(event) => event,
                        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => {
                            gone = Some(pid);
                            continue;
                        }
                        Err(error) if is_offline(&error, cpu) && config.cpus.len() > 1 => continue,
                        Err(error) => return Err(explain(error, config, name, attr, target)),
                    };
                    match owner {
                        None => {
                            session.rings.push(map(&event, config.pages)?);
                            owner = Some(session.events.len());
                        }
                        Some(at) => session.share(&event, at)?,
                    }
                    session.events.push((index, event));
                    session.ended.push(false);
                }
            }
        }
        match gone {
            Some(pid) if session.events.is_empty() => Err(OpenError::NoTask(pid)),
            _ => Ok(session),
        }
    }

    fn share(&self, event: &Event, owner: usize) -> Result<(), OpenError> {
        let Some((_, owner)) = self.events.get(owner) else {
            return Ok(());
        };
        event.set_output(owner).map_err(|error| other("share a ring buffer", error))
    }

    /// The IDs that records of event `index` of the config carry.
    pub fn ids(&self, index: usize) -> io::Result<Vec<u64>> {
        self.events.iter().filter(|(of, _)| *of == index).map(|(_, event)| event.id()).collect()
    }

    /// Starts all events.
    pub fn enable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|(_, event)| event.enable())
    }

    /// Stops all events.
    pub fn disable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|(_, event)| event.disable())
    }

    /// Number of open events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether no event is open.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Data bytes of all ring buffers together.
    pub fn ring_bytes(&self) -> usize {
        self.rings.iter().map(Ring::size).sum()
    }

    /// Samples the kernel dropped, summed over the events; `None` if the attrs do not ask for
    /// `PERF_FORMAT_LOST`.
    pub fn lost(&self) -> io::Result<Option<u64>> {
        let mut sum = None;
        for (_, event) in &self.events {
            if let Some(lost) = event.lost()? {
                sum = Some(sum.unwrap_or(0) + lost);
            }
        }
        Ok(sum)
    }

    /// Sleeps until a buffer has filled to its watermark, a task has ended, `also` is readable
    /// or `timeout` is over. Returns false once every watched task has ended.
    pub fn wait(&mut self, also: Option<&impl AsFd>, timeout: Duration) -> io::Result<bool> {
        let watched = self.events.iter().zip(&self.ended).filter(|(_, ended)| !**ended);
        let mut fds: Vec<_> =
            watched.map(|((_, event), _)| PollFd::new(event, PollFlags::IN)).collect();
        let watched = fds.len();
        fds.extend(also.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let timeout = rustix::event::Timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // An event whose task has ended would end every later sleep at once.
        let hung_up = fds.iter().take(watched).map(|fd| fd.revents().contains(PollFlags::HUP));
        let hung_up: Vec<_> = hung_up.collect();
        let open = self.ended.iter_mut().filter(|ended| !**ended);
        open.zip(hung_up).for_each(|(ended, hung_up)| *ended = hung_up);
        Ok(self.ended.iter().any(|ended| !ended))
    }

    /// Hands what is in each buffer to `take`, with the index of the buffer and the bytes as
    /// one or two runs of whole records (a record may be split between them). Returns how
    /// many bytes there were.
    pub fn drain<E>(
        &mut self,
        mut take: impl FnMut(usize, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut sum = 0;
        for (index, ring) in self.rings.iter_mut().enumerate() {
            sum += ring.drain(|run, wrapped| take(index, run, wrapped))?;
        }
        Ok(sum)
    }
}

/// The CPUs that are online, from sysfs.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpus(list.trim()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("CPU list `{}`", list.trim()))
    })
}

/// Parses a list such as `0-3,8`.
pub fn parse_cpus(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The running kernel's release, e.g. `7.3.4`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// `ENODEV` has another cause if the CPU is there.
fn is_offline(error: &io::Error, cpu: u32) -> bool {
    Errno::from_io_error(error) == Some(Errno::NODEV)
        && online_cpus().is_ok_and(|online| !online.contains(&cpu))
}

fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // What the old limit does not allow is an error of its own, later.
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum, maximum: limit.maximum },
    );
}

fn map(event: &Event, pages: usize) -> Result<Ring, OpenError> {
    Ring::map(event, pages).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::AGAIN) => OpenError::Locked { pages },
        _ => other(&format!("map a ring buffer of {pages} pages"), error),
    })
}

fn other(what: &str, error: io::Error) -> OpenError {
    OpenError::Other { what: what.to_owned(), error }
}

/// Turns the kernel's errno into a cause. EINVAL has many causes: whether the new bits are
/// the one is found out by opening the same event without them.
fn explain(
    error: io::Error,
    config: &Config<'_>,
    name: &str,
    attr: &Attr,
    target: Target,
) -> OpenError {
    let event = name.to_owned();
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => explain_invalid(event, attr, target),
        Some(Errno::ACCESS | Errno::PERM) => permission(event, attr, target),
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP | Errno::NXIO) => {
            let why = if attr.type_ == 0 { " (no hardware counters, as in most VMs)" } else { "" };
            OpenError::NoEvent { event, why }
        }
        Some(Errno::MFILE | Errno::NFILE) => OpenError::TooManyFiles {
            events: config.events.len() * config.tasks.len() * config.cpus.len(),
            limit: rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        },
        _ => other(&format!("open `{name}`"), error),
    }
}

fn explain_invalid(event: String, attr: &Attr, target: Target) -> OpenError {
    let release = kernel_release();
    let without = Attr { sample_type: attr.sample_type & !sample::NEW, ..attr.clone() };
    let invalid_without = Event::open(&without, target)
        .is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::INVAL));
    if !attr.wants_build_ids() || (invalid_without && accepts_build_id_bits()) {
        return OpenError::Invalid { event, release };
    }
    OpenError::NoBuildIdBits {
        release,
        bits: match attr.sample_type & sample::NEW {
            sample::BUILD_ID_OFFSET => "PERF_SAMPLE_BUILD_ID_OFFSET",
            sample::CALLCHAIN_BUILD_ID_OFFSET => "PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET",
            _ => "PERF_SAMPLE_BUILD_ID_OFFSET and PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET",
        },
        config: config_note(),
    }
}

/// Whether the kernel knows both build-ID bits, tried on an event that every kernel has and
/// every user may open.
pub fn accepts_build_id_bits() -> bool {
    accepts(sample::NEW, 0)
}

/// Whether the kernel knows both build-ID bits together with deferred callchains.
pub fn accepts_deferral() -> bool {
    accepts(sample::NEW, flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT)
}

/// Whether the kernel knows deferred callchains of addresses.
pub fn accepts_plain_deferral() -> bool {
    accepts(sample::CALLCHAIN, flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT)
}

fn accepts(sample_type: u64, flags: u64) -> bool {
    let attr = Attr {
        type_: 1,
        sample_type,
        flags: flags | flag::DISABLED | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV,
        ..Attr::default()
    };
    let own = Target { pid: 0, cpu: -1 };
    // EACCES and the like come after the bits have been looked at.
    Event::open(&attr, own)
        .map_or_else(|error| Errno::from_io_error(&error) != Some(Errno::INVAL), |_| true)
}

/// What the kernel's own configuration says about the option, if it can be read plainly.
fn config_note() -> String {
    let path = format!("/boot/config-{}", kernel_release());
    let Ok(text) = std::fs::read_to_string(&path) else {
        return String::new();
    };
    match text.lines().find(|line| line.contains("CONFIG_PERF_BUILD_ID_OFFSET")) {
        Some(line) => format!(" ({path} says: {line})"),
        None => format!(" ({path} does not know the option)"),
    }
}

fn permission(event: String, attr: &Attr, target: Target) -> OpenError {
    let paranoid = std::fs::read_to_string(Path::new("/proc/sys/kernel/perf_event_paranoid"));
    let paranoid = paranoid.ok().and_then(|text| text.trim().parse().ok());
    let (whom, needed) = if target.pid == -1 {
        (" on whole CPUs".to_owned(), 0)
    } else if attr.has_flags(flag::EXCLUDE_KERNEL) {
        (format!(" on task {}", target.pid), 2)
    } else {
        (format!(" with kernel addresses on task {}", target.pid), 1)
    };
    OpenError::Permission { event, whom, remedy: remedy(target, needed, paranoid) }
}

/// What to change, if `kernel.perf_event_paranoid` should be `needed` and is `paranoid`.
fn remedy(target: Target, needed: i32, paranoid: Option<i32>) -> String {
    match paranoid {
        // Some distributions' kernels allow nothing at all above 2.
        Some(is) if is > 2 => format!(
            "kernel.perf_event_paranoid is {is}. Lower it: sysctl \
             kernel.perf_event_paranoid={needed}"
        ),
        Some(is) if is > needed => format!(
            "kernel.perf_event_paranoid is {is}. Run as root (or with CAP_PERFMON), or: sysctl \
             kernel.perf_event_paranoid={needed}"
        ),
        _ if target.pid == -1 => {
            "run as root (or with CAP_PERFMON); a container may forbid it all the same".to_owned()
        }
        _ => format!(
            "task {} may belong to another user. Run as that user or as root, or with CAP_PERFMON \
             or CAP_SYS_PTRACE",
            target.pid
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_the_way_is_to_be_changed() {
        let remedy = |pid, needed, paranoid| remedy(Target { pid, cpu: 0 }, needed, paranoid);
        let sysctl_only = remedy(42, 2, Some(4));
        assert!(sysctl_only.contains("is 4") && sysctl_only.contains("paranoid=2"));
        assert!(!sysctl_only.contains("CAP_") && !sysctl_only.contains("task"), "{sysctl_only}");
        for paranoid in [Some(2), Some(-1), None] {
            let foreign = remedy(42, 2, paranoid);
            for part in ["task 42", "CAP_PERFMON", "CAP_SYS_PTRACE"] {
                assert!(foreign.contains(part), "{foreign}");
            }
            assert!(!foreign.contains("sysctl"), "{foreign}");
        }
        let cpus = remedy(-1, 0, Some(2));
        assert!(cpus.contains("CAP_PERFMON") && cpus.contains("paranoid=0"), "{cpus}");
        assert!(!remedy(-1, 0, Some(-1)).contains("sysctl"));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpus("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        for bad in ["", "a", "3-1", "0-99999999", "1,,2"] {
            assert_eq!(parse_cpus(bad), None, "{bad}");
        }
        assert!(!online_cpus().unwrap().is_empty());
    }
}
