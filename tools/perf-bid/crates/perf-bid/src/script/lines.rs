// SPDX-License-Identifier: GPL-2.0
//! Samples as text, in the layout of `perf script`, so that what reads that reads this.

use perf_bid_core::machine::RawFrame;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Place;
use perf_bid_core::record::Sample;

use super::COMM_WIDTH;
use super::Head;
use super::fields::Field;
use super::fields::Fields;
use super::frames::Frames;
use super::frames::Named;
use super::put;

/// How to print.
#[derive(Clone, Debug)]
pub struct Text {
    /// What of it.
    pub fields: Fields,
    /// Times to the nanosecond.
    pub ns: bool,
    /// Width of the longest name of an event.
    pub event_width: usize,
}

impl Text {
    /// Appends a sample. With `chain`, each frame has a line of its own.
    pub fn sample(
        &self,
        out: &mut Vec<u8>,
        head: &Head<'_>,
        frames: &[RawFrame],
        rendered: (&Dsos, &mut Frames),
        chain: bool,
    ) {
        let chain = chain && self.fields.has_frames();
        self.head(out, head, if chain { 0 } else { COMM_WIDTH });
        let (dsos, cache) = rendered;
        if !self.fields.has_frames() {
            out.push(b'\n');
            return;
        }
        out.push(if chain { b'\n' } else { b' ' });
        for raw in frames {
            let lines = cache.get(dsos, raw.frame, |named, at| self.line(named, at));
            // On one line there is room for the function itself, not for what is inlined in it.
            let inlined = if chain { 0 } else { lines.len().saturating_sub(1) };
            for line in lines.skip(inlined) {
                if chain {
                    out.push(b'\t');
                }
                self.value(out, raw);
                out.extend_from_slice(line);
            }
        }
        if chain {
            out.push(b'\n');
        }
    }

    /// What stands before the frames of a sample, or before another record.
    pub fn head(&self, out: &mut Vec<u8>, head: &Head<'_>, comm_width: usize) {
        let has = |field| self.fields.has(field);
        if has(Field::Comm) {
            put::right(out, head.comm, comm_width);
            out.push(b' ');
        }
        self.task(out, head);
        let sample = head.sample;
        if let Some(cpu) = sample.cpu.filter(|_| has(Field::Cpu)) {
            out.push(b'[');
            put::dec_zeros(out, cpu.into(), 3);
            out.extend_from_slice(b"] ");
        }
        if let Some(time) = sample.time.filter(|_| has(Field::Time)) {
            self.time(out, time);
        }
        if let Some(period) = head.period().filter(|_| has(Field::Period)) {
            put::dec(out, period, 10);
            out.push(b' ');
        }
        if let Some(event) = head.event.filter(|_| has(Field::Event)) {
            put::right(out, event, self.event_width);
            out.extend_from_slice(b": ");
        }
        self.data(out, sample);
    }

    fn task(&self, out: &mut Vec<u8>, head: &Head<'_>) {
        let (pid, tid) = (head.sample.pid.unwrap_or(0), head.sample.tid.unwrap_or(0));
        match (self.fields.has(Field::Pid), self.fields.has(Field::Tid)) {
            (true, true) => {
                put::id(out, pid, 7);
                out.push(b'/');
                let from = out.len();
                put::id(out, tid, 0);
                out.resize(out.len().max(from + 7), b' ');
            }
            (true, false) => put::id(out, pid, 7),
            (false, true) => put::id(out, tid, 7),
            (false, false) => return,
        }
        out.push(b' ');
    }

    fn time(&self, out: &mut Vec<u8>, time: u64) {
        let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
        put::dec(out, seconds, 5);
        out.push(b'.');
        match self.ns {
            true => put::dec_zeros(out, nanoseconds, 9),
            false => put::dec_zeros(out, nanoseconds / 1000, 6),
        }
        out.extend_from_slice(b": ");
    }

    fn data(&self, out: &mut Vec<u8>, sample: &Sample<'_>) {
        if let Some(addr) = sample.addr.filter(|_| self.fields.has(Field::Addr)) {
            put::hex(out, addr, 16);
            out.push(b' ');
        }
        if let Some(weight) = sample.weight.filter(|_| self.fields.has(Field::Weight)) {
            put::dec(out, weight, 16);
            out.push(b' ');
        }
    }

    fn value(&self, out: &mut Vec<u8>, raw: &RawFrame) {
        if !self.fields.has(Field::Ip) {
            return;
        }
        match raw.frame.place {
            Place::Missing => put::right(out, "", 16),
            _ => put::hex(out, raw.value, 16),
        }
    }

    /// The line of function `at` of a frame, without the value that it begins with.
    fn line(&self, named: &Named, at: usize) -> Vec<u8> {
        let has = |field| self.fields.has(field);
        let function = named.resolved.functions.get(at);
        let inlined = function.is_some_and(|function| function.inlined);
        let mut line = Vec::new();
        if has(Field::Sym) {
            separate(&mut line);
            line.extend_from_slice(function.map_or(b"[unknown]", |f| f.name.as_bytes()));
            let offset = function.and_then(|function| function.offset);
            if let Some(offset) = offset.filter(|_| has(Field::Symoff)) {
                line.push(b'+');
                put::hex0x(&mut line, offset);
            }
        }
        if inlined && (has(Field::Dso) || has(Field::Sym)) {
            line.extend_from_slice(b" (inlined)");
        } else {
            self.dso(&mut line, named);
        }
        self.ours(&mut line, named);
        if has(Field::Srcline) {
            source_line(&mut line, named, at);
        }
        if !has(Field::Ip) && line.first() == Some(&b' ') {
            line.remove(0);
        }
        line.push(b'\n');
        line
    }

    fn dso(&self, line: &mut Vec<u8>, named: &Named) {
        if !self.fields.has(Field::Dso) && !self.fields.has(Field::Dsoff) {
            return;
        }
        separate(line);
        line.push(b'(');
        line.extend_from_slice(named.dso.as_bytes());
        if let Some(offset) = named.offset().filter(|_| self.fields.has(Field::Dsoff)) {
            line.push(b'+');
            put::hex0x(line, offset);
        }
        line.push(b')');
    }

    fn ours(&self, line: &mut Vec<u8>, named: &Named) {
        if self.fields.has(Field::Buildid) {
            separate(line);
            let id = named.build_id.map_or("-".to_owned(), |id| id.to_string());
            line.extend_from_slice(id.as_bytes());
        }
        if self.fields.has(Field::Offset) {
            separate(line);
            match named.offset() {
                Some(offset) => put::hex0x(line, offset),
                None => line.push(b'-'),
            }
        }
        if self.fields.has(Field::Status) {
            separate(line);
            line.extend_from_slice(named.status().to_string().as_bytes());
        }
    }
}

fn separate(line: &mut Vec<u8>) {
    line.push(b' ');
}

/// On a line of its own: `file:line`, or where to look if that is not known.
fn source_line(line: &mut Vec<u8>, named: &Named, at: usize) {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let function = named.resolved.functions.get(at);
    let place = match named.place {
        Place::File { offset, .. } => offset,
        Place::Memory { address, .. } => address,
        Place::Unresolved(_) | Place::Missing => return,
    };
    line.extend_from_slice(b"\n  ");
    if let Some((file, number)) = function.and_then(|function| function.source.as_ref()) {
        line.extend_from_slice(base(file).as_bytes());
        line.push(b':');
        put::dec(line, (*number).into(), 0);
    } else {
        line.extend_from_slice(base(&named.dso).as_bytes());
        line.push(b'[');
        put::hex(line, place, 0);
        line.push(b']');
    }
    if function.is_some_and(|function| function.inlined) {
        line.extend_from_slice(b" (inlined)");
    }
}
