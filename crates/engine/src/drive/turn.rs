//! The one function that turns a ring: it submits what is queued for transports, reaps them,
//! completes what they return, runs task work, publishes CQEs and wakes who waits for them. Whoever
//! drives a ring calls it: enter, its wait, IOPOLL, the SQ thread, the reactor, a cancellation that
//! waits. Kernel counterpart: `io_run_local_work`, `io_submit_flush_completions`.

use core::sync::atomic::Ordering::Relaxed;

use crate::io::aio::AioCtx;
use crate::io::poll::{AIO_DATA, BATCH, PollSet};
use crate::ring::ctx::{Ctx, Driving};
use crate::ring::request::ReqFlags;
use crate::ring::turn::{Drives, Turn};
use softring_uapi::epoll_event;
use softring_uapi::errno::Errno;

impl Drives for Ctx {
    #[inline]
    fn turn(&mut self, turn: Turn<'_>) {
        if let Turn::Publish = turn {
            return self.commit();
        }
        if self.issue.leaves_work() {
            // The thread that is in the middle of an issue does the rest.
            if let Turn::Events { events, early } = turn {
                self.stash_events(events);
                self.drive.end_idle_sleep(early);
            }
            return self.commit();
        }
        match turn {
            Turn::Publish | Turn::Work => {}
            Turn::Batch => {
                self.take_stash();
                self.model_reap();
            }
            Turn::Deferred { workers } => return self.submit_deferred(workers),
            Turn::Memory => self.reap_memory(),
            Turn::All => self.reap_all(),
            Turn::Events { events, early } => {
                self.poll_events(events);
                if events.len() == BATCH {
                    self.take_events();
                }
                self.drive.end_idle_sleep(early);
                self.reap_memory();
            }
        }
        self.run_and_commit();
    }

    #[inline]
    fn take_stash(&mut self) {
        if !self.drive.transports.stash.is_empty() && !self.issue.leaves_work() {
            self.take_stash_now();
        }
    }

    fn deadline_moved(&mut self) {
        let Some(left) = self.next_event_in() else { return };
        let at = softring_host::time::Clock::Monotonic.now().saturating_add(left);
        if self.drive.driver.sleeping && at < self.drive.driver.until {
            self.drive.wake_driver();
        }
        if let Some(ring) = self.ring.upgrade() {
            let before = ring.next_deadline.swap(at, Relaxed);
            if at < before && ring.watched.load(Relaxed) {
                super::reactor::wake();
            }
        }
    }

    #[cold]
    fn take_left_work(&mut self) {
        if !self.defers() {
            return self.turn(Turn::Memory);
        }
        self.turn(Turn::Publish);
        if self.has_work() {
            self.set_taskrun();
        }
    }

    fn take_left_numbers(&mut self) {
        self.take_moves();
    }
}

impl Ctx {
    /// Reaps without waiting: aio completions, readiness, due timeouts, workers' results.
    fn reap_all(&mut self) {
        if self.drive.transports.multishot_polls > 0
            && self.defers()
            && !self.drive.transports.stash.is_empty()
        {
            // A stashed multishot poll reports once all wake-ups until now.
            self.poll_aside();
        }
        // Files that were ready when armed come before a timer that was due by then.
        let armed = core::mem::take(&mut self.drive.transports.ready_now);
        if armed {
            self.reap_events();
        }
        self.reap_memory();
        if !armed {
            self.reap_events();
        }
    }

    fn reap_events(&mut self) {
        if self.drive.transports.poll.as_ref().is_some_and(PollSet::tells) {
            self.begin_pass(true);
            self.take_events();
        }
    }

    /// Acts on all events that are ready in the poll set. One call takes a limited number of
    /// events, and no file gets its second turn before all have had one.
    fn take_events(&mut self) {
        let mut buf = [epoll_event::default(); BATCH];
        loop {
            let n = self.drive.transports.ready_events(&mut buf);
            self.poll_events(&buf[..n]);
            if n < BATCH {
                break;
            }
        }
    }

    /// Takes the marks of completions that were found in memory out of the poll set, so that they
    /// end no sleep. True if there was something else to act on.
    pub(crate) fn reap_marks(&mut self) -> bool {
        let mut buf = [epoll_event::default(); BATCH];
        let n = self.drive.transports.ready_events(&mut buf);
        let marks = buf[..n].iter().filter(|ev| ev.data == AIO_DATA).count();
        self.poll_events(&buf[..n]);
        n > marks || self.drive.transports.aio.as_deref().is_some_and(AioCtx::ready)
    }

    /// Reaps the part of [`reap_all`](Self::reap_all) that costs no system call.
    fn reap_memory(&mut self) {
        self.take_stash();
        while let Some(f) = self.work.next_deferred() {
            self.finished(f);
        }
        self.aio_reap();
        self.model_reap();
        if !self.reqs.timeouts.is_empty() {
            self.timeouts_expire();
        }
    }

    /// Submits behind a batch whose task work is to wait.
    fn submit_deferred(&mut self, workers: bool) {
        if workers {
            self.run_iowq(false);
        }
        self.transports_submit();
        self.commit();
    }

    /// Runs task work, flushes the barrier and sequence timeouts, publishes CQEs, wakes whoever
    /// waits for them.
    fn run_and_commit(&mut self) {
        loop {
            self.reqs.count_ended();
            self.post_tags();
            if self.reqs.drain.active {
                self.queue_deferred();
            }
            self.timeouts_by_count();
            // Requests that a batch completes at once may start more.
            if !self.work.any_queued() && !self.run_iowq(true) && !self.transports_submit() {
                if self.defers() || self.drive.transports.stash.is_empty() {
                    break;
                }
                // Events that a linked receive found on its way are in no poll set any more.
                self.take_stash();
            }
            self.flushed();
            // A timeout counts from behind the CQEs of the batch before it.
            self.reqs.timeouts.committed = self.mem.control.cq_tail().load(Relaxed);
            self.run_task_work();
        }
        self.commit();
    }

    /// Issues what the run queue holds now, but not what these requests add: others come first.
    fn run_task_work(&mut self) {
        for _ in 0..self.work.queued() {
            let Some(id) = self.work.next() else { break };
            let Some(mut req) = self.reqs.slab.take(id) else { continue };
            // A worker's requests come after every CQE so far, also for a timeout that counts them.
            if req.is_workers() {
                self.reqs.timeouts.committed = self.mem.control.cq_tail().load(Relaxed);
            }
            if req.flags.intersects(ReqFlags::FAIL | ReqFlags::ENDED) {
                let res = req.res;
                if req.fails_by_task_work() {
                    self.flushed();
                }
                self.put_buffer(&mut req, res);
                self.finish(req);
            } else if req.flags.contains(ReqFlags::ORPHAN) {
                req.fail(Errno::EFAULT);
                self.finish(req);
            } else if req.is_for_worker() {
                let id = self.reqs.slab.insert(req);
                self.queue_iowq(id);
            } else {
                self.events_first(&req);
                self.queue_sqe(req);
            }
        }
    }

    /// Does the work after a submission: task work (unless deferred), batches, the commit; and,
    /// unless a wait follows, events that are ready. There are none without an `older` request in
    /// flight: arming has just found the new one not ready.
    pub(crate) fn after_submit(&mut self, waits: bool, older: bool) {
        if self.defers() {
            // Work that the program's wait does at once precedes a worker's: both take the uring
            // lock, and the worker would have to be woken first.
            let mut ready =
                || self.work.any_queued() || self.work.any_iowq() && self.poll_set_has_work();
            let workers = !(waits && ready());
            self.turn(Turn::Deferred { workers });
            let any = !self.drive.transports.stash.is_empty() || self.work.any_queued();
            if any && !waits {
                self.set_taskrun();
            }
        } else {
            self.turn(Turn::Batch);
            if self.drive.transports.ready_now {
                self.turn(Turn::All);
            } else if !waits && (older || self.drive.transports.new_polls > 0) {
                self.post_ready();
            }
        }
    }
}

impl Driving {
    /// Ends a sleep that a policy has asked for, if there was one.
    fn end_idle_sleep(&mut self, early: Option<bool>) {
        if let Some((early, polling)) = early.zip(self.transports.polling.as_mut()) {
            polling.woke(early);
        }
    }
}
