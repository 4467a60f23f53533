//! State of a ring that a forked child has inherited and goes on using.

use softring_uapi::io_uring_sqe;

/// A ring in a forked child.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Flag, true if the process that forked this one had the ring before.
    pub(crate) has_parent: bool,
    /// Number of requests written to the journal for the parent.
    pub(crate) written: usize,
    /// Flag, true if the parent was told to watch this child.
    pub(crate) watched: bool,
    /// Flag, true if the parent did not answer; it is not asked again (`process::remote_cancel`).
    pub(crate) parent_is_silent: bool,
}

impl Inherited {
    /// Returns the state of a child that has just been forked.
    pub(crate) fn new() -> Inherited {
        Inherited { has_parent: true, ..Inherited::default() }
    }
}

/// Part of a process in the rings that it has inherited (`process::journal`,
/// `process::remote_cancel`).
pub(crate) trait Inherits {
    /// Writes down what is in flight, in a child that has inherited the ring.
    fn write_down(&mut self);
    /// Returns whether the parent may have the request that this cancellation did not find.
    fn may_ask_parent(&self, sqe: &io_uring_sqe) -> bool;
}
