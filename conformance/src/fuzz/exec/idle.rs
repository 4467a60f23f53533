//! Waiting until nothing moves: the fuzzer's programs peek at completions only when idle.
#![allow(unsafe_code)]

use super::Machine;
use crate::fuzz::transcript::Rec;
use crate::ring::Ring;
use softring_uapi::*;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::time::{Duration, Instant};

/// Idleness is not waited for longer than this.
const LIMIT: Duration = Duration::from_millis(400);
/// The longest wait for an SQ thread to take what it was shown.
const TAKEN: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_micros(100);

impl Machine {
    fn tails(&self) -> Vec<u32> {
        self.rings.iter().map(|r| r.as_ref().map_or(0, |r| r.cq_tail())).collect()
    }

    /// Rings with DEFER_TASKRUN complete only inside enter.
    fn run_deferred(&self) {
        for r in self.rings.iter().flatten() {
            if r.has(IORING_SETUP_DEFER_TASKRUN) {
                r.enter(0, 0, IORING_ENTER_GETEVENTS);
            }
        }
    }

    /// Waits until no CQ has moved for a while; with a run to follow, first until it has come as
    /// far as that one.
    pub(super) fn await_idle(&mut self, want: Option<&Rec>) -> Rec {
        let last = self.idle_tails(want);
        // Once out of step, there is nothing to wait for any more.
        self.guided &= want.is_some_and(|w| w.tails == last);
        Rec { tails: last, ..Rec::default() }
    }

    /// The same; answers the CQs' tails.
    pub(super) fn idle_tails(&mut self, want: Option<&Rec>) -> Vec<u32> {
        let start = Instant::now();
        let quiet = Duration::from_micros(self.quiet);
        let mut last = self.tails();
        let mut since = start;
        while start.elapsed() < LIMIT {
            self.run_deferred();
            let now = self.tails();
            if now != last {
                last = now;
                since = Instant::now();
            }
            let behind = self.guided && want.is_some_and(|w| w.tails != last);
            if !behind && since.elapsed() >= quiet {
                break;
            }
            std::thread::sleep(STEP);
        }
        self.name_fds();
        last
    }
}

/// Waits until the SQ thread has taken what there is.
pub(super) fn taken(ring: &Ring) {
    let start = Instant::now();
    while ring.sq_ready() > 0 && start.elapsed() < TAKEN {
        std::thread::sleep(STEP);
    }
}

/// Moves the transcript's descriptor out of the way of those that programs open.
pub(super) fn move_high(file: std::fs::File) -> std::io::Result<std::fs::File> {
    // SAFETY: a descriptor of our own.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 900) };
    if high < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let low = file.into_raw_fd();
    // SAFETY: `low` was just given up, `high` was just made; each has one owner.
    unsafe {
        libc::close(low);
        Ok(std::fs::File::from_raw_fd(high))
    }
}
