//! The ring's part of its SQ thread; the thread runs in `drive::sqpoll`.

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
    /// Id of the process that the thread lives in.
    pub(crate) pid: u32,
    pub(crate) page: Region,
    /// Descriptor that ends a sleep for completions of kernel aio; only of a thread with a polled
    /// ring.
    pub(crate) wake_fd: OnceLock<WakeFd>,
    pub(crate) rings: Mutex<Vec<Weak<Ring>>>,
    /// Longest `sq_thread_idle` of its rings, in ms.
    pub(crate) idle: AtomicU32,
}

/// The ring's part of its SQ thread.
#[derive(Debug)]
pub(crate) struct SqPoll {
    pub(crate) data: Arc<SqData>,
    pub(crate) idle: u32,
    /// The ring's words, readable without the lock. A ring with an SQ thread is never resized, and
    /// every reader owns a reference to the ring.
    pub(crate) words: Region,
    /// Flag, true while something is in flight that the thread drives.
    pub(crate) drives: AtomicBool,
    /// The poll set that reports its completions; -1: none.
    pub(crate) poll_fd: AtomicI32,
    /// Flag, true if only the thread finds the ring's completions (IOPOLL): while some are to come,
    /// it sleeps for them, too, where it would set NEED_WAKEUP.
    pub(crate) polls: bool,
    /// Flag, true if the ring follows a wait policy (HYBRID_IOPOLL).
    pub(crate) policy: AtomicBool,
}
