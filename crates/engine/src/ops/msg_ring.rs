//! MSG_RING: a CQE or a registered file for another ring. Kernel counterpart:
//! `io_uring/msg_ring.c`.
//!
//! If the other ring's lock is free, the message is delivered at once. If not, the message waits in
//! the pending queue until our own lock is free: no thread waits for a ring's lock while it holds
//! another's. Messages that follow wait, too, to keep the order.

use alloc::sync::Arc;

use softring_host::os::fd::AsRawFd;

use crate::memory::cq::Cqe;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::opdef::Outcome;
use crate::ring::request::{FileRef, Req, ReqFlags};
use crate::ring::turn::{Drives, Turn};
use crate::ring::work::{Msg, Pending, SentFile, What};
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
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
    let sent = accept_and_wake(&mut target.lock_now(), &data(&sqe)?)?;
    Ok(sent as usize)
}

fn send(ctx: &mut Ctx, req: &Req) -> Result<Option<i32>> {
    let target = match req.call.file {
        FileRef::Plain(fd) => target(fd)?,
        _ => return Err(Errno::EBADFD),
    };
    let own = ctx.ring.upgrade().is_some_and(|r| r.id == target.id);
    // The command and the slot are 32 bits wide; the bits above are not read.
    let mut msg = match req.call.sqe().addr & u64::from(u32::MAX) {
        IORING_MSG_DATA => data(req.call.sqe())?,
        IORING_MSG_SEND_FD => file(ctx, req.call.sqe(), own)?,
        _ => return Err(Errno::EINVAL),
    };
    msg.by_worker = req.is_workers();
    if own {
        return accept(ctx, &msg).map(Some);
    }
    if ctx.work.may_overtake_none()
        && let Some(mut other) = target.try_lock_now()
    {
        let sent = accept_and_wake(&mut other, &msg).map(Some);
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

/// Accepts a message; returns the sender's result.
fn accept(ctx: &mut Ctx, msg: &Msg) -> Result<i32> {
    if ctx.setup.disabled {
        return Err(Errno::EBADFD);
    }
    let mut cqe = msg.cqe;
    let wide = IORING_SETUP_CQE32 | IORING_SETUP_CQE_MIXED;
    if cqe.flags & IORING_CQE_F_32 != 0 && ctx.setup.flags & wide == 0 && has(Change::CheckedFields)
    {
        return Err(Errno::EINVAL);
    }
    if let Some(file) = &msg.file {
        let installed = install(ctx, file);
        // Post the tag of the file that was replaced.
        ctx.post_tags();
        cqe.res = installed?;
        if file.quiet {
            return Ok(cqe.res);
        }
    }
    if ctx.defers() {
        // Only the ring's own task may post: a request that has its result already posts as task
        // work.
        let mut req = Req { user_data: cqe.user_data, ..Req::default() };
        (req.res, req.call.cflags, req.flags) = (cqe.res, cqe.flags, ReqFlags::ENDED);
        let id = ctx.reqs.slab.add(req);
        ctx.reqs.nr_reqs += 1;
        ctx.work.queue(id);
    } else {
        // Each CQE is flushed by itself (`io_post_aux_cqe`).
        if let Some(e) = ctx.completion.eventfd.as_mut().filter(|e| msg.by_worker || !e.only_async)
        {
            e.worker_posts(false);
        }
        ctx.post(cqe);
    }
    Ok(if msg.file.is_some() { cqe.res } else { 0 })
}

/// Accepts a message and wakes the ring's threads; returns the sender's result.
pub(crate) fn accept_and_wake(other: &mut Ctx, msg: &Msg) -> Result<i32> {
    let res = accept(other, msg)?;
    if other.defers() {
        other.turn(Turn::Publish);
        other.set_taskrun_by(msg.by_worker);
        other.drive.wake_driver();
        other.wake_waiters();
    } else {
        other.commit_from_elsewhere();
    }
    Ok(res)
}

/// Puts the file into a slot (`__io_fixed_fd_install`); returns the slot if we chose it.
fn install(ctx: &mut Ctx, file: &SentFile) -> Result<i32> {
    let dup = softring_host::fd::dup_internal(file.fd.as_ref().map_err(|e| *e)?.as_raw_fd())?;
    ctx.resources.files.fetch_if_away();
    let slot = ctx.resources.files.install(file.index, dup, &ctx.resources.tags)?;
    Ok(if file.index == IORING_FILE_INDEX_ALLOC { slot.cast_signed() } else { 0 })
}
