//! Waits until nothing moves: the fuzzer's programs peek at completions only when idle.
#![allow(unsafe_code)]

use super::Machine;
use crate::fuzz::transcript::Rec;
use crate::ring::Ring;
use softring_uapi::*;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::time::{Duration, Instant};

/// Longest wait for idleness.
const LIMIT: Duration = Duration::from_millis(400);
/// Longest wait for an SQ thread to consume the published SQEs.
const TAKEN: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_micros(100);

impl Machine {
    fn tails(&self) -> Vec<u32> {
        self.rings.iter().map(|r| r.as_ref().map_or(0, |r| r.cq_tail())).collect()
    }

    /// Enters rings with DEFER_TASKRUN, which complete only inside enter.
    fn run_deferred(&self) {
        for r in self.rings.iter().flatten() {
            if r.has(IORING_SETUP_DEFER_TASKRUN) {
                r.enter(0, 0, IORING_ENTER_GETEVENTS);
            }
        }
    }

    /// Waits until no CQ has moved for a while; with a run to follow, first until the CQs have come
    /// as far as in that run.
    pub(super) fn await_idle(&mut self, want: Option<&Rec>) -> Rec {
        let last = self.idle_tails(want);
        // Once out of step with that run, no more waits follow it.
        self.guided &= want.is_some_and(|w| w.tails == last);
        Rec { tails: last, ..Rec::default() }
    }

    /// Same as [`Self::await_idle`]; returns the CQs' tails.
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

/// Waits until the SQ thread has consumed all SQEs.
pub(super) fn taken(ring: &Ring) {
    let start = Instant::now();
    while ring.sq_ready() > 0 && start.elapsed() < TAKEN {
        std::thread::sleep(STEP);
    }
}

/// Moves the transcript's descriptor above the numbers that programs open.
pub(super) fn move_high(file: std::fs::File) -> std::io::Result<std::fs::File> {
    // SAFETY: the descriptor is our own.
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
