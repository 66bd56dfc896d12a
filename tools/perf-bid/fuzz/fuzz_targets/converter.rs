// SPDX-License-Identifier: GPL-2.0
//! The converter, both ways: what it makes of any bytes can be read again.
#![no_main]

use std::path::Path;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use perf_bid_core::data::PerfData;

// The converter is a part of the command, which is no library. It is built here from its source.
#[path = "../../crates/perf-bid/src"]
mod command {
    #[allow(dead_code, reason = "the command does more with it")]
    pub mod inject;
}
#[path = "../../crates/perf-bid/src/record"]
mod record {
    #[allow(dead_code, reason = "the command does more with it")]
    pub mod output;
}

/// The command's options, without the parser of command lines.
mod cli {
    use std::path::PathBuf;

    pub struct Inject {
        pub sample_buildids: bool,
        pub input: PathBuf,
        pub output: PathBuf,
        pub keep_mmaps: bool,
        pub keep_addresses: bool,
        pub no_buildid_mmap: bool,
        pub quiet: bool,
    }
}

/// Outputs are files: there is no other way to write one.
static OUTPUT: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("perf-bid-fuzz-{}", std::process::id())));

fuzz_target!(|bytes: &[u8]| {
    let Ok(data) = PerfData::from_bytes(bytes) else {
        return;
    };
    let sound = data.records().all(|raw| raw.is_ok_and(|raw| data.decode(&raw).is_ok()));
    for sample_buildids in [true, false] {
        // Every option meets every kind of input: mutations change the length.
        let args = cli::Inject {
            sample_buildids,
            input: PathBuf::from("in"),
            output: OUTPUT.clone(),
            keep_mmaps: bytes.len() & 1 != 0,
            keep_addresses: bytes.len() & 2 != 0,
            no_buildid_mmap: bytes.len() & 4 != 0,
            quiet: true,
        };
        if command::inject::convert(&args, &data, None).is_ok() {
            check(&OUTPUT, sound);
        }
        let _ = std::fs::remove_file(&*OUTPUT);
    }
});

/// A file that was given its name is whole. `sound`: so was what it was made of; what it takes
/// over as it is can be as wrong as before.
fn check(path: &Path, sound: bool) {
    let data = PerfData::open(path).expect("what was converted is a recording");
    assert!(data.notes().is_empty() && !data.is_compressed());
    for raw in data.records() {
        let raw = raw.expect("what was converted has whole records");
        let decoded = data.decode(&raw);
        assert!(decoded.is_ok() || !sound, "{decoded:?}");
    }
}
