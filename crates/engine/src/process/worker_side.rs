//! What a worker does with a request's call.

use core::sync::atomic::Ordering::Relaxed;

use crate::drive::leave::leave;
use crate::process::remote_cancel;
use crate::ring::job::{Finished, Job};
use crate::ring::opdef::Issue;
use crate::stats::trace;
use crate::submit::issue::issue_blocking;

/// Runs a call on a worker thread, and brings it back.
pub(crate) fn run(mut job: Job) {
    let began = trace::now();
    let opcode = job.call.opcode;
    let outcome = match job.row.issue {
        // A cancellation that a forked child has not found (`Ctx::may_ask_parent`).
        Issue::Ring(_) => remote_cancel::ask(&job.ring, &job.call),
        Issue::Call(_) => issue_blocking(&mut job.call),
    };
    let f = Finished { id: job.id, call: *job.call, outcome };
    let mut ctx = job.ring.lock_now();
    ctx.transports.workers = ctx.transports.workers.saturating_sub(1);
    if job.ring.dead.load(Relaxed) {
        return;
    }
    let number = ctx.slab.get(job.id).map_or(0, |req| req.trace);
    ctx.worker_done(f);
    ctx.trace_work(began, opcode, number);
    // What came after it may wait for somebody to drive the ring.
    leave(&job.ring, ctx);
}
