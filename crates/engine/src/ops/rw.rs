//! READ, WRITE and their vectored and fixed forms. Kernel counterpart: `io_uring/rw.c`.

use crate::abi::*;
use crate::ctx::Ctx;
use crate::errno::{Errno, Result, check};
use crate::opdef::{Outcome, Try};
use crate::req::request::{Call, Req};
use crate::sys::sys;
use crate::transport::kind::Kind;

/// `RWF_NOWAIT`.
pub const RWF_NOWAIT: u32 = 8;

/// Checks the SQE (`io_prep_rw`).
pub fn prep(_: &mut Ctx, _: &mut Req) -> Result<()> {
    Ok(())
}

/// Reads or writes once.
pub fn issue(call: &mut Call, how: Try) -> Outcome {
    let sqe = &call.sqe;
    let iov = crate::user::iovec { base: sqe.addr, len: u64::from(sqe.len) };
    let iov = core::ptr::from_ref(&iov).expose_provenance();
    let flags = sqe.op_flags | if how == Try::Nonblock { RWF_NOWAIT } else { 0 };
    let stream = crate::req::route::kind_of(&call.file) == Kind::Pollable;
    let (fd, off) = (call.file.fd(), if stream { u64::MAX } else { sqe.off });
    let ret = if sqe.opcode == IORING_OP_READ {
        sys!(__NR_preadv2, fd, iov, 1, off, 0, flags)
    } else {
        sys!(__NR_pwritev2, fd, iov, 1, off, 0, flags)
    };
    match check(ret) {
        Err(Errno::EAGAIN) if how == Try::Nonblock => Outcome::Retry,
        Ok(n) => Outcome::Done(n as i32),
        Err(e) => Outcome::Done(e.res()),
    }
}
