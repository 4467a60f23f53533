//! `io_uring_enter(2)`: submit, then wait. Kernel counterpart: `io_uring_enter`, `io_get_ext_arg`.

use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::abi::*;
use crate::ctx::{Ctx, Ring};
use crate::errno::{Errno, Result};
use crate::wait::cqwait::{WaitArgs, cqring_wait};
use crate::{sys, time, user};

/// Of this many calls one looks whether the descriptor was closed behind our back.
const CHECK_EVERY: u32 = 64;

/// See [`super::enter`].
///
/// # Errors
/// `EINVAL`, `EBADF`, `EOPNOTSUPP`, `EBADFD`, `EEXIST`, `EFAULT`, `ETIME`, `EINTR`, as
/// io_uring_enter(2).
pub fn enter(fd: i32, submit: u32, min: u32, flags: u32, arg: u64, argsz: usize) -> Result<usize> {
    if flags & !IORING_ENTER_ALL != 0 {
        return Err(Errno::EINVAL);
    }
    let ring = if flags & IORING_ENTER_REGISTERED_RING != 0 {
        crate::rsrc::ring_fds::get(fd)?
    } else {
        by_descriptor(fd, submit == 0 && flags & IORING_ENTER_GETEVENTS == 0)?
    };
    let r = enter_ring(&ring, submit, min, flags, arg, argsz);
    leave(&ring);
    r
}

/// The ring that `fd` means. A call that does nothing else has time to ask whether it still does.
fn by_descriptor(fd: i32, idle: bool) -> Result<Arc<Ring>> {
    let ring = crate::fds::ring(fd)?;
    // Not exact where threads race, and need not be.
    let n = ring.enters.load(Relaxed).wrapping_add(1);
    ring.enters.store(n, Relaxed);
    if idle || n % CHECK_EVERY == 0 { crate::fds::checked_ring(fd) } else { Ok(ring) }
}

fn enter_ring(
    ring: &Arc<Ring>,
    submit: u32,
    min: u32,
    flags: u32,
    arg: u64,
    argsz: usize,
) -> Result<usize> {
    let mut ctx = ring.lock();
    if ctx.disabled {
        return Err(Errno::EBADFD);
    }
    let mut submitted = 0;
    if submit > 0 {
        crate::rsrc::ring_fds::touch();
        ctx.check_issuer()?;
        submitted = ctx.submit_sqes(submit);
        ctx.after_submit();
        if submitted != submit {
            return Ok(submitted as usize);
        }
    }
    if flags & IORING_ENTER_GETEVENTS == 0 {
        return Ok(submitted as usize);
    }
    let parcels = !ctx.outbox.is_empty();
    if parcels {
        drop(ctx);
        crate::wait::reactor::deliver(ring);
        ctx = ring.lock();
    }
    let waited = match wait_args(&ctx, min, flags, arg, argsz) {
        Ok(_) if ctx.foreign_issuer() => Err(Errno::EEXIST),
        Ok(args) => cqring_wait(ring, ctx, args),
        Err(e) => Err(e),
    };
    if submitted > 0 { Ok(submitted as usize) } else { waited }
}

/// Leaves the ring in good hands: parcels are delivered, what is in flight is watched.
pub fn leave(ring: &Arc<Ring>) {
    let watch = {
        let mut ctx = ring.lock();
        let nobody = ctx.in_flight() && !ctx.driver.active;
        if nobody {
            ctx.nudge();
        }
        let wanted = nobody && ctx.wants_reactor() && ctx.needs_driver();
        let parcels = !ctx.outbox.is_empty();
        let holds = ctx.holds_anything();
        let immediate = ctx.eventfd.is_some() || ctx.poll_fd.is_some();
        drop(ctx);
        if parcels {
            crate::wait::reactor::deliver(ring);
        }
        (wanted.then_some(immediate), holds)
    };
    match watch {
        (Some(immediate), _) => crate::wait::reactor::guard(ring, immediate),
        (None, true) => crate::wait::reactor::ensure(),
        (None, false) => {}
    }
}

impl Ctx {
    /// SINGLE_ISSUER: the first task to submit (or to make or enable the ring) is the only one.
    pub fn check_issuer(&mut self) -> Result<()> {
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

    /// DEFER_TASKRUN: only the issuer may run task work, so only it may wait.
    fn foreign_issuer(&self) -> bool {
        self.defers() && self.issuer.is_some_and(|t| t != sys::gettid())
    }

    /// What follows a submission: task work (unless deferred), batches, the commit.
    fn after_submit(&mut self) {
        if self.defers() {
            self.transports_submit();
            self.commit();
        } else {
            self.flush();
            if core::mem::take(&mut self.transports.ready_now) {
                self.collect();
                self.flush();
            }
        }
    }

    /// Is anything in flight that completes only if somebody drives (workers post by themselves)?
    pub fn needs_driver(&self) -> bool {
        !self.timeouts.is_empty() || self.transports.needs_driver()
    }
}

/// Reads the wait arguments (`io_get_ext_arg`).
fn wait_args(ctx: &Ctx, min: u32, flags: u32, arg: u64, argsz: usize) -> Result<WaitArgs> {
    let mut w = WaitArgs { min, ..WaitArgs::default() };
    if flags & IORING_ENTER_EXT_ARG == 0 {
        w.sigmask = sigmask(arg, argsz)?;
        return Ok(w);
    }
    if flags & IORING_ENTER_EXT_ARG_REG != 0 {
        let entry = registered_wait(ctx, arg, argsz)?;
        let ts = (entry.flags & IORING_REG_WAIT_TS != 0).then_some(entry.ts);
        w.sigmask = sigmask(entry.sigmask, entry.sigmask_sz as usize)?;
        deadlines(ctx, &mut w, flags, ts, entry.min_wait_usec);
        return Ok(w);
    }
    if argsz != size_of::<io_uring_getevents_arg>() {
        return Err(Errno::EINVAL);
    }
    let ext: io_uring_getevents_arg = user::read(arg)?;
    let ts = if ext.ts != 0 { Some(user::read::<kernel_timespec>(ext.ts)?) } else { None };
    w.sigmask = sigmask(ext.sigmask, ext.sigmask_sz as usize)?;
    deadlines(ctx, &mut w, flags, ts, ext.min_wait_usec);
    Ok(w)
}

fn registered_wait(ctx: &Ctx, off: u64, argsz: usize) -> Result<io_uring_reg_wait> {
    if argsz != size_of::<io_uring_reg_wait>() {
        return Err(Errno::EINVAL);
    }
    let region = ctx.param_region.as_ref().ok_or(Errno::EFAULT)?;
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
    let now = ctx.clock.now();
    let base = if flags & IORING_ENTER_ABS_TIMER != 0 { 0 } else { now };
    w.deadline = ts.map(|ts| base.saturating_add(time::ns_of(ts)));
    w.min_deadline = (min_us != 0).then(|| now.saturating_add(u64::from(min_us) * 1000));
}

fn sigmask(addr: u64, size: usize) -> Result<Option<u64>> {
    if addr == 0 {
        return Ok(None);
    }
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    Ok(Some(user::read(addr)?))
}
