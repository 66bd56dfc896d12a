// SPDX-License-Identifier: GPL-2.0
//! ELF files: notes, segments, symbols, the linkage table, the unwind table.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_bid_core::elf::ElfInfo;
use perf_bid_core::functions::Functions;
use perf_bid_core::plt::Plt;
use perf_bid_core::store::build_id_in_notes;
use perf_bid_core::symtab::SymbolTable;

fuzz_target!(|bytes: &[u8]| {
    // The running kernel's notes and the vDSO's come without an ELF header.
    build_id_in_notes(bytes);
    let Ok(info) = ElfInfo::parse(bytes) else {
        return;
    };
    let symbols = SymbolTable::parse_elf(bytes);
    let plt = Plt::parse(bytes, &info);
    let functions = Functions::parse(bytes, &info);
    let segments = info.segments.iter().take(64);
    let offsets =
        segments.flat_map(|segment| [0, 1, 0x40, 0x1000].map(|i| segment.offset.wrapping_add(i)));
    let sections = info
        .stubs
        .all()
        .flat_map(|section| [0, 16, 0x20, 0x21].map(|into| section.address.wrapping_add(into)));
    for address in offsets.filter_map(|offset| info.address_of(offset)).chain(sections) {
        if let Some(found) = symbols.at(bytes, address) {
            assert!(found.start <= address);
            symbols.find(bytes, found.name);
        }
        if let Some(stub) = plt.as_ref().and_then(|plt| plt.at(bytes, address, |_| None)) {
            assert!(stub.start <= address && !stub.name.is_empty());
        }
        functions.as_ref().and_then(|functions| functions.start_of(address));
    }
});
