// SPDX-License-Identifier: GPL-2.0
//! What is known about a recording as a whole: the lines over the tables, and those below that
//! say how much of it could be resolved.

use std::io;
use std::io::Write;

use perf_bid_core::abi::sample;
use perf_bid_core::data::PerfData;
use perf_bid_core::profile::Profile;
use perf_bid_core::profile::Totals;

use super::columns::printable;
use super::names::Names;
use super::table::grouped;

/// Whether samples name files by build ID.
pub fn has_build_ids(data: &PerfData) -> bool {
    data.events().iter().any(|event| event.attr.wants_build_ids())
}

/// Whether samples have callchains.
pub fn has_callchains(data: &PerfData) -> bool {
    let chains = sample::CALLCHAIN | sample::CALLCHAIN_BUILD_ID_OFFSET;
    data.events().iter().any(|event| event.attr.sample_type & chains != 0)
}

/// Writes what the feature sections say, as `perf report --header` names it.
pub fn features(out: &mut impl Write, data: &PerfData) -> io::Result<()> {
    let features = data.features();
    writeln!(out, "# ========")?;
    let texts = [
        ("hostname", &features.hostname),
        ("os release", &features.os_release),
        ("perf version", &features.version),
        ("arch", &features.arch),
        ("cpudesc", &features.cpu_desc),
    ];
    for (what, text) in texts {
        if let Some(text) = text {
            writeln!(out, "# {what} : {}", printable(text))?;
        }
    }
    if let Some((available, online)) = features.nr_cpus {
        writeln!(out, "# nrcpus online : {online}")?;
        writeln!(out, "# nrcpus avail : {available}")?;
    }
    if let Some(total) = features.total_mem {
        writeln!(out, "# total memory : {total} kB")?;
    }
    if !features.cmdline.is_empty() {
        writeln!(out, "# cmdline : {}", one_line(&features.cmdline.join(" "), 2000))?;
    }
    for event in data.events() {
        let attr = &event.attr;
        writeln!(
            out,
            "# event : name = {}, type = {}, config = {:#x}, sample_type = {:#x}, \
             period or frequency = {}, ids = {}",
            printable(&event.name),
            attr.type_,
            attr.config,
            attr.sample_type,
            attr.sample_period,
            event.ids.len()
        )?;
    }
    if let Some((first, last)) = features.sample_time {
        writeln!(out, "# time of first sample : {}", seconds(first))?;
        writeln!(out, "# time of last sample : {}", seconds(last))?;
        let duration = last.saturating_sub(first) as f64 / 1e6;
        writeln!(out, "# sample duration : {duration:.3} ms")?;
    }
    writeln!(out, "# build IDs : {}", features.build_ids.len())?;
    writeln!(out, "# data size : {}", data.data_len())?;
    writeln!(out, "# ========\n#")
}

fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// Writes the lines over all tables.
pub fn top(out: &mut impl Write, data: &PerfData, profile: &Profile) -> io::Result<()> {
    let features = data.features();
    if !features.cmdline.is_empty() {
        writeln!(out, "# Recorded by: {}", one_line(&features.cmdline.join(" "), 200))?;
    }
    let kernel = features.os_release.as_deref().unwrap_or("unknown");
    writeln!(out, "# Kernel: {}", printable(kernel))?;
    writeln!(out, "# Total Lost Samples: {}", grouped(lost(data, profile)))?;
    writeln!(out, "#")
}

/// Samples and records that the kernel dropped.
pub fn lost(data: &PerfData, profile: &Profile) -> u64 {
    profile.totals.lost.max(data.features().info.lost_samples)
}

/// At most `max` characters, without line breaks and other control characters.
pub fn one_line(text: &str, max: usize) -> String {
    let mut line: String = text.chars().take(max).collect();
    let shortened = line.len() < text.len();
    line = printable(&line);
    if shortened {
        line.push('…');
    }
    line
}

/// One line of totals, for scripts. `build_ids`: the recording names files by build ID, not by
/// mapping.
pub fn totals_line(totals: &Totals, build_ids: bool) -> String {
    let chains = match totals.chains.deferred {
        0 => String::new(),
        deferred => {
            format!(", {} of {deferred} deferred callchains missing", totals.chains.missing)
        }
    };
    format!(
        "{} samples, {} frames, {:.2} % of file-backed user frames {}, {} synthesized map \
         records{chains}",
        totals.samples,
        totals.frames,
        totals.resolved_percent(),
        if build_ids { "resolved by build ID" } else { "in the file of a mapping" },
        totals.synthesized_maps
    )
}

/// Everything that [`bottom`] tells about.
pub struct Bottom<'a> {
    /// Sums.
    pub profile: &'a Profile,
    /// What was found.
    pub names: &'a Names,
    /// The recording names files by build ID, not by mapping.
    pub build_ids: bool,
    /// Why there are no kernel symbols.
    pub kernel_refusal: Option<&'a str>,
}

/// Writes what is known about the whole: how many frames were resolved, and why others not.
pub fn bottom(out: &mut impl Write, data: &PerfData, of: &Bottom<'_>) -> io::Result<()> {
    let totals = &of.profile.totals;
    writeln!(
        out,
        "# {} frames: {} in user mode, {} in the kernel",
        grouped(totals.frames),
        grouped(totals.frames.saturating_sub(totals.kernel_frames)),
        grouped(totals.kernel_frames)
    )?;
    writeln!(
        out,
        "# {}: {} of {} ({:.2} %), {} files",
        if of.build_ids {
            "File-backed user frames resolved by build ID"
        } else {
            "User frames in the file of a mapping"
        },
        grouped(totals.resolved),
        grouped(totals.file_backed()),
        totals.resolved_percent(),
        of.names.files()
    )?;
    if !totals.unresolved.is_empty() {
        let mut reasons: Vec<_> = totals.unresolved.iter().collect();
        reasons.sort_unstable();
        let reasons: Vec<_> = reasons
            .iter()
            .map(|(status, count)| format!("{} [{status}]", grouped(**count)))
            .collect();
        writeln!(out, "# Other user frames: {}", reasons.join(", "))?;
    }
    if totals.chains.deferred > 0 {
        writeln!(
            out,
            "# Deferred callchains: {}, of which {} missing",
            grouped(totals.chains.deferred),
            grouped(totals.chains.missing)
        )?;
    }
    if of.build_ids {
        writeln!(
            out,
            "# Map records: {} synthesized, {} of new mappings",
            totals.synthesized_maps, totals.kernel_maps
        )?;
    }
    without_files(out, of.names)?;
    for why in of.names.doubts() {
        writeln!(out, "# Names may be wrong: {}", printable(why))?;
    }
    if let (true, Some(why)) = (totals.kernel_frames > 0, of.kernel_refusal) {
        writeln!(out, "# No kernel symbols: {why}")?;
    }
    for line in data.unreadable_features() {
        writeln!(out, "# {line}")?;
    }
    Ok(())
}

fn without_files(out: &mut impl Write, names: &Names) -> io::Result<()> {
    for (id, why) in names.without_file().take(8) {
        writeln!(out, "# No symbols for {}: {}", id.short(), printable(why))?;
    }
    match names.without_file().count().saturating_sub(8) {
        0 => Ok(()),
        more => writeln!(out, "# (and for {more} more)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_claim_build_ids_only_where_there_are_any() {
        let totals = Totals { samples: 3, frames: 4, ..Totals::default() };
        let [with, without] = [true, false].map(|build_ids| totals_line(&totals, build_ids));
        assert!(
            with.starts_with("3 samples, 4 frames, ") && with.contains("by build ID"),
            "{with}"
        );
        assert!(!without.contains("build ID") && without.contains("mapping"), "{without}");
    }
}
