// SPDX-License-Identifier: GPL-2.0
//! `perf-bid record`: opens events with the build-ID bits, moves what the kernel writes from
//! the ring buffers to a perf.data file and, at the end, adds the table of the build IDs that
//! were hit.
//!
//! Where the kernel can, user addresses are resolved on the way back to user mode, and come in
//! records of their own.
//!
//! No map record is ever written by this program. The kernel's own MMAP2 records of *new*
//! mappings are kept, as hints to where files are.

pub mod output;
mod scan;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::ExitCode;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::read_format;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::Features;
use perf_bid_core::data::Info;
use perf_bid_core::data::Writer;
use perf_bid_core::data::finished_round;
use perf_bid_core::event::EventSpec;
use perf_bid_core::session;
use perf_bid_core::session::Config;
use perf_bid_core::session::OpenError;
use perf_bid_core::session::Session;
use perf_bid_core::workload::Workload;
use signal_hook::consts::SIGCHLD;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;

use self::output::Output;
use self::scan::Scan;
use crate::cli;

const DEFAULT_FREQ: u64 = 4000;
/// How long records may wait in a buffer that does not fill.
const PERIOD: Duration = Duration::from_millis(200);

/// Whom to watch.
enum Who {
    Command(Workload),
    Tasks(Vec<i32>),
    Cpus(Option<Workload>),
}

impl Who {
    fn tasks(&self) -> Vec<i32> {
        match self {
            Self::Command(workload) => vec![workload.pid()],
            Self::Tasks(tasks) => tasks.clone(),
            Self::Cpus(_) => vec![-1],
        }
    }

    fn workload(self) -> Option<Workload> {
        match self {
            Self::Command(workload) => Some(workload),
            Self::Tasks(_) => None,
            Self::Cpus(workload) => workload,
        }
    }
}

/// Runs `perf-bid record`.
pub fn run(args: &cli::Record) -> Result<ExitCode> {
    if args.output.as_os_str() == "-" {
        bail!("-o -: writing to standard output is not supported; name a file");
    }
    let signals = Signals::new()?;
    let who = who(args)?;
    let cpus = session::online_cpus().context("cannot list the CPUs")?;
    let deferred = !args.immediate && session::accepts_deferral();
    let (mut session, events) = open(args, &who.tasks(), &cpus, deferred)?;
    let on_exec = matches!(who, Who::Command(_));
    let ids = (0..events.len()).map(|index| session.ids(index)).collect::<Result<Vec<_>, _>>()?;
    let attrs: Vec<_> = events.iter().map(|(_, attr)| attr.clone()).collect();
    let first_id = ids.first().and_then(|ids| ids.first()).copied().unwrap_or(0);
    let first = attrs.first().context("no event")?;
    let output = Output::create(&args.output)
        .with_context(|| format!("cannot write next to {}", args.output.display()))?;
    let described: Vec<_> = attrs.iter().cloned().zip(ids.iter().cloned()).collect();
    let writer = Writer::new(output, &described).with_context(|| cannot_write(args))?;
    let mut recording = Recording {
        writer,
        scan: Scan::new(first, first_id, !on_exec),
        deferred,
        pass: Vec::new(),
        names: Vec::new(),
        warned: false,
    };
    if !on_exec {
        session.enable().context("cannot start the events")?;
    }
    let child = who.workload().map(|workload| start(args, workload)).transpose()?;
    let status = recording.follow(args, &mut session, child, signals)?;
    let names: Vec<_> = events.into_iter().map(|(name, _)| name).zip(ids).collect();
    recording.finish(args, &session, names)?;
    Ok(status.map_or(ExitCode::SUCCESS, exit_code))
}

fn who(args: &cli::Record) -> Result<Who> {
    let mut command = args.command.iter().cloned();
    let workload = match command.next() {
        Some(program) => {
            let shown = program.to_string_lossy().into_owned();
            let forked = Workload::fork(program, command.collect());
            Some(forked.with_context(|| format!("cannot start {shown}"))?)
        }
        None => None,
    };
    let tasks =
        args.tid.iter().map(|&tid| Ok(vec![tid])).chain(args.pid.iter().map(|&pid| threads(pid)));
    let tasks: Vec<i32> = tasks.collect::<Result<Vec<_>>>()?.concat();
    match (workload, tasks.is_empty()) {
        (workload, true) if args.all_cpus => Ok(Who::Cpus(workload)),
        (Some(workload), true) => Ok(Who::Command(workload)),
        (None, false) => Ok(Who::Tasks(tasks)),
        (Some(_), false) => bail!("either a command or -p/-t, not both"),
        (None, true) => bail!("nothing to record: give a command, -p, -t or -a (see --help)"),
    }
}

fn threads(pid: i32) -> Result<Vec<i32>> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| OpenError::NoTask(pid))?;
    let tids = dir.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(tids.collect())
}

fn start(args: &cli::Record, workload: Workload) -> Result<Child> {
    let shown = args.command.first().map(|program| program.to_string_lossy().into_owned());
    workload.start().with_context(|| format!("cannot run {}", shown.unwrap_or_default()))
}

/// Opens the events asked for. Where the user left something open, what the machine and the
/// permissions allow is taken, and said.
fn open(
    args: &cli::Record,
    tasks: &[i32],
    cpus: &[u32],
    deferred: bool,
) -> Result<(Session, Vec<(String, Attr)>)> {
    if !args.mmap_pages.is_power_of_two() {
        bail!("-m {}: not a power of two", args.mmap_pages);
    }
    let names =
        if args.event.is_empty() { vec!["cpu-cycles".to_owned()] } else { args.event.clone() };
    let mut specs =
        names.iter().map(|name| EventSpec::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let mut user_only = false;
    let say = |text: &str| {
        if !args.quiet {
            eprintln!("perf-bid record: {text}");
        }
    };
    loop {
        let events = attrs(args, &specs, user_only, tasks != [-1], deferred)?;
        let config = Config { events: &events, tasks, cpus, pages: args.mmap_pages };
        match Session::open(&config) {
            Ok(session) => return Ok((session, events)),
            Err(OpenError::NoEvent { event, .. })
                if specs.iter().any(|spec| spec.name == event && is_cycles(spec)) =>
            {
                let clock = EventSpec::parse("cpu-clock")?;
                let cycles = specs.iter_mut().filter(|spec| is_cycles(spec));
                cycles.for_each(|spec| *spec = clock.clone());
                if !args.event.is_empty() {
                    say(&format!(
                        "no hardware counters here: cpu-clock takes the place of {event}"
                    ));
                }
            }
            Err(OpenError::Permission { .. }) if !user_only && tasks != [-1] => {
                user_only = true;
                say("kernel.perf_event_paranoid does not allow kernel addresses: user mode only");
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_cycles(spec: &EventSpec) -> bool {
    spec.is_hardware() && spec.config == 0
}

/// One attr for each event. All have the same sample format, so that any record can be
/// decoded without knowing its event; the first also reports tasks, names and new mappings, and
/// what was deferred: each event that asks for it gets it, in the same ring buffer.
fn attrs(
    args: &cli::Record,
    specs: &[EventSpec],
    user_only: bool,
    inherit: bool,
    deferred: bool,
) -> Result<Vec<(String, Attr)>> {
    let max_rate = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
    let max_rate = max_rate.ok().and_then(|rate| rate.trim().parse::<u64>().ok());
    if let (Some(freq), Some(max)) = (args.freq, max_rate)
        && freq > max
    {
        bail!("-F {freq} is above kernel.perf_event_max_sample_rate, which is {max}");
    }
    let freq = args.freq.unwrap_or_else(|| DEFAULT_FREQ.min(max_rate.unwrap_or(DEFAULT_FREQ)));
    let command = !args.command.is_empty() && !args.all_cpus;
    let with = |set: bool, bits: u64| if set { bits } else { 0 };
    let attrs = specs.iter().enumerate().map(|(index, spec)| {
        let count =
            args.count.or_else(|| (spec.is_tracepoint() && args.freq.is_none()).then_some(1));
        let attr = Attr {
            sample_period: count.unwrap_or(freq),
            sample_type: scan::SAMPLE_TYPE
                | with(args.callchain, sample::CALLCHAIN_BUILD_ID_OFFSET),
            read_format: read_format::ID | read_format::LOST,
            flags: flag::DISABLED
                | flag::SAMPLE_ID_ALL
                | flag::WATERMARK
                | with(count.is_none(), flag::FREQ)
                | with(inherit, flag::INHERIT)
                | with(command, flag::ENABLE_ON_EXEC)
                | with(user_only, USER_ONLY)
                | with(deferred, flag::DEFER_CALLCHAIN)
                | with(index == 0, SIDE_BAND)
                | with(index == 0 && deferred, flag::DEFER_OUTPUT),
            wakeup: u32::try_from(args.mmap_pages * rustix::param::page_size() / 4)
                .unwrap_or(1 << 20),
            ..spec.attr()
        };
        (spec.name.clone(), attr)
    });
    Ok(attrs.collect())
}

/// Callchains of user-mode samples have kernel frames too, unless that is said.
const USER_ONLY: u64 = flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV | flag::EXCLUDE_CALLCHAIN_KERNEL;

const SIDE_BAND: u64 =
    flag::MMAP | flag::MMAP2 | flag::BUILD_ID | flag::COMM | flag::COMM_EXEC | flag::TASK;

/// A file that is being filled.
struct Recording {
    writer: Writer<Output>,
    scan: Scan,
    /// User addresses are resolved on the way back to user mode.
    deferred: bool,
    /// What one pass over the ring buffers brought.
    pass: Vec<u8>,
    /// COMM records that belong before it.
    names: Vec<u8>,
    /// A record that cannot be read has been reported.
    warned: bool,
}

impl Recording {
    /// Moves records until the watched tasks have ended or a signal asks to stop. Returns
    /// the command's exit status.
    fn follow(
        &mut self,
        args: &cli::Record,
        session: &mut Session,
        mut child: Option<Child>,
        mut signals: Signals,
    ) -> Result<Option<ExitStatus>> {
        let mut status = None;
        let watched = child.is_none();
        loop {
            let alive = session.wait(Some(&signals.wake), PERIOD)?;
            self.drain(args, session)?;
            if let Some(child) = child.as_mut() {
                status = child.try_wait()?;
            }
            let stop = signals.stop();
            if let (true, None, Some(child)) = (stop, status, child.as_mut()) {
                // Ctrl-C reached the command too; a signal to this process alone did not.
                terminate(child);
                status = Some(child.wait()?);
            }
            if stop || status.is_some() || (watched && !alive) {
                break;
            }
        }
        session.disable()?;
        while self.drain(args, session)? > 0 {}
        Ok(status)
    }

    fn drain(&mut self, args: &cli::Record, session: &mut Session) -> Result<usize> {
        self.pass.clear();
        self.names.clear();
        let pass = &mut self.pass;
        let bytes = session.drain(|_, run, wrapped| {
            pass.extend_from_slice(run);
            pass.extend_from_slice(wrapped);
            Ok::<_, std::convert::Infallible>(())
        });
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(never) => match never {},
        };
        if bytes == 0 {
            return Ok(0);
        }
        if let Err(error) = self.scan.take(&self.pass, &mut self.names)
            && !self.warned
        {
            // The records are kept all the same; another version may read them.
            eprintln!("perf-bid record: the kernel wrote a record that cannot be read: {error}");
            self.warned = true;
        }
        for records in [&self.names, &self.pass, &finished_round()] {
            self.writer.write(records).with_context(|| cannot_write(args))?;
        }
        Ok(bytes)
    }

    fn finish(
        self,
        args: &cli::Record,
        session: &Session,
        events: Vec<(String, Vec<u64>)>,
    ) -> Result<()> {
        let lost_samples = session.lost()?.unwrap_or(0);
        let lost = lost_samples.max(self.scan.lost_records);
        let features = Features {
            build_ids: self.scan.build_ids(),
            events,
            sample_time: self.scan.times,
            info: Info { boot_id: boot_id(), lost_samples },
            ..machine()
        };
        let (output, size) = self.writer.finish(&features).with_context(|| cannot_write(args))?;
        output.keep().with_context(|| format!("cannot replace {}", args.output.display()))?;
        if !args.quiet {
            eprintln!(
                "[ perf-bid record: {} samples, {lost} lost, {}, 0 synthesized map records, \
                 written to {} ({:.1} MB) ]",
                self.scan.samples,
                if self.deferred { "deferred" } else { "immediate" },
                args.output.display(),
                size as f64 / 1e6,
            );
        }
        Ok(())
    }
}

fn cannot_write(args: &cli::Record) -> String {
    format!("cannot write {}", args.output.display())
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may just have ended, which is what was wanted.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// The features that describe this machine.
fn machine() -> Features {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| Some(part.to_string_lossy().into_owned());
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let count = |file: &str| {
        let list = std::fs::read_to_string(format!("/sys/devices/system/cpu/{file}")).ok()?;
        u32::try_from(session::parse_cpus(list.trim())?.len()).ok()
    };
    let total = value(&meminfo, "MemTotal");
    Features {
        hostname: text(uname.nodename()),
        os_release: text(uname.release()),
        version: Some(format!("perf-bid {}", env!("CARGO_PKG_VERSION"))),
        arch: text(uname.machine()),
        nr_cpus: count("possible").zip(count("online")),
        cpu_desc: value(&cpuinfo, "model name"),
        total_mem: total.and_then(|kib| kib.split_once(' ')?.0.parse().ok()),
        cmdline: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        ..Features::default()
    }
}

/// SIGINT and SIGTERM end a recording, SIGCHLD says that the command has ended.
struct Signals {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    fn new() -> Result<Self> {
        let stop = std::sync::Arc::default();
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, std::sync::Arc::clone(&stop))?;
        }
        for signal in [SIGINT, SIGTERM, SIGCHLD] {
            signal_hook::low_level::pipe::register(signal, woken.try_clone()?)?;
        }
        Ok(Self { stop, wake })
    }

    fn stop(&mut self) -> bool {
        let mut bytes = [0; 64];
        while self.wake.read(&mut bytes).is_ok_and(|len| len > 0) {}
        self.stop.load(std::sync::atomic::Ordering::Relaxed)
    }
}
