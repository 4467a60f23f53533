//! `io_uring_enter(2)`: submit, then wait. Kernel counterpart: `io_uring_enter`, `io_get_ext_arg`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use crate::drive::cqwait::{WaitArgs, cqring_wait, unlocked};
use crate::drive::iopoll::{Args, iopoll_check};
use crate::drive::sqpoll;
use crate::drive::task_work;
use crate::io::signal_scope::{SignalScope, Sigset};
use crate::ring::ctx::{Ctx, Guard, Ring, Setup};
use crate::ring::turn::{Drives, Turn};
use crate::stats::trace::Step;
use softring_host::handlers::Call;
use softring_host::{sys, time, user};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Number of calls per check that the descriptor was not closed unnoticed.
const CHECK_EVERY: u32 = 64;

/// Submits and waits; see [`super::enter()`].
///
/// # Errors
/// `EINVAL`, `EBADF`, `EOPNOTSUPP`, `EBADFD`, `EEXIST`, `EFAULT`, `ETIME`, `EINTR`: same as
/// io_uring_enter(2).
pub(crate) fn enter(fd: i32, args: &Args, call: &Call) -> Result<usize> {
    if args.flags & !IORING_ENTER_ALL != 0 {
        return Err(Errno::EINVAL);
    }
    if args.flags & IORING_ENTER_REGISTERED_RING != 0 {
        return enter_ring(&crate::process::registered::get(fd)?, args, call);
    }
    enter_by(fd, crate::ring::table::ring(fd)?, args, call)
}

/// Submits and waits, for a descriptor that is known to be `ring`'s; see [`enter`].
///
/// # Errors
/// Same as [`enter`].
pub(crate) fn enter_by(fd: i32, mut ring: Arc<Ring>, args: &Args, call: &Call) -> Result<usize> {
    if args.flags & !IORING_ENTER_ALL != 0 {
        return Err(Errno::EINVAL);
    }
    // The count is not exact if threads race, and need not be. A call that does nothing else has
    // time to check whether the descriptor is still the ring's.
    let n = ring.enters.load(Relaxed).wrapping_add(1);
    ring.enters.store(n, Relaxed);
    let idle = args.submit == 0 && args.flags & IORING_ENTER_GETEVENTS == 0;
    if idle || n.is_multiple_of(CHECK_EVERY) {
        ring = crate::process::checked_ring(fd)?;
    }
    enter_ring(&ring, args, call)
}

fn enter_ring(ring: &Arc<Ring>, args: &Args, call: &Call) -> Result<usize> {
    // The scope is dropped last: with the signal mask back, a handler may run that enters, too.
    let mut signals = SignalScope::default();
    signals.begin(call)?;
    let mut ctx = if submits(ring, args) { ring.lock() } else { ring.lock_now() };
    ctx.drive.entered += 1;
    ctx.supersede();
    ctx.resources.files.fetch_if_away();
    ctx.trace.check_wanted();
    let span = ctx.trace.begin();
    let (mut ctx, answer) = submit_and_wait(ring, ctx, args, &mut signals);
    ctx.trace.end(span, Step::Enter, args.submit);
    ctx.drive.entered -= 1;
    let last = ctx.drive.closed && ctx.drive.entered == 0;
    crate::drive::leave::leave(ring, ctx);
    if last {
        crate::drive::teardown::end(ring, None);
    }
    answer
}

/// Returns whether the call itself takes SQEs.
fn submits(ring: &Ring, args: &Args) -> bool {
    args.submit > 0 && ring.sq.get().is_none()
}

fn submit_and_wait<'r>(
    ring: &'r Arc<Ring>,
    mut ctx: Guard<'r>,
    args: &Args,
    signals: &mut SignalScope,
) -> (Guard<'r>, Result<usize>) {
    if ctx.setup.disabled {
        return (ctx, Err(Errno::EBADFD));
    }
    let mut submitted = 0;
    if ctx.setup.flags & IORING_SETUP_SQPOLL != 0 {
        drop(ctx);
        if let Err(e) = turn_to_thread(ring, args.flags) {
            return (ring.lock_now(), Err(e));
        }
        ctx = ring.lock_now();
        submitted = args.submit;
    } else if args.submit > 0 {
        crate::process::registered::touch();
        if let Err(e) = ctx.setup.check_issuer() {
            return (ctx, Err(e));
        }
        if let Some(e) = ctx.faults_submit() {
            return (ctx, Err(e));
        }
        let waits = args.flags & IORING_ENTER_GETEVENTS != 0;
        ctx.submit.waits = if waits { args.min } else { 0 };
        // A request of a batch may make another one ready that the batch has armed.
        let older = args.submit > 1 || ctx.in_flight();
        let taken = ctx.submit_sqes(args.submit);
        ctx.submit.waits = 0;
        ctx.after_submit(waits && taken == Ok(args.submit), older);
        match taken {
            Ok(n) => submitted = n,
            Err(e) => return (ctx, Err(e)),
        }
        if waits && submitted == args.submit && ctx.has_enough(args.min) {
            return (ctx, Ok(submitted as usize));
        }
    } else if args.flags & IORING_ENTER_GETEVENTS == 0 && !ctx.defers() && ctx.in_flight() {
        // A call with no other purpose wants completions now, even if another thread is about to
        // bring them.
        ctx = task_work::without_reactor(ring, ctx);
        ctx.turn(Turn::All);
    }
    if submitted != args.submit || args.flags & IORING_ENTER_GETEVENTS == 0 {
        return (ctx, Ok(submitted as usize));
    }
    if ctx.work.any_pending() {
        drop(ctx);
        crate::drive::pending::flush(ring);
        ctx = ring.lock_now();
    }
    let (ctx, waited) = wait(ring, ctx, args, signals);
    (ctx, if submitted > 0 { Ok(submitted as usize) } else { waited })
}

fn wait<'r>(
    ring: &'r Arc<Ring>,
    mut ctx: Guard<'r>,
    args: &Args,
    signals: &mut SignalScope,
) -> (Guard<'r>, Result<usize>) {
    if ctx.setup.polls_by_enter() && !ctx.foreign_issuer() {
        if ctx.issue.is_elsewhere() {
            // Polling needs the lock without an issue in progress, as in the kernel.
            drop(ctx);
            ctx = ring.lock();
        }
        return iopoll_check(ring, ctx, args, signals);
    }
    match wait_args(ring, ctx, args) {
        (ctx, Ok(_)) if ctx.foreign_issuer() => (ctx, Err(Errno::EEXIST)),
        (ctx, Ok(args)) => cqring_wait(ring, ctx, args, signals),
        (ctx, Err(e)) => (ctx, Err(e)),
    }
}

/// Lets the SQ thread submit: wakes it, or waits for it.
///
/// # Errors
/// `EOWNERDEAD` if the thread is gone.
fn turn_to_thread(ring: &Ring, flags: u32) -> Result<()> {
    let Some(sq) = ring.sq.get().filter(|sq| sq.data.lives()) else {
        return Err(Errno::EOWNERDEAD);
    };
    if flags & IORING_ENTER_SQ_WAKEUP != 0 {
        sq.data.wake();
    } else if flags & (IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAIT) != 0 {
        sq.await_thread(&ring.control);
    }
    if flags & IORING_ENTER_SQ_WAIT != 0 {
        sqpoll::wait_sq(ring);
    }
    Ok(())
}

impl Ctx {
    /// Returns whether another task is the issuer (DEFER_TASKRUN): only the issuer runs task work,
    /// so only the issuer may wait.
    fn foreign_issuer(&self) -> bool {
        self.defers() && self.setup.issuer.is_some_and(|t| t != sys::gettid())
    }

    /// Returns whether, right after a submission, enough CQEs are there and a wait has nothing else
    /// to check: the first check of `io_cqring_wait`, without its task work, which has just been
    /// done.
    fn has_enough(&self, min: u32) -> bool {
        let polls = IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_IOPOLL;
        self.mem.cq_ready() >= min.min(self.mem.geo.cq_entries)
            && self.setup.flags & polls == 0
            && !self.in_flight()
            && self.completion.overflow.is_empty()
            && !self.work.any_pending()
            && !self.work.any_next_turn()
    }
}

/// Contents of a wait's argument.
#[derive(Debug, Default)]
struct Ext {
    ts: Option<kernel_timespec>,
    min_wait_usec: u32,
    sigset: Sigset,
}

/// Reads the wait arguments (`io_get_ext_arg`), without the lock if they lie in the program's
/// memory: a read there may be slow, and an issuer must not wait for another thread's wait. The
/// signal mask is read only by a wait that has to wait.
fn wait_args<'r>(ring: &'r Ring, ctx: Guard<'r>, args: &Args) -> (Guard<'r>, Result<WaitArgs>) {
    let kind = args.flags & (IORING_ENTER_EXT_ARG | IORING_ENTER_EXT_ARG_REG);
    let (ctx, ext) = if kind == IORING_ENTER_EXT_ARG | IORING_ENTER_EXT_ARG_REG {
        let entry = registered_wait(&ctx, args.arg, args.argsz);
        (ctx, entry.map(|entry| of_registered(&entry)))
    } else if kind & IORING_ENTER_EXT_ARG != 0 {
        unlocked(ring, ctx, || read_ext(args))
    } else {
        let sigset = Sigset { at: args.arg, size: args.argsz };
        (ctx, Ok(Ext { sigset, ..Ext::default() }))
    };
    let waits = ext.map(|ext| {
        let mut w = WaitArgs { min: args.min, sigset: ext.sigset, ..WaitArgs::default() };
        deadlines(&ctx, &mut w, args.flags, ext.ts, ext.min_wait_usec);
        w
    });
    (ctx, waits)
}

fn read_ext(args: &Args) -> Result<Ext> {
    if args.argsz != size_of::<io_uring_getevents_arg>() {
        return Err(Errno::EINVAL);
    }
    let ext: io_uring_getevents_arg = user::read(args.arg)?;
    let ts = if ext.ts != 0 { Some(user::read(ext.ts)?) } else { None };
    let sigset = Sigset { at: ext.sigmask, size: ext.sigmask_sz as usize };
    Ok(Ext { ts, min_wait_usec: ext.min_wait_usec, sigset })
}

fn of_registered(entry: &io_uring_reg_wait) -> Ext {
    let ts = (entry.flags & IORING_REG_WAIT_TS != 0).then_some(entry.ts);
    let sigset = Sigset { at: entry.sigmask, size: entry.sigmask_sz as usize };
    Ext { ts, min_wait_usec: entry.min_wait_usec, sigset }
}

fn registered_wait(ctx: &Ctx, off: u64, argsz: usize) -> Result<io_uring_reg_wait> {
    if argsz != size_of::<io_uring_reg_wait>() {
        return Err(Errno::EINVAL);
    }
    let region = ctx.resources.param_region.as_ref().ok_or(Errno::EFAULT)?;
    let entry = region.wait_arg(off)?;
    if entry.flags & !IORING_REG_WAIT_TS != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(entry)
}

fn deadlines(ctx: &Ctx, w: &mut WaitArgs, flags: u32, ts: Option<kernel_timespec>, min_us: u32) {
    if ts.is_none() && min_us == 0 {
        return;
    }
    let now = ctx.setup.clock.now();
    let base = if flags & IORING_ENTER_ABS_TIMER != 0 { 0 } else { now };
    w.deadline = ts.map(|ts| base.saturating_add(time::ns_of(ts)));
    w.min_deadline = (min_us != 0).then(|| now.saturating_add(u64::from(min_us) * 1000));
}

impl Setup {
    /// Checks SINGLE_ISSUER: the first task to submit (or to make or enable the ring) is the only
    /// one.
    pub(crate) fn check_issuer(&mut self) -> Result<()> {
        if self.flags & IORING_SETUP_SINGLE_ISSUER == 0 {
            return Ok(());
        }
        let me = sys::gettid();
        match self.issuer {
            None => self.issuer = Some(me),
            Some(other) if other != me => return Err(Errno::EEXIST),
            Some(_) => {}
        }
        Ok(())
    }
}
