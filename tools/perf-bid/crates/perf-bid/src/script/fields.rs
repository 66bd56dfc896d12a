// SPDX-License-Identifier: GPL-2.0
//! The field list of `-F`: perf's names, and three of our own.

use anyhow::Result;
use anyhow::bail;
use perf_bid_core::abi::sample;
use perf_bid_core::data::EventDesc;

/// Names, and the bit of `sample_type` without which a field cannot be printed.
const FIELDS: [(&str, Field, u64); 18] = [
    ("comm", Field::Comm, 0),
    ("tid", Field::Tid, sample::TID),
    ("pid", Field::Pid, sample::TID),
    ("time", Field::Time, sample::TIME),
    ("cpu", Field::Cpu, sample::CPU),
    ("event", Field::Event, 0),
    ("period", Field::Period, 0),
    ("addr", Field::Addr, sample::ADDR),
    ("weight", Field::Weight, sample::WEIGHT | sample::WEIGHT_STRUCT),
    ("ip", Field::Ip, 0),
    ("sym", Field::Sym, 0),
    ("symoff", Field::Symoff, 0),
    ("dso", Field::Dso, 0),
    ("dsoff", Field::Dsoff, 0),
    ("srcline", Field::Srcline, 0),
    ("buildid", Field::Buildid, 0),
    ("offset", Field::Offset, 0),
    ("status", Field::Status, 0),
];

/// Something to print of a sample or of each of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Field {
    Comm = 1 << 0,
    Tid = 1 << 1,
    Pid = 1 << 2,
    Time = 1 << 3,
    Cpu = 1 << 4,
    Event = 1 << 5,
    Period = 1 << 6,
    Addr = 1 << 7,
    Weight = 1 << 8,
    Ip = 1 << 9,
    Sym = 1 << 10,
    Symoff = 1 << 11,
    Dso = 1 << 12,
    Dsoff = 1 << 13,
    Srcline = 1 << 14,
    /// The build ID of the frame's file.
    Buildid = 1 << 15,
    /// The offset in the frame's file.
    Offset = 1 << 16,
    /// Whether the frame was resolved, or why not.
    Status = 1 << 17,
}

/// The fields to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    bits: u32,
}

impl Default for Fields {
    fn default() -> Self {
        use Field::*;
        let all = [Comm, Tid, Cpu, Time, Period, Event, Ip, Sym, Symoff, Dso];
        Self { bits: all.iter().fold(0, |bits, &field| bits | field as u32) }
    }
}

impl Fields {
    /// Reads a list such as `comm,ip,sym` or `+srcline,-period`.
    pub fn parse(list: &str) -> Result<Self> {
        let is_change = |name: &str| name.starts_with(['+', '-']);
        let names = || list.split(',').map(str::trim).filter(|name| !name.is_empty());
        let changes = names().filter(|name| is_change(name)).count();
        if changes != 0 && changes != names().count() {
            bail!("-F {list}: either all fields have a + or a -, or none has");
        }
        let mut fields = if changes == 0 { Self { bits: 0 } } else { Self::default() };
        for name in names() {
            let (remove, name) = match name.strip_prefix('-') {
                Some(name) => (true, name),
                None => (false, name.strip_prefix('+').unwrap_or(name)),
            };
            let Some((_, field, _)) = FIELDS.iter().find(|(known, ..)| *known == name) else {
                let known: Vec<_> = FIELDS.iter().map(|(known, ..)| *known).collect();
                bail!("-F {list}: unknown field `{name}`; known are: {}", known.join(", "));
            };
            let bit = *field as u32;
            fields.bits = if remove { fields.bits & !bit } else { fields.bits | bit };
        }
        if fields.bits == 0 {
            bail!("-F {list}: no field is left to print");
        }
        Ok(fields)
    }

    /// Whether `field` is to be printed.
    pub fn has(self, field: Field) -> bool {
        self.bits & field as u32 != 0
    }

    /// Whether anything of frames is to be printed.
    pub fn has_frames(self) -> bool {
        self.bits >= Field::Ip as u32
    }

    /// Fails if a field that is not among the default ones is not in the samples of `event`.
    pub fn check(self, event: &EventDesc) -> Result<()> {
        let default = Self::default();
        let asked = FIELDS.iter().filter(|(_, field, _)| self.has(*field) && !default.has(*field));
        for (name, _, bits) in asked {
            if *bits != 0 && event.attr.sample_type & bits == 0 {
                bail!("the samples of {} have no {name}; it was not recorded", event.name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use perf_bid_core::attr::Attr;

    use super::*;

    #[test]
    fn lists_and_changes() {
        let fields = Fields::parse("ip,sym").unwrap();
        assert!(fields.has(Field::Ip) && fields.has(Field::Sym) && !fields.has(Field::Comm));
        assert!(fields.has_frames() && !Fields::parse("comm,weight").unwrap().has_frames());
        let fields = Fields::parse("+srcline,-period").unwrap();
        assert!(fields.has(Field::Srcline) && fields.has(Field::Comm));
        assert!(!fields.has(Field::Period));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (list, word) in
            [("ip,smy", "`smy`"), ("ip,+sym", "or none"), ("", "no field"), ("-x", "`x`")]
        {
            let error = Fields::parse(list).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let everything: Vec<_> = FIELDS.iter().map(|(name, ..)| *name).collect();
        assert!(Fields::parse(&everything.join(",")).is_ok());
    }

    #[test]
    fn a_field_that_was_not_recorded() {
        let event = Attr { sample_type: sample::IP, ..Attr::default() };
        let format = (&event).into();
        let desc = EventDesc { attr: event, ids: Vec::new(), name: "cs".into(), format };
        assert!(Fields::default().check(&desc).is_ok());
        let error = Fields::parse("+addr").unwrap().check(&desc).unwrap_err().to_string();
        assert!(error.contains("cs") && error.contains("addr"), "{error}");
    }
}
