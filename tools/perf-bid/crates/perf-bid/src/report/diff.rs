// SPDX-License-Identifier: GPL-2.0
//! How one recording differs from another: shares in the new one less those in the old one,
//! greatest change first. Rows are matched by what is written in them, as files and functions
//! may lie elsewhere in a new build.

use std::collections::BTreeMap;
use std::io;
use std::io::Write;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::columns::key_name;
use super::columns::title;
use super::table;
use super::table::Layout;
use super::table::grouped;
use super::view::View;
use crate::cli::Field;

/// A row of either recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// By column.
    pub cells: Vec<String>,
    /// Share in the old recording, in percent.
    pub old: f64,
    /// Share in the new recording, in percent.
    pub new: f64,
}

impl Change {
    fn delta(&self) -> f64 {
        self.new - self.old
    }
}

/// The changes of an event, greatest first.
pub fn changes(old: &View<'_>, new: &View<'_>) -> Vec<Change> {
    let mut rows: BTreeMap<Vec<String>, (f64, f64)> = BTreeMap::new();
    for (view, is_new) in [(old, false), (new, true)] {
        for row in &view.rows.rows {
            let keys = view.columns.keys().iter();
            let cells = keys.map(|&key| view.columns.cell(key, row.task, row.symbol)).collect();
            let share = view.share(row.own);
            let sums = rows.entry(cells).or_default();
            *(if is_new { &mut sums.1 } else { &mut sums.0 }) += share;
        }
    }
    let mut changes: Vec<_> =
        rows.into_iter().map(|(cells, (old, new))| Change { cells, old, new }).collect();
    changes.sort_by(|a, b| {
        let by_size = b.delta().abs().total_cmp(&a.delta().abs());
        by_size.then_with(|| b.new.total_cmp(&a.new))
    });
    changes
}

/// Writes the changes of an event as a table.
pub fn write(
    out: &mut impl Write,
    old: &View<'_>,
    new: &View<'_>,
    layout: &Layout,
) -> io::Result<()> {
    writeln!(out, "# Event '{}'", new.name)?;
    writeln!(
        out,
        "# Samples: {} before, {} after",
        grouped(old.calls.shown.samples),
        grouped(new.calls.shown.samples)
    )?;
    writeln!(out, "#")?;
    let all = changes(old, new);
    let limit = new.settings.limit;
    let shown: Vec<_> = all
        .iter()
        .filter(|change| change.old.max(change.new) >= limit)
        .take(new.settings.rows)
        .collect();
    let keys = new.columns.keys();
    let mut fields = vec![Field::Overhead; 3];
    fields.extend(keys.iter().map(|&key| Field::Key(key)));
    let mut titles: Vec<_> = ["Baseline", "New", "Delta"].map(str::to_owned).into();
    titles.extend(keys.iter().map(|&key| title(key).to_owned()));
    let cells: Vec<_> = shown.iter().map(|change| cells(change)).collect();
    if let Some(separator) = &layout.separator {
        writeln!(out, "# {}", titles.join(separator))?;
        return cells
            .iter()
            .try_for_each(|row| writeln!(out, "{}", table::separated(row, separator)));
    }
    let widths = table::widths(&fields, &titles, &cells);
    let dots: Vec<_> = widths.iter().map(|&width| ".".repeat(width)).collect();
    writeln!(out, "{}", layout.cut(&table::line("# ", &fields, &titles, &widths)))?;
    writeln!(out, "{}", layout.cut(&table::line("# ", &fields, &dots, &widths)))?;
    writeln!(out, "#")?;
    for (change, cells) in shown.iter().zip(&cells) {
        // More is red and less is green, from where it matters.
        let style = match change.delta() {
            delta if delta >= 0.5 => layout.style(5.0),
            delta if delta <= -0.5 => layout.style(0.5),
            _ => layout.style(0.0),
        };
        let text = table::line("  ", &fields, cells, &widths);
        let (numbers, rest) = layout.cut(&text).split_at_checked(30).unwrap_or(("", &text));
        writeln!(out, "{style}{numbers}{style:#}{rest}")?;
    }
    match all.len() - shown.len() {
        0 => Ok(()),
        hidden => writeln!(out, "# ({} more rows)", grouped(hidden as u64)),
    }
}

fn cells(change: &Change) -> Vec<String> {
    let share = |share: f64| if share > 0.0 { format!("{share:.2}%") } else { String::new() };
    let delta = format!("{:+.2}%", change.delta());
    let numbers = [share(change.old), share(change.new), delta];
    numbers.into_iter().chain(change.cells.iter().cloned()).collect()
}

/// The changes of an event as JSON.
pub fn value(old: &View<'_>, new: &View<'_>) -> Value {
    let row = |change: Change| {
        let mut object = Map::new();
        object.insert("baseline".into(), change.old.into());
        object.insert("new".into(), change.new.into());
        object.insert("delta".into(), change.delta().into());
        for (&key, cell) in new.columns.keys().iter().zip(change.cells) {
            object.insert(key_name(key).into(), cell.into());
        }
        Value::Object(object)
    };
    json!({
        "name": new.name,
        "samples": [old.calls.shown.samples, new.calls.shown.samples],
        "rows": changes(old, new).into_iter().map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::fixture;
    use super::super::fixture::Chain;
    use super::*;

    #[test]
    fn greatest_change_comes_first() {
        let old: &[Chain<'_>] = &[("a", &["same"], 50), ("a", &["gone"], 30), ("a", &["up"], 20)];
        let new: &[Chain<'_>] = &[("a", &["same"], 100), ("a", &["new"], 20), ("a", &["up"], 80)];
        let (old, new) = (fixture::profile(&[old]), fixture::profile(&[new]));
        let args = ["--sort", "sym", "--no-children"];
        let old = fixture::view(&old.0, &old.1, &args);
        let new = fixture::view(&new.0, &new.1, &args);
        let mut out = Vec::new();
        write(&mut out, &old, &new, &Layout::default()).unwrap();
        let expected = "\
# Event 'event-0'
# Samples: 3 before, 3 after
#
# Baseline       New     Delta  Symbol
# ........  ........  ........  ........
#
    30.00%             -30.00%  [.] gone
    20.00%    40.00%   +20.00%  [.] up
              10.00%   +10.00%  [.] new
    50.00%    50.00%    +0.00%  [.] same
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
