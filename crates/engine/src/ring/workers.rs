//! The workers of a ring, and the limits of their number. Kernel counterpart: `io_init_wq_offload`,
//! `io_register_iowq_max_workers`.

use alloc::sync::Arc;

use crate::io::token::ReqId;
use crate::io::worker::{Pool, default_limits};
use crate::io::workers::Workers;
use crate::ring::ctx::Ctx;
use crate::ring::job::Job;
use crate::ring::request::Call;
use crate::stats::PoolSlot;

softring_host::per_thread! {
    /// Process, and SQ entries of the first ring that this thread made.
    static FIRST: core::cell::Cell<(u32, u32)> = const { core::cell::Cell::new((0, 0)) };
}

softring_host::per_thread! {
    /// Process, and the largest numbers of workers of either kind that this thread has set.
    static MAX: core::cell::Cell<(u32, [u32; 2])> = const { core::cell::Cell::new((0, [0; 2])) };
}

/// Sets the calling thread's limits of workers, which for this ring were `own`; returns the old
/// ones. The kernel's workers belong to the thread, so another of its rings may have set the limits
/// before.
pub(crate) fn task_sets_max(max: [u32; 2], own: [u32; 2]) -> [u32; 2] {
    let pid = softring_host::fork::pid();
    let old = if MAX.get().0 == pid { MAX.get().1 } else { own };
    let mut new = old;
    for (new, max) in new.iter_mut().zip(max).filter(|(_, max)| *max != 0) {
        *new = max;
    }
    MAX.set((pid, new));
    old
}

/// Records that the calling thread has made a ring. The kernel's workers belong to the thread, and
/// its first ring sets their number.
pub(crate) fn made_ring(entries: u32) {
    let pid = softring_host::fork::pid();
    FIRST.set(if FIRST.get().0 == pid { FIRST.get() } else { (pid, entries) });
}

impl Ctx {
    /// Returns this ring's workers, made now if need be (threads come with the first job).
    pub(crate) fn workers(&mut self) -> &Arc<Workers<Job>> {
        let (pid, first) = FIRST.get();
        let entries =
            if pid == softring_host::fork::pid() { first } else { self.mem.geo.sq_entries };
        if self.drive.pool.is_none() {
            let [bound, unbound] = default_limits(entries);
            let pool = Pool::new(softring_host::fork::pid(), bound, unbound);
            if self.stats.seen() {
                pool.count_at(PoolSlot::new());
            }
            self.drive.pool = Some(Arc::new(Workers::new(pool)));
            self.show_pool();
        }
        self.drive.pool.as_ref().expect("made above")
    }

    /// Names the ring's workers in its statistics.
    pub(crate) fn show_pool(&self) {
        let name = self.drive.pool.as_ref().map_or(0, |workers| workers.counter_slot());
        self.stats.pool.set(name);
    }

    /// Takes a call back from the queue of workers; a running call is interrupted and stays.
    pub(crate) fn worker_cancel(&mut self, id: ReqId) -> Option<Call> {
        let ring = self.ring.upgrade()?.id;
        let workers = self.drive.pool.as_ref()?;
        workers.cancel(|&k| k == (ring, id)).map(|job| *job.call.into_call())
    }

    /// Interrupts a call if a worker runs it; a call that waits for a worker goes on waiting.
    pub(crate) fn worker_interrupt(&self, id: ReqId) {
        if let (Some(ring), Some(workers)) = (self.ring.upgrade(), &self.drive.pool) {
            workers.interrupt(|&k| k == (ring.id, id));
        }
    }
}
