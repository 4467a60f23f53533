//! Faults at the end of a request: its completion is held back, and comes when it is due, as one of
//! a modelled device does. Also faults of a wait and of a submission.

use crate::io::model::device::Due;
use crate::io::token::ReqId;
use crate::policy::hybrid::Ticket;
use crate::ring::ctx::Ctx;
use crate::ring::opdef;
use crate::ring::req_box::ReqBox;
use crate::ring::request::{Phase, Req, ReqFlags};
use crate::ring::turn::Drives;
use softring_faults::Fault;
use softring_host::time::Clock;
use softring_uapi::errno::Errno;
use softring_uapi::{IORING_CQE_F_BUFFER, IORING_OP_LINK_TIMEOUT, IORING_OP_TIMEOUT};

impl Ctx {
    /// Gives a request its place in the ring's count of requests.
    #[inline(always)]
    pub(crate) fn faults_begin(&mut self, req: &mut Req) {
        if self.faults.is_some() {
            self.faults_begin_now(req);
        }
    }

    #[cold]
    #[inline(never)]
    fn faults_begin_now(&mut self, req: &mut Req) {
        if let Some(faults) = &mut self.faults {
            req.fault = faults.begin();
            req.flags |= ReqFlags::FAULTED;
        }
    }

    /// Holds back the completion of a request that has ended, if it is to come late. Returns the
    /// request if it ends now.
    #[cold]
    #[inline(never)]
    pub(crate) fn faults_end(&mut self, mut req: ReqBox) -> Option<ReqBox> {
        let Some(faults) = &mut self.faults else { return Some(req) };
        let now = Clock::Monotonic.now();
        let (forked, burst) = (faults.forked, faults.burst.saturating_sub(now));
        let pending = faults.pending(req.fault);
        if core::mem::take(&mut pending.short) && req.res >= 0 && req.row.has(opdef::AIO) {
            // A short count of a read or write breaks a chain (`__io_complete_rw_common`).
            req.set_fail();
        }
        let held = matches!(req.phase, Phase::Held);
        let own = core::mem::take(&mut pending.hold);
        let hold = if held || forked { 0 } else { own.max(burst) };
        // A chain that breaks ends in order, a program may go by the order in which buffers of a
        // group are told, and a timeout that expires ends waits for more.
        let in_order = req.flags.contains(ReqFlags::WITH_CHAIN)
            || req.call.cflags & IORING_CQE_F_BUFFER != 0
            || matches!(req.opcode(), IORING_OP_TIMEOUT | IORING_OP_LINK_TIMEOUT);
        if hold > 0 && !in_order {
            self.hold(req, now.saturating_add(hold));
            return None;
        }
        req.phase = Phase::Prepped;
        let notif = core::mem::take(&mut pending.notif);
        if req.flags.contains(ReqFlags::NOTIF) && notif > 0 {
            // The entry goes on with the notification.
            pending.hold = notif;
        } else {
            faults.end(req.fault);
            req.flags.remove(ReqFlags::FAULTED);
        }
        Some(req)
    }

    /// Ends a request whose completion was held back.
    #[cold]
    #[inline(never)]
    pub(crate) fn finish_held(&mut self, req: ReqBox) {
        self.finish(req);
    }

    fn hold(&mut self, mut req: ReqBox, due: u64) {
        req.phase = Phase::Held;
        let id = self.reqs.slab.insert(req);
        let queue = self.drive.transports.model.get_or_insert_default();
        if queue.push(Due { done: due, shown: due }, id.to_u64(), 0, Ticket::NONE) {
            self.deadline_moved();
        }
        self.arm_linked_timeout(id);
    }

    /// Returns whether a multishot request ends with its current result.
    #[cold]
    #[inline(never)]
    pub(crate) fn faults_end_shots(&mut self, req: &Req) -> bool {
        self.faults_end_shot(req.fault)
    }

    fn faults_end_shot(&mut self, index: u32) -> bool {
        let Some(faults) = &mut self.faults else { return false };
        let pending = faults.pending(index);
        if pending.shots == 0 {
            return false;
        }
        pending.shots -= 1;
        pending.shots == 0
    }

    /// Returns whether a multishot request that waits ends with the result that it is to post.
    #[inline(always)]
    pub(crate) fn faults_end_waiting(&mut self, id: ReqId) -> bool {
        self.faults.is_some() && self.faults_end_waiting_now(id)
    }

    #[cold]
    #[inline(never)]
    fn faults_end_waiting_now(&mut self, id: ReqId) -> bool {
        let Some(req) = self.reqs.slab.get(id) else { return false };
        let index = req.flags.contains(ReqFlags::FAULTED).then_some(req.fault);
        index.is_some_and(|index| self.faults_end_shot(index))
    }

    /// Holds back the completion of a cancelled request, if the cancellation is to be late.
    #[cold]
    #[inline(never)]
    pub(crate) fn faults_cancelled(&mut self, id: ReqId) {
        let Some(faults) = &mut self.faults else { return };
        if let Some(req) = self.reqs.slab.get(id).filter(|r| r.flags.contains(ReqFlags::FAULTED)) {
            let late = faults.late;
            let pending = faults.pending(req.fault);
            pending.hold = pending.hold.max(late);
        }
    }

    /// Returns the error with which a call submits nothing.
    #[inline(always)]
    pub(crate) fn faults_submit(&mut self) -> Option<Errno> {
        if self.faults.is_some() { self.faults_submit_now() } else { None }
    }

    #[cold]
    #[inline(never)]
    fn faults_submit_now(&mut self) -> Option<Errno> {
        let any = self.mem.sq_ready() > 0;
        self.faults.as_mut().filter(|_| any)?.refuses(Fault::Eagain)
    }

    /// Returns whether the SQ thread leaves the SQEs that are there for now.
    #[inline]
    pub(crate) fn faults_sq_late(&mut self) -> bool {
        self.faults.as_mut().is_some_and(|faults| faults.sq_is_late())
    }

    /// Returns whether a signal of the registered eventfd may come late: for CQEs that the program
    /// may have seen already.
    pub(crate) fn faults_may_wake(&self) -> bool {
        let eventfd = self.completion.eventfd.as_ref();
        eventfd.is_some_and(|e| !e.only_async) && self.completions() > 0
    }

    /// Returns the error of a wait that a signal would interrupt now.
    #[inline(always)]
    pub(crate) fn faults_wait(&mut self, min: u32) -> Option<Errno> {
        if self.faults.is_some() { self.faults_wait_now(min) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn faults_wait_now(&mut self, min: u32) -> Option<Errno> {
        let waits = self.mem.cq_ready() < min;
        self.faults.as_mut().filter(|_| waits)?.refuses(Fault::Eintr)
    }
}
