//! Decides whether an SQ thread that has found nothing should poll again at once or sleep. Pure
//! code: no clock and no system call; times are passed in.
//!
//! The policy learns the gaps between submissions, as a histogram by size. The next submission is
//! expected at the shortest of the gaps that are longer than the time since the last submission,
//! some outliers aside. The thread sleeps until shortly before that, and then polls without a
//! pause:
//!
//! ```text
//! last ─────────────────────────────────────▶ next submission
//!        work │ sleep ─────▶ │ lead │ polls …
//!             until an absolute time, less the lateness of a timer on this machine
//! ```
//!
//! So the thread is awake when a steady program submits. For a program that submits in bursts, it
//! polls after a short gap and after a long gap. If gaps are of all sizes, or shorter than a sleep
//! is worth, the thread spins. If gaps as long as the current one are unknown, it sleeps for a
//! share of the time that has passed, so that a submission waits at most for that share.
//!
//! If submissions have a period (`period`), the period gives the next one's time.
//!
//! A submission during a sleep shows only that the sleep was too long: the length of the gap is not
//! known. If the wake-up time were taken for it, the next sleep would be longer, and so on for
//! ever. It counts as a gap shorter than the sleep. No sleep is longer than [`IDLE_SLEEP_MAX`].

use super::period::{Advice, PeriodPredictor};
use crate::policy::hybrid::Timer;

/// Longest sleep, in ns: an unexpected submission is found after this time at the latest.
pub(crate) const IDLE_SLEEP_MAX: u64 = 1_000_000;
/// Longest sleep if gaps so long are unknown, in ns.
const UNKNOWN_MAX: u64 = 250_000;
/// Part of the time passed that the thread sleeps if gaps so long are unknown.
const UNKNOWN_SHARE: u64 = 8;
/// One submission in this many may come during a sleep.
const MISSES: u32 = 256;
/// Number of gaps that must have been seen to count.
const KNOWN: u32 = 16;
/// Multiple of the longest known gap up to which the thread polls for a late submission.
const OVERDUE: u64 = 2;
/// Number of gaps at which all counts are halved.
const FULL: u32 = 2048;
/// Buckets per doubling, and exponent of the first: 2^10 ns.
const SUB: u32 = 3;
const FIRST: u32 = 10;
/// Number of buckets: up to 2^30 ns, a second.
const BUCKETS: usize = (30 - FIRST as usize) << SUB;

/// Action after a poll that has found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqAction {
    Poll,
    /// Sleep until this time.
    IdleSleep(u64),
}

/// One SQ thread's view of its submissions. All times are in ns of one clock.
#[derive(Debug)]
pub(crate) struct IdleSleeps {
    pub(crate) timer: Timer,
    /// Gaps seen, by size.
    gaps: [u16; BUCKETS],
    seen: u32,
    period: PeriodPredictor,
    /// Time of the last submission.
    last: u64,
    /// Usual number of SQEs per submission, times 16.
    batch: u64,
    /// Time until which there is nothing to decide.
    poll_until: u64,
    /// Begin and planned end of a sleep, until it is known whether a submission came meanwhile.
    idle_sleep: Option<(u64, u64)>,
    pub(crate) tally: Tally,
}

/// Results of sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) idle_sleeps: u64,
    /// Sleeps that found submissions.
    pub(crate) over: u64,
    /// Time spent in sleeps, in ns.
    pub(crate) slept: u64,
}

fn bucket(gap: u64) -> usize {
    let gap = gap.max(1 << FIRST);
    let top = gap.ilog2();
    let at = ((top - FIRST) << SUB) + ((gap >> (top - SUB)) as u32 & ((1 << SUB) - 1));
    (at as usize).min(BUCKETS - 1)
}

/// Returns the shortest gap of a bucket.
fn edge(bucket: usize) -> u64 {
    let (top, part) = (bucket >> SUB, bucket as u64 & ((1 << SUB) - 1));
    ((1 << SUB) + part) << (top + FIRST as usize - SUB as usize)
}

impl IdleSleeps {
    pub(crate) fn new(timer: Timer) -> IdleSleeps {
        IdleSleeps {
            timer,
            gaps: [0; BUCKETS],
            seen: 0,
            period: PeriodPredictor::default(),
            last: 0,
            batch: 16,
            poll_until: 0,
            idle_sleep: None,
            tally: Tally::default(),
        }
    }

    fn learn(&mut self, gap: u64, times: u32) {
        let count = &mut self.gaps[bucket(gap)];
        *count = count.saturating_add(times as u16);
        self.seen += times;
        if self.seen >= FULL {
            self.gaps.iter_mut().for_each(|n| *n /= 2);
            self.seen = self.gaps.iter().map(|n| u32::from(*n)).sum();
        }
    }

    /// Learns from a poll at `now` that has found `sqes` new SQEs.
    pub(crate) fn found(&mut self, sqes: u32, now: u64) {
        let last = self.last;
        (self.last, self.poll_until) = (now, 0);
        let Some((begin, end)) = self.idle_sleep.take() else {
            if last > 0 {
                self.batch = (self.batch * 15 / 16 + u64::from(sqes)).max(16);
                self.learn(now.saturating_sub(last), 1);
            }
            self.period.arrived(now);
            return;
        };
        self.tally.over += 1;
        let usual = (self.batch / 16).max(1) as u32;
        let events = (sqes / usual).clamp(1, 64);
        if events > 1 {
            self.period.less_certain(events);
            // The first and the last of them cannot be further apart than the sleep.
            self.learn(now.saturating_sub(begin) / u64::from(events), events - 1);
        } else {
            self.period.woke_late(now);
        }
        if now.saturating_sub(end) < 8 * self.timer.lead() {
            // A delay by others than the timer would have happened after a shorter sleep, too.
            let [begin, end] = [begin, end.min(now)].map(|at| at.saturating_sub(last));
            self.learn(begin.max(end - end / 8), 1);
        }
    }

    /// Returns the action after a poll at `now` that has found nothing.
    pub(crate) fn next(&mut self, now: u64) -> SqAction {
        self.idle_sleep = None;
        if now < self.poll_until {
            return SqAction::Poll;
        }
        if self.last == 0 {
            self.last = now;
        }
        let passed = now.saturating_sub(self.last);
        // Up to the end of the current bucket.
        let mut poll_until =
            self.last + edge((bucket(passed) + 1).min(BUCKETS - 1)).max(passed + 1);
        let until = match self.period.next(now) {
            Some(Advice::PollUntil(until)) => {
                self.poll_until = until;
                return SqAction::Poll;
            }
            Some(Advice::AwakeAt(until)) => {
                poll_until = until.max(now);
                until
            }
            None => self.expected(now, passed),
        };
        let until = until.clamp(now, now + IDLE_SLEEP_MAX);
        if self.timer.worth(until - now) {
            let until = until - self.timer.lead();
            self.idle_sleep = Some((now, until));
            self.tally.idle_sleeps += 1;
            return SqAction::IdleSleep(until);
        }
        self.poll_until = poll_until;
        SqAction::Poll
    }

    /// Returns the time at which the next submission may come, by the gaps longer than the time
    /// passed.
    fn expected(&self, now: u64, passed: u64) -> u64 {
        let from = bucket(passed);
        let rest: u32 = self.gaps[from..].iter().map(|n| u32::from(*n)).sum();
        let until = if rest < KNOWN && passed < OVERDUE * self.longest() {
            None
        } else if rest < KNOWN {
            let share = (passed / UNKNOWN_SHARE).min(UNKNOWN_MAX);
            (share > self.timer.lead()).then(|| now + share)
        } else {
            let due = edge(self.due(from, rest));
            self.last.checked_add(due)
        };
        until.unwrap_or(now)
    }

    /// Returns the longest known gap; 0: none is known.
    fn longest(&self) -> u64 {
        let mut sum = 0;
        let known = self.gaps.iter().enumerate().rev().find(|(_, n)| {
            sum += u32::from(**n);
            sum >= KNOWN
        });
        known.map_or(0, |(at, _)| edge(at))
    }

    /// Returns the first bucket from `from` on in which the next submission is likely.
    fn due(&self, from: usize, rest: u32) -> usize {
        let mut sum = 0;
        for (at, n) in self.gaps.iter().enumerate().skip(from) {
            sum += u32::from(*n);
            if sum > 1 && sum * MISSES > rest {
                return at;
            }
        }
        from
    }

    /// Ends a sleep; `timer`: because its time was over.
    pub(crate) fn woke(&mut self, now: u64, timer: bool) {
        let Some((begin, end)) = self.idle_sleep else { return };
        self.tally.slept += now.saturating_sub(begin);
        if timer {
            self.timer.woke_late(now.saturating_sub(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_edges() {
        assert_eq!((bucket(0), edge(0)), (0, 1024));
        for at in 0..BUCKETS - 1 {
            assert_eq!((bucket(edge(at)), bucket(edge(at + 1) - 1)), (at, at));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// Result of a run.
    struct Run {
        /// Share of the time spent awake.
        cpu: f64,
        /// Delays of submissions, sorted.
        delays: Vec<u64>,
    }

    impl Run {
        fn delay(&self, part: f64) -> u64 {
            self.delays[((self.delays.len() - 1) as f64 * part) as usize]
        }
    }

    /// Plays arrivals at the given gaps; a sleep takes `late` ns more than asked, of which `cpu`
    /// count as used. The second half is measured.
    fn play(gaps: &[u64], late: u64, cpu: u64) -> Run {
        const PASS: u64 = 100;
        const WORK: u64 = 2_000;
        let mut idle_sleeps = IdleSleeps::new(Timer::measured(&[late], cpu));
        let mut arrivals = Vec::new();
        gaps.iter().fold(0, |at, gap| {
            arrivals.push(at + gap);
            at + gap
        });
        let (mut now, mut next, mut slept, mut begun) = (0, 0, 0, 0);
        let mut delays = Vec::new();
        while next < arrivals.len() {
            let due = arrivals[next..].iter().take_while(|at| **at <= now).count();
            if next <= arrivals.len() / 2 {
                (slept, begun) = (0, now);
                delays.clear();
            }
            if due > 0 {
                idle_sleeps.found(due as u32, now);
                delays.extend(arrivals[next..next + due].iter().map(|at| now - at));
                next += due;
                now += WORK;
                continue;
            }
            match idle_sleeps.next(now) {
                SqAction::Poll => now += PASS,
                SqAction::IdleSleep(until) => {
                    let end = until.max(now) + late;
                    assert!(end - now <= IDLE_SLEEP_MAX + late);
                    slept += (end - now).saturating_sub(cpu);
                    now = end;
                    idle_sleeps.woke(now, true);
                }
            }
        }
        delays.sort_unstable();
        Run { cpu: 1.0 - slept as f64 / (now - begun) as f64, delays }
    }

    /// Returns the next number below `n` of a simple generator.
    fn random(seed: &mut u64, n: u64) -> u64 {
        *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (*seed >> 33) % n
    }

    fn steady(gap: u64, jitter: u64) -> Vec<u64> {
        let mut seed = 7;
        (0..6000).map(|_| gap - jitter / 2 + random(&mut seed, jitter.max(1))).collect()
    }

    #[test]
    fn the_thread_is_awake_for_a_steady_program() {
        for (gap, most) in [(500_000, 0.2), (100_000, 0.35), (50_000, 0.5)] {
            let run = play(&steady(gap, gap / 50), 5_000, 3_000);
            assert!(run.cpu < most, "{gap}: {}", run.cpu);
            assert!(run.delay(0.99) <= 2_000, "{gap}: {}", run.delay(0.99));
        }
    }

    #[test]
    fn the_thread_copes_with_occasional_delays() {
        // One in ten submissions is late, by up to three periods; the next comes at its own time.
        const PERIOD: u64 = 500_000;
        let (mut seed, mut free, mut last, mut gaps) = (5, 0, 0, Vec::new());
        for due in (1..12_000).map(|n| n * PERIOD) {
            let held_up = random(&mut seed, 10) == 0;
            let late =
                if held_up { random(&mut seed, 3 * PERIOD) } else { random(&mut seed, 2_000) };
            free = due.max(free) + late;
            gaps.push(free - last);
            last = free;
        }
        let run = play(&gaps, 40_000, 30_000);
        assert!(run.cpu < 0.45, "{}", run.cpu);
        assert!(run.delay(0.95) <= 2_000, "{}", run.delay(0.95));
    }

    #[test]
    fn expensive_sleeps_lead_to_spinning() {
        let run = play(&steady(20_000, 500), 30_000, 30_000);
        assert!(run.cpu > 0.99 && run.delay(0.99) <= 2_000, "{} {}", run.cpu, run.delay(0.99));
    }

    #[test]
    fn with_irregular_gaps_few_requests_come_during_a_sleep() {
        let mut seed = 3;
        let uniform: Vec<u64> = (0..6000).map(|_| random(&mut seed, 1_000_000)).collect();
        let run = play(&uniform, 5_000, 3_000);
        assert!(run.delay(0.97) <= 2_000, "{}", run.delay(0.97));
    }

    #[test]
    fn the_thread_is_awake_at_the_start_of_bursts() {
        let gaps: Vec<u64> =
            (0..12_000).map(|n| if n % 10 == 0 { 10_000_000 } else { 5_000 }).collect();
        let run = play(&gaps, 5_000, 3_000);
        assert!(run.cpu < 0.2, "{}", run.cpu);
        assert!(run.delay(0.99) <= 5_000, "{}", run.delay(0.99));
    }

    #[test]
    fn a_faster_program_shortens_sleeps() {
        let gaps: Vec<u64> = steady(500_000, 0).into_iter().chain(steady(20_000, 0)).collect();
        let run = play(&gaps, 5_000, 3_000);
        assert!(run.delay(0.98) <= 3_000, "{}", run.delay(0.98));
        // And slow again.
        let gaps: Vec<u64> = steady(20_000, 0).into_iter().chain(steady(500_000, 0)).collect();
        let run = play(&gaps, 5_000, 3_000);
        assert!(run.cpu < 0.25 && run.delay(0.97) <= 2_000, "{} {}", run.cpu, run.delay(0.97));
    }

    #[test]
    fn late_sleeps_are_shortened() {
        // The timer is estimated as quicker than it is.
        let mut idle_sleeps = IdleSleeps::new(Timer::measured(&[1_000], 1_000));
        let mut now = 1;
        let mut over = 0;
        for n in 0..6000 {
            idle_sleeps.found(1, now);
            let next = now + 300_000;
            now += 2_000;
            while now < next {
                now = match idle_sleeps.next(now) {
                    SqAction::Poll => now + 100,
                    SqAction::IdleSleep(until) => {
                        let end = until.max(now) + 25_000;
                        idle_sleeps.woke(end, true);
                        over += u32::from(end > next + 100 && n > 3000);
                        end
                    }
                };
            }
        }
        assert!(over < 60, "{over}");
    }
}
