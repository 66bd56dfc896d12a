// SPDX-License-Identifier: GPL-2.0
//! The parts by themselves, without a session: one event on this very thread, its ring buffer,
//! and the records in it.
//!
//!     cargo run --example own_ring

use std::error::Error;

use perf_bid_core::attr::Attr;
use perf_bid_core::attr::AttrBuilder;
use perf_bid_core::event::EventSpec;
use perf_bid_core::record::Format;
use perf_bid_core::record::RawRecord;
use perf_bid_core::record::Record;
use perf_bid_core::ring::Ring;
use perf_bid_core::session::accepts_build_id_bits;
use perf_bid_core::sys::Event;
use perf_bid_core::sys::Target;

fn main() -> Result<(), Box<dyn Error>> {
    let attr = Attr::builder(&EventSpec::parse("page-faults:u")?)
        .period(1)
        .when(accepts_build_id_bits(), AttrBuilder::build_id_offset)
        .build()?;
    let event = Event::open(&attr, Target { pid: 0, cpu: -1 })?;
    let mut ring = Ring::map(&event, 16)?;

    event.enable()?;
    // Each page that is written to for the first time is a page fault.
    let pages = vec![1u8; 64 * rustix::param::page_size()];
    event.disable()?;

    let format = Format::from(&attr);
    let mut samples = 0;
    ring.drain(|run, wrapped| {
        let records = [run, wrapped].concat();
        let mut rest = records.as_slice();
        while let Some((raw, after)) = RawRecord::split(rest, 0)? {
            rest = after;
            if let Record::Sample(sample) = format.decode(&raw)? {
                samples += 1;
                println!("ip {:#x} {:?}", sample.ip.unwrap_or(0), sample.bid);
            }
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    println!("{samples} page faults while {} bytes were written", pages.len());
    Ok(())
}
