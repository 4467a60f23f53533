//! The thread that comes back to a ring by itself: it drives the ring in its own poll, or enters
//! often. The ring is left to it. The reactor's tick finds out whether the thread has stopped
//! coming; a thread that only waits for a processor has not. The kernel, too, posts what a thread
//! has submitted when the thread runs.

use super::last;
use crate::ring::ctx::Ring;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use softring_host::sys;
use softring_host::time::cpu_time_of;

/// Enters that make up for the first tick in which a poller was away. Each further one doubles
/// them: a program that has polled once and spins on its CQ now waits seldom for a tick.
const FIRST_DOUBT: u32 = 32;
/// Enters after which a thread that has never polled the ring is first expected to go on entering.
const FIRST_TRUST: u32 = 256;
const MOST_DOUBLINGS: u32 = 20;

impl Ring {
    /// Records that a thread polls the ring and is its driver.
    pub(super) fn mark_polled(&self) {
        self.mark_driven();
        self.polled.store(true, Relaxed);
        self.polled_ever.store(true, Relaxed);
    }

    fn mark_driven(&self) {
        self.regular.tid.store(sys::gettid(), Relaxed);
        self.driven.store(true, Relaxed);
    }

    /// Returns whether a thread is expected to poll the ring soon, or to enter it, and to drive it.
    pub(super) fn is_polled(&self) -> bool {
        self.driven.load(Relaxed) && self.has_regular()
    }

    /// Returns whether a thread is expected to come back to the ring by itself.
    pub(super) fn has_regular(&self) -> bool {
        self.polled.load(Relaxed) || self.regular.enters.load(Relaxed)
    }

    /// Records that a thread leaves the ring after an enter, which takes what is there, and so
    /// counts as a poll where threads poll the ring; returns whether they do. Where the reactor has
    /// had to step in, only many enters count. Many also count where no thread polls the ring,
    /// unless the ring `signals` its completions.
    pub(super) fn mark_entered(&self, signals: bool) -> bool {
        let enters = self.enters.load(Relaxed);
        let trusted = || enters.wrapping_sub(self.doubted_at.load(Relaxed)) > self.doubt();
        let ever = self.polled_ever.load(Relaxed);
        let polled = self.polled.load(Relaxed) || ever && trusted();
        if polled {
            self.mark_polled();
        } else {
            let often = !ever && !signals && (self.regular.enters.load(Relaxed) || trusted());
            self.regular.enters.store(often, Relaxed);
            if often {
                self.mark_driven();
            }
        }
        polled
    }

    /// Records that nobody has driven the ring for a tick though a thread was expected to.
    pub(super) fn mark_left(&self) {
        if self.polled.swap(false, Relaxed) | self.regular.enters.swap(false, Relaxed) {
            self.doubted_at.store(self.enters.load(Relaxed), Relaxed);
            self.doubts.fetch_add(1, Relaxed);
        }
    }

    /// Returns the number of enters after which a thread is trusted to come back.
    fn doubt(&self) -> u32 {
        let first = if self.polled_ever.load(Relaxed) { FIRST_DOUBT } else { FIRST_TRUST };
        first << self.doubts.load(Relaxed).min(MOST_DOUBLINGS)
    }

    /// Notes the processor time of the thread that has driven the ring since the last tick.
    pub(super) fn note_regular(&self) {
        if self.is_polled() {
            self.regular.ran.store(cpu_time_of(self.regular.tid.load(Relaxed)), Relaxed);
        }
    }

    /// Returns whether the thread that is to come back to the ring has hardly run since the last
    /// `tick`, because it waits for a processor.
    pub(super) fn awaits_processor(&self, tick: Duration) -> bool {
        let tid = self.regular.tid.load(Relaxed);
        if tid == 0 || !self.has_regular() {
            return false;
        }
        let now = cpu_time_of(tid);
        let before = self.regular.ran.swap(now, Relaxed);
        let ran = Duration::from_nanos(now.saturating_sub(before));
        before > 0 && now > 0 && ran < tick / 4 && last::runs(tid)
    }
}
