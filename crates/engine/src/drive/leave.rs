//! The end of a call that had a ring: who goes on with what is in flight.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use crate::ring::ctx::{Guard, Ring};
use crate::ring::sq_thread::SqPoll;
use crate::ring::wakeup::Waits;

/// Leaves the ring in good hands and its lock free: what is pending for others is delivered, what
/// is in flight is watched.
pub(crate) fn leave<'r>(ring: &'r Arc<Ring>, mut ctx: Guard<'r>) {
    if ctx.issue.leaves_work() {
        // The thread that is in the middle of an issue leaves, too.
        return;
    }
    if ctx.work.any_pending() {
        drop(ctx);
        super::pending::flush(ring);
        // A poll of another ring is armed only there.
        ctx = ring.lock_now();
        if ctx.issue.leaves_work() {
            return;
        }
    }
    let nobody = ctx.in_flight() && ctx.hand_over();
    if nobody {
        ring.left_by.store(crate::ring::task::current(), Relaxed);
    }
    let polled = nobody && ring.sq.get().is_some_and(SqPoll::takes_over);
    let watch = nobody && !polled && ctx.wants_reactor() && ctx.needs_driver();
    let holds = ctx.holds_anything() || softring_host::fd::dup_cache::any();
    // Who drives in its own poll is back there soon; else the tick finds out.
    let told = ctx.completion.eventfd.is_some() && !ring.is_polled();
    let immediate = told || ctx.completion.poll_fd.is_some() || ring.sq.get().is_some();
    drop(ctx);
    if watch {
        super::reactor::guard(ring, immediate);
    } else if holds {
        super::reactor::ensure();
    }
}
