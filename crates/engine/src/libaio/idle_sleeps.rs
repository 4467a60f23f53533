//! A polled context whose waiters go by a policy (`softring run --poll`) instead of spinning.
//!
//! As on a polled ring, [`Polling`] says when to poll, sleep or block, and is told of each iocb
//! that the kernel takes and of each event that comes. A sleep is the kernel's own io_pgetevents:
//! the first completion ends it, and the events lie where the program wants them.
//!
//! One thread at a time waits this way; others sleep in the kernel. No thread waits for a lock,
//! since it may be a signal handler on top of the lock's holder. An iocb or event that is not
//! recorded for that reason only makes an estimate learn a little later.

use super::context::Context;
use super::peek::{Peeks, Wait, count, end_under};
use super::table::PROCESS;
use crate::io::aio::ring::Ring;
use crate::io::polling::{Polling, forced};
use crate::io::signal_scope::SignalScope;
use crate::policy::hybrid::{FLIGHT_MAX, IdleSleep, Policy, Ticket};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::sync::atomic::Ordering::Relaxed;
use softring_host::calls::aio::Sigset;
use softring_host::limits::AIO_BATCH;
use softring_host::sync::real::{Mutex, MutexGuard};
use softring_host::time::Clock;
use softring_host::user;
use softring_uapi::aio::{io_event, iocb};
use softring_uapi::errno::{Errno, Result};

/// Age in ns at which an iocb without a seen event is not waited for any more: a program that reads
/// its ring itself has taken the event.
const LOST: u64 = 1_000_000_000;

/// Returns the number of sleeps that the waiters of this process took.
pub fn idle_slept() -> u64 {
    PROCESS.counts.idle_sleeps.load(Relaxed)
}

/// Iocbs in flight by address, each with its ticket and start time.
#[derive(Debug)]
struct Flight {
    polling: Box<Polling>,
    tickets: BTreeMap<u64, (Ticket, u64)>,
    /// Time of the last search for lost iocbs.
    swept: u64,
}

#[derive(Debug)]
pub(super) struct IdleSleeps {
    flight: Mutex<Flight>,
    waits: Mutex<()>,
}

impl IdleSleeps {
    /// Makes the state for `nr` iocbs in flight; none without a policy that needs it.
    pub(super) fn new(nr: u32) -> Option<IdleSleeps> {
        let policy = forced().filter(|p| matches!(p, Policy::Hybrid | Policy::Adaptive))?;
        let polling = Polling::new(policy, nr.min(FLIGHT_MAX));
        let flight = Flight { polling, tickets: BTreeMap::new(), swept: 0 };
        Some(IdleSleeps { flight: Mutex::new(flight), waits: Mutex::new(()) })
    }

    fn flight(&self) -> Option<MutexGuard<'_, Flight>> {
        self.flight.try_lock()
    }

    /// Records an iocb that the kernel is about to take.
    pub(super) fn issued(&self, at: u64, cb: &iocb) {
        let Some(mut flight) = self.flight() else { return };
        let now = Clock::Monotonic.now();
        if flight.tickets.len() >= FLIGHT_MAX as usize {
            flight.forget_lost(now);
        }
        let ticket = flight.polling.issued(cb, now);
        if ticket == Ticket::NONE {
            return;
        }
        // The program took the event of the iocb before without asking us.
        if let Some((before, _)) = flight.tickets.insert(at, (ticket, now)) {
            flight.polling.hybrid.gone(before);
        }
    }

    /// Forgets the `n` iocbs of the list from `at` on: the kernel did not take them.
    pub(super) fn refused(&self, at: u64, n: usize) {
        let mut list = [0u64; AIO_BATCH];
        let list = &mut list[..n];
        if user::read_slice(at, list).is_ok() {
            let Some(mut flight) = self.flight() else { return };
            list.iter().for_each(|at| flight.gone(*at));
        }
    }

    /// Records the `n` events that the kernel has put at `at`.
    fn seen(&self, mut at: u64, mut n: usize) {
        let (Some(mut flight), mut now) = (self.flight(), None) else { return };
        let mut events = [io_event::default(); AIO_BATCH];
        while n > 0 {
            let some = &mut events[..n.min(AIO_BATCH)];
            if user::read_slice(at, some).is_err() {
                return;
            }
            for event in &*some {
                if let Some((ticket, _)) = flight.tickets.remove(&event.obj) {
                    flight.polling.seen(ticket, &mut now);
                }
            }
            (at, n) = (at + size_of_val(some) as u64, n - some.len());
        }
    }

    fn begin(&self) {
        let Some(mut flight) = self.flight() else { return };
        flight.forget_lost(Clock::Monotonic.now());
        flight.polling.begin();
    }

    fn next_sleep(&self, signals: &mut SignalScope) -> Result<Option<IdleSleep>> {
        self.flight().map_or(Ok(None), |mut flight| flight.polling.next_sleep(signals))
    }

    fn woke(&self, early: bool) {
        PROCESS.counts.idle_sleeps.fetch_add(1, Relaxed);
        if let Some(mut flight) = self.flight() {
            flight.polling.woke(early);
        }
    }
}

impl Flight {
    fn gone(&mut self, at: u64) {
        if let Some((ticket, _)) = self.tickets.remove(&at) {
            self.polling.hybrid.gone(ticket);
        }
    }

    fn forget_lost(&mut self, now: u64) {
        if now.saturating_sub(self.swept) < LOST {
            return;
        }
        self.swept = now;
        let Flight { polling, tickets, .. } = self;
        tickets.retain(|_, (ticket, since)| {
            let stays = now.saturating_sub(*since) < LOST;
            if !stays {
                polling.hybrid.gone(*ticket);
            }
            stays
        });
    }
}

/// A wait by a policy, and its progress.
struct Going<'a> {
    wait: &'a Wait,
    idle_sleeps: &'a IdleSleeps,
    taken: isize,
}

impl Wait {
    /// Waits like [`Wait::peek`], by the policy of `idle_sleeps`.
    pub(super) fn idle_sleep(&self, ctx: &Context, ring: &Ring, idle_sleeps: &IdleSleeps) -> isize {
        let mut going = Going { wait: self, idle_sleeps, taken: 0 };
        let peeks = self.waits() && !ctx.manners().sleeps();
        let Some(_one) = idle_sleeps.waits.try_lock().filter(|_| peeks) else {
            return going.whole();
        };
        // The kernel refuses arguments that cannot be read.
        let (Ok(deadline), Ok(mask)) = (self.deadline(), self.sigmask()) else {
            return self.kernel();
        };
        let n = going.goes_on(ctx, ring, deadline.unwrap_or(u64::MAX), mask);
        mask.map_or(n, |mask| end_under(mask, n))
    }
}

impl Going<'_> {
    /// Peeks, sleeps and blocks until the wait is over.
    fn goes_on(&mut self, ctx: &Context, ring: &Ring, deadline: u64, mask: Option<u64>) -> isize {
        let mut signals = SignalScope::default();
        signals.wait_under(mask);
        self.idle_sleeps.begin();
        let mut peeks = Peeks::begin();
        loop {
            let late = deadline < u64::MAX && Clock::Monotonic.now() >= deadline;
            let found = !late && self.finds(ctx, ring);
            let aside = peeks.went_on(ctx.manners());
            let ends = !late && !found && ctx.ends();
            let slept = match () {
                () if found || late => self.take(0, 0, None),
                // The kernel knows how a wait ends whose context is destroyed.
                () if ends => self.sleep(
                    IdleSleep { until: deadline, many: u32::MAX },
                    deadline,
                    signals.mask(),
                ),
                () if aside => self.sleep(IdleSleep::BLOCK, deadline, signals.mask()),
                () => match self.idle_sleeps.next_sleep(&mut signals) {
                    Ok(Some(idle_sleep)) => {
                        let slept = self.sleep(idle_sleep, deadline, signals.mask());
                        peeks = Peeks::begin();
                        slept
                    }
                    Ok(None) => Ok(self.taken),
                    Err(_) => signals.handle_signals().map(|()| self.taken),
                },
            };
            match slept {
                Ok(n) if ends || late || n >= self.wait.min => {
                    count(found);
                    return n;
                }
                // Another thread has taken the events, or there are too few.
                Ok(_) => {}
                Err(e) if self.taken == 0 => return self.at_last(e),
                Err(_) => return self.taken,
            }
        }
    }

    /// Makes the whole wait in the kernel.
    fn whole(&self) -> isize {
        let n = self.wait.kernel();
        if n > 0 {
            self.idle_sleeps.seen(self.wait.events.addr(), n as usize);
        }
        n
    }

    /// Returns whether all events are there that are still to come.
    fn finds(&self, ctx: &Context, ring: &Ring) -> bool {
        let Some(_held) = ctx.hold() else { return false };
        let want = (self.wait.min - self.taken).min(ring.room() as isize) as u32;
        core::hint::spin_loop();
        ring.available() >= want
    }

    /// Has the kernel put events behind those taken so far, at least `min` of them within `ns`.
    /// Returns how many there are now.
    fn take(&mut self, min: isize, ns: u64, mask: Option<u64>) -> Result<isize> {
        let time = [ns / 1_000_000_000, ns % 1_000_000_000];
        let set = mask.as_ref().map(Sigset::of);
        let events = self.wait.events.add(self.taken as u64 * size_of::<io_event>() as u64);
        let n = Wait {
            min,
            nr: self.wait.nr - self.taken,
            events,
            timeout: time.as_ptr().expose_provenance(),
            sigset: set.as_ref().map(|s| core::ptr::from_ref(s).expose_provenance()),
            ..*self.wait
        }
        .kernel();
        let n = softring_uapi::errno::check(n)? as isize;
        self.idle_sleeps.seen(events.addr(), n as usize);
        self.taken += n;
        Ok(self.taken)
    }

    /// Takes a sleep.
    fn sleep(&mut self, idle_sleep: IdleSleep, deadline: u64, mask: Option<u64>) -> Result<isize> {
        let before = self.taken;
        let min = (idle_sleep.many as isize).clamp(1, self.wait.min - before);
        let ns = idle_sleep.until.min(deadline).saturating_sub(Clock::Monotonic.now());
        let slept = self.take(min, ns, mask);
        self.idle_sleeps.woke(slept != Ok(before));
        slept
    }

    /// Takes events that are there after a signal; returns the error if there are none.
    fn at_last(&mut self, e: Errno) -> isize {
        match self.take(0, 0, None) {
            Ok(n) if n > 0 => n,
            _ => e.ret(),
        }
    }
}
