//! The fast path of a wake-up: the one request that waits on a registered number is a plain
//! POLL_ADD (`ops::fast_poll`) or RECV (`ops::fast_recv`), and the events are nothing special. What
//! happens is what `poll_fired` does to such a request.

use crate::io::persistent::{IN, STICKY};
use crate::io::token::ReqId;
use crate::ops::{fast_poll, fast_recv};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::Outcome;
use crate::ring::persistent::record_attempt;
use crate::ring::request::{Phase, ReqFlags};

impl Ctx {
    /// Acts on events of a number for the one request that waits there; false if they, or it, are
    /// not plain.
    #[inline]
    pub(super) fn wake_plain(&mut self, fd: i32, id: ReqId, seen: u32) -> bool {
        let Some(req) = self.reqs.slab.get(id) else { return false };
        let Phase::Polling(poll) = req.phase else { return false };
        let usual = seen & STICKY == 0 && poll.persistent && poll.at == fd;
        if !usual || self.submit.by_worker {
            return false;
        }
        if let Some(mask) = fast_poll::wakes_plainly(req, &poll, seen) {
            self.end_plain(fd, id, mask);
            return true;
        }
        if seen & IN == 0 || self.trace.on || !fast_recv::waits_plainly(req) {
            return false;
        }
        self.receive_plainly(fd, id, seen);
        true
    }

    /// Ends a request that alone waits on a number, and is in the table.
    fn end_plain(&mut self, fd: i32, id: ReqId, res: i32) {
        if let Some(set) = &mut self.drive.transports.poll {
            set.remove_only(fd);
        }
        if let Some(mut req) = self.reqs.slab.take(id) {
            req.res = res;
            self.finish_quiet(req, false);
        }
    }

    /// Makes the attempt at a RECV that alone waits on a number.
    fn receive_plainly(&mut self, fd: i32, id: ReqId, seen: u32) {
        let Some(mut req) = self.reqs.slab.take(id) else { return };
        req.flags |= ReqFlags::REISSUED;
        req.call.set_seen(seen);
        self.count_reissue(&req);
        let outcome = self.attempt(&mut req, fast_recv::receive);
        let Outcome::Done(res @ 1..) = outcome else {
            self.after_reissue(id, req, outcome, seen);
            return;
        };
        if req.phase.persistent_fd() != Some(fd) {
            // The number was closed meanwhile.
            self.after_reissue(id, req, outcome, seen);
            return;
        }
        if let Some(set) = &mut self.drive.transports.poll {
            record_attempt(set.registration(fd), &req);
            set.remove_only(fd);
        }
        req.res = res;
        self.finish_quiet(req, false);
    }
}
