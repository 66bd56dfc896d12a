// SPDX-License-Identifier: GPL-2.0
//! Profiles for tests, made from lists of callchains. Functions have their names from a
//! `perf-PID.map`, so that no file is needed for them.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use perf_bid_core::machine::CommId;
use perf_bid_core::place::Dso;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::profile::EventProfile;
use perf_bid_core::profile::Key;
use perf_bid_core::profile::Profile;
use perf_bid_core::profile::StackId;
use perf_bid_core::profile::Stacks;
use perf_bid_core::profile::Totals;
use perf_bid_core::profile::Weight;
use perf_bid_core::store::Store;
use perf_bid_core::symbols::Options;
use perf_bid_core::symbols::Symbolizer;

use super::names::Detail;
use super::names::Names;
use super::view::Settings;
use super::view::View;
use crate::cli;

const PID: u32 = 7;

/// Thread name, functions from the outermost, period.
pub type Chain<'a> = (&'a str, &'a [&'a str], u64);

/// A profile of one event for each list of samples, and its names.
pub fn profile(events: &[&[Chain<'_>]]) -> (Profile, Names) {
    let mut dsos = Dsos::default();
    let dso = dsos.intern(Dso {
        kind: DsoKind::Anon { pid: PID },
        path: "//anon".into(),
        build_id: None,
    });
    let mut addresses: BTreeMap<String, u64> = BTreeMap::new();
    let mut comms: Vec<std::sync::Arc<str>> = Vec::new();
    let mut stacks = Stacks::default();
    let mut profiles = Vec::new();
    for (at, chains) in events.iter().enumerate() {
        let name = format!("event-{at}");
        let mut event = EventProfile { name, ..EventProfile::default() };
        for (comm, functions, period) in *chains {
            let found = comms.iter().position(|name| **name == **comm);
            let comm = found.unwrap_or_else(|| {
                comms.push((*comm).into());
                comms.len() - 1
            });
            let stack = functions.iter().fold(StackId::EMPTY, |caller, name| {
                let next = 0x1000 * (addresses.len() as u64 + 1);
                let address = *addresses.entry((*name).to_owned()).or_insert(next) + 8;
                let frame =
                    stacks.frame(Frame { place: Place::Memory { dso, address }, caller: false });
                stacks.push(caller, frame)
            });
            let key = Key { comm: CommId(comm as u32), pid: 0, tid: 0, stack };
            let weight = Weight { samples: 1, period: *period };
            event.weight.add(weight);
            event.sums.entry(key).or_default().add(weight);
        }
        profiles.push(event);
    }
    let dir = tempfile::tempdir().unwrap();
    let mut map = String::new();
    addresses.iter().for_each(|(name, at)| writeln!(map, "{at:x} 100 {name}").unwrap());
    std::fs::write(dir.path().join(format!("perf-{PID}.map")), map).unwrap();
    let profile = Profile {
        events: profiles,
        dsos,
        hits: Vec::new(),
        stacks,
        comms,
        hints: Vec::new(),
        kernel_reference: None,
        totals: Totals::default(),
        damage: None,
    };
    let options = Options { jit_dir: dir.path().into(), ..Options::default() };
    let mut symbolizer = Symbolizer::new(Store::with_roots(Vec::new()), options);
    let names = Names::find(&profile, &mut symbolizer, Detail::default());
    (profile, names)
}

/// The first event, as `perf-bid report ARGS` looks at it.
pub fn view<'a>(profile: &'a Profile, names: &'a Names, args: &[&str]) -> View<'a> {
    let args = arguments(args);
    let event = profile.events.first().unwrap();
    View::new(event, profile, names, &Settings::new(&args, true, false), &args.filter)
}

/// Parsed options.
pub fn arguments(args: &[&str]) -> cli::Report {
    use clap::Parser;
    let words = ["perf-bid", "report"].iter().chain(args);
    match cli::Cli::try_parse_from(words).unwrap().command {
        cli::Command::Report(report) => report,
        _ => unreachable!(),
    }
}
