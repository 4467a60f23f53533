//! Threads that wait for a ring's completions.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::io::poll::WakeFd;
use crate::io::worker::Wake;
use crate::memory::lock::Control;
use softring_host::sys;

/// Number of waits per trial spin, after a spin in vain; each trial in vain doubles it, up to
/// [`TRY_SELDOM`].
const TRY_OFTEN: u32 = 32;
const TRY_SELDOM: u32 = 1024;

/// The thread that waits on the transports, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    /// Flag, true while a thread has the role.
    pub(crate) active: bool,
    /// The thread, as [`sys::thread`] returns it.
    pub(crate) thread: usize,
    /// Flag, true while the driver sleeps (or is about to), without the lock.
    pub(crate) sleeping: bool,
    /// Flag, true if the driver has been woken already.
    pub(crate) woken: bool,
    /// Number of CQEs the driver waits for.
    pub(crate) want: u32,
    /// Time at which the driver wakes by itself, in ns of CLOCK_MONOTONIC.
    pub(crate) until: u64,
}

impl Driver {
    /// Gives the role to the thread `me`, which is about to sleep until `until` for `want` CQEs.
    #[inline]
    pub(crate) fn begin(&mut self, me: usize, want: u32, until: u64) {
        let (active, sleeping, woken) = (true, true, false);
        *self = Driver { active, thread: me, sleeping, woken, want, until };
    }

    /// Ends the role of the thread `me`, unless another has taken it over.
    #[inline]
    pub(crate) fn end(&mut self, me: usize) {
        if self.thread == me {
            (self.active, self.sleeping, self.thread) = (false, false, 0);
        }
    }

    /// Returns whether the driver sleeps and as many CQEs are ready as it waits for.
    #[inline(always)]
    pub(crate) fn has_enough(&self, ready: impl FnOnce() -> u32) -> bool {
        self.sleeping && ready() >= self.want
    }

    /// Returns whether the driver was woken, and has yet to come back from its sleep.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.sleeping && self.woken
    }

    /// Marks the driver as woken; true if it sleeps and was not woken before.
    #[inline]
    pub(crate) fn wake(&mut self) -> bool {
        let first = self.sleeping && !self.woken;
        self.woken |= first;
        first
    }
}

/// Threads to wake when the uring lock is released. Woken under the lock, waiters would have to
/// wait for it at once, and a worker when it has finished: the wake alone takes as long as a short
/// request.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    pub(crate) waiters: bool,
    pub(crate) driver: Option<WakeFd>,
    /// Worker that a request was queued for.
    worker: Wake,
    /// Waiters of other rings; woken after the release too, since they may send messages here.
    others: Vec<(Arc<Control>, Wakes)>,
}

impl Wakes {
    pub(crate) fn is_empty(&self) -> bool {
        !self.waiters && self.driver.is_none() && self.worker.is_nobody() && self.others.is_empty()
    }

    /// Adds a worker. One that was added before is woken now.
    pub(crate) fn wake_worker(&mut self, worker: Wake) {
        if !worker.is_nobody() {
            core::mem::replace(&mut self.worker, worker).run();
        }
    }

    /// Takes the worker, for a thread that releases the lock for a call of its own, which may take
    /// long.
    #[inline(always)]
    pub(crate) fn take_worker(&mut self) -> Wake {
        if self.worker.is_nobody() { Wake::default() } else { core::mem::take(&mut self.worker) }
    }

    /// Adds the waiters of another ring, whose control words are `control`.
    pub(crate) fn merge(&mut self, control: &Arc<Control>, other: Wakes) {
        let known = self.others.iter_mut().find(|(c, _)| Arc::ptr_eq(c, control));
        match known {
            Some((_, known)) => {
                known.waiters |= other.waiters;
                known.driver = other.driver.or(known.driver.take());
                known.wake_worker(other.worker);
            }
            None if !other.is_empty() => self.others.push((control.clone(), other)),
            None => {}
        }
    }

    /// Wakes the waiters. Called without the lock of `control`.
    #[cold]
    pub(crate) fn run(self, control: &Control) {
        if let Some(driver) = self.driver {
            driver.signal();
        }
        self.worker.run();
        if self.waiters {
            sys::futex_wake(control.seq(), i32::MAX.cast_unsigned());
        }
        for (control, wakes) in self.others {
            wakes.run(&control);
        }
    }
}

/// Adaptive spin before a sleep: spins if the last spin was worth it, and sometimes as a trial.
///
/// Two threads that answer each other on one processor spin in vain, however quick they are, so
/// trials become rarer. On two processors a thread that spins is answered after one wake-up as long
/// as the other sleeps, and much sooner once the other, too, has tried to spin.
#[derive(Debug)]
pub(crate) struct AdaptiveSpin {
    /// Flag, set if the last wait that spun was over before it slept.
    short: bool,
    /// Number of waits until the next trial.
    left: u32,
    /// Number of waits per trial.
    every: u32,
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        AdaptiveSpin { short: false, left: TRY_OFTEN, every: TRY_OFTEN }
    }
}

impl AdaptiveSpin {
    /// Begins a wait; returns whether it spins first.
    pub(crate) fn try_now(&mut self) -> bool {
        self.left -= 1;
        let trial = self.left == 0;
        if trial {
            self.every = (self.every * 2).min(TRY_SELDOM);
            self.left = self.every;
        }
        core::mem::take(&mut self.short) || trial
    }

    /// Records that the wait was over before it could spin: the next one spins instead.
    pub(crate) fn put_off(&mut self) {
        self.short = true;
    }

    /// Records that the wait was over before it slept.
    pub(crate) fn was_short(&mut self) {
        self.short = true;
        self.every = (self.every / 2).max(TRY_OFTEN);
        self.left = self.left.min(self.every);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the number of waits that spin among `waits`, each with the result `short`.
    fn spins(spin: &mut AdaptiveSpin, waits: u32, short: bool) -> u32 {
        let mut spun = 0;
        for _ in 0..waits {
            if spin.try_now() {
                spun += 1;
                if short {
                    spin.was_short();
                }
            }
        }
        spun
    }

    #[test]
    fn trials_in_vain_become_rare_and_success_goes_on() {
        let mut spin = AdaptiveSpin::default();
        assert_eq!(spins(&mut spin, TRY_OFTEN, false), 1);
        assert!(spins(&mut spin, 20 * TRY_SELDOM, false) < 30);
        assert!(spins(&mut spin, TRY_SELDOM + 100, true) > 100);
        assert_eq!(spins(&mut spin, 100, true), 100);
        // The spin after the last success is in vain, and trials are frequent again.
        assert_eq!(spins(&mut spin, TRY_OFTEN, false), 2);
    }
}
