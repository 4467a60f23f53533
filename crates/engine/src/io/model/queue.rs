//! Queue of a ring's requests with modelled devices, ordered by completion time.

use alloc::collections::BinaryHeap;
use core::cmp::{Ordering, Reverse};

use super::device::Due;
use super::late::Late;
use crate::io::completions::{Completion, Completions};
use crate::policy::hybrid::Ticket;

/// A request whose data has been moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Time at which the completion is shown, in ns of CLOCK_MONOTONIC.
    pub(crate) due: u64,
    /// Time at which the device was done ([`Due`]).
    done: u64,
    /// Arrival number, which breaks ties.
    seq: u64,
    /// Token of the submitter.
    pub(crate) token: u64,
    pub(crate) res: i32,
    /// Ticket for the policy that tracks the request.
    pub(crate) ticket: Ticket,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.seq).cmp(&(other.due, other.seq))
    }
}

/// Most that a device makes up for, in ns, so that a process that was stopped does not find all
/// requests done.
const MOST_BEHIND: u64 = 1_000_000_000;

/// A ring's requests with modelled devices.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    next: u64,
    pub(crate) late: Late,
    /// Time at which the last completion was seen, and its lateness for the device.
    seen: (u64, u64),
}

impl Queue {
    /// Creates a queue with room for `n` requests, so that it need not allocate later.
    pub(crate) fn with_capacity(n: usize) -> Queue {
        Queue { heap: BinaryHeap::with_capacity(n), ..Queue::default() }
    }

    /// Adds a request; true if it is the next due.
    pub(crate) fn push(&mut self, due: Due, token: u64, res: i32, ticket: Ticket) -> bool {
        let seq = self.next;
        self.next += 1;
        let Due { done, shown: due } = due;
        self.heap.push(Reverse(Entry { due, done, seq, token, res, ticket }));
        self.heap.peek().is_some_and(|e| e.0.seq == seq)
    }

    /// Takes the requests that are due at `now`.
    #[inline]
    pub(crate) fn reap(&mut self, now: u64, done: &mut Completions) {
        while let Some(Entry { token, res, ticket, .. }) = self.pop(now) {
            done.push(Completion { token, res: res.into(), ticket });
        }
    }

    fn pop(&mut self, now: u64) -> Option<Entry> {
        let Reverse(first) = self.heap.peek()?;
        if first.due > now {
            return None;
        }
        self.late.add(now - first.due);
        self.seen = (now, (now - first.done).min(MOST_BEHIND));
        self.heap.pop().map(|e| e.0)
    }

    /// Returns by how much a request at `now` is late because the completion before it was seen
    /// late; 0 if the request does not follow that completion at once.
    pub(crate) fn behind(&self, now: u64) -> u64 {
        let (at, late) = self.seen;
        if now.saturating_sub(at) <= late { late } else { 0 }
    }

    /// Returns the time at which the next request is due.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|e| e.0.due)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_arrival() {
        let mut q = Queue::with_capacity(4);
        let at = |ns| Due { done: ns, shown: ns };
        assert!(q.push(at(30), 1, 0, Ticket::NONE));
        assert!(q.push(at(10), 2, 0, Ticket::NONE));
        assert!(!q.push(at(10), 3, 0, Ticket::NONE));
        assert!(!q.push(at(40), 4, 0, Ticket::NONE));
        assert_eq!((q.next_due(), q.pop(9).is_none()), (Some(10), true));
        let order: Vec<_> = core::iter::from_fn(|| q.pop(39)).map(|e| e.token).collect();
        assert_eq!(order, [2, 3, 1]);
        assert_eq!((q.len(), q.late.count()), (1, 3));
        // The last request was due at 30, and seen at 39.
        assert_eq!([39, 48, 49].map(|now| q.behind(now)), [9, 9, 0]);
    }
}
