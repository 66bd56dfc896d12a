// SPDX-License-Identifier: GPL-2.0
//! Text with symbols: JIT maps, kallsyms, and the mangled names in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_bid_core::demangle::demangle;
use perf_bid_core::jit::JitMap;
use perf_bid_core::symtab::SymbolTable;

/// Addresses of the seeds, and the ends of all.
const ADDRESSES: [u64; 6] =
    [0, 0x1000, 0x1048, 0xffff_ffff_8100_0000, 0xffff_ffff_8100_0123, u64::MAX];

fuzz_target!(|bytes: &[u8]| {
    let map = JitMap::parse(bytes.to_vec());
    let symbols = SymbolTable::parse_kallsyms(bytes);
    for address in ADDRESSES {
        if let Some((name, start)) = map.at(address) {
            assert!(start <= address && !name.is_empty());
        }
        if let Some(found) = symbols.at(bytes, address) {
            assert!(found.start <= address);
            symbols.find(bytes, found.name);
        }
    }
    for name in bytes.split(|byte| byte.is_ascii_whitespace()).take(64) {
        demangle(name);
    }
});
