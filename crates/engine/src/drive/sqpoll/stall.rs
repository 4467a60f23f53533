//! An SQ thread whose polled rings (IOPOLL) wait for a device that is slow.
//!
//! Only this thread finds their completions, so the kernel's thread spins until the last of them.
//! Ours gives the processor up, in two steps:
//!
//! ```text
//! the last SQE or CQE       SPIN_MAX              sq_thread_idle
//! ──────────────────────────▶│────────────────────▶│─────────────────────────────▶
//!          spins             pauses that grow,      sleeps until a completion, or a
//!                            PAUSE_MAX at most      wake-up (NEED_WAKEUP is set)
//! ```
//!
//! Completions of kernel aio end a sleep in io_getevents, and modelled devices tell when they are
//! done. Wake-ups reach io_getevents through an eventfd that is polled in the same context, so the
//! thread can sleep for one context. With more contexts, or with a poll set of a ring that is not
//! polled, it goes on with pauses.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::protocol::Page;
use super::thread::{Listen, Thread, busy, served};
use super::{wakes_by, word};
use crate::drive::sleep::{FOREVER, On, idle_sleep, sleep};
use crate::io::aio::AioCtx;
use crate::policy::hybrid::IdleSleep;
use crate::ring::ctx::{Guard, Ring};
use softring_host::sys;
use softring_host::time::Clock;

/// Time of spinning in vain before the first pause, in ns: the thread finds submissions of a
/// program with a quicker device at once.
const SPIN_MAX: u64 = 10_000_000;
/// Divisor of the time in vain that gives a pause: new work is found later by that share at most.
const PAUSE_SHARE: u64 = 16;
/// Longest pause, in ns.
const PAUSE_MAX: u64 = 1_000_000;
/// Number of polls between two reads of the clock, while the thread spins.
const POLLS: u32 = 64;

/// State of a time without work.
#[derive(Debug, Default)]
pub(super) struct Vain {
    /// Start of the time without work, in ns; 0: there was some.
    since: u64,
    polls: u32,
}

impl Vain {
    pub(super) fn end(&mut self) {
        *self = Vain::default();
    }

    /// Counts a pass without work; returns the time until which to pause.
    fn pause(&mut self, clock: impl Fn() -> u64) -> Option<u64> {
        self.polls = self.polls.wrapping_add(1);
        if self.since != 0 && !self.polls.is_multiple_of(POLLS) {
            return None;
        }
        let now = clock();
        if self.since == 0 {
            self.since = now.max(1);
        }
        let vain = now.saturating_sub(self.since);
        if vain < SPIN_MAX {
            return None;
        }
        // After a pause the clock is read at once.
        self.polls = POLLS.wrapping_sub(1);
        Some(now.saturating_add((vain / PAUSE_SHARE).min(PAUSE_MAX)))
    }
}

/// Event that can end a sleep for devices.
enum Sleep<'a> {
    /// Completions of the one context of kernel aio.
    Context(&'a Arc<Ring>),
    /// The time at which a modelled device is done.
    Time,
    /// None: there is too much for one sleep.
    Pauses,
}

impl Thread {
    /// Spins, or pauses, between two polls of polled rings. False if there are none.
    pub(super) fn pause(&mut self) -> bool {
        if !busy(&self.rings).any(|(_, sq)| sq.polls) {
            return false;
        }
        if let Some(until) = self.vain.pause(|| Clock::Monotonic.now()) {
            let until = until.min(self.due());
            self.sleep(&Listen::default(), until);
        }
        true
    }

    /// Sleeps until a device has completed something, or somebody wakes the thread: the idle time
    /// is over, and only devices have something to do.
    pub(super) fn wait_for_devices(&mut self) {
        let data = self.data.clone();
        let (sleeps, rings) = (data.page.word(word::IDLE_SLEEPS), &self.rings);
        let says = || {
            let how = if data.wake_fd.get().is_some() { wakes_by::EVENTFD } else { wakes_by::WORD };
            if let Some(wake_fd) = data.wake_fd.get() {
                wake_fd.clear();
            }
            sleeps.store(how, SeqCst);
            served(rings).for_each(|(_, sq)| sq.need_wakeup(true));
        };
        data.sleep_if(
            says,
            || self.is_idle(),
            |seq, seen| {
                let due = self.due();
                let asleep = match (self.what_ends(), data.wake_fd.get()) {
                    (Sleep::Context(ring), Some(wake_fd)) => sleep_for(ring, wake_fd.fd(), due),
                    (Sleep::Time, _) => sleep_until(due, On::Word(seq, seen)),
                    _ => false,
                };
                if !asleep {
                    let pause = Clock::Monotonic.now() + PAUSE_MAX;
                    sleep_until(due.min(pause), On::Word(seq, seen));
                }
            },
        );
        sleeps.store(0, SeqCst);
        let live = served(rings).filter(|(ring, _)| !ring.dead.load(Relaxed));
        live.for_each(|(_, sq)| sq.need_wakeup(false));
    }

    fn what_ends(&self) -> Sleep<'_> {
        let mut context = None;
        for (ring, sq) in busy(&self.rings) {
            if !sq.polls && sq.poll_fd.load(Relaxed) >= 0 {
                return Sleep::Pauses;
            }
            let in_flight =
                ring.lock().drive.transports.aio.as_deref().map_or(0, AioCtx::in_flight);
            if in_flight > 0 && context.replace(ring).is_some() {
                return Sleep::Pauses;
            }
        }
        context.map_or(Sleep::Time, Sleep::Context)
    }

    /// Returns the time at which a modelled device or a timeout is due; `u64::MAX`: never.
    fn due(&self) -> u64 {
        let left = |(ring, _): (&Arc<Ring>, _)| ring.lock().next_event_in();
        let left = busy(&self.rings).filter_map(left).min();
        left.map_or(u64::MAX, |left| Clock::Monotonic.now().saturating_add(left))
    }
}

/// Sleeps until the time `until`; `FOREVER`: until `on` ends the sleep.
fn sleep_until(until: u64, on: On<'_>) -> bool {
    let left = until.saturating_sub(Clock::Monotonic.now());
    let left = if until == FOREVER { FOREVER } else { left };
    if left > 0 {
        sys::exact_timers();
        let _ = sleep(on, left, None);
    }
    true
}

/// Sleeps until something of a ring's aio context completes, or `wake_fd` is signalled. False if it
/// cannot sleep.
fn sleep_for(ring: &Ring, wake_fd: i32, until: u64) -> bool {
    let borrowed = |ctx: &mut Guard<'_>| {
        let aio = ctx.drive.transports.aio.as_mut()?;
        Some((aio.arm_alarm(wake_fd).then(|| aio.detach_reap())??, aio.in_flight()))
    };
    let Some((mut reap, in_flight)) = borrowed(&mut ring.lock()) else { return false };
    sys::exact_timers();
    let _ = idle_sleep(Some(&mut reap), IdleSleep { until, many: 1 }, in_flight, None, None);
    let mut ctx = ring.lock();
    if let Some(aio) = ctx.drive.transports.aio.as_mut() {
        aio.attach_reap(&reap);
    }
    ctx.wake_waiters();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls every microsecond until a second is over.
    #[test]
    fn pauses_grow_while_requests_stall() {
        let (mut vain, mut now, mut pauses) = (Vain::default(), 1, Vec::new());
        while now < 1_000_000_000 {
            match vain.pause(|| now) {
                Some(until) => {
                    assert!(until - now <= PAUSE_MAX && until - now <= now / PAUSE_SHARE + 1);
                    pauses.push(until - now);
                    now = until;
                }
                None => now += 1_000,
            }
        }
        assert!(pauses.is_sorted() && pauses.last() == Some(&PAUSE_MAX));
        assert!((900..1_020).contains(&pauses.len()), "{}", pauses.len());
        vain.end();
        assert_eq!(vain.pause(|| now), None);
    }
}
