//! A ring's SQ thread, as the ring knows it; what it does is in `drive::sqpoll`.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use softring_host::sync::real::{Mutex, OnceLock};

use crate::io::poll::WakeFd;
use crate::memory::region::Region;
use crate::ring::ctx::Ring;

/// One SQ thread (kernel: `struct io_sq_data`).
#[derive(Debug)]
pub(crate) struct SqData {
    /// The process that it lives in.
    pub(crate) pid: u32,
    pub(crate) page: Region,
    /// Ends a sleep for completions of kernel aio; of a thread that has a polled ring.
    pub(crate) wake_fd: OnceLock<WakeFd>,
    pub(crate) rings: Mutex<Vec<Weak<Ring>>>,
    /// Longest `sq_thread_idle` of its rings, in ms.
    pub(crate) idle: AtomicU32,
}

/// A ring's part in its SQ thread.
#[derive(Debug)]
pub(crate) struct SqPoll {
    pub(crate) data: Arc<SqData>,
    pub(crate) idle: u32,
    /// The ring's words, without the lock. A ring with an SQ thread is never resized, and whoever
    /// reads them has the ring.
    pub(crate) words: Region,
    /// Something is in flight that the thread drives.
    pub(crate) drives: AtomicBool,
    /// The poll set through which that tells of itself; -1: none.
    pub(crate) poll_fd: AtomicI32,
    /// The thread alone finds the ring's completions (IOPOLL): while there are some to come, it
    /// sleeps for those, too, where it would set NEED_WAKEUP.
    pub(crate) polls: bool,
    /// The ring goes by a policy (HYBRID_IOPOLL).
    pub(crate) policy: AtomicBool,
}
