//! io_getevents(2) that looks for completions before it sleeps.

use super::context::Context;
use crate::abi::kernel_timespec;
use crate::errno::{Errno, Result};
use crate::handlers::is_deferred;
use crate::sys::{self, sleeps};
use crate::time::Clock;
use crate::transport::aio::ring::Ring;
use crate::user;
use crate::wait::hybrid::Policy;
use crate::wait::polling::{LOOKS, forced};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// After so long without another completion, in ns, the thread sleeps: no device that is worth
/// polling takes longer, and a signal must get through.
const SPIN_NS: u64 = 1_000_000;
/// A thread for which so long a time passes between two looks at the clock, in ns, did not run
/// meanwhile: others want the processor, and one that sleeps gets it back sooner.
const PUT_ASIDE_NS: u64 = 200_000;
/// How many waits it sleeps through then at first, and at most.
const SLEEPS: core::ops::Range<u32> = 8..1024;

/// Waits that looked for events, and those that found them so; statistics only, so relaxed.
static LOOKED: AtomicU64 = AtomicU64::new(0);
static FOUND: AtomicU64 = AtomicU64::new(0);

/// How many waits of this process looked for events before they slept, and how many found what they
/// waited for.
pub fn looks() -> (u64, u64) {
    (LOOKED.load(Relaxed), FOUND.load(Relaxed))
}

/// A wait that looked has found something, or has not.
pub(super) fn count(found: bool) {
    LOOKED.fetch_add(1, Relaxed);
    FOUND.fetch_add(found.into(), Relaxed);
}

/// The arguments of io_getevents(2) or io_pgetevents(2).
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub id: usize,
    pub min: isize,
    pub nr: isize,
    pub events: usize,
    pub timeout: usize,
    /// Of io_pgetevents.
    pub sigset: Option<usize>,
}

/// Whether to look at all: a thread that was put aside while it looked sleeps the next few times,
/// twice as often each time that it happens again. Counts of several threads may get lost.
#[derive(Debug)]
pub(super) struct Manners {
    sleeps: AtomicU32,
    penalty: AtomicU32,
}

impl Manners {
    pub(super) fn new() -> Self {
        Self { sleeps: AtomicU32::new(0), penalty: AtomicU32::new(SLEEPS.start) }
    }

    fn sleeps(&self) -> bool {
        let left = self.sleeps.load(Relaxed);
        if left > 0 {
            self.sleeps.store(left - 1, Relaxed);
        }
        left > 0
    }

    fn put_aside(&self) {
        let penalty = self.penalty.load(Relaxed);
        self.sleeps.store(penalty, Relaxed);
        self.penalty.store((2 * penalty).min(SLEEPS.end), Relaxed);
    }

    fn found(&self) {
        let penalty = self.penalty.load(Relaxed);
        if penalty > SLEEPS.start {
            self.penalty.store((penalty - penalty / 16 - 1).max(SLEEPS.start), Relaxed);
        }
    }
}

impl Wait {
    /// Has the kernel answer.
    pub(super) fn kernel(&self) -> isize {
        let Wait { id, min, nr, events, timeout, sigset } = *self;
        match sigset {
            None => sleeps!(__NR_io_getevents, id, min, nr, events, timeout),
            Some(set) => sleeps!(__NR_io_pgetevents, id, min, nr, events, timeout, set),
        }
    }

    /// The same of another context of the kernel's, with so much of the time left.
    fn kernel_by(&self, id: usize, deadline: Option<u64>) -> isize {
        let Some(deadline) = deadline else { return Wait { id, ..*self }.kernel() };
        let left = deadline.saturating_sub(Clock::Monotonic.now());
        let left = [left / 1_000_000_000, left % 1_000_000_000];
        let timeout = (&raw const left).expose_provenance();
        Wait { id, timeout, ..*self }.kernel()
    }

    /// Is it to wait, as far as the numbers tell?
    pub(super) fn waits(&self) -> bool {
        0 < self.min && self.min <= self.nr
    }

    /// When its time is over, in ns of CLOCK_MONOTONIC; never, if it is negative. The kernel does
    /// not judge its parts, and adds them.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn deadline(&self) -> Result<Option<u64>> {
        if self.timeout == 0 {
            return Ok(None);
        }
        let time = user::read::<kernel_timespec>(self.timeout as u64)?;
        let ns = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        let ends = |ns| Clock::Monotonic.now().checked_add(ns);
        Ok(u64::try_from(ns).ok().and_then(ends))
    }

    /// The signal mask that is to be in force meanwhile.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL`.
    pub(super) fn sigmask(&self) -> Result<Option<u64>> {
        let Some(set) = self.sigset.filter(|&set| set != 0) else { return Ok(None) };
        let mut set_and_size = [0u64; 2];
        user::read_slice(set as u64, &mut set_and_size)?;
        match set_and_size {
            [0, _] => Ok(None),
            [mask, 8] => user::read(mask).map(Some),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Looks at `ring`, which context `target` of the kernel's fills, then has the kernel take the
    /// events, or sleep for them.
    pub(super) fn look(&self, ctx: &Context, ring: &Ring, target: usize) -> isize {
        if let Some(naps) = ctx.naps() {
            return self.nap(ctx, ring, naps, target);
        }
        let plain = Wait { id: target, ..*self };
        if !self.waits() || forced() == Some(Policy::Block) {
            return plain.kernel();
        }
        let want = self.min.min(ring.room() as isize) as u32;
        let Some(held) = ctx.hold() else { return self.kernel() };
        if ring.available() >= want {
            drop(held);
            return plain.kernel();
        }
        // A time that cannot be read, the kernel refuses.
        let Ok(deadline) = self.deadline() else { return plain.kernel() };
        if ctx.manners().sleeps() {
            drop(held);
            return plain.kernel();
        }
        let found = spin(ctx, ring, want, deadline);
        drop(held);
        count(found);
        if found { plain.kernel() } else { self.kernel_by(target, deadline) }
    }
}

/// Looks until `want` events are there; false if they are not.
fn spin(ctx: &Context, ring: &Ring, want: u32, deadline: Option<u64>) -> bool {
    let mut until = None;
    let mut seen = 0;
    let mut last = u64::MAX;
    loop {
        for _ in 0..LOOKS {
            if ctx.ends() {
                return false;
            }
            if ring.available() >= want {
                ctx.manners().found();
                return true;
            }
            core::hint::spin_loop();
        }
        if is_deferred() {
            return false;
        }
        let (now, there) = (Clock::Monotonic.now(), ring.available());
        if now.saturating_sub(last) > PUT_ASIDE_NS {
            ctx.manners().put_aside();
            return false;
        }
        last = now;
        let longest = deadline.unwrap_or(u64::MAX);
        if there != seen || until.is_none() {
            (seen, until) = (there, Some(longest.min(now + SPIN_NS)));
        }
        if until.is_some_and(|until| now >= until) {
            return false;
        }
    }
}

/// Ends a call under a mask that has `n` to answer, as the kernel does: signals that the mask lets
/// in are handled, and are the answer if there is nothing else.
pub(super) fn end_under(mask: u64, n: isize) -> isize {
    match sys::handle_signals(mask) {
        Err(e) if n == 0 => e.ret(),
        _ => n,
    }
}
