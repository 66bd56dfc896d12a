// SPDX-License-Identifier: GPL-2.0
//! Return addresses that no call is before.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::process::Command;

use perf_bid_core::place::Dso;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::store::Store;
use perf_bid_core::symbols::Options;
use perf_bid_core::symbols::Symbolizer;

/// Two functions with a gap between them; the second begins with the bytes of `MARK`.
const SOURCE: &str = "
.text
.globl first, second
.type first, @function
first: call second
.size first, .-first
.skip 32, 0x90
.type second, @function
second: .byte 0xde, 0xad, 0xbe, 0xef
ret
.size second, .-second
";
const MARK: [u8; 4] = [0xde, 0xad, 0xbe, 0xef];

#[test]
fn a_signal_handler_returns_to_the_first_byte_of_a_function() {
    let dir = tempfile::tempdir().unwrap();
    let (source, path) = (dir.path().join("a.s"), dir.path().join("a.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-nostdlib", "-o"]).arg(&path).arg(&source);
    assert!(gcc.status().expect("gcc is needed").success());
    let bytes = std::fs::read(&path).unwrap();
    let second = bytes.windows(4).position(|window| window == MARK).unwrap() as u64;

    let mut dsos = Dsos::default();
    let path = path.to_str().unwrap().into();
    let dso = dsos.intern(Dso { kind: DsoKind::File, path, build_id: None });
    let mut symbolizer = Symbolizer::new(Store::default(), Options::default());
    let mut name = |offset, caller| {
        let frame = Frame { place: Place::File { dso, offset }, caller };
        let resolved = symbolizer.resolve(&dsos, frame);
        let named = resolved.functions.first();
        named.map(|function| format!("{}+{:#x}", function.name, function.offset.unwrap()))
    };
    assert_eq!(name(second, true).as_deref(), Some("second+0x0"));
    assert_eq!(name(second + 1, true).as_deref(), Some("second+0x1"));
    assert_eq!(name(second - 32, true).as_deref(), Some("first+0x5"));
    assert_eq!(name(second - 16, true), None);
    assert_eq!(name(second - 16, false), None);
}
