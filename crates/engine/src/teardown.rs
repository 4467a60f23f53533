//! The end of a ring: its last descriptor closed, or the process forked.
//! Kernel counterpart: `io_ring_ctx_wait_and_kill`.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Arc;

use crate::ctx::{Ctx, Issuing, Ring};
use crate::req::estate::Heir;
use crate::wait::driver::{Driver, Wakes};

/// The ring's last descriptor is closed: cancel what waits, let go of everything. While a thread
/// is in `enter` the ring goes on, as the kernel's does, whose file that thread holds; the last
/// to leave ends it.
pub(crate) fn end(ring: &Arc<Ring>) {
    {
        let mut ctx = ring.lock_now();
        if ctx.entered > 0 {
            ctx.poll_fd = None;
            ctx.closed = true;
            return;
        }
        if ctx.issuing == Issuing::Elsewhere {
            // No thread of the program: soon over, or the kernel's close, too, waits for it.
            drop(ctx);
            ctx = ring.lock();
        }
        ctx.poll_fd = None;
        // What has come before the close is not cancelled: on the kernel its task has it already.
        if !ctx.defers() {
            ctx.collect();
            ctx.flush();
        }
        ring.dead.store(true, SeqCst);
    }
    if let Some(sq) = ring.sq.get() {
        sq.data.detach(ring);
    }
    let mut ctx = ring.lock();
    ctx.cancel_everything();
    ctx.kick_driver();
    ctx.nudge();
    ctx.eventfd = None;
    core::mem::take(&mut ctx.files).end();
    ctx.buffers.slots.clear();
    let transports = core::mem::take(&mut ctx.transports);
    drop(ctx);
    transports.end();
    crate::fds::forget_ended();
}

/// In a forked child: is there anything in a ring that must be let go of at once? The state of any
/// other is renewed when the child first uses it, since a page that is written to is copied.
pub(crate) fn must_let_go(ring: &Ring) -> bool {
    ring.moves.any()
        || ring.peek().is_none_or(|ctx| {
            let idle = ctx.nr_reqs == 0 && ctx.slab.is_empty() && ctx.outbox.is_empty();
            !idle || ctx.moved.is_some() || ctx.transports.any() || ctx.files.is_deposited()
        })
}

/// In a forked child: requests in flight belong to the parent; what carried them is gone or not
/// ours.
pub(crate) fn fork_child(ring: &Ring, ctx: &mut Ctx) {
    ctx.forget_in_flight();
    ctx.heir = Heir::new();
    ctx.files.fork_child();
    // Whoever drove or waited did so in the parent.
    (ctx.entered, ctx.driver, ctx.wakes) = (0, Driver::default(), Wakes::default());
    // Nor is anybody in the middle of an issue here.
    (ctx.issuing, ctx.left_work, ctx.at_hand) = (Issuing::Nobody, false, -1);
    ring.control.fork_child();
    let transports = core::mem::take(&mut ctx.transports);
    transports.forget();
    ctx.stats.fork_child();
    ctx.trace.fork_child();
    ctx.slab.timed = false;
    ctx.counted_tail = ctx.mem.control.cq_tail().load(Relaxed);
    ring.watched.store(false, SeqCst);
    ring.listed.store(false, SeqCst);
    ring.driven.store(false, SeqCst);
}
