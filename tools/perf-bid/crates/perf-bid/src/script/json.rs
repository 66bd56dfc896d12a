// SPDX-License-Identifier: GPL-2.0
//! Samples and other records as JSON, one object a line.
//!
//! Times are in nanoseconds. Addresses and offsets are strings (`"0x…"`), as numbers of that
//! size lose digits in many programs that read JSON. What is not known is left out.

use perf_bid_core::machine::RawFrame;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Place;

use super::Head;
use super::frames::Frames;
use super::frames::Named;
use super::put;

/// Appends a sample.
pub fn sample(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    frames: &[RawFrame],
    dsos: &Dsos,
    cache: &mut Frames,
) {
    out.extend_from_slice(b"{\"type\":\"sample\",");
    task(out, head);
    let sample = head.sample;
    number(out, b"period", head.period());
    hex(out, b"addr", sample.addr);
    number(out, b"weight", sample.weight);
    out.extend_from_slice(b"\"frames\":[");
    let mut first = true;
    for raw in frames {
        for line in cache.get(dsos, raw.frame, line) {
            if !std::mem::replace(&mut first, false) {
                out.push(b',');
            }
            out.push(b'{');
            if let Place::Unresolved(_) = raw.frame.place {
                hex(out, b"address", Some(raw.value));
            }
            out.extend_from_slice(line);
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"]}\n");
}

/// Appends the members that all records have; each ends in a comma.
pub fn task(out: &mut Vec<u8>, head: &Head<'_>) {
    text(out, b"comm", head.comm);
    let sample = head.sample;
    number(out, b"pid", sample.pid.map(u64::from));
    number(out, b"tid", sample.tid.map(u64::from));
    number(out, b"cpu", sample.cpu.map(u64::from));
    number(out, b"time", sample.time);
    if let Some(event) = head.event {
        text(out, b"event", event);
    }
}

/// Appends a member and a comma.
pub fn text(out: &mut Vec<u8>, key: &[u8], value: &str) {
    self::key(out, key);
    put::json(out, value);
    out.push(b',');
}

/// Appends a member and a comma, if there is a value.
pub fn number(out: &mut Vec<u8>, key: &[u8], value: Option<u64>) {
    if let Some(value) = value {
        self::key(out, key);
        put::dec(out, value, 0);
        out.push(b',');
    }
}

/// Appends an address or an offset and a comma, if there is one.
pub fn hex(out: &mut Vec<u8>, key: &[u8], value: Option<u64>) {
    if let Some(value) = value {
        self::key(out, key);
        out.push(b'"');
        put::hex0x(out, value);
        out.extend_from_slice(b"\",");
    }
}

fn key(out: &mut Vec<u8>, key: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
}

/// The members of a frame that tell about function `at` there; the last has no comma.
fn line(named: &Named, at: usize) -> Vec<u8> {
    let mut out = Vec::new();
    if !matches!(named.place, Place::Unresolved(_) | Place::Missing) {
        text(&mut out, b"dso", &named.dso);
    }
    if let Some(id) = named.build_id {
        text(&mut out, b"build_id", &id.to_string());
    }
    match named.place {
        Place::File { offset, .. } => hex(&mut out, b"offset", Some(offset)),
        Place::Memory { address, .. } => hex(&mut out, b"address", Some(address)),
        Place::Unresolved(_) | Place::Missing => {}
    }
    if let Some(function) = named.resolved.functions.get(at) {
        text(&mut out, b"symbol", &function.name);
        number(&mut out, b"symoff", function.offset);
        if let Some((file, line)) = &function.source {
            text(&mut out, b"file", file);
            number(&mut out, b"line", Some((*line).into()));
        }
        if function.inlined {
            out.extend_from_slice(b"\"inlined\":true,");
        }
    } else {
        hex(&mut out, b"function", named.resolved.unnamed);
    }
    let status =
        if named.place == Place::Missing { "missing".into() } else { named.status().to_string() };
    text(&mut out, b"status", &status);
    out.pop();
    out
}
