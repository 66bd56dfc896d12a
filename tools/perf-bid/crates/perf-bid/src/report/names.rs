// SPDX-License-Identifier: GPL-2.0
//! Gives every place of a profile its names: file, build ID and symbol. Places are looked up
//! in one batch for each file.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;

use perf_bid_core::abi::BuildId;
use perf_bid_core::symbols::Lookup;
use perf_bid_core::symbols::Symbols;

use super::profile::Place;
use super::profile::Profile;

/// What a place is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Path of the file, or a word in brackets.
    pub dso: String,
    /// Of the file or the kernel.
    pub build_id: Option<BuildId>,
    /// Demangled function, if one was found.
    pub symbol: Option<String>,
    /// Where to look in the file (or the kernel) oneself.
    pub offset: Option<u64>,
    /// `offset` is where the function begins, not where the sample fell.
    pub function: bool,
}

impl Name {
    /// The symbol for a table.
    pub fn symbol_or_offset(&self) -> String {
        match (&self.symbol, self.offset) {
            (Some(symbol), _) => symbol.clone(),
            (None, Some(offset)) if self.function => format!("[function {offset:#x}]"),
            (None, Some(offset)) => format!("[unknown]+{offset:#x}"),
            (None, None) => "-".to_owned(),
        }
    }

    /// The symbol for a flame graph, where the file is not seen beside it.
    pub fn label(&self) -> String {
        match (&self.symbol, self.offset) {
            (Some(symbol), _) => symbol.clone(),
            (None, Some(offset)) => {
                let file = self.dso.rsplit('/').next().unwrap_or(&self.dso);
                format!("{file}+{offset:#x}")
            }
            (None, None) => self.dso.clone(),
        }
    }
}

/// The names of all places of a profile.
#[derive(Debug)]
pub struct Names {
    names: HashMap<Place, Name>,
    /// Build IDs for which no file was found, or only files with other IDs.
    pub without_file: Vec<(BuildId, String)>,
}

impl Names {
    /// Looks everything up.
    pub fn find(profile: &Profile, symbols: &mut Symbols, kernel: Option<BuildId>) -> Self {
        let mut places = BTreeSet::new();
        for event in &profile.events {
            places.extend(event.places.keys().map(|(_, place)| *place));
            places.extend(event.stacks.keys().flat_map(|(_, stack)| stack.iter().copied()));
        }
        let mut files: BTreeMap<BuildId, Vec<(Place, u64)>> = BTreeMap::new();
        let mut kernel_places = Vec::new();
        let mut names = HashMap::new();
        for place in places {
            match place {
                Place::File { id, offset, .. } => {
                    files.entry(id).or_default().push((place, offset))
                }
                Place::Kernel { address, .. } => kernel_places.push((place, address)),
                Place::Unresolved(status) => {
                    names.insert(place, Name::word(&format!("[{status}]")));
                }
                Place::Missing => {
                    names.insert(place, Name::word("[deferred, missing]"));
                }
            }
        }
        let addresses: Vec<_> =
            kernel_places.iter().map(|&(place, at)| lookup_at(place, at)).collect();
        for ((place, at), symbol) in kernel_places.into_iter().zip(symbols.in_kernel(&addresses)) {
            let dso = "[kernel]".to_owned();
            let symbol = symbol.map(|symbol| symbol.name);
            names.insert(
                place,
                Name { dso, build_id: kernel, symbol, offset: Some(at), function: false },
            );
        }
        let mut without_file = Vec::new();
        for (id, places) in files {
            let binary = symbols.binary(id);
            let dso = binary.name.clone().unwrap_or_else(|| "[no file found]".to_owned());
            if binary.original.is_none() {
                without_file.push((id, why_no_file(binary)));
            }
            let offsets: Vec<_> = places.iter().map(|&(place, at)| lookup_at(place, at)).collect();
            for ((place, at), lookup) in places.into_iter().zip(symbols.in_file(id, &offsets)) {
                let (symbol, offset, function) = match lookup {
                    Lookup::Symbol(symbol) => (Some(symbol.name), at, false),
                    Lookup::Function(start) => (None, start, true),
                    Lookup::Unknown => (None, at, false),
                };
                let (dso, build_id, offset) = (dso.clone(), Some(id), Some(offset));
                names.insert(place, Name { dso, build_id, symbol, offset, function });
            }
        }
        Self { names, without_file }
    }

    /// The name of a place of the profile these names were made for.
    pub fn get(&self, place: Place) -> Name {
        self.names.get(&place).cloned().unwrap_or_else(|| Name::word("[?]"))
    }
}

impl Name {
    fn word(word: &str) -> Self {
        Self { dso: word.to_owned(), build_id: None, symbol: None, offset: None, function: false }
    }
}

/// A return address may be the first byte of the next function: the call is before it.
fn lookup_at(place: Place, at: u64) -> u64 {
    match place {
        Place::File { caller: true, .. } | Place::Kernel { caller: true, .. } => {
            at.saturating_sub(1)
        }
        _ => at,
    }
}

fn why_no_file(binary: &perf_bid_core::store::Binary) -> String {
    let name = binary.name.as_deref().unwrap_or("no recorded path");
    match (binary.replaced, &binary.debug) {
        (true, _) => format!("{name} has another build ID now"),
        (false, Some(debug)) => format!(
            "only a debug file, {}, whose offsets are not those of the original",
            debug.path.display()
        ),
        (false, None) => format!("{name}: no file with this build ID"),
    }
}
