//! FUTEX_WAIT, FUTEX_WAITV, FUTEX_WAKE. Kernel counterpart: `io_uring/futex.c`.
//!
//! If the futex has the expected value, the wait goes to a thread that sleeps on the futex
//! ([`crate::io::futex_waiter`]).

use crate::io::futex_waiter::{Futex, Job};
use crate::ops::zero;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::Outcome;
use crate::ring::request::{OpState, Phase, Req};
use alloc::boxed::Box;
use core::time::Duration;
use softring_host::calls::{ReadPtr, futex};
use softring_host::sys::pause;
use softring_host::threads::yield_now;
use softring_host::user;
use softring_uapi::errno::{Errno, Result};

const FUTEX2_SIZE_U32: u32 = 2;
const FUTEX2_NUMA: u32 = 4;
const FUTEX2_MPOL: u32 = 8;
const FUTEX2_PRIVATE: u32 = 128;
/// `FUTEX_WAITV_MAX`
const WAITV_MAX: u32 = 128;

/// Returns whether a futex is private to the process.
///
/// # Errors
/// `EINVAL` for flags that the kernel does not know, for other sizes than 32 bits, and for futexes
/// of NUMA nodes.
fn is_private(flags: u32) -> Result<bool> {
    match flags {
        FUTEX2_SIZE_U32 => Ok(false),
        f if f == FUTEX2_SIZE_U32 | FUTEX2_PRIVATE => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

fn narrow(word: u64) -> Result<u32> {
    u32::try_from(word).map_err(|_| Errno::EINVAL)
}

/// Checks a FUTEX_WAIT or FUTEX_WAKE (`io_futex_prep`).
pub(crate) fn prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[s.len, s.op_flags, u32::from(s.buf_index), s.file_index].map(u64::from))?;
    let flags = s.fd.cast_unsigned();
    // Refused at issue, not before.
    let node = flags & (FUTEX2_NUMA | FUTEX2_MPOL) != 0;
    let private = is_private(flags & !(FUTEX2_NUMA | FUTEX2_MPOL))?;
    let (val, mask) = (narrow(s.off)?, narrow(s.addr3)?);
    let mask = if node { 0 } else { mask };
    req.call.state = OpState::Sleep(Job::Futex(Futex { addr: s.addr, val, private }, mask));
    Ok(())
}

/// Waits for a wake, if the futex has its value (`io_futex_wait`).
pub(crate) fn wait(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    match &req.call.state {
        OpState::Sleep(Job::Futex(futex, 1..)) => start(read_futexes(ctx, || futex.check())),
        _ => Outcome::Done(Errno::EINVAL.res()),
    }
}

/// Reads futexes, which may have to wait for their pages. A program that sees the CQE of the
/// request before this one may send its wake at once. So the lock is kept while that CQE is not
/// published, as the kernel keeps it: nobody else publishes it before this request waits.
fn read_futexes<R>(ctx: &mut Ctx, check: impl FnOnce() -> R) -> R {
    if ctx.completion.posted { check() } else { ctx.unlocked(check) }
}

fn start(checked: Result<()>) -> Outcome {
    match checked {
        Ok(()) => Outcome::Sleeps,
        Err(e) => Outcome::Done(e.res()),
    }
}

/// Wakes waiters (`io_futex_wake`). Runs under the lock, so that their CQEs come after the
/// request's own.
pub(crate) fn wake(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let done = match &req.call.state {
        OpState::Sleep(Job::Futex(futex, mask)) => wake_all_asked(ctx, futex, *mask),
        _ => Err(Errno::EINVAL),
    };
    Outcome::Done(done.map_or_else(Errno::res, |n| n as i32))
}

/// Wakes as many waiters as asked for, if there are so many. A thread that waits for a request of
/// this ring leaves the futex for a moment if something else wakes it, and the kernel finds no
/// waiter then ([`crate::io::futex_waiter`]): the wake is made again until the thread is there.
fn wake_all_asked(ctx: &Ctx, futex: &Futex, mask: u32) -> Result<usize> {
    /// Tries with a yield between, then those with a pause: a second in all, in which a thread
    /// comes back even on a busy machine.
    const YIELDS: u32 = 50;
    const TRIES: u32 = YIELDS + 20_000;
    const PAUSE: Duration = Duration::from_micros(50);
    // A negative number wakes one.
    let asked = usize::try_from(futex.val.cast_signed()).unwrap_or(1);
    let there = if asked > 1 { ctx.waiters_at(futex, mask) } else { asked };
    let mut woken = futex_wake(futex, mask)?;
    for tries in 0..TRIES {
        // Those that were woken are still there until they run.
        if woken >= asked.min(there) || ctx.waiters_at(futex, mask) == 0 {
            break;
        }
        if tries < YIELDS {
            yield_now()
        } else {
            pause(PAUSE)
        }
        let left = Futex { val: (asked - woken) as u32, ..*futex };
        woken += futex_wake(&left, mask)?;
    }
    Ok(woken)
}

impl Ctx {
    /// Returns the number of the ring's requests that wait at a futex, as far as their threads have
    /// not run since they were woken.
    fn waiters_at(&self, at: &Futex, mask: u32) -> usize {
        let waits = |req: &Req| matches!(&req.phase, Phase::Sleeping(by) if by.waits_at(at, mask));
        self.reqs.slab.iter().filter(|(_, req)| waits(req)).count()
    }
}

/// Calls `futex_wake(2)`, or futex(2) on kernels before 6.7 and where the new call is denied.
fn futex_wake(f: &Futex, mask: u32) -> Result<usize> {
    let (at, n) = (ReadPtr(f.addr), f.val.cast_signed());
    match futex::wake2(at, f.private, n, mask) {
        Err(Errno::ENOSYS) => {}
        done => return done,
    }
    // The older call wakes one waiter if none is asked for.
    if f.val == 0 && mask != 0 {
        return match f.check() {
            Err(Errno::EAGAIN) => Ok(0),
            other => other.map(|()| 0),
        };
    }
    futex::wake_bitset(at, f.private, f.val, mask)
}

/// Checks a FUTEX_WAITV and copies its futexes (`io_futexv_prep`).
pub(crate) fn waitv_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[s.off, s.addr3])?;
    let fd = s.fd.cast_unsigned();
    zero(&[fd, s.op_flags, u32::from(s.buf_index), s.file_index].map(u64::from))?;
    if s.len == 0 || s.len > WAITV_MAX {
        return Err(Errno::EINVAL);
    }
    // The layout of `struct futex_waitv`: value, address, flags and a reserved word.
    let words = ctx.unlocked(|| user::read_prefix::<u64>(s.addr, 3 * s.len as usize));
    let futex = |w: &[u64]| {
        let private = is_private(narrow(w[2])?)?;
        Ok(Futex { addr: w[1], val: narrow(w[0])?, private })
    };
    let all = words.chunks_exact(3).map(futex).collect::<Result<Box<[Futex]>>>()?;
    if all.len() < s.len as usize {
        return Err(Errno::EFAULT);
    }
    req.call.state = OpState::Sleep(Job::AnyOf(all));
    Ok(())
}

/// Waits for a wake of any futex, if all have their values (`io_futexv_wait`).
pub(crate) fn waitv(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let OpState::Sleep(Job::AnyOf(all)) = &req.call.state else {
        return Outcome::Done(Errno::EINVAL.res());
    };
    // The kernel checks all addresses before it reads any value.
    let bad = |e: &Errno| *e != Errno::EAGAIN;
    let checks = || all.iter().filter_map(|f| f.check().err());
    let crooked = all.iter().any(|f| !f.addr.is_multiple_of(4));
    let error = read_futexes(ctx, || {
        let error = if crooked { Some(Errno::EINVAL) } else { checks().find(bad) };
        error.or_else(|| checks().next())
    });
    start(error.map_or(Ok(()), Err))
}
