//! What requests came to: errors, bytes, and how long they took.
//!
//! The latency is fio's clat, completion latency: from when a request was taken to when its CQE was
//! written. No clock is read for each.
//!
//! * A request that has to wait: from when the first of its batch had to, to when the first of
//!   those reaped with it ended: a clock read per batch on either side, which is as fine as a
//!   program can see.
//! * A request that ends at once: one in [`PERIOD`] is timed, and stands for them all; the first
//!   [`EACH`] of a ring each stand for themselves. [`PERIOD`] is a prime, so that in batches of any
//!   size each place has its turn.
//! * Not timed: multishot requests, which end when nobody wants them any more.

use crate::ring::batch::SubmitState;
use crate::ring::ctx::{Ctx, Requests};
use crate::ring::opdef::{self, OpDef};
use crate::ring::request::{Req, ReqFlags};
use softring_host::time::Clock;

/// One of so many requests that end at once is timed: two clock reads are then 0.2 ns of each.
const PERIOD: u32 = 509;
/// Requests of a ring's that are timed before that, so that something is known of one that does
/// little.
const EACH: u32 = 64;

/// The start of a timed attempt: the clock, and how many requests there were before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timed {
    at: u64,
    reqs: u32,
}

impl Ctx {
    /// The SQE of the batch that is timed first, from 1 on.
    #[inline]
    pub(crate) fn samples_begin(&mut self) -> u32 {
        self.reqs.slab.start = 0;
        if self.stats.seen() { self.submit.sampling.due } else { u32::MAX }
    }

    /// The sample was tried; answers how many behind it the next one is. It counts only if it has
    /// ended: what waits is timed otherwise.
    #[cold]
    pub(crate) fn sample_end(&mut self, opcode: u8, timed: Timed) -> u32 {
        let each = |taken| if taken < EACH { 1 } else { PERIOD };
        let taken = self.submit.sampling.taken;
        if self.reqs.nr_reqs - self.reqs.nr_ended == timed.reqs {
            let ns = Clock::Monotonic.now().saturating_sub(timed.at);
            self.stats.latency(opcode, ns, u64::from(each(taken)));
        }
        self.submit.sampling.taken = taken.saturating_add(1);
        each(taken.saturating_add(1))
    }

    /// A request ends.
    #[inline]
    pub(crate) fn count_end(&mut self, req: &Req) {
        if req.res < 0 {
            self.stats.count_error(req.opcode());
        } else {
            self.count_bytes(req.row, req.res);
        }
        if req.start != 0 && !req.flags.contains(ReqFlags::MULTISHOT) {
            self.count_waited(req.opcode(), req.start);
        }
    }

    /// One result of a request, or of its only one.
    #[inline]
    pub(crate) fn count_bytes(&self, row: &OpDef, res: i32) {
        if res > 0 && row.has(opdef::BYTES) {
            let stats = &self.stats;
            let sum = if row.has(opdef::POLLIN) { &stats.read_bytes } else { &stats.written_bytes };
            sum.add(u64::from(res.cast_unsigned()));
        }
    }

    /// A request that has waited since `start` ends.
    pub(crate) fn count_waited(&mut self, opcode: u8, start: u64) {
        if self.completion.reaped == 0 {
            self.completion.reaped = Clock::Monotonic.now();
        }
        self.stats.latency(opcode, self.completion.reaped.saturating_sub(start), 1);
    }

    /// CQEs were published, up to this tail.
    #[inline]
    pub(crate) fn count_pass(&mut self, tail: u32) {
        self.completion.reaped = 0;
        let new = tail.wrapping_sub(core::mem::replace(&mut self.completion.counted_tail, tail));
        self.stats.cqes.add(u64::from(new));
        self.stats.in_flight.set(u64::from(self.reqs.nr_reqs - self.reqs.nr_ended));
    }
}

impl Requests {
    /// This one is timed.
    #[cold]
    pub(crate) fn sample_start(&self) -> Timed {
        Timed { at: Clock::Monotonic.now(), reqs: self.nr_reqs - self.nr_ended }
    }
}

impl SubmitState {
    /// `done` SQEs were taken, and the next to be timed would have been `due`.
    #[inline]
    pub(crate) fn samples_end(&mut self, due: u32, done: u32) {
        self.sampling.due = due.saturating_sub(done).max(1);
    }
}
