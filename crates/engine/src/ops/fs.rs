//! RENAMEAT, UNLINKAT, MKDIRAT, SYMLINKAT, LINKAT: names in directories. They may wait for a disk,
//! so a worker runs them. Kernel counterpart: `io_uring/fs.c`.

use crate::ops::{answer, no_fixed_file, path, paths, zero};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, OpState, Req};
use alloc::boxed::Box;
use softring_host::calls::paths;
use softring_host::fd::visible;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

const AT_REMOVEDIR: u32 = 0x200;
pub(crate) const AT_EMPTY_PATH: u32 = 0x1000;

/// Checks a RENAMEAT (`io_renameat_prep`).
pub(crate) fn rename_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    zero(&[u64::from(sqe.buf_index), u64::from(sqe.file_index)])?;
    no_fixed_file(req)?;
    two_paths(ctx, req, false)
}

/// Renames.
pub(crate) fn rename(call: &mut Call, _: Try) -> Outcome {
    let (s, [old, new]) = (call.sqe(), paths(call));
    answer(paths::renameat2(visible(s.fd), old, to_dir(s), new, s.op_flags))
}

/// Checks an UNLINKAT (`io_unlinkat_prep`).
pub(crate) fn unlink_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    zero(&[sqe.off, u64::from(sqe.len), u64::from(sqe.buf_index), u64::from(sqe.file_index)])?;
    no_fixed_file(req)?;
    if has(Change::CheckedFields) {
        zero(&[sqe.addr3, sqe.pad2])?;
    }
    if sqe.op_flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    one_path(ctx, req)
}

/// Removes a name or an empty directory.
pub(crate) fn unlink(call: &mut Call, _: Try) -> Outcome {
    let (s, [name, _]) = (call.sqe(), paths(call));
    answer(paths::unlinkat(visible(s.fd), name, s.op_flags))
}

/// Checks a MKDIRAT (`io_mkdirat_prep`).
pub(crate) fn mkdir_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    let flags = u64::from(sqe.op_flags);
    zero(&[sqe.off, flags, u64::from(sqe.buf_index), u64::from(sqe.file_index)])?;
    no_fixed_file(req)?;
    one_path(ctx, req)
}

/// Makes a directory.
pub(crate) fn mkdir(call: &mut Call, _: Try) -> Outcome {
    let (s, [name, _]) = (call.sqe(), paths(call));
    answer(paths::mkdirat(visible(s.fd), name, s.len))
}

/// Checks a SYMLINKAT (`io_symlinkat_prep`).
pub(crate) fn symlink_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    let (len, flags) = (u64::from(sqe.len), u64::from(sqe.op_flags));
    zero(&[len, flags, u64::from(sqe.buf_index), u64::from(sqe.file_index)])?;
    no_fixed_file(req)?;
    two_paths(ctx, req, false)
}

/// Makes a symbolic link.
pub(crate) fn symlink(call: &mut Call, _: Try) -> Outcome {
    let [target, name] = paths(call);
    answer(paths::symlinkat(target, visible(call.sqe().fd), name))
}

/// Checks a LINKAT (`io_linkat_prep`).
pub(crate) fn link_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    zero(&[u64::from(sqe.buf_index), u64::from(sqe.file_index)])?;
    no_fixed_file(req)?;
    two_paths(ctx, req, sqe.op_flags & AT_EMPTY_PATH != 0)
}

/// Makes a hard link.
pub(crate) fn link(call: &mut Call, _: Try) -> Outcome {
    let (s, [old, new]) = (call.sqe(), paths(call));
    answer(paths::linkat(visible(s.fd), old, to_dir(s), new, s.op_flags))
}

/// Returns the directory of the new name.
fn to_dir(s: &io_uring_sqe) -> i32 {
    visible(s.len.cast_signed())
}

/// Copies the path in `addr` in.
fn one_path(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let name = ctx.unlocked(|| path(req.call.sqe().addr, false))?;
    req.call.state = OpState::Path(name);
    Ok(())
}

/// Copies the paths in `addr` and `addr2` in.
fn two_paths(ctx: &mut Ctx, req: &mut Req, first_may_be_empty: bool) -> Result<()> {
    let sqe = req.call.sqe();
    let old = ctx.unlocked(|| path(sqe.addr, first_may_be_empty))?;
    let new = ctx.unlocked(|| path(sqe.off, false))?;
    req.call.state = OpState::Paths(Box::new([old, new]));
    Ok(())
}
