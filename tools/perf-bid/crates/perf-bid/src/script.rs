// SPDX-License-Identifier: GPL-2.0
//! `perf-bid script`: the samples of a recording one by one, in time order, as `perf script`
//! prints them or as JSON.
//!
//! A recording has few distinct frames and very many samples. What is printed of a frame is
//! made once and copied from then on ([`frames`]); a second thread writes ([`output`]).

mod fields;
mod filter;
mod frames;
mod json;
mod lines;
mod order;
mod output;
mod put;
mod records;

use std::io::IsTerminal;
use std::io::Write;
use std::io::stdout;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::record_type;
use perf_bid_core::abi::sample;
use perf_bid_core::cursor::Malformed;
use perf_bid_core::data::PerfData;
use perf_bid_core::machine::Machine;
use perf_bid_core::machine::RawFrame;
use perf_bid_core::record::Record;
use perf_bid_core::record::Sample;
use perf_bid_core::record::SampleId;
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Joined;

use self::fields::Field;
use self::fields::Fields;
use self::filter::Filter;
use self::frames::Choice;
use self::frames::Frames;
use self::lines::Text;
pub use self::order::Ordered;
use self::output::Closed;
use self::output::Output;
use crate::cli;
use crate::open;
use crate::report::header;

/// Width of a thread's name where callchains do not follow.
const COMM_WIDTH: usize = 16;

const STDOUT: &str = "cannot write to standard output";

/// What a line begins with.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    comm: &'a str,
    /// Name of the event; none before records that are not samples.
    event: Option<&'a str>,
    /// Of the event, if the sample does not say its own.
    period: u64,
    sample: &'a Sample<'a>,
}

/// Runs `perf-bid script`.
pub fn run(args: &cli::Script) -> Result<ExitCode> {
    let shown = args.input.display();
    let data = open::data(&args.input)?;
    if args.header {
        header::features(&mut stdout(), &data).context(STDOUT)?;
    }
    let damage = write(args, &data, stdout())?;
    for line in data.unreadable_features() {
        eprintln!("perf-bid: {shown}: {line}");
    }
    if let Some(damage) = damage {
        eprintln!("perf-bid: {shown}: {damage}; what came before it is shown");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a recording; returns where it stopped making sense, if it did.
pub fn write(
    args: &cli::Script,
    data: &PerfData,
    out: impl Write + Send,
) -> Result<Option<Malformed>> {
    let fields = args.fields.as_deref().map_or(Ok(Fields::default()), Fields::parse)?;
    for event in data.events() {
        fields.check(event).with_context(|| args.input.display().to_string())?;
    }
    let mut printer = Printer::new(args, data, fields)?;
    let damage = output::write(out, |out| printer.print(data, out)).context("cannot write")?;
    if let Some(why) = printer.frames.kernel_problem() {
        eprintln!("perf-bid: no kernel symbols: {why}");
    }
    Ok(damage)
}

/// The paths that a recording gives for build IDs: in its table, and in map records, which may
/// come later than the first frame with that ID.
pub fn hints(data: &PerfData) -> Vec<(BuildId, Arc<str>)> {
    let mut machine = Machine::new(&data.features().build_ids);
    if data.events().iter().any(|event| event.attr.wants_build_ids()) {
        let maps =
            data.records().map_while(Result::ok).filter(|raw| raw.type_ == record_type::MMAP2);
        maps.filter_map(|raw| data.decode(&raw).ok()).for_each(|record| machine.record(&record));
    }
    machine.hints()
}

/// What is printed of an event.
#[derive(Clone, Copy)]
struct Event<'a> {
    name: &'a str,
    /// Whether its samples have callchains to print.
    chain: bool,
    /// Of samples that do not say theirs.
    period: u64,
}

struct Printer<'a> {
    args: &'a cli::Script,
    text: Text,
    filter: Filter,
    machine: Machine,
    frames: Frames,
    events: Vec<Event<'a>>,
    raw: Vec<RawFrame>,
}

impl Head<'_> {
    fn period(&self) -> Option<u64> {
        self.event?;
        Some(self.sample.period.unwrap_or(self.period))
    }
}

impl<'a> Printer<'a> {
    fn new(args: &'a cli::Script, data: &'a PerfData, fields: Fields) -> Result<Self> {
        let machine = Machine::new(&data.features().build_ids);
        let srcline = fields.has(Field::Srcline) || args.json;
        let symbolizer = open::symbolizer(data, &machine.hints(), &args.naming, srcline)?;
        let choice = Choice { dsos: args.dsos.clone(), symbols: args.symbols.clone() };
        let build_ids = data.events().iter().any(|event| event.attr.wants_build_ids());
        let chains = sample::CALLCHAIN | sample::CALLCHAIN_BUILD_ID_OFFSET;
        let events: Vec<_> = data
            .events()
            .iter()
            .map(|event| Event {
                name: if event.name.is_empty() { "unnamed" } else { &event.name },
                chain: event.attr.sample_type & chains != 0 && !args.hide_call_graph,
                period: event.attr.sample_period,
            })
            .collect();
        let event_width = events.iter().map(|event| event.name.chars().count()).max().unwrap_or(0);
        Ok(Self {
            args,
            text: Text { fields, ns: args.ns, event_width },
            filter: Filter::new(args)?,
            machine,
            frames: Frames::new(symbolizer, choice, build_ids).with_recorded(args.return_addresses),
            events,
            raw: Vec::new(),
        })
    }

    /// Prints everything; returns where the file stopped making sense, if it did.
    fn print(&mut self, data: &PerfData, out: &mut Output) -> Result<Option<Malformed>, Closed> {
        // Lines on a terminal are progress enough.
        let bar = open::progress(data.data_len(), "printing").filter(|_| !stdout().is_terminal());
        let mut damage = None;
        let mut items = Ordered::new(data);
        while let Some(item) = items.next() {
            match item {
                Ok(Item::Sample(joined)) => self.sample(&mut out.buffer, &joined),
                Ok(Item::Other(record)) => self.other(&mut out.buffer, &record),
                Err(error) => damage = Some(error),
            }
            if out.flush_if_full()?
                && let Some(bar) = &bar
            {
                bar.set_position(items.position());
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(damage)
    }

    fn sample(&mut self, out: &mut Vec<u8>, joined: &Joined<'_>) {
        let sample = &joined.sample;
        let comm = self.machine.comm(sample.tid.unwrap_or(0));
        let Some(&Event { name, chain, period }) = self.events.get(joined.event) else {
            return;
        };
        self.machine.frames(joined, &mut self.raw);
        let head = Head { comm: self.machine.comm_name(comm), event: Some(name), period, sample };
        if !self.filter.takes(&head) {
            return;
        }
        let most = if chain { self.args.max_stack.unwrap_or(usize::MAX) } else { 1 };
        self.raw.truncate(most);
        let dsos = &self.machine.dsos;
        let leaf = self.raw.first().map(|raw| raw.frame);
        if !leaf.is_none_or(|leaf| self.frames.is_chosen(dsos, leaf)) {
            return;
        }
        if self.args.json {
            json::sample(out, &head, &self.raw, dsos, &mut self.frames);
        } else {
            self.text.sample(out, &head, &self.raw, (dsos, &mut self.frames), chain);
        }
    }

    fn other(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        self.machine.record(record);
        let Some(id) = records::shown(self.args, record) else {
            return;
        };
        let SampleId { pid, tid, time, cpu, .. } = id;
        let sample = Sample { pid, tid, time, cpu, ..Sample::default() };
        // What a tool made up says no more than whose name it is.
        let named = if let Record::Comm(comm) = record { Some(comm.tid) } else { tid };
        let comm = self.machine.comm(named.unwrap_or(0));
        let head =
            Head { comm: self.machine.comm_name(comm), event: None, period: 0, sample: &sample };
        if !self.filter.takes(&head) {
            return;
        }
        if self.args.json {
            out.push(b'{');
            json::task(out, &head);
            let members = serde_json::Value::Object(records::members(record)).to_string();
            out.extend_from_slice(members.get(1..).unwrap_or("}").as_bytes());
        } else {
            let in_chains = self.events.first().is_some_and(|event| event.chain);
            self.text.head(out, &head, if in_chains { 0 } else { COMM_WIDTH });
            out.extend_from_slice(records::line(record).as_bytes());
        }
        out.push(b'\n');
    }
}
