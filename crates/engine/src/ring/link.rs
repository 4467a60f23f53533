//! Chains: the links of a request that ends, and linked timeouts. A link never ends or starts at
//! once, but with the next task work, behind the CQEs of the current batch. Kernel counterpart:
//! `io_req_find_next`, `io_disarm_next`, `io_fail_links`.

use crate::io::token::ReqId;
use crate::ring::ctx::{Ctx, Requests};
use crate::ring::request::{FileRef, OpState, Phase, Req, ReqFlags, Timer};
use softring_uapi::errno::Errno;
use softring_uapi::{IORING_OP_LINK_TIMEOUT, IORING_TIMEOUT_ABS};

/// Returns whether the request was issued with a file. A closed number shows here only when it is
/// used.
fn was_issued(req: &Req) -> bool {
    let none = |fd| req.res == Errno::EBADF.res() && softring_host::fd::is_path_only(fd);
    let closed = matches!(req.call.file, FileRef::Plain(fd) if none(fd));
    req.flags.contains(ReqFlags::ISSUED) && !closed
}

/// Longest expected delay of the kernel's task work, in ns.
const TASK_WORK_NS: u64 = 200_000;

/// Returns whether a linked timeout had expired when `head` ended; if it was never armed, whether
/// it had expired before it could be. A head that is a timeout itself ends at its deadline, however
/// late the deadline is handled here; the kernel handles it with the next task work.
fn is_past(req: &Req, armed: Option<Timer>, head: &Req) -> bool {
    if let Some(t) = armed {
        let now = t.clock.now();
        let ended = match head.phase {
            Phase::Expired { clock, deadline } if clock == t.clock => {
                now.min(deadline.saturating_add(TASK_WORK_NS))
            }
            _ => now,
        };
        // A timer of zero length fires as it is armed, however late.
        return t.period == 0 || t.deadline <= ended;
    }
    let OpState::Timeout(t) = req.call.state else { return false };
    let abs = req.call.sqe().op_flags & IORING_TIMEOUT_ABS != 0;
    t.period == 0 || (abs && t.period <= t.clock.now())
}

impl Ctx {
    /// Disarms the linked timeout of an ended request, and fails or queues its links.
    pub(crate) fn queue_next(&mut self, req: &mut Req) {
        self.disarm_next(req);
        if let Some(id) = req.link.take() {
            let worker = req.flags.contains(ReqFlags::ON_WORKER) && !self.defers();
            if worker {
                return self.go_on_in_iowq(id);
            }
            self.queue_follower(id);
        }
    }

    /// Queues the link of an ended request: with the task work of its batch, behind the requests
    /// that the batch itself has queued (`io_free_batch_list` runs when the batch is flushed).
    pub(crate) fn queue_follower(&mut self, id: ReqId) {
        if self.submit.collects {
            self.submit.followers.push_back(id);
        } else {
            self.work.queue(id);
        }
    }

    /// Queues the followers at the flush of the batch.
    pub(crate) fn queue_followers(&mut self) {
        self.submit.collects = false;
        self.submit.disarmed.clear();
        self.work.queue_all(&mut self.submit.followers);
        self.work.queue_all(&mut self.submit.failed_in_worker);
    }

    fn disarm_next(&mut self, req: &mut Req) {
        if req.flags.intersects(ReqFlags::ARM_LTIMEOUT | ReqFlags::LINK_TIMEOUT) {
            req.flags.remove(ReqFlags::ARM_LTIMEOUT | ReqFlags::LINK_TIMEOUT);
            let is_timeout = |r: &Req| r.opcode() == IORING_OP_LINK_TIMEOUT;
            if let Some(id) = req.link
                && self.reqs.slab.get(id).is_some_and(is_timeout)
            {
                let armed = self.reqs.timeouts_disarm(id);
                // The kernel arms it even behind a head that ends when it is issued. A timeout that
                // had expired by then fires, and finds nothing to cancel.
                let tried = armed.is_some() || was_issued(req);
                let past = |r: &Req| is_past(r, armed, req);
                let late = tried && self.reqs.slab.get(id).is_some_and(past);
                let res = if late { Errno::ENOENT } else { Errno::ECANCELED }.res();
                // The timeout's own link moves to the head: the timeout ends alone, and not as a
                // failure.
                req.link = self.end_linked(id, res);
                if tried && !late {
                    self.keep_timer(id, armed);
                }
            }
        }
        if req.flags.contains(ReqFlags::FAIL) && !req.flags.contains(ReqFlags::HARDLINK) {
            self.fail_links(req);
        }
    }

    /// Keeps the timer of an ended LINK_TIMEOUT, which can be updated until its batch ends.
    fn keep_timer(&mut self, id: ReqId, armed: Option<Timer>) {
        if self.submit.collects
            && let Some(timer) = armed.or_else(|| self.reqs.slab.get(id)?.start_timer())
        {
            self.submit.disarmed.push((id, timer));
        }
    }

    /// Cancels all links of a failed request.
    fn fail_links(&mut self, req: &mut Req) {
        let skip = req.flags.contains(ReqFlags::SKIP_LINK_CQES);
        let mut next = req.link.take();
        while let Some(id) = next {
            let Some(link) = self.reqs.slab.get_mut(id) else { break };
            let failed = link.flags.contains(ReqFlags::FAIL);
            let res = if failed { link.res } else { Errno::ECANCELED.res() };
            link.flags.set(ReqFlags::CQE_SKIP, skip);
            next = self.end_linked(id, res);
        }
    }

    /// Removes a member from its chain, to end with `res`; returns the member after it.
    pub(super) fn end_linked(&mut self, id: ReqId, res: i32) -> Option<ReqId> {
        let req = self.reqs.slab.get_mut(id)?;
        let next = req.link.take();
        req.flags.remove(ReqFlags::LINKS | ReqFlags::ARM_LTIMEOUT | ReqFlags::LINK_TIMEOUT);
        req.flags |= ReqFlags::ENDED | ReqFlags::WITH_CHAIN;
        req.res = res;
        req.call.cflags = 0;
        self.queue_follower(id);
        next
    }

    /// Ends a waiting request with the next task work (`io_req_task_queue_fail`).
    pub(crate) fn end_soon(&mut self, id: ReqId, res: i32) {
        if self.reqs.ends_with(id, res).is_some() {
            self.work.queue(id);
        }
    }

    /// Ends a request that an attempt leaves to task work; see [`Self::end_soon`].
    pub(crate) fn end_later(&mut self, id: ReqId, res: i32) {
        let Some(req) = self.reqs.ends_with(id, res) else { return };
        if req.fails_by_task_work() {
            self.queue_from_worker(id);
        } else {
            self.work.queue(id);
        }
    }

    /// Queues a request from a worker, later than the task work of the current batch.
    pub(crate) fn queue_from_worker(&mut self, id: ReqId) {
        if self.submit.collects {
            self.submit.failed_in_worker.push_back(id);
        } else {
            self.work.queue(id);
        }
    }

    /// Arms the LINK_TIMEOUT behind a request that now waits.
    pub(crate) fn arm_linked_timeout(&mut self, id: ReqId) {
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        if !req.flags.contains(ReqFlags::ARM_LTIMEOUT) {
            return;
        }
        req.flags.remove(ReqFlags::ARM_LTIMEOUT);
        let Some(timeout) = req.link else { return };
        req.flags |= ReqFlags::LINK_TIMEOUT;
        self.timeouts_arm_linked(timeout, id);
    }
}

impl Requests {
    fn ends_with(&mut self, id: ReqId, res: i32) -> Option<&Req> {
        let req = self.slab.get_mut(id)?;
        req.res = res;
        if res < 0 {
            req.set_fail();
            req.call.cflags = 0;
        }
        req.flags |= ReqFlags::ENDED;
        req.phase = Phase::Prepped;
        Some(req)
    }
}
