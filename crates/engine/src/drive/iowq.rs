//! The start of the requests that wait in the queue of workers (`ring::iowq`). Kernel counterpart:
//! `io_wq_submit_work`.

use core::sync::atomic::Ordering::Relaxed;

use crate::ring::ctx::Ctx;
use crate::ring::request::Phase;
use crate::ring::turn::Drives;

impl Ctx {
    /// Begins the requests queued for workers; operations that never block run here instead. True
    /// if there were any. `task`: task work is run here, too.
    #[inline(always)]
    pub(super) fn run_iowq(&mut self, task: bool) -> bool {
        self.work.any_iowq() && self.run_iowq_now(task)
    }

    fn run_iowq_now(&mut self, task: bool) -> bool {
        self.flushed();
        // Requests that became ready meanwhile are task work, which comes first.
        let ready = self.drive.transports.new_polls > 0
            || (self.drive.transports.ready_now && self.defers());
        if task && ready {
            self.poll_aside();
            self.take_stash();
            if self.work.any_queued() {
                return true;
            }
        }
        // The submitter's credentials are read once.
        self.submit.open = true;
        while let Some(id) = self.work.next_iowq() {
            let Some(mut req) = self.reqs.slab.take(id) else { continue };
            req.phase = Phase::Prepped;
            // A timeout that counts CQEs starts behind every CQE so far.
            self.reqs.timeouts.committed = self.mem.control.cq_tail().load(Relaxed);
            let before = (self.reqs.nr_ended, self.work.queued());
            let ready = core::mem::take(&mut self.drive.transports.ready_now);
            self.submit.by_worker = self.defers();
            self.queue_sqe(req);
            self.submit.by_worker = false;
            // The request has ended already, or its file is ready; the kernel's worker brings this.
            let tells = self.drive.transports.ready_now
                || before != (self.reqs.nr_ended, self.work.queued());
            if self.defers() && tells {
                self.set_taskrun_by(true);
            }
            self.drive.transports.ready_now |= ready;
        }
        (self.submit.open, self.submit.caller, self.submit.alike) = (false, None, false);
        true
    }
}
