//! Rings in epoll sets of the program. A thread that waits on such a set drives the set's rings, as
//! a thread does that polls a ring ([`super::poller`]). So the set holds a ring's
//! [`stand_in`](super::stand_in) without any events ([`softring_host::fd::sets`]), and what the
//! ring has to report is found here.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::ring::ctx::{Ctx, Ring};
use crate::ring::table::find;
use softring_host::handlers::Call;

/// State of a ring as an edge-triggered set reports it: once for each change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of wake-ups so far; wraps.
    wakes: u32,
    /// Flag, true if an enter would post more (DEFER_TASKRUN).
    work: bool,
}

impl Report {
    /// Returns whether the ring has got something to report since `last`.
    pub fn is_news(self, last: Report) -> bool {
        self.wakes != last.wakes || self.work && !last.work
    }

    /// Returns the same with work that only the poll set tells of.
    pub(super) fn with_work(self, work: bool) -> Report {
        Report { work: self.work || work, ..self }
    }
}

/// Returns whether a thread that waits on a set may drive ring `fd`.
pub fn can_drive(fd: i32) -> bool {
    find(fd).is_some_and(|ring| {
        let shared =
            ring.forked.load(Relaxed) || ring.unsignalled.load(Relaxed) || ring.is_inherited();
        ring.sq.get().is_none() && !shared && !ring.lock_soon().is_none_or(|c| c.setup.polls())
    })
}

/// Returns the number of the ring's stand-in, which is made if need be and is not signalled.
pub fn stand_in(fd: i32) -> Option<i32> {
    super::stand_in::number(&*find(fd)?)
}

/// Returns the events of ring `fd`, and its report.
pub fn report(fd: i32) -> Option<(u32, Report)> {
    let _call = Call::begin();
    let ring = find(fd)?;
    let mut ctx = ring.lock_soon()?;
    Some((ctx.poll_mask(), ctx.report()))
}

/// Ends the signals of the ring's stand-in, unless others than epoll sets have used it. Returns
/// whether none comes from now on.
pub fn silence(fd: i32) -> bool {
    let _call = Call::begin();
    let Some(ring) = find(fd) else { return false };
    let Some(mut ctx) = ring.lock_soon() else { return false };
    if ring.stand_in_used.load(SeqCst) {
        return false;
    }
    ctx.completion.poll_fd = None;
    let number = softring_host::fd::now(ring.stand_in.load(SeqCst));
    super::stand_in::signal(&ring, &mut ctx, number, false);
    true
}

impl Ctx {
    pub(super) fn report(&mut self) -> Report {
        let work = self.defers() && self.has_work_in_memory();
        Report { wakes: self.completion.wakes, work }
    }
}

impl Ring {
    /// Records that others than epoll sets use the ring's stand-in.
    pub(super) fn uses_stand_in(&self) {
        self.stand_in_used.store(true, SeqCst);
    }
}
