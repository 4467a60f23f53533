//! The timeout queue: deadlines on three clocks, and completion counts. Kernel counterpart: `io_uring/timeout.c`.

use core::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeMap;

use crate::abi::IORING_OP_LINK_TIMEOUT;
use crate::ctx::Ctx;
use crate::errno::Errno;
use crate::req::request::{ReqFlags, State, Timer, Wait};
use crate::req::slab::ReqId;
use crate::time::Clock;

/// Armed timeouts.
#[derive(Debug, Default)]
pub struct Timeouts {
    /// Per clock, by deadline, ties by arrival.
    by_time: [BTreeMap<(u64, u64), ReqId>; 3],
    /// Those that also end after a number of completions, in order of their target.
    by_count: Vec<(u32, ReqId)>,
    next_seq: u64,
    /// CQEs of timeouts themselves, which do not count.
    pub own: u32,
}

impl Timeouts {
    pub fn is_empty(&self) -> bool {
        self.by_time.iter().all(BTreeMap::is_empty)
    }

    /// Time until the earliest deadline, in ns; 0 if it has passed.
    pub fn next_in(&self) -> Option<u64> {
        let left = |c: &Clock| {
            let (&(deadline, _), _) = self.by_time[*c as usize].first_key_value()?;
            Some(deadline.saturating_sub(c.now()))
        };
        Clock::ALL.iter().filter_map(left).min()
    }

    fn remove(&mut self, t: &Timer, id: ReqId) {
        self.by_time[t.clock as usize].remove(&(t.deadline, t.seq));
        self.by_count.retain(|&(_, x)| x != id);
    }
}

impl Ctx {
    /// Arms a timeout in the slab, whose `wait` says when.
    pub fn timeouts_insert(&mut self, id: ReqId) {
        let base = self.mem.control.cq_tail().load(Relaxed).wrapping_sub(self.timeouts.own);
        let Some(req) = self.slab.get_mut(id) else { return };
        req.state = State::Timeout;
        let Wait::Timeout(t) = &mut req.wait else { return };
        t.seq = self.timeouts.next_seq;
        self.timeouts.next_seq += 1;
        if t.count != 0 {
            t.target_seq = base.wrapping_add(t.count);
            self.timeouts.by_count.push((t.target_seq, id));
        }
        self.timeouts.by_time[t.clock as usize].insert((t.deadline, t.seq), id);
        self.deadline_moved();
    }

    /// Arms a LINK_TIMEOUT whose head now waits.
    pub fn timeouts_arm_linked(&mut self, id: ReqId, _head: ReqId) {
        self.timeouts_insert(id);
    }

    /// Takes a timeout off the queue; it stays in the slab.
    pub fn timeouts_disarm(&mut self, id: ReqId) -> bool {
        let Some(req) = self.slab.get_mut(id) else { return false };
        if req.state != State::Timeout {
            return false;
        }
        req.state = State::Prepped;
        if let Wait::Timeout(t) = req.wait {
            self.timeouts.remove(&t, id);
        }
        true
    }

    /// Completes every timeout whose time has come.
    pub fn timeouts_expire(&mut self) {
        for clock in Clock::ALL {
            if self.timeouts.by_time[clock as usize].is_empty() {
                continue;
            }
            let now = clock.now();
            loop {
                let first = self.timeouts.by_time[clock as usize].first_key_value();
                let Some((&(deadline, _), &id)) = first else { break };
                if deadline > now {
                    break;
                }
                self.timeouts_disarm(id);
                crate::ops::timeout::expired(self, id);
            }
        }
    }

    /// Completes every timeout whose completion count is reached (`io_flush_timeouts`).
    pub fn timeouts_by_count(&mut self) {
        if self.timeouts.by_count.is_empty() {
            return;
        }
        let seq = self.mem.control.cq_tail().load(Relaxed).wrapping_sub(self.timeouts.own);
        let due: Vec<ReqId> = (self.timeouts.by_count.iter())
            .filter(|(target, _)| seq.wrapping_sub(*target).cast_signed() >= 0)
            .map(|&(_, id)| id)
            .collect();
        for id in due {
            self.timeouts_disarm(id);
            self.timeouts.own = self.timeouts.own.wrapping_add(1);
            self.complete(id, 0);
        }
    }

    /// A linked timeout fired: cancel its head and end with ETIME, or with the cancellation's own failure.
    pub fn linked_timeout_expired(&mut self, id: ReqId) {
        let head = self.slab.iter().find(|(_, r)| r.link == Some(id)).map(|(h, _)| h);
        let Some(mut timeout) = self.slab.remove(id) else { return };
        debug_assert!(timeout.opcode() == IORING_OP_LINK_TIMEOUT);
        let Some(head) = head else {
            timeout.fail(Errno::ENOENT);
            return self.finish(timeout);
        };
        if let Some(h) = self.slab.get_mut(head) {
            h.link = timeout.link.take();
            h.flags.remove(ReqFlags::LINK_TIMEOUT | ReqFlags::ARM_LTIMEOUT);
        }
        self.async_posted = true;
        let res = match self.cancel_one(head) {
            Ok(()) => Errno::ETIME,
            Err(e) => e,
        };
        timeout.flags.remove(ReqFlags::LINKS);
        timeout.fail(res);
        self.finish(timeout);
    }
}
