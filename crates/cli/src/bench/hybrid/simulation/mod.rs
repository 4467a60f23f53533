//! Rules for sleeping, tried on traces: a device, a machine and a thread that polls, in simulated
//! time. The simulation knows a rule's cost to the nanosecond; a measurement on a device never
//! does.

mod rules;
#[cfg(test)]
mod tests;
mod trace;

pub use rules::{Rule, RuleKind};
pub use trace::{Trace, TraceKind};

use softring_engine::hybrid::{IdleSleep, WaitAction};

/// Time between two clock reads of a thread that spins, in ns.
const CHUNK: u64 = 4_000;

/// Generator of pseudo-random numbers (splitmix64).
#[derive(Clone, Debug)]
struct Random(pub u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number from 0 to 1, without 1.
    fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a number that is about normally distributed, around 0 with deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Costs of sleeping and submitting, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Average delay of a wake-up, by a timer or by a completion.
    pub late: u64,
    /// Processor time of one sleep.
    pub cpu: u64,
    /// Processor time of a submission and its completion.
    pub submit: u64,
}

/// Result of a rule on a trace. Times in ns, averages per I/O; the program's own pauses do not
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    pub ios: u64,
    pub latency: f64,
    pub p99: u64,
    /// Share of a processor, in percent.
    pub cpu: f64,
    /// Time for which a finished request lay unseen because of a sleep.
    pub unseen: f64,
    /// Time spent spinning before something was done.
    pub undersleep: f64,
    pub idle_sleeps: f64,
    pub longest_idle_sleep: u64,
    /// I/Os per second.
    pub iops: f64,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    issued: u64,
    done: u64,
    /// Sum of the program's pauses until the request was issued.
    paused: u64,
}

/// State of one simulation.
struct World<'a> {
    now: u64,
    rule: &'a mut dyn Rule,
    trace: &'a mut Trace,
    machine: Machine,
    random: Random,
    slots: Vec<Request>,
    spun: u64,
    idle_slept: u64,
    idle_sleeps: u64,
    longest: u64,
    unseen: u64,
    latencies: Vec<u64>,
    /// Sum of the program's pauses.
    paused: u64,
}

/// Runs `ios` I/Os of a trace under a rule, `depth` in flight. Each slot issues anew as soon as its
/// request is seen.
pub fn run(
    rule: &mut dyn Rule,
    trace: &mut Trace,
    machine: Machine,
    depth: usize,
    ios: usize,
) -> Outcome {
    let mut w = World {
        now: 1_000_000_000,
        rule,
        trace,
        machine,
        random: Random(7),
        slots: Vec::new(),
        spun: 0,
        idle_slept: 0,
        idle_sleeps: 0,
        longest: 0,
        unseen: 0,
        latencies: Vec::with_capacity(ios),
        paused: 0,
    };
    let start = w.now;
    for slot in 0..depth {
        w.slots.push(Request { issued: 0, done: 0, paused: 0 });
        w.issue(slot);
    }
    while w.latencies.len() < ios {
        w.turn();
    }
    let n = w.latencies.len() as f64;
    let time = (w.now - start - w.paused).max(1) as f64;
    let busy = w.spun + w.idle_sleeps * machine.cpu + w.latencies.len() as u64 * machine.submit;
    w.latencies.sort_unstable();
    Outcome {
        ios: w.latencies.len() as u64,
        latency: w.latencies.iter().sum::<u64>() as f64 / n,
        p99: w.latencies[w.latencies.len() * 99 / 100],
        cpu: (busy as f64 / time * 100.0).min(100.0),
        unseen: w.unseen as f64 / n,
        undersleep: w.spun as f64 / n,
        idle_sleeps: w.idle_sleeps as f64 / n,
        longest_idle_sleep: w.longest,
        iops: n / time * 1e9,
    }
}

impl World<'_> {
    fn issue(&mut self, slot: usize) {
        self.now += self.machine.submit;
        let next = self.trace.sample(self.now);
        let (issued, done, paused) = (self.now, self.now + next.takes, self.paused);
        self.slots[slot] = Request { issued, done, paused };
        self.rule.issued(slot, self.now);
        self.now += next.pause;
        self.paused += next.pause;
    }

    /// Polls once; then issues new requests for those found done, or waits if none is.
    fn turn(&mut self) {
        let polled = self.now;
        let only = self.rule.only();
        let seen = |slot: usize| only.is_none_or(|o| o == slot);
        let done: Vec<usize> =
            (0..self.slots.len()).filter(|&s| self.slots[s].done <= polled && seen(s)).collect();
        if done.is_empty() {
            self.wait(only);
            return;
        }
        for &slot in &done {
            let r = self.slots[slot];
            let paused = self.paused - r.paused;
            self.latencies.push((polled - r.issued).saturating_sub(paused));
            self.rule.done(slot, polled);
        }
        self.rule.begin();
        for slot in done {
            self.issue(slot);
        }
    }

    /// Does what the rule says after a poll that found nothing.
    fn wait(&mut self, only: Option<usize>) {
        let next = match only {
            Some(slot) => self.slots[slot].done,
            None => self.slots.iter().map(|r| r.done).min().unwrap_or(self.now),
        };
        match self.rule.next(self.now) {
            WaitAction::Poll => {
                let spin = next.saturating_sub(self.now).min(CHUNK);
                self.now += spin;
                self.spun += spin;
            }
            WaitAction::IdleSleep(idle_sleep) => self.idle_sleep(idle_sleep),
            WaitAction::Block => self.idle_sleep(IdleSleep { until: u64::MAX >> 1, many: 1 }),
        }
    }

    fn idle_sleep(&mut self, idle_sleep: IdleSleep) {
        let start = self.now;
        let late = self.machine.late as f64;
        let late = (late + late / 4.0 * self.random.normal()).max(0.0) as u64;
        let mut times: Vec<u64> = self.slots.iter().map(|r| r.done).collect();
        times.sort_unstable();
        let last = times.get(idle_sleep.many as usize - 1).copied().unwrap_or(u64::MAX);
        let end = idle_sleep.until.max(start) + late;
        let woken = last.max(start).saturating_add(late);
        let early = self.rule.wakes_early() && woken < end;
        self.now = if early { woken } else { end };
        let unseen = |r: &Request| self.now.saturating_sub(r.done.max(start));
        self.unseen += self.slots.iter().map(unseen).sum::<u64>();
        self.idle_sleeps += 1;
        self.idle_slept += self.now - start;
        self.longest = self.longest.max(self.now - start);
        self.rule.woke(self.now, early);
    }
}
