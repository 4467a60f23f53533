//! io_getevents(2) that peeks for completions before it sleeps.

use super::context::Context;
use super::table::PROCESS;
use crate::io::aio::ring::Ring;
use crate::io::polling::{POLLS, forced};
use crate::policy::hybrid::Policy;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use softring_host::calls::{ReadPtr, UserPtr, aio};
use softring_host::handlers::is_deferred;
use softring_host::sys;
use softring_host::time::Clock;
use softring_host::user;
use softring_uapi::errno::{Errno, Result, answer};
use softring_uapi::kernel_timespec;

/// Time without another completion after which the thread sleeps, in ns: no device that is worth
/// polling takes longer, and a signal must get through.
const SPIN_NS: u64 = 1_000_000;
/// Time between two peeks that shows that the thread did not run meanwhile: others want the
/// processor. In time-stamp cycles: 80 to 400 µs on machines of 5 to 1 GHz.
const PUT_ASIDE_CYCLES: u64 = 400_000;
/// Time for which waits then sleep, in ns, at first and at most.
const SLEEPS: core::ops::Range<u64> = 20_000_000..1_000_000_000;
/// Number of sleep times within which a context that is put aside again sleeps twice as long.
const SOON: u64 = 4;

/// Returns how many waits of this process peeked for events before they slept, and how many of them
/// found the events.
pub fn peeks() -> (u64, u64) {
    let counts = &PROCESS.counts;
    (counts.peeked.load(Relaxed), counts.found.load(Relaxed))
}

/// Counts a wait that peeked; `found`: it found its events.
pub(super) fn count(found: bool) {
    PROCESS.counts.peeked.fetch_add(1, Relaxed);
    PROCESS.counts.found.fetch_add(found.into(), Relaxed);
}

/// Arguments of io_getevents(2) or io_pgetevents(2).
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub id: usize,
    pub min: isize,
    pub nr: isize,
    pub events: UserPtr,
    pub timeout: usize,
    /// Mask argument of io_pgetevents.
    pub sigset: Option<usize>,
}

/// State that decides whether a context's waits peek. A thread that peeks until another takes the
/// processor gets it back only when others have had as much, also for the waits that it then sleeps
/// through: these take as long as the others' time slices. So after peeking has ended this way
/// once, the context's waits sleep for some time. Updates by several threads may get lost.
#[derive(Debug, Default)]
pub(super) struct Manners {
    /// Time until which waits sleep, in ns of CLOCK_MONOTONIC; 0: a thread was never put aside.
    until: AtomicU64,
    /// Length of that sleep.
    time: AtomicU64,
}

impl Manners {
    pub(super) fn sleeps(&self) -> bool {
        let until = self.until.load(Relaxed);
        until != 0 && Clock::Monotonic.now() < until
    }

    fn put_aside(&self, now: u64) {
        let (until, time) = (self.until.load(Relaxed), self.time.load(Relaxed));
        let again = until != 0 && now.saturating_sub(until) < SOON * time;
        let time = if again { (2 * time).min(SLEEPS.end) } else { SLEEPS.start };
        self.time.store(time, Relaxed);
        self.until.store(now + time, Relaxed);
    }
}

/// Peeks of one wait, which show when the thread did not run between two of them.
#[derive(Debug)]
pub(super) struct Peeks {
    last: u64,
}

impl Peeks {
    pub(super) fn begin() -> Self {
        Peeks { last: sys::cycles() }
    }

    /// Ends a stretch of peeks without a pause. True if the thread was put aside meanwhile.
    pub(super) fn went_on(&mut self, manners: &Manners) -> bool {
        let (now, last) = (sys::cycles(), self.last);
        self.last = now;
        let aside = now.wrapping_sub(last) > PUT_ASIDE_CYCLES;
        if aside {
            manners.put_aside(Clock::Monotonic.now());
        }
        aside
    }
}

impl Wait {
    /// Has the kernel answer.
    pub(super) fn kernel(&self) -> isize {
        let Wait { id, min, nr, events, timeout, sigset } = *self;
        let timeout = ReadPtr(timeout as u64);
        let sigset = sigset.map(|set| ReadPtr(set as u64));
        let n = answer(aio::io_getevents(id, (min, nr), events, timeout, sigset));
        if n == Errno::EINTR.ret() && is_deferred() { self.interrupted() } else { n }
    }

    /// Answers for a thread that a deferred signal keeps from sleeping, so that the kernel may not
    /// have been asked. The kernel's own wait ends with the events that are there, and with EINTR
    /// only if there are none.
    fn interrupted(&self) -> isize {
        let Wait { id, min, nr, events, .. } = *self;
        if let Err(e) = self.deadline().and(self.sigmask()) {
            return e.ret();
        }
        match aio::io_getevents_now(id, (min, nr), events) {
            Ok(0) => Errno::EINTR.ret(),
            n => answer(n),
        }
    }

    /// Returns the answer `e` of a kernel that refuses the context or the numbers: it checks them
    /// under the mask.
    pub(super) fn refused(&self, e: Errno) -> isize {
        match self.deadline().and(self.sigmask()) {
            Err(e) => e.ret(),
            Ok(mask) => mask.map_or(e.ret(), |mask| end_under(mask, e.ret())),
        }
    }

    /// Has the kernel answer within the time that is left until `deadline`.
    fn kernel_by(&self, deadline: Option<u64>) -> isize {
        let Some(deadline) = deadline else { return self.kernel() };
        let left = deadline.saturating_sub(Clock::Monotonic.now());
        let left = [left / 1_000_000_000, left % 1_000_000_000];
        let timeout = (&raw const left).expose_provenance();
        Wait { timeout, ..*self }.kernel()
    }

    /// Returns whether the numbers ask for a wait.
    pub(super) fn waits(&self) -> bool {
        0 < self.min && self.min <= self.nr
    }

    /// Returns the end of the wait's time, in ns of CLOCK_MONOTONIC; none if there is no time, or
    /// it is negative. The kernel does not check the parts of the time, and adds them.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn deadline(&self) -> Result<Option<u64>> {
        /// Bound of `ktime_set`: from here up every time is the end of time, and the rest may wrap.
        const KTIME_SEC_MAX: i64 = i64::MAX / 1_000_000_000;
        if self.timeout == 0 {
            return Ok(None);
        }
        let time = user::read::<kernel_timespec>(self.timeout as u64)?;
        let ns = match time.tv_sec {
            KTIME_SEC_MAX.. => i64::MAX,
            sec => sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec),
        };
        let ends = |ns| Clock::Monotonic.now().checked_add(ns);
        Ok(u64::try_from(ns).ok().and_then(ends))
    }

    /// Returns the signal mask that is to be in force meanwhile.
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

    /// Peeks at `ring`, then has the kernel take the events, or sleep for them.
    pub(super) fn peek(&self, ctx: &Context, ring: &Ring) -> isize {
        if let Some(idle_sleeps) = ctx.idle_sleeps() {
            return self.idle_sleep(ctx, ring, idle_sleeps);
        }
        if !self.waits() || forced() == Some(Policy::Block) {
            return self.kernel();
        }
        let want = self.min.min(ring.room() as isize) as u32;
        let Some(held) = ctx.hold() else { return self.kernel() };
        if ring.available() >= want {
            drop(held);
            return self.kernel();
        }
        // The kernel refuses a time that cannot be read.
        let Ok(deadline) = self.deadline() else { return self.kernel() };
        if ctx.manners().sleeps() {
            drop(held);
            return self.kernel();
        }
        let found = spin(ctx, ring, want, deadline);
        drop(held);
        count(found);
        if found { self.kernel() } else { self.kernel_by(deadline) }
    }
}

/// Peeks until `want` events are there; false if they do not come.
fn spin(ctx: &Context, ring: &Ring, want: u32, deadline: Option<u64>) -> bool {
    let mut until = None;
    let mut seen = 0;
    let mut peeks = Peeks::begin();
    loop {
        for _ in 0..POLLS {
            if ctx.ends() {
                return false;
            }
            if ring.available() >= want {
                // The events may have come while others ran.
                peeks.went_on(ctx.manners());
                return true;
            }
            core::hint::spin_loop();
        }
        if is_deferred() || peeks.went_on(ctx.manners()) {
            return false;
        }
        let (now, there) = (Clock::Monotonic.now(), ring.available());
        let longest = deadline.unwrap_or(u64::MAX);
        if there != seen || until.is_none() {
            (seen, until) = (there, Some(longest.min(now + SPIN_NS)));
        }
        if until.is_some_and(|until| now >= until) {
            return false;
        }
    }
}

/// Ends a call under a mask with the answer `n`, as the kernel does: handles the signals that the
/// mask lets in, which are the answer if `n` is 0.
pub(super) fn end_under(mask: u64, n: isize) -> isize {
    match sys::handle_signals(mask) {
        Err(e) if n == 0 => e.ret(),
        _ => n,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_waits_in_vain_lengthen_the_sleep() {
        let manners = Manners::default();
        assert!(!manners.sleeps());
        let mut now = Clock::Monotonic.now();
        for expected in [SLEEPS.start, 2 * SLEEPS.start, 4 * SLEEPS.start] {
            manners.put_aside(now);
            assert_eq!(manners.until.load(Relaxed), now + expected);
            now += expected + SOON * expected - 1;
        }
        assert!(manners.sleeps());
        for _ in 0..20 {
            manners.put_aside(now);
            now = manners.until.load(Relaxed);
        }
        assert_eq!(manners.time.load(Relaxed), SLEEPS.end);
        now += SOON * SLEEPS.end;
        manners.put_aside(now);
        assert_eq!(manners.time.load(Relaxed), SLEEPS.start, "it was left alone for long");
    }
}
