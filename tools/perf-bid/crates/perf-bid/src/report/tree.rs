// SPDX-License-Identifier: GPL-2.0
//! Call trees of rows. A branch finds what is below it only when asked, so that a tree costs
//! what is looked at, however large the profile.

use perf_bid_core::profile::Weight;
use rustc_hash::FxHashMap;

use super::calls::Calls;
use super::calls::NodeId;
use super::names::SymId;

/// Which way trees grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the row to what it calls.
    Callees,
    /// From the row to what called it.
    Callers,
    /// From the outermost function to the row.
    FromOutermost,
}

/// A function in a tree.
#[derive(Clone, Debug)]
pub struct Branch {
    /// Which.
    pub symbol: SymId,
    /// Samples that come this way.
    pub weight: Weight,
    /// The nodes it stands for; with [`Order::FromOutermost`], where their ways end.
    members: Vec<(NodeId, Weight)>,
    depth: u32,
}

impl Branch {
    /// The first functions of the tree that begins at `starts`, heaviest first.
    pub fn first(calls: &Calls, starts: &[(NodeId, Weight)], order: Order) -> Vec<Self> {
        let starts = starts.iter().copied();
        match order {
            Order::Callees | Order::Callers => group(calls, starts.map(|(id, w)| (id, id, w)), 0),
            Order::FromOutermost => at_depth(calls, starts, 1),
        }
    }

    /// The functions below this one, heaviest first.
    pub fn below(&self, calls: &Calls, order: Order) -> Vec<Self> {
        let members = self.members.iter().copied();
        match order {
            Order::Callees => {
                let below = members.flat_map(|(id, _)| calls.callees(id));
                let weighed = below.filter_map(|id| Some((id, id, calls.node(id)?.total)));
                group(calls, weighed, 0)
            }
            Order::Callers => {
                let above = members.filter_map(|(id, w)| Some((calls.caller(id)?, w)));
                group(calls, above.map(|(id, w)| (id, id, w)), 0)
            }
            Order::FromOutermost => at_depth(calls, members, self.depth + 1),
        }
    }
}

fn at_depth(
    calls: &Calls,
    ends: impl Iterator<Item = (NodeId, Weight)>,
    depth: u32,
) -> Vec<Branch> {
    let ways = ends.filter_map(|(end, w)| Some((calls.at_depth(end, depth)?, end, w)));
    group(calls, ways, depth)
}

/// Branches of nodes of one symbol; of each node: itself, the member it becomes, its weight.
fn group(
    calls: &Calls,
    nodes: impl Iterator<Item = (NodeId, NodeId, Weight)>,
    depth: u32,
) -> Vec<Branch> {
    let mut branches: Vec<Branch> = Vec::new();
    let mut index: FxHashMap<SymId, usize> = FxHashMap::default();
    for (node, member, weight) in nodes {
        let Some(symbol) = calls.node(node).map(|node| node.symbol) else { continue };
        let at = *index.entry(symbol).or_insert_with(|| {
            let (weight, members) = (Weight::default(), Vec::new());
            branches.push(Branch { symbol, weight, members, depth });
            branches.len() - 1
        });
        if let Some(branch) = branches.get_mut(at) {
            branch.weight.add(weight);
            match branch.members.last_mut() {
                Some((last, sum)) if *last == member => sum.add(weight),
                _ => branch.members.push((member, weight)),
            }
        }
    }
    branches.sort_by_key(|branch| {
        (std::cmp::Reverse((branch.weight.period, branch.weight.samples)), branch.symbol)
    });
    branches
}
