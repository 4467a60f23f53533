//! FADVISE, MADVISE. Kernel counterpart: `io_uring/advise.c`.

use crate::ops::{answer, zero};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Req, ReqFlags};
use softring_host::calls::{files, memory};
use softring_uapi::errno::Result;

/// Advice that only sets a flag of the open file: `POSIX_FADV_NORMAL`, `_RANDOM`, `_SEQUENTIAL`.
const QUICK: [u32; 3] = [0, 1, 2];

/// Checks an FADVISE (`io_fadvise_prep`).
pub(crate) fn fadvise_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    zero(&[u64::from(sqe.buf_index), u64::from(sqe.file_index)])?;
    if !QUICK.contains(&sqe.op_flags) {
        req.flags |= ReqFlags::FORCE_ASYNC;
    }
    Ok(())
}

/// Advises the kernel how a file will be used. The length may come in `addr`, which has room for 64
/// bits, or in `len`.
pub(crate) fn fadvise(call: &mut Call, _: Try) -> Outcome {
    let s = call.sqe();
    let len = if s.addr != 0 { s.addr } else { u64::from(s.len) };
    answer(files::fadvise(call.file.fd(), s.off, len, s.op_flags))
}

/// Checks a MADVISE (`io_madvise_prep`).
pub(crate) fn madvise_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    zero(&[u64::from(sqe.buf_index), u64::from(sqe.file_index)])
}

/// Advises the kernel how memory will be used; the length is in `off` or in `len`.
pub(crate) fn madvise(call: &mut Call, _: Try) -> Outcome {
    let s = call.sqe();
    let len = if s.off != 0 { s.off } else { u64::from(s.len) };
    answer(memory::madvise(s.addr(), len, s.op_flags))
}
