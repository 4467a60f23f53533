//! Is a device busy without a gap? Then what is submitted a little later is done no later: as long
//! as its queue does not run empty, completions may be coalesced, many to a sleep. Where requests
//! are worked on side by side instead, each moment that one lies unseen is lost.
//!
//! What is submitted at one moment tells. Side by side, it comes back together, in any order. One
//! after the other, it comes back in order, one service time apart; and if that time is the time
//! between any two completions, then the device had no other. So one batch now and then is watched
//! on its way back, by polling, and a line is laid through its times over its places:
//!
//! ```text
//! done ▲          · ·                     slope: the service time
//!      │      · ·      busy = slope / mean time between completions:
//!      │  · ·          no rule could gain more than 1 - busy
//!      └──────────▶ place in the batch
//! ```
//!
//! Noise has no order, so it lays no line. Whoever claims that a device is busy must show it again:
//! a sleep coalesces a sixteenth of the queue at first, and every step further, up to
//! [`COALESCE_SHARE`], wants a batch that was watched since the last. One that shows no line, or
//! gaps, takes a step back, or all of them.

use super::flight::InFlight;

/// A sleep may coalesce one part in so many of a kind's requests in flight, at most; none of them
/// lies unseen for longer than such a part of what one takes.
pub const COALESCE_SHARE: u64 = 4;
/// The steps towards it, as such shares.
const STEPS: [u64; 3] = [16, 8, COALESCE_SHARE];
/// Fewest requests of a batch that are worth watching.
const BATCH_MIN: u32 = 4;
/// One of so many needs no second to be believed.
const BATCH_SURE: u32 = 24;
/// A device that works for so much of the time has no gaps that would count; from the second on it
/// has.
const BUSY: [f64; 2] = [0.92, 0.88];
/// What has a line through it: the least correlation of times and places, the second of fewer than
/// so many.
const STRAIGHT: [f64; 2] = [0.9, 0.95];
const BATCH_FEW: u32 = 8;
/// One batch counts as so much at most, and one part in so many, once so many were seen.
const BUSY_MOST: f64 = 2.0;
const WEIGHT: u8 = 8;
/// Batches in a row that were missed when they came are a sign, too.
const MISSES: u8 = 4;
/// The part of sleeps whose batch is watched at the last step: the processor time that this
/// takes is as long as a sleep.
const WATCH_EVERY: u32 = 32;
/// A device that was not known to be busy is tried by one sleep in so many times what a request
/// takes; the pause doubles as long as it is in vain, up to the second.
const TRY_EVERY: core::ops::RangeInclusive<u64> = 64..=1024;

/// Least squares, one point after the other.
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

    /// Slope, and correlation.
    fn fit(&self) -> Option<(f64, f64)> {
        let n = f64::from(self.n);
        let (dx, dy) = (self.xx - self.x * self.x / n, self.yy - self.y * self.y / n);
        let both = self.xy - self.x * self.y / n;
        (dx > 0.0 && dy > 0.0).then(|| (both / dx, both / softring_host::math::sqrt(dx * dy)))
    }
}

/// A batch on its way back.
#[derive(Clone, Copy, Debug)]
struct Watch {
    batch: u32,
    /// When the first and the last of it were submitted.
    issued: [u64; 2],
    size: u32,
    seen: u32,
    /// When the first was seen.
    first: u64,
    /// Requests in flight that were submitted before it.
    ahead: u32,
    line: Line,
}

/// Estimates how much of the time a device works, from a class of requests. Times in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utilisation {
    flying: u32,
    /// The batch that was submitted last, and its size so far.
    batch: u32,
    size: u32,
    begun: u64,
    /// Requests of that batch that are back.
    back: u32,
    watch: Option<Watch>,
    /// Completions since a moment.
    since: u64,
    count: u32,
    /// The last one.
    last: u64,
    /// Mean time between two of them.
    interval: u64,
    /// How many of [`STEPS`] are taken.
    step: u8,
    /// The part of the time in which the device works, by how many batches.
    busy: f64,
    shown: u8,
    missed: u8,
    /// Sleeps since the last one whose batch was watched.
    idle_sleeps: u32,
    /// The last sleep to try the device by, and the pause before the next one.
    tried: u64,
    pause: u64,
    /// A trial's batch is on its way.
    trying: bool,
}

impl Utilisation {
    /// A request is submitted, in a batch of that number; its place in it.
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

    /// One is done, or gone; `close`: it was caught by polling.
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
            watch.line.add(f64::from(request.place), after as f64);
        }
        // Whoever is still to come may never do.
        let most = watch.seen >= watch.size - watch.size / 8;
        if most && (watch.batch != self.batch || watch.seen >= watch.size) {
            let watch = *watch;
            self.judge(&watch, now);
        }
    }

    /// Nothing was seen for longer than all in flight could take: the thread was kept from polling,
    /// which tells nothing of the device.
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

    /// The batch has come back.
    fn judge(&mut self, watch: &Watch, now: u64) {
        (self.watch, self.trying) = (None, false);
        // What was found after a sleep tells nothing; nor what was submitted as slowly as it came.
        let span = watch.issued[1].saturating_sub(watch.issued[0]);
        let came = now.saturating_sub(watch.first);
        let many = watch.line.n >= BATCH_MIN && watch.line.n >= watch.size / 2;
        let straight = STRAIGHT[usize::from(watch.line.n < BATCH_FEW)];
        let fit = watch.line.fit().filter(|&(_, r)| r >= straight);
        // At some step a single crooked line can be the fault of the thread that polls.
        let told = many && span <= came / 3 && (fit.is_some() || self.step == 0);
        if !told {
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
            // What it was at another step, or by chance.
            () => (self.step, self.shown) = (before.saturating_sub(1), 0),
        }
        // What has changed is watched at once; what was shown once is tried again at once.
        self.idle_sleeps = if self.step == before { 0 } else { WATCH_EVERY };
        if self.step > 0 {
            self.pause = 0;
        } else if up {
            self.tried = 0;
        }
    }

    /// Must the thread poll, as a watched batch is next?
    pub(super) fn watches(&self, oldest: &InFlight) -> bool {
        let next = |w: &Watch| w.batch == oldest.batch || w.seen > 0;
        (self.step > 0 || self.trying) && self.watch.as_ref().is_some_and(next)
    }

    /// For how long completions may be coalesced at `now`, if one takes `mean`, and a sleep that is
    /// no longer than `least` is none; 0: not at all.
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

    /// Is it time to try the device?
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

    /// How many come in `time`.
    pub(super) fn come_in(&self, now: u64, time: u64) -> u64 {
        time / self.interval(now)
    }

    /// A sleep to coalesce them is taken.
    pub(super) fn coalescing(&mut self, now: u64, mean: u64) {
        self.idle_sleeps = self.idle_sleeps.saturating_add(1);
        if self.step == 0 && self.tries(now, mean) {
            let pause = (self.pause * 2).clamp(*TRY_EVERY.start(), *TRY_EVERY.end());
            (self.tried, self.pause, self.trying) = (now, pause, true);
            self.restart(now);
        }
    }
}
