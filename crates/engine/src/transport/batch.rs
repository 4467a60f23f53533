//! Requests with kernel aio: queued while a batch is submitted, handed over in one system call,
//! reaped from user memory by whoever drives the ring.

use crate::ctx::Ctx;
use crate::errno::Errno;
use crate::req::request::{Req, State};
use crate::req::slab::ReqId;
use crate::stats::trace::Step;
use crate::time::Clock;
use crate::transport::aio::AioCtx;

/// Fewest and most requests of one ring with the kernel's aio: the first so that small rings batch
/// too, the second because `fs.aio-max-nr` is shared by the whole system.
const DEPTH: core::ops::RangeInclusive<u32> = 64..=1024;

impl Ctx {
    /// Can kernel aio take a request?
    pub fn aio_ready(&mut self) -> bool {
        if self.transports.aio.is_none() && !self.transports.aio_refused {
            // Its completions show in the poll set only: no descriptor for that, no aio now.
            let seen = self.transports.poll_set().is_ok_and(|p| p.aio_fd().is_some());
            if !seen && !self.polls() {
                return false;
            }
            let depth = self.mem.geo.cq_entries.clamp(*DEPTH.start(), *DEPTH.end());
            match AioCtx::new(depth) {
                Ok(aio) => {
                    self.transports.aio = Some(aio);
                    if self.transports.polling.is_none() {
                        self.start_polling(depth);
                    }
                }
                Err(_) => self.transports.aio_refused = true,
            }
        }
        self.transports.aio.as_ref().is_some_and(|a| a.room() > 0)
    }

    /// The eventfd that tells the poll set of aio completions; none where they are polled for.
    pub fn aio_signal(&mut self) -> Option<i32> {
        if self.polls() {
            return None;
        }
        self.transports.poll.as_mut().and_then(|p| p.aio_fd())
    }

    /// Queues a request for the next batch.
    pub fn aio_queue(&mut self, req: &mut Req) {
        self.trace(Step::Aio, req);
        req.state = State::Aio;
        let id = self.slab.insert(core::mem::take(req));
        let resfd = self.aio_signal();
        let Some(req) = self.slab.get_mut(id) else { return };
        let made = crate::ops::rw::to_iocb(&mut req.call, id.to_u64(), resfd);
        match (made, &mut self.transports.aio) {
            (Ok(Some(cb)), Some(aio)) => {
                let _token = aio.prep(cb);
                self.transports.aio_queued = true;
                self.arm_linked_timeout(id);
            }
            (Err(e), _) => self.complete(id, e.res()),
            _ => self.aio_instead(id),
        }
    }

    /// What aio cannot take goes to a worker; what is not to wait is tried here, and that is it.
    fn aio_instead(&mut self, id: ReqId) {
        let Some(mut req) = self.slab.remove(id) else { return };
        if !req.may_not_wait() {
            return self.punt(&mut req);
        }
        req.state = State::Prepped;
        let outcome = self.issue(&mut req);
        self.outcome(&mut req, outcome);
    }

    /// Submits what was queued; false if there was nothing.
    pub fn transports_submit(&mut self) -> bool {
        if !core::mem::take(&mut self.transports.aio_queued) {
            return false;
        }
        let Some(mut aio) = self.transports.aio.take() else { return false };
        let mut failed: Vec<(u64, Errno)> = Vec::new();
        let fail = |data, e| failed.push((data, e));
        let taken = match &mut self.transports.polling {
            Some(polling) => {
                let now = Clock::Monotonic.now();
                aio.submit_tracked(fail, |cb| polling.issued(cb, now))
            }
            None => aio.submit(fail),
        };
        self.stats.routes.aio.add(taken as u64);
        self.transports.aio = Some(aio);
        for (data, e) in failed {
            if let Some(kept) = self.transports.lane.take(data) {
                self.lane_refused(kept, e);
                continue;
            }
            let id = ReqId::from_u64(data);
            match e {
                Errno::EAGAIN | Errno::ENOSYS => self.aio_instead(id),
                e => self.complete(id, e.res()),
            }
        }
        self.aio_reap();
        true
    }

    /// Takes aio completions from user memory.
    pub fn aio_reap(&mut self) {
        if !self.transports.aio.as_ref().is_some_and(|a| a.ready() || !a.user_mapped()) {
            return;
        }
        let Some(mut aio) = self.transports.aio.take() else { return };
        let (mut nowait, mut lanes) = (Vec::new(), Vec::new());
        let mut polling = self.transports.polling.take();
        let mut now = None;
        let seen = |ticket| {
            if let Some(polling) = &mut polling {
                polling.seen(ticket, &mut now);
            }
        };
        let each = |data, res| {
            if let Some(kept) = self.transports.lane.take(data) {
                if res == i64::from(Errno::EAGAIN.res()) {
                    return lanes.push(kept);
                }
                return self.lane_done(&kept, res as i32);
            }
            let id = ReqId::from_u64(data);
            let Some(req) = self.slab.get_mut(id) else { return };
            if res == i64::from(Errno::EAGAIN.res())
                && req.call.sqe.op_flags & crate::ops::rw::RWF_NOWAIT == 0
            {
                return nowait.push(id);
            }
            let res = crate::ops::rw::aio_done(&mut req.call, res);
            self.complete(id, res);
        };
        aio.reap_tracked(each, seen);
        self.transports.polling = polling;
        self.transports.aio = Some(aio);
        for id in nowait {
            self.aio_instead(id);
        }
        for kept in lanes {
            self.lane_instead(kept);
        }
    }
}
