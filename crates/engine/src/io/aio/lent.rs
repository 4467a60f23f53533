//! Sleeping for completions without the lock that guards the context: its events are lent to the
//! sleeper meanwhile.
//!
//! The sleeper is inside io_pgetevents, which takes events out of the ring on its own. So until it
//! has brought them back nobody else may take any ([`AioCtx::lend`]); submitting is free to all.
//!
//! ```text
//! sleeper                            others, under the lock
//! lock; lend: lent = sleeper
//! unlock
//! io_pgetevents                      submit: yes; reap: finds nothing, the sleeper will
//! lock; give_back: events, lent = none
//! ```
//!
//! A signal handler may run on top of the sleeper, at the end of its io_pgetevents (signals are
//! blocked otherwise), and want the events itself: it takes them back in its thread's name, and the
//! sleeper's loan is void. So they are kept where both find them, those that are there told from
//! the rest by their iocb's address, as nobody has seen the call's answer yet.
#![allow(unsafe_code)]

use super::{AioCtx, AioSigset};
use core::cell::UnsafeCell;
use core::time::Duration;
use rustix::thread::Timespec;
use softring_host::limits::AIO_WAIT_BATCH;
use softring_host::sys::{self, sleeps, sys};
use softring_uapi::aio::io_event;
use softring_uapi::errno::{Errno, Result, check};
use std::sync::Arc;

/// Who has the events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loan {
    number: u32,
    thread: usize,
}

/// Events that a sleeper has taken; the first without an iocb ends them.
#[derive(Debug)]
pub(super) struct Basket(UnsafeCell<[io_event; AIO_WAIT_BATCH]>);

impl Default for Basket {
    fn default() -> Self {
        Basket(UnsafeCell::new([io_event::default(); AIO_WAIT_BATCH]))
    }
}

// SAFETY: one loan at a time: its sleeper's system call writes, and after it the thread that gives
// the loan back reads, under the lock.
unsafe impl Send for Basket {}
// SAFETY: as above.
unsafe impl Sync for Basket {}

/// The right to take events, out of the lock's sight. Must come back by [`AioCtx::give_back`]
/// before the context ends.
#[derive(Debug)]
#[must_use]
pub(crate) struct Lent {
    id: usize,
    number: u32,
    basket: Arc<Basket>,
}

impl Lent {
    /// Waits until `min` events are there (at most [`AIO_WAIT_BATCH`] count) or the time is over,
    /// with `sigmask` (a kernel sigset) in force meanwhile; answers how many it has taken.
    ///
    /// # Errors
    /// EINTR; ENOSYS where io_pgetevents is missing and a mask is asked for.
    pub(crate) fn wait(
        &mut self,
        min: usize,
        time: Duration,
        sigmask: Option<u64>,
    ) -> Result<usize> {
        get_events(self.id, min, Some(time), sigmask, self.basket.0.get())
    }
}

/// io_pgetevents(2) into memory of ours, or io_getevents(2) where that is all there is and all that
/// is needed.
pub(super) fn get_events(
    id: usize,
    min: usize,
    timeout: Option<Duration>,
    sigmask: Option<u64>,
    to: *mut [io_event; AIO_WAIT_BATCH],
) -> Result<usize> {
    let ts = timeout.and_then(|d| Timespec::try_from(d).ok());
    let ts = ts.as_ref().map_or(0, |t| (&raw const *t).expose_provenance());
    let mask = sigmask.as_ref().map_or(0, |m| (&raw const *m).expose_provenance());
    let set = AioSigset { mask, size: 8 };
    let set = if mask == 0 { 0 } else { (&raw const set).expose_provenance() };
    let to = to.expose_provenance();
    let mut r = check(match min {
        0 => sys!(__NR_io_pgetevents, id, 0, AIO_WAIT_BATCH, to, ts, set),
        _ => sleeps!(__NR_io_pgetevents, id, min, AIO_WAIT_BATCH, to, ts, set),
    });
    if r == Err(Errno::ENOSYS) && mask == 0 {
        r = check(sleeps!(__NR_io_getevents, id, min, AIO_WAIT_BATCH, to, ts));
    }
    r.map(|n| n.min(AIO_WAIT_BATCH))
}

impl AioCtx {
    /// Lends the events to a thread that is about to sleep for them; none if another does, or if
    /// some are there already.
    pub(crate) fn lend(&mut self) -> Option<Lent> {
        if self.is_lent() || !self.taken.is_empty() {
            return None;
        }
        self.loans = self.loans.wrapping_add(1);
        let number = self.loans;
        self.lent = Some(Loan { number, thread: sys::thread() });
        Some(Lent { id: self.id, number, basket: self.basket.clone() })
    }

    /// Does a thread sleep for the events?
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// The sleeper is back, with what it has taken, unless a handler took that.
    pub(crate) fn give_back(&mut self, lent: &Lent) {
        if self.lent.is_some_and(|l| l.number == lent.number) {
            self.empty_basket();
        }
    }

    /// Takes the events back if the calling thread has them: it is a handler on top of its own
    /// sleep.
    pub(crate) fn take_back(&mut self) {
        if self.lent.is_some_and(|l| l.thread == sys::thread()) {
            self.empty_basket();
        }
    }

    fn empty_basket(&mut self) {
        self.lent = None;
        if let Some(ring) = &mut self.ring {
            ring.resync();
        }
        // SAFETY: the loan is over, so its call has returned, and under the lock nobody else looks.
        let events = unsafe { &mut *self.basket.0.get() };
        let n = events.iter().position(|e| e.obj == 0).unwrap_or(events.len());
        // Reaped from the end: keep the kernel's order.
        self.taken.extend(events[..n].iter().rev());
        events[..n].fill(io_event::default());
    }
}
