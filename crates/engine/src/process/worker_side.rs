//! The worker's side of a request's call.

use core::sync::atomic::Ordering::Relaxed;

use crate::drive::leave::leave;
use crate::process::remote_cancel;
use crate::ring::job::{Finished, Job};
use crate::ring::opdef::Issue;
use crate::stats::trace;
use crate::submit::issue::issue_blocking;

/// Runs a call on a worker thread, and brings its outcome back to the ring.
pub(crate) fn run(job: Job) {
    let Job { ring, id, row, call, .. } = job;
    let began = trace::now();
    let mut call = call.into_call();
    let opcode = call.opcode;
    let outcome = match row.issue {
        // A cancellation that a forked child has not found (`Ctx::may_ask_parent`).
        Issue::Ring(_) => remote_cancel::ask(&ring, &call),
        Issue::Call(_) => issue_blocking(&mut call),
    };
    let f = Finished { id, call: *call, outcome };
    let mut ctx = ring.lock_now();
    ctx.drive.transports.workers = ctx.drive.transports.workers.saturating_sub(1);
    if ring.dead.load(Relaxed) {
        return;
    }
    let number = ctx.reqs.slab.get(id).map_or(0, |req| req.trace);
    ctx.worker_done(f);
    ctx.trace_work(began, opcode, number);
    // Requests behind it may wait for somebody to drive the ring.
    leave(&ring, ctx);
}
