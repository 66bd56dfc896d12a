// SPDX-License-Identifier: GPL-2.0
//! Starts the command in two steps: it is forked and waits, so that events can be opened for
//! it; then it is let go, and `enable_on_exec` starts the events at its first instruction.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::thread::JoinHandle;

use rustix::pipe::PipeFlags;
use rustix::pipe::pipe_with;

/// A forked child that has not called exec yet.
#[derive(Debug)]
pub struct Workload {
    pid: i32,
    /// `None` once [`Workload::start`] has taken them.
    parts: Option<(OwnedFd, JoinHandle<io::Result<Child>>)>,
}

impl Workload {
    /// Forks a child that will run `program`.
    pub fn fork(program: OsString, args: Vec<OsString>) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(args);
        Self::fork_command(command)
    }

    /// Forks a child that will run `command`. `Command::spawn` returns only once exec has
    /// succeeded or failed, which is why it runs in a thread of its own.
    pub fn fork_command(mut command: Command) -> io::Result<Self> {
        let (pid_read, pid_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (go_read, go_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let go_write_fd = go_write.as_raw_fd();
        let wait = move || {
            // The child's own copy would keep the pipe open after the parent has died.
            // SAFETY: this is the child's descriptor table; nothing in the child uses the
            // write end.
            unsafe { rustix::io::close(go_write_fd) };
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            rustix::io::write(&pid_write, &pid.to_ne_bytes())?;
            match rustix::io::read(&go_read, &mut [0u8][..])? {
                // The parent gave up, and with it the end of the pipe that `spawn` reads: the
                // child would abort, loudly, if it tried to report an error there.
                // SAFETY: _exit() is async-signal-safe and runs no destructor.
                0 => unsafe { libc::_exit(1) },
                _ => Ok(()),
            }
        };
        // SAFETY: between fork and exec the closure makes system calls only; it neither
        // allocates nor takes a lock.
        unsafe { command.pre_exec(wait) };
        let spawner =
            std::thread::Builder::new().name("spawn".into()).spawn(move || command.spawn())?;
        let mut pid = [0; 4];
        if rustix::io::read(&pid_read, &mut pid[..])? != pid.len() {
            return Err(io::Error::other("the child process died before it could run anything"));
        }
        Ok(Self { pid: i32::from_ne_bytes(pid), parts: Some((go_write, spawner)) })
    }

    /// The child's process ID.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child call exec; an error is exec's.
    pub fn start(mut self) -> io::Result<Child> {
        let (go, spawner) =
            self.parts.take().ok_or_else(|| io::Error::other("the command was started before"))?;
        rustix::io::write(&go, &[1])?;
        drop(go);
        spawner.join().unwrap_or_else(|_| Err(io::Error::other("the spawning thread died")))
    }
}

impl Drop for Workload {
    /// A child that was not started ends by itself, which looks like a successful exec to
    /// `spawn`, and is reaped, in the background: another child that waits may have a copy of
    /// this one's pipe.
    fn drop(&mut self) {
        if let Some((go, spawner)) = self.parts.take() {
            drop(go);
            let reap = move || {
                if let Ok(Ok(mut child)) = spawner.join() {
                    // Nobody asks how it ended.
                    let _ = child.wait();
                }
            };
            // Without a thread it is reaped when this process ends.
            let _ = std::thread::Builder::new().name("reap".into()).spawn(reap);
        }
    }
}
