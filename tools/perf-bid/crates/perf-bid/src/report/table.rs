// SPDX-License-Identifier: GPL-2.0
//! The report as text: a table for each event, heaviest row first, with the trees of its rows.

use std::io;
use std::io::Write;

use anstyle::AnsiColor;
use anstyle::Style;

use super::columns::title;
use super::graph;
use super::view::View;
use crate::cli::Field;

/// How text is laid out.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Columns are apart by this and not aligned.
    pub separator: Option<String>,
    /// Longest line, in characters; 0 if there is no limit.
    pub width: usize,
    /// Whether to colour shares.
    pub colours: bool,
}

impl Layout {
    /// The start of `line` that fits.
    pub fn cut<'a>(&self, line: &'a str) -> &'a str {
        if self.width == 0 || line.len() <= self.width {
            return line;
        }
        let end = line.char_indices().nth(self.width).map_or(line.len(), |(at, _)| at);
        line.get(..end).unwrap_or(line)
    }

    /// The colour of a share, as perf has it.
    pub fn style(&self, percent: f64) -> Style {
        match percent {
            _ if !self.colours => Style::new(),
            _ if percent >= 5.0 => AnsiColor::Red.on_default(),
            _ if percent >= 0.5 => AnsiColor::Green.on_default(),
            _ => Style::new(),
        }
    }
}

/// Writes the table of one event.
pub fn write(out: &mut impl Write, view: &View<'_>, layout: &Layout) -> io::Result<()> {
    let (base, shown) = (view.base(), view.calls.shown);
    writeln!(out, "# Samples: {} of event '{}'", grouped(base.samples), view.name)?;
    writeln!(out, "# Event count (approx.): {}", base.period)?;
    if shown != base {
        writeln!(out, "# Of them, samples that pass the filter: {}", grouped(shown.samples))?;
    }
    writeln!(out, "#")?;
    let fields = &view.settings.fields;
    let shown = view.shown();
    let cells: Vec<Vec<String>> = shown
        .iter()
        .map(|row| fields.iter().map(|&field| view.cell(field, row)).collect())
        .collect();
    let titles: Vec<_> = fields.iter().map(|&field| heading(field, view).to_owned()).collect();
    if let Some(separator) = &layout.separator {
        writeln!(out, "# {}", titles.join(separator))?;
        for row in &cells {
            writeln!(out, "{}", separated(row, separator))?;
        }
        return Ok(());
    }
    let widths = widths(fields, &titles, &cells);
    let dots: Vec<_> = widths.iter().map(|&width| ".".repeat(width)).collect();
    writeln!(out, "{}", layout.cut(&line("# ", fields, &titles, &widths)))?;
    writeln!(out, "{}", layout.cut(&line("# ", fields, &dots, &widths)))?;
    writeln!(out, "#")?;
    for (row, cells) in shown.iter().zip(&cells) {
        let style = layout.style(view.share(row.total));
        let text = line("  ", fields, cells, &widths);
        let text = layout.cut(&text);
        // The shares come first.
        let shares = fields.iter().take_while(|field| is_share(**field)).count() * 10;
        let (numbers, rest) = text.split_at_checked(shares).unwrap_or(("", text));
        writeln!(out, "{style}{numbers}{style:#}{rest}")?;
        if let Some(settings) = view.settings.graph {
            graph::write(out, view, row, settings, layout)?;
        }
    }
    let hidden = view.rows.rows.len() - shown.len();
    if hidden > 0 {
        writeln!(out, "# ({} more rows)", grouped(hidden as u64))?;
    }
    Ok(())
}

/// What stands over a column.
pub fn heading(field: Field, view: &View<'_>) -> &'static str {
    match field {
        Field::Overhead if view.settings.children => "Self",
        Field::Overhead => "Overhead",
        Field::Children => "Children",
        Field::Samples => "Samples",
        Field::Period => "Period",
        Field::Key(key) => title(key),
    }
}

fn is_share(field: Field) -> bool {
    matches!(field, Field::Overhead | Field::Children)
}

/// The width of each column.
pub fn widths(fields: &[Field], titles: &[String], cells: &[Vec<String>]) -> Vec<usize> {
    let width = |(at, (field, title)): (usize, (&Field, &String))| {
        let least = match field {
            Field::Overhead | Field::Children => 8,
            Field::Samples | Field::Period => 12,
            Field::Key(_) => title.len(),
        };
        let cells = cells.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).chain([least]).max().unwrap_or(least)
    };
    fields.iter().zip(titles).enumerate().map(width).collect()
}

/// Cells side by side, numbers to the right.
pub fn line(start: &str, fields: &[Field], cells: &[String], widths: &[usize]) -> String {
    let mut line = start.to_owned();
    for (at, ((field, cell), &width)) in fields.iter().zip(cells).zip(widths).enumerate() {
        if at > 0 {
            line.push_str("  ");
        }
        let fill = width.saturating_sub(cell.chars().count());
        match field {
            Field::Key(_) => {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', fill));
            }
            _ => {
                line.extend(std::iter::repeat_n(' ', fill));
                line.push_str(cell);
            }
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Cells apart by the separator, which no cell may then have, as in perf.
pub fn separated(cells: &[String], separator: &str) -> String {
    let clean = |cell: &String| {
        if separator.is_empty() { cell.clone() } else { cell.replace(separator, ".") }
    };
    cells.iter().map(clean).collect::<Vec<_>>().join(separator)
}

/// A number with commas between its thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn lines_are_cut_between_characters() {
        let layout = Layout { width: 3, ..Layout::default() };
        assert_eq!(layout.cut("ab"), "ab");
        assert_eq!(layout.cut("aäßc"), "aäß");
        assert_eq!(Layout::default().cut("abcd"), "abcd");
    }

    #[test]
    fn the_separator_is_in_no_cell() {
        assert_eq!(separated(&["a,b".into(), "c".into()], ","), "a.b,c");
    }
}
