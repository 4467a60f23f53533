//! Kinds of turns of a ring (`drive::turn`).

use softring_uapi::epoll_event;

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
