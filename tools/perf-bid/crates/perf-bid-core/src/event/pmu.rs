// SPDX-License-Identifier: GPL-2.0
//! Events of a PMU, by what it says of itself in sysfs: `type`, `format/TERM` (which bits of
//! which config a term's value goes to) and `events/ALIAS` (a list of terms).

use std::path::Path;
use std::path::PathBuf;

use super::EventError;
use super::EventSpec;
use super::Sampling;
use super::number;
use super::suggest::DidYouMean;
use crate::attr::Attr;

/// Terms that every PMU has.
const COMMON: [&str; 7] = ["config", "config1", "config2", "config3", "period", "freq", "name"];

/// A PMU's directory.
#[derive(Debug)]
pub struct Pmu {
    dir: PathBuf,
    type_: u32,
}

/// The event that some PMU calls `name`, if any does.
pub fn alias(pmus: &Path, name: &str) -> Result<Option<EventSpec>, EventError> {
    if !plain(name) {
        return Ok(None);
    }
    match entries(pmus).into_iter().find(|pmu| pmus.join(pmu).join("events").join(name).is_file()) {
        Some(pmu) => Pmu::open(pmus, name, &pmu)?.event(name, name).map(Some),
        None => Ok(None),
    }
}

/// Every PMU's own names.
pub fn aliases(pmus: &Path) -> impl Iterator<Item = String> {
    entries(pmus).into_iter().flat_map(move |pmu| {
        // `NAME.unit` and the like say something about `NAME`.
        let names = entries(&pmus.join(pmu).join("events")).into_iter();
        names.filter(|name| !name.contains('.'))
    })
}

impl Pmu {
    /// The PMU called `pmu`; `name` is the event's, for errors.
    pub fn open(pmus: &Path, name: &str, pmu: &str) -> Result<Self, EventError> {
        let dir = pmus.join(pmu);
        let type_ = std::fs::read_to_string(dir.join("type")).ok();
        match type_.and_then(|type_| type_.trim().parse().ok()).filter(|_| plain(pmu)) {
            Some(type_) => Ok(Self { dir, type_ }),
            None => Err(EventError::NoPmu {
                name: name.to_owned(),
                pmu: pmu.to_owned(),
                closest: DidYouMean::new(pmu, entries(pmus).into_iter()),
            }),
        }
    }

    /// The event that `terms` describe.
    pub fn event(&self, name: &str, terms: &str) -> Result<EventSpec, EventError> {
        let attr = Attr { type_: self.type_, ..Attr::default() };
        let mut spec = EventSpec::new(name, attr);
        let terms: Vec<_> = terms.split(',').filter(|term| !term.is_empty()).collect();
        if terms.is_empty() {
            return Err(error(name, "no terms between the slashes"));
        }
        // What is said in so many words goes before what an alias says.
        let (aliases, plain): (Vec<_>, Vec<_>) =
            terms.into_iter().partition(|term| self.alias(term).is_some());
        for alias in aliases {
            let text = self.alias(alias).unwrap_or_default();
            let own = |term: &&str| {
                let key = key(term);
                !plain.iter().any(|given| self::key(given) == key)
            };
            text.trim().split(',').filter(own).try_for_each(|term| self.term(&mut spec, term))?;
        }
        plain.iter().try_for_each(|term| self.term(&mut spec, term))?;
        Ok(spec)
    }

    fn alias(&self, term: &str) -> Option<String> {
        if !plain(term) || term.contains('=') {
            return None;
        }
        std::fs::read_to_string(self.dir.join("events").join(term)).ok()
    }

    fn term(&self, spec: &mut EventSpec, term: &str) -> Result<(), EventError> {
        let (key, text) = match term.split_once('=') {
            Some((key, text)) => (key, Some(text)),
            None => (term, None),
        };
        if let ("name", Some(text)) = (key, text) {
            text.clone_into(&mut spec.name);
            return Ok(());
        }
        let whole = spec.name.clone();
        let value = |default: Option<u64>| match text.filter(|text| *text != "?") {
            Some(text) => number(text)
                .ok_or_else(|| error(&whole, &format!("`{key}`: `{text}` is no number"))),
            None => default
                .filter(|_| text.is_none())
                .ok_or_else(|| error(&whole, &format!("`{key}` needs a value, as `{key}=1`"))),
        };
        match key {
            "config" => spec.attr.config = value(None)?,
            "config1" => spec.attr.config1 = value(None)?,
            "config2" => spec.attr.config2 = value(None)?,
            "config3" => spec.attr.config3 = value(None)?,
            "period" => spec.sampling = Some(Sampling::Period(value(None)?)),
            "freq" => spec.sampling = Some(Sampling::Frequency(value(None)?)),
            _ => {
                let format = self.format(&whole, key)?;
                // A term of one bit is a switch.
                let value = value((format.width() == 1).then_some(1))?;
                format.put(&mut spec.attr, value).map_err(|why| error(&whole, &why))?;
            }
        }
        Ok(())
    }

    fn format(&self, name: &str, term: &str) -> Result<Format, EventError> {
        let text = plain(term).then(|| std::fs::read_to_string(self.dir.join("format").join(term)));
        let Some(Ok(text)) = text else {
            let own = [self.dir.join("format"), self.dir.join("events")];
            let known = own.iter().flat_map(|dir| entries(dir));
            return Err(EventError::Term {
                name: name.to_owned(),
                why: format!("its PMU has no term `{term}`"),
                closest: DidYouMean::new(term, known.chain(COMMON.map(str::to_owned))),
            });
        };
        Format::parse(term, text.trim())
            .ok_or_else(|| error(name, &format!("the kernel's format of `{term}` is `{text}`")))
    }
}

/// Where the bits of a value go, lowest first: `config1:0-7,32-35`.
#[derive(Debug)]
struct Format {
    term: String,
    config: String,
    bits: Vec<u32>,
}

impl Format {
    fn parse(term: &str, text: &str) -> Option<Self> {
        let (config, ranges) = text.split_once(':')?;
        let mut bits = Vec::new();
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && last < 64).then_some(())?;
            bits.extend(first..=last);
        }
        (bits.len() <= 64).then(|| Self { term: term.to_owned(), config: config.to_owned(), bits })
    }

    fn width(&self) -> usize {
        self.bits.len()
    }

    fn put(&self, attr: &mut Attr, value: u64) -> Result<(), String> {
        let word = match self.config.as_str() {
            "config" => &mut attr.config,
            "config1" => &mut attr.config1,
            "config2" => &mut attr.config2,
            "config3" => &mut attr.config3,
            other => return Err(format!("`{}` goes to `{other}`, which is not known", self.term)),
        };
        let width = self.width();
        if width < 64 && value >> width != 0 {
            return Err(format!("`{}` has {width} bits, too few for {value:#x}", self.term));
        }
        for (at, bit) in self.bits.iter().enumerate() {
            *word = *word & !(1 << bit) | (value >> at & 1) << bit;
        }
        Ok(())
    }
}

fn key(term: &str) -> &str {
    term.split_once('=').map_or(term, |(key, _)| key)
}

/// Whether `name` is the name of a file and not a path.
fn plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}

fn error(name: &str, why: &str) -> EventError {
    EventError::Term { name: name.to_owned(), why: why.to_owned(), closest: DidYouMean::default() }
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
