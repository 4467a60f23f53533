//! OPENAT, OPENAT2, CLOSE, FIXED_FD_INSTALL, PIPE: descriptors and slots of the registered table.
//!
//! A descriptor for the program gets the lowest free number, as ever. A descriptor for the table is
//! moved out of the program's way at once. Kernel counterpart: `io_uring/openclose.c`.

use alloc::boxed::Box;
use softring_host::os::fd::{AsRawFd, OwnedFd};
use softring_host::os::fs::OFlags;

use crate::io::persistent::{self, Closing};
use crate::memory::sqe::Sqe;
use crate::ops::open_how::{How, O_CLOEXEC, O_DIRECT, O_EXCL, O_NONBLOCK, O_PATH, RESOLVE_CACHED};
use crate::ops::{answer, answer_waiting, no_fixed_file, open_quick, path, zero};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, FileRef, OpState, Req, ReqFlags};
use softring_host::calls::files;
use softring_host::fd::kind::Kind;
use softring_host::fd::visible;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Checks an OPENAT (`io_openat_prep`).
pub(crate) fn openat_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let how = How::of_openat(req.call.sqe().op_flags, req.call.sqe().len);
    open_prep(ctx, req, how)
}

/// Checks an OPENAT2 (`io_openat2_prep`).
pub(crate) fn openat2_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let how = ctx.unlocked(|| How::read(req.call.sqe().off, req.call.sqe().len))?;
    open_prep(ctx, req, how)
}

fn open_prep(ctx: &mut Ctx, req: &mut Req, how: How) -> Result<()> {
    zero(&[u64::from(req.call.sqe().buf_index)])?;
    no_fixed_file(req)?;
    if let Some(fd) = open_quick::open_in_prep(ctx, req, how) {
        req.call.state = OpState::Opened(fd, how.open_flags());
        return Ok(());
    }
    let name = ctx.unlocked(|| path(req.call.sqe().addr, false))?;
    if req.call.sqe().file_index != 0 && how.flags & O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let on = open_quick::file_system(ctx, req, how, name.as_bytes());
    if how.needs_worker() && !on.may_wait() {
        req.flags |= ReqFlags::FORCE_ASYNC;
    }
    req.call.state = OpState::Open(Box::new((name, how.to_bytes(), on)));
    Ok(())
}

/// Opens: inline only a path that the directory cache knows, or a new file on a file system that
/// hardly ever waits (`open_quick`), else on a worker.
pub(crate) fn open(call: &mut Call, how_to: Try) -> Outcome {
    if let Some((fd, flags)) = call.state.take_opened() {
        return Outcome::Done(give(fd, flags));
    }
    let OpState::Open(kept) = &call.state else { return Outcome::Done(Errno::EINVAL.res()) };
    let (name, mut how) = (kept.0.as_ptr().expose_provenance() as u64, How::of_bytes(&kept.1));
    let direct = call.sqe().file_index != 0;
    if direct {
        // On its way to the table the file must not leak into a program that another thread starts.
        how.flags |= O_CLOEXEC;
    }
    let dir = visible(call.sqe().fd);
    let open = |how| open_blocking(how, dir, name, call.opcode == IORING_OP_OPENAT2);
    let opened = match how_to {
        Try::Nonblock => {
            let quick = kept.2.may_wait();
            let opened = match quick {
                true => open_quick::open(kept.2, how, open),
                false => how.open_cached(dir, name),
            };
            match opened {
                Err(Errno::EAGAIN) if quick || how.resolve & RESOLVE_CACHED == 0 => {
                    return Outcome::Retry;
                }
                opened => opened,
            }
        }
        Try::Block => open_quick::by_worker(how, (dir, kept.0.as_bytes()), || open(how)),
    };
    match opened {
        Err(e) => answer_waiting(Err(e)),
        Ok(fd) if direct => {
            call.file = FileRef::Owned(softring_host::fd::make_internal_opened(fd), Kind::Unknown);
            Outcome::Done(0)
        }
        Ok(fd) => Outcome::Done(give(fd, how.open_flags())),
    }
}

/// Gives the program a file that was opened for it; returns its number.
fn give(fd: OwnedFd, flags: OFlags) -> i32 {
    let fd = softring_host::fd::release(fd);
    softring_host::fd::forget_kind(fd);
    softring_host::fd::remembered::opened(fd, flags);
    fd
}

fn open_blocking(how: How, dir: i32, name: u64, by_openat2: bool) -> Result<OwnedFd> {
    how.check()?;
    if by_openat2 { how.openat2_or_less(dir, name) } else { how.openat(dir, name) }
}

/// Puts the opened file into the table, under the lock.
pub(crate) fn open_finish(ctx: &mut Ctx, req: &mut Req) {
    let index = req.call.sqe().file_index;
    if index == 0 || req.res < 0 {
        return;
    }
    if let FileRef::Owned(fd, _) = core::mem::take(&mut req.call.file) {
        req.res = into_slot(ctx, index, fd);
    }
}

/// Puts a file into the slot that `index` asks for; returns the CQE's result.
pub(crate) fn into_slot(ctx: &mut Ctx, index: u32, fd: softring_host::fd::InternalFd) -> i32 {
    let placed = ctx.resources.files.install(index, fd, &ctx.resources.tags);
    let alloc = index == IORING_FILE_INDEX_ALLOC;
    let answer = |slot: u32| if alloc { slot.cast_signed() } else { 0 };
    placed.map_or_else(Errno::res, answer)
}

/// Checks a CLOSE (`io_close_prep`).
pub(crate) fn close_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    zero(&[s.off, s.addr, u64::from(s.len), u64::from(s.op_flags), u64::from(s.buf_index)])?;
    no_fixed_file(req)?;
    if s.file_index != 0 && s.fd != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Closes a descriptor. Rings cannot be closed this way, and numbers of the engine's own count as
/// closed.
pub(crate) fn close(call: &mut Call, how: Try) -> Outcome {
    if call.sqe().file_index != 0 {
        return Outcome::Done(0);
    }
    let fd = call.sqe().fd;
    if softring_host::fd::numbers::is_live_ring(fd) || softring_host::fd::is_hidden(fd) {
        return Outcome::Done(Errno::EBADF.res());
    }
    let closing = Closing::new(fd);
    if how == Try::Block {
        // A worker holds no ring's lock.
        crate::ring::table::number_closes(fd);
    } else if persistent::count(fd) > 0 {
        // Another ring waits on the number: see `Ctx::closes_number`.
        return Outcome::Retry;
    }
    softring_host::fd::file_closes(fd);
    let done = answer(files::close(fd));
    drop(closing);
    softring_host::fd::forget_kind(fd);
    done
}

/// Empties a slot, under the lock.
pub(crate) fn close_finish(ctx: &mut Ctx, req: &mut Req) {
    if let Some(slot) = req.call.sqe().file_index.checked_sub(1) {
        req.res = ctx.resources.files.remove(slot).map_or_else(Errno::res, |()| 0);
    }
}

/// Checks a FIXED_FD_INSTALL (`io_install_fixed_fd_prep`).
pub(crate) fn install_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    let words = [s.len, u32::from(s.buf_index), s.file_index];
    zero(&[s.off, s.addr, s.addr3])?;
    zero(&words.map(u64::from))?;
    if !req.flags.contains(ReqFlags::FIXED_FILE) {
        return Err(Errno::EBADF);
    }
    if s.op_flags & !IORING_FIXED_FD_NO_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    if req.call.creds.is_some() { Err(Errno::EPERM) } else { Ok(()) }
}

/// Gives the program a descriptor for a registered file.
pub(crate) fn install(call: &mut Call, _: Try) -> Outcome {
    let plain = call.sqe().op_flags & IORING_FIXED_FD_NO_CLOEXEC != 0;
    match files::duplicate(call.file.fd(), 0, !plain) {
        Ok(fd) => {
            let fd = softring_host::fd::release(fd);
            softring_host::fd::forget_kind(fd);
            Outcome::Done(fd)
        }
        Err(e) => Outcome::Done(e.res()),
    }
}

/// Checks a PIPE (`io_pipe_prep`). `O_EXCL` is the bit of `O_NOTIFICATION_PIPE`.
pub(crate) fn pipe_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    if s.fd != 0 {
        return Err(Errno::EINVAL);
    }
    zero(&[s.off, s.addr3])?;
    zero(&[u64::from(s.op_flags) & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT | O_EXCL)])
}

/// Makes a pipe, as two descriptors or in two slots.
pub(crate) fn pipe(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let sqe = *req.call.sqe();
    let direct = sqe.file_index != 0;
    let flags = u64::from(sqe.op_flags) | if direct { O_CLOEXEC } else { 0 };
    let ends = match files::pipe(flags) {
        Ok(ends) => ends,
        Err(e) => return Outcome::Done(e.res()),
    };
    let made = if direct { pipe_slots(ctx, &sqe, ends) } else { pipe_fds(ctx, &sqe, ends) };
    Outcome::Done(made.map_or_else(Errno::res, |()| 0))
}

fn pipe_fds(ctx: &mut Ctx, sqe: &Sqe, ends: [OwnedFd; 2]) -> Result<()> {
    let fds = [ends[0].as_raw_fd(), ends[1].as_raw_fd()];
    ctx.unlocked(|| softring_host::user::write_slice(sqe.addr(), &fds))?;
    for end in ends {
        softring_host::fd::forget_kind(softring_host::fd::release(end));
    }
    Ok(())
}

/// Puts the read end into the slot that `file_index` names, the write end into the next one.
fn pipe_slots(ctx: &mut Ctx, sqe: &Sqe, ends: [OwnedFd; 2]) -> Result<()> {
    if u64::from(sqe.op_flags) & O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let [read, write] = ends.map(softring_host::fd::make_internal);
    let alloc = sqe.file_index == IORING_FILE_INDEX_ALLOC;
    let next = if alloc { sqe.file_index } else { sqe.file_index.wrapping_add(1) };
    let first = ctx.resources.files.install(sqe.file_index, read, &ctx.resources.tags)?;
    let second =
        ctx.resources.files.install(next, write, &ctx.resources.tags).inspect_err(|_| {
            let _ = ctx.resources.files.remove(first);
        })?;
    let slots = [first.cast_signed(), second.cast_signed()];
    ctx.unlocked(|| softring_host::user::write_slice(sqe.addr(), &slots)).inspect_err(|_| {
        let _ = ctx.resources.files.remove(first);
        let _ = ctx.resources.files.remove(second);
    })
}

/// Flag of open(2) that a program of 64 bits always means.
const O_LARGEFILE: u64 = 0o100_000;

/// Writes what a filter may load of an OPENAT: its `struct open_how`.
pub(crate) fn filtered(req: &Req, to: &mut [u8]) {
    if let OpState::Open(kept) = &req.call.state
        && let how = &kept.1
        && how.len() == to.len()
    {
        to.copy_from_slice(how);
        let flags = How::of_bytes(how).flags;
        let large = if flags & O_PATH == 0 { O_LARGEFILE } else { 0 };
        to[..8].copy_from_slice(&(flags | large).to_ne_bytes());
    }
}
