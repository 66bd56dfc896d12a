// SPDX-License-Identifier: GPL-2.0
//! How the terminal looks: a title, the list under its headings, what is known about the
//! selected line, and a line of hints or what is being typed.

use perf_bid_core::place::Place;
use ratatui::Frame;
use ratatui::layout::Alignment;
use ratatui::layout::Constraint;
use ratatui::layout::Layout;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::style::Modifier;
use ratatui::style::Style;
use ratatui::text::Line as TextLine;
use ratatui::text::Span;
use ratatui::text::Text;
use ratatui::widgets::Block;
use ratatui::widgets::Clear;
use ratatui::widgets::Paragraph;

use super::app::App;
use super::app::Line;
use super::app::Prompt;
use crate::cli::Field;
use crate::report::columns::printable;
use crate::report::names::Origin;
use crate::report::names::SymId;
use crate::report::table::grouped;
use crate::report::table::heading;
use crate::report::tree::Order;
use crate::report::view::share;

/// Rows whose cells say how wide columns are.
const MEASURED: usize = 200;
/// Columns that are cut to this width where there is little room.
const NARROW: usize = 20;

const KEYS: &str = "\
Up Down j k         move              PgUp PgDn Home End
Enter               open or close     + -  Right Left
e                   open or close all of the row's tree
E C                 open all trees, close all trees
/                   only rows that have these words
f n N               find, find next, find previous
s                   other columns     Tab  other event
c                   count callees, or not
g                   trees of callers or of callees
d                   details of the selected line, or not
q Esc               leave";

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &mut App<'_>, colours: bool) {
    let paint = Paint { colours };
    let details = if app.details && frame.area().height >= 16 { details(app) } else { Vec::new() };
    let below = if details.is_empty() { 0 } else { details.len() as u16 + 1 };
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(below),
        Constraint::Length(1),
    ]);
    let [title, head, list, low, hints] = areas.areas(frame.area());
    app.height = list.height.into();
    app.scroll();
    frame.render_widget(Paragraph::new(title_line(app)).style(paint.bar()), title);
    let widths = widths(app, list.width.into());
    frame.render_widget(Paragraph::new(head_line(app, &widths)).style(paint.head()), head);
    frame.render_widget(Paragraph::new(list_lines(app, &widths, paint, list)), list);
    if !details.is_empty() {
        let block = Block::new().borders(ratatui::widgets::Borders::TOP);
        frame.render_widget(Paragraph::new(details).block(block), low);
    }
    frame.render_widget(Paragraph::new(hint_line(app)).style(paint.bar()), hints);
    if app.help {
        help(frame, app);
    }
}

/// Colours, or what stands in for them.
#[derive(Clone, Copy)]
struct Paint {
    colours: bool,
}

impl Paint {
    fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// As in the table.
    fn share(self, percent: f64) -> Style {
        match percent {
            _ if !self.colours => Style::new(),
            _ if percent >= 5.0 => Style::new().fg(Color::Red),
            _ if percent >= 0.5 => Style::new().fg(Color::Green),
            _ => Style::new(),
        }
    }

    /// As in flame graphs, where it matters.
    fn symbol(self, origin: Origin) -> Style {
        match origin {
            _ if !self.colours => Style::new(),
            Origin::Kernel => Style::new().fg(Color::Cyan),
            Origin::Unresolved => Style::new().fg(Color::DarkGray),
            _ => Style::new(),
        }
    }
}

fn title_line(app: &App<'_>) -> String {
    let calls = &app.view.calls;
    let which = match app.events() {
        0 | 1 => String::new(),
        many => format!(" ({} of {many})", app.event + 1),
    };
    let trees = match app.view.settings.graph.map(|graph| graph.order) {
        None => "",
        Some(Order::Callees) => ", callees",
        Some(Order::Callers) => ", callers",
        Some(Order::FromOutermost) => ", callers from the outermost",
    };
    let filter = match app.filter.as_str() {
        "" => String::new(),
        filter => format!("  only: {filter}"),
    };
    format!("{} samples of '{}'{which}{trees}{filter}", grouped(calls.shown.samples), app.view.name)
}

fn hint_line(app: &App<'_>) -> String {
    match (&app.prompt, &app.message) {
        (Some(Prompt::Filter(text)), _) => {
            format!("Only rows with: {text}_   (Enter: keep, Esc: all rows)")
        }
        (Some(Prompt::Find(text)), _) => format!("Find: {text}_   (Enter: find, Esc: leave)"),
        (None, Some(message)) => message.clone(),
        (None, None) => {
            "?: help  Enter: open  /: filter  f: find  s: columns  c: callees  q: quit".to_owned()
        }
    }
}

/// Widths of the columns; the last one takes what is left.
fn widths(app: &App<'_>, room: usize) -> Vec<usize> {
    let view = &app.view;
    let fields = &view.settings.fields;
    let rows = view.rows.rows.get(..view.rows.rows.len().min(MEASURED)).unwrap_or_default();
    let mut widths: Vec<usize> = fields
        .iter()
        .map(|&field| match field {
            Field::Overhead | Field::Children => 8,
            Field::Samples | Field::Period => 12,
            Field::Key(_) => {
                let cells = rows.iter().map(|row| view.cell(field, row).chars().count());
                cells.chain([heading(field, view).len()]).max().unwrap_or(0)
            }
        })
        .collect();
    let total = |widths: &[usize]| widths.iter().map(|width| width + 2).sum::<usize>();
    if total(&widths) > room
        && let Some((_, others)) = widths.split_last_mut()
    {
        others.iter_mut().for_each(|width| *width = (*width).min(NARROW));
    }
    widths
}

fn head_line(app: &App<'_>, widths: &[usize]) -> String {
    let fields = &app.view.settings.fields;
    let titles = fields.iter().map(|&field| heading(field, &app.view).to_owned());
    let cells: Vec<_> = fields.iter().copied().zip(titles).collect();
    format!("  {}", padded(&cells, widths).join("  "))
}

/// Cells at their widths, cut where they are longer; the last one is left as it is.
fn padded(cells: &[(Field, String)], widths: &[usize]) -> Vec<String> {
    let last = cells.len().saturating_sub(1);
    let cell = |(at, ((field, text), &width)): (usize, (&(Field, String), &usize))| match field {
        Field::Key(_) if at == last => text.clone(),
        Field::Key(_) if text.chars().count() > width => {
            let cut: String = text.chars().take(width.saturating_sub(1)).collect();
            cut + "…"
        }
        Field::Key(_) => format!("{text:width$}"),
        _ => format!("{text:>width$}"),
    };
    cells.iter().zip(widths).enumerate().map(cell).collect()
}

fn list_lines(app: &App<'_>, widths: &[usize], paint: Paint, area: Rect) -> Text<'static> {
    let seen = app.lines.iter().enumerate().skip(app.top).take(area.height.into());
    let lines = seen.map(|(at, line)| {
        let mut text = match line {
            Line::Row(row) => row_line(app, *row, widths, paint),
            Line::Branch { row, way, indent } => branch_line(app, *row, way, *indent, paint),
        };
        if at == app.selected {
            // The bar goes through to the right edge.
            let fill = usize::from(area.width).saturating_sub(text.width());
            text.push_span(Span::raw(" ".repeat(fill)));
            text.spans.iter_mut().for_each(|span| span.style = paint.selected());
        }
        text
    });
    let mut text = Text::from_iter(lines);
    if app.lines.is_empty() {
        text.push_line("  no rows; Esc clears the filter");
    }
    text
}

fn row_line(app: &App<'_>, index: usize, widths: &[usize], paint: Paint) -> TextLine<'static> {
    let Some(row) = app.row(index) else { return TextLine::default() };
    let mark = match (app.has_trees(), app.is_open(index)) {
        (false, _) => "  ",
        (true, true) => "- ",
        (true, false) => "+ ",
    };
    let fields = &app.view.settings.fields;
    let cells: Vec<_> = fields.iter().map(|&field| (field, app.view.cell(field, row))).collect();
    let mut spans = vec![Span::raw(mark)];
    for (at, (text, (field, _))) in padded(&cells, widths).into_iter().zip(&cells).enumerate() {
        let style = match field {
            Field::Children => paint.share(app.view.share(row.total)),
            Field::Overhead => paint.share(app.view.share(row.own)),
            Field::Key(crate::cli::SortKey::Symbol) => {
                paint.symbol(app.view.names.origin(row.symbol))
            }
            _ => Style::new(),
        };
        spans.push(Span::raw(if at == 0 { "" } else { "  " }));
        spans.push(Span::styled(text, style));
    }
    TextLine::from(spans)
}

fn branch_line(
    app: &App<'_>,
    row: usize,
    way: &[usize],
    indent: usize,
    paint: Paint,
) -> TextLine<'static> {
    let Some(twig) = app.twig(row, way) else { return TextLine::default() };
    let branch = &twig.branch;
    let graph = app.view.settings.graph;
    let whole = match (graph.is_some_and(|graph| graph.fractal), app.row(row)) {
        (true, Some(row)) => row.total.period,
        _ => app.view.whole(),
    };
    let percent = share(branch.weight.period, whole);
    let mark = match (twig.is_leaf(), twig.open) {
        (true, _) => "  ",
        (false, true) => "- ",
        (false, false) => "+ ",
    };
    let margin = format!("{:12}{}{mark}", "", "  ".repeat(indent));
    let name = printable(&app.view.names.label(branch.symbol).to_string());
    TextLine::from(vec![
        Span::raw(margin),
        Span::styled(format!("{percent:6.2}%  "), paint.share(percent)),
        Span::styled(name, paint.symbol(app.view.names.origin(branch.symbol))),
    ])
}

/// What is known about the selected line.
fn details(app: &App<'_>) -> Vec<TextLine<'static>> {
    let selected = match app.lines.get(app.selected) {
        Some(Line::Row(row)) => app.row(*row).map(|row| (row.symbol, row.total)),
        Some(Line::Branch { row, way, .. }) => {
            app.twig(*row, way).map(|twig| (twig.branch.symbol, twig.branch.weight))
        }
        None => None,
    };
    let Some((symbol, weight)) = selected else { return Vec::new() };
    let mut lines = vec![
        format!(
            "{}: {} samples, event count {}",
            printable(&app.view.names.symbol_text(symbol).to_string()),
            grouped(weight.samples),
            weight.period
        ),
        place(app, symbol),
    ];
    let Some(dso) = app.view.names.dso_of(symbol) else { return to_lines(lines) };
    let id = dso.build_id.map_or_else(|| "not known".to_owned(), |id| id.to_string());
    lines.push(format!("In: {}   build ID: {id}", printable(&dso.long)));
    lines.push(match (&dso.file, &dso.why_not) {
        (Some(file), None) => format!("Symbols from: {}", printable(file)),
        (Some(file), Some(why)) => {
            format!("Symbols from: {} ({})", printable(file), printable(why))
        }
        (None, Some(why)) => format!("No symbols: {}", printable(why)),
        (None, None) => "Symbols from: nowhere".to_owned(),
    });
    to_lines(lines)
}

fn to_lines(lines: Vec<String>) -> Vec<TextLine<'static>> {
    lines.into_iter().map(TextLine::from).collect()
}

fn place(app: &App<'_>, symbol: SymId) -> String {
    let Some(symbol) = app.view.names.get(symbol) else { return String::new() };
    let at = match symbol.place {
        Place::File { offset, .. } => format!("e.g. at file offset {offset:#x}"),
        Place::Memory { address, .. } => format!("e.g. at address {address:#x}"),
        Place::Unresolved(status) => format!("the kernel could not say where: {status}"),
        Place::Missing => "the rest of the callchain is not in the file".to_owned(),
    };
    match &symbol.source {
        Some((file, line)) => format!("{at}, {}:{line}", printable(file)),
        None => at,
    }
}

fn help(frame: &mut Frame<'_>, app: &App<'_>) {
    let notes = app.notes().iter().map(String::as_str);
    let lines: Vec<_> = KEYS.lines().chain([""]).chain(notes).collect();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4;
    let height = lines.len() as u16 + 2;
    let area = frame.area();
    let (width, height) = (width.min(area.width), height.min(area.height));
    let at = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered().title(" perf-bid report ").title_alignment(Alignment::Center);
    let text = lines.into_iter().map(|line| TextLine::from(format!(" {line}")));
    frame.render_widget(Clear, at);
    frame.render_widget(Paragraph::new(Text::from_iter(text)).block(block), at);
}
