//! The end of a ring: its last descriptor is closed.
//! Kernel counterpart: `io_ring_ctx_wait_and_kill`.
#![allow(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;

use crate::ring::ctx::Ring;
use crate::ring::turn::{Drives, Turn};
use softring_host::fd::owned::InternalFd;

/// Ends a ring whose last descriptor is closed: cancels what waits, lets go of everything. While a
/// thread is in `enter` the ring goes on, as the kernel's does, whose file that thread holds; the
/// last thread to leave ends the ring.
///
/// `stand_in` is closed once nobody signals it any more: its number may then be another file's.
pub(crate) fn end(ring: &Arc<Ring>, stand_in: Option<InternalFd>) {
    {
        let mut ctx = ring.lock_now();
        if ctx.drive.entered > 0 {
            ctx.completion.poll_fd = None;
            ctx.drive.closed = true;
            return;
        }
        if ctx.issue.is_elsewhere() {
            // The issue is no program thread's: it ends soon, or the kernel's close waits for it,
            // too.
            drop(ctx);
            ctx = ring.lock();
        }
        ctx.completion.poll_fd = None;
        // Events before the close are not cancelled: on the kernel their task has them already.
        if !ctx.defers() {
            ctx.turn(Turn::All);
        }
        ring.dead.store(true, SeqCst);
    }
    drop(stand_in);
    if let Some(sq) = ring.sq.get() {
        sq.data.detach(ring);
    }
    let mut ctx = ring.lock();
    ctx.cancel_everything();
    ctx.drive.wake_driver();
    ctx.wake_waiters();
    ctx.completion.eventfd = None;
    core::mem::take(&mut ctx.resources.files).end();
    ctx.resources.buffers.slots.clear();
    let transports = core::mem::take(&mut ctx.drive.transports);
    let (pool, direct) = (ctx.drive.pool.take(), core::mem::take(&mut ctx.reqs.direct));
    drop(ctx);
    if let Some(workers) = pool {
        drop(workers.cancel_all(|&(id, _)| id == ring.id));
    }
    transports.end();
    drop(direct);
    crate::ring::table::forget_ended();
}

/// Returns whether a forked child must let go of something in a ring at once. The state of any
/// other ring is renewed when the child first uses it, since a page that is written to is copied.
///
/// # Safety
/// The caller is the only thread of the child, and has no guard of the ring.
pub(crate) unsafe fn must_let_go(ring: &Ring) -> bool {
    // SAFETY: no other thread is there, says our caller.
    let state = unsafe { ring.peek() };
    ring.moves.any()
        || state.is_none_or(|ctx| {
            let idle = ctx.reqs.nr_reqs == 0 && ctx.reqs.slab.is_empty() && !ctx.work.any_pending();
            !idle
                || ctx.issue.has_moved()
                || ctx.drive.transports.any()
                || ctx.drive.pool.is_some()
                || ctx.resources.files.is_deposited()
        })
}
