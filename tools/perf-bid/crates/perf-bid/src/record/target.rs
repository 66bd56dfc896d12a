// SPDX-License-Identifier: GPL-2.0
//! Whom to record: a command, tasks that run already, or whole CPUs, until a command ends.

use std::ffi::OsString;
use std::io::stderr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::process::Command;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use perf_bid_core::session;
use perf_bid_core::session::OpenError;
use perf_bid_core::workload::Workload;

use crate::cli;

/// What every task of a CPU is called by `perf_event_open(2)`.
pub const EVERYTHING: i32 = -1;

/// Whom to record, and what to run meanwhile.
pub struct Target {
    /// Threads, or [`EVERYTHING`].
    pub tasks: Vec<i32>,
    pub cpus: Vec<u32>,
    /// The command, until it is started.
    workload: Option<Workload>,
    /// The command is what is recorded.
    pub is_command: bool,
    shown: String,
}

impl Target {
    /// Finds out what the options ask for; forks the command, if there is one. Its output
    /// goes to standard error if the profile goes to standard output.
    pub fn resolve(args: &cli::Record) -> Result<Self> {
        let cpus = cpus(args.cpu.as_deref())?;
        let mut tasks = tasks(args)?;
        let everything = args.all_cpus || (args.cpu.is_some() && tasks.is_empty());
        let is_command = tasks.is_empty() && !everything;
        if is_command && args.command.is_empty() {
            bail!("nothing to record: give a command, -p, -t, -u, -C or -a (see --help)");
        }
        let workload = fork(&args.command, args.output.as_os_str() == "-")?;
        if everything {
            tasks = vec![EVERYTHING];
        } else if is_command {
            tasks.extend(workload.as_ref().map(Workload::pid));
        }
        let shown = args.command.first().map(|program| program.to_string_lossy().into_owned());
        Ok(Self { tasks, cpus, workload, is_command, shown: shown.unwrap_or_default() })
    }

    /// Whether tasks are watched, and not CPUs.
    pub fn is_tasks(&self) -> bool {
        self.tasks != [EVERYTHING]
    }

    /// Whether it is a command that does not run yet, so that it is still a copy of this
    /// program.
    pub fn is_to_come(&self) -> bool {
        self.is_command && self.workload.is_some()
    }

    /// Lets the command run.
    pub fn start(&mut self) -> Result<Option<Child>> {
        let child = self.workload.take().map(Workload::start).transpose();
        child.with_context(|| format!("cannot run {}", self.shown))
    }
}

fn fork(command: &[OsString], keep_stdout: bool) -> Result<Option<Workload>> {
    let Some((program, rest)) = command.split_first() else {
        return Ok(None);
    };
    let mut command = Command::new(program);
    command.args(rest);
    if keep_stdout {
        command.stdout(stderr().as_fd().try_clone_to_owned()?);
    }
    let forked = Workload::fork_command(command);
    forked.map(Some).with_context(|| format!("cannot start {}", program.to_string_lossy()))
}

fn cpus(list: Option<&str>) -> Result<Vec<u32>> {
    let online = session::online_cpus().context("cannot list the CPUs")?;
    let Some(list) = list else {
        return Ok(online);
    };
    let mut cpus = session::parse_cpus(list)
        .with_context(|| format!("-C {list}: not a list of CPUs such as 0,2-3"))?;
    cpus.sort_unstable();
    cpus.dedup();
    if let Some(cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
        bail!("-C {list}: CPU {cpu} is not online (see /sys/devices/system/cpu/online)");
    }
    Ok(cpus)
}

/// The threads that -t, -p and -u name, each once.
fn tasks(args: &cli::Record) -> Result<Vec<i32>> {
    let mut tasks = args.tid.clone();
    for &pid in &args.pid {
        tasks.extend(threads(pid).ok_or(OpenError::NoTask(pid))?);
    }
    if let Some(user) = &args.uid {
        let uid = uid(user)?;
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let pids = processes().filter(|&pid| pid != own && owner(pid) == Some(uid));
        let before = tasks.len();
        // One that has ended since is none of the user's any more.
        tasks.extend(pids.filter_map(threads).flatten());
        if tasks.len() == before {
            bail!("-u {user}: no process of that user runs");
        }
    }
    tasks.sort_unstable();
    tasks.dedup();
    Ok(tasks)
}

/// The threads of a process, if there is one.
fn threads(pid: i32) -> Option<Vec<i32>> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    Some(dir.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// All processes.
pub fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn owner(pid: i32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid())
}

fn uid(user: &str) -> Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let uid = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == user).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    uid.with_context(|| format!("-u {user}: not in /etc/passwd; give the number (id -u {user})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        assert_eq!(uid("root").unwrap(), 0);
        assert_eq!(uid("1234").unwrap(), 1234);
        assert!(uid("no-such-user").unwrap_err().to_string().contains("id -u"));
    }

    #[test]
    fn cpu_lists_name_online_cpus() {
        let online = session::online_cpus().unwrap();
        assert_eq!(cpus(None).unwrap(), online);
        let first = online[0].to_string();
        assert_eq!(cpus(Some(&format!("{first},{first}"))).unwrap(), [online[0]]);
        assert!(cpus(Some("65000")).unwrap_err().to_string().contains("not online"));
        assert!(cpus(Some("x")).is_err());
    }

    #[test]
    fn this_process_is_there() {
        let me = std::process::id() as i32;
        assert!(processes().any(|pid| pid == me));
        assert!(threads(me).unwrap().contains(&me));
        assert_eq!(threads(i32::MAX), None);
        assert_eq!(owner(me), Some(rustix::process::getuid().as_raw()));
    }
}
