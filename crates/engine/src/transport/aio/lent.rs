//! Sleeping for completions without the lock that guards the context: its events are lent to the
//! sleeper meanwhile.
//!
//! The sleeper is inside io_pgetevents, which takes events out of the ring on its own. So until it
//! has brought them back nobody else may take any ([`AioCtx::lend`]); submitting is free to all.
//!
//! ```text
//! sleeper                            others, under the lock
//! lock; lend: lent = true
//! unlock
//! io_pgetevents                      submit: yes; reap: finds nothing, the sleeper will
//! lock; give_back: events, lent = false
//! ```

use super::{AioCtx, AioSigset};
use crate::abi::aio::io_event;
use crate::errno::{Errno, Result, check};
use crate::limits::AIO_WAIT_BATCH;
use crate::sys::sys;
use core::time::Duration;
use rustix::thread::Timespec;

/// The right to take events, out of the lock's sight. Must come back by [`AioCtx::give_back`]
/// before the context ends.
#[derive(Debug)]
#[must_use]
pub struct Lent {
    id: usize,
    events: [io_event; AIO_WAIT_BATCH],
    n: usize,
}

impl Lent {
    /// Waits until `min` events are there (at most [`AIO_WAIT_BATCH`] count) or the time is over,
    /// with `sigmask` (a kernel sigset) in force meanwhile; answers how many it has taken.
    ///
    /// # Errors
    /// EINTR; ENOSYS where io_pgetevents is missing and a mask is asked for.
    pub fn wait(&mut self, min: usize, time: Duration, sigmask: Option<u64>) -> Result<usize> {
        let r = get_events(self.id, min, Some(time), sigmask, &mut self.events);
        self.n = r.unwrap_or(0);
        r
    }
}

/// io_pgetevents(2), or io_getevents(2) where that is all there is and all that is needed.
pub(super) fn get_events(
    id: usize,
    min: usize,
    timeout: Option<Duration>,
    sigmask: Option<u64>,
    buf: &mut [io_event; AIO_WAIT_BATCH],
) -> Result<usize> {
    let ts = timeout.and_then(|d| Timespec::try_from(d).ok());
    let ts = ts.as_ref().map_or(0, |t| (&raw const *t).expose_provenance());
    let mask = sigmask.as_ref().map_or(0, |m| (&raw const *m).expose_provenance());
    let set = AioSigset { mask, size: 8 };
    let set = if mask == 0 { 0 } else { (&raw const set).expose_provenance() };
    let to = buf.as_mut_ptr().expose_provenance();
    let mut r = check(sys!(__NR_io_pgetevents, id, min, AIO_WAIT_BATCH, to, ts, set));
    if r == Err(Errno::ENOSYS) && mask == 0 {
        r = check(sys!(__NR_io_getevents, id, min, AIO_WAIT_BATCH, to, ts));
    }
    r.map(|n| n.min(AIO_WAIT_BATCH))
}

impl AioCtx {
    /// Lends the events to a thread that is about to sleep for them; none if another does, or if
    /// some are there already.
    pub fn lend(&mut self) -> Option<Lent> {
        if self.lent || !self.taken.is_empty() {
            return None;
        }
        self.lent = true;
        Some(Lent { id: self.id, events: [io_event::default(); AIO_WAIT_BATCH], n: 0 })
    }

    /// Does a thread sleep for the events?
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// The sleeper is back, with what it has taken.
    pub fn give_back(&mut self, lent: &Lent) {
        self.lent = false;
        if let Some(ring) = &mut self.ring {
            ring.resync();
        }
        // Reaped from the end: keep the kernel's order.
        self.taken.extend(lent.events[..lent.n].iter().rev());
    }
}
