//! What a ring knows of those who wait for its completions.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::io::poll::WakeFd;
use crate::memory::lock::Control;
use softring_host::sys;

/// One of so many waits spins, where the last spin was in vain.
const TRY_EVERY: u32 = 32;

/// The thread that waits on the transports, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    /// A thread has the role.
    pub(crate) active: bool,
    /// The thread, as [`sys::thread`] has it.
    pub(crate) thread: usize,
    /// The driver sleeps (or is about to), without the lock.
    pub(crate) sleeping: bool,
    /// The driver has been woken already.
    pub(crate) woken: bool,
    /// CQEs it waits for.
    pub(crate) want: u32,
    /// When it wakes by itself, in ns of CLOCK_MONOTONIC.
    pub(crate) until: u64,
}

impl Driver {
    /// The thread `me` takes the role, and is about to sleep until `until` for `want` CQEs.
    #[inline]
    pub(crate) fn begin(&mut self, me: usize, want: u32, until: u64) {
        let (active, sleeping, woken) = (true, true, false);
        *self = Driver { active, thread: me, sleeping, woken, want, until };
    }

    /// The driver gives the role back, unless another has taken it over.
    #[inline]
    pub(crate) fn end(&mut self, me: usize) {
        if self.thread == me {
            (self.active, self.sleeping, self.thread) = (false, false, 0);
        }
    }

    /// Does it sleep, with as many CQEs ready as it waits for?
    #[inline(always)]
    pub(crate) fn has_enough(&self, ready: impl FnOnce() -> u32) -> bool {
        self.sleeping && ready() >= self.want
    }

    /// The driver's sleep is to end; true if nobody has seen to that before.
    #[inline]
    pub(crate) fn wake(&mut self) -> bool {
        let first = self.sleeping && !self.woken;
        self.woken |= first;
        first
    }
}

/// The waiters to be woken when the uring lock is given back: woken under it, they would have to
/// wait for it at once.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    pub(crate) waiters: bool,
    pub(crate) driver: Option<WakeFd>,
    /// Waiters of other rings, who may want to answer here.
    others: Vec<(Arc<Control>, Wakes)>,
}

impl Wakes {
    pub(crate) fn is_empty(&self) -> bool {
        !self.waiters && self.driver.is_none() && self.others.is_empty()
    }

    /// Takes over who is to be woken of the ring of `control`.
    pub(crate) fn merge(&mut self, control: &Arc<Control>, other: Wakes) {
        let known = self.others.iter_mut().find(|(c, _)| Arc::ptr_eq(c, control));
        match known {
            Some((_, known)) => {
                known.waiters |= other.waiters;
                known.driver = other.driver.or(known.driver.take());
            }
            None if !other.is_empty() => self.others.push((control.clone(), other)),
            None => {}
        }
    }

    /// Wakes them. Called without the lock that `control` holds.
    #[cold]
    pub(crate) fn run(self, control: &Control) {
        if let Some(driver) = self.driver {
            driver.signal();
        }
        if self.waiters {
            sys::futex_wake(control.seq(), i32::MAX.cast_unsigned());
        }
        for (control, wakes) in self.others {
            wakes.run(&control);
        }
    }
}

/// Whether to spin for a moment before a sleep: as long as that was worth it the last time, and now
/// and then to find out.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveSpin {
    /// The last wait that spun was over before it slept.
    short: bool,
    waits: u32,
}

impl AdaptiveSpin {
    /// A wait begins.
    pub(crate) fn try_now(&mut self) -> bool {
        self.waits = self.waits.wrapping_add(1);
        core::mem::take(&mut self.short) || self.waits.is_multiple_of(TRY_EVERY)
    }

    pub(crate) fn was_short(&mut self) {
        self.short = true;
    }
}
