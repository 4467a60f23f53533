//! Polled I/O (IOPOLL): whoever enters looks for completions until there are enough. Kernel
//! counterpart: `io_iopoll_check`, `io_do_iopoll`.
//!
//! What is polled is the completion memory of the kernel's aio, mapped into this process: finding a
//! completion takes no system call, no eventfd and no wake-up. The device signals as ever, so it
//! needs no poll queue. All that has come is taken in one look: nothing that is done waits behind
//! something slow.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use crate::abi::*;
use crate::ctx::{Ctx, Guard, Ring};
use crate::errno::{Errno, Result};
use crate::opdef::{self, OPS};
use crate::ops::rw;
use crate::req::request::Req;
use crate::req::route::kind_of;
use crate::sys;
use crate::syscall::enter::Args;
use crate::time::Clock;
use crate::transport::kind::Kind;
use crate::user;
use crate::wait::cqwait::sleep_passively;

/// Looks in a row between two looks at the clock.
const LOOKS: u32 = 64;
/// After so long without a completion, in ns, the thread sleeps for it: no device that is worth
/// polling takes longer, and a signal must get through.
const SPIN_NS: u64 = 1_000_000;
/// It sleeps with the uring lock held, so that long at most: others may want to submit.
const SLICE: Duration = Duration::from_millis(1);

/// Looks for completions until `args.min` have come, or nothing is in flight any more; `min` is a
/// hint. Does not look if the CQ has some.
///
/// # Errors
/// `EINVAL`, `EFAULT` for the argument, whose times are not honoured; `EINTR` when a signal came.
pub fn iopoll_check<'r>(
    ring: &'r Ring,
    mut ctx: Guard<'r>,
    args: &Args,
) -> (Guard<'r>, Result<usize>) {
    if let Err(e) = validate_ext_arg(args) {
        return (ctx, Err(e));
    }
    if !ctx.overflow.is_empty() {
        ctx.flush_overflow();
    }
    let want = args.min.min(ctx.mem.geo.cq_entries) as usize;
    let (mut found, mut looks, mut since) = (0, 0, None);
    if ctx.mem.cq_ready() > 0 {
        return (ctx, Ok(0));
    }
    loop {
        let news = ctx.poll_once();
        if news > 0 {
            since = None;
        }
        found += news;
        if found >= want || !ctx.in_flight() || ring.dead.load(Relaxed) {
            return (ctx, Ok(0));
        }
        looks += 1;
        if !ctx.polls_memory() {
            // Only workers have something: they need the lock, and wake who sleeps.
            let asleep;
            (ctx, asleep) = sleep_passively(ring, ctx, SLICE);
            if asleep.is_err() {
                return (ctx, asleep);
            }
            continue;
        }
        // Others get the lock in between.
        drop(ctx);
        core::hint::spin_loop();
        ctx = ring.lock();
        if looks % LOOKS != 0 {
            continue;
        }
        let now = Clock::Monotonic.now();
        if now - *since.get_or_insert(now) > SPIN_NS
            && let Err(e) = ctx.sleep_for_memory()
        {
            return (ctx, Err(e));
        }
    }
}

/// `io_validate_ext_arg`
fn validate_ext_arg(args: &Args) -> Result<()> {
    if args.flags & IORING_ENTER_EXT_ARG == 0 {
        return Ok(());
    }
    let size = size_of::<io_uring_getevents_arg>();
    if args.flags & IORING_ENTER_EXT_ARG_REG != 0 || args.argsz != size {
        return Err(Errno::EINVAL);
    }
    user::read::<io_uring_getevents_arg>(args.arg).map(|_| ())
}

impl Ctx {
    /// Completions are polled for.
    pub fn polls(&self) -> bool {
        self.flags & IORING_SETUP_IOPOLL != 0
    }

    /// Is it up to who enters to look for completions, and not to an SQ thread?
    pub fn polls_by_enter(&self) -> bool {
        self.flags & (IORING_SETUP_IOPOLL | IORING_SETUP_SQPOLL) == IORING_SETUP_IOPOLL
    }

    /// A polled read or write needs a file with O_DIRECT (`io_rw_init_file`).
    ///
    /// # Errors
    /// `EOPNOTSUPP`; `EBADF` as ever.
    pub fn check_polled(&self, req: &mut Req) -> Result<()> {
        if !self.polls() || !OPS[req.opcode() as usize].has(opdef::AIO) {
            return Ok(());
        }
        // All I/O here is of that kind.
        req.call.sqe.op_flags &= !rw::RWF_HIPRI;
        if kind_of(&req.call.file) == Kind::Direct {
            return Ok(());
        }
        Err(rw::first_of(&req.call, Errno::EOPNOTSUPP))
    }

    /// Is there anything in flight that shows by looking: with the kernel's aio, or with a
    /// modelled device?
    fn polls_memory(&self) -> bool {
        self.aio_in_flight() || self.transports.with_models()
    }

    fn aio_in_flight(&self) -> bool {
        self.transports.aio.as_ref().is_some_and(|aio| aio.in_flight() > 0)
    }

    /// Takes what has completed; answers how many CQEs that made.
    fn poll_once(&mut self) -> usize {
        let before = self.completions();
        self.collect_memory();
        self.flush();
        self.completions().wrapping_sub(before) as usize
    }

    /// Sleeps until kernel aio has something, or a modelled device, for a slice at most.
    ///
    /// # Errors
    /// `EINTR`.
    fn sleep_for_memory(&mut self) -> Result<()> {
        let mut slice = SLICE;
        if self.transports.with_models() {
            sys::exact_timers();
            slice = self.next_event_in().map_or(SLICE, |ns| SLICE.min(Duration::from_nanos(ns)));
        }
        let asleep = match &mut self.transports.aio {
            Some(aio) if aio.in_flight() > 0 => aio.wait(1, Some(slice), None).map(|_| ()),
            _ => sys::sleep(slice),
        };
        if asleep == Err(Errno::EINTR) { asleep } else { Ok(()) }
    }
}
