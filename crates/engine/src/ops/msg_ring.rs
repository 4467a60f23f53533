//! MSG_RING: a CQE or a registered file for another ring. Kernel counterpart:
//! `io_uring/msg_ring.c`.
//!
//! If the other ring's lock is free, the message is delivered at once. If not, the message waits in
//! the pending queue until our own lock is free: no thread waits for a ring's lock while it holds
//! another's. Messages that follow wait, too, to keep the order.

use alloc::sync::Arc;

use crate::memory::cq::Cqe;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::opdef::Outcome;
use crate::ring::request::{FileRef, Req};
use crate::ring::work::{Msg, Pending, SentFile, What};
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

const FLAGS: u32 = IORING_MSG_RING_CQE_SKIP | IORING_MSG_RING_FLAGS_PASS;

/// Checks the SQE (`io_msg_ring_prep`).
pub(crate) fn prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    check(req.call.sqe())
}

fn check(sqe: &io_uring_sqe) -> Result<()> {
    if sqe.buf_index != 0 || sqe.personality != 0 || sqe.op_flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Sends the message (`io_msg_ring`).
pub(crate) fn issue(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    match send(ctx, req) {
        Ok(None) => Outcome::Elsewhere,
        Ok(Some(res)) => Outcome::Done(res),
        Err(e) => Outcome::Done(e.res()),
    }
}

fn target(fd: i32) -> Result<Arc<Ring>> {
    crate::ring::table::ring(fd).map_err(|e| match e {
        Errno::EOPNOTSUPP if softring_host::fd::is_path_only(fd) => Errno::EBADF,
        Errno::EOPNOTSUPP => Errno::EBADFD,
        e => e,
    })
}

/// Sends a message from no ring, whose SQE is at `addr` (`IORING_REGISTER_SEND_MSG_RING`).
///
/// # Errors
/// `EINVAL`, `EFAULT`, `EBADF`, `EBADFD`.
pub(crate) fn send_without_ring(addr: UserPtr, nr: u32) -> Result<usize> {
    if addr.is_null() || nr != 1 {
        return Err(Errno::EINVAL);
    }
    let sqe: io_uring_sqe = softring_host::user::read(addr.addr())?;
    if sqe.flags != 0 || sqe.opcode != IORING_OP_MSG_RING {
        return Err(Errno::EINVAL);
    }
    check(&sqe)?;
    if sqe.addr & u64::from(u32::MAX) != IORING_MSG_DATA {
        return Err(Errno::EINVAL);
    }
    let target = target(sqe.fd)?;
    let sent = target.lock_now().accept_and_wake(&data(&sqe)?)?;
    Ok(sent as usize)
}

fn send(ctx: &mut Ctx, req: &Req) -> Result<Option<i32>> {
    let target = match req.call.file {
        FileRef::Plain(fd) => target(fd)?,
        _ => return Err(Errno::EBADFD),
    };
    let own = core::ptr::eq(ctx.ring.as_ptr(), Arc::as_ptr(&target));
    // The command and the slot are 32 bits wide; the bits above are not read.
    let mut msg = match req.call.sqe().addr & u64::from(u32::MAX) {
        IORING_MSG_DATA => data(req.call.sqe())?,
        IORING_MSG_SEND_FD => file(ctx, req.call.sqe(), own)?,
        _ => return Err(Errno::EINVAL),
    };
    msg.by_worker = req.is_workers();
    if own {
        return ctx.accept(&msg).map(Some);
    }
    if ctx.work.may_overtake_none()
        && let Some(mut other) = target.try_lock_now()
    {
        let sent = other.accept_and_wake(&msg).map(Some);
        let wakes = core::mem::take(&mut other.drive.wakes);
        drop(other);
        ctx.drive.wakes.merge(&target.control, wakes);
        return sent;
    }
    ctx.work.pend(Pending { from: None, what: What::Msg(target, msg) });
    Ok(None)
}

/// Makes a message of a CQE (`__io_msg_ring_data`).
fn data(sqe: &io_uring_sqe) -> Result<Msg> {
    let pass = sqe.op_flags & IORING_MSG_RING_FLAGS_PASS != 0;
    let skip = sqe.op_flags & IORING_MSG_RING_CQE_SKIP != 0;
    if sqe.addr3 as u32 != 0 || skip || (!pass && sqe.file_index != 0) {
        return Err(Errno::EINVAL);
    }
    let (user_data, res) = (sqe.off, sqe.len.cast_signed());
    Ok(Msg { cqe: Cqe { user_data, res, flags: sqe.file_index, big: [0; 2] }, ..Msg::default() })
}

/// Makes a message with a file (`io_msg_send_fd`).
fn file(ctx: &Ctx, sqe: &io_uring_sqe, own: bool) -> Result<Msg> {
    if sqe.len != 0 || own {
        return Err(Errno::EINVAL);
    }
    let quiet = sqe.op_flags & IORING_MSG_RING_CQE_SKIP != 0;
    let fd = ctx.resources.files.get(sqe.addr3 as u32).map(|node| node.share());
    let file = Some(SentFile { fd, index: sqe.file_index, quiet });
    Ok(Msg { cqe: Cqe { user_data: sqe.off, ..Cqe::default() }, file, by_worker: false })
}
