//! FSYNC, SYNC_FILE_RANGE, FALLOCATE: all wait for the disk, so a worker runs them. Kernel
//! counterpart: `io_uring/sync.c`.

use crate::ops::{answer, zero};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Req};
use softring_host::calls::files;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Checks an FSYNC (`io_fsync_prep`).
pub(crate) fn fsync_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    zero(&[s.addr, u64::from(s.buf_index), u64::from(s.file_index)])?;
    if s.op_flags & !IORING_FSYNC_DATASYNC != 0 || s.off.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Writes a file out. The range that an SQE may name is a hint: no system call takes it, and the
/// whole includes it.
pub(crate) fn fsync(call: &mut Call, _: Try) -> Outcome {
    let fd = call.file.fd();
    let data = call.sqe().op_flags & IORING_FSYNC_DATASYNC != 0;
    let done = if data { files::fdatasync(fd) } else { files::fsync(fd) };
    // A registered file that is only a path has nothing to sync.
    if done == Err(Errno::EBADF) && call.file.is_path() {
        return Outcome::Done(Errno::EINVAL.res());
    }
    answer(done)
}

/// Checks a SYNC_FILE_RANGE (`io_sfr_prep`).
pub(crate) fn range_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    zero(&[s.addr, u64::from(s.buf_index), u64::from(s.file_index)])
}

/// Writes a range of a file out.
pub(crate) fn range(call: &mut Call, _: Try) -> Outcome {
    let s = call.sqe();
    answer(files::sync_file_range(call.file.fd(), s.off, s.len.into(), s.op_flags))
}

/// Checks a FALLOCATE (`io_fallocate_prep`).
pub(crate) fn fallocate_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    zero(&[s.op_flags, u32::from(s.buf_index), s.file_index].map(u64::from))
}

/// Reserves or releases space; the mode is in `len`, the length in `addr`.
pub(crate) fn fallocate(call: &mut Call, _: Try) -> Outcome {
    let s = call.sqe();
    answer(files::fallocate(call.file.fd(), s.len, s.off, s.addr))
}
