// SPDX-License-Identifier: GPL-2.0
//! The rows of an event's table: calls grouped by the columns, heaviest first, each with the
//! places in the calls where its tree begins.

use perf_bid_core::profile::Weight;
use rustc_hash::FxHashMap;

use super::calls::Calls;
use super::calls::NodeId;
use super::calls::Task;
use super::calls::TaskId;
use super::columns::Columns;
use super::columns::PartId;
use super::names::SymId;
use super::tree::Order;

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Whose.
    pub task: Task,
    /// One of the symbols it stands for.
    pub symbol: SymId,
    /// Samples that fell here.
    pub own: Weight,
    /// With those of what was called from here: the same as `own` if that is not asked for.
    pub total: Weight,
    /// Its part of [`Rows::starts`].
    starts: (usize, usize),
}

/// The rows of an event.
#[derive(Debug, Default)]
pub struct Rows {
    /// Heaviest first.
    pub rows: Vec<Row>,
    starts: Vec<(NodeId, Weight)>,
}

/// No row, no node.
const NONE: u32 = u32::MAX;

impl Rows {
    /// Groups `calls` by `columns`; with the samples of callees if `children`.
    pub fn build(calls: &Calls, columns: &Columns<'_>, children: bool, order: Order) -> Self {
        let mut builder = Builder {
            calls,
            parts: columns.parts(),
            rows: Vec::new(),
            index: FxHashMap::default(),
        };
        let starts = if children { builder.cumulative(order) } else { builder.flat() };
        let mut rows = Self { rows: builder.rows, starts: Vec::new() };
        rows.take_starts(starts);
        rows.sort(columns);
        rows
    }

    /// Keeps the starts of each row together.
    fn take_starts(&mut self, mut starts: Vec<(u32, NodeId, Weight)>) {
        starts.sort_unstable_by_key(|&(row, node, _)| (row, node));
        let mut at = 0;
        for (index, row) in self.rows.iter_mut().enumerate() {
            let rest = starts.get(at..).unwrap_or_default();
            let len = rest.iter().take_while(|(row, ..)| *row as usize == index).count();
            row.starts = (at, at + len);
            at += len;
        }
        self.starts = starts.into_iter().map(|(_, node, weight)| (node, weight)).collect();
    }

    fn sort(&mut self, columns: &Columns<'_>) {
        let heavy = |weight: Weight| std::cmp::Reverse((weight.period, weight.samples));
        let cells = |row: &Row| -> Vec<String> {
            columns.keys().iter().map(|&key| columns.cell(key, row.task, row.symbol)).collect()
        };
        self.rows.sort_by(|a, b| {
            let by_weight = (heavy(a.total), heavy(a.own)).cmp(&(heavy(b.total), heavy(b.own)));
            // Texts are made only for those that need them.
            by_weight.then_with(|| cells(a).cmp(&cells(b)))
        });
    }

    /// Where the tree of a row begins, and with how much.
    pub fn starts(&self, row: &Row) -> &[(NodeId, Weight)] {
        self.starts.get(row.starts.0..row.starts.1).unwrap_or_default()
    }
}

struct Builder<'a> {
    calls: &'a Calls,
    parts: Vec<PartId>,
    rows: Vec<Row>,
    index: FxHashMap<(TaskId, PartId), u32>,
}

impl Builder<'_> {
    /// The row of a symbol, as called by a task.
    fn row(&mut self, task: TaskId, symbol: SymId) -> u32 {
        let part = self.parts.get(symbol.0 as usize).copied().unwrap_or(PartId(0));
        let (rows, calls) = (&mut self.rows, self.calls);
        *self.index.entry((task, part)).or_insert_with(|| {
            let zero = Weight::default();
            let nobody = Task { comm: None, pid: 0, tid: 0 };
            let task = calls.tasks.get(task.0 as usize).copied().unwrap_or(nobody);
            rows.push(Row { task, symbol, own: zero, total: zero, starts: (0, 0) });
            rows.len() as u32 - 1
        })
    }

    /// Rows of where samples fell.
    fn flat(&mut self) -> Vec<(u32, NodeId, Weight)> {
        let calls = self.calls;
        let mut starts = Vec::with_capacity(calls.leaves.len());
        for leaf in &calls.leaves {
            let Some(node) = calls.node(leaf.node) else { continue };
            let at = self.row(node.task, leaf.symbol);
            if let Some(row) = self.rows.get_mut(at as usize) {
                row.own.add(leaf.weight);
                row.total.add(leaf.weight);
            }
            starts.push((at, leaf.node, leaf.weight));
        }
        starts
    }

    /// Rows of whatever is in a callchain; a sample counts once in each.
    fn cumulative(&mut self, order: Order) -> Vec<(u32, NodeId, Weight)> {
        let calls = self.calls;
        let mut row_of = vec![NONE; calls.len()];
        for (id, node) in calls.functions() {
            let row = self.row(node.task, node.symbol);
            if let Some(slot) = row_of.get_mut(Calls::index(id)) {
                *slot = row;
            }
        }
        for leaf in &calls.leaves {
            let Some(node) = calls.node(leaf.node) else { continue };
            let at = self.row(node.task, leaf.symbol);
            if let Some(row) = self.rows.get_mut(at as usize) {
                row.own.add(leaf.weight);
            }
        }
        let outer = outer_calls(calls, &row_of, self.rows.len());
        self.sum_up(&row_of, &outer, order)
    }

    fn sum_up(
        &mut self,
        row_of: &[u32],
        outer: &[u32],
        order: Order,
    ) -> Vec<(u32, NodeId, Weight)> {
        let calls = self.calls;
        // Of each call: samples for which no call further in is of the same row.
        let mut inner: Vec<Weight> = vec![Weight::default(); calls.len()];
        let mut starts = Vec::new();
        for (id, node) in calls.functions() {
            let at = Calls::index(id);
            if let Some(inner) = inner.get_mut(at) {
                inner.add(node.total);
            }
            match outer.get(at) {
                Some(&NONE) | None => {
                    let index = row_of.get(at).copied().unwrap_or(NONE);
                    if let Some(row) = self.rows.get_mut(index as usize) {
                        row.total.add(node.total);
                    }
                    if order != Order::Callers {
                        starts.push((index, id, node.total));
                    }
                }
                Some(&outer) => {
                    if let Some(inner) = inner.get_mut(outer as usize) {
                        inner.samples = inner.samples.saturating_sub(node.total.samples);
                        inner.period = inner.period.saturating_sub(node.total.period);
                    }
                }
            }
        }
        if order == Order::Callers {
            let all = calls.functions().map(|(id, _)| id);
            let with = all.filter_map(|id| {
                let at = Calls::index(id);
                Some((*row_of.get(at)?, id, *inner.get(at)?))
            });
            starts.extend(with.filter(|(_, _, weight)| weight.samples > 0));
        }
        starts
    }
}

/// Of each call: the nearest call around it that is of the same row.
fn outer_calls(calls: &Calls, row_of: &[u32], rows: usize) -> Vec<u32> {
    let mut outer = vec![NONE; calls.len()];
    // The innermost open call of each row.
    let mut open = vec![NONE; rows];
    let mut stack: Vec<(NodeId, bool)> = Vec::new();
    for root in calls.roots() {
        stack.extend(calls.callees(root).map(|id| (id, false)));
        while let Some((id, done)) = stack.pop() {
            let at = Calls::index(id);
            let slot = row_of.get(at).and_then(|&row| open.get_mut(row as usize));
            let (Some(slot), Some(around)) = (slot, outer.get_mut(at)) else { continue };
            if done {
                *slot = *around;
                continue;
            }
            *around = std::mem::replace(slot, at as u32);
            stack.push((id, true));
            stack.extend(calls.callees(id).map(|id| (id, false)));
        }
    }
    outer
}
