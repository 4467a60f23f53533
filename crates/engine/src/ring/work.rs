//! Deferred work: task work, the workers' queue, and operations on other rings. These wait until
//! the ring's own lock is free, as no ring's lock is waited for while another's is held.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::io::token::ReqId;
use crate::memory::cq::Cqe;
use crate::ring::ctx::Ring;
use crate::ring::job::Finished;
use softring_host::calls::epoll;
use softring_host::fd::InternalFd;
use softring_uapi::epoll_event;
use softring_uapi::errno::{Errno, Result};

/// Queues of deferred work, in the order in which each is served.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Task work: requests to issue next.
    run: VecDeque<ReqId>,
    /// Requests that a worker is to begin (`ring::iowq`).
    iowq: VecDeque<ReqId>,
    /// Multishot receives that go on when the program next enters for completions (DEFER_TASKRUN).
    next_turn: VecDeque<ReqId>,
    /// Completions that wait for the program to enter (DEFER_TASKRUN).
    deferred: VecDeque<Finished>,
    /// Operations on other rings, once this one's lock is released.
    pending: Vec<Pending>,
    /// Flag, true while a thread delivers entries of `pending`: later entries queue behind.
    delivering: bool,
}

/// Task work.
impl Work {
    #[inline]
    pub(crate) fn queue(&mut self, id: ReqId) {
        self.run.push_back(id);
    }

    /// Queues all of `ids`, and empties `ids`.
    #[inline]
    pub(crate) fn queue_all(&mut self, ids: &mut VecDeque<ReqId>) {
        // The library's `append` costs a hundred instructions where there is nothing to append.
        if !ids.is_empty() {
            self.run.append(ids);
        }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<ReqId> {
        self.run.pop_front()
    }

    /// Returns the number of requests that task work would issue.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.run.len()
    }

    #[inline(always)]
    pub(crate) fn any_queued(&self) -> bool {
        !self.run.is_empty()
    }

    /// Returns whether an enter would do any work.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.deferred.is_empty()
            || !self.run.is_empty()
            || !self.iowq.is_empty()
            || !self.next_turn.is_empty()
    }
}

/// The workers' queue.
impl Work {
    pub(crate) fn queue_iowq(&mut self, id: ReqId) {
        self.iowq.push_back(id);
    }

    /// Queues a request before all others.
    pub(crate) fn queue_iowq_first(&mut self, id: ReqId) {
        self.iowq.push_front(id);
    }

    pub(crate) fn next_iowq(&mut self) -> Option<ReqId> {
        self.iowq.pop_front()
    }

    #[inline(always)]
    pub(crate) fn any_iowq(&self) -> bool {
        !self.iowq.is_empty()
    }

    /// Takes a request that no worker has begun out of the queue.
    pub(crate) fn leave_iowq(&mut self, id: ReqId) {
        self.iowq.retain(|&other| other != id);
        self.run.retain(|&other| other != id);
    }
}

/// Work that waits for the program to enter (DEFER_TASKRUN).
impl Work {
    /// Queues a receive that has used up its share; true for the first.
    pub(crate) fn queue_next_turn(&mut self, id: ReqId) -> bool {
        self.next_turn.push_back(id);
        self.next_turn.len() == 1
    }

    #[inline(always)]
    pub(crate) fn any_next_turn(&self) -> bool {
        !self.next_turn.is_empty()
    }

    /// Makes the receives that have used up their share task work.
    #[cold]
    pub(crate) fn run_next_turn(&mut self) {
        self.run.append(&mut self.next_turn);
    }

    pub(crate) fn defer(&mut self, finished: Finished) {
        self.deferred.push_back(finished);
    }

    #[inline]
    pub(crate) fn next_deferred(&mut self) -> Option<Finished> {
        self.deferred.pop_front()
    }

    /// Returns whether a worker has ended the request and its completion waits for the ring's task.
    pub(crate) fn is_deferred(&self, id: ReqId) -> bool {
        self.deferred.iter().any(|finished| finished.id == id)
    }
}

/// Operations on other rings.
impl Work {
    pub(crate) fn pend(&mut self, what: Pending) {
        self.pending.push(what);
    }

    /// Returns the last pending operation, which a request has just queued.
    pub(crate) fn last_pending(&mut self) -> Option<&mut Pending> {
        self.pending.last_mut()
    }

    #[inline(always)]
    pub(crate) fn any_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns whether an operation on another ring may be done at once, since none is before it.
    pub(crate) fn may_overtake_none(&self) -> bool {
        self.pending.is_empty() && !self.delivering
    }

    /// Takes the pending operations for the one thread that delivers; `mine`: the caller is that
    /// thread. A second thread gets none, so that no operation overtakes those being delivered.
    pub(crate) fn take_pending(&mut self, mine: bool) -> Vec<Pending> {
        if self.delivering && !mine {
            return Vec::new();
        }
        self.delivering = !self.pending.is_empty();
        core::mem::take(&mut self.pending)
    }
}

/// An operation on another ring, done when our own lock is free.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The request that waits for it, once it has an id.
    pub(crate) from: Option<ReqId>,
    pub(crate) what: What,
}

/// Kind of an operation on another ring.
#[derive(Debug)]
pub(crate) enum What {
    /// A message.
    Msg(Arc<Ring>, Msg),
    /// A POLL_ADD on the ring behind this number, for these `EPOLL*` events.
    Poll(i32, u32),
    /// An EPOLL_CTL of a ring.
    Epoll(EpollChange),
}

/// A message.
#[derive(Debug, Default)]
pub(crate) struct Msg {
    pub(crate) cqe: Cqe,
    /// The file that goes with it.
    pub(crate) file: Option<SentFile>,
    /// Flag, true if a worker sends it.
    pub(crate) by_worker: bool,
}

/// A file that goes to another ring.
#[derive(Debug)]
pub(crate) struct SentFile {
    /// The file; an error is reported after the failure of a ring that takes no messages.
    pub(crate) fd: Result<Arc<InternalFd>>,
    /// `file_index` of the SQE: slot + 1, or `IORING_FILE_INDEX_ALLOC`.
    pub(crate) index: u32,
    pub(crate) quiet: bool,
}

/// A change of an epoll set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpollChange {
    pub(crate) epoll: i32,
    pub(crate) op: u32,
    pub(crate) fd: i32,
    pub(crate) event: epoll_event,
}

impl EpollChange {
    /// Makes the change with `fd` in place of the number that was given; returns the result.
    pub(crate) fn apply(&self, fd: i32) -> i32 {
        epoll::epoll_ctl(self.epoll, self.op as usize, fd, &self.event)
            .map_or_else(Errno::res, |()| 0)
    }
}
