//! Statistics of ended requests: errors, bytes, and latency.
//!
//! The latency is fio's clat, completion latency: from when a request was taken to when its CQE was
//! written. No clock is read for each request.
//!
//! * A request that has to wait: from when the first request of its batch had to wait, to when the
//!   first request reaped with it ended. That is one clock read per batch on either side, which is
//!   as fine as a program can see.
//! * A request that ends at once: one in [`PERIOD`] is timed, and counts for all of them; the first
//!   [`EACH`] of a ring each count as one. [`PERIOD`] is a prime, so that in batches of any size
//!   each position is timed in turn.
//! * Not timed: multishot requests, which end when the program ends them.

use crate::ring::batch::SubmitState;
use crate::ring::ctx::{Ctx, Requests};
use crate::ring::opdef::{self, OpDef};
use crate::ring::request::{Req, ReqFlags};
use softring_host::time::Clock;

/// Distance between timed requests that end at once: two clock reads are then 0.2 ns of each.
const PERIOD: u32 = 509;
/// Number of requests of a ring that are all timed first, so that a ring with few requests has
/// statistics too.
const EACH: u32 = 64;

/// The start of a timed attempt: the clock, and the number of requests before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timed {
    at: u64,
    reqs: u32,
}

impl Ctx {
    /// Returns the position of the SQE of the batch that is timed first, from 1 on.
    #[inline]
    pub(crate) fn samples_begin(&mut self) -> u32 {
        self.reqs.slab.start = 0;
        if self.stats.seen() { self.submit.sampling.due } else { u32::MAX }
    }

    /// Records the timed attempt; returns the distance to the next one. The attempt counts only if
    /// it has ended: a request that waits is timed otherwise.
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

    /// Counts a request that ends.
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

    /// Counts the bytes of one result of a request.
    #[inline]
    pub(crate) fn count_bytes(&self, row: &OpDef, res: i32) {
        if res > 0 && row.has(opdef::BYTES) {
            let stats = &self.stats;
            let sum = if row.has(opdef::POLLIN) { &stats.read_bytes } else { &stats.written_bytes };
            sum.add(u64::from(res.cast_unsigned()));
        }
    }

    /// Counts the latency of a request that has waited since `start`.
    pub(crate) fn count_waited(&mut self, opcode: u8, start: u64) {
        if self.completion.reaped == 0 {
            self.completion.reaped = Clock::Monotonic.now();
        }
        self.stats.latency(opcode, self.completion.reaped.saturating_sub(start), 1);
    }

    /// Counts the CQEs published, up to this tail.
    #[inline]
    pub(crate) fn count_pass(&mut self, tail: u32) {
        self.completion.reaped = 0;
        let new = tail.wrapping_sub(core::mem::replace(&mut self.completion.counted_tail, tail));
        self.stats.cqes.add(u64::from(new));
        self.stats.in_flight.set(u64::from(self.reqs.nr_reqs - self.reqs.nr_ended));
    }
}

impl Requests {
    /// Begins the timed attempt.
    #[cold]
    pub(crate) fn sample_start(&self) -> Timed {
        Timed { at: Clock::Monotonic.now(), reqs: self.nr_reqs - self.nr_ended }
    }
}

impl SubmitState {
    /// Ends a batch of `done` SQEs, of which SQE `due` would have been timed next.
    #[inline]
    pub(crate) fn samples_end(&mut self, due: u32, done: u32) {
        self.sampling.due = due.saturating_sub(done).max(1);
    }
}
