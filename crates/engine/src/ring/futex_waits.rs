//! Requests with a futex waiter: start, wake-up, cancellation.

use alloc::sync::{Arc, Weak};

use crate::io::futex_each::Each;
use crate::io::futex_owner::Owner;
use crate::io::futex_waiter::FutexWaiter;
use crate::io::token::ReqId;
use crate::ring::cancel::protocol::Sleeping;
use crate::ring::ctx::{Ctx, Requests};
use crate::ring::opdef::Outcome;
use crate::ring::req_box::ReqBox;
use crate::ring::request::{OpState, Phase, Req, ReqFlags};
use crate::ring::turn::{Drives, Turn};
use softring_uapi::errno::Errno;

impl Req {
    /// Returns whether a futex waiter has the request.
    pub(crate) fn has_futex_waiter(&self) -> bool {
        matches!(self.phase, Phase::Sleeping(_))
    }

    /// Returns whether the request waits for a futex. Such a request is cancelled when its task
    /// ends.
    pub(crate) fn waits_on_futex(&self) -> bool {
        self.has_futex_waiter() && self.row.waiting.is_none()
    }
}

impl Ctx {
    /// Passes a request to a futex waiter; on failure the request ends.
    pub(crate) fn give_to_futex_waiter(&mut self, mut req: ReqBox) {
        let OpState::Sleep(job) = core::mem::take(&mut req.call.state) else { return };
        let id = self.reqs.slab.insert(req);
        let owner: Weak<dyn Owner> = self.ring.clone();
        let asked = self.drive.transports.futex_waiters.ask(&owner, id, job);
        match asked {
            Ok(waiter) => {
                if let Some(req) = self.reqs.slab.get_mut(id) {
                    req.phase = Phase::Sleeping(waiter);
                }
                self.arm_linked_timeout(id);
            }
            Err(e) => {
                if let Some(mut req) = self.reqs.slab.take(id) {
                    req.fail(e);
                    self.finish(req);
                }
            }
        }
    }

    /// Handles the wake-up of `by`, one of several futex waiters of a request.
    pub(crate) fn one_done(&mut self, by: &Arc<FutexWaiter>, id: ReqId, each: &Each, index: usize) {
        let leader = each.leader().filter(|leader| self.reqs.sleeps_for(leader, id));
        let Some(leader) = leader else { return each.too_late(index) };
        let first = each.claim(&mut self.drive.transports.futex_waiters, by, index);
        self.futex_waiter_done(&leader, id, first);
    }
}

impl Sleeping for Ctx {
    type Waiter = Arc<FutexWaiter>;

    fn waiter(&self, id: ReqId) -> Option<Arc<FutexWaiter>> {
        match &self.reqs.slab.get(id)?.phase {
            Phase::Sleeping(waiter) => Some(waiter.clone()),
            _ => None,
        }
    }

    fn sleeps(&self, by: &Arc<FutexWaiter>, id: ReqId) -> bool {
        self.reqs.sleeps_for(by, id)
    }

    fn take_back(&mut self, waiter: &Arc<FutexWaiter>) -> bool {
        self.drive.transports.futex_waiters.take_back(waiter)
    }

    fn end_asleep(&mut self, id: ReqId) {
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        req.phase = Phase::Prepped;
        if let Some(waiting) = req.row.waiting {
            let res = (waiting.cancel)(&req.call);
            return self.end_soon(id, res);
        }
        // A cancelled futex wait is no failure: its links go on.
        req.res = Errno::ECANCELED.res();
        req.flags |= ReqFlags::ENDED;
        self.work.queue(id);
    }

    fn end_woken(&mut self, id: ReqId, mut res: i32) -> bool {
        let Some(req) = self.reqs.slab.get_mut(id) else { return true };
        match req.row.waiting {
            Some(waiting) if req.flags.contains(ReqFlags::ORPHAN) => res = (waiting.orphan)(),
            Some(waiting) => match (waiting.ready)(&mut req.call) {
                Outcome::Done(done) => res = done,
                _ => return false,
            },
            None => {}
        }
        req.phase = Phase::Prepped;
        if self.defers() {
            self.end_soon(id, res);
            self.set_taskrun();
            self.drive.wake_driver();
            self.wake_waiters();
        } else {
            self.complete(id, res);
            self.turn(Turn::Work);
        }
        true
    }
}

impl Requests {
    /// Returns whether this waiter sleeps on behalf of the request.
    pub(crate) fn sleeps_for(&self, w: &Arc<FutexWaiter>, id: ReqId) -> bool {
        let theirs = |r: &Req| matches!(&r.phase, Phase::Sleeping(other) if Arc::ptr_eq(w, other));
        self.slab.get(id).is_some_and(theirs)
    }

    /// Dismisses all futex waiters when the ring ends.
    pub(crate) fn abandon_futex_waiters(&mut self) {
        for (_, req) in self.slab.iter() {
            if let Phase::Sleeping(w) = &req.phase {
                w.abandon();
            }
        }
    }
}
