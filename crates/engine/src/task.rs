//! Tasks: which thread a request belongs to, and what becomes of it when that thread ends.
//!
//! As in the kernel, what is ready when a task ends completes. Beyond that nothing is looked for: a
//! request whose task is gone goes on waiting, and fails
//! when it comes to what only its task could have done (`tw.cancel`). A poll or a read that is
//! ready is ECANCELED, a linked timeout cancels nothing, what comes next in a chain or behind a
//! barrier is EFAULT; a timeout, or what the disk brings back, ends as ever. Only workers go with
//! their task, and it waits for them (`io_wq_put_and_exit`).
//!
//! The engine knows no C symbol, so whoever stands in front of it says when a thread ends.

use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use crate::ctx::{Ctx, Ring};
use crate::req::request::{Req, ReqFlags, State};
use softring_uapi::errno::Errno;

std::thread_local! {
    /// This thread's name; 0 until a request of its has to wait. Needs no destructor: it is read
    /// while others run.
    static TASK: Cell<u32> = const { Cell::new(0) };
}
static NEXT: AtomicU32 = AtomicU32::new(1);
static ON_FIRST: OnceLock<fn()> = OnceLock::new();

/// Asks for `first` to be called by each thread that has its first request wait; it sees to it that
/// the thread calls [`ends`] at its end.
pub fn on_first(first: fn()) {
    let _ = ON_FIRST.set(first);
}

/// The calling thread, as requests name it; never 0.
#[inline]
pub(crate) fn current() -> u32 {
    match TASK.get() {
        0 => begin(),
        task => task,
    }
}

/// The same, if the thread has had a request wait.
pub(crate) fn known() -> Option<u32> {
    Some(TASK.get()).filter(|&task| task != 0)
}

#[cold]
fn begin() -> u32 {
    let task = NEXT.fetch_add(1, Relaxed).max(1);
    TASK.set(task);
    if let Some(first) = ON_FIRST.get() {
        first();
    }
    task
}

/// The calling thread ends. Its workers are told to stop and waited for; the rest of what it has in
/// flight goes on without it. Called without any lock.
pub fn ends() {
    let task = TASK.replace(0);
    if task == 0 || crate::fork::in_new_child() || crate::fork::is_vfork_child() {
        return;
    }
    // In one that the process has inherited and not used it has nothing.
    for ring in crate::fds::some(|ring| !ring.is_inherited()) {
        ends_on(&ring, task);
    }
}

/// How often a thread that ends waits for the driver to act on what it may have in hand.
const HANDS: u32 = 3;

fn ends_on(ring: &Arc<Ring>, task: u32) {
    let mut hands = 0;
    while !ring.dead.load(Relaxed) {
        // The kernel's, too, waits here for who is in the middle of an issue: that one may have
        // in hand what is ready.
        let mut ctx = ring.lock();
        // What is ready is not cancelled: on the kernel it would have run by now.
        if !ctx.defers() && ctx.slab.iter().any(|(_, r)| r.task == task) {
            if hands < HANDS && ctx.driver.active {
                hands += 1;
                ctx.kick_driver();
                let _ = crate::req::cancel::sleep(ctx, u64::MAX);
                continue;
            }
            ctx.collect();
            ctx.flush();
        }
        let running = ctx.orphan(task);
        if !ctx.defers() {
            ctx.flush();
        }
        if !running {
            return;
        }
        // A signal only makes it look earlier.
        let _ = crate::req::cancel::sleep(ctx, u64::MAX);
    }
}

impl Ctx {
    /// Marks what `task` leaves behind, and takes back what is with workers; true while one of them
    /// still runs.
    fn orphan(&mut self, task: u32) -> bool {
        let mine = self.slab.iter().filter(|(_, r)| r.task == task);
        let mine: Vec<_> = mine.map(|(id, r)| (id, r.state, r.flags)).collect();
        let mut running = false;
        for (id, state, flags) in mine {
            if let Some(req) = self.slab.get_mut(id) {
                req.flags |= ReqFlags::ORPHAN;
            }
            if self.slab.get(id).is_some_and(Req::waits_on_futex) {
                let _ = self.cancel_one(id);
                continue;
            }
            // What a worker has done waits for a task that does not come any more (DEFER_TASKRUN).
            let done = || self.deferred.iter().any(|f| f.id == id);
            if state != State::Punted || done() {
                continue;
            }
            if flags.contains(ReqFlags::FORCE_ASYNC) {
                running |= self.cancel_one(id) == Err(Errno::EALREADY);
            } else {
                // What nobody sent to a worker the kernel may have done at once: it is not taken
                // back, only told to hurry.
                self.worker_interrupt(id);
                running = true;
            }
        }
        running
    }
}
