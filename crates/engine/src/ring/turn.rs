//! Turns of a ring: their kinds, and what the state of a ring asks of whoever drives it
//! (`drive::turn`, `drive::driver`).

use softring_uapi::epoll_event;

/// Driver of a ring.
pub(crate) trait Drives {
    /// Turns the ring once.
    fn turn(&mut self, turn: Turn<'_>);
    /// Handles the events that were stashed.
    fn take_stash(&mut self);
    /// Does the work that other threads left while this thread was in the middle of an issue.
    fn take_left_work(&mut self);
    /// Handles the numbers that closers left while they could not take the lock.
    fn take_left_numbers(&mut self);
    /// Wakes those who sleep past the earliest deadline, which may have moved.
    fn deadline_moved(&mut self);
}

/// Kind of a turn: its first steps, besides those common to all turns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn<'a> {
    /// Publishes CQEs, and does no more: in the middle of a turn, or if only the program's wait
    /// runs task work (DEFER_TASKRUN).
    Publish,
    /// Reaps nothing: the caller has completed something.
    Work,
    /// Ends a batch: reaps stashed events, and modelled devices.
    Batch,
    /// Ends a batch if only the program's wait runs task work (DEFER_TASKRUN): reaps nothing.
    /// `workers`: begin the requests queued for workers.
    Deferred { workers: bool },
    /// Reaps completions that need no system call.
    Memory,
    /// Reaps all transports.
    All,
    /// Handles events taken from the poll set, then continues as [`Self::Memory`]. `early`: a sleep
    /// of a wait policy is over, before its time or not.
    Events { events: &'a [epoll_event], early: Option<bool> },
}
