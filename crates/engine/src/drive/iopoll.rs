//! Polled I/O (IOPOLL): the entering thread polls for completions until there are enough. Kernel
//! counterpart: `io_iopoll_check`, `io_do_iopoll`.
//!
//! The thread polls the completion memory of kernel aio, which is mapped into this process: finding
//! a completion takes no system call, no eventfd and no wake-up. The device signals as ever and
//! needs no poll queue. A modelled device is polled by the clock. One poll takes all completions
//! that have come: no completion waits behind a slow request.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use crate::drive::cqwait::{end_by_signals, sleep_passively};
use crate::drive::sleep;
use crate::io::aio::AioCtx;
use crate::io::polling::POLLS;
use crate::io::signal_scope::SignalScope;
use crate::policy::hybrid::{IdleSleep, Tally};
use crate::ring::ctx::{Ctx, Driving, Guard, Ring};
use crate::ring::turn::{Drives, Turn};
use softring_host::sys;
use softring_host::time::Clock;
use softring_host::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Arguments of io_uring_enter(2) behind the descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    pub submit: u32,
    pub min: u32,
    pub flags: u32,
    pub arg: u64,
    pub argsz: usize,
}

/// Time without a completion after which the thread sleeps for one, in ns: no device that is worth
/// polling takes longer, and a signal must get through.
const SPIN_NS: u64 = 1_000_000;
/// Time after which the thread blocks, in ns: the device has stalled.
const STALLED_NS: u64 = 10_000_000;
/// Longest sleep until then: posts by others do not end it.
const SLICE: Duration = Duration::from_millis(1);

/// Polls for completions until `args.min` have come, or nothing is in flight any more; `min` is a
/// hint. Does not poll if the CQ holds CQEs.
///
/// # Errors
/// `EINVAL`, `EFAULT` for the argument, whose times are not honoured; `EINTR` when a signal came.
pub(crate) fn iopoll_check<'r>(
    ring: &'r Ring,
    mut ctx: Guard<'r>,
    args: &Args,
    signals: &mut SignalScope,
) -> (Guard<'r>, Result<usize>) {
    if let Err(e) = validate_ext_arg(&mut ctx, args) {
        return (ctx, Err(e));
    }
    if !ctx.completion.overflow.is_empty() {
        ctx.flush_overflow();
    }
    let want = args.min.min(ctx.mem.geo.cq_entries) as usize;
    if ctx.mem.cq_ready() > 0 {
        return (ctx, Ok(0));
    }
    if let Some(polling) = &mut ctx.drive.transports.polling {
        polling.begin();
    }
    let (mut ctx, done) = poll_until(ring, ctx, want, signals);
    ctx.count_idle_sleeps();
    (ctx, done)
}

/// Polls, sleeps and blocks until `want` completions have come.
fn poll_until<'r>(
    ring: &'r Ring,
    mut ctx: Guard<'r>,
    want: usize,
    signals: &mut SignalScope,
) -> (Guard<'r>, Result<usize>) {
    // CQEs that others post meanwhile count: they end the kernel's wait, too.
    let (before, mut found, mut no_policy) = (ctx.completions(), 0, NoPolicy::default());
    loop {
        ctx.turn(Turn::Memory);
        let all = ctx.completions().wrapping_sub(before) as usize;
        if all != found {
            (found, no_policy.since) = (all, None);
        }
        if found >= want || !ctx.in_flight() || ring.dead.load(Relaxed) {
            return (ctx, Ok(0));
        }
        if !ctx.drive.polls_memory() {
            // Workers have requests, or another thread sleeps for aio completions: they need the
            // lock, and wake sleepers.
            let asleep;
            (ctx, asleep) = match signals.heeds() {
                Err(_) => end_by_signals(ring, ctx, signals),
                Ok(()) => sleep_passively(ring, ctx, SLICE),
            };
            if asleep.is_err() {
                return (ctx, asleep);
            }
            continue;
        }
        let sleep = match &mut ctx.drive.transports.polling {
            Some(polling) => polling.next_sleep(signals),
            None => no_policy.next_sleep(signals),
        };
        let slept;
        (ctx, slept) = match sleep {
            Ok(Some(idle_sleep)) => {
                let (ctx, slept) = sleep_unlocked(ring, ctx, idle_sleep, signals.mask());
                (ctx, slept.map(|_| 0))
            }
            Ok(None) => {
                // Other threads get the lock in between.
                drop(ctx);
                core::hint::spin_loop();
                (ring.lock(), Ok(0))
            }
            Err(_) => end_by_signals(ring, ctx, signals),
        };
        if slept.is_err() {
            return (ctx, slept);
        }
    }
}

/// State of a wait on a ring without a policy: the thread spins for a while, then sleeps.
#[derive(Debug, Default)]
struct NoPolicy {
    polls: u32,
    since: Option<u64>,
}

impl NoPolicy {
    fn next_sleep(&mut self, signals: &mut SignalScope) -> Result<Option<IdleSleep>> {
        let skips = !self.polls.is_multiple_of(POLLS);
        self.polls += 1;
        if skips {
            return Ok(None);
        }
        let now = Clock::Monotonic.now();
        signals.spins(now)?;
        let slice = IdleSleep { until: now + SLICE.as_nanos() as u64, many: 1 };
        Ok(match now - *self.since.get_or_insert(now) {
            vain if vain > STALLED_NS => Some(IdleSleep::BLOCK),
            vain if vain > SPIN_NS => Some(slice),
            _ => None,
        })
    }
}

/// Sleeps without the lock for completions of aio or of a modelled device. Returns false if there
/// are none to sleep for: the ring's sleep is then cancelled.
///
/// # Errors
/// `EINTR` when a signal came.
pub(crate) fn sleep_unlocked<'r>(
    ring: &'r Ring,
    mut ctx: Guard<'r>,
    mut idle_sleep: IdleSleep,
    mask: Option<u64>,
) -> (Guard<'r>, Result<bool>) {
    let aio = ctx.drive.transports.aio.as_deref_mut().filter(|aio| aio.in_flight() > 0);
    let in_flight = aio.as_ref().map_or(0, |aio| aio.in_flight());
    let mut reap = aio.and_then(AioCtx::detach_reap);
    // A completion of aio that another thread takes would not end an unbounded sleep.
    let watches = idle_sleep == IdleSleep::BLOCK && (in_flight == 0 || reap.is_some());
    let wake = if watches { ctx.drive.watch_others(reap.is_some()) } else { None };
    let blocks = wake.is_some();
    if !blocks && (ctx.drive.transports.workers > 0 || idle_sleep == IdleSleep::BLOCK) {
        // Posts by others do not end such a sleep.
        idle_sleep.until = idle_sleep.until.min(Clock::Monotonic.now() + SLICE.as_nanos() as u64);
    }
    let idle_sleeping = ctx.trace.begin_idle_sleep(idle_sleep.until, idle_sleep.many);
    // A modelled device wakes its sleepers, as a real one does.
    let due = ctx.drive.model_due().filter(|&due| !idle_sleep.through() && due < idle_sleep.until);
    let idle_sleep = IdleSleep { until: due.unwrap_or(idle_sleep.until), ..idle_sleep };
    if ctx.drive.transports.with_models() {
        sys::exact_timers();
    } else if reap.is_none() {
        if let Some(polling) = &mut ctx.drive.transports.polling {
            polling.cancel(false);
        }
        return (ctx, Ok(false));
    }
    if blocks {
        // Any CQE ends the sleep: the program may have taken it when the poster checks the driver.
        ctx.drive.begin_drive(0, idle_sleep.until);
    }
    drop(ctx);
    let slept = sleep::idle_sleep(reap.as_mut(), idle_sleep, in_flight, wake, mask);
    let slept = slept.map(|early| early || due.is_some());
    let mut ctx = ring.lock();
    if let Some((aio, reap)) = ctx.drive.transports.aio.as_mut().zip(reap) {
        aio.attach_reap(&reap);
    }
    if blocks {
        ctx.end_drive();
    }
    ctx.trace.end_idle_sleep(&idle_sleeping);
    // Another waiter may have to go on from here.
    ctx.wake_waiters();
    if let Some(polling) = &mut ctx.drive.transports.polling {
        polling.woke(slept != Ok(false));
    }
    (ctx, slept.map(|_| true))
}

/// Validates the extended argument (`io_validate_ext_arg`).
fn validate_ext_arg(ctx: &mut Ctx, args: &Args) -> Result<()> {
    if args.flags & IORING_ENTER_EXT_ARG == 0 {
        return Ok(());
    }
    let size = size_of::<io_uring_getevents_arg>();
    if args.flags & IORING_ENTER_EXT_ARG_REG != 0 || args.argsz != size {
        return Err(Errno::EINVAL);
    }
    ctx.unlocked(|| user::read::<io_uring_getevents_arg>(args.arg)).map(|_| ())
}

impl Ctx {
    /// Adds the tally of sleeps to the statistics.
    pub(crate) fn count_idle_sleeps(&mut self) {
        let Some(polling) = &mut self.drive.transports.polling else { return };
        let Tally { idle_sleeps, under, over, spared_ns, spun_ns } = polling.hybrid.take_tally();
        if idle_sleeps + spun_ns > 0 {
            let n = &self.stats.idle_sleeps;
            let counts = [idle_sleeps, under, over, spared_ns, spun_ns];
            let words = [&n.idle_sleeps, &n.under, &n.over, &n.spared_ns, &n.spun_ns];
            words.into_iter().zip(counts).for_each(|(word, count)| word.add(count));
        }
    }
}

impl Driving {
    /// Returns whether there are completions to poll for: of aio, if no other thread sleeps for
    /// them, or of a modelled device.
    pub(crate) fn polls_memory(&self) -> bool {
        let aio = self.transports.aio.as_ref();
        aio.is_some_and(|aio| aio.in_flight() > 0 && !aio.is_detached())
            || self.transports.with_models()
    }

    /// Returns the eventfd that ends a sleep for posts by others and for earlier deadlines of
    /// modelled devices; none if that cannot be. `aio`: the sleep is for completions of aio. The
    /// sleeping thread is then the driver, which others wake.
    fn watch_others(&mut self, aio: bool) -> Option<i32> {
        if self.driver.active {
            return None;
        }
        let set = self.transports.poll_set().ok()?;
        set.clear_wake();
        let wake = set.wake_fd().fd();
        let armed = !aio || self.transports.aio.as_mut().is_some_and(|aio| aio.arm_alarm(wake));
        armed.then_some(wake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fds, syscall};

    /// Checks a ring on which only workers have requests.
    #[test]
    fn without_requests_there_is_no_sleep() {
        let flags = IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL;
        let mut params = io_uring_params { flags, ..Default::default() };
        let fd = syscall::tests::setup(4, &mut params) as i32;
        let ring = fds::ring(fd).unwrap();
        let (mut signals, mut ctx) = (SignalScope::default(), ring.lock());
        ctx.start_polling(4);
        let idle_sleep = loop {
            let polling = ctx.drive.transports.polling.as_mut().unwrap();
            if let Some(idle_sleep) = polling.next_sleep(&mut signals).unwrap() {
                break idle_sleep;
            }
        };
        let (mut ctx, slept) = sleep_unlocked(&ring, ctx, idle_sleep, None);
        assert_eq!(slept, Ok(false));
        let polling = ctx.drive.transports.polling.as_mut().unwrap();
        assert_eq!(polling.hybrid.take_tally().idle_sleeps, 0);
    }
}
