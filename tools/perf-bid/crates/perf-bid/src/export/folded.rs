// SPDX-License-Identifier: GPL-2.0
//! Folded stacks: `comm;outermost;…;innermost weight`, sorted, equal ones added up.

use std::collections::BTreeMap;
use std::io::Write;

use perf_bid_core::profile::FrameId;
use rustc_hash::FxHashMap;

use super::Source;
use super::Written;
use crate::cli::Weights;
use crate::open;
use crate::report::flame::Folded;
use crate::report::flame::clean;
use crate::report::names::Detail;
use crate::report::names::Names;
use crate::report::names::SymId;

/// Writes the stacks; with `marks`, frames end in `_[k]`, `_[i]` or `_[j]` as in flame graphs.
pub fn write(source: &Source<'_>, out: &mut (dyn Write + Send), marks: bool) -> Written {
    let args = source.args;
    let profile = source.profile(false, false);
    let mut symbolizer = open::symbolizer(&source.data, &profile.hints, &args.naming, false)?;
    let detail = Detail { lines: false, inlined: args.naming.wants_inlined() };
    let names = Names::find(&profile, &mut symbolizer, detail);
    let mut labels =
        Labels { names: &names, folded: Folded::default(), marks, seen: FxHashMap::default() };
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for &at in &source.events {
        let Some(event) = profile.events.get(at) else { continue };
        for (key, weight) in &event.sums {
            let comm = profile.comms.get(key.comm.0 as usize).map_or("?", |comm| comm);
            let mut line = String::new();
            if args.all {
                line.push_str(&clean(source.event_name(at)));
                line.push(';');
            }
            line.push_str(&clean(comm));
            let frames: Vec<_> = profile.stacks.walk(key.stack).collect();
            frames.iter().rev().for_each(|&frame| labels.append(&mut line, frame));
            let weight = match args.weights {
                Weights::Samples => weight.samples,
                Weights::Period => weight.period,
            };
            let sum = stacks.entry(line).or_default();
            *sum = sum.saturating_add(weight);
        }
    }
    for (stack, weight) in stacks.iter().filter(|(_, weight)| **weight > 0) {
        writeln!(out, "{stack} {weight}")?;
    }
    Ok(profile.damage)
}

/// What frames are called in a stack.
struct Labels<'a> {
    names: &'a Names,
    folded: Folded,
    marks: bool,
    seen: FxHashMap<SymId, String>,
}

impl Labels<'_> {
    /// Appends the functions of a frame, outermost first.
    fn append(&mut self, line: &mut String, frame: FrameId) {
        for &symbol in self.names.functions(frame).iter().rev() {
            line.push(';');
            let (names, folded, marks) = (self.names, &mut self.folded, self.marks);
            let label = self.seen.entry(symbol).or_insert_with(|| match marks {
                true => folded.label(names, symbol),
                false => clean(&names.label(symbol).to_string()),
            });
            line.push_str(label);
        }
    }
}
