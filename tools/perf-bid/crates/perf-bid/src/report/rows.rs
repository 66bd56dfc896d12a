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
        let weights = |row: &Row| (heavy(row.total), heavy(row.own));
        self.rows.sort_by_key(weights);
        // Texts are made only for those that need them, and once.
        for same in self.rows.chunk_by_mut(|a, b| weights(a) == weights(b)) {
            if same.len() > 1 {
                same.sort_by_cached_key(|row| -> Vec<String> {
                    let keys = columns.keys().iter();
                    keys.map(|&key| columns.cell(key, row.task, row.symbol)).collect()
                });
            }
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;
    use std::collections::BTreeSet;

    use super::super::fixture;
    use super::super::fixture::Chain;
    use super::super::tree::Branch;
    use super::super::view::View;

    fn shares(view: &View<'_>) -> BTreeMap<String, (u64, u64)> {
        let name = |row: &super::Row| view.names.label(row.symbol).to_string();
        let rows = view.rows.rows.iter();
        rows.map(|row| (name(row), (row.total.period, row.own.period))).collect()
    }

    #[test]
    fn a_sample_counts_once_in_a_recursive_function() {
        let chains: &[Chain<'_>] = &[
            ("a", &["main", "rec", "rec", "mid", "rec"], 10),
            ("a", &["main", "rec"], 5),
            ("a", &["main"], 1),
        ];
        let (profile, names) = fixture::profile(&[chains]);
        let view = fixture::view(&profile, &names, &["--sort", "sym"]);
        let expected = [("main", (16, 1)), ("mid", (10, 0)), ("rec", (15, 15))];
        let expected: Vec<_> = expected.map(|(name, sums)| (name.to_owned(), sums)).into();
        assert_eq!(shares(&view).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn threads_of_a_name_are_a_row() {
        let chains: &[Chain<'_>] =
            &[("a", &["main", "x"], 1), ("b", &["main", "x"], 2), ("a", &["main"], 4)];
        let (profile, names) = fixture::profile(&[chains]);
        let view = fixture::view(&profile, &names, &["--sort", "comm"]);
        let sums: Vec<_> = view.rows.rows.iter().map(|row| row.total.period).collect();
        assert_eq!(sums, [5, 2]);
    }

    #[test]
    fn filters_choose_samples_by_where_they_fell() {
        let chains: &[Chain<'_>] =
            &[("a", &["main", "x"], 6), ("b", &["main", "y"], 3), ("a", &["main"], 1)];
        let (profile, names) = fixture::profile(&[chains]);
        let view = fixture::view(&profile, &names, &["--sort", "sym", "-S", "x"]);
        assert_eq!(shares(&view).get("main"), Some(&(6, 0)));
        assert_eq!(view.share(view.rows.rows.first().unwrap().total), 60.0);
        let view = fixture::view(
            &profile,
            &names,
            &["--sort", "sym", "--comms", "b", "--percentage", "relative"],
        );
        assert_eq!(view.share(view.rows.rows.first().unwrap().total), 100.0);
        let view = fixture::view(&profile, &names, &["--sort", "sym", "--max-stack", "1"]);
        assert_eq!(shares(&view).get("main"), Some(&(1, 1)));
    }

    /// Numbers that look random and are the same each time.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % end
        }
    }

    /// Against sums made sample by sample, without any tree.
    #[test]
    fn sums_and_trees_are_those_of_the_samples() {
        let functions = ["f0", "f1", "f2", "f3", "f4"];
        let mut random = Random(1);
        for _ in 0..40 {
            let lists: Vec<(Vec<&str>, u64)> = (0..60)
                .map(|_| {
                    let depth = 1 + random.below(7);
                    let chain = (0..depth).map(|_| functions[random.below(5) as usize]).collect();
                    (chain, 1 + random.below(9))
                })
                .collect();
            let chains: Vec<Chain<'_>> =
                lists.iter().map(|(chain, period)| ("a", chain.as_slice(), *period)).collect();
            let (profile, names) = fixture::profile(&[&chains]);
            let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
            for (chain, period) in &lists {
                for name in chain.iter().collect::<BTreeSet<_>>() {
                    expected.entry((*name).to_string()).or_default().0 += period;
                }
                expected.entry(chain.last().unwrap().to_string()).or_default().1 += period;
            }
            for graph in ["caller", "callee"] {
                let view = fixture::view(&profile, &names, &["--sort", "sym", "-g", graph]);
                assert_eq!(shares(&view), expected);
                for row in &view.rows.rows {
                    let name = view.names.label(row.symbol).to_string();
                    let found = tree(&view, row, &lists, graph == "callee");
                    assert_eq!(found.0, found.1, "{name} {graph}");
                }
            }
        }
    }

    /// The second level of a row's tree, and what it must be.
    fn tree(
        view: &View<'_>,
        row: &super::Row,
        lists: &[(Vec<&str>, u64)],
        callers: bool,
    ) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
        let name = |branch: &Branch| view.names.label(branch.symbol).to_string();
        let order = view.settings.order();
        let first = Branch::first(&view.calls, view.rows.starts(row), order);
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].weight, row.total);
        let below = first[0].below(&view.calls, order);
        let found = below.iter().map(|branch| (name(branch), branch.weight.period)).collect();
        let wanted = name(&first[0]);
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for (chain, period) in lists {
            // Callees of the outermost call, callers of the innermost.
            let next = if callers {
                let at = chain.iter().rposition(|function| *function == wanted);
                at.and_then(|at| chain.get(at.checked_sub(1)?))
            } else {
                let at = chain.iter().position(|function| *function == wanted);
                at.and_then(|at| chain.get(at + 1))
            };
            if let Some(next) = next {
                *expected.entry(next.to_string()).or_default() += period;
            }
        }
        (found, expected)
    }
}
