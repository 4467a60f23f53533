//! The end of a request: its CQE, its links, the barrier, the commit.
//! Kernel counterpart: `io_submit_flush_completions`, `io_free_batch_list`.

use core::sync::atomic::Ordering::Relaxed;

use crate::io::token::ReqId;
use crate::memory::cq::Cqe;
use crate::resources::eventfd::EventFd;
use crate::ring::ctx::{Ctx, Requests};
use crate::ring::inherited::Inherits;
use crate::ring::req_box::ReqBox;
use crate::ring::request::{Phase, ReqFlags};
use crate::ring::turn::{Drives, Turn};

impl Ctx {
    /// Posts a CQE. The tail is published by [`commit`](Self::commit).
    #[inline(always)]
    pub(crate) fn post(&mut self, cqe: Cqe) {
        if !self.mem.cq_add(&mut self.completion.overflow, cqe) {
            self.stats.overflowed.add(1);
        }
        self.completion.posted = true;
    }

    /// Posts one CQE of a multishot request that goes on. False if the CQ is full: nothing was
    /// posted, and the request must end (`io_req_post_cqe`).
    #[must_use]
    pub(crate) fn post_more(&mut self, user_data: u64, res: i32, flags: u32) -> bool {
        self.post_shot(Cqe { user_data, res, flags, big: [0; 2] })
    }

    /// Posts a CQE that may be of 32 bytes; see [`post_more`](Self::post_more).
    #[must_use]
    pub(crate) fn post_shot(&mut self, mut cqe: Cqe) -> bool {
        cqe.flags |= softring_uapi::IORING_CQE_F_MORE;
        let posted = self.mem.cq_try_add(&self.completion.overflow, cqe);
        self.completion.posted |= posted;
        posted
    }

    /// Ends a request: posts its CQE unless skipped, and continues its chain.
    #[inline]
    pub(crate) fn finish(&mut self, mut req: ReqBox) {
        if self.submit.by_worker {
            return self.finish_by_task(req);
        }
        if req.flags.contains(ReqFlags::FAULTED) {
            let Some(now) = self.faults_end(req) else { return };
            req = now;
        }
        let skip = req.flags.contains(ReqFlags::CQE_SKIP);
        self.finish_quiet(req, skip);
    }

    /// Ends a request, with or without a CQE.
    #[inline]
    pub(crate) fn finish_quiet(&mut self, mut req: ReqBox, skip: bool) {
        if let Some(id) = req.id.take() {
            self.reqs.slab.release(id);
        }
        if req.res < 0
            && let Some(fail) = req.row.fail
        {
            fail(self, &mut req);
        }
        let notif = req.flags.contains(ReqFlags::NOTIF);
        if notif && !req.flags.contains(ReqFlags::WITH_CHAIN) {
            req.call.cflags |= softring_uapi::IORING_CQE_F_MORE;
        }
        self.count_end(&req);
        let mut cqe_flags = None;
        if !skip {
            let wide = req.flags.contains(ReqFlags::CQE32)
                && self.mem.geo.flags & softring_uapi::IORING_SETUP_CQE_MIXED != 0;
            let flags = req.call.cflags | if wide { softring_uapi::IORING_CQE_F_32 } else { 0 };
            let cqe = Cqe { user_data: req.user_data, res: req.res, flags, big: req.big };
            self.post(cqe);
            cqe_flags = Some(flags);
        }
        self.trace_done(&req, cqe_flags);
        self.reqs.nr_ended += 1;
        // The data were sent before a tried request ended.
        let tried = notif && req.tried_to_send();
        if tried {
            let notif = self.reqs.notification(&req);
            self.work.queue(notif);
        }
        let disarm = ReqFlags::LINKS | ReqFlags::ARM_LTIMEOUT | ReqFlags::LINK_TIMEOUT;
        if req.flags.intersects(disarm) || req.link.is_some() {
            self.queue_next(&mut req);
        }
        if notif && !tried {
            let notif = self.reqs.notification(&req);
            self.queue_follower(notif);
        }
        self.reqs.slab.leave(req);
    }

    /// Ends a waiting request with a result.
    pub(crate) fn complete(&mut self, id: ReqId, res: i32) {
        if let Some(mut req) = self.reqs.slab.take(id) {
            match req.phase {
                Phase::Held => return self.finish_held(req),
                Phase::Modelled => self.ends_by(&mut req, res),
                Phase::Aio(_) if req.is_workers() => self.ends_by(&mut req, res),
                _ => {}
            }
            req.res = res;
            if res < 0 || req.call.short {
                req.set_fail();
            }
            if res < 0 {
                req.call.cflags = 0;
            }
            self.put_buffer(&mut req, res);
            self.finish(req);
        }
    }

    /// Ends a batch whose task work is not run: its ended requests hold no barrier.
    pub(crate) fn free_ended(&mut self) {
        let ended = self.reqs.nr_ended > 0;
        self.reqs.count_ended();
        if ended && self.reqs.drain.active {
            self.queue_deferred();
        }
    }

    /// Returns the number of CQEs so far, including the overflowed ones; wraps.
    pub(crate) fn completions(&self) -> u32 {
        let tail = self.mem.control.cq_tail().load(Relaxed);
        tail.wrapping_add(self.completion.overflow.len() as u32)
    }

    /// Moves overflowed CQEs into the ring as far as there is room, and reports them. Timeouts
    /// count them from now on.
    pub(crate) fn flush_overflow(&mut self) {
        if self.mem.cq_flush(&mut self.completion.overflow) {
            // A timeout counts from behind these CQEs.
            self.reqs.timeouts.committed = self.mem.control.cq_tail().load(Relaxed);
            self.wake();
            self.signal_eventfd();
            self.timeouts_by_count();
            if self.defers() {
                if self.work.any_queued() {
                    self.set_taskrun();
                }
            } else {
                self.turn(Turn::Work);
            }
        }
    }

    /// Publishes CQEs and wakes the threads that wait for them.
    pub(crate) fn commit(&mut self) {
        // This precedes the wake-up: whoever sees that a request has ended may end this process.
        if self.setup.inherited.has_parent {
            self.write_down();
        }
        let published = self.mem.cq_commit();
        let tail = self.mem.control.cq_tail().load(Relaxed);
        self.reqs.timeouts.committed = tail;
        self.count_pass(tail);
        let posted = published || self.completion.posted;
        if posted {
            self.wake();
        }
        if let Some(eventfd) = &self.completion.eventfd
            && (posted || eventfd.awaits_commit())
        {
            self.signal_eventfd();
        }
        self.completion.posted = false;
    }

    /// Records that the kernel would flush the CQEs posted so far and signal its eventfd for them.
    pub(crate) fn flushed(&mut self) {
        if let Some(e) = &mut self.completion.eventfd
            && !self.mem.eventfd_disabled()
        {
            e.flushed(self.mem.control.cq_tail().load(Relaxed));
        }
    }

    /// Signals the eventfd for the CQEs that it has not reported (`io_eventfd_signal`).
    fn signal_eventfd(&mut self) {
        self.flushed();
        let most = if self.defers() { 1 } else { u32::MAX };
        let due = self.completion.eventfd.as_mut().map_or(0, EventFd::take_due).min(most);
        if let Some(e) = self.completion.eventfd.as_ref().filter(|_| due > 0) {
            e.signal(due);
        }
    }

    /// Reports work for the program's next enter (DEFER_TASKRUN). An eventfd for late completions
    /// is signalled only if a worker brings the work.
    pub(crate) fn signal_task_work(&mut self, by_worker: bool) {
        self.wake();
        if let Some(e) = &self.completion.eventfd
            && (!e.only_async || by_worker)
            && !self.mem.eventfd_disabled()
        {
            e.signal(1);
        }
    }

    /// Posts the tags of resources whose last owner is gone.
    #[inline]
    pub(crate) fn post_tags(&mut self) {
        if self.resources.tags.any() {
            self.post_tags_taken();
        }
    }

    #[cold]
    fn post_tags_taken(&mut self) {
        for user_data in self.resources.tags.take() {
            self.post(Cqe { user_data, ..Cqe::default() });
            // Each CQE is flushed separately (`io_post_aux_cqe`).
            if let Some(e) = self.completion.eventfd.as_mut().filter(|e| !e.only_async) {
                e.worker_posts(false);
            }
        }
    }
}

impl Requests {
    /// Subtracts the requests that have ended: they count until the end of their batch.
    pub(crate) fn count_ended(&mut self) {
        self.nr_reqs -= core::mem::take(&mut self.nr_ended);
    }
}
