// SPDX-License-Identifier: GPL-2.0
//! What a recording says of the machine it was made on.

use perf_bid_core::data::Features;
use perf_bid_core::session;

/// `/proc/sys/kernel/random/boot_id`
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// The features that describe this machine and the command line.
pub fn features() -> Features {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| Some(part.to_string_lossy().into_owned());
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let count = |file: &str| {
        let list = std::fs::read_to_string(format!("/sys/devices/system/cpu/{file}")).ok()?;
        u32::try_from(session::parse_cpus(list.trim())?.len()).ok()
    };
    let total = value(&meminfo, "MemTotal");
    Features {
        hostname: text(uname.nodename()),
        os_release: text(uname.release()),
        version: Some(format!("perf-bid {}", env!("CARGO_PKG_VERSION"))),
        arch: text(uname.machine()),
        nr_cpus: count("possible").zip(count("online")),
        cpu_desc: value(&cpuinfo, "model name"),
        total_mem: total.and_then(|kib| kib.split_once(' ')?.0.parse().ok()),
        cmdline: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        ..Features::default()
    }
}
