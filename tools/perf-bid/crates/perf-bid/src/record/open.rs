// SPDX-License-Identifier: GPL-2.0
//! Opens the events that the options ask for. Where the user left something open, what the
//! machine and the permissions allow is taken, and said.

use std::fmt;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::attr::AttrBuilder;
use perf_bid_core::attr::BuildError;
use perf_bid_core::event::EventSpec;
use perf_bid_core::session;
use perf_bid_core::session::Config;
use perf_bid_core::session::OpenError;
use perf_bid_core::session::Session;

use super::target::Target;
use crate::cli;
use crate::cli::CallGraph;
use crate::cli::Frequency;

const DEFAULT_FREQ: u64 = 4000;

const DEFAULT_PAGES: usize = 512;

/// Fewer pages than this lose more than they save.
const MIN_PAGES: usize = 16;

/// How addresses are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// As addresses, and not as build IDs.
    pub plain: bool,
    /// User frames come on the way back to user mode.
    pub deferred: bool,
}

/// Open events.
pub struct Opened {
    pub session: Session,
    /// With the names to show.
    pub events: Vec<(String, Attr)>,
    pub mode: Mode,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.plain, self.deferred) {
            (true, true) => "plain addresses, deferred",
            (true, false) => "plain addresses",
            (false, true) => "deferred",
            (false, false) => "immediate",
        })
    }
}

/// What may have to change until the kernel takes it.
struct Plan<'a> {
    args: &'a cli::Record,
    specs: Vec<EventSpec>,
    mode: Mode,
    user_only: bool,
    pages: usize,
}

/// Opens the events.
pub fn open(args: &cli::Record, target: &Target) -> Result<Opened> {
    let mut plan = Plan {
        args,
        specs: specs(&args.event)?,
        mode: mode(args)?,
        user_only: args.all_user,
        pages: args.mmap_pages.unwrap_or(DEFAULT_PAGES),
    };
    check_limits(args)?;
    loop {
        let events = plan.attrs(target)?;
        let config =
            Config { events: &events, tasks: &target.tasks, cpus: &target.cpus, pages: plan.pages };
        match Session::open(&config) {
            Ok(session) => return Ok(Opened { session, events, mode: plan.mode }),
            Err(error) => plan.give_in(error, target)?,
        }
    }
}

fn specs(lists: &[String]) -> Result<Vec<EventSpec>> {
    let lists = if lists.is_empty() { &["cpu-cycles".to_owned()][..] } else { lists };
    let mut specs = Vec::new();
    for list in lists {
        specs.extend(EventSpec::parse_list(list)?);
    }
    Ok(specs)
}

fn mode(args: &cli::Record) -> Result<Mode> {
    let can_defer = || match args.plain {
        true => session::accepts_plain_deferral(),
        false => session::accepts_deferral(),
    };
    let deferred = match args.call_graph {
        Some(CallGraph::Dwarf) => bail!(
            "--call-graph dwarf: copies of stacks are unwound afterwards by the maps of the \
             process, which a recording with build IDs does not have; use fp or defer, or \
             `perf record`"
        ),
        Some(CallGraph::Lbr) => bail!(
            "--call-graph lbr: branch records are addresses, for which the kernel has no \
             build-ID form; use fp or defer, or `perf record`"
        ),
        Some(CallGraph::Defer) if args.immediate => {
            bail!("--call-graph defer and --immediate contradict each other")
        }
        Some(CallGraph::Defer) if args.plain && !can_defer() => bail!(
            "--call-graph defer: this kernel ({}) has no deferred callchains",
            session::kernel_release()
        ),
        // Without the build-ID bits, it is them that have to be named.
        Some(CallGraph::Defer) if session::accepts_build_id_bits() && !can_defer() => bail!(
            "--call-graph defer: this kernel ({}) was built without CONFIG_UNWIND_USER",
            session::kernel_release()
        ),
        Some(CallGraph::Defer) => true,
        Some(CallGraph::Fp) => false,
        // Stock perf knows deferred callchains only since 6.19.
        None => !args.immediate && !args.plain && can_defer(),
    };
    Ok(Mode { plain: args.plain, deferred })
}

fn sysctl(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    text.ok().and_then(|text| text.trim().parse().ok())
}

/// What the kernel would answer with a bare EINVAL or EOVERFLOW.
fn check_limits(args: &cli::Record) -> Result<()> {
    let max = sysctl("perf_event_max_sample_rate");
    if let (Some(Frequency::Hz(freq)), Some(max)) = (args.freq, max)
        && freq > max
    {
        bail!("-F {freq} is above kernel.perf_event_max_sample_rate, which is {max}");
    }
    let max = sysctl("perf_event_max_stack");
    if let (Some(frames), Some(max)) = (args.max_stack, max)
        && u64::from(frames) > max
    {
        bail!("--max-stack {frames} is above kernel.perf_event_max_stack, which is {max}");
    }
    Ok(())
}

impl Plan<'_> {
    /// One attr for each event. All have the same sample format, so that any record can be
    /// decoded without knowing its event; the first also reports tasks, names and new
    /// mappings, and what was deferred: each event that asks for it gets it, in the same ring
    /// buffer.
    fn attrs(&self, target: &Target) -> Result<Vec<(String, Attr)>> {
        let attrs = self.specs.iter().enumerate().map(|(index, spec)| {
            let attr = self.attr(spec, target, index == 0);
            let attr = attr.with_context(|| format!("event `{}`", spec.name))?;
            Ok((spec.name.clone(), attr))
        });
        attrs.collect()
    }

    fn attr(&self, spec: &EventSpec, target: &Target, first: bool) -> Result<Attr, BuildError> {
        let (args, mode) = (self.args, self.mode);
        let callchain = args.callchain || args.call_graph.is_some();
        // Without callchains, addresses have no user part that could come later.
        let deferred = mode.deferred && (callchain || !mode.plain);
        let watermark = self.pages * rustix::param::page_size() / 4;
        let tasks = target.is_tasks();
        let builder = self.sampling(spec, Attr::builder(spec));
        builder
            .when(!mode.plain, AttrBuilder::build_id_offset)
            .when(callchain && !mode.plain, AttrBuilder::callchain_build_id_offset)
            .when(callchain && mode.plain, AttrBuilder::callchain)
            .when(deferred, AttrBuilder::deferred)
            .when(deferred && first, AttrBuilder::deferred_output)
            .when(first, AttrBuilder::side_band)
            .when(tasks && !args.no_inherit, AttrBuilder::inherit)
            .when(target.is_command && args.delay.is_none(), AttrBuilder::enable_on_exec)
            .when(self.user_only, AttrBuilder::user_only)
            .when(args.all_kernel, AttrBuilder::kernel_only)
            .when(args.kernel_callchains, |it| it.flags(flag::EXCLUDE_CALLCHAIN_USER))
            .when(args.user_callchains, |it| it.flags(flag::EXCLUDE_CALLCHAIN_KERNEL))
            .when(args.data, |it| it.sample(sample::ADDR))
            .when(args.weight, |it| it.sample(sample::WEIGHT))
            .max_stack(args.max_stack.unwrap_or(0))
            .watermark(u32::try_from(watermark).unwrap_or(1 << 30))
            .when(args.clockid.is_some(), |it| it.clock(args.clockid.unwrap_or_default()))
            .build()
    }

    /// What the options say; else what the event's name says; else the default of its kind.
    fn sampling(&self, spec: &EventSpec, builder: AttrBuilder) -> AttrBuilder {
        let max = sysctl("perf_event_max_sample_rate").unwrap_or(DEFAULT_FREQ);
        match (self.args.count, self.args.freq) {
            (Some(count), _) => builder.period(count),
            (None, Some(Frequency::Hz(freq))) => builder.frequency(freq),
            (None, Some(Frequency::Max)) => builder.frequency(max),
            (None, None) if spec.sampling.is_some() => builder,
            (None, None) if spec.is_sampled_one_by_one() => builder.period(1),
            (None, None) => builder.frequency(DEFAULT_FREQ.min(max)),
        }
    }

    /// Changes the plan so that `error` does not come again, or returns it.
    fn give_in(&mut self, error: OpenError, target: &Target) -> Result<()> {
        match &error {
            OpenError::NoEvent { event, .. } | OpenError::Invalid { event, .. }
                if let Some(spec) = named(&mut self.specs, event)
                    && spec.max_precise
                    && spec.precise() > 0 =>
            {
                spec.set_precise(spec.precise() - 1);
            }
            OpenError::NoEvent { event, .. }
                if let Some(spec) = named(&mut self.specs, event)
                    && spec.is_cycles() =>
            {
                *spec = spec.as_cpu_clock();
                if !self.args.event.is_empty() {
                    self.say(&format!(
                        "no hardware counters here: cpu-clock takes the place of {event}"
                    ));
                }
            }
            OpenError::Permission { .. }
                if !self.user_only && !self.args.all_kernel && target.is_tasks() =>
            {
                self.user_only = true;
                self.say(
                    "kernel.perf_event_paranoid does not allow kernel addresses: user mode only",
                );
            }
            OpenError::Locked { .. }
                if self.args.mmap_pages.is_none() && self.pages > MIN_PAGES =>
            {
                self.pages /= 2;
            }
            OpenError::NoBuildIdBits { .. } => {
                bail!("{error}. `--plain` records addresses and maps here, as perf does");
            }
            _ => return Err(error.into()),
        }
        Ok(())
    }

    fn say(&self, text: &str) {
        if !self.args.quiet {
            super::say(format_args!("perf-bid record: {text}"));
        }
    }
}

fn named<'a>(specs: &'a mut [EventSpec], name: &str) -> Option<&'a mut EventSpec> {
    specs.iter_mut().find(|spec| spec.name == name)
}
