//! Between the ring and its transports: kernel aio and workers.

use crate::ctx::Ctx;
use crate::req::request::{Call, Req};
use crate::req::slab::ReqId;

impl Ctx {
    /// Can kernel aio take a request?
    pub fn aio_ready(&mut self) -> bool {
        false
    }

    /// Queues a request for the next batch.
    pub fn aio_queue(&mut self, req: Req) {
        self.punt(req);
    }

    /// Takes aio completions from user memory.
    pub fn aio_reap(&mut self) {}

    /// Somebody is about to sleep on the poll set: aio completions must end that sleep.
    pub fn aio_expect_wait(&mut self) {}

    /// Submits what was queued for batched transports.
    pub fn transports_submit(&mut self) {}

    /// Hands a call to a worker; gives it back if no worker can be had.
    ///
    /// # Errors
    /// The call, for the caller to run.
    pub fn worker_queue(
        &mut self,
        _id: ReqId,
        call: Box<Call>,
        _unbound: bool,
    ) -> Result<(), Box<Call>> {
        Err(call)
    }

    /// Takes a call back from the queue of workers; one that runs is interrupted and stays.
    pub fn worker_cancel(&mut self, _id: ReqId) -> Option<Call> {
        None
    }
}
