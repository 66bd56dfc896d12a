// SPDX-License-Identifier: GPL-2.0
//! Event names, as `perf list` spells them, and what they are in a `perf_event_attr`.
//!
//! | written                          | is                                                  |
//! | -------------------------------- | --------------------------------------------------- |
//! | `cpu-clock`, `cycles`            | software and hardware events that every kernel names |
//! | `L1-dcache-load-misses`          | a hardware cache event                              |
//! | `r1a8`                           | a raw event of the processor, in hexadecimal        |
//! | `cpu/event=0xc0,umask=1/`        | an event of a PMU, by the terms it has in sysfs     |
//! | `cpu/mem-loads/`, `mem-loads`    | the same by an alias that the PMU has in sysfs      |
//! | `sched:sched_switch`, `sched:*`  | tracepoints, globs included                         |
//! | `mem:0x7f0012345678/4:rw`        | a breakpoint on an address                          |
//!
//! Modifiers follow after a colon (or directly after a PMU's second slash): `u`, `k`, `h`
//! (only user mode, kernel, hypervisor), `G`, `H` (only guests, only the host), `I` (not when
//! idle), `D` (pinned), `e` (exclusive), `p` to `ppp` (precise) and `P` (as precise as it can
//! be).
//!
//! ```
//! use perf_bid_core::event::EventSpec;
//!
//! // A comma within slashes does not end an event.
//! let events = EventSpec::parse_list("cpu-clock:u,L1-dcache-load-misses,r1a8")?;
//! let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
//! assert_eq!(names, ["cpu-clock:u", "L1-dcache-load-misses", "r1a8"]);
//!
//! let error = EventSpec::parse("cpu-clok").unwrap_err().to_string();
//! assert!(error.contains("did you mean `cpu-clock`"));
//! # Ok::<_, perf_bid_core::event::EventError>(())
//! ```

mod modifiers;
mod names;
mod pmu;
mod suggest;
mod tracepoint;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use self::modifiers::Modifiers;
use self::suggest::DidYouMean;
use crate::attr::Attr;

const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const TYPE_HW_CACHE: u32 = 3;
const TYPE_RAW: u32 = 4;
const TYPE_BREAKPOINT: u32 = 5;

/// What to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// As the user wrote it, a glob filled in.
    pub name: String,
    /// How often to sample, if the name says so (`period=` or `freq=` of a PMU event).
    pub sampling: Option<Sampling>,
    /// Modifier `P`: the highest `precise_ip` that the event takes.
    pub max_precise: bool,
    attr: Attr,
}

/// How often to take a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Once in so many events.
    Period(u64),
    /// So many times a second; the kernel adapts the period.
    Frequency(u64),
}

/// Why a name is no event.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventError {
    #[error("empty event name; known are: {known}, or a tracepoint as `group:name`")]
    Empty { known: String },
    #[error("event `{name}`: {why}")]
    Modifiers { name: String, why: String },
    #[error(
        "unknown event `{name}`{closest}; known are: {known}, cache events such as \
         L1-dcache-load-misses, raw events as `r1a8` or `cpu/event=0xa8/`, or a tracepoint as \
         `group:name`"
    )]
    Unknown { name: String, closest: DidYouMean, known: String },
    #[error(
        "tracepoint `{name}`: no readable `events/{path}/id` in tracefs (mount tracefs at \
         /sys/kernel/tracing, and be root)"
    )]
    NoTracefs { name: String, path: String },
    #[error("there is no tracepoint `{name}`{closest}")]
    NoTracepoint { name: String, closest: DidYouMean },
    #[error("event `{name}`: there is no PMU `{pmu}` in /sys/bus/event_source/devices{closest}")]
    NoPmu { name: String, pmu: String, closest: DidYouMean },
    #[error("event `{name}`: {why}{closest}")]
    Term { name: String, why: String, closest: DidYouMean },
    #[error("event `{name}`: {why}; a breakpoint is `mem:ADDRESS[/LENGTH][:rwx]`")]
    Breakpoint { name: String, why: String },
    #[error(
        "`{0}`: groups are not supported, as each sample stands for itself; give the events one \
         by one"
    )]
    Group(String),
}

/// Where the kernel lists its events.
#[derive(Debug)]
struct Catalog {
    /// A directory for each PMU.
    pmus: PathBuf,
    /// Mount points of tracefs.
    tracefs: Vec<PathBuf>,
}

impl Catalog {
    fn system() -> Self {
        Self {
            pmus: "/sys/bus/event_source/devices".into(),
            tracefs: vec!["/sys/kernel/tracing".into(), "/sys/kernel/debug/tracing".into()],
        }
    }

    fn parse_list(&self, list: &str) -> Result<Vec<EventSpec>, EventError> {
        let mut all = Vec::new();
        for name in split_list(list) {
            all.extend(self.parse(name)?);
        }
        Ok(all)
    }

    /// One name; more than one event only if it is a glob of tracepoints.
    fn parse(&self, name: &str) -> Result<Vec<EventSpec>, EventError> {
        if name.is_empty() {
            return Err(EventError::Empty { known: names::known() });
        }
        if name.contains(['{', '}']) {
            return Err(EventError::Group(name.to_owned()));
        }
        if let Some(place) = name.strip_prefix("mem:") {
            return breakpoint(name, place).map(|spec| vec![spec]);
        }
        if let Some((pmu, rest)) = name.split_once('/') {
            return self.pmu_event(name, pmu, rest).map(|spec| vec![spec]);
        }
        let (head, tail) = match name.split_once(':') {
            Some((head, tail)) => (head, Some(tail)),
            None => (name, None),
        };
        match (self.plain(head)?, tail) {
            (Some(spec), tail) => spec.named(name).modified(tail).map(|spec| vec![spec]),
            (None, Some(tail)) => self.tracepoints(name, head, tail),
            (None, None) => Err(EventError::Unknown {
                name: name.to_owned(),
                closest: DidYouMean::new(name, names::all().chain(pmu::aliases(&self.pmus))),
                known: names::known(),
            }),
        }
    }

    /// An event whose name has neither slash nor colon.
    fn plain(&self, name: &str) -> Result<Option<EventSpec>, EventError> {
        if let Some((type_, config)) = names::find(name) {
            return Ok(Some(EventSpec::new(name, Attr { type_, config, ..Attr::default() })));
        }
        pmu::alias(&self.pmus, name)
    }

    fn pmu_event(&self, name: &str, pmu: &str, rest: &str) -> Result<EventSpec, EventError> {
        let Some((terms, tail)) = rest.rsplit_once('/') else {
            return Err(EventError::Term {
                name: name.to_owned(),
                why: "the second slash is missing".to_owned(),
                closest: DidYouMean::default(),
            });
        };
        let spec = pmu::Pmu::open(&self.pmus, name, pmu)?.event(name, terms)?;
        let tail = (!tail.is_empty()).then(|| tail.strip_prefix(':').unwrap_or(tail));
        spec.modified(tail)
    }

    fn tracepoints(
        &self,
        name: &str,
        group: &str,
        tail: &str,
    ) -> Result<Vec<EventSpec>, EventError> {
        let (event, modifiers) = match tail.split_once(':') {
            Some((event, modifiers)) => (event, Some(modifiers)),
            None => (tail, None),
        };
        let found = tracepoint::find(&self.tracefs, name, group, event)?;
        let specs = found.into_iter().map(|(group, event, id)| {
            let shown = match modifiers {
                Some(modifiers) => format!("{group}:{event}:{modifiers}"),
                None => format!("{group}:{event}"),
            };
            let attr = Attr { type_: TYPE_TRACEPOINT, config: id, ..Attr::default() };
            EventSpec::new(&shown, attr).modified(modifiers)
        });
        specs.collect()
    }
}

impl EventSpec {
    fn new(name: &str, attr: Attr) -> Self {
        Self { name: name.to_owned(), sampling: None, max_precise: false, attr }
    }

    /// Looks one name up. A glob is an error unless it stands for one event.
    pub fn parse(name: &str) -> Result<Self, EventError> {
        let mut all = Catalog::system().parse(name)?;
        match (all.pop(), all.is_empty()) {
            (Some(spec), true) => Ok(spec),
            _ => Err(EventError::Term {
                name: name.to_owned(),
                why: "more than one event has such a name".to_owned(),
                closest: DidYouMean::default(),
            }),
        }
    }

    /// Looks up the names of a list. Commas separate them, but not within a PMU's slashes.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, EventError> {
        Catalog::system().parse_list(list)
    }

    /// Whether the event is counted by one of the processor's counters.
    pub fn is_hardware(&self) -> bool {
        matches!(self.attr.type_, TYPE_HARDWARE | TYPE_HW_CACHE | TYPE_RAW)
    }

    /// Whether it is `cpu-cycles`, with whatever modifiers.
    pub fn is_cycles(&self) -> bool {
        self.attr.type_ == TYPE_HARDWARE && self.attr.config == 0
    }

    /// Whether every occurrence is sampled unless something else is asked for, as perf does
    /// for tracepoints and breakpoints.
    pub fn is_sampled_one_by_one(&self) -> bool {
        matches!(self.attr.type_, TYPE_TRACEPOINT | TYPE_BREAKPOINT)
    }

    /// The same modifiers on `cpu-clock`, for machines without counters. A clock's interrupt
    /// is as precise as it is.
    pub fn as_cpu_clock(&self) -> Self {
        let name = match self.name.split_once(':') {
            Some((_, modifiers)) => format!("cpu-clock:{modifiers}"),
            None => "cpu-clock".to_owned(),
        };
        let attr = Attr { type_: TYPE_SOFTWARE, config: 0, ..self.attr.clone() };
        Self { name, max_precise: false, attr: modifiers::with_precise(attr, 0), ..self.clone() }
    }

    /// Changes `precise_ip`, from 0 to 3.
    pub fn set_precise(&mut self, precise: u8) {
        self.attr = modifiers::with_precise(self.attr.clone(), precise);
    }

    /// `precise_ip`, from 0 to 3.
    pub fn precise(&self) -> u8 {
        modifiers::precise(&self.attr)
    }

    /// Whether `attr` is a tracepoint's.
    pub fn is_tracepoint(attr: &Attr) -> bool {
        attr.type_ == TYPE_TRACEPOINT
    }

    /// An attr that counts this event and nothing else.
    pub fn attr(&self) -> Attr {
        self.attr.clone()
    }

    fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    fn modified(mut self, text: Option<&str>) -> Result<Self, EventError> {
        let Some(text) = text else {
            return Ok(self);
        };
        let modifiers = Modifiers::parse(text)
            .map_err(|why| EventError::Modifiers { name: self.name.clone(), why })?;
        self.max_precise = modifiers.max_precise;
        self.attr = modifiers.apply(self.attr);
        Ok(self)
    }
}

/// The `TRACING_DATA` feature for the tracepoints `names`, without which stock perf reads no
/// file that has some.
pub fn tracing_data(names: &[&str]) -> io::Result<Vec<u8>> {
    tracepoint::tracing_data(&Catalog::system().tracefs, names)
}

/// Splits at the commas that are not within slashes. The one slash of a breakpoint has no
/// second.
fn split_list(list: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut start, mut within) = (0, false);
    for (at, byte) in list.bytes().enumerate() {
        let name = list.get(start..at).unwrap_or_default();
        match byte {
            b'/' if !name.starts_with("mem:") => within = !within,
            b',' if !within => {
                names.push(name);
                start = at + 1;
            }
            _ => {}
        }
    }
    names.push(list.get(start..).unwrap_or_default());
    names
}

/// A number as perf takes it: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `ADDRESS[/LENGTH][:rwx][:modifiers]`
fn breakpoint(name: &str, place: &str) -> Result<EventSpec, EventError> {
    let error = |why: &str| EventError::Breakpoint { name: name.to_owned(), why: why.to_owned() };
    let mut parts = place.split(':');
    let range = parts.next().unwrap_or_default();
    let (address, len) = match range.split_once('/') {
        Some((address, len)) => (address, Some(number(len).ok_or_else(|| error("bad length"))?)),
        None => (range, None),
    };
    let address = number(address).ok_or_else(|| error("bad address"))?;
    let mut rest: Vec<_> = parts.collect();
    let access = match rest.first() {
        Some(part) if !part.is_empty() && part.bytes().all(|byte| b"rwx".contains(&byte)) => {
            rest.remove(0)
        }
        _ => "rw",
    };
    // HW_BREAKPOINT_R, _W, _X: include/uapi/linux/hw_breakpoint.h
    let bits = [('r', 1), ('w', 2), ('x', 4)];
    let bp_type = bits.iter().filter(|(letter, _)| access.contains(*letter)).map(|(_, bit)| bit);
    // What the kernel wants for code is the size of a long.
    let default_len = if access == "x" { size_of::<libc::c_long>() as u64 } else { 4 };
    let attr = Attr {
        type_: TYPE_BREAKPOINT,
        bp_type: bp_type.sum(),
        config1: address,
        config2: len.unwrap_or(default_len),
        ..Attr::default()
    };
    match rest.as_slice() {
        [] => Ok(EventSpec::new(name, attr)),
        [modifiers] => EventSpec::new(name, attr).modified(Some(modifiers)),
        _ => Err(error("too many colons")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::flag;

    /// A PMU and some tracepoints, as sysfs and tracefs show them.
    fn catalog(dir: &std::path::Path) -> Catalog {
        let files = [
            ("pmus/cpu/type", "4\n"),
            ("pmus/cpu/format/event", "config:0-7,32-35\n"),
            ("pmus/cpu/format/umask", "config:8-15\n"),
            ("pmus/cpu/format/any", "config:21\n"),
            ("pmus/cpu/format/ldlat", "config1:0-15\n"),
            ("pmus/cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
            ("pmus/cpu/events/mem-loads.unit", "x\n"),
            ("pmus/cpu/events/with-hole", "event=?\n"),
            ("tracing/events/sched/sched_switch/id", "316\n"),
            ("tracing/events/sched/sched_wakeup/id", "319\n"),
            ("tracing/events/irq/irq_handler_entry/id", "150\n"),
            ("tracing/events/enable", "0\n"),
        ];
        for (path, text) in files {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Catalog { pmus: dir.join("pmus"), tracefs: vec![dir.join("tracing")] }
    }

    fn one(catalog: &Catalog, name: &str) -> EventSpec {
        let mut all = catalog.parse_list(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(all.len(), 1, "{name}");
        assert_eq!(all[0].name, name);
        all.remove(0)
    }

    #[test]
    fn names_and_aliases() {
        assert_eq!(EventSpec::parse("cycles").unwrap().attr().config, 0);
        assert!(EventSpec::parse("cycles").unwrap().is_cycles());
        assert_eq!(EventSpec::parse("cs").unwrap().attr().config, 3);
        let error = EventSpec::parse("no:such").unwrap_err().to_string();
        assert!(error.contains("no:such"), "{error}");
        assert!(EventSpec::parse("../x:y").is_err());
    }

    #[test]
    fn closest_names_are_suggested() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = catalog(dir.path());
        let cases = [
            ("cpu-clok", "did you mean `cpu-clock`"),
            ("mem-load", "`mem-loads`"),
            ("L1-dcache-load-mises", "`L1-dcache-load-misses`"),
            ("sched:sched_swich", "`sched:sched_switch`"),
            ("shed:sched_switch", "`sched:sched_switch`"),
            ("cpo/event=1/", "`cpu`"),
            ("cpu/evnt=1/", "`event`"),
            ("zzzzzzzzzzzz", "; known are"),
        ];
        for (name, says) in cases {
            let error = catalog.parse(name).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(says), "{error}");
        }
    }

    #[test]
    fn events_that_make_no_sense_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = catalog(dir.path());
        let cases = [
            ("", "empty"),
            ("cycles,", "empty"),
            (",", "empty"),
            ("{cycles,cs}", "one by one"),
            ("cycles:", "empty list of modifiers"),
            ("cycles:ux", "`x`"),
            ("cycles:pppp", "3 times"),
            ("cpu/event=1", "second slash"),
            ("cpu/event=0x1000/", "12 bits"),
            ("cpu/event=x/", "`x` is no number"),
            ("cpu/event/", "needs a value"),
            ("cpu/with-hole/", "needs a value"),
            ("cpu//", "no terms"),
            ("../cpu/event=1/", "no PMU"),
            ("mem:x", "bad address"),
            ("mem:0x10/y", "bad length"),
            ("mem:0x10:rw:u:k", "colons"),
            ("sched:none*", "no tracepoint"),
            ("sched:../sched/sched_switch", "no "),
            (":u", "no tracepoint"),
        ];
        for (name, says) in cases {
            let error = catalog.parse_list(name).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
        let none = Catalog { pmus: "/nowhere".into(), tracefs: vec!["/nowhere".into()] };
        let error = none.parse("sched:x").unwrap_err().to_string();
        assert!(error.contains("events/sched/x/id") && error.contains("mount tracefs"), "{error}");
    }

    #[test]
    fn pmu_events_are_built_from_their_terms() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = catalog(dir.path());
        let attr = |name| one(&catalog, name).attr();
        assert_eq!(attr("cpu/event=0x3c/").config, 0x3c);
        // The upper bits of a value go where the format says.
        assert_eq!(attr("cpu/event=0xa3c,umask=2,any/").config, 0xa_0020_023c);
        assert_eq!(attr("cpu/config=5,config1=6,config2=7/").config2, 7);
        let loads = attr("cpu/mem-loads,ldlat=30/");
        assert_eq!((loads.type_, loads.config, loads.config1), (4, 0x1cd, 30));
        assert_eq!(attr("mem-loads").config1, 3);
        assert_eq!(attr("mem-loads:u").flags & flag::EXCLUDE_KERNEL, flag::EXCLUDE_KERNEL);
        assert_eq!(attr("cpu/event=1/k").flags & flag::EXCLUDE_USER, flag::EXCLUDE_USER);
        let spec = &catalog.parse("cpu/event=1,period=1000/").unwrap()[0];
        assert_eq!(spec.sampling, Some(Sampling::Period(1000)));
        let spec = &catalog.parse("cpu/event=1,freq=9,name=mine/").unwrap()[0];
        assert_eq!((spec.sampling, spec.name.as_str()), (Some(Sampling::Frequency(9)), "mine"));
        let raw = attr("r1A8");
        assert_eq!((raw.type_, raw.config), (TYPE_RAW, 0x1a8));
    }

    #[test]
    fn commas_within_slashes_do_not_split() {
        let dir = tempfile::tempdir().unwrap();
        let specs = catalog(dir.path())
            .parse_list("cpu/event=1,umask=2/u,mem:0x10/8:w,cycles:ppp,irq:irq_handler_entry")
            .unwrap();
        let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(
            names,
            ["cpu/event=1,umask=2/u", "mem:0x10/8:w", "cycles:ppp", "irq:irq_handler_entry"]
        );
        assert_eq!((specs[1].attr().bp_type, specs[1].attr().config2), (2, 8));
        assert_eq!(specs[2].precise(), 3);
        assert!(specs[3].is_sampled_one_by_one());
    }

    #[test]
    fn tracepoints_by_name_and_by_glob() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = catalog(dir.path());
        assert_eq!(one(&catalog, "sched:sched_switch").attr().config, 316);
        let names = |list: &str| -> Vec<_> {
            catalog.parse_list(list).unwrap().into_iter().map(|spec| spec.name).collect()
        };
        assert_eq!(names("sched:*"), ["sched:sched_switch", "sched:sched_wakeup"]);
        assert_eq!(names("*:*entry:u"), ["irq:irq_handler_entry:u"]);
        assert_eq!(names("sched:sched_w?keup"), ["sched:sched_wakeup"]);
    }

    #[test]
    fn breakpoints() {
        let attr = EventSpec::parse("mem:0x1000:x").unwrap().attr();
        assert_eq!((attr.type_, attr.bp_type, attr.config1), (5, 4, 0x1000));
        assert_eq!(attr.config2, size_of::<libc::c_long>() as u64);
        let attr = EventSpec::parse("mem:4096/2:w:u").unwrap().attr();
        assert_eq!((attr.bp_type, attr.config1, attr.config2), (2, 4096, 2));
        assert!(attr.has_flags(flag::EXCLUDE_KERNEL));
        assert_eq!(EventSpec::parse("mem:1:u").unwrap().attr().bp_type, 3);
    }

    #[test]
    fn modifiers_survive_the_change_to_a_clock() {
        let clock = EventSpec::parse("cycles:upp").unwrap().as_cpu_clock();
        assert_eq!((clock.name.as_str(), clock.precise()), ("cpu-clock:upp", 0));
        assert_eq!((clock.attr().type_, clock.attr().config), (TYPE_SOFTWARE, 0));
        assert!(clock.attr().has_flags(flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV));
    }
}
