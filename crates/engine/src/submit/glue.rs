//! Glue between the ring and the executors of its requests: workers and kernel aio.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::io::token::ReqId;
use crate::io::worker::{Pool, default_limits};
use crate::io::workers::Workers;
use crate::ops::table::OPS;
use crate::ring::cancel::protocol::Punted;
use crate::ring::ctx::Ctx;
use crate::ring::job::{Finished, Job, Sent};
use crate::ring::opdef::Outcome;
use crate::ring::request::{Call, OnWorker, Phase, ReqFlags};
use crate::ring::turn::Turn;
use crate::stats::PoolSlot;
use softring_uapi::errno::Errno;
use softring_uapi::{IORING_SETUP_TASKRUN_FLAG, IORING_SQ_TASKRUN};

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

    /// Queues a call for a worker; returns it if no worker can be had.
    ///
    /// # Errors
    /// The call, for the caller to run.
    pub(crate) fn worker_queue(
        &mut self,
        id: ReqId,
        call: Box<Call>,
        unbound: bool,
    ) -> Result<(), Box<Call>> {
        let Some(ring) = self.ring.upgrade() else { return Err(call) };
        let (row, call) = (&OPS[call.opcode as usize], Sent::new(call));
        let job = Job { ring, id, row, call, unbound, run: self.drive.run_job };
        self.workers().queue(job).map_err(|job| job.call.into_call())
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

    /// Completes the request of a worker that has finished, or queues the result until the program
    /// enters (DEFER_TASKRUN).
    pub(crate) fn worker_done(&mut self, f: Finished) {
        self.worker_ends(f);
    }

    /// Takes the outcome of a worker, or of an attempt made elsewhere.
    pub(crate) fn finished(&mut self, f: Finished) {
        if let Some(req) = self.reqs.slab.get_mut(f.id) {
            req.call.take_back(f.call);
            let phase = core::mem::take(&mut req.phase);
            if let Some(mut req) = self.reqs.slab.take(f.id) {
                if let Phase::Worker(OnWorker { due: Some(due), .. }) = phase
                    && let Outcome::Done(res @ 1..) = f.outcome
                {
                    return self.model_moved(req, due, res);
                }
                // Without kernel aio a worker here also does requests that no kernel worker would
                // run.
                let instead =
                    req.flags.contains(ReqFlags::DIRECT) && self.drive.transports.aio.is_none();
                if !instead {
                    req.flags |= ReqFlags::ON_WORKER;
                }
                self.outcome(req, f.outcome);
            }
        }
    }
}

impl Punted for Ctx {
    type Call = Call;
    type Done = Finished;

    fn posts_later(&self) -> bool {
        self.defers()
    }

    fn is_deferred(&self, id: ReqId) -> bool {
        self.work.is_deferred(id)
    }

    fn end(&mut self, f: Finished) {
        self.finished(f);
        self.turn(Turn::Work);
    }

    fn take_off(&mut self, id: ReqId) -> Option<Call> {
        self.worker_cancel(id)
    }

    fn end_cancelled(&mut self, id: ReqId, call: Call) {
        self.drive.transports.workers -= 1;
        if let Some(req) = self.reqs.slab.get_mut(id) {
            req.call.take_back(call);
        }
        self.end_soon(id, Errno::ECANCELED.res());
    }

    fn defer(&mut self, f: Finished) {
        self.work.defer(f);
        if self.setup.flags & IORING_SETUP_TASKRUN_FLAG != 0 {
            self.mem.sq_flag(IORING_SQ_TASKRUN, true);
        }
        self.drive.wake_driver();
        self.wake_waiters();
        self.signal_task_work(true);
    }
}
