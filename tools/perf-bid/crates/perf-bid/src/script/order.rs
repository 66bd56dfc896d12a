// SPDX-License-Identifier: GPL-2.0
//! The items of a [`Stream`] strictly by time.
//!
//! A stream gives a sample when its deferred callchain has come, after younger samples of
//! other threads. Those are held back here until the older one is out. A thread that sleeps
//! for long between the two would hold back everything; beyond [`HELD_MAX`] items the order
//! is given up, and its sample comes late.

use std::collections::BTreeMap;
use std::ops::Deref;

use perf_bid_core::cursor::Malformed;
use perf_bid_core::data::PerfData;
use perf_bid_core::stream::Item;
use perf_bid_core::stream::Stream;

/// Items that are held back at most.
const HELD_MAX: usize = 1 << 16;

/// An iterator over the items of a file by time.
#[derive(Debug)]
pub struct Ordered<'a, B> {
    stream: Stream<'a, B>,
    /// By time and order of arrival.
    held: BTreeMap<(u64, u64), Item<'a>>,
    number: u64,
    /// Time of the last item that had one.
    time: u64,
    ended: bool,
    error: Option<Malformed>,
}

impl<'a, B: Deref<Target = [u8]>> Ordered<'a, B> {
    /// The items of `data`.
    pub fn new(data: &'a PerfData<B>) -> Self {
        let stream = Stream::new(data);
        Self { stream, held: BTreeMap::new(), number: 0, time: 0, ended: false, error: None }
    }

    /// Bytes of the data section that have been read so far.
    pub fn position(&self) -> u64 {
        self.stream.position()
    }

    fn settled(&self) -> u64 {
        if self.ended || self.held.len() > HELD_MAX { u64::MAX } else { self.stream.settled() }
    }

    fn hold(&mut self, item: Item<'a>) {
        // What has no time belongs to what came before it.
        self.time = item.time().unwrap_or(self.time);
        self.held.insert((self.time, self.number), item);
        self.number += 1;
    }
}

impl<'a, B: Deref<Target = [u8]>> Iterator for Ordered<'a, B> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let settled = self.settled();
            if let Some(first) = self.held.first_entry()
                && (settled == u64::MAX || first.key().0 < settled)
            {
                return Some(Ok(first.remove()));
            }
            match self.stream.next() {
                Some(Ok(item)) if self.held.is_empty() && self.settled() == u64::MAX => {
                    return Some(Ok(item));
                }
                Some(Ok(item)) => self.hold(item),
                Some(Err(error)) => self.error = Some(error),
                None if !self.ended => self.ended = true,
                None => return self.error.take().map(Err),
            }
        }
    }
}
