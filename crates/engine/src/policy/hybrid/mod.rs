//! Hybrid polling: decides whether a thread that waits for I/O should poll, sleep or block. Pure
//! code: no clock and no system call; times are passed in. The submitter reports each request
//! ([`issued`]), the poller reports each completion ([`done`]), and after a poll that finds nothing
//! it asks for the next action ([`next`]).
//!
//! Each kind of requests (device, direction, size) has one estimate: the age at which a request is
//! about to be done. The thread sleeps until an *absolute* time, at which the first request in
//! flight comes to that age, less the usual lateness of a timer here; then it polls without a
//! pause. A sleep too short to gain is not taken. A sleep yields one bit: still pending (under), or
//! done already (over); [`estimate`] tells why one bit and not a mean.
//!
//! No completion stays unseen for long. A sleep ends with the first completion. Only a short sleep
//! may sleep through several, so that they are taken together: at most [`UNSEEN_SHARE`] of the time
//! of the quickest request in flight, or [`COALESCE_SHARE`] where devices have shown that they are
//! busy without a gap ([`utilisation`]). No sleep is longer than [`IDLE_SLEEP_MAX`]. The thread
//! does not poll for a stalled device: after [`VAIN_SLEEPS`] sleeps it blocks until a completion.
//!
//! ```text
//! issue ────────────── mean ──────────────▶ done
//!       ── age ──▶│ (learned by the bits)
//!   sleep ──▶ │lead│ poll, poll, poll …       overdue: sleeps of mean/UNSEEN_SHARE, if long enough
//! ```
//!
//! [`issued`]: Hybrid::issued
//! [`done`]: Hybrid::done
//! [`next`]: Hybrid::next

mod class;
mod estimate;
mod flight;
mod policy;
#[cfg(test)]
mod tests;
mod timer;
mod utilisation;

pub use class::Key;
pub use flight::Ticket;
pub(crate) use policy::Load;
pub use policy::Policy;
pub use timer::Timer;
pub use utilisation::COALESCE_SHARE;

use class::Classes;
use estimate::Bit;
use flight::{Flight, InFlight};
use policy::{Scene, WaitMethod};

/// Longest sleep, in ns, whatever the estimate and the clock say.
pub const IDLE_SLEEP_MAX: u64 = 4_000_000;
/// Part of a kind's time for which a finished request may stay unseen: a hundredth on average, if
/// polling gains nothing else.
pub(crate) const UNSEEN_SHARE: u64 = 50;
/// Maximum number of requests in flight that are tracked.
pub(crate) const FLIGHT_MAX: u32 = 4096;
/// Time of polling in vain, in ns, after which the thread sleeps until a completion: no request
/// that is worth polling for exceeds its estimate by that much.
const SPIN_MAX: u64 = 1_000_000;
/// Time without a sleep, in ns, after which a timer's cost is taken as a little lower.
const FORGET: u64 = 100_000_000;
/// Vain sleeps of [`IDLE_SLEEP_MAX`] in a row after which the thread blocks: the device has
/// stalled.
const VAIN_SLEEPS: u32 = 8;
/// Multiple of a request's time, beyond [`SPIN_MAX`], after which only sleeps of [`IDLE_SLEEP_MAX`]
/// are taken: the device has stopped.
const STALL_FACTOR: u64 = 8;
/// Time without a completion, in ns, after which an estimate has aged.
const STALE: u64 = 1_000_000_000;
/// Interval of reading the machine's load, in ns.
const LOAD_EVERY: u64 = 10_000_000;

/// Action after a poll that has found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitAction {
    /// Poll again.
    Poll,
    /// Sleep.
    IdleSleep(IdleSleep),
    /// Block until a completion, however long that takes.
    Block,
}

/// A sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleSleep {
    /// Time at which it ends by itself, in ns.
    pub until: u64,
    /// Number of completions that end it; fewer may wait for more.
    pub many: u32,
}

impl IdleSleep {
    /// A sleep that only a completion ends.
    pub(crate) const BLOCK: IdleSleep = IdleSleep { until: u64::MAX, many: 1 };

    /// Returns whether completions may stay unseen until it ends by itself.
    pub(crate) fn through(self) -> bool {
        self.many > 1
    }
}

/// Results of sleeps, in the words of the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) idle_sleeps: u64,
    pub(crate) under: u64,
    pub(crate) over: u64,
    pub(crate) spared_ns: u64,
    pub(crate) spun_ns: u64,
}

/// A sleep taken, until it is judged.
#[derive(Clone, Copy, Debug)]
struct Taken {
    since: u64,
    until: u64,
    /// Request that the sleep was for; `None` if the sleep teaches nothing.
    aim: Option<Ticket>,
    woke: Woke,
    /// Flag, set if a request was done at its end.
    found: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woke {
    NotYet,
    /// The time was over.
    Timer,
    /// A completion or a signal came.
    Early,
}

/// One waiter's view of its requests. All times are in ns of one clock.
#[derive(Debug)]
pub struct Hybrid {
    policy: Policy,
    /// Flag, true if the waiter can sleep through completions.
    coalesces: bool,
    /// Number of the current batch: the requests submitted between two polls that find nothing.
    batch: u32,
    pub(crate) timer: Timer,
    classes: Classes,
    flight: Flight,
    idle_sleep: Option<Taken>,
    /// End of the last poll that found nothing, or of the last sleep.
    polled_at: u64,
    /// Time of the last sleep.
    idle_slept: u64,
    /// Time at which a completion was last polled for to its end, or in vain.
    watched: u64,
    /// Begin of the current spinning; 0: not spinning.
    spins_since: u64,
    /// Time of the last completion, or the begin of the wait; 0: none yet.
    news: u64,
    /// Vain sleeps in a row.
    vain: u32,
    /// Polls so far.
    polls: u64,
    /// Mean time of a request in the class of the last completion.
    takes: u64,
    load: Load,
    load_at: u64,
    tally: Tally,
}

impl Hybrid {
    /// Creates the policy for `room` requests in flight, of which at most [`FLIGHT_MAX`] are
    /// tracked.
    pub fn new(policy: Policy, room: u32, timer: Timer) -> Hybrid {
        Hybrid {
            policy,
            coalesces: true,
            batch: 0,
            timer,
            classes: Classes::default(),
            flight: Flight::new(room.min(FLIGHT_MAX)),
            idle_sleep: None,
            polled_at: 0,
            idle_slept: 0,
            watched: 0,
            spins_since: 0,
            news: 0,
            vain: 0,
            polls: 0,
            takes: 0,
            load: Load::default(),
            load_at: 0,
            tally: Tally::default(),
        }
    }

    /// Turns coalescing off: the first completion ends each sleep of this waiter, whatever
    /// [`IdleSleep::many`] says.
    pub(crate) fn wakes_at_once(&mut self) {
        self.coalesces = false;
    }

    /// Returns the number of tracked requests in flight.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> u32 {
        self.flight.count()
    }

    /// Registers a request that was given to its device.
    pub fn issued(&mut self, key: Key, now: u64) -> Ticket {
        let Some(at) = self.classes.find(key) else { return Ticket::NONE };
        let class = self.classes.get(at);
        if class.queue.is_empty() && now.saturating_sub(class.last_done) > STALE {
            class.estimate.grow_old();
            class.last_done = now;
        }
        let (batch, position) = (self.batch, class.utilisation.issued(self.batch, now));
        let request = InFlight { issued: now, class: at, batch, position, judged: false };
        let ticket = self.flight.insert(&mut class.queue, request);
        match ticket {
            Ticket::NONE => class.utilisation.done(&request, now, false),
            _ => self.classes.active |= 1 << at,
        }
        ticket
    }

    /// Registers a request that was found done.
    pub fn done(&mut self, ticket: Ticket, now: u64) {
        let idle_slept = self.idle_sleep.is_some_and(|n| n.woke != Woke::NotYet);
        if !idle_slept && self.spins_since > 0 {
            self.watched = now;
        }
        let Some(request) = self.land(ticket, now, !idle_slept) else { return };
        let class = self.classes.get(request.class);
        let high = now.saturating_sub(request.issued);
        let low = self.polled_at.saturating_sub(request.issued).min(high);
        let age = class.estimate.age();
        let aimed =
            self.idle_sleep.is_some_and(|n| n.aim == Some(ticket) && n.woke != Woke::NotYet);
        let bit = match () {
            () if aimed => Some(Bit::Over),
            // One bit per poll and class: the completions of a burst count once.
            () if request.judged || class.taught == self.polls => None,
            () if high < age => Some(Bit::Over),
            () if low >= age => Some(Bit::Under),
            () => None,
        };
        if let Some(bit) = bit {
            class.estimate.learn(bit);
            class.taught = self.polls;
        }
        if request.judged {
            class.estimate.at_most(high);
        }
        class.estimate.took(low, high);
        class.last_done = now;
        self.takes = class.estimate.mean();
        (self.news, self.vain) = (now, 0);
        if self.spins_since > 0 {
            self.spun(now);
            self.spins_since = 0;
        }
        if let Some(idle_sleep) = &mut self.idle_sleep {
            idle_sleep.found |= idle_sleep.woke != Woke::NotYet;
            idle_sleep.aim = idle_sleep.aim.filter(|_| !aimed);
        }
    }

    /// Removes a request that teaches nothing: it failed to be issued, or was taken over.
    pub(crate) fn gone(&mut self, ticket: Ticket) {
        self.land(ticket, self.polled_at, false);
    }

    /// Removes a request from the flight; `close`: polling found it done.
    fn land(&mut self, ticket: Ticket, now: u64, close: bool) -> Option<InFlight> {
        let at = self.flight.get(ticket)?.class;
        let class = self.classes.get(at);
        let request = self.flight.remove(&mut class.queue, ticket)?;
        class.utilisation.done(&request, now, close);
        if class.queue.is_empty() {
            self.classes.active &= !(1 << at);
        }
        Some(request)
    }

    /// Returns the time at which the first request in flight is due; `None` if none is, or unknown.
    #[cfg(test)]
    pub(crate) fn next_due(&self) -> Option<u64> {
        let due = |c: &class::Class| {
            let (_, oldest) = self.flight.oldest(&c.queue)?;
            let known = c.estimate.known().then(|| c.estimate.age());
            Some(oldest.issued.saturating_add(known?))
        };
        self.classes.active().filter_map(due).min()
    }

    /// Begins a wait.
    pub fn begin(&mut self) {
        if let Some(idle_sleep) = self.idle_sleep.take() {
            self.count(&idle_sleep);
        }
        (self.news, self.spins_since, self.vain) = (0, 0, 0);
    }

    /// Returns whether it is time to read the machine's load.
    pub(crate) fn wants_load(&self, now: u64) -> bool {
        self.policy == Policy::Adaptive && now.saturating_sub(self.load_at) >= LOAD_EVERY
    }

    /// Sets the machine's load.
    pub(crate) fn set_load(&mut self, load: Load, now: u64) {
        (self.load, self.load_at) = (load, now.max(1));
    }

    /// Returns the action after a poll at `now` that has found nothing, or too little.
    pub fn next(&mut self, now: u64) -> WaitAction {
        self.judge(now);
        self.polls += 1;
        self.batch = self.batch.wrapping_add(1);
        if self.news == 0 {
            self.news = now;
        }
        if self.spins_since > 0 {
            self.spun(now);
        }
        self.polled_at = now;
        if self.vain > VAIN_SLEEPS {
            (self.spins_since, self.watched) = (0, now);
            return WaitAction::Block;
        }
        let (load, in_flight, takes) = (self.load, self.flight.count(), self.takes);
        let (sleep_cpu, stale) = (self.timer.cpu(), now.saturating_sub(self.watched) > FORGET);
        let scene = Scene { load, in_flight, takes, sleep_cpu, stale };
        let sleep = IdleSleep { until: now.saturating_add(IDLE_SLEEP_MAX), many: 1 };
        let idle_sleep = match self.policy.method(scene) {
            WaitMethod::Poll => None,
            WaitMethod::IdleSleep | WaitMethod::Coalesce if self.is_to_watch() => None,
            WaitMethod::IdleSleep => self.idle_sleep_now(now),
            WaitMethod::Coalesce => {
                let several = |idle_sleep: IdleSleep| {
                    idle_sleep.through() && self.come_in(idle_sleep, now) >= 2
                };
                self.idle_sleep_now(now)
                    .filter(|(idle_sleep, _)| several(*idle_sleep))
                    .or(Some((sleep, None)))
            }
            WaitMethod::Sleep => Some((sleep, None)),
        };
        let spun = self.spins_since > 0 && now.saturating_sub(self.spins_since) > SPIN_MAX;
        let in_vain = spun || self.vain > 0;
        if in_vain {
            self.watched = now;
        }
        let (idle_sleep, aim) = match idle_sleep {
            Some(idle_sleep) => idle_sleep,
            None if in_vain => (sleep, None),
            None => {
                self.spins_since =
                    if self.spins_since == 0 { now.max(1) } else { self.spins_since };
                if now.saturating_sub(self.idle_slept) > FORGET {
                    self.timer.age();
                    self.idle_slept = now;
                }
                return WaitAction::Poll;
            }
        };
        self.spins_since = 0;
        self.vain += u32::from(idle_sleep == sleep);
        if idle_sleep.through() {
            self.classes
                .active_mut()
                .for_each(|c| c.utilisation.coalescing(now, c.estimate.mean()));
        }
        let (woke, found) = (Woke::NotYet, false);
        self.idle_sleep = Some(Taken { since: now, until: idle_sleep.until, aim, woke, found });
        self.tally.idle_sleeps += 1;
        self.idle_slept = now;
        WaitAction::IdleSleep(idle_sleep)
    }

    /// Cancels the sleep, which teaches nothing: it was not taken, or another one ended sooner
    /// (`slept`).
    pub(crate) fn cancel(&mut self, slept: bool, now: u64) {
        if self.idle_sleep.take().is_some() {
            self.tally.idle_sleeps = self.tally.idle_sleeps.saturating_sub(1);
        }
        if slept {
            self.classes
                .active_mut()
                .for_each(|c| c.utilisation.coalescing(now, c.estimate.mean()));
        }
    }

    /// Ends the sleep. `early`: a completion or a signal came.
    pub fn woke(&mut self, now: u64, early: bool) {
        let Some(idle_sleep) = &mut self.idle_sleep else { return };
        idle_sleep.woke = if early { Woke::Early } else { Woke::Timer };
        let slept = now.saturating_sub(idle_sleep.since);
        self.tally.spared_ns = self.tally.spared_ns.saturating_add(slept);
        if early {
            // The completion came when it woke us, which takes about as long as a timer does.
            self.polled_at = self.polled_at.max(now.saturating_sub(2 * self.timer.late()));
        } else {
            self.timer.woke_late(now.saturating_sub(idle_sleep.until));
        }
    }

    fn spun(&mut self, now: u64) {
        let spun = now.saturating_sub(self.polled_at);
        self.tally.spun_ns = self.tally.spun_ns.saturating_add(spun);
    }

    fn count(&mut self, idle_sleep: &Taken) {
        let which = if idle_sleep.found { &mut self.tally.over } else { &mut self.tally.under };
        *which += 1;
    }

    /// Judges the sleep after the poll behind it: a request not found done is still pending.
    fn judge(&mut self, now: u64) {
        let Some(idle_sleep) = self.idle_sleep.filter(|n| n.woke != Woke::NotYet) else { return };
        self.idle_sleep = None;
        self.count(&idle_sleep);
        let Some(request) = idle_sleep.aim.and_then(|aim| self.flight.get(aim)) else { return };
        let class = self.classes.get(request.class);
        let age = now.saturating_sub(request.issued);
        if idle_sleep.woke == Woke::Timer && age >= class.estimate.age() {
            request.judged = true;
            class.estimate.learn(Bit::Under);
            class.taught = self.polls;
        }
    }

    /// Returns the sleep to take at `now`, and the request that it is for; `None` if none is worth
    /// it.
    fn idle_sleep_now(&self, now: u64) -> Option<(IdleSleep, Option<Ticket>)> {
        let (mut awake, mut aim, mut unseen) = (u64::MAX, None, u64::MAX);
        for class in self.classes.active() {
            let Some((ticket, oldest)) = self.flight.oldest(&class.queue) else { continue };
            let due = oldest.issued.saturating_add(class.estimate.age());
            let share = self.unseen(class, now);
            let at = due.max(now.saturating_add(share));
            if at < awake {
                (awake, aim) = (at, (at == due).then_some(ticket));
            }
            unseen = unseen.min(share);
            let limit = SPIN_MAX + STALL_FACTOR * class.estimate.mean();
            if now.saturating_sub(oldest.issued.max(self.news)) > limit {
                return Some((
                    IdleSleep { until: now.saturating_add(IDLE_SLEEP_MAX), many: 1 },
                    None,
                ));
            }
        }
        if awake > now.saturating_add(IDLE_SLEEP_MAX) {
            (awake, aim) = (now.saturating_add(IDLE_SLEEP_MAX), None);
        }
        let ahead = awake - now;
        // A thread that wakes late from a sleep for a request is late for it; one that coalesces is
        // late for a device that is busy anyway.
        let lead = match aim {
            Some(_) => self.timer.careful_lead(),
            None => self.timer.lead(),
        };
        if self.flight.count() == 0 || !self.timer.worth(ahead) || ahead <= lead {
            return None;
        }
        let until = awake - lead;
        // The first completion does not end a sleep that may sleep through one.
        let mut idle_sleep = IdleSleep { until, many: 1 };
        if ahead <= unseen {
            idle_sleep.many =
                u32::try_from(self.come_in(idle_sleep, now)).unwrap_or(u32::MAX).max(2);
        }
        Some((idle_sleep, aim))
    }

    /// Returns whether a request in flight is to be watched: one of a new kind, or of a watched
    /// batch.
    fn is_to_watch(&self) -> bool {
        self.classes.active().any(|class| {
            let watched = |(_, oldest)| class.utilisation.watches(&oldest);
            !class.estimate.known() || self.flight.oldest(&class.queue).is_some_and(watched)
        })
    }

    /// Returns the time for which a finished request of a kind may stay unseen.
    fn unseen(&self, class: &class::Class, now: u64) -> u64 {
        let mean = class.estimate.mean();
        let coalesces = match self.coalesces {
            true => class.utilisation.coalesces(now, mean, self.timer.least()),
            false => 0,
        };
        coalesces.max(mean / UNSEEN_SHARE)
    }

    /// Returns the number of completions expected during a sleep.
    fn come_in(&self, idle_sleep: IdleSleep, now: u64) -> u64 {
        let time = idle_sleep.until.saturating_sub(now);
        self.classes.active().map(|c| c.utilisation.come_in(now, time)).sum()
    }

    /// Returns the results of sleeps since the last call.
    #[must_use]
    pub(crate) fn take_tally(&mut self) -> Tally {
        core::mem::take(&mut self.tally)
    }
}
