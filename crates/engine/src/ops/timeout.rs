//! TIMEOUT, TIMEOUT_REMOVE and its updates, LINK_TIMEOUT. Kernel counterpart: `io_uring/timeout.c`.

use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::Outcome;
use crate::ring::request::{OpState, Phase, Req, ReqFlags, Timer, TimerArgs};
use softring_host::time::Clock;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

const CLOCKS: u32 = IORING_TIMEOUT_BOOTTIME | IORING_TIMEOUT_REALTIME;
const UPDATES: u32 = IORING_TIMEOUT_UPDATE | IORING_LINK_TIMEOUT_UPDATE;

/// Checks a TIMEOUT (`io_timeout_prep`).
pub(crate) fn prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    prep_common(ctx, req, false)
}

/// Checks a LINK_TIMEOUT, which belongs to the request before it (`io_link_timeout_prep`).
pub(crate) fn link_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    prep_common(ctx, req, true)?;
    let last = ctx.submit.last.ok_or(Errno::EINVAL)?;
    let last = ctx.reqs.slab.get_mut(last).ok_or(Errno::EINVAL)?;
    if last.opcode() == IORING_OP_LINK_TIMEOUT {
        return Err(Errno::EINVAL);
    }
    last.flags |= ReqFlags::ARM_LTIMEOUT;
    Ok(())
}

fn prep_common(ctx: &mut Ctx, req: &mut Req, link: bool) -> Result<()> {
    let sqe = *req.call.sqe();
    if sqe.addr3 != 0 || sqe.pad2 != 0 {
        return Err(Errno::EINVAL);
    }
    if sqe.buf_index != 0 || sqe.len != 1 || sqe.file_index != 0 {
        return Err(Errno::EINVAL);
    }
    let (off, flags) = (sqe.off as u32, sqe.op_flags);
    if off != 0 && link {
        return Err(Errno::EINVAL);
    }
    let known = IORING_TIMEOUT_ABS
        | CLOCKS
        | IORING_TIMEOUT_ETIME_SUCCESS
        | IORING_TIMEOUT_MULTISHOT
        | immediate();
    if flags & !known != 0 || (flags & CLOCKS).count_ones() > 1 {
        return Err(Errno::EINVAL);
    }
    let multi = flags & IORING_TIMEOUT_MULTISHOT != 0;
    if multi && flags & IORING_TIMEOUT_ABS != 0 {
        return Err(Errno::EINVAL);
    }
    let period = time_given(flags, sqe.addr, |at| ctx.read_timespec(at))?;
    let (count, shots) = if multi { (0, off) } else { (off, 0) };
    let clock = clock_of(flags, flags & IORING_TIMEOUT_ABS != 0);
    req.call.begin(OpState::Timeout(TimerArgs { clock, period, shots, count }));
    Ok(())
}

/// Returns the flag for a time in place of its address, if there is such.
fn immediate() -> u32 {
    if has(Change::ImmediateTimes) { IORING_TIMEOUT_IMMEDIATE_ARG } else { 0 }
}

/// Returns a time in nanoseconds: the word itself, or what it points to.
fn time_given(
    flags: u32,
    word: u64,
    read: impl FnOnce(u64) -> Result<kernel_timespec>,
) -> Result<u64> {
    match flags & IORING_TIMEOUT_IMMEDIATE_ARG {
        0 => softring_host::time::to_ns(read(word)?),
        _ if word.cast_signed() < 0 => Err(Errno::EINVAL),
        _ => Ok(word),
    }
}

/// Returns the clock of a timeout: a relative timeout does not follow changes of CLOCK_REALTIME
/// (`hrtimer_setup`).
fn clock_of(flags: u32, abs: bool) -> Clock {
    match flags & CLOCKS {
        IORING_TIMEOUT_BOOTTIME => Clock::Boottime,
        IORING_TIMEOUT_REALTIME if abs => Clock::Realtime,
        _ => Clock::Monotonic,
    }
}

/// Returns a timeout's flags with the name of its clock, which [`clock_named`] reads.
pub(crate) fn with_clock(flags: u32, clock: Clock) -> u32 {
    let name = match clock {
        Clock::Monotonic => 0,
        Clock::Boottime => IORING_TIMEOUT_BOOTTIME,
        Clock::Realtime => IORING_TIMEOUT_REALTIME,
    };
    flags & !CLOCKS | name
}

pub(crate) fn clock_named(flags: u32) -> Clock {
    clock_of(flags, true)
}

/// Arms the timeout.
pub(crate) fn issue(_: &mut Ctx, _: &mut Req) -> Outcome {
    Outcome::Timed
}

/// Checks a TIMEOUT_REMOVE (`io_timeout_remove_prep`).
pub(crate) fn remove_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    if req.flags.intersects(ReqFlags::FIXED_FILE | ReqFlags::BUFFER_SELECT) {
        return Err(Errno::EINVAL);
    }
    let sqe = *req.call.sqe();
    if sqe.addr3 != 0 || sqe.pad2 != 0 || sqe.buf_index != 0 || sqe.len != 0 || sqe.file_index != 0
    {
        return Err(Errno::EINVAL);
    }
    if sqe.op_flags & UPDATES == 0 {
        return if sqe.op_flags == 0 { Ok(()) } else { Err(Errno::EINVAL) };
    }
    if sqe.op_flags & !(UPDATES | IORING_TIMEOUT_ABS | immediate()) != 0 {
        return Err(Errno::EINVAL);
    }
    let read = |at| ctx.unlocked(|| softring_host::user::read(at));
    let period = time_given(sqe.op_flags, sqe.off, read)?;
    req.call.begin(OpState::Timeout(TimerArgs { period, ..TimerArgs::default() }));
    Ok(())
}

/// Removes a timeout, or moves its deadline (`io_timeout_remove`).
pub(crate) fn remove(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let sqe = *req.call.sqe();
    let update = sqe.op_flags & IORING_TIMEOUT_UPDATE != 0;
    let linked = update && sqe.op_flags & IORING_LINK_TIMEOUT_UPDATE != 0;
    let opcode = if linked { IORING_OP_LINK_TIMEOUT } else { IORING_OP_TIMEOUT };
    let Some(id) = armed(ctx, sqe.addr, opcode) else { return Outcome::Done(Errno::ENOENT.res()) };
    match &req.call.state {
        OpState::Timeout(new) if update => move_deadline(ctx, id, new.period, sqe.op_flags),
        _ => {
            ctx.reqs.timeouts_disarm(id);
            ctx.end_soon(id, Errno::ECANCELED.res());
        }
    }
    Outcome::Done(0)
}

/// Sets a timeout's time anew. Completions or shots counted before do not count any more.
fn move_deadline(ctx: &mut Ctx, id: ReqId, period: u64, flags: u32) {
    let abs = flags & IORING_TIMEOUT_ABS != 0;
    let Some(clock) = ctx.reqs.slab.get(id).map(|old| clock_of(old.call.sqe().op_flags, abs))
    else {
        return;
    };
    let moved = |mut t: Timer| {
        (t.period, t.count, t.shots, t.clock) = (period, 0, 0, clock);
        t.set_deadline(abs);
        t
    };
    if let Some(t) = ctx.reqs.timeouts_disarm(id) {
        return ctx.timeouts_insert(id, moved(t));
    }
    if let Some((_, t)) = ctx.submit.disarmed.iter_mut().find(|(of, _)| *of == id) {
        *t = moved(*t);
        // The timeout fires if its time is over, and finds that its head has ended.
        if t.is_over()
            && let Some(req) = ctx.reqs.slab.get_mut(id)
        {
            req.res = Errno::ENOENT.res();
        }
    }
}

/// Returns the armed timeout of that name that the kernel would find first. A timeout whose time
/// has come is gone, as if a timer's interrupt had taken it; its CQE comes with task work.
fn armed(ctx: &Ctx, user_data: u64, opcode: u8) -> Option<ReqId> {
    let found = ctx.reqs.slab.named(user_data).filter_map(|(id, r)| match r.phase {
        Phase::Timer(t) if r.opcode() == opcode => (!t.is_over()).then(|| (t.order(), id)),
        _ => None,
    });
    let armed = found.min_by_key(|&(order, _)| order).map(|(_, id)| id);
    armed.or_else(|| disarmed(ctx, user_data, opcode))
}

/// Returns the LINK_TIMEOUT of that name whose head has ended in the batch at hand: the kernel
/// disarms it when the batch is flushed.
fn disarmed(ctx: &Ctx, user_data: u64, opcode: u8) -> Option<ReqId> {
    let is = |id| ctx.reqs.slab.get(id).is_some_and(|req| req.user_data == user_data);
    let mut kept = ctx.submit.disarmed.iter().filter(|_| opcode == IORING_OP_LINK_TIMEOUT);
    kept.find(|&&(id, t)| is(id) && !t.is_over()).map(|&(id, _)| id)
}
