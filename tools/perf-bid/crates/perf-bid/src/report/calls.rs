// SPDX-License-Identifier: GPL-2.0
//! The callchains of an event as trees of functions: a root for each group of threads, and
//! below it who calls whom. Frames in one function are one node, inlined functions are nodes
//! of their own. Nodes are in an order in which callers come before what they call, so that
//! sums over subtrees are one pass from the end.

use perf_bid_core::machine::CommId;
use perf_bid_core::profile::EventProfile;
use perf_bid_core::profile::Key;
use perf_bid_core::profile::Profile;
use perf_bid_core::profile::StackId;
use perf_bid_core::profile::Weight;
use rustc_hash::FxHashMap;

use super::names::Names;
use super::names::SymId;
use crate::cli;

/// Index of a [`Node`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// Index of a [`Task`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// No node.
const NONE: u32 = u32::MAX;

/// What threads are told apart by; what they are not told apart by is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct Task {
    pub comm: Option<CommId>,
    pub pid: u32,
    pub tid: u32,
}

/// Which of a [`Task`]'s fields matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct TaskDetail {
    pub comm: bool,
    pub pid: bool,
    pub tid: bool,
}

/// A function as called along one way.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The caller, or [`NONE`] for a root.
    parent: u32,
    first_child: u32,
    sibling: u32,
    /// Frames from the root.
    depth: u32,
    /// Meaningless in a root.
    pub symbol: SymId,
    /// Whose.
    pub task: TaskId,
    /// Samples here and below.
    pub total: Weight,
}

/// Where samples fell.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// The innermost function, which may be inlined.
    pub node: NodeId,
    /// The function it is part of.
    pub symbol: SymId,
    /// Of these samples.
    pub weight: Weight,
}

/// All calls of one event.
#[derive(Debug, Default)]
pub struct Calls {
    nodes: Vec<Node>,
    /// By node.
    pub leaves: Vec<Leaf>,
    /// Groups of threads, the root of each.
    pub tasks: Vec<Task>,
    /// All samples of the event, filtered ones included.
    pub all: Weight,
    /// Samples that passed the filter.
    pub shown: Weight,
}

impl Calls {
    /// The calls of `event`, as far as `filter` lets them pass.
    pub fn build(
        event: &EventProfile,
        profile: &Profile,
        names: &Names,
        detail: TaskDetail,
        filter: &cli::Filter,
    ) -> Self {
        let mut sums: Vec<_> = event
            .sums
            .iter()
            .map(|(key, weight)| (task_of(key, detail), key.stack, *key, *weight))
            .collect();
        sums.sort_unstable_by_key(|(task, stack, key, _)| (*task, *stack, *key));
        let passes = Passes::new(filter, profile, names);
        let mut builder = Builder {
            calls: Self { all: event.weight, ..Self::default() },
            index: FxHashMap::default(),
            stacks: FxHashMap::default(),
            leaves: FxHashMap::default(),
            path: Vec::new(),
            profile,
            names,
            max_stack: filter.max_stack.map_or(usize::MAX, |max| max.max(1) as usize),
        };
        for (task, stack, key, weight) in sums {
            let leaf = profile.stacks.walk(stack).next();
            let symbol = leaf.and_then(|frame| names.own(frame));
            if passes.sample(&key, symbol) {
                builder.add(task, stack, symbol, weight);
            }
        }
        builder.calls.sum_up();
        builder.calls
    }

    fn push(&mut self, parent: u32, symbol: SymId, task: TaskId) -> u32 {
        let id = self.nodes.len() as u32;
        let (mut depth, mut sibling) = (0, NONE);
        if let Some(caller) = self.nodes.get_mut(parent as usize) {
            depth = caller.depth.saturating_add(1);
            sibling = std::mem::replace(&mut caller.first_child, id);
        }
        let total = Weight::default();
        self.nodes.push(Node { parent, first_child: NONE, sibling, depth, symbol, task, total });
        id
    }

    fn sum_up(&mut self) {
        self.leaves.sort_unstable_by_key(|leaf| (leaf.node, leaf.symbol));
        for leaf in &self.leaves {
            self.shown.add(leaf.weight);
            if let Some(node) = self.nodes.get_mut(leaf.node.0 as usize) {
                node.total.add(leaf.weight);
            }
        }
        for at in (0..self.nodes.len()).rev() {
            let Some(&Node { parent, total, .. }) = self.nodes.get(at) else { continue };
            if let Some(caller) = self.nodes.get_mut(parent as usize) {
                caller.total.add(total);
            }
        }
    }

    /// The node with index `id`.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    /// All functions, callers before callees.
    pub fn functions(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let all = self.nodes.iter().zip(0u32..).map(|(node, at)| (NodeId(at), node));
        all.filter(|(_, node)| node.parent != NONE)
    }

    /// The node above the functions of each task.
    pub fn roots(&self) -> impl Iterator<Item = NodeId> {
        let all = self.nodes.iter().zip(0u32..);
        all.filter(|(node, _)| node.parent == NONE).map(|(_, at)| NodeId(at))
    }

    /// Number of nodes, roots included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The function that called `id`.
    pub fn caller(&self, id: NodeId) -> Option<NodeId> {
        let parent = self.node(id)?.parent;
        let caller = self.nodes.get(parent as usize)?;
        (caller.parent != NONE).then_some(NodeId(parent))
    }

    /// What `id` calls.
    pub fn callees(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let mut at = self.node(id).map_or(NONE, |node| node.first_child);
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            Some(NodeId(std::mem::replace(&mut at, node.sibling)))
        })
    }

    /// The caller of `id` that is `depth` frames from the root, itself included.
    pub fn at_depth(&self, id: NodeId, depth: u32) -> Option<NodeId> {
        let mut at = id;
        while self.node(at)?.depth > depth {
            at = NodeId(self.node(at)?.parent);
        }
        (self.node(at)?.depth == depth).then_some(at)
    }

    /// As an index into something with an element for each node.
    pub fn index(id: NodeId) -> usize {
        id.0 as usize
    }
}

fn task_of(key: &Key, detail: TaskDetail) -> Task {
    Task {
        comm: detail.comm.then_some(key.comm),
        pid: if detail.pid { key.pid } else { 0 },
        tid: if detail.tid { key.tid } else { 0 },
    }
}

struct Builder<'a> {
    calls: Calls,
    index: FxHashMap<(u32, SymId), u32>,
    /// Nodes of the callchains of the task at hand.
    stacks: FxHashMap<StackId, u32>,
    leaves: FxHashMap<(NodeId, SymId), usize>,
    path: Vec<(StackId, u32)>,
    profile: &'a Profile,
    names: &'a Names,
    max_stack: usize,
}

impl Builder<'_> {
    /// Adds a sum; those of one task come after another.
    fn add(&mut self, task: Task, stack: StackId, symbol: Option<SymId>, weight: Weight) {
        if self.calls.tasks.last() != Some(&task) {
            self.calls.tasks.push(task);
            self.stacks.clear();
            let id = self.task();
            let root = self.calls.push(NONE, SymId(0), id);
            self.stacks.insert(StackId::EMPTY, root);
        }
        let Some(symbol) = symbol else { return };
        let node =
            if self.max_stack == usize::MAX { self.node(stack) } else { self.shortened(stack) };
        let calls = &mut self.calls;
        let at = *self.leaves.entry((NodeId(node), symbol)).or_insert_with(|| {
            calls.leaves.push(Leaf { node: NodeId(node), symbol, weight: Weight::default() });
            calls.leaves.len() - 1
        });
        if let Some(leaf) = calls.leaves.get_mut(at) {
            leaf.weight.add(weight);
        }
    }

    fn task(&self) -> TaskId {
        TaskId(self.calls.tasks.len().saturating_sub(1) as u32)
    }

    fn root(&self) -> u32 {
        self.stacks.get(&StackId::EMPTY).copied().unwrap_or(0)
    }

    /// The node of a callchain: from the nearest caller whose node is known.
    fn node(&mut self, stack: StackId) -> u32 {
        self.path.clear();
        let (mut at, mut node) = (stack, self.root());
        loop {
            if let Some(&known) = self.stacks.get(&at) {
                node = known;
                break;
            }
            let Some((caller, frame)) = self.profile.stacks.split(at) else { break };
            self.path.push((at, frame.0));
            at = caller;
        }
        while let Some((stack, frame)) = self.path.pop() {
            node = self.call(node, frame);
            self.stacks.insert(stack, node);
        }
        node
    }

    /// The node of the innermost frames of a callchain.
    fn shortened(&mut self, stack: StackId) -> u32 {
        let frames: Vec<_> = self.profile.stacks.walk(stack).take(self.max_stack).collect();
        let root = self.root();
        frames.iter().rev().fold(root, |node, frame| self.call(node, frame.0))
    }

    /// The node of `frame` called from `node`.
    fn call(&mut self, node: u32, frame: u32) -> u32 {
        let task = self.task();
        let functions = self.names.functions(perf_bid_core::profile::FrameId(frame));
        functions.iter().rev().fold(node, |caller, &symbol| {
            let calls = &mut self.calls;
            *self.index.entry((caller, symbol)).or_insert_with(|| calls.push(caller, symbol, task))
        })
    }
}

/// Which samples are wanted.
struct Passes<'a> {
    filter: &'a cli::Filter,
    /// By [`SymId`]; empty if all do.
    symbols: Vec<bool>,
    /// By [`CommId`]; empty if all do.
    comms: Vec<bool>,
}

impl<'a> Passes<'a> {
    fn new(filter: &'a cli::Filter, profile: &Profile, names: &Names) -> Self {
        let one_of = |list: &[String], text: &str| list.iter().any(|wanted| wanted == text);
        let mut passes = Self { filter, symbols: Vec::new(), comms: Vec::new() };
        if !filter.comms.is_empty() {
            passes.comms = profile.comms.iter().map(|comm| one_of(&filter.comms, comm)).collect();
        }
        if !filter.dsos.is_empty() || !filter.symbols.is_empty() {
            let passes_both = |at: u32| {
                let dso = names.dso_of(SymId(at));
                let name = names.get(SymId(at)).and_then(|symbol| symbol.name.as_deref());
                (filter.dsos.is_empty()
                    || dso.is_some_and(|dso| {
                        one_of(&filter.dsos, &dso.long) || one_of(&filter.dsos, &dso.short)
                    }))
                    && (filter.symbols.is_empty()
                        || name.is_some_and(|name| one_of(&filter.symbols, name)))
            };
            passes.symbols = (0..names.symbols().len() as u32).map(passes_both).collect();
        }
        passes
    }

    fn sample(&self, key: &Key, symbol: Option<SymId>) -> bool {
        let at = |list: &[bool], at: Option<u32>| {
            list.is_empty() || at.is_some_and(|at| list.get(at as usize) == Some(&true))
        };
        let one_of = |list: &[u32], id: u32| list.is_empty() || list.contains(&id);
        at(&self.comms, Some(key.comm.0))
            && at(&self.symbols, symbol.map(|symbol| symbol.0))
            && one_of(&self.filter.pid, key.pid)
            && one_of(&self.filter.tid, key.tid)
    }
}
