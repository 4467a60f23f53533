//! The queue of workers, as the kernel's io-wq has it. What is to run on a worker (IOSQE_ASYNC,
//! what waited behind a barrier, a chain that its batch left open) is begun when the batch is
//! through, and its task work with it. Until then a cancellation finds it in the queue, and what
//! the batch closes is closed. Kernel counterpart: `io_queue_iowq`, `io_wq_submit_work`.

use core::sync::atomic::Ordering::Relaxed;

use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::Issue;
use crate::ring::request::{Phase, Req, ReqFlags};

impl Req {
    /// Has it come by task work, and is still to be queued for a worker (`io_req_task_submit`)?
    pub(crate) fn is_for_worker(&self) -> bool {
        let seen = ReqFlags::ON_WORKER | ReqFlags::ISSUED;
        self.flags.contains(ReqFlags::FORCE_ASYNC) && !self.flags.intersects(seen)
    }
}

impl Ctx {
    /// Queues a request of the batch at hand for a worker.
    pub(crate) fn queue_iowq(&mut self, id: ReqId) {
        let defers = self.defers();
        let Some(req) = self.slab.get_mut(id) else { return };
        let blocks = matches!(req.row.issue, Issue::Call(_));
        if !defers || blocks || req.row.only_arms.is_some_and(|f| f(req)) {
            return self.join_iowq(id);
        }
        // It never blocks, and only the ring's task may post what comes of it.
        to_worker(req);
        self.queue_from_worker(id);
        self.announce_by(true);
    }

    /// Queues a request that comes by task work.
    pub(crate) fn join_iowq(&mut self, id: ReqId) {
        if let Some(req) = self.slab.get_mut(id) {
            to_worker(req);
            self.iowq.push_back(id);
        }
    }

    /// A worker goes on with a chain before it takes other work.
    pub(crate) fn go_on_in_iowq(&mut self, id: ReqId) {
        if let Some(req) = self.slab.get_mut(id) {
            to_worker(req);
            self.iowq.push_front(id);
        }
    }

    /// Takes a request that no worker has begun out of the queue.
    pub(crate) fn leave_iowq(&mut self, id: ReqId) {
        self.iowq.retain(|&other| other != id);
        self.run.retain(|&other| other != id);
    }

    /// Workers begin what is queued: what never blocks is done here, in their stead. True if there
    /// was anything.
    pub(crate) fn run_iowq(&mut self) -> bool {
        if self.iowq.is_empty() {
            return false;
        }
        self.flushed();
        // What became ready meanwhile is task work, which comes first.
        if self.transports.unsettled > 0 && !self.defers() {
            self.look_aside();
            self.take_stash();
            if !self.run.is_empty() {
                return true;
            }
        }
        // Its submitter is asked for its credentials once.
        self.submit.open = true;
        while let Some(id) = self.iowq.pop_front() {
            let Some(mut req) = self.slab.take(id) else { continue };
            req.phase = Phase::Prepped;
            // It comes after every CQE so far, for a timeout that counts them, too.
            self.timeouts.committed = self.mem.control.cq_tail().load(Relaxed);
            let before = (self.nr_ended, self.run.len());
            let ready = core::mem::take(&mut self.transports.ready_now);
            self.queue_sqe(req);
            // It has ended already, or what it polls is ready; the kernel's worker brings that.
            let tells = self.transports.ready_now || before != (self.nr_ended, self.run.len());
            if self.defers() && tells {
                self.announce_by(true);
            }
            self.transports.ready_now |= ready;
        }
        (self.submit.open, self.submit.caller, self.submit.alike) = (false, None, false);
        true
    }
}

fn to_worker(req: &mut Req) {
    req.flags |= ReqFlags::ON_WORKER;
    req.phase = Phase::Queued;
}
