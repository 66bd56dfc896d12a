// SPDX-License-Identifier: GPL-2.0
//! Event names, as `perf list` spells them, and what they are in a `perf_event_attr`.

use thiserror::Error;

use crate::attr::Attr;

const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;

/// `(name, alias, type, config)`: `PERF_COUNT_HW_*` and `PERF_COUNT_SW_*`.
const EVENTS: [(&str, &str, u32, u64); 21] = [
    ("cpu-cycles", "cycles", TYPE_HARDWARE, 0),
    ("instructions", "", TYPE_HARDWARE, 1),
    ("cache-references", "", TYPE_HARDWARE, 2),
    ("cache-misses", "", TYPE_HARDWARE, 3),
    ("branch-instructions", "branches", TYPE_HARDWARE, 4),
    ("branch-misses", "", TYPE_HARDWARE, 5),
    ("bus-cycles", "", TYPE_HARDWARE, 6),
    ("stalled-cycles-frontend", "idle-cycles-frontend", TYPE_HARDWARE, 7),
    ("stalled-cycles-backend", "idle-cycles-backend", TYPE_HARDWARE, 8),
    ("ref-cycles", "", TYPE_HARDWARE, 9),
    ("cpu-clock", "", TYPE_SOFTWARE, 0),
    ("task-clock", "", TYPE_SOFTWARE, 1),
    ("page-faults", "faults", TYPE_SOFTWARE, 2),
    ("context-switches", "cs", TYPE_SOFTWARE, 3),
    ("cpu-migrations", "migrations", TYPE_SOFTWARE, 4),
    ("minor-faults", "", TYPE_SOFTWARE, 5),
    ("major-faults", "", TYPE_SOFTWARE, 6),
    ("alignment-faults", "", TYPE_SOFTWARE, 7),
    ("emulation-faults", "", TYPE_SOFTWARE, 8),
    ("dummy", "", TYPE_SOFTWARE, 9),
    ("cgroup-switches", "", TYPE_SOFTWARE, 11),
];

/// What to count.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct EventSpec {
    /// As the user wrote it.
    pub name: String,
    pub type_: u32,
    pub config: u64,
}

/// Why a name is no event.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventError {
    #[error("empty event name; known are: {known}, or a tracepoint as `group:name`")]
    Empty { known: String },
    #[error("event `{name}`: modifiers such as `:u` are not supported, use `{event}`")]
    Modifier { name: String, event: String },
    #[error("unknown event `{name}`; known are: {known}, or a tracepoint as `group:name`")]
    Unknown { name: String, known: String },
    #[error(
        "tracepoint `{0}`: no readable `events/{path}/id` in tracefs (mount tracefs at \
         /sys/kernel/tracing, and be root)",
        path = .0.replace(':', "/")
    )]
    Tracepoint(String),
}

impl EventSpec {
    /// Looks `name` up: a name of the table above, or a tracepoint `group:name`.
    pub fn parse(name: &str) -> Result<Self, EventError> {
        if name.is_empty() {
            return Err(EventError::Empty { known: known() });
        }
        let spec = |type_, config| Self { name: name.to_owned(), type_, config };
        if let Some((group, event)) = name.split_once(':') {
            if find(group).is_some() {
                return Err(EventError::Modifier {
                    name: name.to_owned(),
                    event: group.to_owned(),
                });
            }
            return tracepoint_id(group, event)
                .map(|id| spec(TYPE_TRACEPOINT, id))
                .ok_or_else(|| EventError::Tracepoint(name.to_owned()));
        }
        find(name)
            .map(|(type_, config)| spec(type_, config))
            .ok_or_else(|| EventError::Unknown { name: name.to_owned(), known: known() })
    }

    /// Whether the event needs a performance counter of the processor.
    pub fn is_hardware(&self) -> bool {
        self.type_ == TYPE_HARDWARE
    }

    /// Whether every occurrence may be sampled by default (period 1), as perf does for
    /// tracepoints.
    pub fn is_tracepoint(&self) -> bool {
        self.type_ == TYPE_TRACEPOINT
    }

    /// An attr that counts this event and nothing else.
    pub fn attr(&self) -> Attr {
        Attr { type_: self.type_, config: self.config, ..Attr::default() }
    }
}

/// The type and config of an event of the table.
fn find(name: &str) -> Option<(u32, u64)> {
    // Most events have no alias, which is an empty one in the table.
    let named = |full: &str, alias: &str| !name.is_empty() && (full == name || alias == name);
    let found = EVENTS.iter().find(|(full, alias, ..)| named(full, alias));
    found.map(|&(_, _, type_, config)| (type_, config))
}

fn known() -> String {
    EVENTS.map(|(full, ..)| full).join(", ")
}

fn tracepoint_id(group: &str, event: &str) -> Option<u64> {
    let plain = |part: &str| !part.is_empty() && !part.contains(['/', '.']);
    if !plain(group) || !plain(event) {
        return None;
    }
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].iter().find_map(|root| {
        let id = std::fs::read_to_string(format!("{root}/events/{group}/{event}/id")).ok()?;
        id.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases() {
        assert_eq!(EventSpec::parse("cycles").unwrap().config, 0);
        assert!(EventSpec::parse("cycles").unwrap().is_hardware());
        assert_eq!(EventSpec::parse("cs").unwrap().config, 3);
        let error = EventSpec::parse("cpu-clok").unwrap_err().to_string();
        assert!(error.contains("cpu-clok") && error.contains("cpu-clock"), "{error}");
        let error = EventSpec::parse("no:such").unwrap_err().to_string();
        assert!(error.contains("events/no/such/id"), "{error}");
        assert!(EventSpec::parse("../x:y").is_err());
    }

    #[test]
    fn an_empty_name_is_no_event() {
        let error = EventSpec::parse("").unwrap_err().to_string();
        assert!(error.contains("empty") && error.contains("cpu-clock"), "{error}");
        let error = EventSpec::parse(":u").unwrap_err();
        assert!(matches!(error, EventError::Tracepoint(_)), "{error}");
    }

    #[test]
    fn modifiers_are_refused_by_name() {
        for (name, event) in [("cycles:u", "cycles"), ("cpu-clock:u", "cpu-clock"), ("cs:pp", "cs")]
        {
            let error = EventSpec::parse(name).unwrap_err();
            let text = error.to_string();
            assert_eq!(error, EventError::Modifier { name: name.into(), event: event.into() });
            assert!(text.contains(name) && text.contains(&format!("use `{event}`")), "{text}");
        }
    }
}
