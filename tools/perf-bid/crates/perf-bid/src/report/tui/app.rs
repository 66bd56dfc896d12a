// SPDX-License-Identifier: GPL-2.0
//! What the terminal shows and what keys do to it, without a terminal.

use perf_bid_core::profile::EventProfile;
use perf_bid_core::profile::Profile;
use ratatui::crossterm::event::KeyCode;
use ratatui::crossterm::event::KeyEvent;
use ratatui::crossterm::event::KeyModifiers;
use rustc_hash::FxHashMap;

use crate::cli;
use crate::cli::Field;
use crate::cli::SortKey;
use crate::report::names::Names;
use crate::report::rows::Row;
use crate::report::tree::Branch;
use crate::report::tree::Order;
use crate::report::view::Graph;
use crate::report::view::Settings;
use crate::report::view::View;

/// Trees are opened no deeper than this at once.
const DEEPEST: usize = 256;

/// Columns that the sort key goes through, after those of the command line.
const SORTS: [&[SortKey]; 5] = [
    &[SortKey::Comm, SortKey::Dso, SortKey::Symbol],
    &[SortKey::Symbol],
    &[SortKey::Dso, SortKey::Buildid],
    &[SortKey::Comm],
    &[SortKey::Dso, SortKey::Symbol],
];

/// What there is to look at.
#[derive(Clone)]
pub struct Source<'a> {
    /// The recording.
    pub profile: &'a Profile,
    /// Its names.
    pub names: &'a Names,
    /// Events with samples.
    pub events: Vec<&'a EventProfile>,
    /// How it was asked for.
    pub settings: Settings,
    /// Which samples.
    pub filter: &'a cli::Filter,
    /// What is known about the whole, line by line.
    pub notes: Vec<String>,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Index among the rows of the view.
    Row(usize),
    /// A branch of a row's tree: the way to it, by index at each level, and how far it is
    /// indented.
    Branch {
        /// Whose.
        row: usize,
        /// Down from the row.
        way: Vec<usize>,
        /// Number of partings of ways above.
        indent: usize,
    },
}

/// A branch and what of it is open.
pub struct Twig {
    /// What it is.
    pub branch: Branch,
    /// What is below, once it has been looked for.
    below: Option<Vec<Twig>>,
    /// Whether that is shown.
    pub open: bool,
}

impl Twig {
    fn new(branch: Branch) -> Self {
        Self { branch, below: None, open: false }
    }

    fn grow(&mut self, view: &View<'_>) -> &mut [Twig] {
        let order = view.settings.order();
        self.below.get_or_insert_with(|| {
            self.branch.below(&view.calls, order).into_iter().map(Self::new).collect()
        })
    }

    /// Whether it is known that nothing is below.
    pub fn is_leaf(&self) -> bool {
        self.below.as_ref().is_some_and(Vec::is_empty)
    }

    /// Opens it, and what has no choice below it.
    fn open(&mut self, view: &View<'_>) {
        let mut at = self;
        for _ in 0..DEEPEST {
            at.open = true;
            let weight = at.branch.weight;
            match at.grow(view) {
                [only] if only.branch.weight == weight => at = only,
                _ => return,
            }
        }
    }

    /// Opens everything below that is heavy enough.
    fn open_all(&mut self, view: &View<'_>, limit: f64) {
        let mut todo = vec![(self, 0)];
        while let Some((twig, depth)) = todo.pop() {
            if depth < DEEPEST && view.share(twig.branch.weight) >= limit {
                twig.open = true;
                todo.extend(twig.grow(view).iter_mut().map(|below| (below, depth + 1)));
            }
        }
    }
}

/// What is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Rows that have all these words.
    Filter(String),
    /// The next line that has this.
    Find(String),
}

/// Everything that is shown.
pub struct App<'a> {
    source: Source<'a>,
    /// Index of the event.
    pub event: usize,
    sort: usize,
    /// What is looked at.
    pub view: View<'a>,
    /// Cells of each row in lower case, for the filter.
    texts: Vec<String>,
    trees: FxHashMap<usize, Vec<Twig>>,
    /// The list, line by line.
    pub lines: Vec<Line>,
    /// Index of the selected line.
    pub selected: usize,
    /// Index of the first line that is seen.
    pub top: usize,
    /// Lines that fit; set by drawing.
    pub height: usize,
    /// Words that rows must have.
    pub filter: String,
    /// What was searched for.
    pub find: String,
    /// What is being typed, if anything.
    pub prompt: Option<Prompt>,
    /// Whether the keys are explained.
    pub help: bool,
    /// Whether the selected line is explained.
    pub details: bool,
    /// Something to say once.
    pub message: Option<String>,
    done: bool,
}

impl<'a> App<'a> {
    /// Shows the first event.
    pub fn new(source: Source<'a>) -> Self {
        let view = view(&source, 0, &source.settings);
        let mut app = Self {
            source,
            event: 0,
            sort: 0,
            view,
            texts: Vec::new(),
            trees: FxHashMap::default(),
            lines: Vec::new(),
            selected: 0,
            top: 0,
            height: 1,
            filter: String::new(),
            find: String::new(),
            prompt: None,
            help: false,
            details: true,
            message: None,
            done: false,
        };
        app.list();
        app
    }

    /// Whether the user wants to leave.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// What is known about the whole.
    pub fn notes(&self) -> &[String] {
        &self.source.notes
    }

    /// Number of events that can be looked at.
    pub fn events(&self) -> usize {
        self.source.events.len()
    }

    /// The row at `index` of the view.
    pub fn row(&self, index: usize) -> Option<&Row> {
        self.view.rows.rows.get(index)
    }

    /// The twig of a line of a tree.
    pub fn twig(&self, row: usize, way: &[usize]) -> Option<&Twig> {
        let (&first, rest) = way.split_first()?;
        let mut twig = self.trees.get(&row)?.get(first)?;
        for &at in rest {
            twig = twig.below.as_ref()?.get(at)?;
        }
        Some(twig)
    }

    /// Whether a row's tree is shown.
    pub fn is_open(&self, row: usize) -> bool {
        self.trees.contains_key(&row)
    }

    /// Whether there are trees to open.
    pub fn has_trees(&self) -> bool {
        self.view.settings.graph.is_some()
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c' | 'd') => self.done = true,
                KeyCode::Char('u') => self.type_over(String::new()),
                _ => {}
            }
        } else if self.prompt.is_some() {
            self.prompt_key(key.code);
        } else if std::mem::take(&mut self.help) {
            // Any key closes the help.
        } else {
            self.list_key(key.code);
        }
        self.scroll();
    }

    fn list_key(&mut self, code: KeyCode) {
        let page = self.height.saturating_sub(1).max(1);
        match code {
            KeyCode::Char('q') => self.done = true,
            KeyCode::Esc if self.filter.is_empty() => self.done = true,
            KeyCode::Esc => {
                self.filter.clear();
                self.list();
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.select(self.selected + page),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(page)),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Enter => self.toggle(),
            KeyCode::Char('+') | KeyCode::Right => self.open(),
            KeyCode::Char('-') | KeyCode::Left => self.close(),
            KeyCode::Char('e') => self.open_row(),
            KeyCode::Char('E') => self.open_all(),
            KeyCode::Char('C') => {
                let row = self.selected_row();
                self.trees.clear();
                self.list();
                self.select_row(row);
            }
            KeyCode::Char('/') => self.prompt = Some(Prompt::Filter(self.filter.clone())),
            KeyCode::Char('f') => self.prompt = Some(Prompt::Find(String::new())),
            KeyCode::Char('n') if self.find.is_empty() => {
                self.prompt = Some(Prompt::Find(String::new()));
            }
            KeyCode::Char('n') => self.find_next(true),
            KeyCode::Char('N') => self.find_next(false),
            KeyCode::Char('s') => self.next_sort(),
            KeyCode::Char('c') => self.toggle_children(),
            KeyCode::Char('g') => self.turn_trees(),
            KeyCode::Tab => self.next_event(),
            KeyCode::Char('d') => self.details = !self.details,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = true,
            _ => {}
        }
    }

    fn prompt_key(&mut self, code: KeyCode) {
        let Some(prompt) = &self.prompt else { return };
        let (Prompt::Filter(text) | Prompt::Find(text)) = prompt;
        let mut text = text.clone();
        match code {
            KeyCode::Char(c) => {
                text.push(c);
                self.type_over(text);
            }
            KeyCode::Backspace => {
                text.pop();
                self.type_over(text);
            }
            KeyCode::Enter => {
                if let Some(Prompt::Find(text)) = self.prompt.take() {
                    self.find = text;
                    self.find_next(true);
                }
            }
            KeyCode::Esc => {
                if let Some(Prompt::Filter(_)) = self.prompt.take() {
                    self.filter.clear();
                    self.list();
                }
            }
            _ => {}
        }
    }

    /// Replaces what is being typed; a filter works at once.
    fn type_over(&mut self, text: String) {
        match &mut self.prompt {
            Some(Prompt::Find(old)) => *old = text,
            Some(Prompt::Filter(old)) => {
                old.clone_from(&text);
                self.filter = text;
                self.list();
                self.select(0);
            }
            None => {}
        }
    }

    /// Makes the list anew: rows that pass the filter, and what of their trees is open.
    fn list(&mut self) {
        if self.texts.is_empty() && !self.filter.is_empty() {
            let view = &self.view;
            let text = |row: &Row| {
                let keys = view.columns.keys().iter();
                let cells = keys.map(|&key| view.columns.cell(key, row.task, row.symbol));
                cells.collect::<Vec<_>>().join(" ").to_lowercase()
            };
            self.texts = view.rows.rows.iter().map(text).collect();
        }
        let filter = self.filter.to_lowercase();
        let words: Vec<_> = filter.split_whitespace().collect();
        let passes = |row: usize| {
            words.is_empty()
                || self.texts.get(row).is_some_and(|text| words.iter().all(|w| text.contains(w)))
        };
        let mut lines = Vec::new();
        for row in (0..self.view.shown().len()).filter(|&row| passes(row)) {
            lines.push(Line::Row(row));
            if let Some(twigs) = self.trees.get(&row) {
                list_twigs(twigs, row, &mut lines);
            }
        }
        self.lines = lines;
        self.select(self.selected);
    }

    fn select(&mut self, line: usize) {
        self.selected = line.min(self.lines.len().saturating_sub(1));
    }

    /// Keeps the selected line in sight.
    pub fn scroll(&mut self) {
        let height = self.height.max(1);
        let last = self.lines.len().saturating_sub(height);
        self.top = self.top.min(self.selected).max((self.selected + 1).saturating_sub(height));
        self.top = self.top.min(last);
    }

    fn selected_row(&self) -> Option<usize> {
        match self.lines.get(self.selected)? {
            Line::Row(row) | Line::Branch { row, .. } => Some(*row),
        }
    }

    fn select_row(&mut self, row: Option<usize>) {
        let at = self.lines.iter().position(|line| row.is_some_and(|row| *line == Line::Row(row)));
        self.select(at.unwrap_or(0));
    }

    /// Does `change` to the twig of the selected line, which must be one of a tree.
    fn change(&mut self, change: impl FnOnce(&mut Twig, &View<'_>)) {
        let Some(Line::Branch { row, way, .. }) = self.lines.get(self.selected) else { return };
        let Some((&first, rest)) = way.split_first() else { return };
        let twigs = self.trees.get_mut(row);
        let mut twig = twigs.and_then(|twigs| twigs.get_mut(first));
        for &at in rest {
            twig = twig.and_then(|twig| twig.below.as_mut()).and_then(|below| below.get_mut(at));
        }
        if let Some(twig) = twig {
            change(twig, &self.view);
        }
    }

    fn toggle(&mut self) {
        let is_open = match self.lines.get(self.selected) {
            Some(Line::Row(row)) => self.is_open(*row),
            Some(Line::Branch { row, way, .. }) => {
                self.twig(*row, way).is_some_and(|twig| twig.open)
            }
            None => return,
        };
        if is_open { self.close() } else { self.open() }
    }

    fn open(&mut self) {
        match self.lines.get(self.selected).cloned() {
            Some(Line::Row(row)) => self.open_tree(row),
            Some(Line::Branch { .. }) => self.change(Twig::open),
            None => {}
        }
        self.list();
    }

    fn open_tree(&mut self, row: usize) {
        if self.is_open(row) {
            return;
        }
        let Some(tree) = self.tree(row) else {
            self.message = Some("no callchains to open; record with -g".to_owned());
            return;
        };
        if tree.is_empty() {
            self.message = Some("nothing above or below it in any callchain".to_owned());
        } else {
            self.trees.insert(row, tree);
        }
    }

    /// The first level of a row's tree, without the row's own function.
    fn tree(&self, row: usize) -> Option<Vec<Twig>> {
        let order = self.view.settings.graph?.order;
        let row = self.row(row)?;
        let mut first = Branch::first(&self.view.calls, self.view.rows.starts(row), order);
        if let [only] = first.as_slice()
            && only.symbol == row.symbol
        {
            first = only.below(&self.view.calls, order);
        }
        let mut twigs: Vec<_> = first.into_iter().map(Twig::new).collect();
        if let [only] = twigs.as_mut_slice() {
            only.open(&self.view);
        }
        Some(twigs)
    }

    /// Closes what is selected, or else what it is in.
    fn close(&mut self) {
        match self.lines.get(self.selected).cloned() {
            Some(Line::Row(row)) => {
                self.trees.remove(&row);
            }
            Some(Line::Branch { row, way, .. }) => {
                if self.twig(row, &way).is_some_and(|twig| twig.open) {
                    self.change(|twig, _| twig.open = false);
                } else {
                    let above = way.split_last().map(|(_, above)| above).unwrap_or_default();
                    let at = self.lines.iter().position(|line| match line {
                        Line::Row(of) => *of == row && above.is_empty(),
                        Line::Branch { row: of, way, .. } => *of == row && way == above,
                    });
                    self.select(at.unwrap_or(self.selected));
                }
            }
            None => {}
        }
        self.list();
    }

    /// Opens or closes the whole tree of the selected row.
    fn open_row(&mut self) {
        let Some(row) = self.selected_row() else { return };
        if self.trees.remove(&row).is_none() {
            self.open_whole(row);
        }
        self.list();
        self.select_row(Some(row));
    }

    fn open_whole(&mut self, row: usize) {
        self.open_tree(row);
        let limit = self.view.settings.graph.map_or(0.0, |graph| graph.limit);
        for twig in self.trees.get_mut(&row).into_iter().flatten() {
            twig.open_all(&self.view, limit);
        }
    }

    /// Opens the trees of all rows that are heavy enough to have branches that are shown.
    fn open_all(&mut self) {
        let Some(Graph { limit, .. }) = self.view.settings.graph else { return };
        let row = self.selected_row();
        let rows: Vec<_> = self
            .lines
            .iter()
            .filter_map(|line| match line {
                Line::Row(row) => Some(*row),
                Line::Branch { .. } => None,
            })
            .take_while(|&row| self.row(row).is_some_and(|row| self.view.share(row.total) >= limit))
            .collect();
        rows.into_iter().for_each(|row| self.open_whole(row));
        self.message = None;
        self.list();
        self.select_row(row);
    }

    fn find_next(&mut self, forward: bool) {
        let wanted = self.find.to_lowercase();
        let count = self.lines.len();
        if wanted.is_empty() || count == 0 {
            return;
        }
        let found = (1..=count)
            .map(|step| {
                let step = if forward { step } else { count - step };
                (self.selected + step) % count
            })
            .find(|&at| self.line_text(at).to_lowercase().contains(&wanted));
        match found {
            Some(at) => self.select(at),
            None => self.message = Some(format!("no line has \"{}\"", self.find)),
        }
    }

    /// What a line says, without numbers.
    pub fn line_text(&self, at: usize) -> String {
        match self.lines.get(at) {
            Some(Line::Row(row)) => {
                let Some(row) = self.row(*row) else { return String::new() };
                let keys = self.view.columns.keys().iter();
                let cells = keys.map(|&key| self.view.columns.cell(key, row.task, row.symbol));
                cells.collect::<Vec<_>>().join(" ")
            }
            Some(Line::Branch { row, way, .. }) => {
                let twig = self.twig(*row, way);
                twig.map_or_else(String::new, |twig| {
                    self.view.names.label(twig.branch.symbol).to_string()
                })
            }
            None => String::new(),
        }
    }

    /// Looks at the event another way.
    fn look(&mut self, settings: &Settings) {
        self.view = view(&self.source, self.event, settings);
        self.texts.clear();
        self.trees.clear();
        self.selected = 0;
        self.top = 0;
        self.list();
    }

    fn next_sort(&mut self) {
        self.sort = (self.sort + 1) % (SORTS.len() + 1);
        let initial = self.source.settings.keys();
        let after = self.sort.checked_sub(1).and_then(|at| SORTS.get(at));
        let keys = after.map_or(initial.as_slice(), |keys| keys);
        let mut settings = self.view.settings.clone();
        settings.fields.retain(|field| !matches!(field, Field::Key(_)));
        settings.fields.extend(keys.iter().map(|&key| Field::Key(key)));
        self.look(&settings);
        if after.is_some_and(|keys| *keys == initial.as_slice()) {
            self.next_sort();
        }
    }

    fn toggle_children(&mut self) {
        let mut settings = self.view.settings.clone();
        let Some(graph) = &mut settings.graph else {
            self.message = Some("there are no callchains".to_owned());
            return;
        };
        settings.children = !settings.children;
        graph.order = if settings.children { Order::Callees } else { Order::Callers };
        settings.fields.retain(|field| *field != Field::Children);
        if settings.children {
            settings.fields.insert(0, Field::Children);
        }
        self.look(&settings);
    }

    fn turn_trees(&mut self) {
        let mut settings = self.view.settings.clone();
        let Some(graph) = &mut settings.graph else {
            self.message = Some("there are no callchains".to_owned());
            return;
        };
        graph.order = match (graph.order, settings.children) {
            (Order::Callers, true) => Order::Callees,
            (Order::Callers, false) => Order::FromOutermost,
            (Order::Callees | Order::FromOutermost, _) => Order::Callers,
        };
        let row = self.selected_row();
        self.look(&settings);
        self.select_row(row);
    }

    fn next_event(&mut self) {
        if self.events() < 2 {
            self.message = Some("there is one event only".to_owned());
            return;
        }
        self.event = (self.event + 1) % self.events();
        let settings = self.view.settings.clone();
        self.look(&settings);
    }
}

/// Appends the open branches of a tree, in the order in which they are seen.
fn list_twigs(twigs: &[Twig], row: usize, lines: &mut Vec<Line>) {
    let mut todo: Vec<(&Twig, Vec<usize>, usize)> = Vec::new();
    for (at, twig) in twigs.iter().enumerate().rev() {
        todo.push((twig, vec![at], 0));
    }
    while let Some((twig, way, indent)) = todo.pop() {
        let below = twig.below.as_deref().filter(|_| twig.open).unwrap_or_default();
        let parts = !matches!(below, [only] if only.branch.weight == twig.branch.weight);
        let deeper = indent + usize::from(parts);
        for (at, below) in below.iter().enumerate().rev() {
            let way = way.iter().copied().chain([at]).collect();
            todo.push((below, way, deeper));
        }
        lines.push(Line::Branch { row, way, indent });
    }
}

/// A view of an event; of an empty one if there is none.
fn view<'a>(source: &Source<'a>, event: usize, settings: &Settings) -> View<'a> {
    static NONE: std::sync::LazyLock<EventProfile> =
        std::sync::LazyLock::new(EventProfile::default);
    let event = source.events.get(event).copied().unwrap_or(&NONE);
    View::new(event, source.profile, source.names, settings, source.filter)
}
