//! The fast path: an SQE of the simplest form that can end at once is completed straight from its
//! copy and never becomes a request. Neither does one that a stream socket takes at once
//! (`ops::fast_stream`), a poll of what is there (`ops::fast_poll`), or one that only joins a batch
//! of kernel aio (`submit::fast_direct`) or is delayed by a modelled device (`io::model`). Every
//! other SQE (a link, a drain, a full CQ, a failure) takes the slow path, which alone checks for
//! errors.

use crate::io::model;
use crate::memory::cq::Cqe;
use crate::memory::sqe::Sqe;
use crate::ops::table::OPS;
use crate::ops::{fast_poll, fast_recv, fast_stream, rw_cached};
use crate::ring::ctx::Ctx;

use softring_host::fd::numbers::closes_all_reported;
use softring_uapi::*;

impl Ctx {
    /// Completes `sqe` if its opcode has a fast path that takes it, and fills its CQE. The fast
    /// path must be open.
    #[inline(always)]
    pub(crate) fn submit_fast(&mut self, sqe: &Sqe) -> bool {
        let special = sqe.flags & !IOSQE_FIXED_FILE != 0 || sqe.ioprio != 0 || sqe.personality != 0;
        if special {
            return false;
        }
        if model::any() && self.queue_modelled(sqe) {
            return true;
        }
        let direct = rw_cached::is_of_one_part(sqe);
        if self.setup.polls() {
            return direct && self.queue_direct(sqe);
        }
        // Called directly, not through the table: branch prediction is cold after each system call,
        // so an indirect call would cost a read some 20 ns.
        let res = if rw_cached::is_for(sqe.opcode) {
            let res = rw_cached::fast(self, sqe);
            self.stats.read_bytes.add(u64::from(res.map_or(0, i32::unsigned_abs)));
            res
        } else {
            let row = OPS.get(usize::from(sqe.opcode));
            row.and_then(|def| def.fast).and_then(|f| f(self, sqe))
        };
        let Some(res) = res else {
            return direct && self.queue_direct(sqe)
                || fast_stream::is_for(sqe.opcode) && self.queue_stream(sqe)
                || fast_poll::is_for(sqe.opcode)
                    && fast_poll::pays(&self.submit)
                    && self.submit_poll(sqe)
                || fast_recv::is_for(sqe.opcode) && self.submit_recv(sqe);
        };
        self.end_inline(sqe, res)
    }

    /// Fills the CQE of an SQE that has ended at once; true.
    #[inline(always)]
    fn end_inline(&mut self, sqe: &Sqe, res: i32) -> bool {
        self.trace_inline(&OPS, sqe, res);
        self.post(Cqe { user_data: sqe.user_data, res, ..Cqe::default() });
        true
    }

    /// Completes a POLL_ADD whose events are there. If they are not, `submit.absent` says so.
    #[inline(never)]
    fn submit_poll(&mut self, sqe: &Sqe) -> bool {
        fast_poll::fast(self, sqe).is_some_and(|res| self.end_inline(sqe, res))
    }

    /// Finds out whether a RECV is to wait; `submit.absent` says so.
    #[inline]
    fn submit_recv(&mut self, sqe: &Sqe) -> bool {
        if closes_all_reported() {
            fast_recv::find_nothing(self, sqe);
        }
        false
    }

    /// Returns whether there is no queue that an SQE would have to join. Only an SQE that takes the
    /// slow path changes that within a batch.
    #[inline]
    pub(crate) fn fast_path_open(&self) -> bool {
        self.submit.head.is_none()
            && !self.reqs.drain.active
            && !self.reqs.drain.next
            && !self.setup.restrictions.restricts_sqes()
            && !self.setup.filters.any()
            && self.faults.is_none()
    }
}
