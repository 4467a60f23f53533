//! What a request waits for: readiness, a time, or somebody else.

use crate::io::token::ReqId;
use softring_host::sys::nr::EPOLLONESHOT;
use softring_host::time::Clock;

/// The waiting side's own data of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    #[default]
    None,
    /// Events awaited, and where.
    Poll(Poll),
    /// Place in the timeout queue.
    Timeout(Timer),
    /// The kernel's aio has it, under a number that meant this file then (`History::file`).
    Aio(u16),
    /// A thread waits for it.
    Sleeper,
    /// A modelled device is done with it then, in ns of CLOCK_MONOTONIC; a worker moves its data.
    Model(u64),
}

impl Wait {
    /// The number that it waits under, if that stays in the poll set.
    pub(crate) fn stays_at(self) -> Option<i32> {
        match self {
            Wait::Poll(Poll { at, stays: true, .. }) => Some(at),
            _ => None,
        }
    }
}

/// A wait for readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poll {
    /// `EPOLL*` events wanted, with EPOLLET / EPOLLONESHOT as the request means them.
    pub(crate) events: u32,
    /// The number that it stands under in the poll set; -1 while it does not.
    pub(crate) at: i32,
    /// Looks at the poll set before it was put there.
    pub(crate) looks: u32,
    /// That number stays in the set, whoever waits there (`io::standing`).
    pub(crate) stays: bool,
    /// It was not ready once: what comes wakes it.
    pub(crate) waits: bool,
    /// What a multishot poll has told of last.
    pub(crate) told: u32,
}

impl Poll {
    pub(crate) fn new(events: u32) -> Self {
        Poll { events, at: -1, looks: 0, stays: false, waits: false, told: 0 }
    }

    /// Does each wake-up have a completion of its own? So with a multishot POLL_ADD only.
    pub(crate) fn tells_each(&self) -> bool {
        self.events & EPOLLONESHOT == 0
    }
}

/// A place in the timeout queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timer {
    pub(crate) clock: Clock,
    /// Absolute, on that clock, in ns.
    pub(crate) deadline: u64,
    /// What the program gave, in ns: the period of a multishot timeout.
    pub(crate) period: u64,
    /// Shots left of a multishot timeout; 0: no end.
    pub(crate) shots: u32,
    /// Completions after which it ends early; 0: none.
    pub(crate) count: u32,
    /// Completion count at which `count` is reached.
    pub(crate) target: u64,
    /// Ties broken by arrival.
    pub(crate) seq: u64,
    /// The request that an armed LINK_TIMEOUT guards.
    pub(crate) head: Option<ReqId>,
}

impl Timer {
    /// Its place among the armed timeouts, as cancel and remove search them: those with a count by
    /// their target, then the others by arrival.
    pub(crate) const fn order(&self) -> (bool, u64, u64) {
        if self.count != 0 { (false, self.target, self.seq) } else { (true, 0, self.seq) }
    }

    /// Sets the deadline by what the program gave: the time itself, or how far it is from now.
    pub(crate) fn set_deadline(&mut self, abs: bool) {
        let now = self.clock.now();
        self.deadline = if abs { self.period.max(now) } else { now.saturating_add(self.period) };
    }

    /// Has its time come?
    pub(crate) fn is_over(&self) -> bool {
        self.deadline <= self.clock.now()
    }
}
