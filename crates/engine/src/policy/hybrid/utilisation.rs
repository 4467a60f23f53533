//! Estimator of whether a device is busy without a gap. On such a device, a request submitted a
//! little later is done no later: as long as its queue does not run empty, completions may be
//! coalesced, many to a sleep. On a device that works on requests in parallel, each moment that a
//! completion stays unseen is lost.
//!
//! Requests submitted at one moment show the difference. In parallel, they complete together, in
//! any order. In series, they complete in order, one service time apart; if that time is the mean
//! time between any two completions, the device had no gap. So now and then one batch is watched by
//! polling as it completes, and a line is fitted to its times by position:
//!
//! ```text
//! done ▲          · ·                     slope: the service time
//!      │      · ·      busy = slope / mean time between completions:
//!      │  · ·          no rule could gain more than 1 - busy
//!      └──────────▶ position in the batch
//! ```
//!
//! Noise has no order, so it yields no line. A device must show again and again that it is busy: a
//! sleep coalesces a sixteenth of the queue at first, and every step further, up to
//! [`COALESCE_SHARE`], needs a batch that was watched since the last. A batch without a line, or
//! with gaps, takes a step back, or all of them.

use super::flight::InFlight;

/// Part of a kind's requests in flight that a sleep may coalesce, at most; none stays unseen for
/// longer than this part of a request's time.
pub const COALESCE_SHARE: u64 = 4;
/// Parts that a sleep may coalesce, step by step.
const STEPS: [u64; 3] = [16, 8, COALESCE_SHARE];
/// Smallest batch that is worth watching.
const BATCH_MIN: u32 = 4;
/// Smallest batch that needs no second one to confirm it.
const BATCH_SURE: u32 = 24;
/// Utilisations: from the first on, a device has no gaps that matter; below the second, it has.
const BUSY: [f64; 2] = [0.92, 0.88];
/// Least correlation of times and positions that counts as a line; the second for batches of fewer
/// than [`BATCH_FEW`].
const STRAIGHT: [f64; 2] = [0.9, 0.95];
const BATCH_FEW: u32 = 8;
/// Limit of one batch's utilisation, and number of batches over which the mean is taken.
const BUSY_MOST: f64 = 2.0;
const WEIGHT: u8 = 8;
/// Batches in a row without a result after which all steps are taken back.
const MISSES: u8 = 4;
/// Sleeps between two watched batches while the step does not change: watching takes as much
/// processor time as a sleep lasts.
const WATCH_EVERY: u32 = 32;
/// Pause between two trials of a device not known to be busy, in request times; it doubles from the
/// first bound to the second as long as trials are in vain.
const TRY_EVERY: core::ops::RangeInclusive<u64> = 64..=1024;

/// Least-squares fit of points added one by one.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    n: u32,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        self.n += 1;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
        self.yy += y * y;
    }

    /// Returns slope and correlation.
    fn fit(&self) -> Option<(f64, f64)> {
        let n = f64::from(self.n);
        let (dx, dy) = (self.xx - self.x * self.x / n, self.yy - self.y * self.y / n);
        let both = self.xy - self.x * self.y / n;
        (dx > 0.0 && dy > 0.0).then(|| (both / dx, both / softring_host::math::sqrt(dx * dy)))
    }
}

/// A watched batch until it has completed.
#[derive(Clone, Copy, Debug)]
struct Watch {
    batch: u32,
    /// Times at which its first and last request were submitted.
    issued: [u64; 2],
    size: u32,
    seen: u32,
    /// Time at which its first completion was seen.
    first: u64,
    /// Requests in flight that were submitted before it.
    ahead: u32,
    line: Line,
}

/// Estimator of a device's utilisation, from a class of requests. Times in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utilisation {
    flying: u32,
    /// Batch that was submitted last, and its size so far.
    batch: u32,
    size: u32,
    begun: u64,
    /// Requests of that batch that are done.
    back: u32,
    watch: Option<Watch>,
    /// Begin of the counting of completions, and their number.
    since: u64,
    count: u32,
    /// Time of the last completion.
    last: u64,
    /// Mean time between two completions.
    interval: u64,
    /// Number of [`STEPS`] taken.
    step: u8,
    /// Utilisation of the device, and the number of batches that showed it.
    busy: f64,
    shown: u8,
    missed: u8,
    /// Sleeps since the last one with a watched batch.
    idle_sleeps: u32,
    /// Time of the last trial sleep, and the pause before the next one.
    tried: u64,
    pause: u64,
    /// Flag, set while a trial's batch is in flight.
    trying: bool,
}

impl Utilisation {
    /// Registers a request submitted in a batch; returns its position in the batch.
    pub(super) fn issued(&mut self, batch: u32, now: u64) -> u32 {
        if self.flying == 0 {
            (self.since, self.count, self.watch) = (0, 0, None);
        }
        if batch != self.batch || self.size == 0 {
            (self.batch, self.size, self.back, self.begun) = (batch, 0, 0, now);
        }
        let place = self.size;
        (self.flying, self.size) = (self.flying + 1, place + 1);
        match &mut self.watch {
            Some(watch) if watch.batch == batch => (watch.size, watch.issued[1]) = (self.size, now),
            None if self.size == BATCH_MIN
                && (self.step == 0 || self.idle_sleeps >= WATCH_EVERY) =>
            {
                let ahead = (self.flying + self.back).saturating_sub(self.size);
                let (issued, line) = ([self.begun, now], Line::default());
                let (size, seen) = (self.size, self.back);
                self.watch = Some(Watch { batch, issued, size, seen, first: now, ahead, line });
            }
            _ => {}
        }
        place
    }

    /// Registers a request that is done, or gone; `close`: polling found it done.
    pub(super) fn done(&mut self, request: &InFlight, now: u64, close: bool) {
        self.absent(now);
        self.flying = self.flying.saturating_sub(1);
        match self.since {
            0 => self.restart(now),
            _ => self.count = self.count.saturating_add(1),
        }
        self.back += u32::from(request.batch == self.batch);
        let Some(watch) = &mut self.watch else { return };
        if watch.batch != request.batch {
            watch.ahead = watch.ahead.saturating_sub(1);
            return;
        }
        if watch.seen == 0 {
            watch.first = now;
        }
        watch.seen += 1;
        if close {
            let after = now.saturating_sub(watch.issued[0]);
            watch.line.add(f64::from(request.position), after as f64);
        }
        // The rest of the batch may never complete.
        let most = watch.seen >= watch.size - watch.size / 8;
        if most && (watch.batch != self.batch || watch.seen >= watch.size) {
            let watch = *watch;
            self.judge(&watch, now);
        }
    }

    /// Discards a gap longer than all requests in flight could take: the thread was kept from
    /// polling, which says nothing about the device.
    fn absent(&mut self, now: u64) {
        let gap = now.saturating_sub(core::mem::replace(&mut self.last, now));
        let all = u64::from(self.flying).saturating_mul(self.interval);
        if self.count > 0 && self.interval > 0 && gap > all.saturating_add(all / 2) {
            self.since = self.since.saturating_add(gap - self.interval);
            self.watch = None;
        }
    }

    fn restart(&mut self, now: u64) {
        (self.since, self.count) = (now, 0);
    }

    /// Judges a batch that has completed.
    fn judge(&mut self, watch: &Watch, now: u64) {
        (self.watch, self.trying) = (None, false);
        // Requests found after a sleep show nothing, nor do those submitted as slowly as they
        // completed.
        let span = watch.issued[1].saturating_sub(watch.issued[0]);
        let came = now.saturating_sub(watch.first);
        let many = watch.line.n >= BATCH_MIN && watch.line.n >= watch.size / 2;
        let straight = STRAIGHT[usize::from(watch.line.n < BATCH_FEW)];
        let fit = watch.line.fit().filter(|&(_, r)| r >= straight);
        // At a step above 0, a single batch without a line can be the fault of the polling thread.
        let conclusive = many && span <= came / 3 && (fit.is_some() || self.step == 0);
        if !conclusive {
            self.missed += 1;
            if self.missed >= MISSES {
                (self.step, self.shown, self.missed) = (0, 0, 0);
            }
            return;
        }
        let interval = self.interval_now(now);
        let busy = fit.map_or(0.0, |(slope, _)| slope / interval as f64).clamp(0.0, BUSY_MOST);
        let first = self.shown == 0;
        let sure = if watch.line.n >= BATCH_SURE { 2 } else { 1 };
        self.shown = (self.shown + sure).min(WEIGHT);
        self.busy =
            if first { busy } else { self.busy + (busy - self.busy) / f64::from(self.shown) };
        self.missed = 0;
        self.interval = interval;
        self.restart(now);
        let before = self.step;
        let [up, down] = BUSY.map(|b| self.busy >= b);
        match () {
            () if up && self.shown > 1 => self.step = (before + 1).min(STEPS.len() as u8),
            () if down => {}
            // The device was busy at another step, or by chance.
            () => (self.step, self.shown) = (before.saturating_sub(1), 0),
        }
        // A changed step is watched at once; a first sign of a busy device is tried again at once.
        self.idle_sleeps = if self.step == before { 0 } else { WATCH_EVERY };
        if self.step > 0 {
            self.pause = 0;
        } else if up {
            self.tried = 0;
        }
    }

    /// Returns whether the thread must poll, because a watched batch is next.
    pub(super) fn watches(&self, oldest: &InFlight) -> bool {
        let next = |w: &Watch| w.batch == oldest.batch || w.seen > 0;
        (self.step > 0 || self.trying) && self.watch.as_ref().is_some_and(next)
    }

    /// Returns the time for which completions may be coalesced at `now`, if a request takes `mean`
    /// and sleeps up to `least` are not worth it; 0: not at all.
    pub(super) fn coalesces(&self, now: u64, mean: u64, least: u64) -> u64 {
        let interval = self.interval(now);
        let all = u64::from(self.flying).saturating_mul(interval).min(mean);
        // A batch to be watched must not be slept through.
        let ahead = self.watch.filter(|_| self.step > 0).map_or(u32::MAX, |w| w.ahead);
        let before = u64::from(ahead).saturating_mul(interval);
        match self.step {
            0 if self.tries(now, mean) => all / COALESCE_SHARE,
            0 => 0,
            step => {
                let shares = STEPS[usize::from(step) - 1..].iter();
                let mut times = shares.map(|share| (all / share).min(before));
                times.find(|time| *time > least).unwrap_or(0)
            }
        }
    }

    /// Returns whether it is time to try the device.
    fn tries(&self, now: u64, mean: u64) -> bool {
        let pause = mean.saturating_mul(self.pause.max(*TRY_EVERY.start()));
        let due = now.saturating_sub(self.tried) >= pause && self.watch.is_none();
        due && self.flying >= COALESCE_SHARE as u32 * BATCH_MIN && self.count >= self.flying
    }

    fn interval(&self, now: u64) -> u64 {
        if self.step == 0 { self.interval_now(now) } else { self.interval.max(1) }
    }

    fn interval_now(&self, now: u64) -> u64 {
        (now.saturating_sub(self.since) / u64::from(self.count.max(1))).max(1)
    }

    /// Returns the number of completions expected in `time`.
    pub(super) fn come_in(&self, now: u64, time: u64) -> u64 {
        time / self.interval(now)
    }

    /// Registers a sleep that coalesces completions.
    pub(super) fn coalescing(&mut self, now: u64, mean: u64) {
        self.idle_sleeps = self.idle_sleeps.saturating_add(1);
        if self.step == 0 && self.tries(now, mean) {
            let pause = (self.pause * 2).clamp(*TRY_EVERY.start(), *TRY_EVERY.end());
            (self.tried, self.pause, self.trying) = (now, pause, true);
            self.restart(now);
        }
    }
}
