// SPDX-License-Identifier: GPL-2.0
//! Where symbols will be looked for, and whether perf finds this program.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use super::Finding;
use super::State;

/// The places that symbols come from.
pub fn places() -> Vec<Finding> {
    let mut findings = vec![kallsyms()];
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".debug"));
    findings.extend(home.map(|dir| {
        place(
            "perf_cache",
            "perf's cache",
            &dir,
            "perf record fills it; --no-buildid-cache does not",
        )
    }));
    findings.push(place(
        "debug_files",
        "debug files",
        Path::new("/usr/lib/debug/.build-id"),
        "install the debug packages (-dbgsym, -debuginfo) of what you profile",
    ));
    findings.push(debuginfod());
    findings
}

fn kallsyms() -> Finding {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let shown = text
        .lines()
        .any(|line| !line.starts_with("0000000000000000") && !line.starts_with("00000000 "));
    let restrict = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict").unwrap_or_default();
    let found =
        format!("/proc/kallsyms hides addresses (kernel.kptr_restrict={})", restrict.trim());
    Finding::good("kallsyms", "kernel symbols", "/proc/kallsyms").unless(
        shown,
        State::Limited,
        &found,
        "run as root, or as root: sysctl kernel.kptr_restrict=0 (and perf_event_paranoid=1)",
    )
}

fn place(key: &'static str, title: &'static str, dir: &Path, advice: &str) -> Finding {
    let shown = dir.display();
    Finding::good(key, title, shown.to_string()).unless(
        dir.is_dir(),
        State::Limited,
        &format!("{shown} is not there"),
        advice,
    )
}

fn debuginfod() -> Finding {
    let urls = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
    let urls = urls.split_ascii_whitespace().collect::<Vec<_>>().join(", ");
    let found = format!("{urls} (with --fetch)");
    Finding::good("debuginfod", "debuginfod servers", found).unless(
        !urls.is_empty(),
        State::Limited,
        "DEBUGINFOD_URLS is not set",
        "export DEBUGINFOD_URLS=https://debuginfod.elfutils.org, and use --fetch",
    )
}

/// What has to do with perf itself.
pub fn perf() -> Vec<Finding> {
    let compressed = Finding::good("zstd", "zstd", "compressed recordings can be read");
    let Some(perf) = in_path("perf") else {
        let finding = Finding::good("perf_bid", "perf bid", "").unless(
            false,
            State::Limited,
            "there is no perf in PATH",
            "nothing needs it: call perf-bid",
        );
        return vec![compressed, finding];
    };
    let exec_path = Command::new(&perf).arg("--exec-path").output().ok();
    let exec_path = exec_path.and_then(|output| String::from_utf8(output.stdout).ok());
    let exec_path = exec_path.map(|path| PathBuf::from(path.trim())).filter(|path| path.is_dir());
    let there = exec_path.as_ref().map(|dir| dir.join("perf-bid")).filter(|path| path.exists());
    let found = there.or_else(|| in_path("perf-bid"));
    let place = exec_path.map_or("a directory in PATH".to_owned(), |dir| dir.display().to_string());
    let shown = found.as_ref().map_or(String::new(), |path| path.display().to_string());
    let finding = Finding::good("perf_bid", "perf bid", format!("runs {shown}")).unless(
        found.is_some(),
        State::Limited,
        &format!("{} does not find perf-bid", perf.display()),
        &format!("put perf-bid, or a link to it, into {place}"),
    );
    vec![compressed, finding]
}

/// The file that a command name stands for.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}
