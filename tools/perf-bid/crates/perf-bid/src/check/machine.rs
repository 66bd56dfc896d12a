// SPDX-License-Identifier: GPL-2.0
//! What the kernel can do, and what it lets this user do.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use perf_bid_core::abi::flag;
use perf_bid_core::abi::sample;
use perf_bid_core::attr::Attr;
use perf_bid_core::session;
use perf_bid_core::sys::Event;
use perf_bid_core::sys::Target;

use super::Finding;
use super::State;

const OPTION: &str = "CONFIG_PERF_BUILD_ID_OFFSET";

// Bits of CapEff, from include/uapi/linux/capability.h.
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// Largest configuration that is looked through, in bytes.
const CONFIG_MAX: u64 = 16 << 20;

/// What the kernel and the processor have.
pub fn recording() -> Vec<Finding> {
    let bits = session::accepts_build_id_bits();
    let config = config();
    let said = config.as_deref().map(|text| option(text, OPTION));
    let release = session::kernel_release();
    let mut findings = vec![
        Finding::good(
            "build_id_bits",
            "build IDs in samples",
            format!("kernel {release} has them"),
        )
        .unless(
            bits,
            State::Bad,
            &format!("kernel {release} rejects the sample bits"),
            &without_bits(said.as_deref()),
        ),
    ];
    if bits {
        findings.push(deferral(config.as_deref()));
    }
    findings.extend(said.map(|said| {
        Finding::good("config", "kernel configuration", said.clone()).unless(
            said.ends_with("=y"),
            if bits { State::Limited } else { State::Bad },
            &said,
            &format!("build the kernel with {OPTION}=y"),
        )
    }));
    let counters = opens(Attr { type_: 0, ..user_only() });
    findings.push(
        Finding::good("hardware_counters", "hardware counters", "cpu-cycles can be counted")
            .unless(
                counters,
                State::Limited,
                "none (most virtual machines have none)",
                "record -e cpu-clock, which is the default then",
            ),
    );
    findings
}

fn without_bits(said: Option<&str>) -> String {
    match said {
        Some(said) if said.ends_with("=y") => {
            format!("it has {OPTION}=y all the same: is perf_event_open() filtered (container)?")
        }
        Some(_) => format!("boot a kernel built with {OPTION}=y"),
        None => format!(
            "boot a kernel with the perf build-ID-offset patches and {OPTION}=y; ordinary \
             recordings can be converted: perf-bid inject --sample-buildids"
        ),
    }
}

fn deferral(config: Option<&str>) -> Finding {
    let unwinder = config.map(|text| option(text, "CONFIG_UNWIND_USER"));
    let unwinder = unwinder.map_or(String::new(), |said| format!(" ({said})"));
    let found = "user addresses are resolved on the way back to user mode";
    Finding::good("deferral", "deferred callchains", found).unless(
        session::accepts_deferral(),
        State::Limited,
        "not supported: notes that are not resident stay unresolved ([fault])",
        &format!("build the kernel with CONFIG_UNWIND_USER=y{unwinder}"),
    )
}

/// What this user may do.
pub fn limits() -> Vec<Finding> {
    let mut findings = vec![own_events(), paranoid()];
    findings.extend(locked_memory());
    findings.extend(sample_rate());
    let tracefs = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let found = tracefs.iter().find(|dir| Path::new(dir).join("events").read_dir().is_ok());
    findings.push(
        Finding::good("tracefs", "tracepoints", found.map_or("", |dir| dir).to_owned()).unless(
            found.is_some(),
            State::Limited,
            "tracefs cannot be read, so that names of tracepoints mean nothing",
            "run as root; if it is not mounted: mount -t tracefs tracefs /sys/kernel/tracing",
        ),
    );
    findings
}

/// Whether the least that recording needs can be opened.
fn own_events() -> Finding {
    let ids = Attr { sample_type: sample::NEW, ..user_only() };
    let attr = if session::accepts_build_id_bits() { ids } else { user_only() };
    let opened = Event::open(&attr, Target { pid: 0, cpu: -1 });
    let error = opened.err().map_or(String::new(), |error| error.to_string());
    Finding::good("own_events", "own processes", "can be profiled").unless(
        error.is_empty(),
        State::Bad,
        &format!("cannot be profiled: {error}"),
        "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid to 2; in a \
         container, allow perf_event_open()",
    )
}

fn paranoid() -> Finding {
    let level = number("/proc/sys/kernel/perf_event_paranoid");
    let (key, title) = ("perf_event_paranoid", "perf_event_paranoid");
    let Some(level) = level else {
        return Finding::good(key, title, "").unless(
            false,
            State::Bad,
            "there is no kernel.perf_event_paranoid",
            "the kernel has no perf events (CONFIG_PERF_EVENTS)",
        );
    };
    if has_capability(CAP_PERFMON) || has_capability(CAP_SYS_ADMIN) {
        let found = format!("{level}, which does not bind this user: all CPUs and the kernel");
        return Finding::good(key, title, found);
    }
    let (state, allowed) = match level {
        ..0 => (State::Good, "everything, raw tracepoints too"),
        0 => (State::Good, "whole CPUs and the kernel, no raw tracepoints"),
        1 => (State::Limited, "own processes with their kernel frames, not whole CPUs"),
        2 => (State::Limited, "own processes in user mode only"),
        _ => (State::Limited, "nothing or next to nothing, depending on the distribution"),
    };
    let found = format!("{level}: {allowed}");
    let advice = "as root: sysctl kernel.perf_event_paranoid=0 (1: no whole CPUs), or give the \
                  user CAP_PERFMON";
    Finding::good(key, title, found.clone()).unless(state == State::Good, state, &found, advice)
}

fn locked_memory() -> Option<Finding> {
    let kib = number("/proc/sys/kernel/perf_event_mlock_kb")?;
    let (key, title) = ("perf_event_mlock_kb", "ring buffers");
    if has_capability(CAP_IPC_LOCK) {
        return Some(Finding::good(key, title, "any size (CAP_IPC_LOCK)"));
    }
    // A page of control data comes on top of a power of two.
    let page = rustix::param::page_size() as u64;
    let pages = (u64::try_from(kib).ok()? * 1024 / page).saturating_sub(1).max(1);
    let pages = 1u64 << pages.ilog2();
    let found = format!("{kib} KiB for each CPU (kernel.perf_event_mlock_kb)");
    Some(Finding::good(key, title, found.clone()).unless(
        pages >= 512,
        State::Limited,
        &found,
        &format!("record -m {pages}, or as root: sysctl kernel.perf_event_mlock_kb=2052"),
    ))
}

fn sample_rate() -> Option<Finding> {
    let rate = number("/proc/sys/kernel/perf_event_max_sample_rate")?;
    let found = format!("at most {rate} samples a second and CPU");
    Some(Finding::good("max_sample_rate", "sample rate", found.clone()).unless(
        rate >= 4000,
        State::Limited,
        &found,
        "as root: sysctl kernel.perf_event_max_sample_rate=100000 (the kernel lowers it when \
         interrupts take too long)",
    ))
}

/// A software event of the calling thread in user mode, which every user may count.
fn user_only() -> Attr {
    let flags = flag::DISABLED | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV;
    Attr { type_: 1, flags, ..Attr::default() }
}

fn opens(attr: Attr) -> bool {
    Event::open(&attr, Target { pid: 0, cpu: -1 }).is_ok()
}

fn number(path: &str) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether this process has a capability, from `CapEff` of its status.
pub fn has_capability(bit: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> bit & 1 != 0)
}

/// The running kernel's configuration.
fn config() -> Option<String> {
    let mut text = String::new();
    if let Ok(file) = File::open("/proc/config.gz") {
        GzDecoder::new(file).take(CONFIG_MAX).read_to_string(&mut text).ok()?;
        return Some(text);
    }
    let release = session::kernel_release();
    let paths = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    paths.iter().find_map(|path| std::fs::read_to_string(path).ok())
}

/// What a configuration says about an option.
fn option(config: &str, name: &str) -> String {
    let set = config
        .lines()
        .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
    let off = format!("# {name} is not set");
    match set {
        Some(line) => line.to_owned(),
        None if config.lines().any(|line| line == off) => format!("{name} is not set"),
        None => format!("{name} is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_configuration() {
        let config = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_AB=m\n";
        assert_eq!(option(config, "CONFIG_A"), "CONFIG_A=y");
        assert_eq!(option(config, "CONFIG_B"), "CONFIG_B is not set");
        assert_eq!(option(config, "CONFIG_C"), "CONFIG_C is unknown");
    }

    #[test]
    fn the_root_user_has_all_capabilities_or_none_are_said() {
        assert!(!has_capability(63), "no kernel has 64 capabilities");
    }
}
