// SPDX-License-Identifier: GPL-2.0
//! Values of options that have a unit, or a name for a number.

use std::time::Duration;

use crate::cli::Frequency;
use crate::cli::SwitchOutput;

/// `512K`, `100M`, `2G`; plain bytes without a letter, or with `B`.
pub fn size(text: &str) -> Result<u64, String> {
    let error = || format!("`{text}` is no size; write bytes, or as 512K, 100M, 2G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).map(str::to_ascii_uppercase).as_deref() {
        Some("" | "B") => 1,
        Some("K" | "KB") => 1u64 << 10,
        Some("M" | "MB") => 1 << 20,
        Some("G" | "GB") => 1 << 30,
        _ => return Err(error()),
    };
    let number: u64 = digits.parse().map_err(|_| error())?;
    number.checked_mul(unit).filter(|&bytes| bytes > 0).ok_or_else(error)
}

/// Pages, or a size that is rounded up to what a ring buffer can have.
pub fn ring_pages(text: &str) -> Result<usize, String> {
    let page = rustix::param::page_size();
    let pages = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let pages = text.parse().ok().filter(|pages: &usize| pages.is_power_of_two());
        pages.ok_or_else(|| format!("{text} pages: not a power of two"))?
    } else {
        let pages = usize::try_from(size(text)?.div_ceil(page as u64)).ok();
        pages.and_then(usize::checked_next_power_of_two).unwrap_or(usize::MAX)
    };
    // With its control page, it has to fit into the address space.
    let fits = pages.checked_mul(2 * page).is_some();
    if fits { Ok(pages) } else { Err(format!("{text} is too large")) }
}

/// `-F`
pub fn frequency(text: &str) -> Result<Frequency, String> {
    match text.parse() {
        _ if text == "max" => Ok(Frequency::Max),
        Ok(hz) if hz > 0 => Ok(Frequency::Hz(hz)),
        _ => Err("not a number of samples per second, from 1, or `max`".to_owned()),
    }
}

/// Seconds, with a fraction or without.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{text}` is no number of seconds above 0"))
}

/// `--switch-output`
pub fn switch_output(text: &str) -> Result<SwitchOutput, String> {
    if text == "signal" {
        return Ok(SwitchOutput::Signal);
    }
    let unit = |letter| match letter {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86400),
        _ => None,
    };
    if let Some(seconds) = text.chars().last().and_then(unit) {
        let number = text.get(..text.len() - 1).and_then(|digits| digits.parse::<u64>().ok());
        let number = number.and_then(|number| number.checked_mul(seconds)).filter(|&n| n > 0);
        return number
            .map(|seconds| SwitchOutput::Time(Duration::from_secs(seconds)))
            .ok_or_else(|| format!("`{text}` is no time; write it as 30s, 5m, 1h or 1d"));
    }
    size(text).map(SwitchOutput::Size).map_err(|_| {
        format!("`{text}` is none of `signal`, a size such as 100M and a time such as 30s")
    })
}

/// `CLOCK_*` of `clock_gettime(2)` by its name.
pub fn clock(text: &str) -> Result<i32, String> {
    let name = text.to_ascii_lowercase();
    match name.strip_prefix("clock_").unwrap_or(&name) {
        "realtime" | "real" => Ok(0),
        "monotonic" | "mono" => Ok(1),
        "monotonic_raw" | "raw" => Ok(4),
        "boottime" | "boot" => Ok(7),
        "tai" => Ok(11),
        number => number.parse().map_err(|_| {
            "no clock: one of monotonic, monotonic_raw, realtime, boottime, tai or its number"
                .to_owned()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases =
            [("7", 7), ("7b", 7), ("2K", 2048), ("3m", 3 << 20), ("1G", 1 << 30), ("1MB", 1 << 20)];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "M", "-1", "1X", "0", "99999999999G", "1 M", "é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ring_sizes() {
        let page = rustix::param::page_size();
        assert_eq!(ring_pages("512"), Ok(512));
        assert!(ring_pages("3").unwrap_err().contains("not a power of two"));
        assert_eq!(ring_pages("1B"), Ok(1));
        assert_eq!(ring_pages("3M"), Ok((4 << 20) / page));
        assert!(ring_pages("0").is_err() && ring_pages("17179869183G").is_err());
        assert!(ring_pages("4611686018427387904").is_err());
    }

    #[test]
    fn switches() {
        assert_eq!(switch_output("signal"), Ok(SwitchOutput::Signal));
        assert_eq!(switch_output("2m"), Ok(SwitchOutput::Time(Duration::from_secs(120))));
        // A capital letter is a size.
        assert_eq!(switch_output("2M"), Ok(SwitchOutput::Size(2 << 20)));
        for bad in ["", "s", "0s", "never", "é", "99999999999999999999d"] {
            assert!(switch_output(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_rest() {
        assert_eq!(frequency("max"), Ok(Frequency::Max));
        assert!(frequency("0").is_err() && frequency("-1").is_err());
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for bad in ["0", "-1", "nan", "inf", "x"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!((clock("mono"), clock("CLOCK_TAI"), clock("9")), (Ok(1), Ok(11), Ok(9)));
        assert!(clock("sundial").is_err());
    }
}
