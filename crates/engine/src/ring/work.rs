//! What is to be done later: task work, the workers' queue, and what is for other rings. That waits
//! until the ring's own lock is free, as no ring's lock is waited for while another's is held.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::io::token::ReqId;
use crate::memory::cq::Cqe;
use crate::ring::ctx::Ring;
use crate::ring::job::Finished;
use softring_host::fd::InternalFd;
use softring_uapi::epoll_event;
use softring_uapi::errno::Result;

/// The queues of what is to be done later, in the order in which each is served.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Task work: requests to issue next.
    run: VecDeque<ReqId>,
    /// Requests that a worker is to begin (`ring::iowq`).
    iowq: VecDeque<ReqId>,
    /// Multishot receives that go on when the program next comes for completions (DEFER_TASKRUN).
    next_turn: VecDeque<ReqId>,
    /// Completions that wait for the program to enter (DEFER_TASKRUN).
    deferred: VecDeque<Finished>,
    /// What is to be done with other rings once this one's lock is released.
    pending: Vec<Pending>,
    /// A thread delivers what was in `pending`: what comes later queues behind.
    delivering: bool,
}

/// Task work.
impl Work {
    #[inline]
    pub(crate) fn queue(&mut self, id: ReqId) {
        self.run.push_back(id);
    }

    /// Queues all of `ids`, which are none afterwards.
    pub(crate) fn queue_all(&mut self, ids: &mut VecDeque<ReqId>) {
        self.run.append(ids);
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<ReqId> {
        self.run.pop_front()
    }

    /// Requests that task work would issue.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.run.len()
    }

    #[inline(always)]
    pub(crate) fn any_queued(&self) -> bool {
        !self.run.is_empty()
    }

    /// Is there anything that entering the ring would do?
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

/// What waits for the program to enter (DEFER_TASKRUN).
impl Work {
    /// Queues a receive whose turn is over; true for the first.
    pub(crate) fn queue_next_turn(&mut self, id: ReqId) -> bool {
        self.next_turn.push_back(id);
        self.next_turn.len() == 1
    }

    #[inline(always)]
    pub(crate) fn any_next_turn(&self) -> bool {
        !self.next_turn.is_empty()
    }

    /// Receives whose turn was over become task work.
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

    /// Has a worker ended the request, with its completion waiting for the ring's task?
    pub(crate) fn is_deferred(&self, id: ReqId) -> bool {
        self.deferred.iter().any(|finished| finished.id == id)
    }
}

/// What is for other rings.
impl Work {
    pub(crate) fn pend(&mut self, what: Pending) {
        self.pending.push(what);
    }

    /// The last of what is pending, which a request has just left.
    pub(crate) fn last_pending(&mut self) -> Option<&mut Pending> {
        self.pending.last_mut()
    }

    #[inline(always)]
    pub(crate) fn any_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// May something be done with another ring at once, since nothing is before it?
    pub(crate) fn may_overtake_none(&self) -> bool {
        self.pending.is_empty() && !self.delivering
    }

    /// Takes what is pending, for the one thread that delivers: `mine` says that the caller does.
    /// None for a second thread, so that nothing overtakes what the first has in hand.
    pub(crate) fn take_pending(&mut self, mine: bool) -> Vec<Pending> {
        if self.delivering && !mine {
            return Vec::new();
        }
        self.delivering = !self.pending.is_empty();
        core::mem::take(&mut self.pending)
    }
}

/// Something that concerns another ring, done when our own lock is free.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The request that waits for it, once it has its place.
    pub(crate) from: Option<ReqId>,
    pub(crate) what: What,
}

/// What is to be delivered.
#[derive(Debug)]
pub(crate) enum What {
    /// A message.
    Msg(Arc<Ring>, Msg),
    /// A POLL_ADD on the ring behind that number, for these `EPOLL*` events.
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
    /// A worker sends it.
    pub(crate) by_worker: bool,
}

/// A file that goes to another ring.
#[derive(Debug)]
pub(crate) struct SentFile {
    /// A ring that takes no messages says so first.
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
