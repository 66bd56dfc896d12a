// SPDX-License-Identifier: GPL-2.0
//! The figures of a run, and whether they are good enough.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::io::Write;
use std::process::ExitStatus;

use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::Status;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::Args;

/// Mismatches that are described; all are counted.
const DESCRIBED_MAX: usize = 20;

/// One event's share.
#[derive(Clone, Debug, Default)]
pub struct EventFigures {
    pub samples: u64,
    pub resolved: u64,
    pub unresolved: BTreeMap<Status, u64>,
}

impl EventFigures {
    fn file_backed(&self) -> u64 {
        self.resolved + self.unresolved.values().sum::<u64>()
    }

    fn percent(&self) -> f64 {
        percent(self.resolved, self.file_backed())
    }
}

/// Whose share a frame is in.
#[derive(Clone, Copy, Debug)]
pub enum Share {
    /// An event's.
    Event(usize),
    /// What a sample resolved on its own in deferred mode: it does not count for thresholds.
    AtOnce,
}

/// Deferred mode: samples and their records.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairFigures {
    /// Samples with a cookie.
    pub samples: u64,
    /// Different cookies.
    pub cookies: u64,
    /// Records, of both forms and all events.
    pub records: u64,
    /// Cookies with each record once.
    pub pairs: u64,
    /// Cookies with too few records, or too many.
    pub incomplete: u64,
    /// Cookies of threads that had not returned to user mode at the end.
    pub pending: u64,
    /// Cookies of records that no sample has.
    pub unclaimed: u64,
    /// First frames that are the instruction pointer of a sample.
    pub first_frames: u64,
}

impl PairFigures {
    /// The closing line of deferred mode.
    pub fn line(&self) -> String {
        format!(
            "oracle: deferred: {} samples, {} cookies, {} records, {} pairs, {} incomplete, {} \
             pending at the end, {} without a sample, {} first frames equal to the IP",
            self.samples,
            self.cookies,
            self.records,
            self.pairs,
            self.incomplete,
            self.pending,
            self.unclaimed,
            self.first_frames
        )
    }

    fn to_json(self) -> Value {
        json!({
            "samples": self.samples,
            "cookies": self.cookies,
            "records": self.records,
            "pairs": self.pairs,
            "incomplete": self.incomplete,
            "pending": self.pending,
            "unclaimed": self.unclaimed,
            "first_frames": self.first_frames,
        })
    }
}

/// Everything that was counted.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub events: Vec<EventFigures>,
    /// Of [`Share::AtOnce`].
    at_once: EventFigures,
    pub pairs: PairFigures,
    pub kernel_frames: u64,
    pub user_frames: u64,
    /// Frames resolved rightly in a file whose own note was read.
    by_note: u64,
    /// Frames resolved rightly by the ID in the mapping's record; the file is gone.
    by_record: u64,
    pub vdso_resolved: u64,
    pub dsos: BTreeSet<BuildId>,
    /// Judged and right, without being resolved.
    notes: BTreeMap<&'static str, u64>,
    /// Not judged, with the reason.
    unjudged: BTreeMap<&'static str, u64>,
    /// Files with a build ID whose frames were not resolved.
    unresolved_files: BTreeMap<String, u64>,
    pub mismatches: u64,
    described: Vec<String>,
    pub map_records: u64,
    pub processes: u64,
    pub execs: u64,
    pub lost: u64,
    pub status: Option<ExitStatus>,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl Verdict {
    /// For so many events.
    pub fn new(events: usize) -> Self {
        Self { events: vec![EventFigures::default(); events], ..Self::default() }
    }

    /// Counts a sample.
    pub fn sample(&mut self, event: usize) {
        self.events.iter_mut().skip(event).take(1).for_each(|figures| figures.samples += 1);
    }

    /// Counts a frame that is resolved as it should be.
    pub fn resolved(&mut self, share: Share, id: BuildId, by_note: bool) {
        *if by_note { &mut self.by_note } else { &mut self.by_record } += 1;
        self.dsos.insert(id);
        self.share(share).resolved += 1;
    }

    /// Counts a frame in a file with a build ID that has a reason instead.
    pub fn file_unresolved(&mut self, share: Share, status: Status, path: &str) {
        *self.unresolved_files.entry(path.to_owned()).or_default() += 1;
        *self.share(share).unresolved.entry(status).or_default() += 1;
    }

    fn share(&mut self, share: Share) -> &mut EventFigures {
        match share {
            Share::Event(event) => self.events.get_mut(event).unwrap_or(&mut self.at_once),
            Share::AtOnce => &mut self.at_once,
        }
    }

    /// Counts a frame that is right in another way.
    pub fn note(&mut self, what: &'static str) {
        *self.notes.entry(what).or_default() += 1;
    }

    /// Counts a frame that cannot be judged.
    pub fn unjudged(&mut self, why: &'static str) {
        *self.unjudged.entry(why).or_default() += 1;
    }

    /// Counts and describes something that is proven wrong.
    pub fn mismatch(&mut self, what: String) {
        self.mismatches += 1;
        if self.described.len() < DESCRIBED_MAX {
            self.described.push(what);
        }
    }

    fn samples(&self) -> u64 {
        self.events.iter().map(|figures| figures.samples).sum()
    }

    fn frames(&self) -> u64 {
        self.user_frames + self.kernel_frames
    }

    fn all(&self) -> EventFigures {
        let mut all = EventFigures::default();
        for figures in &self.events {
            all.samples += figures.samples;
            all.resolved += figures.resolved;
            for (status, count) in &figures.unresolved {
                *all.unresolved.entry(*status).or_default() += count;
            }
        }
        all
    }

    /// The closing line.
    pub fn line(&self) -> String {
        format!(
            "oracle: {} samples, {} frames checked, {} resolved ({:.3} % of file-backed), {} \
             mismatches, {} DSOs",
            self.samples(),
            self.frames(),
            self.by_note + self.by_record + self.vdso_resolved,
            self.all().percent(),
            self.mismatches,
            self.dsos.len()
        )
    }

    /// What is not good enough.
    pub fn failures(&self, args: &Args) -> Vec<String> {
        let mut failures = Vec::new();
        if self.mismatches > 0 {
            failures.push(format!("{} mismatches", self.mismatches));
        }
        if self.lost > 0 {
            failures.push(format!(
                "{} records lost, so that mappings may be missing: raise -m or lower -F",
                self.lost
            ));
        }
        if self.samples() == 0 {
            failures.push("no samples".to_owned());
        }
        if let Some(min) = args.min_resolved
            && self.all().percent() < min
        {
            failures.push(format!("{:.3} % resolved, not {min} %", self.all().percent()));
        }
        let mut at_least = |what: &str, have: u64, min: Option<u64>| {
            if let Some(min) = min.filter(|&min| have < min) {
                failures.push(format!("{have} {what}, not {min}"));
            }
        };
        at_least("samples", self.samples(), args.min_samples);
        at_least("DSOs", self.dsos.len() as u64, args.min_dsos);
        failures
    }

    /// Prints the table.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut row = |count: u64, what: &str| writeln!(out, "  {count:>9}  {what}");
        row(self.samples(), "samples")?;
        row(self.map_records, "records of mappings")?;
        row(self.processes, "processes forked")?;
        row(self.execs, "programs executed")?;
        row(self.lost, "records lost")?;
        row(self.kernel_frames, "kernel frames, passed through unchanged")?;
        row(self.user_frames, "user frames, of which")?;
        row(self.by_note, "  resolved: build ID and offset equal to the file's own")?;
        row(self.by_record, "  resolved: equal to the mapping's record (the file is gone)")?;
        row(self.vdso_resolved, "  resolved: in the vDSO")?;
        for (status, count) in &self.all().unresolved {
            row(*count, &format!("  in a file with a build ID, not resolved: [{status}]"))?;
        }
        if self.at_once.file_backed() > 0 {
            row(self.at_once.file_backed(), "  of them, not deferred, as the task was exiting")?;
        }
        for (status, count) in &self.at_once.unresolved {
            row(*count, &format!("    of which not resolved: [{status}]"))?;
        }
        for (what, count) in &self.notes {
            row(*count, &format!("  {what}"))?;
        }
        for (why, count) in &self.unjudged {
            row(*count, &format!("  not judged: {why}"))?;
        }
        row(self.mismatches, "MISMATCHES")?;
        if self.events.len() > 1 {
            for (index, figures) in self.events.iter().enumerate() {
                let reasons: Vec<_> = figures
                    .unresolved
                    .iter()
                    .map(|(status, count)| format!(", {count} [{status}]"))
                    .collect();
                writeln!(
                    out,
                    "  event {index}: {} samples, {} of {} file-backed frames resolved ({:.3} %){}",
                    figures.samples,
                    figures.resolved,
                    figures.file_backed(),
                    figures.percent(),
                    reasons.concat()
                )?;
            }
        }
        let mut files: Vec<_> = self.unresolved_files.iter().collect();
        files.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (path, count) in files.iter().take(8) {
            writeln!(out, "  not resolved: {count:>6} in {path}")?;
        }
        for what in &self.described {
            writeln!(out, "  mismatch: {what}")?;
        }
        if let Some(status) = self.status.filter(|status| !status.success()) {
            writeln!(out, "  (the command ended with {status})")?;
        }
        Ok(())
    }

    /// The same as an object.
    pub fn to_json(&self) -> Value {
        let all = self.all();
        let statuses = |counts: &BTreeMap<Status, u64>| {
            let rows = counts.iter().map(|(status, count)| (status.to_string(), (*count).into()));
            Value::Object(rows.collect::<Map<_, _>>())
        };
        json!({
            "samples": self.samples(),
            "frames": self.frames(),
            "kernel_frames": self.kernel_frames,
            "user_frames": self.user_frames,
            "resolved": all.resolved,
            "resolved_by_note": self.by_note,
            "resolved_by_record": self.by_record,
            "resolved_in_vdso": self.vdso_resolved,
            "file_backed": all.file_backed(),
            "resolved_percent": all.percent(),
            "unresolved": statuses(&all.unresolved),
            "deferred": self.pairs.to_json(),
            "at_once": {
                "resolved": self.at_once.resolved,
                "unresolved": statuses(&self.at_once.unresolved),
            },
            "right_otherwise": self.notes,
            "unjudged": self.unjudged,
            "mismatches": self.mismatches,
            "described": self.described,
            "dsos": self.dsos.len(),
            "map_records": self.map_records,
            "processes": self.processes,
            "execs": self.execs,
            "lost": self.lost,
            "events": self.events.iter().map(|figures| json!({
                "samples": figures.samples,
                "resolved": figures.resolved,
                "file_backed": figures.file_backed(),
                "resolved_percent": figures.percent(),
                "unresolved": statuses(&figures.unresolved),
            })).collect::<Vec<_>>(),
        })
    }
}
