//! FTRUNCATE, on a worker. Kernel counterpart: `io_uring/truncate.c`.

use crate::ops::{answer, zero};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Req};
use softring_host::calls::files;
use softring_uapi::errno::Result;

/// Checks the SQE (`io_ftruncate_prep`).
pub(crate) fn prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    let words = [s.op_flags, s.len, u32::from(s.buf_index), s.file_index];
    zero(&[s.addr, s.addr3])?;
    zero(&words.map(u64::from))
}

/// Sets a file's length.
pub(crate) fn issue(call: &mut Call, _: Try) -> Outcome {
    answer(files::ftruncate(call.file.fd(), call.sqe().off))
}
