//! Words of a ring about the thread that comes back to it by itself: in its own poll, or by calls
//! of `enter` (`drive::regular`).

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};

#[derive(Debug, Default)]
pub(crate) struct Regular {
    /// Flag, true while the thread enters the ring so often that nobody else need drive it.
    pub(crate) enters: AtomicBool,
    /// The thread's id; 0: none.
    pub(crate) tid: AtomicI32,
    /// The thread's processor time when the reactor last checked, in ns.
    pub(crate) ran: AtomicU64,
    /// Flag, true if a thread has left the ring with completions, and threads poll it: a hint.
    pub(crate) left_ready: AtomicBool,
}
