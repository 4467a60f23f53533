//! The queue of workers, as the kernel's io-wq has it. Requests for a worker (IOSQE_ASYNC, requests
//! that waited behind a barrier, a chain that its batch left open) begin after the batch and its
//! task work. Until then a cancellation finds them in the queue, and files that the batch closes
//! are closed. With DEFER_TASKRUN a worker acts as early as for any other ring, but leaves the CQE
//! to the ring's task. Kernel counterpart: `io_queue_iowq`, `io_wq_submit_work`,
//! `io_req_complete_post`.

use core::sync::atomic::Ordering::Relaxed;

use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::req_box::ReqBox;
use crate::ring::request::{Phase, Req, ReqFlags};

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

    /// Begins the requests queued for workers; operations that never block run here instead. True
    /// if there were any. `task`: task work is run here, too.
    pub(crate) fn run_iowq(&mut self, task: bool) -> bool {
        if !self.work.any_iowq() {
            return false;
        }
        self.flushed();
        // Requests that became ready meanwhile are task work, which comes first.
        let ready = self.drive.transports.new_polls > 0
            || (self.drive.transports.ready_now && self.defers());
        if task && ready {
            self.poll_aside();
            self.take_stash();
            if self.work.any_queued() {
                return true;
            }
        }
        // The submitter's credentials are read once.
        self.submit.open = true;
        while let Some(id) = self.work.next_iowq() {
            let Some(mut req) = self.reqs.slab.take(id) else { continue };
            req.phase = Phase::Prepped;
            // A timeout that counts CQEs starts behind every CQE so far.
            self.reqs.timeouts.committed = self.mem.control.cq_tail().load(Relaxed);
            let before = (self.reqs.nr_ended, self.work.queued());
            let ready = core::mem::take(&mut self.drive.transports.ready_now);
            self.submit.by_worker = self.defers();
            self.queue_sqe(req);
            self.submit.by_worker = false;
            // The request has ended already, or its file is ready; the kernel's worker brings this.
            let tells = self.drive.transports.ready_now
                || before != (self.reqs.nr_ended, self.work.queued());
            if self.defers() && tells {
                self.set_taskrun_by(true);
            }
            self.drive.transports.ready_now |= ready;
        }
        (self.submit.open, self.submit.caller, self.submit.alike) = (false, None, false);
        true
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
    req.phase = Phase::Queued;
}
