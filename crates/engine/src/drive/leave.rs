//! The end of a call on a ring: the hand-over of what is in flight.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::ring::ctx::{Guard, Ring};
use crate::ring::sq_thread::SqPoll;
use crate::ring::wakeup::Waits;

/// Leaves the ring and releases its lock: delivers what is pending for other rings, and has what is
/// in flight watched.
pub(crate) fn leave<'r>(ring: &'r Arc<Ring>, mut ctx: Guard<'r>) {
    if ctx.issue.leaves_work() {
        // The thread that is in the middle of an issue leaves, too.
        return;
    }
    if ctx.work.any_pending() {
        drop(ctx);
        super::pending::flush(ring);
        // The flush arms polls of other rings.
        ctx = ring.lock_now();
        if ctx.issue.leaves_work() {
            return;
        }
    }
    if ring.polled_ever.load(Relaxed) {
        ring.regular.left_ready.store(ctx.mem.cq_ready() > 0, Relaxed);
    }
    let holds = ctx.holds_anything() || softring_host::fd::dup_cache::any();
    if ctx.in_flight() && ctx.pass_role() {
        return leave_behind(ring, ctx, holds);
    }
    drop(ctx);
    if holds {
        super::reactor::ensure();
    }
}

/// Leaves the ring with requests in flight that nobody drives.
fn leave_behind<'r>(ring: &'r Arc<Ring>, ctx: Guard<'r>, holds: bool) {
    ring.left_by.store(crate::ring::task::current(), Relaxed);
    let taken = ring.sq.get().is_some_and(SqPoll::takes_over);
    let watch = !taken && ctx.wants_reactor() && ctx.needs_driver();
    let sleeper = ctx.completion.poll_fd.is_some() && ring.stand_in_used.load(SeqCst);
    let signals = ctx.completion.eventfd.is_some() || ctx.completion.poll_fd.is_some();
    // A thread that drives in its own poll, or enters often, is back soon; else the tick finds the
    // ring.
    let polled = ring.mark_entered(signals);
    let immediate = sleeper || ring.sq.get().is_some() || (signals && !polled);
    drop(ctx);
    if watch {
        super::reactor::guard(ring, immediate);
    } else if holds {
        super::reactor::ensure();
    }
}
