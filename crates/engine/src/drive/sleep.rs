//! The one function that sleeps for a ring. The poll set or kernel aio ends a driver's sleep. A
//! thread that does not drive sleeps on the sequence word of the ring's control words, which every
//! poster in any process bumps.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;
use core::time::Duration;

use crate::io::aio::DetachedReap;
use crate::io::poll::{self, BATCH};
use crate::memory::lock::Control;
use crate::memory::lock::sequence::{Ended, Sequence};
use crate::policy::hybrid::IdleSleep;
use crate::ring::ctx::Guard;
use softring_host::handlers::asleep;
use softring_host::limits::AIO_WAIT_BATCH;
use softring_host::sys::{self, PollEntry};
use softring_host::time::Clock;
use softring_uapi::epoll_event;
use softring_uapi::errno::{Errno, Result};

/// Time without end.
pub(crate) const FOREVER: u64 = u64::MAX;
/// Time for which a passive waiter spins on the word before it sleeps, in ns: a sleep and a wake-up
/// cost as much where processors are virtual. If it was less than a wake-up takes, two threads that
/// have both begun to sleep would never find each other awake again.
const SPIN_NS: u64 = 30_000;
/// Interval at which a thread that waits for a cancellation checks again, in ns.
const SLICE_NS: u64 = 5_000_000;

/// Event that ends a sleep before its time.
#[derive(Debug)]
pub(crate) enum On<'a> {
    /// A change of this word. Under a mask only the time and signals end the sleep.
    Word(&'a AtomicU32, u32),
    /// Events of this poll set, which the sleep takes.
    Events(i32, &'a mut [epoll_event; BATCH]),
    /// A number of completions of kernel aio, which the sleep takes.
    Aio(&'a mut DetachedReap, usize),
    /// Readability of the descriptor.
    Readable(i32),
    /// Readiness of one of these.
    Entries(&'a mut [PollEntry]),
    /// Readability of one of these; no signal ends the sleep.
    AnyReadable(&'a [i32]),
    /// Nothing.
    Time,
}

/// Sleeps for `ns` at most, with `mask` in force meanwhile; returns the number of events taken.
/// Called without any lock.
///
/// # Errors
/// `EINTR` when a signal came; where it can be told, `ETIMEDOUT` when the time was over, `EAGAIN`
/// when the word had changed before.
pub(crate) fn sleep(on: On<'_>, ns: u64, mask: Option<u64>) -> Result<usize> {
    let time = Duration::from_nanos(ns);
    let limit = (ns != FOREVER).then_some(time);
    let _asleep = asleep();
    match (on, mask) {
        (On::Events(set, buf), _) => poll::wait(set, buf, limit.map(|_| ns), mask),
        (On::Aio(reap, min), _) => reap.wait(min, time, mask),
        (On::Readable(fd), _) => sys::poll_or_stop(mask, fd, time).map(|()| 0),
        (On::Entries(entries), _) => sys::poll_entries(entries, limit, mask),
        (On::AnyReadable(fds), _) if sys::poll_in(fds, time) => Err(Errno::ETIMEDOUT),
        (On::AnyReadable(_), _) => Ok(0),
        (On::Word(..) | On::Time, Some(mask)) => sys::sleep_under(mask, time).map(|()| 0),
        (On::Word(word, seen), None) => sys::futex_wait_sig(word, seen, limit).map(|()| 0),
        (On::Time, None) => sys::sleep(time).map(|()| 0),
    }
}

/// Reason for the end of a sleep on the sequence word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woke {
    /// The word changed while the thread spun.
    Spinning,
    /// The word had changed before the thread could spin or sleep.
    Soon,
    /// The thread slept.
    Asleep,
    /// A signal came.
    Signal,
}

/// Sleeps until somebody posts, for `ns` at most; `spins`: spins first. For `goes` see
/// [`Sequence::wait`].
pub(crate) fn sleep_on_sequence(
    control: &Control,
    spins: bool,
    ns: u64,
    mask: Option<u64>,
    goes: impl FnOnce() -> bool,
) -> Woke {
    match control.wait(spins, goes, spin, |word, seen| sleep(On::Word(word, seen), ns, mask)) {
        Ended::Spinning => Woke::Spinning,
        Ended::Slept(Err(Errno::EINTR)) => Woke::Signal,
        Ended::Soon => Woke::Soon,
        Ended::Slept(_) => Woke::Asleep,
    }
}

/// Spins on a word for as long as a sleep and its end take; true if the word changed.
fn spin(word: &AtomicU32, seen: u32) -> bool {
    let end = Clock::Monotonic.now() + SPIN_NS;
    loop {
        for _ in 0..16 {
            if word.load(SeqCst) != seen {
                return true;
            }
            core::hint::spin_loop();
        }
        if Clock::Monotonic.now() >= end {
            return false;
        }
    }
}

/// Releases the lock for good, and sleeps until something completes, for a while.
///
/// # Errors
/// `ETIME` past the deadline, `EINTR`.
pub(crate) fn sleep_for_change(ctx: Guard<'_>, deadline: u64) -> Result<()> {
    let now = Clock::Monotonic.now();
    if now >= deadline {
        return Err(Errno::ETIME);
    }
    let control = ctx.mem.control.clone();
    let unlock = || {
        drop(ctx);
        true
    };
    match sleep_on_sequence(&control, false, SLICE_NS.min(deadline - now), None, unlock) {
        Woke::Signal => Err(Errno::EINTR),
        Woke::Spinning | Woke::Soon | Woke::Asleep => Ok(()),
    }
}

/// Sleeps as a policy says for completions of `reap`, of which `in_flight` are to come. Without
/// `reap`, the time or the eventfd `wake` ends the sleep. True if enough came to end it.
///
/// # Errors
/// `EINTR`.
pub(crate) fn idle_sleep(
    reap: Option<&mut DetachedReap>,
    idle_sleep: IdleSleep,
    in_flight: u32,
    wake: Option<i32>,
    mask: Option<u64>,
) -> Result<bool> {
    let ns = idle_sleep.until.saturating_sub(Clock::Monotonic.now());
    let min = (idle_sleep.many.min(in_flight) as usize).clamp(1, AIO_WAIT_BATCH);
    let slept = match (reap, wake) {
        (Some(reap), _) => {
            let taken = sleep(On::Aio(reap, min), ns, mask);
            return if taken == Err(Errno::EINTR) {
                Err(Errno::EINTR)
            } else {
                Ok(taken.is_ok_and(|n| n >= min))
            };
        }
        (None, Some(wake)) => sleep(On::Readable(wake), ns, mask),
        (None, None) => sleep(On::Time, ns, mask),
    };
    slept.map(|_| false)
}
