//! Where a request is, with what belongs to being there.

use alloc::sync::Arc;

use crate::io::futex_waiter::FutexWaiter;
use crate::io::token::ReqId;
use softring_host::sys::nr::EPOLLONESHOT;
use softring_host::time::Clock;

/// Where a request is.
#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// Prepared, or through with waiting: linked behind another, in the run queue, or at hand.
    #[default]
    Prepped,
    /// Waits for readiness, or for its turn to. It stays so through the attempt that an event
    /// brings.
    Polling(Poll),
    /// Waiting in the timeout queue.
    Timer(Timer),
    /// The timeout's time came at `deadline`, on that clock, and it ends with that.
    Expired { clock: Clock, deadline: u64 },
    /// Waiting in the queue of workers: none has begun it.
    Queued,
    /// Running with a worker, which has its call.
    Worker(OnWorker),
    /// Waiting for the kernel's aio, under a number that meant this file then (`History::file`).
    Aio(u16),
    /// Waiting for a modelled device: its data have moved, its time has not come.
    Modelled,
    /// A thread waits for its event.
    Sleeping(Arc<FutexWaiter>),
    /// Another ring, or who delivers to one, completes it by its id.
    Elsewhere,
    /// Waiting behind a drain barrier.
    Drained,
    /// Cancelled while it was armed; its CQE comes with the next task work. A further cancel finds
    /// it still.
    Cancelled,
}

/// A request whose call is with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnWorker {
    /// The number that its file has there.
    pub(crate) fd: i32,
    /// When a modelled device will be done with it, in ns of CLOCK_MONOTONIC: the worker moves its
    /// data.
    pub(crate) due: Option<u64>,
}

impl Phase {
    /// The number that the request waits under, if its registration is persistent.
    pub(crate) fn persistent_fd(&self) -> Option<i32> {
        match self {
            Phase::Polling(Poll { at, persistent: true, .. }) => Some(*at),
            _ => None,
        }
    }

    /// The timer of what was in the timeout queue: it is not any more.
    pub(crate) fn take_timer(&mut self) -> Option<Timer> {
        let Phase::Timer(t) = *self else { return None };
        *self = Phase::Prepped;
        Some(t)
    }

    /// A polling request is registered under the number `at` (-1: nowhere), in front
    /// of the poll set's pass after `pass`.
    pub(crate) fn registered_at(&mut self, at: i32, pass: u32, persistent: bool) {
        if let Phase::Polling(poll) = self {
            (poll.at, poll.pass, poll.persistent) = (at, pass, persistent);
        }
    }

    /// Is the request registered in the poll set?
    pub(crate) fn is_registered(&self) -> bool {
        matches!(self, Phase::Polling(poll) if poll.at >= 0)
    }
}

/// A wait for readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poll {
    /// `EPOLL*` events wanted, with EPOLLET / EPOLLONESHOT as the request means them.
    pub(crate) events: u32,
    /// The number that the request is registered under in the poll set; -1 while it is not.
    pub(crate) at: i32,
    /// Passes over the poll set before it was registered.
    pub(crate) pass: u32,
    /// The registration is persistent (`io::persistent`).
    pub(crate) persistent: bool,
    /// The file was not ready once: what comes wakes it.
    pub(crate) waits: bool,
    /// A send: urgent data was there when it was armed, and does not leave.
    pub(crate) urgent: bool,
    /// What a multishot poll has told of last.
    pub(crate) told: u32,
}

impl Poll {
    pub(crate) fn new(events: u32) -> Self {
        Poll { events, at: -1, pass: 0, persistent: false, waits: false, urgent: false, told: 0 }
    }

    /// Does each wake-up have a completion of its own? So with a multishot POLL_ADD only.
    pub(crate) fn tells_each(&self) -> bool {
        self.events & EPOLLONESHOT == 0
    }
}

/// What a timeout asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerArgs {
    pub(crate) clock: Clock,
    /// As the program gave it, in ns: a time, or how far that is from when it is armed.
    pub(crate) period: u64,
    /// Shots of a multishot timeout; 0: no end.
    pub(crate) shots: u32,
    /// Completions after which it ends early; 0: none.
    pub(crate) count: u32,
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
    /// A timer that starts now. `abs`: the period is the time itself.
    pub(crate) fn start(args: TimerArgs, abs: bool) -> Timer {
        let TimerArgs { clock, period, shots, count } = args;
        let mut timer = Timer { clock, period, shots, count, ..Timer::default() };
        timer.set_deadline(abs);
        timer
    }

    /// The timeout's place among the armed timeouts, as cancel and remove search them: those with a
    /// count by their target, then the others by arrival.
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
