// SPDX-License-Identifier: GPL-2.0
//! `perf-bid report`
use crate::cli;
use anyhow::Context;
use anyhow::Result;
use perf_bid_core::data::PerfData;
use perf_bid_core::record::Record;
use std::process::ExitCode;

/// Runs `perf-bid report`.
pub fn run(args: &cli::Report) -> Result<ExitCode> {
    let data = PerfData::open(&args.input).with_context(|| format!("{}", args.input.display()))?;
    let (mut samples, mut resolved) = (0, 0);
    for raw in data.records() {
        if let Record::Sample(sample) = data.decode(&raw?)? {
            samples += 1;
            resolved += u64::from(sample.bid.is_some_and(|bid| bid.build_id().is_some()));
        }
    }
    println!("{samples} samples, {resolved} resolved by build ID");
    Ok(ExitCode::SUCCESS)
}
