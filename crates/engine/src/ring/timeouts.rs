//! Timeouts: arm, expiry, count, removal; `timer_queue` keeps their order. Kernel counterpart:
//! `io_uring/timeout.c`.

use core::sync::atomic::Ordering::Relaxed;

use crate::io::token::ReqId;
use crate::memory::scratch::BATCH;
use crate::ring::ctx::{Ctx, Driving, Requests};
use crate::ring::opdef;
use crate::ring::request::{OpState, Phase, Req, ReqFlags, Timer};
use crate::ring::turn::{Drives, Turn};
use softring_host::time::Clock;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{
    IORING_OP_LINK_TIMEOUT, IORING_OP_TIMEOUT, IORING_TIMEOUT_ABS, IORING_TIMEOUT_ETIME_SUCCESS,
    IORING_TIMEOUT_MULTISHOT, kernel_timespec,
};

impl Req {
    /// Returns the timer of the request: a relative one counts from now, and none fires before it
    /// is armed.
    pub(crate) fn start_timer(&self) -> Option<Timer> {
        let OpState::Timeout(args) = self.call.state else { return None };
        Some(Timer::start(args, self.call.sqe().op_flags & IORING_TIMEOUT_ABS != 0))
    }
}

impl Ctx {
    /// Copies in the timespec of the current TIMEOUT, and with it those of the TIMEOUTs right
    /// behind.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(crate) fn read_timespec(&mut self, addr: u64) -> Result<kernel_timespec> {
        if let Some(ts) = self.reqs.timeouts.specs.take(addr) {
            return Ok(ts);
        }
        let (mut addrs, mut n) = ([addr; BATCH], 1);
        let more = self.submit.left.min(BATCH as u32 - 1);
        self.mem.sq_peek(more, IORING_OP_TIMEOUT, |[_, _, addr, _]| {
            addrs[n] = addr;
            n += 1;
            true
        });
        if let Some(reading) = self.reqs.timeouts.specs.begin() {
            let n = self.unlocked(|| reading.read(&addrs[..n]));
            self.reqs.timeouts.specs.end(&addrs[..n]);
        }
        let taken = self.reqs.timeouts.specs.take(addr);
        taken.map_or_else(|| self.unlocked(|| softring_host::user::read(addr)), Ok)
    }

    /// Arms a timeout in the slab.
    pub(crate) fn timeouts_insert(&mut self, id: ReqId, mut t: Timer) {
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        if t.clock.jumps() {
            self.drive.transports.watch_clock();
        }
        let first = self.reqs.timeouts.insert(&mut t, id);
        req.phase = Phase::Timer(t);
        if first {
            self.deadline_moved();
        }
    }

    /// Arms a LINK_TIMEOUT whose head now waits.
    pub(crate) fn timeouts_arm_linked(&mut self, id: ReqId, head: ReqId) {
        let Some(t) = self.reqs.slab.get(id).and_then(Req::start_timer) else { return };
        self.timeouts_insert(id, Timer { head: Some(head), ..t });
    }

    /// Completes every timeout that has expired.
    pub(crate) fn timeouts_expire(&mut self) {
        for clock in Clock::ALL {
            if self.reqs.timeouts.by_time[clock as usize].is_empty() {
                continue;
            }
            let now = clock.now();
            while let Some(id) = self.reqs.timeouts.pop_due(clock, now) {
                let timer = self.reqs.slab.get_mut(id).and_then(|req| req.phase.take_timer());
                let Some(t) = timer else { continue };
                if t.count != 0 {
                    self.reqs.timeouts.by_count.remove(&(t.target, t.seq));
                }
                self.timeout_expired(id, t);
            }
        }
    }

    /// Ends every timeout whose completion count is reached (`io_flush_timeouts`).
    #[inline(always)]
    pub(crate) fn timeouts_by_count(&mut self) {
        if !self.reqs.timeouts.by_count.is_empty() {
            self.end_by_count();
        }
    }

    /// Publishes CQEs that came from elsewhere, and ends the timeouts whose count is reached.
    pub(crate) fn commit_from_elsewhere(&mut self) {
        let nothing_counts = self.reqs.timeouts.by_count.is_empty();
        self.turn(if nothing_counts { Turn::Publish } else { Turn::Work });
    }

    fn end_by_count(&mut self) {
        let tail = self.mem.control.cq_tail().load(Relaxed);
        let events = self.reqs.timeouts.events(tail);
        while let Some((&(target, _), &id)) = self.reqs.timeouts.by_count.first_key_value() {
            if target > events {
                break;
            }
            // The kernel's timer interrupts: due timeouts have fired before this.
            if let Some(t) = self.reqs.timeouts_disarm(id).filter(Timer::is_over) {
                self.timeout_expired(id, t);
                continue;
            }
            self.timeout_ended();
            self.end_soon(id, 0);
        }
    }

    /// Handles an expired timeout, which is off the queue.
    fn timeout_expired(&mut self, id: ReqId, mut t: Timer) {
        let Some(req) = self.reqs.slab.get(id) else { return };
        if req.opcode() == IORING_OP_LINK_TIMEOUT {
            return self.linked_timeout_expired(id, t.head);
        }
        let (user_data, flags) = (req.user_data, req.call.sqe().op_flags);
        let mut last = flags & IORING_TIMEOUT_MULTISHOT == 0;
        if !last && t.shots > 0 {
            t.shots -= 1;
            last = t.shots == 0;
        }
        self.timeout_ended();
        last = last || self.faults_end_waiting(id);
        if !last && self.post_more(user_data, Errno::ETIME.res(), 0) {
            self.trace_more(id, Errno::ETIME.res());
            t.set_deadline(false);
            return self.timeouts_insert(id, t);
        }
        let Some(mut req) = self.reqs.slab.take(id) else { return };
        if flags & IORING_TIMEOUT_ETIME_SUCCESS == 0 {
            req.set_fail();
        }
        req.res = Errno::ETIME.res();
        req.phase = Phase::Expired { clock: t.clock, deadline: t.deadline };
        self.finish(req);
    }

    /// Records that a timeout of the program has fired: its CQE will not count, and its waiter
    /// returns.
    pub(crate) fn timeout_ended(&mut self) {
        self.reqs.timeouts.own = self.reqs.timeouts.own.wrapping_add(1);
        self.drive.wake_driver();
    }

    /// Handles an expired linked timeout: it leaves the chain, its head is cancelled, and it ends
    /// with ETIME, or with the cancellation's own failure. ETIME is no failure of the linked
    /// timeout: with CQE_SKIP_SUCCESS it posts no CQE.
    fn linked_timeout_expired(&mut self, id: ReqId, head: Option<ReqId>) {
        let Some(mut timeout) = self.reqs.slab.take(id) else { return };
        debug_assert!(timeout.opcode() == IORING_OP_LINK_TIMEOUT);
        timeout.res = Errno::ETIME.res();
        timeout.flags.remove(ReqFlags::LINKS);
        let by_task = self.defers();
        if let Some((head, h)) = head.and_then(|head| Some((head, self.reqs.slab.get_mut(head)?))) {
            h.link = timeout.link.take();
            h.flags.remove(ReqFlags::LINK_TIMEOUT | ReqFlags::ARM_LTIMEOUT);
            if by_task && h.is_workers() && h.has_ended() {
                // The head's CQE is task work, and comes before the timeout's.
                self.reqs.slab.insert(timeout);
                self.end_linked(id, Errno::ENOENT.res());
                return;
            }
            let counts = h.row.has(opdef::COUNTED);
            if timeout.flags.contains(ReqFlags::ORPHAN) {
                timeout.res = Errno::ECANCELED.res();
            } else if let Err(e) = self.cancel_one(head) {
                // A head that runs on a worker is told to stop, and is reported as not found, as in
                // `io_try_cancel`.
                timeout.res = if e == Errno::EALREADY { Errno::ENOENT.res() } else { e.res() };
            } else if counts {
                // For these the kernel returns the number cancelled, instead of ETIME.
                timeout.res = 1;
            }
        }
        self.finish(timeout);
    }

    /// Returns the time until the earliest deadline of a timeout or a modelled device, in ns; 0 if
    /// it has passed.
    pub(crate) fn next_event_in(&self) -> Option<u64> {
        let timeout = self.reqs.timeouts.next_in();
        let Some(due) = self.drive.model_due() else {
            return timeout;
        };
        let left = due.saturating_sub(softring_host::time::Clock::Monotonic.now());
        Some(timeout.map_or(left, |t| t.min(left)))
    }

    /// Returns whether anything in flight needs a driver to complete (workers post by themselves).
    pub(crate) fn needs_driver(&self) -> bool {
        !self.reqs.timeouts.is_empty() || self.drive.transports.needs_driver()
    }
}

impl Requests {
    /// Removes a timeout from the queue, if it is there; it stays in the slab.
    pub(crate) fn timeouts_disarm(&mut self, id: ReqId) -> Option<Timer> {
        let t = self.slab.get_mut(id)?.phase.take_timer()?;
        self.timeouts.remove(&t);
        Some(t)
    }
}

impl Driving {
    /// Returns the time at which the next modelled request is due, in ns of CLOCK_MONOTONIC.
    pub(crate) fn model_due(&self) -> Option<u64> {
        self.transports.model.as_ref()?.next_due()
    }
}
