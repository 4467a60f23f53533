//! The rules that are compared.

use super::Machine;
use softring_engine::hybrid::{Hybrid, IdleSleep, Key, Policy, Ticket, Timer, WaitAction};

/// A rule: when to sleep, and for how long. Requests are named by their slot.
pub trait Rule {
    fn issued(&mut self, slot: usize, now: u64);
    /// Records that the request was seen done.
    fn done(&mut self, slot: usize, now: u64);
    /// Decides what to do after a poll that found nothing.
    fn next(&mut self, now: u64) -> WaitAction;
    fn woke(&mut self, _now: u64, _early: bool) {}
    /// Begins a wait.
    fn begin(&mut self) {}
    /// Returns the one request that the rule waits for, blind to all others; None if it sees all.
    fn only(&self) -> Option<usize> {
        None
    }
    /// Returns whether a completion ends the rule's sleeps.
    fn wakes_early(&self) -> bool {
        false
    }
}

/// The rules by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    Ours(Policy),
    /// Rule of Linux since 6.13: half of the shortest run time ever seen, once per request, from
    /// the moment the request is polled.
    HalfMinimum,
    /// Rule of the patch that came first: half of the difference between the last request's run
    /// time and the delay of the last sleep; from 3 µs on; blind to all requests but one.
    Source,
    /// Rule of blk-mq until 6.4: half of the mean.
    HalfMean,
}

impl RuleKind {
    pub const ALL: [RuleKind; 7] = [
        RuleKind::Ours(Policy::Spin),
        RuleKind::Ours(Policy::Block),
        RuleKind::Ours(Policy::Hybrid),
        RuleKind::Ours(Policy::Adaptive),
        RuleKind::HalfMinimum,
        RuleKind::Source,
        RuleKind::HalfMean,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RuleKind::Ours(policy) => policy.name(),
            RuleKind::HalfMinimum => "minimum/2",
            RuleKind::Source => "source",
            RuleKind::HalfMean => "mean/2",
        }
    }

    /// Makes the rule, for `depth` requests in flight.
    pub fn rule(self, machine: Machine, depth: usize) -> Box<dyn Rule> {
        match self {
            RuleKind::Ours(policy) => {
                let spread = [machine.late - machine.late / 4, machine.late + machine.late / 4];
                let timer = Timer::measured(&spread, machine.cpu);
                let hybrid = Hybrid::new(policy, depth as u32, timer);
                Box::new(Ours { hybrid, tickets: vec![Ticket::NONE; depth] })
            }
            RuleKind::HalfMinimum => Box::new(HalfMinimum::new(depth)),
            RuleKind::Source => Box::new(Source::new(depth)),
            RuleKind::HalfMean => Box::new(HalfMean { mean: 0, flights: Flights::new(depth) }),
        }
    }
}

struct Ours {
    hybrid: Hybrid,
    tickets: Vec<Ticket>,
}

impl Rule for Ours {
    fn issued(&mut self, slot: usize, now: u64) {
        self.tickets[slot] = self.hybrid.issued(Key::new(1, false, 4096), now);
    }

    fn done(&mut self, slot: usize, now: u64) {
        self.hybrid.done(self.tickets[slot], now);
    }

    fn next(&mut self, now: u64) -> WaitAction {
        self.hybrid.next(now)
    }

    fn woke(&mut self, now: u64, early: bool) {
        self.hybrid.woke(now, early);
    }

    fn begin(&mut self) {
        self.hybrid.begin();
    }

    fn wakes_early(&self) -> bool {
        true
    }
}

/// Requests in the order of their issue, and the sleeps taken for them.
struct Flights {
    order: Vec<usize>,
    issued: Vec<u64>,
    /// Sleep asked for each request, by slot; None if there was none yet.
    slept: Vec<Option<u64>>,
}

impl Flights {
    fn new(depth: usize) -> Flights {
        let order = Vec::with_capacity(depth);
        Flights { order, issued: vec![0; depth], slept: vec![None; depth] }
    }

    fn issued(&mut self, slot: usize, now: u64) {
        self.order.push(slot);
        (self.issued[slot], self.slept[slot]) = (now, None);
    }

    /// Removes the request. Returns its run time, less the sleep that was asked for.
    fn done(&mut self, slot: usize, now: u64) -> u64 {
        self.order.retain(|s| *s != slot);
        let asked = self.slept[slot].unwrap_or(0);
        (now - self.issued[slot]).saturating_sub(asked)
    }

    /// Sleeps for the oldest request that had no sleep yet.
    fn sleep(&mut self, now: u64, idle_sleep: u64) -> WaitAction {
        let Some(&slot) = self.order.iter().find(|s| self.slept[**s].is_none()) else {
            return WaitAction::Poll;
        };
        self.slept[slot] = Some(idle_sleep);
        if idle_sleep == 0 {
            WaitAction::Poll
        } else {
            WaitAction::IdleSleep(IdleSleep { until: now + idle_sleep, many: u32::MAX })
        }
    }
}

struct HalfMinimum {
    least: Option<u64>,
    flights: Flights,
}

impl HalfMinimum {
    fn new(depth: usize) -> Self {
        HalfMinimum { least: None, flights: Flights::new(depth) }
    }
}

impl Rule for HalfMinimum {
    fn issued(&mut self, slot: usize, now: u64) {
        self.flights.issued(slot, now);
    }

    fn done(&mut self, slot: usize, now: u64) {
        let ran = self.flights.done(slot, now);
        self.least = Some(self.least.map_or(ran, |l| l.min(ran)));
    }

    fn next(&mut self, now: u64) -> WaitAction {
        self.least.map_or(WaitAction::Poll, |least| self.flights.sleep(now, least / 2))
    }
}

struct HalfMean {
    mean: u64,
    flights: Flights,
}

impl Rule for HalfMean {
    fn issued(&mut self, slot: usize, now: u64) {
        self.flights.issued(slot, now);
    }

    fn done(&mut self, slot: usize, now: u64) {
        self.flights.done(slot, now);
        let took = now - self.flights.issued[slot];
        self.mean = if self.mean == 0 { took } else { self.mean - self.mean / 16 + took / 16 };
    }

    fn next(&mut self, now: u64) -> WaitAction {
        self.flights.sleep(now, self.mean / 2)
    }
}

struct Source {
    ran: u64,
    late: u64,
    asked: Option<(u64, u64)>,
    flights: Flights,
}

impl Source {
    /// Shortest sleep that is taken, in ns.
    const LEAST: u64 = 3_000;

    fn new(depth: usize) -> Self {
        Source { ran: 0, late: 0, asked: None, flights: Flights::new(depth) }
    }
}

impl Rule for Source {
    fn issued(&mut self, slot: usize, now: u64) {
        self.flights.issued(slot, now);
    }

    fn done(&mut self, slot: usize, now: u64) {
        self.flights.done(slot, now);
        self.ran = now - self.flights.issued[slot];
    }

    fn next(&mut self, now: u64) -> WaitAction {
        let idle_sleep = self.ran.saturating_sub(self.late) / 2;
        let idle_sleep = if idle_sleep >= Self::LEAST { idle_sleep } else { 0 };
        let first = self.flights.order.first().copied();
        if first.is_none_or(|slot| self.flights.slept[slot].is_some()) {
            return WaitAction::Poll;
        }
        self.asked = Some((now, idle_sleep));
        self.flights.sleep(now, idle_sleep)
    }

    fn woke(&mut self, now: u64, _early: bool) {
        if let Some((since, idle_sleep)) = self.asked.take() {
            self.late = (now - since).saturating_sub(idle_sleep);
        }
    }

    fn only(&self) -> Option<usize> {
        self.flights.order.first().copied()
    }
}
