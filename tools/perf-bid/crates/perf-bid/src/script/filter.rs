// SPDX-License-Identifier: GPL-2.0
//! Which records to print, by thread and time.

use std::ops::RangeInclusive;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use super::Head;
use crate::cli;

/// What was asked for; empty lists choose all.
#[derive(Clone, Debug)]
pub struct Filter {
    comms: Vec<String>,
    pids: Vec<u32>,
    tids: Vec<u32>,
    times: Option<RangeInclusive<u64>>,
}

impl Filter {
    /// Reads the options.
    pub fn new(args: &cli::Script) -> Result<Self> {
        let times = args.time.as_deref().map(parse_times).transpose()?;
        let (comms, pids, tids) = (args.comms.clone(), args.pid.clone(), args.tid.clone());
        Ok(Self { comms, pids, tids, times })
    }

    /// Whether a record is to be printed.
    pub fn takes(&self, head: &Head<'_>) -> bool {
        let among = |list: &[u32], id: Option<u32>| {
            list.is_empty() || id.is_some_and(|id| list.contains(&id))
        };
        let in_time = self
            .times
            .as_ref()
            .is_none_or(|times| head.sample.time.is_some_and(|time| times.contains(&time)));
        in_time
            && among(&self.pids, head.sample.pid)
            && among(&self.tids, head.sample.tid)
            && (self.comms.is_empty() || self.comms.iter().any(|comm| comm == head.comm))
    }
}

/// `START,END` in seconds; what is left out is unbounded.
fn parse_times(text: &str) -> Result<RangeInclusive<u64>> {
    let usage = || format!("--time {text}: it takes START,END in seconds, such as 12.5,13");
    let (start, end) = text.split_once(',').with_context(usage)?;
    let bound = |text: &str, default| match text.trim() {
        "" => Some(default),
        text => nanoseconds(text),
    };
    let start = bound(start, 0).with_context(usage)?;
    let end = bound(end, u64::MAX).with_context(usage)?;
    if start > end {
        bail!("--time {text}: it ends before it starts");
    }
    Ok(start..=end)
}

/// Seconds with up to nine decimal places.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.len() > 9 || !digits(fraction) || !digits(seconds) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_times("12.5,13").unwrap(), 12_500_000_000..=13_000_000_000);
        assert_eq!(parse_times(",1.000000001").unwrap(), 0..=1_000_000_001);
        assert_eq!(parse_times("2,").unwrap(), 2_000_000_000..=u64::MAX);
        for bad in ["", "1", "a,b", "1.0000000001,2", "-1,2", "1.x,2", "99999999999,", "2,1"] {
            assert!(parse_times(bad).is_err(), "{bad}");
        }
    }
}
