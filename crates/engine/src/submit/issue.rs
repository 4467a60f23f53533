//! Issue: the one place that calls a row's `issue`. Kernel counterpart: `io_issue_sqe`,
//! `io_queue_sqe`.

use crate::ops::table::OPS;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{self, Issue, Outcome, Try};
use crate::ring::req_box::ReqBox;
use crate::ring::request::{Call, FileRef, Finding, OpState, Phase, Poll, Req, ReqFlags};
use crate::ring::ring_file;
use crate::ring::work::Work;
use crate::stats::trace::Step;
use crate::submit::route::Route;
use softring_host::creds::under;
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};

impl Ctx {
    /// Tries a request now, and handles its outcome.
    pub(crate) fn queue_sqe(&mut self, mut req: ReqBox) {
        if self.issue.leaves_work() {
            let id = self.reqs.slab.insert(req);
            return self.work.queue(id);
        }
        self.trace(Step::Issue, &req);
        let def = req.row;
        if def.has(opdef::FILE) {
            let assigned = self.assign_file(&mut req);
            let found = !matches!(req.call.file, FileRef::None);
            req.flags.set(ReqFlags::ISSUED, found);
            let assigned = assigned.and_then(|()| self.check_file(&mut req));
            if let Err(e) = assigned {
                // For a worker, task work ends a request without a file; only a worker's call looks
                // up a second file.
                if def.second_file.is_some() && found {
                    if !req.is_workers() {
                        let id = self.reqs.slab.insert(req);
                        return self.queue_iowq(id);
                    }
                    self.ends_by(&mut req, e.res());
                } else if req.is_workers() {
                    return self.outcome(req, Outcome::Later(e.res()));
                }
                req.fail(e);
                return self.finish(req);
            }
            if let Some(outcome) = self.issue_for_ring(&mut req) {
                return self.outcome(req, outcome);
            }
        }
        req.flags |= ReqFlags::ISSUED;
        if req.flags.contains(ReqFlags::FAULTED)
            && let Some(res) = self.inject(&mut req)
        {
            return self.outcome(req, Outcome::Done(res));
        }
        if def.has(opdef::CLOSES) && self.closes_number(&req) {
            return self.take_route(Route::Worker, req);
        }
        let polled = core::mem::take(&mut self.submit.polled);
        let route = self.first_route(&mut req);
        if route != Some(Route::Poll)
            && let Err(e) = self.take_buffers(&mut req)
        {
            let e = if req.names_no_file() { Errno::EBADF } else { e };
            return self.outcome(req, Outcome::Done(e.res()));
        }
        let outcome = match (route, def.issue) {
            (Some(route), _) => return self.take_route(route, req),
            (None, Issue::Call(_)) if self.known_empty(&mut req, polled) => {
                req.call.found = Finding::Nothing;
                Outcome::Retry
            }
            (None, Issue::Ring(f)) => f(self, &mut req),
            (None, Issue::Call(f)) => self.first_attempt(&mut req, f),
        };
        if req.writes_rest_by_worker(outcome) {
            return self.take_route(Route::Worker, req);
        }
        let waits = matches!(outcome, Outcome::Retry | Outcome::Punt)
            || !req.flags.contains(ReqFlags::STREAM);
        self.stats.reissue.at_once.add(u64::from(!waits));
        self.outcome(req, outcome);
    }

    /// Makes the first attempt, or has its answer already.
    #[inline]
    fn first_attempt(&mut self, req: &mut Req, f: fn(&mut Call, Try) -> Outcome) -> Outcome {
        let tried = self.outcome_tried(req);
        let outcome = tried.unwrap_or_else(|| {
            req.send_all_by_worker();
            self.attempt(req, f)
        });
        self.report_taken_by(req, outcome);
        outcome
    }

    /// Checks the file, and the registered buffer beside it, before any attempt.
    #[inline]
    fn check_file(&mut self, req: &mut Req) -> Result<()> {
        self.setup.check_polled(req)?;
        self.drive.before_buffers(req)?;
        if req.waits_for_buffer() { Ok(()) } else { self.resources.assign_buffer(req) }
    }

    /// Picks a buffer before an attempt, and looks up the registered buffer of a request polled
    /// first.
    ///
    /// # Errors
    /// Same as [`Self::select_buffer`] and `Resources::assign_buffer`.
    #[inline]
    pub(crate) fn take_buffers(&mut self, req: &mut Req) -> Result<()> {
        self.select_buffer(req)?;
        if req.polls_first() { self.resources.assign_buffer(req) } else { Ok(()) }
    }

    /// Makes one attempt, without blocking.
    pub(crate) fn issue(&mut self, req: &mut Req) -> Outcome {
        match req.row.issue {
            Issue::Ring(f) => f(self, req),
            Issue::Call(f) => self.attempt(req, f),
        }
    }

    /// Handles an attempt's outcome.
    #[inline]
    pub(crate) fn outcome(&mut self, mut req: ReqBox, outcome: Outcome) {
        match outcome {
            Outcome::Done(res) => {
                if req.receives_plainly() {
                    self.drive.received_at_once(&req, res);
                }
                self.ends_by(&mut req, res);
                req.res = res;
                self.put_buffer(&mut req, res);
                let def = req.row;
                if let Some(finish) = def.finish {
                    finish(self, &mut req);
                }
                // A socket that finds no slot is no failure.
                let failed = if def.has(opdef::CALL_FAILS) { res } else { req.res };
                if (failed < 0 && !def.has(opdef::LENIENT)) || req.call.short {
                    req.set_fail();
                }
                self.finish(req);
            }
            Outcome::Later(res) => {
                // Task work ends the request: its links go on there.
                req.flags.remove(ReqFlags::ON_WORKER);
                let id = self.reqs.slab.insert(req);
                self.end_later(id, res);
            }
            Outcome::More(res) => self.shots(req, res, false),
            Outcome::MoreThenWait(res) => self.shots(req, res, true),
            Outcome::Retry => self.queue_async(req, false),
            Outcome::Punt => self.queue_async(req, true),
            waits => self.wait(req, waits),
        }
    }

    /// Posts results of a multishot request that goes on: a few attempts here, then behind others.
    /// `waits`: it waits before its next attempt.
    fn shots(&mut self, mut req: ReqBox, mut res: i32, mut waits: bool) {
        /// Limit of attempts in a row. Kernel: `MULTISHOT_MAX_RETRY`.
        const MAX_RETRY: u32 = 32;
        for again in 0..=MAX_RETRY {
            req.res = res;
            self.put_buffer(&mut req, res);
            if let Some(finish) = req.row.finish {
                finish(self, &mut req);
            }
            let ends = req.flags.contains(ReqFlags::FAULTED) && self.faults_end_shots(&req);
            let posted =
                !ends && req.res >= 0 && self.post_more(req.user_data, req.res, req.call.cflags);
            if !posted {
                if req.res < 0 {
                    req.set_fail();
                }
                return self.finish(req);
            }
            self.trace_shot(&req);
            self.count_bytes(req.row, req.res);
            req.call.cflags = 0;
            req.call.set_most(0);
            req.arms = req.arms.min(1);
            if waits || reads_first(&mut req) {
                return self.outcome(req, Outcome::Retry);
            }
            let turn_over = req.call.takes_turn_over();
            if again == MAX_RETRY || turn_over || self.issue.leaves_work() {
                break;
            }
            if let Err(e) = self.select_buffer(&mut req) {
                return self.outcome(req, Outcome::Done(e.res()));
            }
            match self.issue(&mut req) {
                Outcome::More(more) => (res, waits) = (more, false),
                Outcome::MoreThenWait(more) => (res, waits) = (more, true),
                other => return self.outcome(req, other),
            }
        }
        let receives = req.row.has(opdef::RECEIVES);
        // The kernel's first attempt ends with EAGAIN here, like an attempt that finds nothing.
        if receives && req.may_not_wait() && !self.issue.leaves_work() {
            return self.outcome(req, Outcome::Done(Errno::EAGAIN.res()));
        }
        // The next attempt polls the file first, and then picks a buffer.
        if receives && sys::poll_now(req.call.file.fd(), sys::POLLIN) == 0 {
            return self.outcome(req, Outcome::Retry);
        }
        let id = self.reqs.slab.insert(req);
        if !receives || !self.defers() {
            return self.work.queue(id);
        }
        if self.work.queue_next_turn(id) {
            self.set_taskrun();
        }
    }

    /// Queues a request where its issue function said to wait.
    #[inline(never)]
    fn wait(&mut self, mut req: ReqBox, waits: Outcome) {
        self.record_creds_of_links(&req);
        self.stats.routes.queued.add(1);
        self.trace(Step::Queued, &req);
        // A POLL_ADD of a file that cannot be polled ends on the worker.
        if !req.row.has(opdef::POLLS) {
            req.flags.remove(ReqFlags::ON_WORKER);
        }
        match waits {
            Outcome::Timed => {
                let timer = req.start_timer().unwrap_or_default();
                let id = self.reqs.slab.insert(req);
                self.timeouts_insert(id, timer);
                self.arm_linked_timeout(id);
            }
            Outcome::Polled(events) => {
                self.drive.transports.ready_now |= req.is_command();
                let waits = req.call.found_nothing();
                let id = self.arm_poll(req, Poll { waits, ..Poll::new(events) });
                self.record_data_poll(id);
            }
            Outcome::Sleeps => self.give_to_futex_waiter(req),
            // Elsewhere: requests that end or are tried again do not come here.
            _ => {
                req.phase = Phase::Elsewhere;
                let id = self.reqs.slab.insert(req);
                if let Some(pending) = self.work.last_pending()
                    && pending.from.is_none()
                {
                    pending.from = Some(id);
                }
                self.arm_linked_timeout(id);
            }
        }
    }

    /// Returns the outcome of a request whose file is a ring of ours; `None` if it is issued as
    /// usual.
    fn issue_for_ring(&mut self, req: &mut Req) -> Option<Outcome> {
        match req.call.file {
            FileRef::Plain(fd) if softring_host::fd::numbers::is_ring(fd) => {
                ring_file::issue(self, req, fd)
            }
            _ => None,
        }
    }

    /// Looks the file up, as late as possible: a chain may open it meanwhile.
    pub(crate) fn assign_file(&mut self, req: &mut Req) -> Result<()> {
        let def = req.row;
        if !matches!(req.call.file, FileRef::None) {
            // A worker looks up a second file that was missing before.
            let missing = !matches!(req.call.state, OpState::Source(_));
            return def.second_file.filter(|_| missing).map_or(Ok(()), |assign| assign(self, req));
        }
        if !def.has(opdef::FILE) {
            return Ok(());
        }
        let fd = req.call.sqe().fd;
        #[cfg(all(test, not(loom)))]
        if self.drive.transports.list().is_some() {
            req.call.file = FileRef::Token(fd);
            return Ok(());
        }
        let fixed = req.flags.contains(ReqFlags::FIXED_FILE);
        let hidden = || {
            softring_host::fd::is_hidden(fd)
                || (def.has(opdef::LENIENT) && softring_host::fd::is_path_only(fd))
        };
        if !fixed && (fd < 0 || hidden()) {
            return Err(Errno::EBADF);
        }
        if !fixed && def.second_file.is_none() {
            // In place: a copy would have to wait for the stores.
            req.call.file = FileRef::Plain(fd);
            return Ok(());
        }
        let mut file = if fixed {
            let slot = u32::try_from(fd).map_err(|_| Errno::EBADF)?;
            FileRef::Fixed(self.resources.files.get(slot)?)
        } else if softring_host::fd::numbers::is_ring(fd) && def.second_file.is_some() {
            FileRef::instead_of_ring()?
        } else {
            FileRef::Plain(fd)
        };
        let Some(assign) = def.second_file else {
            req.call.file = file;
            return Ok(());
        };
        // A duplicate of the second file may get the number of the first, if the first is closed.
        file.hold()?;
        req.call.file = file;
        assign(self, req)
    }
}

/// Returns whether this is the first of many reads, after which the request arms all the same:
/// further reads are made when the file is found ready, behind the current batch, and a
/// cancellation finds the request until then (`io_read_mshot`).
fn reads_first(req: &mut Req) -> bool {
    let first = req.row.has(opdef::READS_MANY) && !req.flags.contains(ReqFlags::REISSUED);
    if first {
        req.flags |= ReqFlags::REISSUED;
    }
    first
}

/// Makes one attempt on a worker, where it may block. The row is a `Call`, or a cancellation.
pub(crate) fn issue_blocking(call: &mut Call) -> Outcome {
    let def = &OPS[call.opcode as usize];
    match def.issue {
        Issue::Call(f) => {
            let creds = call.creds.take();
            let done = under(creds.as_deref(), || f(call, Try::Block));
            call.creds = creds;
            done.unwrap_or_else(|e| Outcome::Done(e.res()))
        }
        // A cancellation, without a worker to ask the parent.
        Issue::Ring(_) => Outcome::Done(Errno::ENOENT.res()),
    }
}

impl Work {
    /// Queues the receives that have used up their share (DEFER_TASKRUN). True if there were any.
    #[inline(always)]
    pub(crate) fn begin_turn(&mut self) -> bool {
        let any = self.any_next_turn();
        if any {
            self.run_next_turn();
        }
        any
    }

    /// Returns whether receives that have used up their share go on in the current call.
    #[inline(always)]
    pub(crate) fn may_go_on(&self) -> bool {
        self.any_next_turn() && has(Change::TurnsGoOn)
    }
}
