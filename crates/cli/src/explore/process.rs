//! A program that runs in a process group of its own, with a time limit. No process of the group
//! outlives the value.

use crate::signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest time until a request to stop is noticed.
const NOTICE: Duration = Duration::from_millis(50);
/// Time between two questions whether the program has ended, where the kernel has no pidfds.
const ASK: Duration = Duration::from_millis(2);

/// End of a wait.
#[derive(Debug)]
pub enum Waited {
    Ended(ExitStatus),
    /// The time is over, and the program runs.
    Late,
    /// Somebody has asked this command to end.
    Stopped,
}

pub struct Group {
    child: Child,
    pidfd: Option<OwnedFd>,
    reaped: bool,
}

impl Group {
    /// Starts a program.
    ///
    /// # Errors
    /// Those of fork(2) and execve(2).
    pub fn start(command: &mut Command) -> io::Result<Group> {
        let child = signals::spawn(command.process_group(0))?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        Ok(Group { child, pidfd, reaped: false })
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits until the program has ended, the time is over, or `stop` is set. When the program has
    /// ended, the rest of its group is killed.
    ///
    /// # Errors
    /// Those of wait4(2).
    pub fn wait(&mut self, time: Duration, stop: &AtomicBool) -> io::Result<Waited> {
        let end = Instant::now() + time;
        loop {
            if self.has_ended()? {
                // The number is the group's as long as the program has not been waited for.
                self.kill();
                self.reaped = true;
                return self.child.wait().map(Waited::Ended);
            }
            if stop.load(Relaxed) {
                return Ok(Waited::Stopped);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Waited::Late);
            }
            self.pause(left.min(NOTICE));
        }
    }

    fn has_ended(&self) -> io::Result<bool> {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), how)?.is_some())
    }

    fn pause(&self, time: Duration) {
        let Some(fd) = &self.pidfd else { return std::thread::sleep(time.min(ASK)) };
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        // A signal ends the wait, as it should.
        let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&time));
    }

    fn kill(&self) {
        // A group of which nobody is left needs no signal.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.child.wait();
        }
    }
}
