// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::ValueEnum;

use crate::record::units;

/// `perf-bid record`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perf-bid record -g -- xz -k big.tar      profile a command, with callchains
  perf-bid record -e cpu-clock -F 999 -a -- sleep 10
  perf-bid record -p 1234,1240             until they end, or Ctrl-C
  perf-bid record -e 'sched:*' -g -u www-data --duration 30
  perf-bid record -a -g --switch-output=1m --switch-max-files 60
  perf-bid record -a -o - | perf-bid report -i -

Events are named as by `perf list`: cpu-clock, L1-dcache-load-misses, r1a8,
cpu/event=0xc0,umask=1/, sched:sched_switch, mem:0x7f0012345678/4:w. A colon and letters after
it narrow an event down: u k h (user, kernel, hypervisor only), G H (guests, host only),
I (not idle), D (pinned), e (exclusive), p pp ppp P (precise).

Exit status: that of the command (128 + N if signal N ended it); 1 on an error of its own.")]
pub struct Record {
    /// Event to sample; may be repeated or a list [default: cpu-cycles, or cpu-clock where
    /// there are no hardware counters]
    #[arg(short, long = "event", value_name = "EVENT")]
    pub event: Vec<String>,

    /// Samples per second, or `max` [default: 4000]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count",
          value_parser = units::frequency)]
    pub freq: Option<Frequency>,

    /// Events from one sample to the next
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Everything that runs on any CPU
    #[arg(short, long, conflicts_with_all = ["pid", "tid", "uid"])]
    pub all_cpus: bool,

    /// These CPUs only (`0,2-3`); everything on them, unless tasks are named
    #[arg(short = 'C', long, value_name = "LIST")]
    pub cpu: Option<String>,

    /// Processes that run already, with all their threads
    #[arg(short, long, value_name = "PID", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Vec<i32>,

    /// Threads that run already
    #[arg(short, long, value_name = "TID", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..))]
    pub tid: Vec<i32>,

    /// The processes of a user, by name or number, that run already
    #[arg(short, long, value_name = "USER")]
    pub uid: Option<String>,

    /// Do not follow children of the tasks
    #[arg(short = 'i', long)]
    pub no_inherit: bool,

    /// User mode only
    #[arg(long, conflicts_with = "all_kernel")]
    pub all_user: bool,

    /// Kernel mode only
    #[arg(long)]
    pub all_kernel: bool,

    /// Record callchains
    #[arg(short = 'g')]
    pub callchain: bool,

    /// Record callchains, and when user frames are looked at [default with -g: defer where
    /// the kernel can, else fp]
    #[arg(long, value_name = "WHEN", value_enum)]
    pub call_graph: Option<CallGraph>,

    /// Most frames of a callchain [default: kernel.perf_event_max_stack]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_stack: Option<u16>,

    /// Only the kernel's part of callchains
    #[arg(long, conflicts_with = "user_callchains")]
    pub kernel_callchains: bool,

    /// Only the user's part of callchains
    #[arg(long)]
    pub user_callchains: bool,

    /// Have user addresses resolved when the sample is taken, where page faults are not
    /// allowed, even if the kernel can do it on the way back to user mode
    #[arg(long)]
    pub immediate: bool,

    /// Plain addresses and maps, as perf records them: works on every kernel since 6.0;
    /// convert with `perf-bid inject`
    #[arg(long)]
    pub plain: bool,

    /// What to add about tasks older than the recording
    #[arg(long, value_name = "WHAT", value_enum)]
    pub synth: Option<Synth>,

    /// Data address of the sample (PERF_SAMPLE_ADDR)
    #[arg(short, long)]
    pub data: bool,

    /// Weight of the sample: what it cost, if the processor says (PERF_SAMPLE_WEIGHT)
    #[arg(short = 'W', long)]
    pub weight: bool,

    /// Clock of the times: monotonic, monotonic_raw, realtime, boottime, tai or a number
    /// [default: the kernel's own]
    #[arg(short = 'k', long, value_name = "CLOCK", value_parser = units::clock)]
    pub clockid: Option<i32>,

    /// Time of the sample: always recorded
    #[arg(short = 'T', long, hide = true)]
    pub timestamp: bool,

    /// CPU of the sample: always recorded
    #[arg(long, hide = true)]
    pub sample_cpu: bool,

    /// File to write, `-` for a pipe on standard output; an older file is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "perf.data",
          value_parser = super::output())]
    pub output: PathBuf,

    /// Compress records with zstd, from level 1 (fast) to 22 (small)
    #[arg(short = 'z', long = "compression-level", value_name = "LEVEL", num_args = 0..=1,
          require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(i32).range(1..=22))]
    pub compression: Option<i32>,

    /// Each CPU's ring buffer: pages, a power of two, or a size such as 2M [default: 512
    /// pages, or what the limit of locked memory allows]
    #[arg(short, long, value_name = "PAGES", value_parser = units::ring_pages)]
    pub mmap_pages: Option<usize>,

    /// Wait before the events start
    #[arg(short = 'D', long, value_name = "MS")]
    pub delay: Option<u64>,

    /// End the recording after this time (and the command, with SIGTERM)
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub duration: Option<Duration>,

    /// End the recording at this size of the file; also K, M, G
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub max_size: Option<u64>,

    /// Go on in a new file, named after the time, at SIGUSR2 (`signal`), at a size (`100M`)
    /// or after a time (`30s`, `5m`, `1h`)
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "signal", value_parser = units::switch_output)]
    pub switch_output: Option<SwitchOutput>,

    /// Keep only the newest files
    #[arg(long, value_name = "N", requires = "switch_output",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub switch_max_files: Option<u32>,

    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,

    /// Say what is opened, and how
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,

    /// Command to run and profile; with -a, -C, -p, -t or -u, how long to record those
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// How often to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// As often as the kernel lets anybody.
    Max,
    /// Times a second.
    Hz(u64),
}

/// How user frames are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CallGraph {
    /// By frame pointers, when the sample is taken
    Fp,
    /// By frame pointers, on the way back to user mode
    Defer,
    /// Refused: copies stacks instead of build IDs
    #[value(hide = true)]
    Dwarf,
    /// Refused: has branches instead of build IDs
    #[value(hide = true)]
    Lbr,
}

/// What to add about tasks older than the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Synth {
    /// Nothing: no process and no file is looked at
    No,
    /// Names of threads that were sampled, and where files are whose build ID was hit
    /// [default]
    Needed,
    /// Names, parents and mappings of all processes watched, as perf does [default with
    /// --plain]
    All,
}

/// When to go on in a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchOutput {
    /// At SIGUSR2.
    Signal,
    /// When the file has so many bytes.
    Size(u64),
    /// Each time so much time has gone by.
    Time(Duration),
}
