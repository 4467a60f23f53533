//! The end of a task, and of what a thread has in flight when it ends.
//!
//! As in the kernel, requests that are ready when a task ends complete. Beyond that the exit
//! searches for no request: a request whose task is gone goes on waiting, and fails at a step that
//! only its task could have done (`tw.cancel`). A poll or a read that is ready is ECANCELED, a
//! linked timeout cancels nothing, the next request in a chain or behind a barrier is EFAULT. A
//! timeout, or a completion of the disk, ends as ever. Only workers go with their task, which waits
//! for them (`io_wq_put_and_exit`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::drive::sleep::sleep_for_change;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::request::{Phase, Req, ReqFlags};
use crate::ring::task;
use crate::ring::turn::{Drives, Turn};
use softring_host::fork;
use softring_uapi::errno::Errno;

/// Ends the calling thread's task. Its workers are told to stop and waited for; the rest of its
/// requests in flight go on without it. Called without any lock.
pub fn task_ends() {
    let Some(task) = task::end() else { return };
    if fork::in_new_child() || fork::is_vfork_child() {
        return;
    }
    // On a ring that the process has inherited and not used, the task has nothing.
    for ring in crate::ring::table::some(|ring| !ring.is_inherited()) {
        crate::drive::poller::thread_ends(&ring);
        ends_on(&ring, task);
    }
}

/// Number of times that a thread that ends waits for the driver to act on events in its hands.
const DRIVER_WAITS: u32 = 3;

fn ends_on(ring: &Arc<Ring>, task: u32) {
    let mut waits = 0;
    while !ring.dead.load(Relaxed) {
        // The kernel, too, waits here for a thread in the middle of an issue: it may have in hand
        // what is ready.
        let mut ctx = ring.lock();
        // A ready request is not cancelled: on the kernel it would have run by now.
        if !ctx.defers() && ctx.reqs.slab.iter().any(|(_, r)| r.task == task) {
            if waits < DRIVER_WAITS && ctx.drive.driver.active {
                waits += 1;
                ctx.drive.wake_driver();
                let _ = sleep_for_change(ctx, u64::MAX);
                continue;
            }
            ctx.turn(Turn::All);
        }
        let running = ctx.orphan(task);
        if !ctx.defers() {
            ctx.turn(Turn::Work);
        }
        if !running {
            return;
        }
        // A signal only makes the thread check earlier.
        let _ = sleep_for_change(ctx, u64::MAX);
    }
}

impl Ctx {
    /// Marks the requests that `task` leaves behind, and takes back those that are with workers;
    /// true while one of them still runs.
    fn orphan(&mut self, task: u32) -> bool {
        let mine = self.reqs.slab.iter().filter(|(_, r)| r.task == task);
        let mine: Vec<_> =
            mine.map(|(id, r)| (id, matches!(r.phase, Phase::Worker(_)), r.flags)).collect();
        let mut running = false;
        for (id, by_worker, flags) in mine {
            if let Some(req) = self.reqs.slab.get_mut(id) {
                req.flags |= ReqFlags::ORPHAN;
            }
            if self.reqs.slab.get(id).is_some_and(Req::waits_on_futex) {
                let _ = self.cancel_one(id);
                continue;
            }
            // A worker's finished request waits for a task that does not come any more
            // (DEFER_TASKRUN).
            if !by_worker || self.work.is_deferred(id) {
                continue;
            }
            if flags.contains(ReqFlags::FORCE_ASYNC) {
                running |= self.cancel_one(id) == Err(Errno::EALREADY);
            } else {
                // The kernel may have done at once a request that nobody sent to a worker: it is
                // not taken back, only told to stop.
                self.worker_interrupt(id);
                running = true;
            }
        }
        running
    }
}
