//! State of a batch of SQEs during its submission. Kernel counterpart: `struct io_submit_state`.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

use crate::io::model::Found;
use crate::io::peers::Polled;
use crate::io::token::ReqId;
use crate::ring::asked::Asked;
use crate::ring::phase::Timer;
use softring_host::creds::Creds;
use softring_uapi::errno::Result;

/// The current batch: the chain under construction, and facts that one request learns for the next.
#[derive(Debug, Default)]
pub(crate) struct SubmitState {
    pub(crate) head: Option<ReqId>,
    pub(crate) last: Option<ReqId>,
    /// Time stamp of the last trusted read of this batch; 0: none yet (`ops::rw_cached`).
    pub(crate) stamp: Cell<u64>,
    /// SQEs of the batch behind the current one.
    pub(crate) left: u32,
    /// CQEs that the caller of this batch waits for.
    pub(crate) waits: u32,
    /// Record of what was done since epoll was polled.
    pub(crate) polled: Polled,
    /// The answer to the fast path's attempt at the current SQE, if it did not end the SQE
    /// (`ops::fast_stream`).
    pub(crate) tried: Option<Result<usize>>,
    /// Answers for the POLL_ADDs to come.
    pub(crate) asked: Asked,
    /// Flag, true if the events of the current POLL_ADD are not there (`ops::fast_poll`).
    pub(crate) absent: bool,
    /// The descriptor that was last found to be O_DIRECT in this batch; none between batches.
    pub(crate) direct: Option<i32>,
    /// Batches since the kernel was last asked whether a descriptor is still O_DIRECT.
    pub(crate) direct_trusted: u32,
    /// The file on a modelled device that was last found in this batch.
    pub(crate) model: Found,
    pub(crate) sampling: Sampling,
    /// True between the first request of a batch and its flush.
    pub(crate) collects: bool,
    /// Requests and notifications that follow ended requests: task work from the flush on.
    pub(crate) followers: VecDeque<ReqId>,
    /// Requests that a worker returned to task work; they run after `followers`.
    pub(crate) failed_in_worker: VecDeque<ReqId>,
    /// The LINK_TIMEOUTs whose heads have ended in this batch, with their timers. The kernel
    /// disarms them when it flushes the batch; until then they can be updated.
    pub(crate) disarmed: Vec<(ReqId, Timer)>,
    /// Flag, true while a worker's request runs here: only the ring's task may post its CQE
    /// (DEFER_TASKRUN).
    pub(crate) by_worker: bool,
    /// Flag, true while a batch is being submitted; `caller` caches the submitter's credentials.
    pub(crate) open: bool,
    pub(crate) caller: Option<Arc<Creds>>,
    /// Flag, true once the submitter's thread is known to have the workers' capabilities.
    pub(crate) alike: bool,
    /// Credentials epoch and thread for which the credentials equal those of the ring's maker
    /// (SQPOLL).
    pub(crate) as_maker: (u64, u32),
}

/// The request that is timed next.
#[derive(Debug)]
pub(crate) struct Sampling {
    /// Position of the next timed request, counted from 1 after the last request of the batch
    /// before.
    pub(super) due: u32,
    pub(super) taken: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { due: 1, taken: 0 }
    }
}
