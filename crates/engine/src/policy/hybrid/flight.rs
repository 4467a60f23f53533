//! Requests in flight: the oldest of each class, in constant time and bounded memory.

use alloc::boxed::Box;

/// Index that means no request.
const NONE: u32 = u32::MAX;

/// Name of a request in flight until it is done. [`Ticket::NONE`] names an untracked request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    at: u32,
    generation: u32,
}

impl Ticket {
    /// Ticket of an untracked request.
    pub const NONE: Ticket = Ticket { at: NONE, generation: 0 };
}

impl Default for Ticket {
    fn default() -> Self {
        Ticket::NONE
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(crate) issued: u64,
    pub(crate) class: u8,
    /// Batch of its class in which the request was submitted, and its position in the batch.
    pub(crate) batch: u32,
    pub(crate) position: u32,
    /// Flag, set once the request has taught all that it can.
    pub(crate) judged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    request: Option<InFlight>,
    generation: u32,
    /// Neighbours in the order of issue within the class; `next` also links free nodes.
    prev: u32,
    next: u32,
}

/// Requests of one class, oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Queue { first: NONE, last: NONE }
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

/// All tracked requests.
#[derive(Debug)]
pub(super) struct Flight {
    nodes: Box<[Node]>,
    free: u32,
    count: u32,
}

impl Flight {
    /// Makes a table for `room` requests; further ones are not tracked.
    pub(super) fn new(room: u32) -> Flight {
        let node = |i: u32| {
            let next = if i + 1 == room { NONE } else { i + 1 };
            Node { request: None, generation: 1, prev: NONE, next }
        };
        let free = if room == 0 { NONE } else { 0 };
        Flight { nodes: (0..room).map(node).collect(), free, count: 0 }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Adds a request as the newest of its class.
    pub(super) fn insert(&mut self, queue: &mut Queue, request: InFlight) -> Ticket {
        let at = self.free;
        let Some(node) = self.nodes.get_mut(at as usize) else { return Ticket::NONE };
        self.free = node.next;
        (node.request, node.prev, node.next) = (Some(request), queue.last, NONE);
        let generation = node.generation;
        match self.nodes.get_mut(queue.last as usize) {
            Some(last) => last.next = at,
            None => queue.first = at,
        }
        queue.last = at;
        self.count += 1;
        Ticket { at, generation }
    }

    /// Returns the request that a ticket names, if still in flight.
    pub(super) fn get(&mut self, ticket: Ticket) -> Option<&mut InFlight> {
        let node = self.nodes.get_mut(ticket.at as usize)?;
        if node.generation == ticket.generation { node.request.as_mut() } else { None }
    }

    /// Removes a request; `queue` is that of its class.
    pub(super) fn remove(&mut self, queue: &mut Queue, ticket: Ticket) -> Option<InFlight> {
        self.get(ticket)?;
        let node = &mut self.nodes[ticket.at as usize];
        let (request, prev, next) = (node.request.take()?, node.prev, node.next);
        node.generation = node.generation.wrapping_add(1);
        node.next = self.free;
        self.free = ticket.at;
        match self.nodes.get_mut(prev as usize) {
            Some(p) => p.next = next,
            None => queue.first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(n) => n.prev = prev,
            None => queue.last = prev,
        }
        self.count -= 1;
        Some(request)
    }

    /// Returns the oldest request of a class.
    pub(super) fn oldest(&self, queue: &Queue) -> Option<(Ticket, InFlight)> {
        let node = self.nodes.get(queue.first as usize)?;
        let ticket = Ticket { at: queue.first, generation: node.generation };
        node.request.map(|r| (ticket, r))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(issued: u64) -> InFlight {
        InFlight { issued, class: 0, batch: 0, position: 0, judged: false }
    }

    #[test]
    fn a_full_table_keeps_no_more_requests() {
        let (mut f, mut q) = (Flight::new(2), Queue::default());
        let [a, b, c] = [1, 2, 3].map(|t| f.insert(&mut q, request(t)));
        assert!(a != Ticket::NONE && b != Ticket::NONE && c == Ticket::NONE);
        assert!(f.remove(&mut q, c).is_none());
        assert_eq!(f.remove(&mut q, a).map(|r| r.issued), Some(1));
        assert!(f.remove(&mut q, a).is_none());
        assert_eq!(f.oldest(&q).map(|(_, r)| r.issued), Some(2));
        assert!(f.insert(&mut q, request(4)) != a);
        assert_eq!(f.count(), 2);
    }

    proptest! {
        /// Whatever is removed, the oldest of the rest is the first.
        #[test]
        fn the_oldest_request_is_first(ops in prop::collection::vec(0u8..8, 1..400)) {
            let (mut f, mut q) = (Flight::new(32), Queue::default());
            let mut model: Vec<(Ticket, u64)> = Vec::new();
            for (t, op) in (0u64..).zip(ops) {
                if op < 4 {
                    let ticket = f.insert(&mut q, request(t));
                    prop_assert_eq!(ticket == Ticket::NONE, model.len() == 32);
                    if ticket != Ticket::NONE {
                        model.push((ticket, t));
                    }
                } else if !model.is_empty() {
                    let (ticket, t) = model.remove(op as usize * 7 % model.len());
                    prop_assert_eq!(f.remove(&mut q, ticket).map(|r| r.issued), Some(t));
                }
                prop_assert_eq!(f.count() as usize, model.len());
                let first = model.first().map(|m| m.1);
                prop_assert_eq!(f.oldest(&q).map(|(_, r)| r.issued), first);
                prop_assert_eq!(q.is_empty(), model.is_empty());
            }
        }
    }
}
