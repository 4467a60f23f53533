//! What is known while a batch of SQEs is submitted. Kernel counterpart: `struct io_submit_state`.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

use crate::io::model::Found;
use crate::io::token::ReqId;
use crate::ring::request::Timer;
use softring_host::creds::Creds;

/// The batch at hand: the chain under construction, and what one request learns for the next.
#[derive(Debug, Default)]
pub(crate) struct SubmitState {
    pub(crate) head: Option<ReqId>,
    pub(crate) last: Option<ReqId>,
    /// Time stamp of the last trusted read of this batch; 0: none yet (`ops::rw_cached`).
    pub(crate) stamp: Cell<u64>,
    /// SQEs of the batch behind the one at hand.
    pub(crate) left: u32,
    /// CQEs that the caller of this batch waits for.
    pub(crate) waits: u32,
    /// Epoll was polled, and nothing was attempted since.
    pub(crate) polled: bool,
    /// The descriptor that was last found to be O_DIRECT in this batch; none between batches.
    pub(crate) direct: Option<i32>,
    /// Batches since the kernel was last asked whether a descriptor is still O_DIRECT.
    pub(crate) direct_trusted: u32,
    /// The file on a modelled device that was last found in this batch.
    pub(crate) model: Found,
    pub(crate) sampling: Sampling,
    /// True between the first request of a batch and its flush.
    pub(crate) collects: bool,
    /// What follows the requests that have ended in it: task work from the flush on.
    pub(crate) followers: VecDeque<ReqId>,
    /// What comes from a worker to task work, later than any of these.
    pub(crate) handed_back: VecDeque<ReqId>,
    /// The LINK_TIMEOUTs whose heads have ended in this batch, with their timers: the kernel
    /// disarms them when it flushes the batch, and until then they can be updated.
    pub(crate) disarmed: Vec<(ReqId, Timer)>,
    /// What is at hand is a worker's, and only the ring's task may post its CQE (DEFER_TASKRUN).
    pub(crate) by_worker: bool,
    /// A batch is being submitted, by a thread with these credentials, once it was asked.
    pub(crate) open: bool,
    pub(crate) caller: Option<Arc<Creds>>,
    /// The submitter's thread has the capabilities of workers.
    pub(crate) alike: bool,
    /// The epoch of credentials, and the thread that had those of the ring's maker then (SQPOLL).
    pub(crate) as_maker: (u64, u32),
}

/// The request that is timed next.
#[derive(Debug)]
pub(crate) struct Sampling {
    /// The timed request is so many behind the last of the batch before.
    pub(super) due: u32,
    pub(super) taken: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { due: 1, taken: 0 }
    }
}
