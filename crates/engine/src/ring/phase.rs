//! Phase of a request, with the data of that phase.

use alloc::sync::Arc;

use crate::io::futex_waiter::FutexWaiter;
use crate::io::token::ReqId;
use softring_host::sys::nr::EPOLLONESHOT;
use softring_host::time::Clock;

/// Phase of a request.
#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// Prepared, or past its wait: linked behind another, in the run queue, or being issued.
    #[default]
    Prepped,
    /// Waiting for readiness, or queued for it. It stays so through the attempt that an event
    /// causes.
    Polling(Poll),
    /// Waiting in the timeout queue.
    Timer(Timer),
    /// Ending because its timeout expired at `deadline`, on that clock.
    Expired { clock: Clock, deadline: u64 },
    /// Waiting in the queue of workers: none has begun it.
    Queued,
    /// Running with a worker, which has its call.
    Worker(OnWorker),
    /// Waiting for the kernel's aio; the id of the file that its number meant then
    /// (`History::file`).
    Aio(u16),
    /// Waiting for a modelled device: its data have moved, its due time has not come.
    Modelled,
    /// Ended, while an injected fault holds its completion back.
    Held,
    /// Waiting in a thread for its event.
    Sleeping(Arc<FutexWaiter>),
    /// Waiting for another ring, or a thread that delivers to one, to complete it by its id.
    Elsewhere,
    /// Waiting behind a drain barrier.
    Drained,
    /// Cancelled while it was armed; its CQE comes with the next task work. A further cancel still
    /// finds it.
    Cancelled,
}

/// A request whose call is with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnWorker {
    /// The descriptor of its file on the worker.
    pub(crate) fd: i32,
    /// Time at which a modelled device completes it, in ns of CLOCK_MONOTONIC: the worker moves its
    /// data.
    pub(crate) due: Option<u64>,
}

impl Phase {
    /// Returns the number that the request waits under, if its registration is persistent.
    pub(crate) fn persistent_fd(&self) -> Option<i32> {
        match self {
            Phase::Polling(Poll { at, persistent: true, .. }) => Some(*at),
            _ => None,
        }
    }

    /// Takes the timer of a request that has left the timeout queue.
    pub(crate) fn take_timer(&mut self) -> Option<Timer> {
        let Phase::Timer(t) = *self else { return None };
        *self = Phase::Prepped;
        Some(t)
    }

    /// Records that a polling request is registered under the number `at` (-1: nowhere), after
    /// `pass` passes over the poll set.
    pub(crate) fn registered_at(&mut self, at: i32, pass: u32, persistent: bool) {
        if let Phase::Polling(poll) = self {
            (poll.at, poll.pass, poll.persistent) = (at, pass, persistent);
        }
    }

    /// Returns whether the request is registered in the poll set.
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
    /// Passes over the poll set before the request was registered.
    pub(crate) pass: u32,
    /// Flag, true if the registration is persistent (`io::persistent`).
    pub(crate) persistent: bool,
    /// Flag, set once the file was found not ready: the next event wakes the request.
    pub(crate) waits: bool,
    /// Flag, true for a send if urgent data was there when it was armed, and does not leave.
    pub(crate) urgent: bool,
    /// Events that a multishot poll has reported last.
    pub(crate) reported: u32,
}

impl Poll {
    pub(crate) fn new(events: u32) -> Self {
        Poll {
            events,
            at: -1,
            pass: 0,
            persistent: false,
            waits: false,
            urgent: false,
            reported: 0,
        }
    }

    /// Returns whether each wake-up has a completion of its own: only for a multishot POLL_ADD.
    pub(crate) fn tells_each(&self) -> bool {
        self.events & EPOLLONESHOT == 0
    }
}

/// Parameters of a timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerArgs {
    pub(crate) clock: Clock,
    /// Time given by the program, in ns: absolute, or relative to when the timeout is armed.
    pub(crate) period: u64,
    /// Shots of a multishot timeout; 0: no end.
    pub(crate) shots: u32,
    /// Completions after which the timeout ends early; 0: none.
    pub(crate) count: u32,
}

/// An entry in the timeout queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timer {
    pub(crate) clock: Clock,
    /// Absolute, on that clock, in ns.
    pub(crate) deadline: u64,
    /// Time given by the program, in ns: the period of a multishot timeout.
    pub(crate) period: u64,
    /// Shots left of a multishot timeout; 0: no end.
    pub(crate) shots: u32,
    /// Completions after which the timeout ends early; 0: none.
    pub(crate) count: u32,
    /// Completion count at which `count` is reached.
    pub(crate) target: u64,
    /// Arrival number, which breaks ties.
    pub(crate) seq: u64,
    /// The request that an armed LINK_TIMEOUT guards.
    pub(crate) head: Option<ReqId>,
}

impl Timer {
    /// Makes a timer that starts now. `abs`: the period is the absolute time.
    pub(crate) fn start(args: TimerArgs, abs: bool) -> Timer {
        let TimerArgs { clock, period, shots, count } = args;
        let mut timer = Timer { clock, period, shots, count, ..Timer::default() };
        timer.set_deadline(abs);
        timer
    }

    /// Returns the position among the armed timeouts in which cancel and remove search them:
    /// timeouts with a count by their target, then the others by arrival.
    pub(crate) const fn order(&self) -> (bool, u64, u64) {
        if self.count != 0 { (false, self.target, self.seq) } else { (true, 0, self.seq) }
    }

    /// Sets the deadline from the program's time: absolute, or relative to now.
    pub(crate) fn set_deadline(&mut self, abs: bool) {
        let now = self.clock.now();
        self.deadline = if abs { self.period.max(now) } else { now.saturating_add(self.period) };
    }

    /// Returns whether the timer has expired.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline <= self.clock.now()
    }
}
