//! Predictor for a program that submits at a steady rate and keeps to it when it is delayed: a
//! submission then comes late, but the next one comes at its own time. Pure code, like
//! `idle_sleep`.
//!
//! Gaps do not show this. A late submission makes one gap longer and the next shorter, and if one
//! in twenty is late, gaps are of all sizes:
//!
//! ```text
//! periods       │         │         │         │         │
//! submissions   x         x            x      x         x
//! gaps               10         13        7       10
//! ```

/// Submissions on time after which a period is used, and the most that are counted.
const STEADY: u32 = 32;
const MOST: u32 = 64;
/// Submissions on time that one off time cancels.
const OFF: u32 = 2;
/// Part of the period within which a submission is on time.
const NEAR: u64 = 8;
/// Periods without a submission after which the program is taken to do something else. Until then
/// the thread polls after a missed one: a delayed program should not wait for us, too.
const LOST: u64 = 8;
/// Part of the period by which the thread wakes earlier after a submission that came during a
/// sleep, and part of that lead that is forgotten with each on-time one.
const EARLIER: u64 = 64;
const FORGET: u64 = 512;

/// State of the predictor; see the module. All times are in ns of one clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeriodPredictor {
    period: u64,
    /// Time of the last submission on time.
    at: u64,
    /// Time of the last submission.
    last: u64,
    on_time: u32,
    /// Time by which the thread wakes before the next submission is due.
    early: u64,
}

/// Advice for the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Be awake from this time on.
    AwakeAt(u64),
    /// Poll until this time.
    PollUntil(u64),
}

impl PeriodPredictor {
    /// Learns from a submission that was seen as it came.
    pub(super) fn arrived(&mut self, now: u64) {
        let gap = now.saturating_sub(core::mem::replace(&mut self.last, now));
        let since = now.saturating_sub(self.at);
        let periods = (since + self.period / 2).checked_div(self.period).unwrap_or(0);
        let off = since.abs_diff(periods * self.period);
        if (1..=LOST).contains(&periods) && off <= self.period / NEAR {
            self.at = now;
            self.early -= self.early / FORGET;
            // Twice the period would be a period, too: only the next submission tells.
            if periods == 1 {
                self.on_time = (self.on_time + 1).min(MOST);
                self.period = self.period - self.period / 16 + since / 16;
                return;
            }
            if self.on_time > 0 {
                return;
            }
        }
        self.on_time = self.on_time.saturating_sub(OFF);
        if self.on_time == 0 || periods > LOST {
            *self = PeriodPredictor { period: gap, at: now, last: now, on_time: 0, early: 0 };
        }
    }

    /// Learns from a submission that a sleep found at its end: on time, as far as is known.
    pub(super) fn woke_late(&mut self, now: u64) {
        self.last = now;
        let periods = now.saturating_sub(self.at).checked_div(self.period).unwrap_or(0);
        self.at += periods * self.period;
        self.early = (self.early + self.period / EARLIER).min(self.period / 2);
        self.on_time = self.on_time.saturating_sub(1);
    }

    /// Learns from `events` submissions found at the end of a sleep: the program was delayed, or
    /// has become quicker.
    pub(super) fn less_certain(&mut self, events: u32) {
        self.on_time = self.on_time.saturating_sub(MOST / 16 * events);
    }

    /// Returns the advice at `now`; `None`: there is no period.
    pub(super) fn next(&self, now: u64) -> Option<Advice> {
        let since = now.checked_sub(self.at)?;
        let periods = since.checked_div(self.period)?;
        if self.on_time < STEADY || periods >= LOST {
            return None;
        }
        let next = self.at + (periods + 1) * self.period;
        let met = self.last >= next - self.period - self.period / NEAR;
        let advice = if met { Advice::AwakeAt(next - self.early) } else { Advice::PollUntil(next) };
        Some(advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(period: &mut PeriodPredictor, from: u64, n: u64) -> u64 {
        (0..n).for_each(|i| period.arrived(from + i * 1000));
        from + n * 1000
    }

    #[test]
    fn late_requests_do_not_change_the_period() {
        let mut period = PeriodPredictor::default();
        assert_eq!(period.next(5), None);
        let next = steady(&mut period, 10_000, 60);
        assert_eq!(period.next(next - 900), Some(Advice::AwakeAt(next)));
        // No submission comes: the thread polls. Once one has come, the next period counts.
        assert_eq!(period.next(next + 100), Some(Advice::PollUntil(next + 1000)));
        period.arrived(next + 400);
        assert_eq!(period.next(next + 410), Some(Advice::AwakeAt(next + 1000)));
        period.arrived(next + 1000);
        assert_eq!(period.next(next + 1100), Some(Advice::AwakeAt(next + 2000)));
        // After too many periods without a submission there is no advice.
        assert_eq!(period.next(next + 9500), None);
    }

    #[test]
    fn half_of_a_period_is_not_a_period() {
        let mut period = PeriodPredictor::default();
        period.arrived(100);
        period.arrived(600);
        let next = steady(&mut period, 1600, 50);
        assert_eq!(period.next(next - 900), Some(Advice::AwakeAt(next)));
    }

    #[test]
    fn irregular_arrivals_have_no_period() {
        let (mut period, mut now, mut seed) = (PeriodPredictor::default(), 0, 1u64);
        for _ in 0..5000 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            now += 1 + (seed >> 33) % 2000;
            period.arrived(now);
            assert_eq!(period.next(now + 1), None);
        }
    }

    #[test]
    fn late_wake_ups_move_the_target_forward() {
        let mut period = PeriodPredictor::default();
        let next = steady(&mut period, 10_000, 80);
        period.woke_late(next + 50);
        assert_eq!(period.next(next + 60), Some(Advice::AwakeAt(next + 1000 - 1000 / 64)));
    }
}
