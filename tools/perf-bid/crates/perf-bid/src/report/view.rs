// SPDX-License-Identifier: GPL-2.0
//! One way to look at an event: its columns, rows and trees, ready to be shown.

use perf_bid_core::profile::EventProfile;
use perf_bid_core::profile::Profile;
use perf_bid_core::profile::Weight;

use super::calls::Calls;
use super::columns::Columns;
use super::names::Names;
use super::rows::Row;
use super::rows::Rows;
use super::tree::Order;
use crate::cli;
use crate::cli::Field;
use crate::cli::GraphWord;
use crate::cli::SortKey;

/// Smallest share of a branch that is shown unless asked, in percent; perf's.
const BRANCH_LIMIT: f64 = 0.5;

/// How trees are shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Graph {
    /// Which way they grow.
    pub order: Order,
    /// Smallest share, in percent.
    pub limit: f64,
    /// Shares are those of the branch, not of the whole.
    pub fractal: bool,
}

/// What to show of a profile: the options, thought through.
#[derive(Clone, Debug)]
pub struct Settings {
    /// In order.
    pub fields: Vec<Field>,
    /// Samples of callees count.
    pub children: bool,
    /// `None`: no trees.
    pub graph: Option<Graph>,
    /// Smallest share of a row, in percent.
    pub limit: f64,
    /// Most rows.
    pub rows: usize,
    /// Whole paths.
    pub long: bool,
    /// Shares are of what passes the filter.
    pub relative: bool,
}

impl Settings {
    /// What `args` asks for, of a recording with or without callchains and build IDs.
    pub fn new(args: &cli::Report, chains: bool, build_ids: bool) -> Self {
        let wants_children = args.fields.is_empty() || args.fields.contains(&Field::Children);
        let children = chains && wants_children && (args.children || !args.no_children);
        Self {
            fields: fields(args, children, build_ids),
            children,
            graph: graph(args, children).filter(|_| chains),
            limit: args.percent_limit.unwrap_or(0.0),
            rows: args.limit.unwrap_or(usize::MAX),
            long: args.verbose,
            relative: args.filter.percentage == cli::Percentage::Relative,
        }
    }

    /// The columns that rows are grouped by.
    pub fn keys(&self) -> Vec<SortKey> {
        let key = |field: &Field| match field {
            Field::Key(key) => Some(*key),
            _ => None,
        };
        self.fields.iter().filter_map(key).collect()
    }

    /// Which way trees grow, should there be any.
    pub fn order(&self) -> Order {
        self.graph.map_or(default_order(self.children), |graph| graph.order)
    }
}

fn default_order(children: bool) -> Order {
    if children { Order::Callees } else { Order::Callers }
}

fn fields(args: &cli::Report, children: bool, build_ids: bool) -> Vec<Field> {
    if !args.fields.is_empty() {
        return args.fields.clone();
    }
    let mut fields = if children { vec![Field::Children] } else { Vec::new() };
    fields.push(Field::Overhead);
    fields.extend(args.show_nr_samples.then_some(Field::Samples));
    fields.extend(args.show_total_period.then_some(Field::Period));
    let keys = match (args.sort.is_empty(), build_ids) {
        (false, _) => args.sort.as_slice(),
        (true, true) => &[SortKey::Comm, SortKey::Dso, SortKey::Buildid, SortKey::Symbol],
        (true, false) => &[SortKey::Comm, SortKey::Dso, SortKey::Symbol],
    };
    fields.extend(keys.iter().map(|&key| Field::Key(key)));
    fields
}

fn graph(args: &cli::Report, children: bool) -> Option<Graph> {
    let limit = args.percent_limit.unwrap_or(BRANCH_LIMIT);
    let mut graph = Graph { order: default_order(children), limit, fractal: false };
    for word in &args.call_graph {
        match word {
            GraphWord::None => return None,
            GraphWord::Graph => graph.fractal = false,
            GraphWord::Fractal => graph.fractal = true,
            GraphWord::Caller if children => graph.order = Order::Callees,
            GraphWord::Caller => graph.order = Order::FromOutermost,
            GraphWord::Callee => graph.order = Order::Callers,
            GraphWord::Percent(limit) => graph.limit = *limit,
            GraphWord::Default => {}
        }
    }
    Some(graph)
}

/// An event's rows and what they are made from.
pub struct View<'a> {
    /// Of the event.
    pub name: &'a str,
    /// Who calls whom.
    pub calls: Calls,
    /// Heaviest first.
    pub rows: Rows,
    /// How cells are written.
    pub columns: Columns<'a>,
    /// What things are called.
    pub names: &'a Names,
    /// How to show it.
    pub settings: Settings,
}

impl<'a> View<'a> {
    /// Looks at `event` of `profile`.
    pub fn new(
        event: &'a EventProfile,
        profile: &'a Profile,
        names: &'a Names,
        settings: &Settings,
        filter: &cli::Filter,
    ) -> Self {
        let mut columns = Columns::new(&settings.keys(), settings.long, names, profile);
        columns.name_tasks(event);
        let calls = Calls::build(event, profile, names, columns.task_detail(), filter);
        let rows = Rows::build(&calls, &columns, settings.children, settings.order());
        let name = if event.name.is_empty() { "unnamed" } else { &event.name };
        Self { name, calls, rows, columns, names, settings: settings.clone() }
    }

    /// What shares are shares of: all samples, or those that pass the filter.
    pub fn base(&self) -> Weight {
        if self.settings.relative { self.calls.shown } else { self.calls.all }
    }

    /// The period of that.
    pub fn whole(&self) -> u64 {
        self.base().period
    }

    /// A weight's share, in percent.
    pub fn share(&self, weight: Weight) -> f64 {
        share(weight.period, self.whole())
    }

    /// Rows that are to be shown.
    pub fn shown(&self) -> &[Row] {
        let rows = &self.rows.rows;
        // Heaviest first: the shares fall.
        let heavy = rows.partition_point(|row| self.share(row.total) >= self.settings.limit);
        rows.get(..heavy.min(self.settings.rows)).unwrap_or(rows)
    }

    /// The text of a row's field.
    pub fn cell(&self, field: Field, row: &Row) -> String {
        match field {
            Field::Overhead => format!("{:.2}%", self.share(row.own)),
            Field::Children => format!("{:.2}%", self.share(row.total)),
            Field::Samples => row.own.samples.to_string(),
            Field::Period => row.own.period.to_string(),
            Field::Key(key) => self.columns.cell(key, row.task, row.symbol),
        }
    }
}

/// `part` of `whole` in percent; 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
