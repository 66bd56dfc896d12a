// SPDX-License-Identifier: GPL-2.0
//! The report as one JSON object: `totals` with the counts of the footer, and `events` with
//! the rows of each table. Periods are in the event's unit, shares in percent.

use perf_bid_core::data::PerfData;
use perf_bid_core::profile::Profile;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::columns::key_name;
use super::header::lost;
use super::names::Names;
use super::rows::Row;
use super::view::View;

/// Builds the object.
pub fn value(data: &PerfData, profile: &Profile, names: &Names, views: &[View<'_>]) -> Value {
    let totals = &profile.totals;
    let unresolved: Map<_, _> = totals
        .unresolved
        .iter()
        .map(|(status, count)| (status.to_string(), Value::from(*count)))
        .collect();
    json!({
        "totals": {
            "samples": totals.samples,
            "lost": lost(data, profile),
            "frames": totals.frames,
            "kernel_frames": totals.kernel_frames,
            "user_frames": totals.frames.saturating_sub(totals.kernel_frames),
            "file_backed_user_frames": totals.file_backed(),
            "resolved_user_frames": totals.resolved,
            "resolved_percent": totals.resolved_percent(),
            "unresolved": unresolved,
            "deferred_chains": totals.chains.deferred,
            "missing_deferred_chains": totals.chains.missing,
            "deferred_records": totals.chains.records,
            "repeated_deferred_records": totals.chains.repeated,
            "unclaimed_deferred_records": totals.chains.unclaimed,
            "build_ids": names.build_ids(),
            "synthesized_map_records": totals.synthesized_maps,
            "kernel_map_records": totals.kernel_maps,
        },
        "events": views.iter().map(event).collect::<Vec<_>>(),
    })
}

fn event(view: &View<'_>) -> Value {
    json!({
        "name": view.name,
        "samples": view.calls.shown.samples,
        "period": view.calls.shown.period,
        "rows": view.shown().iter().map(|row| json_row(view, row)).collect::<Vec<_>>(),
    })
}

fn json_row(view: &View<'_>, row: &Row) -> Value {
    let mut object = Map::new();
    object.insert("overhead".into(), view.share(row.own).into());
    if view.settings.children {
        object.insert("children".into(), view.share(row.total).into());
    }
    object.insert("samples".into(), row.own.samples.into());
    object.insert("period".into(), row.own.period.into());
    for &key in view.columns.keys() {
        object.insert(key_name(key).into(), view.columns.cell(key, row.task, row.symbol).into());
    }
    Value::Object(object)
}
