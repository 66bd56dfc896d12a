// SPDX-License-Identifier: GPL-2.0
//! The address spaces of processes, from their first record until they are of no use.
//!
//! The end of a process is not the end of its samples: the kernel takes some until the very
//! last, and those that wait for a callchain come later still. So the mappings stay for another
//! [`GRACE`] after the last thread's EXIT record, and after the last time that they were
//! asked for. EXIT records can be lost; then it is the next process with that ID that replaces
//! them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::maps::Mapping;
use super::maps::Maps;
use crate::record::Task;

/// How long the mappings of a process are kept that has ended, in nanoseconds.
const GRACE: u64 = 5_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Processes {
    by_pid: FxHashMap<u32, Process>,
    /// Those that have ended, and when to look at them again.
    ended: VecDeque<(u64, u32)>,
}

#[derive(Debug, Default)]
struct Process {
    maps: Maps,
    /// Those of the program before, until the present one was seen to run.
    before: Option<Maps>,
    /// Threads that are there, as far as the records say.
    threads: u32,
    /// The thread that the process has its ID from has ended.
    leaderless: bool,
    /// Time until which it is kept, if it has ended.
    until: Option<u64>,
}

/// What addresses of a process are looked up in.
pub(super) struct Space<'a> {
    maps: &'a mut Maps,
    before: Option<&'a mut Maps>,
}

impl Space<'_> {
    /// The mapping that `address` is in. Up to the end of an exec it is the program before that
    /// called it.
    pub(super) fn find(&mut self, address: u64) -> Option<Mapping> {
        self.maps.find(address).or_else(|| self.before.as_mut()?.find(address))
    }
}

impl Processes {
    /// The mappings of process `pid`, if there are any, for a sample of time `now`.
    pub(super) fn space(&mut self, pid: u32, now: u64) -> Option<Space<'_>> {
        let process = self.by_pid.get_mut(&pid)?;
        process.touch(now);
        Some(Space { maps: &mut process.maps, before: process.before.as_mut() })
    }

    /// A sample was taken in user mode: the program that was exec'd last runs by now.
    pub(super) fn ran(&mut self, pid: u32) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.before = None;
        }
    }

    /// The mappings of process `pid`, to change them.
    pub(super) fn maps_mut(&mut self, pid: u32, now: u64) -> &mut Maps {
        let process = self.by_pid.entry(pid).or_default();
        process.touch(now);
        &mut process.maps
    }

    pub(super) fn fork(&mut self, task: &Task) {
        self.forget_ended(task.time);
        if task.pid == task.ppid {
            if let Some(process) = self.by_pid.get_mut(&task.pid) {
                process.threads = process.threads.saturating_add(1);
            }
            return;
        }
        // What a tool made up for processes that were there before says nothing about
        // mappings: they have records of their own, before it or after.
        if is_made_up(task) {
            let process = self.by_pid.entry(task.pid).or_default();
            process.threads = process.threads.saturating_add(1);
            return;
        }
        let maps = self.by_pid.get(&task.ppid).map(|parent| parent.maps.clone());
        let maps = maps.unwrap_or_default();
        self.by_pid.insert(task.pid, Process { maps, threads: 1, ..Process::default() });
    }

    /// Process `pid` runs another program. That ends all threads but one.
    pub(super) fn exec(&mut self, pid: u32) {
        let before = self.by_pid.remove(&pid).map(|process| process.maps);
        self.by_pid.insert(pid, Process { threads: 1, before, ..Process::default() });
    }

    pub(super) fn exit(&mut self, task: &Task) {
        self.forget_ended(task.time);
        let Some(process) = self.by_pid.get_mut(&task.pid) else {
            return;
        };
        process.threads = process.threads.saturating_sub(1);
        process.leaderless |= task.tid == task.pid;
        // Threads may have begun before anything was recorded: no count of them is an end as
        // long as the first of them goes on.
        if process.threads == 0 && process.leaderless && process.until.is_none() {
            let until = task.time.saturating_add(GRACE);
            process.until = Some(until);
            self.ended.push_back((until, task.pid));
        }
    }

    fn forget_ended(&mut self, now: u64) {
        while let Some((_, pid)) = self.ended.pop_front_if(|(until, _)| *until < now) {
            // Another process may have its ID by now.
            let Some(until) = self.by_pid.get(&pid).and_then(|process| process.until) else {
                continue;
            };
            if until < now {
                self.by_pid.remove(&pid);
            } else {
                self.ended.push_back((until, pid));
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_pid.len()
    }
}

impl Process {
    fn touch(&mut self, now: u64) {
        if let Some(until) = &mut self.until {
            *until = (*until).max(now.saturating_add(GRACE));
        }
    }
}

/// Whether no kernel wrote the record: those have a time.
pub(super) fn is_made_up(task: &Task) -> bool {
    task.time == 0 || task.exec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::DsoId;
    use crate::record::SampleId;

    fn task(pid: u32, ppid: u32, tid: u32, time: u64) -> Task {
        Task { pid, ppid, tid, ptid: ppid, time, exec: false, id: SampleId::default() }
    }

    fn map(processes: &mut Processes, pid: u32, now: u64) {
        let mapping = Mapping::new(0x1000, 0x1000, 0, Some(DsoId(pid)));
        processes.maps_mut(pid, now).insert(mapping);
    }

    /// Whose mapping process `pid` has.
    fn owner(processes: &mut Processes, pid: u32, now: u64) -> Option<u32> {
        Some(processes.space(pid, now)?.find(0x1000)?.dso?.0)
    }

    #[test]
    fn millions_of_short_lives_leave_nothing() {
        let mut processes = Processes::default();
        map(&mut processes, 1, 1);
        for n in 0..1_000_000u32 {
            let (pid, time) = (2 + n, 1 + u64::from(n) * 1_000_000);
            processes.fork(&task(pid, 1, pid, time));
            assert_eq!(owner(&mut processes, pid, time), Some(1));
            processes.exit(&task(pid, 1, pid, time + 10));
            assert!(processes.len() < 5010, "{}", processes.len());
        }
        assert_eq!(owner(&mut processes, 1, u64::MAX), Some(1));
    }

    #[test]
    fn what_is_sampled_after_its_end_is_kept() {
        let mut processes = Processes::default();
        processes.fork(&task(7, 1, 7, 10));
        map(&mut processes, 7, 11);
        processes.exit(&task(7, 1, 7, 20));
        let mut time = 20;
        for _ in 0..4 {
            time += GRACE / 2 + 1;
            assert_eq!(owner(&mut processes, 7, time), Some(7));
            processes.exit(&task(1000, 1, 1000, time));
        }
        processes.exit(&task(1000, 1, 1000, time + GRACE + 1));
        assert_eq!(owner(&mut processes, 7, time), None);
    }

    #[test]
    fn the_first_thread_ends_before_the_others() {
        let mut processes = Processes::default();
        processes.fork(&task(7, 1, 7, 10));
        map(&mut processes, 7, 11);
        processes.fork(&task(7, 7, 8, 12));
        processes.exit(&task(7, 1, 7, 13));
        let later = 13 + 10 * GRACE;
        processes.fork(&task(9, 1, 9, later));
        assert_eq!(owner(&mut processes, 7, later), Some(7));
        processes.exit(&task(7, 7, 8, later));
        processes.fork(&task(9, 1, 9, later + 2 * GRACE));
        assert_eq!(owner(&mut processes, 7, later), None);
    }

    #[test]
    fn a_thread_of_an_uncounted_process_ends_alone() {
        let mut processes = Processes::default();
        map(&mut processes, 7, 0);
        processes.exit(&task(7, 1, 8, 13));
        processes.fork(&task(9, 1, 9, 13 + 10 * GRACE));
        assert_eq!(owner(&mut processes, 7, 13), Some(7));
    }

    #[test]
    fn an_id_is_used_again_while_its_last_owner_is_remembered() {
        let mut processes = Processes::default();
        map(&mut processes, 1, 0);
        map(&mut processes, 7, 0);
        processes.exit(&task(7, 1, 7, 10));
        processes.fork(&task(7, 1, 7, 20));
        processes.fork(&task(9, 1, 9, 10 + 2 * GRACE));
        assert_eq!(owner(&mut processes, 7, 0), Some(1));
        // Its parent is unknown: nothing of the last owner is left all the same.
        processes.fork(&task(7, 500, 7, 30 + 2 * GRACE));
        assert_eq!(owner(&mut processes, 7, 0), None);
    }
}
