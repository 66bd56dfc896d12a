// SPDX-License-Identifier: GPL-2.0
//! Deferred callchains for samples in time order. [`Stream`] joins the two and gives a sample
//! when its callchain is there, which is later than others of its time; but it keeps the order
//! of each thread's samples. So a second reader runs ahead until it has the next sample of the
//! thread in question.

use std::collections::VecDeque;
use std::ops::Deref;

use perf_bid_core::abi::Entry;
use perf_bid_core::abi::Status;
use perf_bid_core::abi::flag;
use perf_bid_core::data::PerfData;
use perf_bid_core::record::Sample;
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Stream;
use rustc_hash::FxHashMap;

/// A sample's time and what came later of its callchain.
type Chain<'a> = (Option<u64>, Option<&'a [Entry]>);

/// The second reader.
pub struct Chains<'a, B> {
    /// `None` if no event of the file is deferred.
    stream: Option<Stream<'a, B>>,
    /// By thread: what has been read and not asked for.
    read: FxHashMap<Option<u32>, VecDeque<Chain<'a>>>,
    /// Samples whose callchain is not in the file.
    pub missing: u64,
}

impl<'a, B: Deref<Target = [u8]>> Chains<'a, B> {
    /// Those of `data`.
    pub fn of(data: &'a PerfData<B>) -> Self {
        let deferred = data.events().iter().any(|event| {
            event.attr.wants_build_ids() && event.attr.has_flags(flag::DEFER_CALLCHAIN)
        });
        Self { stream: deferred.then(|| Stream::new(data)), read: FxHashMap::default(), missing: 0 }
    }

    /// What came later of the callchain of `sample`. To be called for all samples, in time order.
    pub fn next(&mut self, sample: &Sample<'_>) -> Option<&'a [Entry]> {
        let found = self.read_to(sample.tid).filter(|(time, _)| *time == sample.time);
        let frames = found.and_then(|(_, frames)| frames);
        let waits = |entry: &Entry| entry.status() == Status::Deferred;
        let last = sample.bid_callchain.and_then(<[_]>::last);
        if frames.is_none() && (sample.bid.is_some_and(waits) || last.is_some_and(waits)) {
            self.missing += 1;
        }
        frames
    }

    fn read_to(&mut self, tid: Option<u32>) -> Option<Chain<'a>> {
        let stream = self.stream.as_mut()?;
        loop {
            if let Some(chain) = self.read.get_mut(&tid).and_then(VecDeque::pop_front) {
                return Some(chain);
            }
            match stream.next()? {
                Ok(Item::Sample(joined)) => {
                    let chain = (joined.sample.time, joined.deferred);
                    self.read.entry(joined.sample.tid).or_default().push_back(chain);
                }
                Ok(Item::Other(_)) => {}
                // The other reader comes upon it, too.
                Err(_) => return None,
            }
        }
    }
}
