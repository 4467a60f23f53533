//! TIMEOUT, TIMEOUT_REMOVE, LINK_TIMEOUT. Kernel counterpart: `io_uring/timeout.c`.

use crate::abi::*;
use crate::ctx::Ctx;
use crate::errno::{Errno, Result};
use crate::opdef::Outcome;
use crate::req::request::{Req, ReqFlags, Timer, Wait};
use crate::req::slab::ReqId;
use crate::time::Clock;

const CLOCKS: u32 = IORING_TIMEOUT_BOOTTIME | IORING_TIMEOUT_REALTIME;

/// Checks a TIMEOUT (`io_timeout_prep`).
pub fn prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    prep_common(ctx, req, false)
}

/// Checks a LINK_TIMEOUT, which belongs to the request before it.
pub fn link_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    prep_common(ctx, req, true)?;
    let last = ctx.submit.last.ok_or(Errno::EINVAL)?;
    let last = ctx.slab.get_mut(last).ok_or(Errno::EINVAL)?;
    if last.opcode() == IORING_OP_LINK_TIMEOUT {
        return Err(Errno::EINVAL);
    }
    last.flags |= ReqFlags::ARM_LTIMEOUT;
    Ok(())
}

fn prep_common(_ctx: &mut Ctx, req: &mut Req, link: bool) -> Result<()> {
    let sqe = req.call.sqe;
    if sqe.buf_index != 0 || sqe.len != 1 || sqe.file_index != 0 {
        return Err(Errno::EINVAL);
    }
    let (off, flags) = (sqe.off as u32, sqe.op_flags);
    if off != 0 && link {
        return Err(Errno::EINVAL);
    }
    let known =
        IORING_TIMEOUT_ABS | CLOCKS | IORING_TIMEOUT_ETIME_SUCCESS | IORING_TIMEOUT_MULTISHOT;
    if flags & !known != 0 || (flags & CLOCKS).count_ones() > 1 {
        return Err(Errno::EINVAL);
    }
    let multi = flags & IORING_TIMEOUT_MULTISHOT != 0;
    if multi && flags & IORING_TIMEOUT_ABS != 0 {
        return Err(Errno::EINVAL);
    }
    let ns = crate::time::to_ns(crate::user::read(sqe.addr)?)?;
    let clock = clock_of(flags);
    // The deadline of a relative timeout counts from its issue: kept as a period until then.
    let timer = Timer {
        clock,
        deadline: ns,
        period: if multi { ns } else { 0 },
        count: off,
        ..Timer::default()
    };
    req.wait = Wait::Timeout(timer);
    Ok(())
}

fn clock_of(flags: u32) -> Clock {
    match flags & CLOCKS {
        IORING_TIMEOUT_BOOTTIME => Clock::Boottime,
        IORING_TIMEOUT_REALTIME => Clock::Realtime,
        _ => Clock::Monotonic,
    }
}

/// Arms the timeout.
pub fn issue(_: &mut Ctx, req: &mut Req) -> Outcome {
    start(req);
    Outcome::Queued
}

fn start(req: &mut Req) {
    let abs = req.call.sqe.op_flags & IORING_TIMEOUT_ABS != 0;
    if let Wait::Timeout(t) = &mut req.wait
        && !abs
    {
        t.deadline = t.clock.now().saturating_add(t.deadline);
    }
}

/// A timeout's time has come; it is off the queue.
pub fn expired(ctx: &mut Ctx, id: ReqId) {
    let Some(req) = ctx.slab.get(id) else { return };
    if req.opcode() == IORING_OP_LINK_TIMEOUT {
        return ctx.linked_timeout_expired(id);
    }
    ctx.timeouts.own = ctx.timeouts.own.wrapping_add(1);
    ctx.complete(id, Errno::ETIME.res());
}
