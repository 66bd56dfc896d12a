// SPDX-License-Identifier: GPL-2.0
//! The reader: any bytes as a perf.data file, every record decoded, put in order, and added up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_bid_core::data::PerfData;
use perf_bid_core::profile;
use perf_bid_core::profile::Options;

fuzz_target!(|bytes: &[u8]| {
    let data = match PerfData::from_bytes(bytes) {
        Ok(data) => data,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for raw in data.records().map_while(Result::ok) {
        let again = data.record_at(raw.offset);
        if !data.is_compressed() {
            // What was compressed has the place of what it was in.
            assert_eq!(again.ok().flatten().map(|again| again.body), Some(raw.body));
        }
        assert!(data.payload(&raw).is_some(), "a record whose payload is not there");
        let _ = data.decode(&raw);
    }
    for (_, section) in data.feature_sections() {
        assert!(section.len() <= bytes.len().max(data.data_len() as usize));
    }
    let profile = profile::read(&data, Options { stacks: true, pid: true, tid: true }, |_| {});
    // A callchain is no longer than what it was read from.
    assert!(profile.totals.frames <= data.data_len());
    assert_eq!(profile.events.len(), data.events().len());
});
