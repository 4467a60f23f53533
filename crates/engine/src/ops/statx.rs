//! STATX. A worker runs it, for it may wait for a disk or a server, unless it is about an open file
//! of a local file system. Kernel counterpart:
//! `io_uring/statx.c`.

use crate::io::kinds;
use crate::ops::fs::AT_EMPTY_PATH;
use crate::ops::{answer, no_fixed_file, path, paths, zero};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, OpState, Req};
use softring_host::calls::paths;
use softring_uapi::errno::Result;

/// Checks the SQE (`io_statx_prep`).
pub(crate) fn prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    zero(&[u64::from(sqe.buf_index), u64::from(sqe.file_index)])?;
    no_fixed_file(req)?;
    let name = ctx.unlocked(|| path(sqe.addr, sqe.op_flags & AT_EMPTY_PATH != 0))?;
    req.call.state = OpState::Path(name);
    Ok(())
}

/// Returns whether the request names an open file whose status is in memory. (A path may lead to a
/// disk or a server.)
pub(crate) fn never_blocks(req: &Req) -> bool {
    let OpState::Path(name) = &req.call.state else { return false };
    name.is_empty() && kinds::is_local(req.call.sqe().fd)
}

/// Gets a file's status.
pub(crate) fn issue(call: &mut Call, _: Try) -> Outcome {
    let (s, [name, _]) = (call.sqe(), paths(call));
    let (dir, to) = (softring_host::fd::visible(s.fd), s.addr2());
    answer(paths::statx(dir, name, s.op_flags, s.len, to))
}
