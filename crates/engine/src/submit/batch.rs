//! Requests with kernel aio: queued while a batch is submitted, submitted in one system call,
//! reaped from user memory by the ring's driver.

use crate::io::aio::AioCtx;
use crate::io::aio::nowait::is_for_worker;
use crate::io::completions::Completion;
use crate::io::token::ReqId;
use crate::ops::rw;
use crate::ring::ctx::Ctx;
use crate::ring::direct::DirectSqe;
use crate::ring::req_box::ReqBox;
use crate::ring::request::{Phase, Req, ReqFlags};
use crate::stats::trace::Step;
use alloc::boxed::Box;
use alloc::vec::Vec;
use softring_host::calls::Part;
use softring_host::fd::history::History;
use softring_host::time::Clock;
use softring_uapi::errno::Errno;

/// Bounds of the number of one ring's requests with kernel aio: the lower lets small rings batch
/// too, the upper limits use of `fs.aio-max-nr`, which the whole system shares.
const DEPTH: core::ops::RangeInclusive<u32> = 64..=1024;

/// The result of a request that must not wait.
const AGAIN: i64 = Errno::EAGAIN.res() as i64;

/// Rest of a request that kernel aio has not finished.
enum Unfinished {
    Request(ReqId),
    /// An SQE of the fast path, its memory, and the bytes done so far.
    Direct(DirectSqe, Part, u64),
}

impl Ctx {
    /// Returns whether kernel aio can take a request.
    pub(crate) fn aio_ready(&mut self) -> bool {
        if self.drive.transports.aio.is_none() && !self.drive.transports.aio_refused {
            // Its completions show in the poll set only: without a descriptor for them there is no
            // aio now.
            let seen = self.drive.transports.poll_set().is_ok_and(|p| p.aio_fd().is_some());
            if !seen && !self.setup.polls() {
                return false;
            }
            let depth = self.mem.geo.cq_entries.clamp(*DEPTH.start(), *DEPTH.end());
            match AioCtx::new(depth) {
                Ok(aio) => {
                    self.drive.transports.aio = Some(Box::new(aio));
                    if self.drive.transports.polling.is_none() {
                        self.start_polling(depth);
                    }
                }
                Err(_) => self.drive.transports.aio_refused = true,
            }
        }
        self.drive.transports.aio.as_ref().is_some_and(|a| a.room() > 0)
    }

    /// Returns whether kernel aio can take a request and is worth trying: not if the file has
    /// refused a similar request and a worker can do it. See [`Self::aio_ready`].
    pub(crate) fn aio_is_to_try(&mut self, req: &Req) -> bool {
        let write = req.row.writes();
        let refusals = req.call.file.history().map(|s| &s.refusals);
        if !req.may_not_wait() && refusals.is_some_and(|r| r.skips(write)) {
            return false;
        }
        if let Some(refusals) = refusals {
            refusals.tried(write);
        }
        self.aio_ready()
    }

    /// Returns the eventfd that reports aio completions to the poll set; `None` if they are polled
    /// for.
    pub(crate) fn aio_signal(&mut self) -> Option<i32> {
        if self.setup.polls() {
            return None;
        }
        self.drive.transports.poll.as_mut().and_then(|p| p.aio_fd())
    }

    /// Queues a request for the next batch.
    pub(crate) fn aio_queue(&mut self, mut req: ReqBox) {
        self.trace(Step::Aio, &req);
        req.phase = Phase::Aio(req.call.file.history().map_or(0, History::file));
        let id = self.reqs.slab.insert(req);
        let resfd = self.aio_signal();
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        let made = rw::to_iocb(&mut req.call, id.to_u64(), resfd);
        match (made, &mut self.drive.transports.aio) {
            (Ok(Some(cb)), Some(aio)) => {
                let _token = aio.prep(cb);
                self.drive.transports.aio_queued = true;
                self.arm_linked_timeout(id);
            }
            (Err(e), _) => self.complete(id, e.res()),
            _ => self.aio_instead(id),
        }
    }

    /// Sends a request that aio cannot take to a worker. A request that must not wait, or has
    /// nothing to transfer, gets one attempt here.
    fn aio_instead(&mut self, id: ReqId) {
        let Some(mut req) = self.reqs.slab.take(id) else { return };
        req.phase = Phase::Prepped;
        req.flags.remove(ReqFlags::ON_WORKER);
        if !req.may_not_wait() && req.call.total() > 0 {
            return self.punt(req);
        }
        let outcome = self.issue(&mut req);
        self.outcome(req, outcome);
    }

    /// Submits the queued requests; false if there were none.
    #[inline(always)]
    pub(crate) fn transports_submit(&mut self) -> bool {
        core::mem::take(&mut self.drive.transports.aio_queued) && self.aio_submit()
    }

    #[inline(never)]
    fn aio_submit(&mut self) -> bool {
        let Some(mut aio) = self.drive.transports.aio.take() else { return false };
        let mut failed: Vec<(u64, Errno)> = Vec::new();
        let fail = |data, e| failed.push((data, e));
        let mut polling = self.drive.transports.polling.take();
        let taken = self.unlocked(|| match &mut polling {
            Some(polling) => {
                let now = Clock::Monotonic.now();
                aio.submit_tracked(fail, |cb| polling.issued(cb, now))
            }
            None => aio.submit(fail),
        });
        self.drive.transports.polling = polling;
        if let Some((data, vector)) = aio.take_vector() {
            self.direct_vector(data, vector);
        }
        self.drive.transports.aio = Some(aio);
        for (data, e) in failed {
            if let Some(kept) = self.reqs.direct.take(data) {
                self.direct_refused(kept, e);
                continue;
            }
            self.aio_refused(ReqId::from_u64(data), e);
        }
        let refused = self.aio_reap();
        self.stats.routes.aio.add(taken.saturating_sub(refused) as u64);
        true
    }

    /// Handles a request that was refused at submission.
    fn aio_refused(&mut self, id: ReqId, e: Errno) {
        if !is_for_worker(e) {
            return self.complete(id, e.res());
        }
        if let Some(req) = self.reqs.slab.get(id) {
            refused(req, e);
        }
        self.aio_instead(id);
    }

    /// Takes aio completions from user memory; returns how many of their requests go on elsewhere.
    #[inline(always)]
    pub(crate) fn aio_reap(&mut self) -> usize {
        let any = self.drive.transports.aio.as_ref().is_some_and(|a| a.ready() || !a.user_mapped());
        if any { self.aio_reap_ready() } else { 0 }
    }

    #[inline(never)]
    fn aio_reap_ready(&mut self) -> usize {
        if let Some(aio) = &mut self.drive.transports.aio {
            aio.begin_reap();
        }
        let (mut unfinished, mut now) = (Vec::new(), None);
        while let Some(done) = self.drive.transports.aio.as_mut().and_then(|aio| aio.next()) {
            if let Some(rest) = self.aio_completed(done, &mut now) {
                unfinished.push(rest);
            }
        }
        let elsewhere = unfinished.len();
        for rest in unfinished {
            match rest {
                Unfinished::Request(id) => self.aio_instead(id),
                Unfinished::Direct(kept, part, done) => self.direct_fallback(kept, part, done),
            }
        }
        elsewhere
    }

    /// Handles a completion; returns what goes on elsewhere. `now`: the time, once it is known.
    #[inline]
    fn aio_completed(&mut self, done: Completion, now: &mut Option<u64>) -> Option<Unfinished> {
        let Completion { token, res, ticket } = done;
        match &mut self.drive.transports.polling {
            Some(polling) if res == AGAIN => polling.hybrid.gone(ticket),
            Some(polling) => polling.seen(ticket, now),
            None => {}
        }
        let Some(kept) = self.reqs.direct.take(token) else {
            let id = ReqId::from_u64(token);
            return (!self.aio_request_done(id, res)).then_some(Unfinished::Request(id));
        };
        if let Some((part, done)) = kept.goes_on(res) {
            return Some(Unfinished::Direct(kept, part, done));
        }
        self.direct_done(&kept, res as i32);
        None
    }

    /// Handles a completion; false if its request goes on elsewhere.
    fn aio_request_done(&mut self, id: ReqId, res: i64) -> bool {
        let Some(req) = self.reqs.slab.get_mut(id) else { return true };
        if has_file(req) && rw::aio_goes_on(&mut req.call, res) {
            if res == AGAIN {
                refused(req, Errno::EAGAIN);
            }
            return false;
        }
        if let Some(history) = known(req).filter(|_| res >= 0 && req.row.writes()) {
            history.refusals.written();
        }
        let res = rw::aio_done(&mut req.call, res);
        self.complete(id, res);
        true
    }
}

/// Returns the history of a request's file; `None` if its number means another file now.
fn known(req: &Req) -> Option<&History> {
    let same = |h: &&History| matches!(req.phase, Phase::Aio(file) if file == h.file());
    req.call.file.history().filter(same)
}

/// Returns whether the number still means the same file, as far as known.
fn has_file(req: &Req) -> bool {
    known(req).is_some() || req.call.file.history().is_none()
}

/// Records that the file of a request has refused it.
fn refused(req: &Req, e: Errno) {
    // The refusal may be due to flags of the program, too.
    if let Some(history) = known(req).filter(|_| req.call.io().flags == 0) {
        history.refusals.refused(e, req.row.writes());
    }
}
