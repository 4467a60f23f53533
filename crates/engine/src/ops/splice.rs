//! SPLICE, TEE: both ends may block, so a worker runs them. Kernel counterpart:
//! `io_uring/splice.c`.

use softring_host::os::fs::OFlags;

use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, FileRef, OpState, Req};
use softring_host::calls::files;
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// `SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT`.
const FLAGS: u32 = 0xf;

/// Checks a SPLICE (`io_splice_prep`).
pub(crate) fn prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    if req.call.sqe().op_flags & !(FLAGS | SPLICE_F_FD_IN_FIXED) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Checks a TEE (`io_tee_prep`).
pub(crate) fn tee_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    if req.call.sqe().addr != 0 || req.call.sqe().off != 0 {
        return Err(Errno::EINVAL);
    }
    prep(ctx, req)
}

/// Looks up the file to read from; the row's `FILE` covers only the file to write to.
///
/// # Errors
/// `EBADF` if it is not open, or the slot is empty.
pub(crate) fn assign_in(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = req.call.sqe();
    let fd = softring_host::fd::visible(sqe.splice_fd_in());
    let file = if sqe.op_flags & SPLICE_F_FD_IN_FIXED != 0 {
        FileRef::Fixed(ctx.resources.files.get(sqe.file_index)?)
    } else if softring_host::fd::numbers::is_ring(fd) {
        FileRef::instead_of_ring()?
    } else {
        let mut file = FileRef::Plain(fd);
        file.hold()?;
        file
    };
    req.call.state = OpState::Source(file);
    Ok(())
}

fn fd_in(call: &Call) -> i32 {
    if let OpState::Source(file) = &call.state { file.fd() } else { -1 }
}

/// Moves bytes between a pipe and a file; an offset of -1 is the file's own position.
pub(crate) fn issue(call: &mut Call, _: Try) -> Outcome {
    let s = *call.sqe();
    if s.len == 0 {
        return Outcome::Done(0);
    }
    if !modes_allow(call) {
        return Outcome::Done(Errno::EBADF.res());
    }
    let (mut off_in, mut off_out) = (s.addr, s.off);
    let from = (fd_in(call), offset(&mut off_in));
    let to = (call.file.fd(), offset(&mut off_out));
    let flags = s.op_flags & !SPLICE_F_FD_IN_FIXED;
    let done = files::splice(from, to, s.len as usize, flags);
    moved(call, done)
}

/// Returns whether one file may be read, and the other written. The kernel checks that first
/// (`do_splice`); splice(2) checks the offsets before, and makes the pipe forget RWF_NOWAIT.
fn modes_allow(call: &Call) -> bool {
    let mode = |fd| {
        let flags = sys::file_flags(fd);
        flags.map(|flags| flags & OFlags::RWMODE)
    };
    let reads = mode(fd_in(call)).is_some_and(|mode| mode != OFlags::WRONLY);
    reads && mode(call.file.fd()).is_some_and(|mode| mode != OFlags::RDONLY)
}

/// Copies bytes from one pipe to another without taking them out.
pub(crate) fn tee(call: &mut Call, _: Try) -> Outcome {
    let s = *call.sqe();
    if s.len == 0 {
        return Outcome::Done(0);
    }
    let flags = s.op_flags & !SPLICE_F_FD_IN_FIXED;
    let done = files::tee(fd_in(call), call.file.fd(), s.len as usize, flags);
    moved(call, done)
}

/// Returns an offset, or none for the file's own position.
fn offset(off: &mut u64) -> Option<&mut u64> {
    (*off != u64::MAX).then_some(off)
}

/// Marks a transfer of less than asked for, which breaks a chain.
fn moved(call: &mut Call, done: Result<usize>) -> Outcome {
    call.short = done != Ok(call.sqe().len as usize);
    crate::ops::answer_waiting(done)
}
