//! The owner that futex waiters report wake-ups to: all that they know of a ring.

use alloc::sync::Arc;

use super::futex_waiter::{FutexWaiter, Job};
use crate::io::token::ReqId;

/// The ring whose requests the threads wait for.
pub(crate) trait Owner: Send + Sync {
    /// Reports that `by` was woken, in the name of a request.
    fn woken(self: Arc<Self>, by: &Arc<FutexWaiter>, id: ReqId, job: &Job, res: i32) -> WakeResult;

    /// Takes `by` back among the idle waiters; false if the owner has ended.
    fn take_in(&self, by: &Arc<FutexWaiter>) -> bool;
}

/// Result of reporting a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeResult {
    /// The owner has ended.
    Ended,
    /// The event was another waiter's.
    WaitsOn,
    Done,
}
