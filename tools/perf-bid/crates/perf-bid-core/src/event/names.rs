// SPDX-License-Identifier: GPL-2.0
//! The events that have a number in `include/uapi/linux/perf_event.h`: hardware, software and
//! cache events, and raw ones.

use super::TYPE_HARDWARE;
use super::TYPE_HW_CACHE;
use super::TYPE_RAW;
use super::TYPE_SOFTWARE;

/// `(name, alias, type, config)`: `PERF_COUNT_HW_*` and `PERF_COUNT_SW_*`.
const EVENTS: [(&str, &str, u32, u64); 21] = [
    ("cpu-cycles", "cycles", TYPE_HARDWARE, 0),
    ("instructions", "", TYPE_HARDWARE, 1),
    ("cache-references", "", TYPE_HARDWARE, 2),
    ("cache-misses", "", TYPE_HARDWARE, 3),
    ("branch-instructions", "branches", TYPE_HARDWARE, 4),
    ("branch-misses", "", TYPE_HARDWARE, 5),
    ("bus-cycles", "", TYPE_HARDWARE, 6),
    ("stalled-cycles-frontend", "idle-cycles-frontend", TYPE_HARDWARE, 7),
    ("stalled-cycles-backend", "idle-cycles-backend", TYPE_HARDWARE, 8),
    ("ref-cycles", "", TYPE_HARDWARE, 9),
    ("cpu-clock", "", TYPE_SOFTWARE, 0),
    ("task-clock", "", TYPE_SOFTWARE, 1),
    ("page-faults", "faults", TYPE_SOFTWARE, 2),
    ("context-switches", "cs", TYPE_SOFTWARE, 3),
    ("cpu-migrations", "migrations", TYPE_SOFTWARE, 4),
    ("minor-faults", "", TYPE_SOFTWARE, 5),
    ("major-faults", "", TYPE_SOFTWARE, 6),
    ("alignment-faults", "", TYPE_SOFTWARE, 7),
    ("emulation-faults", "", TYPE_SOFTWARE, 8),
    ("dummy", "", TYPE_SOFTWARE, 9),
    ("cgroup-switches", "", TYPE_SOFTWARE, 11),
];

/// `PERF_COUNT_HW_CACHE_*`, with the spellings perf takes; the number is the place.
const CACHES: [&[&str]; 7] = [
    &["L1-dcache", "l1-d", "l1d", "L1-data"],
    &["L1-icache", "l1-i", "l1i", "L1-instruction"],
    &["LLC", "L2"],
    &["dTLB", "d-tlb", "Data-TLB"],
    &["iTLB", "i-tlb", "Instruction-TLB"],
    &["branch", "branches", "bpu", "btb", "bpc"],
    &["node"],
];

/// `PERF_COUNT_HW_CACHE_OP_*`.
const OPS: [&[&str]; 3] = [
    &["load", "loads", "read"],
    &["store", "stores", "write"],
    &["prefetch", "prefetches", "speculative-read", "speculative-load"],
];

/// `PERF_COUNT_HW_CACHE_RESULT_*`.
const RESULTS: [&[&str]; 2] = [&["refs", "Reference", "ops", "access"], &["misses", "miss"]];

/// The type and config of `name`.
pub fn find(name: &str) -> Option<(u32, u64)> {
    // Most events have no alias, which is an empty one in the table.
    let named = |full: &str, alias: &str| !name.is_empty() && (full == name || alias == name);
    let found = EVENTS.iter().find(|(full, alias, ..)| named(full, alias));
    found
        .map(|&(_, _, type_, config)| (type_, config))
        .or_else(|| Some((TYPE_HW_CACHE, cache(name)?)))
        .or_else(|| Some((TYPE_RAW, raw(name)?)))
}

/// The names of the table, for an error.
pub fn known() -> String {
    EVENTS.map(|(full, ..)| full).join(", ")
}

/// Every name that [`find`] knows, in the spelling of `perf list`.
pub fn all() -> impl Iterator<Item = String> {
    let table = EVENTS.iter().flat_map(|(full, alias, ..)| [*full, *alias]);
    let table = table.filter(|name| !name.is_empty()).map(str::to_owned);
    let caches = CACHES.iter().filter_map(|spellings| spellings.first()).flat_map(|cache| {
        // Of an operation: what is counted, and what can miss.
        OPS.iter().filter_map(|op| op.first().zip(op.get(1))).flat_map(move |(one, many)| {
            [format!("{cache}-{many}"), format!("{cache}-{one}-misses")]
        })
    });
    table.chain(caches)
}

/// `CACHE[-OP[-RESULT]]` or `CACHE-RESULT`: a load and an access unless said.
fn cache(name: &str) -> Option<u64> {
    let (cache, rest) = strip(&CACHES, name)?;
    let (op, rest) = strip(&OPS, rest).unwrap_or((0, rest));
    let (result, rest) = strip(&RESULTS, rest).unwrap_or((0, rest));
    rest.is_empty().then_some(cache | op << 8 | result << 16)
}

/// The number of the longest spelling that `text` starts with, and what comes after it and a
/// dash.
fn strip<'a>(table: &[&[&str]], text: &'a str) -> Option<(u64, &'a str)> {
    let all = table.iter().zip(0u64..).flat_map(|(spellings, number)| {
        spellings.iter().filter_map(move |spelling| {
            let rest = text.strip_prefix(spelling)?;
            let rest = match rest.strip_prefix('-') {
                Some(rest) if !rest.is_empty() => rest,
                Some(_) => return None,
                None => rest,
            };
            (rest.is_empty() || text.len() > spelling.len() + rest.len()).then_some((number, rest))
        })
    });
    all.min_by_key(|(_, rest)| rest.len())
}

/// `rNNN`, hexadecimal.
fn raw(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r')?;
    // A sign is no digit.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_events() {
        let cases = [
            ("L1-dcache-loads", 0),
            ("L1-dcache-load-misses", 1 << 16),
            ("L1-dcache-misses", 1 << 16),
            ("LLC-stores", 2 | 1 << 8),
            ("LLC-prefetch-misses", 2 | 2 << 8 | 1 << 16),
            ("dTLB-store-misses", 3 | 1 << 8 | 1 << 16),
            ("iTLB", 4),
            ("branch-load-misses", 5 | 1 << 16),
            ("node-speculative-read", 6 | 2 << 8),
        ];
        for (name, config) in cases {
            assert_eq!(find(name), Some((TYPE_HW_CACHE, config)), "{name}");
        }
        for bad in ["L1-dcache-", "L1-dcacheloads", "LLC-loads-misses-x", "L1", "-loads"] {
            assert_eq!(find(bad), None, "{bad}");
        }
        // The hardware events keep their meaning.
        assert_eq!(find("branch-misses"), Some((TYPE_HARDWARE, 5)));
        assert_eq!(find("branches"), Some((TYPE_HARDWARE, 4)));
    }

    #[test]
    fn raw_events_are_hexadecimal() {
        assert_eq!(find("r1a8"), Some((TYPE_RAW, 0x1a8)));
        for bad in ["r", "r+1", "rxyz", "r12345678123456781"] {
            assert_eq!(find(bad), None, "{bad}");
        }
    }

    #[test]
    fn all_names_are_found() {
        assert!(all().count() > 50);
        for name in all() {
            assert!(find(&name).is_some(), "{name}");
        }
    }
}
