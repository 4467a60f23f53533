//! Task work of a thread that comes back from a sleep.
//!
//! The kernel posts the completions of a thread's requests when that thread returns from any
//! system call. The engine sees calls of `enter` only; for a thread that leaves requests in flight
//! and does not come back the reactor posts, some time later. A program that sleeps for a
//! millisecond and then reads its CQ expects to find there what came meanwhile, and all of it.

use core::sync::atomic::Ordering::Relaxed;

use crate::ring::ctx::{Guard, Ring};
use crate::ring::task;
use softring_host::handlers::Call;

/// Posts, for a calling thread that has slept, what has become ready on the rings that it was the
/// last to leave with requests in flight. Skips rings that defer task work to `enter`, that are
/// polled there, or that have an SQ thread.
///
/// May be called in a signal handler: allocates no memory, and waits for no lock without end.
pub fn run() {
    let Some(task) = task::known() else { return };
    let call = Call::begin();
    if call.holds_locks() {
        return;
    }
    for ring in (0..).map_while(crate::ring::table::nth) {
        if ring.left_by.load(Relaxed) != task || ring.is_inherited() || ring.sq.get().is_some() {
            continue;
        }
        let Some(mut ctx) = ring.lock_soon() else { continue };
        if ctx.defers() || ctx.setup.polls() {
            continue;
        }
        ctx = without_reactor(&ring, ctx);
        ctx.post_ready();
        drop(ctx);
        super::pending::flush(&ring);
    }
}

/// Returns the ring's guard once the reactor issues no request of the calling thread: without the
/// lock, it may be issuing the very request that is ready. The kernel would issue it in this call.
pub(crate) fn without_reactor<'r>(ring: &'r Ring, ctx: Guard<'r>) -> Guard<'r> {
    let mine = || task::known() == Some(ring.left_by.load(Relaxed));
    if !super::reactor::issues(&ctx) || !mine() {
        return ctx;
    }
    drop(ctx);
    ring.lock()
}
