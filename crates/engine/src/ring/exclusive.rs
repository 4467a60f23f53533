//! Exclusive waiting: of the requests that wait to accept on one listener only the first is
//! registered in the poll set. So a connection wakes one request, the one that has waited longest.
//! In the kernel an exclusive entry in the listener's wait queue does this (`poll_exclusive`,
//! `EPOLLEXCLUSIVE`); epoll's own flag supports neither one-shot entries nor several requests
//! behind one set.

use alloc::collections::VecDeque;

use crate::io::token::ReqId;
use crate::ring::cancel::same_file;
use crate::ring::ctx::{Ctx, Requests};
use crate::ring::exclusive_queues::Key;
use crate::ring::opdef;
use crate::ring::persistent::leave;
use crate::ring::request::{Req, ReqFlags};
use crate::ring::submits::Submits;

/// Returns the listener that a request waits for; `None` if it does not wait exclusively.
pub(crate) fn key(req: &Req) -> Option<Key> {
    let fixed = req.flags.contains(ReqFlags::FIXED_FILE);
    req.row.has(opdef::EXCLUSIVE).then_some((fixed, req.call.sqe().fd))
}

/// Returns whether the request is registered in the poll set.
pub(crate) fn is_armed(req: &Req) -> bool {
    req.phase.is_registered()
}

impl Ctx {
    /// Queues a request that is about to wait; true if another is armed before it.
    pub(crate) fn waits_behind_another(&mut self, id: ReqId) -> bool {
        let Some(req) = self.reqs.slab.get(id) else { return false };
        let Some(key) = key(req) else { return false };
        // A multishot request that goes on stays first in the queue.
        if req.flags.contains(ReqFlags::MULTISHOT | ReqFlags::REISSUED) {
            self.disarm_others(key, id);
            self.reqs.exclusive.0.entry(key).or_default().push_front(id);
            return false;
        }
        let waits = self.reqs.somebody_is_armed(key, id);
        self.reqs.exclusive.0.entry(key).or_default().push_back(id);
        waits
    }

    /// Takes the other requests armed for the listener of `id` out of the poll set; they wait
    /// behind it.
    fn disarm_others(&mut self, key: Key, id: ReqId) {
        let Some(fd) = self.reqs.slab.get(id).map(|r| r.call.file.fd()) else { return };
        for other in self.reqs.exclusive.0.get(&key).cloned().unwrap_or_default() {
            if let Some(req) = self.reqs.slab.get_mut(other).filter(|r| is_armed(r))
                && same_file(req.call.file.fd(), fd)
            {
                leave(&mut self.drive.transports, other, req, false);
            }
        }
    }

    /// Removes `id` from its queue; if it was armed, arms the next request for its listener.
    pub(crate) fn arm_next_waiter(&mut self, key: Option<Key>, id: ReqId, was_armed: bool) {
        let Some(key) = key else { return };
        let Some(queue) = self.reqs.exclusive.0.get_mut(&key) else { return };
        queue.retain(|&other| other != id);
        if was_armed {
            self.arm_next(key);
        }
        if self.reqs.exclusive.0.get(&key).is_some_and(VecDeque::is_empty) {
            self.reqs.exclusive.0.remove(&key);
        }
    }

    /// Arms the next waiter. A reused number may have waiters for two listeners; waiters whose
    /// listener has an armed request are skipped.
    fn arm_next(&mut self, key: Key) {
        let mut served = 0;
        loop {
            let Some(queue) = self.reqs.exclusive.0.get(&key) else { return };
            let waits = |id: &&ReqId| self.reqs.slab.get(**id).is_some_and(|r| !is_armed(r));
            let Some(&next) = queue.iter().filter(waits).nth(served) else { return };
            if self.reqs.somebody_is_armed(key, next) {
                served += 1;
                continue;
            }
            match self.register_poll(next) {
                Ok(()) => return,
                Err(e) => {
                    self.reqs.exclusive.0.entry(key).or_default().retain(|&other| other != next);
                    self.abort(next, e);
                }
            }
        }
    }
}

impl Requests {
    /// Returns whether a request is armed for the listener of `id`. The number in the SQE may mean
    /// another listener by now.
    fn somebody_is_armed(&self, key: Key, id: ReqId) -> bool {
        let Some(fd) = self.slab.get(id).map(|r| r.call.file.fd()) else { return false };
        let queue = self.exclusive.0.get(&key).into_iter().flatten();
        let mut armed = queue.filter_map(|&other| self.slab.get(other)).filter(|r| is_armed(r));
        armed.any(|r| same_file(r.call.file.fd(), fd))
    }
}
