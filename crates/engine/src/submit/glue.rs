//! Glue between the ring and the executors of its requests: workers and kernel aio.

use alloc::boxed::Box;

use crate::io::token::ReqId;
use crate::ops::table::OPS;
use crate::ring::cancel::protocol::Punted;
use crate::ring::ctx::Ctx;
use crate::ring::job::{Finished, Job, Sent};
use crate::ring::opdef::Outcome;
use crate::ring::request::{Call, OnWorker, Phase, ReqFlags};
use crate::ring::turn::{Drives, Turn};
use softring_uapi::errno::Errno;
use softring_uapi::{IORING_SETUP_TASKRUN_FLAG, IORING_SQ_TASKRUN};

impl Ctx {
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
        let wake = self.workers().queue(job).map_err(|job| job.call.into_call())?;
        self.drive.wakes.wake_worker(wake);
        Ok(())
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
