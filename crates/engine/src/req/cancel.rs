//! Cancelling requests, wherever they wait. Kernel counterpart: `io_uring/cancel.c`.

use crate::ctx::Ctx;
use crate::errno::{Errno, Result};
use crate::req::request::{FileRef, State};
use crate::req::slab::ReqId;

impl Ctx {
    /// Cancels one waiting request; its CQE (ECANCELED) is posted.
    ///
    /// # Errors
    /// `ENOENT` if it is not there or not cancelable, `EALREADY` if it is already being executed.
    pub fn cancel_one(&mut self, id: ReqId) -> Result<()> {
        let state = self.slab.get(id).ok_or(Errno::ENOENT)?.state;
        match state {
            State::Armed => {
                let fd = self.slab.get(id).map_or(-1, |r| r.call.file.poll_fd());
                self.transports.poll_del(fd);
            }
            State::Timeout => {
                self.timeouts_disarm(id);
            }
            State::Punted => return self.cancel_punted(id),
            State::Aio => return Err(Errno::EALREADY),
            State::Prepped | State::Drained => return Err(Errno::ENOENT),
            State::Parked => {}
        }
        self.complete(id, Errno::ECANCELED.res());
        Ok(())
    }

    /// A request with a worker: taken off its queue, or interrupted where it blocks.
    fn cancel_punted(&mut self, id: ReqId) -> Result<()> {
        match self.worker_cancel(id) {
            Some(call) => {
                self.transports.workers -= 1;
                if let Some(req) = self.slab.get_mut(id) {
                    req.call = call;
                }
                self.complete(id, Errno::ECANCELED.res());
                Ok(())
            }
            None => Err(Errno::EALREADY),
        }
    }

    /// The ring ends: everything is dropped, nothing is posted.
    pub fn cancel_everything(&mut self) {
        self.forget_in_flight();
    }

    /// Drops every request.
    pub fn forget_in_flight(&mut self) {
        let ids: Vec<ReqId> = self.slab.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(mut req) = self.slab.remove(id) {
                req.call.file = FileRef::None;
            }
        }
        self.run.clear();
        self.deferred.clear();
        self.nr_reqs = 0;
        self.drain = crate::req::drain::Drain::default();
        self.timeouts = crate::req::timeouts::Timeouts::default();
        self.submit = crate::req::submit::SubmitState::default();
    }
}
