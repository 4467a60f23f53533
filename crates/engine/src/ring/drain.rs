//! IOSQE_IO_DRAIN: a barrier. A drained request starts when every request before it has ended;
//! later requests wait behind it. Kernel counterpart: `io_drain_req`, `io_queue_deferred`.

use crate::io::token::ReqId;
use crate::ring::ctx::{Ctx, Requests};
use crate::ring::request::{Phase, ReqFlags};
use crate::ring::trace::Name;
use crate::stats::trace::Step;

impl Ctx {
    /// Initialises a request with IOSQE_IO_DRAIN.
    pub(crate) fn init_drain(&mut self) {
        self.reqs.drain.active = true;
        if let Some(head) = self.submit.head.and_then(|id| self.reqs.slab.get_mut(id)) {
            // In the middle of a chain the chain's head becomes the barrier, and so does the
            // request that follows the chain.
            head.flags |= ReqFlags::IO_DRAIN | ReqFlags::FORCE_ASYNC;
            self.reqs.drain.next = true;
        }
    }

    /// Queues a request behind the barrier.
    pub(crate) fn drain_req(&mut self, id: ReqId) {
        self.record_creds_of_chain(Some(id));
        self.reqs.keep_creds_of_chain(id);
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        req.phase = Phase::Drained;
        let barrier = req.flags.contains(ReqFlags::IO_DRAIN);
        let (name, number) = (Name::of(req), req.trace);
        self.trace_step(Step::Drained, name, number, 0);
        self.reqs.drain.drained += self.reqs.chain_len(id);
        self.reqs.drain.list.push_back(id);
        self.queue_deferred();
        if !barrier && self.reqs.drain.list.is_empty() {
            self.reqs.drain.active = false;
        }
    }

    /// Queues the requests that the barrier no longer holds: the first on the list if all earlier
    /// requests have ended, and with it the requests up to the next barrier.
    pub(crate) fn queue_deferred(&mut self) {
        let (mut first, mut barrier) = (true, false);
        while let Some(&id) = self.reqs.drain.list.front() {
            barrier |= self.reqs.slab.get(id).is_some_and(|r| r.flags.contains(ReqFlags::IO_DRAIN));
            if (first || barrier) && self.reqs.drain.drained != self.reqs.nr_reqs {
                break;
            }
            first = false;
            self.reqs.drain.list.pop_front();
            self.reqs.drain.drained -= self.reqs.chain_len(id);
            if let Some(req) = self.reqs.slab.get_mut(id) {
                req.phase = Phase::Prepped;
                self.work.queue(id);
            }
        }
    }
}

impl Requests {
    /// Marks a chain behind a barrier to keep its credentials, as the kernel does
    /// (`io_prep_async_link`).
    fn keep_creds_of_chain(&mut self, head: ReqId) {
        let mut next = Some(head);
        while let Some(req) = next.and_then(|id| self.slab.get_mut(id)) {
            req.flags |= ReqFlags::CREDS_SAVED;
            next = req.link;
        }
    }

    fn chain_len(&self, id: ReqId) -> u32 {
        core::iter::successors(Some(id), |&id| self.slab.get(id)?.link).count() as u32
    }
}
