// SPDX-License-Identifier: GPL-2.0
//! What rows are grouped by, and how that is written.

use perf_bid_core::machine::CommId;
use perf_bid_core::profile::EventProfile;
use perf_bid_core::profile::Profile;
use rustc_hash::FxHashMap;

use super::calls::Task;
use super::calls::TaskDetail;
use super::names::Names;
use super::names::Origin;
use super::names::SymId;
use crate::cli::SortKey;

/// The chosen columns, and what their cells are made from.
pub struct Columns<'a> {
    keys: Vec<SortKey>,
    /// Whole paths.
    long: bool,
    names: &'a Names,
    profile: &'a Profile,
    /// A name for each process and thread that has samples.
    comm_of: FxHashMap<u32, CommId>,
}

/// Index of a group of symbols that the columns do not tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartId(pub u32);

impl<'a> Columns<'a> {
    /// Columns `keys` of a profile.
    pub fn new(keys: &[SortKey], long: bool, names: &'a Names, profile: &'a Profile) -> Self {
        Self { keys: keys.to_vec(), long, names, profile, comm_of: FxHashMap::default() }
    }

    /// Gives processes and threads of `event` their names.
    pub fn name_tasks(&mut self, event: &EventProfile) {
        for key in event.sums.keys() {
            for id in [key.pid, key.tid] {
                let comm = self.comm_of.entry(id).or_insert(key.comm);
                // Threads are younger than their process, and so are their names.
                *comm = key.comm.min(*comm);
            }
        }
    }

    /// The columns.
    pub fn keys(&self) -> &[SortKey] {
        &self.keys
    }

    /// What of a thread matters to the columns.
    pub fn task_detail(&self) -> TaskDetail {
        task_detail(&self.keys)
    }

    /// The group of each symbol.
    pub fn parts(&self) -> Vec<PartId> {
        let mut index: FxHashMap<Vec<String>, PartId> = FxHashMap::default();
        let task = Task { comm: None, pid: 0, tid: 0 };
        let by_symbol = |key: &&SortKey| {
            matches!(key, SortKey::Dso | SortKey::Symbol | SortKey::Buildid | SortKey::Srcline)
        };
        let keys: Vec<_> = self.keys.iter().filter(by_symbol).copied().collect();
        let mut parts = Vec::new();
        for at in 0..self.names.symbols().len() as u32 {
            let identity = |&key: &SortKey| match key {
                // Functions of one name are different functions.
                SortKey::Symbol => at.to_string(),
                key => self.cell(key, task, SymId(at)),
            };
            let next = PartId(index.len() as u32);
            parts.push(*index.entry(keys.iter().map(identity).collect()).or_insert(next));
        }
        parts
    }

    /// The text of a row's cell.
    pub fn cell(&self, key: SortKey, task: Task, symbol: SymId) -> String {
        let dso = self.names.dso_of(symbol);
        match key {
            SortKey::Comm => self.comm(task.comm),
            SortKey::Pid => format!("{}:{}", task.pid, self.comm_of(task.pid)),
            SortKey::Tid => format!("{}:{}", task.tid, self.comm_of(task.tid)),
            SortKey::Dso => {
                let name = dso.map(|dso| if self.long { &dso.long } else { &dso.short });
                name.cloned().unwrap_or_default()
            }
            SortKey::Buildid => {
                let id = dso.and_then(|dso| dso.build_id);
                id.map_or_else(|| "-".to_owned(), |id| id.short())
            }
            SortKey::Symbol => {
                let mode = match self.names.origin(symbol) {
                    Origin::Kernel => 'k',
                    _ => '.',
                };
                format!("[{mode}] {}", printable(&self.names.symbol_text(symbol).to_string()))
            }
            SortKey::Srcline => self.srcline(symbol),
        }
    }

    /// The source line; where it is not known, what perf says instead: how far into which
    /// function.
    fn srcline(&self, id: SymId) -> String {
        let Some(symbol) = self.names.get(id) else { return String::new() };
        match (&symbol.source, &symbol.name, symbol.offset) {
            (Some((file, line)), ..) => {
                let short = file.rsplit('/').next().unwrap_or(file);
                format!("{}:{line}", printable(if self.long { file } else { short }))
            }
            (None, Some(name), Some(offset)) => format!("{}+{offset}", printable(name)),
            _ => self.names.label(id).to_string(),
        }
    }

    fn comm(&self, comm: Option<CommId>) -> String {
        let name = comm.and_then(|comm| self.profile.comms.get(comm.0 as usize));
        printable(name.map_or("", |name| name))
    }

    fn comm_of(&self, id: u32) -> String {
        self.comm(self.comm_of.get(&id).copied())
    }
}

/// What of a thread matters to `keys`.
pub fn task_detail(keys: &[SortKey]) -> TaskDetail {
    TaskDetail {
        comm: keys.contains(&SortKey::Comm),
        pid: keys.contains(&SortKey::Pid),
        tid: keys.contains(&SortKey::Tid),
    }
}

/// The heading of a column.
pub fn title(key: SortKey) -> &'static str {
    match key {
        SortKey::Comm => "Command",
        SortKey::Dso => "Shared Object",
        SortKey::Symbol => "Symbol",
        SortKey::Buildid => "Build ID",
        SortKey::Srcline => "Source:Line",
        SortKey::Pid => "Pid:Command",
        SortKey::Tid => "Tid:Command",
    }
}

/// The name of a column in JSON.
pub fn key_name(key: SortKey) -> &'static str {
    match key {
        SortKey::Comm => "comm",
        SortKey::Dso => "dso",
        SortKey::Symbol => "symbol",
        SortKey::Buildid => "buildid",
        SortKey::Srcline => "srcline",
        SortKey::Pid => "pid",
        SortKey::Tid => "tid",
    }
}

/// Without what a terminal would act upon: names come from the recording.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
