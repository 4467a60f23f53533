//! The end of a ring: its last descriptor closed, or the process forked.
//! Kernel counterpart: `io_ring_ctx_wait_and_kill`.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Arc;

use crate::ctx::Ring;
use crate::req::estate::Heir;
use crate::wait::driver::{Driver, Wakes};

/// The ring's last descriptor is closed: cancel what waits, let go of everything. While a thread
/// waits in `enter` the ring goes on, as the kernel's does, whose file that thread holds; the last
/// to leave ends it.
pub fn end(ring: &Arc<Ring>) {
    {
        let mut ctx = ring.lock();
        ctx.poll_fd = None;
        if ctx.waiting > 0 {
            ctx.closed = true;
            return;
        }
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

/// In a forked child: requests in flight belong to the parent; what carried them is gone or not
/// ours.
pub fn fork_child(ring: &Arc<Ring>) {
    let ctx = ring.in_child();
    ctx.forget_in_flight();
    ctx.heir = Heir::new();
    ctx.files.fork_child();
    // Whoever drove or waited did so in the parent.
    (ctx.waiting, ctx.driver, ctx.wakes) = (0, Driver::default(), Wakes::default());
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
