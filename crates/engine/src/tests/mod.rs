//! Requests between SQE and CQE, against small models: submission, arming, links, barriers,
//! cancels, timeouts, further attempts, the order of completions. A ring in anonymous memory has no
//! descriptor. Results of a transport come by the request's id, as transports bring them. The poll
//! set is a list of such tokens.

mod arm;
mod cancel;
mod complete;
mod drain;
mod link;
mod order;
mod readiness;
mod reissue;
mod submit;
mod timeouts;

use crate::drive::cqwait::{WaitArgs, cqring_wait};
use crate::io::poll::PollSet;
use crate::io::signal_scope::SignalScope;
use crate::io::token::ReqId;
use crate::memory::rings::{Geometry, Rings, off};
use crate::ring::ctx::{Ctx, Guard, Ring};
use crate::ring::request::{Phase, Req};
use crate::ring::turn::{Drives, Turn};
use crate::stats::CounterSlot;
use core::sync::atomic::Ordering::{Acquire, Release};
use softring_uapi::errno::Result;
use softring_uapi::*;
use std::sync::Arc;

const ECANCELED: i32 = -125;
/// Time that no test runs for, in ns.
const LONG: u64 = 3_600_000_000_000;
/// Number that no test's process has open.
const FD: i32 = 5000;

/// Ring without a descriptor, and the program's side of it.
struct TestRing {
    ring: Arc<Ring>,
    geo: Geometry,
}

impl TestRing {
    /// Makes a ring on which a failed SQE ends no batch.
    fn new(sq_entries: u32, cq_entries: u32, flags: u32) -> Self {
        Self::with(sq_entries, cq_entries, flags | IORING_SETUP_SUBMIT_ALL)
    }

    /// Makes a ring of these setup flags and no others.
    fn with(sq_entries: u32, cq_entries: u32, flags: u32) -> Self {
        let geo = Geometry { flags, sq_entries, cq_entries };
        let mem = Rings::anonymous(geo).expect("memory");
        let ctx = Ctx::new(
            mem,
            geo.flags,
            |_| panic!("nothing here is a worker's"),
            CounterSlot::default(),
        );
        Self { ring: Ring::new(0, ctx), geo }
    }

    fn lock(&self) -> Guard<'_> {
        self.ring.lock()
    }

    /// Makes a ring whose poll set is a list: the `fd` of an SQE is a number in that list, and no
    /// file.
    fn polling(sq_entries: u32, cq_entries: u32, flags: u32) -> Self {
        let ring = Self::new(sq_entries, cq_entries, flags);
        ring.lock().drive.transports.poll = Some(PollSet::of_tokens());
        ring
    }

    /// Puts SQEs into the queue, has the engine take them, and does the rest of `enter`.
    fn submit(&self, sqes: &[io_uring_sqe]) {
        self.queue(sqes);
        assert_eq!(self.enter(sqes.len() as u32), Ok(sqes.len() as u32));
    }

    /// Puts SQEs into the queue.
    fn queue(&self, sqes: &[io_uring_sqe]) {
        let ctx = self.lock();
        let tail = ctx.mem.rings.word(off::SQ_TAIL);
        let first = tail.load(Acquire);
        for (at, sqe) in (first..).zip(sqes) {
            let slot = at & (self.geo.sq_entries - 1);
            if let Some(array) = ctx.mem.array {
                ctx.mem.rings.word(array + slot as usize * 4).store(slot, Release);
            }
            ctx.mem.sqes.store(slot as usize * self.geo.sqe_size(), *sqe);
        }
        tail.store(first + sqes.len() as u32, Release);
    }

    /// Writes an entry of the SQ's array.
    fn index(&self, at: u32, slot: u32) {
        let ctx = self.lock();
        let array = ctx.mem.array.expect("an array");
        ctx.mem.rings.word(array + at as usize * 4).store(slot, Release);
    }

    /// Has the engine take up to `want` SQEs, and does the rest of `enter`; returns the engine's
    /// answer.
    fn enter(&self, want: u32) -> Result<u32> {
        let mut ctx = self.lock();
        let older = want > 1 || ctx.in_flight();
        let taken = ctx.submit_sqes(want);
        ctx.after_submit(false, older);
        taken
    }

    /// Enters with GETEVENTS, and waits until `min` CQEs are there.
    fn get_events(&self, min: u32) {
        let args = WaitArgs { min, ..WaitArgs::default() };
        let mut signals = SignalScope::default();
        let (_ctx, waited) = cqring_wait(&self.ring, self.lock(), args, &mut signals);
        assert_eq!(waited, Ok(0));
    }

    /// Returns a word that the program shares.
    fn word(&self, at: usize) -> u32 {
        self.lock().mem.rings.word(at).load(Acquire)
    }

    /// Takes up to `most` completions: `user_data`, result, flags.
    fn take(&self, most: usize) -> Vec<(u64, i32, u32)> {
        self.take_wide(most).into_iter().map(|(cqe, _)| cqe).collect()
    }

    /// Takes completions like [`Self::take`], with the bytes behind the first 16 of each.
    fn take_wide(&self, most: usize) -> Vec<((u64, i32, u32), [u64; 2])> {
        let ctx = self.lock();
        let word = |at| ctx.mem.rings.word(at);
        let (head, tail) = (word(off::CQ_HEAD).load(Acquire), word(off::CQ_TAIL).load(Acquire));
        let n = (tail.wrapping_sub(head)).min(most as u32);
        let read = |i: u32| {
            let slot = (i & (self.geo.cq_entries - 1)) as usize;
            let at = off::CQES + slot * self.geo.cqe_size();
            let word = |i: usize| ctx.mem.rings.word64(at + i * 8).load(Acquire);
            let [data, rest] = [0, 1].map(word);
            // Behind a CQE of 16 bytes in the last slot there is nothing.
            let wide = self.geo.cqe_size() == 32 || slot as u32 + 1 < self.geo.cq_entries;
            let big = if wide { [2, 3].map(word) } else { [0; 2] };
            ((data, rest as u32 as i32, (rest >> 32) as u32), big)
        };
        let got = (head..head + n).map(read).collect();
        word(off::CQ_HEAD).store(head + n, Release);
        got
    }

    /// Takes all completions, without their flags.
    fn reap(&self) -> Vec<(u64, i32)> {
        self.take(usize::MAX).into_iter().map(|(data, res, _)| (data, res)).collect()
    }

    /// Gives a prepared request its first attempt.
    fn begin(&self, req: Req) {
        let mut ctx = self.lock();
        ctx.reqs.nr_reqs += 1;
        let req = ctx.reqs.slab.boxed(req);
        ctx.queue_sqe(req);
        ctx.turn(Turn::Work);
    }

    /// Returns the number of requests that have not ended.
    fn requests(&self) -> u32 {
        self.lock().reqs.nr_reqs
    }

    /// Returns the request of that name, if it is in the table.
    fn id(&self, user_data: u64) -> Option<ReqId> {
        self.lock().reqs.slab.named(user_data).map(|(id, _)| id).next()
    }

    /// Ends a waiting request with that result.
    fn comes(&self, user_data: u64, res: i32) {
        let id = self.id(user_data).expect("it waits");
        let mut ctx = self.lock();
        ctx.reqs.timeouts_disarm(id);
        ctx.complete(id, res);
        ctx.turn(Turn::Work);
    }

    /// Makes the file of that number `ready`; returns the event, if epoll would report it.
    fn tells(&self, fd: i32, ready: u32) -> Option<epoll_event> {
        self.lock().drive.transports.list().expect("a list").tell(fd, ready)
    }

    /// Brings events to the ring, as its driver does after a sleep.
    fn bring(&self, events: &[epoll_event]) {
        self.lock().turn(Turn::Events { events, early: None });
    }

    /// Makes a file ready like [`Self::tells`], and brings the event; false if there is none.
    fn becomes(&self, fd: i32, ready: u32) -> bool {
        let event = self.tells(fd, ready);
        self.bring(event.as_slice());
        event.is_some()
    }

    /// Returns the events that a number is registered for; 0 if it is not.
    fn registered(&self, fd: i32) -> u32 {
        self.lock().drive.transports.list().expect("a list").events(fd)
    }

    /// Returns the names of requests that wait for something of their own, in order.
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

    /// Returns whether nothing is left of any request.
    fn is_idle(&self) -> bool {
        let ctx = self.lock();
        ctx.reqs.nr_reqs == 0 && ctx.reqs.slab.iter().next().is_none() && !ctx.work.any_queued()
    }
}

fn sqe(opcode: u8, user_data: u64) -> io_uring_sqe {
    io_uring_sqe { opcode, user_data, ..Default::default() }
}

/// Makes a request that ends at once with `res`.
fn nop(user_data: u64, res: i32) -> io_uring_sqe {
    let (op_flags, len) = (IORING_NOP_INJECT_RESULT, res.cast_unsigned());
    io_uring_sqe { op_flags, len, ..sqe(IORING_OP_NOP, user_data) }
}

/// Makes a request that waits until it is ended.
fn waiter(user_data: u64) -> io_uring_sqe {
    let op_flags = IORING_TIMEOUT_IMMEDIATE_ARG;
    io_uring_sqe { op_flags, addr: LONG, len: 1, ..sqe(IORING_OP_TIMEOUT, user_data) }
}

fn linked(sqe: io_uring_sqe) -> io_uring_sqe {
    io_uring_sqe { flags: sqe.flags | IOSQE_IO_LINK, ..sqe }
}

/// Makes an ASYNC_CANCEL of that name.
fn cancel(user_data: u64, target: u64) -> io_uring_sqe {
    io_uring_sqe { addr: target, ..sqe(IORING_OP_ASYNC_CANCEL, user_data) }
}
