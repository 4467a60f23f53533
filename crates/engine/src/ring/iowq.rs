//! The queue of workers, as the kernel's io-wq has it. Requests for a worker (IOSQE_ASYNC, requests
//! that waited behind a barrier, a chain that its batch left open) begin after the batch and its
//! task work. Until then a cancellation finds them in the queue, and files that the batch closes
//! are closed. With DEFER_TASKRUN a worker acts as early as for any other ring, but leaves the CQE
//! to the ring's task. Kernel counterpart: `io_queue_iowq`, `io_wq_submit_work`,
//! `io_req_complete_post`.

use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::req_box::ReqBox;
use crate::ring::request::{OpState, Phase, Req, ReqFlags};

impl Req {
    /// Returns whether a request from task work is still to be queued for a worker
    /// (`io_req_task_submit`).
    pub(crate) fn is_for_worker(&self) -> bool {
        let seen = ReqFlags::ON_WORKER | ReqFlags::ISSUED;
        self.flags.contains(ReqFlags::FORCE_ASYNC) && !self.flags.intersects(seen)
    }

    /// Returns whether the request has ended and its CQE is left to task work.
    pub(crate) fn has_ended(&self) -> bool {
        self.flags.contains(ReqFlags::ENDED) && matches!(self.phase, Phase::Prepped)
    }
}

impl Ctx {
    /// Queues a request for a worker.
    pub(crate) fn queue_iowq(&mut self, id: ReqId) {
        if let Some(req) = self.reqs.slab.get_mut(id) {
            to_worker(req);
            self.work.queue_iowq(id);
        }
    }

    /// Queues the rest of a chain first: a worker continues it before it takes other work.
    pub(crate) fn go_on_in_iowq(&mut self, id: ReqId) {
        if let Some(req) = self.reqs.slab.get_mut(id) {
            to_worker(req);
            self.work.queue_iowq_first(id);
        }
    }
}

impl Ctx {
    /// Queues a request that the current worker has ended; the ring's task posts its CQE
    /// (DEFER_TASKRUN). The linked timeout, which the worker has armed before, runs until then.
    #[cold]
    pub(crate) fn finish_by_task(&mut self, mut req: ReqBox) {
        req.flags |= ReqFlags::ENDED;
        req.phase = Phase::Prepped;
        let id = self.reqs.slab.insert(req);
        self.work.queue(id);
        self.arm_linked_timeout(id);
    }

    /// Completes a request that needed another ring's lock, with `res`.
    pub(crate) fn complete_elsewhere(&mut self, id: ReqId, res: i32) {
        self.worker_delivers(id, |ctx| ctx.complete(id, res));
    }

    /// Continues a request that needed another ring's lock, on behalf of its worker if it has one.
    pub(crate) fn worker_delivers(&mut self, id: ReqId, goes_on: impl FnOnce(&mut Ctx)) {
        let worker = self.defers() && self.reqs.slab.get(id).is_some_and(Req::is_workers);
        let before = self.work.queued();
        self.submit.by_worker = worker;
        goes_on(self);
        self.submit.by_worker = false;
        if worker && (self.drive.transports.ready_now || self.work.queued() > before) {
            self.set_taskrun_by(true);
        }
    }
}

fn to_worker(req: &mut Req) {
    req.flags |= ReqFlags::ON_WORKER;
    if let OpState::Rw(rw) = &mut req.call.state {
        rw.by_worker = true;
    }
    req.phase = Phase::Queued;
}
