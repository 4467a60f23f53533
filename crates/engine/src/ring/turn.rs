//! What one turn of a ring is to do besides what each does (`drive::turn`).

use softring_uapi::epoll_event;

/// What a turn begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn<'a> {
    /// CQEs are published, and no more is done: in the middle of a turn, or where only the
    /// program's wait runs task work (DEFER_TASKRUN).
    Publish,
    /// Nothing is reaped: who turns the ring has completed something.
    Work,
    /// A batch is through: reaps what was found on the way, and modelled devices.
    Batch,
    /// As [`Self::Batch`] where only the program's wait runs task work (DEFER_TASKRUN): nothing is
    /// reaped. Do workers begin what is queued for them?
    Deferred { workers: bool },
    /// Reaps what can be had without a system call.
    Memory,
    /// Reaps all transports.
    All,
    /// Events that were taken from the poll set come first, then as [`Self::Memory`]. `early`: a
    /// sleep that a policy has asked for is over, before its time or not.
    Events { events: &'a [epoll_event], early: Option<bool> },
}
