// SPDX-License-Identifier: GPL-2.0
//! Puts records in the order of their times, a batch at a time.
//!
//! A batch is what one pass over the ring buffers gave, a run in order for each buffer. It is
//! put in order together with what is left of the one before, which a stable sort does by
//! merging runs. What is no later than the end of the pass before then goes out.

/// A record, by its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) time: u64,
    pub(super) offset: u64,
    /// Index of the event that wrote it.
    pub(super) event: u32,
}

#[derive(Debug)]
pub(super) struct Sorter {
    /// In order up to `sorted`; what comes after that is in the order of the file.
    keys: Vec<Key>,
    sorted: usize,
    /// The next to go out, and the first that must not yet.
    next: usize,
    ready: usize,
    max: usize,
    /// Latest time of this pass, and the one before.
    pass: (u64, u64),
}

impl Sorter {
    /// Holds back `max` records at most, however long a pass is.
    pub(super) fn new(max: usize) -> Self {
        Self { keys: Vec::new(), sorted: 0, next: 0, ready: 0, max, pass: (0, 0) }
    }

    /// Records that are held back.
    pub(super) fn len(&self) -> usize {
        self.keys.len() - self.next
    }

    /// Adds a record. If there are too many now, the older half goes out.
    pub(super) fn push(&mut self, key: Key) {
        self.pass.0 = self.pass.0.max(key.time);
        self.keys.push(key);
        if self.len() > self.max {
            self.merge();
            self.ready = self.next + self.len().div_ceil(2);
        }
    }

    /// A pass has ended: nothing older than the one before is to come.
    pub(super) fn end_pass(&mut self) {
        let (this, before) = self.pass;
        self.pass = (this, this);
        self.settle(before);
    }

    /// There is nothing to come.
    pub(super) fn end(&mut self) {
        self.settle(u64::MAX);
    }

    /// The next record, if it is certain to be that.
    pub(super) fn pop(&mut self) -> Option<Key> {
        let key = (self.next < self.ready).then(|| self.keys.get(self.next)).flatten().copied();
        self.next += usize::from(key.is_some());
        key
    }

    /// The place in the file before which nothing is held back.
    pub(super) fn first_offset(&self) -> Option<u64> {
        self.keys.get(self.next..)?.iter().map(|key| key.offset).min()
    }

    fn settle(&mut self, time: u64) {
        self.merge();
        let settled = self.keys.partition_point(|key| key.time <= time);
        self.ready = settled.max(self.ready);
    }

    fn merge(&mut self) {
        if self.sorted == self.keys.len() {
            return;
        }
        self.keys.drain(..self.next);
        self.ready -= self.next;
        self.next = 0;
        // Stable: records of the same time stay in the order of the file.
        self.keys.sort_by_key(|key| key.time);
        self.sorted = self.keys.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(time: u64, offset: u64) -> Key {
        Key { time, offset, event: 0 }
    }

    fn drain(sorter: &mut Sorter) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| sorter.pop()).map(|key| (key.time, key.offset)).collect()
    }

    #[test]
    fn nothing_goes_out_before_the_pass_after() {
        let mut sorter = Sorter::new(100);
        [(10, 0), (30, 1), (20, 2)].into_iter().for_each(|(time, at)| sorter.push(key(time, at)));
        sorter.end_pass();
        assert_eq!(drain(&mut sorter), []);
        [(25, 3), (40, 4), (30, 5)].into_iter().for_each(|(time, at)| sorter.push(key(time, at)));
        assert_eq!(drain(&mut sorter), []);
        sorter.end_pass();
        assert_eq!(drain(&mut sorter), [(10, 0), (20, 2), (25, 3), (30, 1), (30, 5)]);
        assert_eq!((sorter.len(), sorter.first_offset()), (1, Some(4)));
        sorter.push(key(35, 6));
        sorter.end();
        assert_eq!(drain(&mut sorter), [(35, 6), (40, 4)]);
        assert_eq!(sorter.first_offset(), None);
    }

    #[test]
    fn a_pass_without_end_is_bounded() {
        let mut sorter = Sorter::new(10);
        let mut out = Vec::new();
        for at in 0..1000 {
            // Never further from its place than 3.
            sorter.push(key(at ^ 3, at));
            assert!(sorter.len() <= 11);
            out.extend(drain(&mut sorter));
        }
        sorter.end();
        out.extend(drain(&mut sorter));
        assert_eq!(out.len(), 1000);
        assert!(out.is_sorted());
    }

    /// One record a pass is still linear: nothing is merged twice that does not wait twice.
    #[test]
    fn none_is_held_back_for_long() {
        let mut sorter = Sorter::new(1 << 20);
        for at in 0..100_000 {
            sorter.push(key(at, at));
            sorter.end_pass();
            drain(&mut sorter);
            assert!(sorter.len() <= 2);
        }
    }
}
