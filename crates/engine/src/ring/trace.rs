//! The steps of a request's life, as `softring trace` shows them (`stats::trace`). Off, each of
//! these is a look at a byte.

use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::request::Req;
use crate::stats::trace::{Event, Span, Step};
use softring_uapi::io_uring_sqe;

impl Ctx {
    /// An SQE was taken; answers the request's number in the trace.
    #[inline]
    pub fn trace_submit(&mut self, sqe: &io_uring_sqe) -> u32 {
        let number = self.trace.number();
        if number != 0 {
            // It was taken when the one before was dealt with: no clock is read.
            self.trace_put(Step::Submit, self.trace.last(), sqe, number, sqe.fd);
        }
        number
    }

    /// An SQE was taken, tried and done.
    #[inline]
    pub fn trace_inline(&mut self, sqe: &io_uring_sqe, res: i32) {
        if self.trace.on {
            let before = self.trace.last();
            let now = self.trace.stamp();
            let took = u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
            self.trace_put(Step::Inline, now, sqe, took, res);
        }
    }

    /// A request has come to its next step.
    #[inline]
    pub fn trace(&mut self, step: Step, req: &Req) {
        if self.trace.on {
            self.trace_step(step, &req.call.sqe, req.trace, req.res);
        }
    }

    /// A request that stays where it is has posted a CQE.
    #[inline]
    pub fn trace_more(&mut self, id: ReqId, res: i32) {
        if self.trace.on
            && let Some((sqe, number)) = self.slab.get(id).map(|r| (r.call.sqe, r.trace))
        {
            self.trace_step(Step::More, &sqe, number, res);
        }
    }

    /// As [`trace`](Self::trace), of what is no request but was given a number.
    #[cold]
    pub fn trace_step(&mut self, step: Step, sqe: &io_uring_sqe, number: u32, res: i32) {
        if number != 0 && self.trace.on {
            let now = self.trace.stamp();
            self.trace_put(step, now, sqe, number, res);
        }
    }

    #[cold]
    fn trace_put(&mut self, step: Step, time: u64, sqe: &io_uring_sqe, req: u32, value: i32) {
        let (data, opcode) = (sqe.user_data, sqe.opcode);
        self.trace.put(&mut Event { time, data, req, tid: 0, step, opcode, value });
    }

    /// A worker has run a request since `began`.
    pub fn trace_work(&mut self, began: Span, opcode: u8, number: u32) {
        if let Some(began) = began.filter(|_| number != 0 && self.trace.on) {
            self.trace.span(Step::Work, began, number, opcode, 0);
        }
    }
}
