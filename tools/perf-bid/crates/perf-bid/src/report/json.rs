// SPDX-License-Identifier: GPL-2.0
//! The report as one JSON object: `totals` with the counts of the footer, and `events` with
//! the rows of each table. Periods are in the event's unit, shares in percent.

use perf_bid_core::data::PerfData;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::names::Names;
use super::profile::Profile;
use super::profile::percent;
use super::table;
use crate::cli::SortKey;

/// Builds the object.
pub fn value(data: &PerfData, profile: &Profile, names: &Names, columns: &[SortKey]) -> Value {
    let totals = &profile.totals;
    let unresolved: Map<_, _> = totals
        .unresolved
        .iter()
        .map(|(status, count)| (status.to_string(), Value::from(*count)))
        .collect();
    let events: Vec<_> = data
        .events()
        .iter()
        .zip(&profile.events)
        .map(|(desc, event)| {
            let rows = table::rows(event, profile, names, columns);
            json!({
                "name": desc.name,
                "samples": event.weight.samples,
                "period": event.weight.period,
                "rows": rows.iter().map(|row| json_row(row, event.weight.period, columns)).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "totals": {
            "samples": totals.samples,
            "lost": totals.lost.max(data.features().info.lost_samples),
            "frames": totals.frames,
            "kernel_frames": totals.kernel_frames,
            "user_frames": totals.frames - totals.kernel_frames,
            "file_backed_user_frames": totals.file_backed(),
            "resolved_user_frames": totals.resolved,
            "resolved_percent": totals.resolved_percent(),
            "unresolved": unresolved,
            "deferred_chains": totals.chains.deferred,
            "missing_deferred_chains": totals.chains.missing,
            "deferred_records": totals.chains.records,
            "repeated_deferred_records": totals.chains.repeated,
            "unclaimed_deferred_records": totals.chains.unclaimed,
            "build_ids": totals.build_ids.len(),
            "synthesized_map_records": totals.synthesized_maps,
            "kernel_map_records": totals.kernel_maps,
        },
        "events": events,
    })
}

fn json_row(row: &table::Row, whole: u64, columns: &[SortKey]) -> Value {
    let mut object = Map::new();
    object.insert("overhead".into(), percent(row.weight.period, whole).into());
    object.insert("samples".into(), row.weight.samples.into());
    object.insert("period".into(), row.weight.period.into());
    for (column, cell) in columns.iter().zip(&row.cells) {
        let key = match column {
            SortKey::Comm => "comm",
            SortKey::Dso => "dso",
            SortKey::Symbol => "symbol",
            SortKey::Buildid => "buildid",
        };
        object.insert(key.into(), cell.as_str().into());
    }
    Value::Object(object)
}
