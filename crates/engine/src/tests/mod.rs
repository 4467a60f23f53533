//! What happens to requests between SQE and CQE, against small models: links, barriers, cancels,
//! timeouts, further attempts, the order of completions. A ring in anonymous memory has no
//! descriptor, and what a transport would bring comes by the request's id, as transports bring it.

mod cancel;
mod drain;
mod link;
mod order;
mod reissue;
mod timeouts;

use crate::io::token::ReqId;
use crate::memory::rings::{Geometry, Rings, off};
use crate::ring::ctx::{Ctx, Guard, Ring};
use crate::ring::request::Phase;
use crate::ring::turn::Turn;
use core::sync::atomic::Ordering::{Acquire, Release};
use softring_uapi::*;
use std::sync::Arc;

const ECANCELED: i32 = -125;
/// As long as no test runs, in ns.
const LONG: u64 = 3_600_000_000_000;

/// A ring without a descriptor, and the program's side of it.
struct TestRing {
    ring: Arc<Ring>,
    geo: Geometry,
}

impl TestRing {
    fn new(sq_entries: u32, cq_entries: u32, flags: u32) -> Self {
        let geo = Geometry { flags: flags | IORING_SETUP_SUBMIT_ALL, sq_entries, cq_entries };
        let mem = Rings::anonymous(geo).expect("memory");
        let ctx = Ctx::new(mem, geo.flags, |_| panic!("nothing here is a worker's"));
        Self { ring: Ring::new(0, ctx), geo }
    }

    fn lock(&self) -> Guard<'_> {
        self.ring.lock()
    }

    /// Puts SQEs into the queue, has the engine take them, and does what `enter` does afterwards.
    fn submit(&self, sqes: &[io_uring_sqe]) {
        let mut ctx = self.lock();
        let tail = ctx.mem.rings.word(off::SQ_TAIL).load(Acquire);
        for (i, sqe) in sqes.iter().enumerate() {
            let slot = (tail + i as u32) & (self.geo.sq_entries - 1);
            let array = ctx.mem.array.expect("an array") + slot as usize * 4;
            ctx.mem.rings.word(array).store(slot, Release);
            ctx.mem.sqes.store(slot as usize * 64, *sqe);
        }
        ctx.mem.rings.word(off::SQ_TAIL).store(tail + sqes.len() as u32, Release);
        let older = sqes.len() > 1 || ctx.in_flight();
        assert_eq!(ctx.submit_sqes(sqes.len() as u32), Ok(sqes.len() as u32));
        ctx.after_submit(false, older);
    }

    /// Takes up to `most` completions: `user_data`, result, flags.
    fn take(&self, most: usize) -> Vec<(u64, i32, u32)> {
        let ctx = self.lock();
        let word = |at| ctx.mem.rings.word(at);
        let (head, tail) = (word(off::CQ_HEAD).load(Acquire), word(off::CQ_TAIL).load(Acquire));
        let n = (tail.wrapping_sub(head)).min(most as u32);
        let read = |i: u32| {
            let at = off::CQES + (i & (self.geo.cq_entries - 1)) as usize * 16;
            let [data, rest] = [at, at + 8].map(|at| ctx.mem.rings.word64(at).load(Acquire));
            (data, rest as u32 as i32, (rest >> 32) as u32)
        };
        let got = (head..head + n).map(read).collect();
        word(off::CQ_HEAD).store(head + n, Release);
        got
    }

    /// All completions there are, without their flags.
    fn reap(&self) -> Vec<(u64, i32)> {
        self.take(usize::MAX).into_iter().map(|(data, res, _)| (data, res)).collect()
    }

    /// The request of that name, if it is in the table.
    fn id(&self, user_data: u64) -> Option<ReqId> {
        self.lock().reqs.slab.named(user_data).map(|(id, _)| id).next()
    }

    /// What a waiting request waits for has come, with that result.
    fn comes(&self, user_data: u64, res: i32) {
        let id = self.id(user_data).expect("it waits");
        let mut ctx = self.lock();
        ctx.reqs.timeouts_disarm(id);
        ctx.complete(id, res);
        ctx.turn(Turn::Work);
    }

    /// The names of requests that wait for something of their own, in order.
    fn waiting(&self) -> Vec<u64> {
        let ctx = self.lock();
        let waits = |phase: &Phase| matches!(phase, Phase::Timer(_) | Phase::Elsewhere);
        let mut names: Vec<u64> = ctx
            .reqs
            .slab
            .iter()
            .filter(|(_, req)| waits(&req.phase))
            .map(|(_, req)| req.user_data)
            .collect();
        names.sort_unstable();
        names
    }

    /// Nothing is left of any request.
    fn is_idle(&self) -> bool {
        let ctx = self.lock();
        ctx.reqs.nr_reqs == 0 && ctx.reqs.slab.iter().next().is_none() && !ctx.work.any_queued()
    }
}

fn sqe(opcode: u8, user_data: u64) -> io_uring_sqe {
    io_uring_sqe { opcode, user_data, ..Default::default() }
}

/// A request that ends at once with `res`.
fn nop(user_data: u64, res: i32) -> io_uring_sqe {
    let (op_flags, len) = (IORING_NOP_INJECT_RESULT, res.cast_unsigned());
    io_uring_sqe { op_flags, len, ..sqe(IORING_OP_NOP, user_data) }
}

/// A request that waits until it is ended.
fn waiter(user_data: u64) -> io_uring_sqe {
    let op_flags = IORING_TIMEOUT_IMMEDIATE_ARG;
    io_uring_sqe { op_flags, addr: LONG, len: 1, ..sqe(IORING_OP_TIMEOUT, user_data) }
}
