//! NOP: does nothing, and returns what was asked for. The tutorial op: `prep` refuses unknown bits,
//! `issue` sets a result.

use crate::memory::sqe::Sqe;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::Outcome;
use crate::ring::request::{FileRef, Req, ReqFlags};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

const FLAGS: u32 = IORING_NOP_INJECT_RESULT
    | IORING_NOP_FILE
    | IORING_NOP_FIXED_FILE
    | IORING_NOP_FIXED_BUFFER
    | IORING_NOP_TW
    | IORING_NOP_CQE32;

/// Checks the flags (`io_nop_prep`).
pub(crate) fn prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let flags = req.call.sqe().op_flags;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & IORING_NOP_CQE32 != 0 {
        let wide = IORING_SETUP_CQE32 | IORING_SETUP_CQE_MIXED;
        if ctx.setup.flags & wide == 0 {
            return Err(Errno::EINVAL);
        }
    }
    Ok(())
}

/// Completes a NOP that asks for nothing at once.
pub(crate) fn fast(_: &mut Ctx, sqe: &Sqe) -> Option<i32> {
    (sqe.op_flags == 0).then_some(0)
}

/// Returns the injected result, after looking the file and the buffer up if asked (`io_nop`).
pub(crate) fn issue(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let sqe = *req.call.sqe();
    let flags = sqe.op_flags;
    let mut res = 0;
    if flags & IORING_NOP_CQE32 != 0 {
        req.flags |= ReqFlags::CQE32;
        req.big = [sqe.off, sqe.addr];
    }
    if flags & IORING_NOP_INJECT_RESULT != 0 {
        res = sqe.len.cast_signed();
    }
    if let Err(e) = find_file(ctx, req) {
        res = e.res();
    } else if flags & IORING_NOP_FIXED_BUFFER != 0
        && ctx.resources.buffers.get(sqe.buf_index).is_err()
    {
        res = Errno::EFAULT.res();
    }
    if res < 0 {
        req.set_fail();
    }
    if flags & IORING_NOP_TW != 0 { Outcome::Later(res) } else { Outcome::Done(res) }
}

/// Looks the file up, if asked.
fn find_file(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let (flags, fd) = (req.call.sqe().op_flags, req.call.sqe().fd);
    if flags & IORING_NOP_FILE == 0 || !matches!(req.call.file, FileRef::None) {
        return Ok(());
    }
    let fixed = flags & IORING_NOP_FIXED_FILE != 0 || req.flags.contains(ReqFlags::FIXED_FILE);
    req.call.file = if fixed {
        FileRef::Fixed(ctx.resources.files.get(fd.cast_unsigned())?)
    } else {
        softring_host::fd::check_visible(fd)?;
        FileRef::Plain(fd)
    };
    Ok(())
}
