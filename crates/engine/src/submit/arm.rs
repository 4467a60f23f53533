//! Reissue: an attempt that would block arms readiness, and is issued again when the file is ready.
//! Kernel counterpart: `io_arm_poll_handler`, `io_poll_check_events`.
//!
//! The kernel's arm step returns one of three results. Here it takes two steps, since epoll_ctl(2)
//! polls the file but does not return the events:
//!
//! - **Ok**: the request is registered in the poll set ([`Ctx::arm_poll`]);
//! - **Aborted**: it cannot be registered ([`Ctx::abort`]): a worker waits instead, as io-wq would;
//! - **Ready**: the next poll of the set, one for all requests that a batch has armed, finds it
//!   (`after_submit`). If the program waits, its wait is this poll, so that the poll costs nothing.
//!
//! A request that is ready, at arm or later, is issued again in the order of epoll's events, once
//! each ([`Ctx::poll_fired`]). A request that would still block goes to the end of epoll's list,
//! behind all others, and is only tried again in the next pass. Its linked timeout runs on
//! meanwhile, and its selected buffer is free for others until the next attempt. After [`MAX_ARMS`]
//! attempts in vain a worker waits.

use crate::io::persistent::{IN, OUT, STICKY};
use crate::io::socket::has_messages;
use crate::io::token::ReqId;
use crate::ring::arming::{reissues, sends};
use crate::ring::ctx::{Ctx, Driving};
use crate::ring::opdef::{self, Issue, Outcome};
use crate::ring::persistent::{ALWAYS, leave};
use crate::ring::req_box::ReqBox;
use crate::ring::request::{Phase, Poll, Req, ReqFlags};
use crate::ring::submits::Submits;
use crate::ring::{exclusive, persistent, ring_file};
use crate::stats::trace::Step;
use crate::submit::route::Route;
use softring_host::limits::MAX_ARMS;
use softring_host::sys;
use softring_host::sys::nr::{EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLPRI, EPOLLRDHUP};
use softring_uapi::errno::{Errno, Result};

/// Number of attempts in vain after which a multishot request waits edge-triggered, for new events.
const IN_VAIN: u8 = 4;

impl Ctx {
    /// Arms a request: it waits in the poll set, or in an exclusive wait queue, or is aborted.
    /// Returns its id.
    pub(crate) fn arm_poll(&mut self, mut req: ReqBox, poll: Poll) -> ReqId {
        self.trace(if reissues(&req) { Step::Armed } else { Step::Queued }, &req);
        req.phase = Phase::Polling(poll);
        record_urgent(&mut req);
        self.record_send(&req);
        let by_worker = req.goes_on_by_worker();
        let id = self.reqs.slab.insert(req);
        let armed = if self.waits_behind_another(id) {
            self.hold_meanwhile(id)
        } else {
            self.register_poll(id)
        };
        if armed.is_ok()
            && let Some(req) = self.reqs.slab.get_mut(id)
        {
            req.flags.remove(ReqFlags::ON_WORKER);
        }
        match armed {
            // The kernel's worker arms no linked timeout.
            Ok(()) if by_worker => {}
            Ok(()) => self.arm_linked_timeout(id),
            Err(e) => {
                let key = self.reqs.slab.get(id).and_then(exclusive::key);
                self.arm_next_waiter(key, id, true);
                self.abort(id, e);
            }
        }
        id
    }

    /// Holds the file of a request that outlives `enter` without being registered yet.
    fn hold_meanwhile(&mut self, id: ReqId) -> Result<()> {
        let Some(req) = self.reqs.slab.get_mut(id) else { return Ok(()) };
        self.stats.reissue.armed.add(1);
        req.call.file.hold_own()
    }

    /// Returns the outcome of an armed request that is ready, if known without an attempt.
    fn without_issue(&mut self, req: &mut Req) -> Option<Outcome> {
        if req.flags.contains(ReqFlags::POLLS_RING) {
            return Some(ring_file::fired(self, req));
        }
        self.worker_gives_up(req).then_some(Outcome::Later(Errno::ECANCELED.res()))
    }

    /// Issues an armed request again when it is ready. True if it found nothing after all.
    pub(crate) fn poll_fired(&mut self, id: ReqId, events: u32) -> bool {
        let Some(req) = self.reqs.slab.get_mut(id) else { return false };
        // An event of an earlier wait finds the request elsewhere, or not there yet.
        if !req.phase.is_registered() {
            return false;
        }
        if let Some(fired) = req.row.fired {
            fired(self, id, events);
            return false;
        }
        if req.flags.contains(ReqFlags::ORPHAN) {
            let waiting = req.row.waiting;
            self.poll_leave(id, true);
            let res = waiting.map_or(Errno::ECANCELED.res(), |waiting| (waiting.orphan)());
            self.complete(id, res);
            return false;
        }
        req.flags |= ReqFlags::REISSUED;
        let Some(mut req) = self.reqs.slab.take(id) else { return false };
        self.count_reissue(&req);
        self.trace(Step::Reissue, &req);
        if let Some(outcome) = self.without_issue(&mut req) {
            leave(&mut self.drive.transports, id, &mut req, true);
            self.arm_next_waiter(exclusive::key(&req), id, true);
            self.outcome(req, outcome);
            return false;
        }
        if self.runs_elsewhere(&req) {
            leave(&mut self.drive.transports, id, &mut req, true);
            self.arm_next_waiter(exclusive::key(&req), id, true);
            self.take_route(Route::Worker, req);
            return false;
        }
        let outcome = self.issue_again(&mut req);
        self.after_reissue(id, req, outcome, events)
    }

    /// Handles the outcome of a further attempt. True if it found nothing after all.
    pub(super) fn after_reissue(
        &mut self,
        id: ReqId,
        mut req: ReqBox,
        mut outcome: Outcome,
        events: u32,
    ) -> bool {
        let stays = req.phase.persistent_fd();
        if let Some(at) = stays {
            persistent::record_attempt(self.drive.registration(at), &req);
        }
        let vain = matches!(outcome, Outcome::Retry | Outcome::Punt);
        let news = after_attempt(&mut req, vain, events);
        if vain && (worker_blocks(&req) || is_shut_in_vain(&req, events)) {
            outcome = Outcome::Punt;
        }
        let is_last = self.reqs.exclusive.is_last(exclusive::key(&req));
        let tries = news || req.arms < MAX_ARMS;
        let more = vain && tries && (news || is_last || is_ready(&req));
        match outcome {
            Outcome::Retry | Outcome::Punt
                if more && news && stays.is_none() && (req.arms >= IN_VAIN || !is_last) =>
            {
                self.resources.recycle_buffer(&mut req);
                self.await_news(req);
                true
            }
            Outcome::Retry if more && !req.may_not_wait() => {
                self.resources.recycle_buffer(&mut req);
                self.rearm(req);
                true
            }
            outcome => {
                leave(&mut self.drive.transports, id, &mut req, true);
                self.arm_next_waiter(exclusive::key(&req), id, true);
                self.outcome(req, outcome);
                false
            }
        }
    }

    fn issue_again(&mut self, req: &mut Req) -> Outcome {
        let had = req.call.io().done;
        let outcome = match self.take_buffers(req) {
            Ok(()) => self.issue(req),
            Err(e) => Outcome::Done(e.res()),
        };
        match outcome {
            Outcome::Retry if self.drive.is_workers_last(req, had) => {
                req.call.short = true;
                Outcome::Done(req.call.io().done as i32)
            }
            outcome => outcome,
        }
    }

    pub(super) fn count_reissue(&self, req: &Req) {
        let stats = &self.stats.reissue;
        stats.reissued.add(1);
        stats.ready_at_arm.add(u64::from(self.drive.was_ready_at_arm(req)));
    }

    /// Makes a multishot request that finds nothing, though its file is always ready, wait for new
    /// events: under a descriptor of its own, edge-triggered. The kernel's multishot requests
    /// always wait so.
    fn await_news(&mut self, mut req: ReqBox) {
        req.arms = req.arms.saturating_add(1);
        self.trace(Step::Armed, &req);
        let key = exclusive::key(&req);
        let edge = matches!(req.phase, Phase::Polling(poll) if poll.events & EPOLLET != 0);
        let id = self.reqs.slab.insert(req);
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        if !edge {
            leave(&mut self.drive.transports, id, req, true);
            if let Phase::Polling(poll) = &mut req.phase {
                poll.events = poll.events & !EPOLLONESHOT | EPOLLET;
            }
        }
        if !req.phase.is_registered()
            && let Err(e) = self.register_poll(id)
        {
            self.arm_next_waiter(key, id, true);
            self.complete(id, e.res());
        }
    }

    /// Rearms a request that is not ready after all.
    fn rearm(&mut self, mut req: ReqBox) {
        req.arms = req.arms.saturating_add(1);
        record_urgent(&mut req);
        self.trace(Step::Armed, &req);
        let key = exclusive::key(&req);
        let stays = req.phase.persistent_fd();
        let many = req.flags.contains(ReqFlags::MULTISHOT);
        let id = self.reqs.slab.insert(req);
        if let Some((fd, set)) = stays.zip(self.drive.transports.poll.as_mut()).filter(|_| !many) {
            set.armed_anew(fd, id);
        }
        match self.poll_again(id) {
            Ok(()) => {
                self.drive.transports.new_polls += 1;
                self.stats.reissue.armed.add(1);
            }
            Err(e) => {
                self.arm_next_waiter(key, id, true);
                self.complete(id, e.res());
            }
        }
    }

    /// Issues the waiters of a number again after an event, the last armed first, until nothing is
    /// left for them. This is the order of the kernel's wait queue, in which a request that waits
    /// again is first, too. Requests that go back to a worker come last.
    pub(crate) fn registration_fired(&mut self, fd: i32, seen: u32) {
        let Some(s) = self.drive.registration(fd) else { return };
        s.on_event(seen);
        if let [only] = s.waiters[..] {
            if !self.wake_plain(fd, only, seen) {
                self.wake_registered(fd, only, seen, 0);
            }
            return;
        }
        let mut waiters = s.waiters.clone();
        waiters.reverse();
        waiters.sort_by_key(|id| self.reqs.slab.get(*id).is_some_and(Req::goes_back_to_worker));
        let mut over = 0;
        for id in waiters {
            over |= self.wake_registered(fd, id, seen, over);
        }
    }

    /// Wakes one waiter; returns the directions for which nothing is left. `over`: directions
    /// already exhausted.
    fn wake_registered(&mut self, fd: i32, id: ReqId, seen: u32, over: u32) -> u32 {
        let Some(req) = self.reqs.slab.get_mut(id) else { return 0 };
        let Phase::Polling(poll) = req.phase else { return 0 };
        let direction = if req.row.has(opdef::POLLS) { 0 } else { poll.events & (IN | OUT) };
        let here = poll.persistent && poll.at == fd;
        if !here || seen & (poll.events | ALWAYS) == 0 {
            return 0;
        }
        if direction & over != 0 {
            // The request would wait again.
            let many = req.flags.contains(ReqFlags::MULTISHOT);
            if let Some(set) = self.drive.transports.poll.as_mut().filter(|_| !many) {
                set.armed_anew(fd, id);
            }
            return 0;
        }
        req.call.set_seen(seen);
        if self.poll_fired(id, seen) { direction } else { 0 }
    }
}

impl Submits for Ctx {
    /// Aborts an arm: the file cannot be polled (EPERM), or there is no descriptor or memory for
    /// it. A worker waits instead. A POLL_ADD of such a file is ready.
    fn abort(&mut self, id: ReqId, e: Errno) {
        let Some(mut req) = self.reqs.slab.take(id) else { return };
        if let Some(unpollable) = req.row.unpollable.filter(|_| e == Errno::EPERM) {
            let res = unpollable(&req);
            return self.outcome(req, Outcome::Done(res));
        }
        match req.row.issue {
            Issue::Call(_) if req.is_command() => {
                req.fail(Errno::ECANCELED);
                self.finish(req);
            }
            Issue::Call(_) if req.flags.contains(ReqFlags::POLLS_RING) => {
                self.outcome(req, Outcome::Done(Errno::EINVAL.res()));
            }
            // The worker does not wait either for a request that must be ready before it is tried.
            Issue::Call(_) if e == Errno::EPERM && req.polls_first() => {
                let many = req.flags.contains(ReqFlags::MULTISHOT);
                let e = if many { Errno::EBADFD } else { Errno::EAGAIN };
                self.outcome(req, Outcome::Later(e.res()));
                if self.defers() {
                    self.set_taskrun_by(true);
                }
            }
            Issue::Call(_) if e != Errno::EBADF => {
                self.stats.reissue.aborted.add(1);
                req.phase = Phase::Prepped;
                req.call.file.probe_again();
                // The request recycled its buffer when it was to wait.
                if let Err(e) = self.select_buffer(&mut req) {
                    return self.outcome(req, Outcome::Done(e.res()));
                }
                self.resources.keep_buffer(&mut req);
                self.punt(req);
            }
            _ => {
                req.fail(e);
                self.finish(req);
            }
        }
    }
}

/// Records urgent data for a send: the arm step reports them, but a later wake-up does not
/// (`IO_ASYNC_POLL_COMMON`). epoll reports both alike.
fn record_urgent(req: &mut Req) {
    if !sends(req) || req.flags.contains(ReqFlags::MULTISHOT) {
        return;
    }
    let there = sys::poll_now(req.call.file.poll_fd(), sys::POLLPRI) & sys::POLLPRI != 0;
    if let Phase::Polling(poll) = &mut req.phase {
        poll.urgent = there;
    }
}

/// Returns whether the file is ready, though the attempt was in vain. The request is then tried
/// again at once, and no other exclusive waiter is tried instead. (One of several keeps its
/// position anyway.)
fn is_ready(req: &Req) -> bool {
    sys::poll_now(req.call.file.fd(), sys::POLLIN) != 0
}

/// Returns whether the request receives or reads, once.
fn takes_once(req: &Req) -> bool {
    let reads = req.row.has(opdef::AIO) && req.row.has(opdef::POLLIN);
    (req.row.has(opdef::RECEIVES) || reads) && !req.flags.contains(ReqFlags::MULTISHOT)
}

/// Returns whether the kernel's worker makes a blocking attempt after this one in vain: it does so
/// if its arm step finds the file ready (`io_wq_submit_work`).
fn worker_blocks(req: &Req) -> bool {
    req.flags.contains(ReqFlags::FORCE_ASYNC) && takes_once(req) && is_ready(req)
}

/// Returns whether a datagram socket was shut down for receiving. It is ready for good, though a
/// nonblocking attempt finds nothing: the kernel uses up its attempts, and a worker's attempt ends
/// with 0.
fn is_shut_in_vain(req: &Req, events: u32) -> bool {
    let shut = EPOLLIN | EPOLLRDHUP;
    events & shut == shut && takes_once(req) && !req.asks_for_less()
}

/// Updates a request after an attempt caused by `events`; returns whether it now waits only for new
/// events.
fn after_attempt(req: &mut Req, vain: bool, events: u32) -> bool {
    let elsewhere = sends(req) && events & OUT == 0;
    // An urgent byte does not wake a request that waits for room; an end does, in vain.
    let urgent = elsewhere && events & STICKY & !EPOLLPRI == 0;
    let armed = matches!(req.phase, Phase::Polling(poll) if poll.urgent);
    let news = awaits_news(req) || urgent && !armed;
    if vain && urgent && !armed {
        // Arming it again in the same way would find the byte at the arm step.
        req.arms = req.arms.max(IN_VAIN);
    }
    if vain && elsewhere && !news {
        // The file stays ready for other events: the kernel uses up its attempts.
        req.arms = MAX_ARMS;
    }
    news
}

/// Returns whether a multishot request has found nothing. Once armed, the kernel's request stays
/// armed, and is only tried again after an event.
pub(crate) fn awaits_news(req: &Req) -> bool {
    let many = req.flags.contains(ReqFlags::MULTISHOT) && !req.row.has(opdef::SELECT_MANY);
    req.call.found_nothing() && many
}

impl Driving {
    /// Returns whether the request was ready when it was armed.
    fn was_ready_at_arm(&self, req: &Req) -> bool {
        let first = self.transports.passes.wrapping_sub(1);
        matches!(req.phase, Phase::Polling(poll) if poll.pass == first) && self.transports.prompt
    }
}

impl Driving {
    /// Returns whether this was a worker's only attempt. A worker that finds the file ready at the
    /// arm step makes one blocking attempt, and no other (`io_wq_submit_work`): it gets one
    /// message, even if the request was to wait for more.
    fn is_workers_last(&self, req: &Req, had: u64) -> bool {
        let forced = req.flags & (ReqFlags::FORCE_ASYNC | ReqFlags::MULTISHOT);
        forced == ReqFlags::FORCE_ASYNC
            && req.call.io().done > had
            && self.was_ready_at_arm(req)
            && has_messages(req.call.file.fd())
    }
}
