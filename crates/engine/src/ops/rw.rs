//! READ, WRITE and their vectored and fixed forms. Kernel counterpart: `io_uring/rw.c`.
//!
//! A buffered read is tried with `RWF_NOWAIT` and goes on until the range is done or would block; a
//! stream is read once.
#![allow(unsafe_code)]

use crate::io::aio::{self, Prepared, nowait};
use crate::io::iov::{MAX_IOV, import_iov, skip};
use crate::ops::{rw_cached, rw_nowait, rw_position, rw_quick, rw_select, rw_signals, rw_stream};
use crate::ring::ctx::Ctx;
use crate::ring::op_state::CURRENT;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, FileRef, Finding, OpState, Req, ReqFlags, Rw, Transfer, kind_of};
use softring_host::calls::{Parts, files};
use softring_host::fd::forget_kind;
use softring_host::fd::kind::{Kind, is_socket};
use softring_host::fd::probe::newest_knows;
use softring_host::os::fs::OFlags;
use softring_host::sys;
use softring_host::user::{self, in_user};
use softring_uapi::aio::{IOCB_CMD_PREAD, IOCB_CMD_PREADV, IOCB_CMD_PWRITE, IOCB_CMD_PWRITEV};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Flags up to `RWF_NOSIGNAL`.
const RWF_KNOWN: u32 = 0x1ff;
pub(crate) const RWF_NOAPPEND: u32 = 0x20;
/// Number of parts that `kmalloc` has room for, which is tried first for registered buffers.
const MAX_ALLOC: u32 = (4 << 20) / 16;

pub(crate) fn vectored(opcode: u8) -> bool {
    matches!(
        opcode,
        IORING_OP_READV | IORING_OP_WRITEV | IORING_OP_READV_FIXED | IORING_OP_WRITEV_FIXED
    )
}

fn fixed(opcode: u8) -> bool {
    matches!(
        opcode,
        IORING_OP_READ_FIXED
            | IORING_OP_WRITE_FIXED
            | IORING_OP_READV_FIXED
            | IORING_OP_WRITEV_FIXED
    )
}

pub(crate) fn writes(opcode: u8) -> bool {
    matches!(
        opcode,
        IORING_OP_WRITE | IORING_OP_WRITEV | IORING_OP_WRITE_FIXED | IORING_OP_WRITEV_FIXED
    )
}

/// Checks the SQE (`io_prep_rw`).
pub(crate) fn prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let io = Transfer::of(req.call.sqe());
    ioprio_check(req.call.sqe().ioprio)?;
    attributes(ctx, req.call.sqe())?;
    if io.flags & RWF_NOWAIT != 0 {
        req.flags |= ReqFlags::NOWAIT;
    }
    if req.flags.contains(ReqFlags::BUFFER_SELECT) {
        return rw_select::prep(ctx, req, io);
    }
    let opcode = req.opcode();
    let mut vector = None;
    if vectored(opcode) {
        if io.len > MAX_IOV {
            let huge = fixed(opcode) && io.len > MAX_ALLOC;
            return Err(if huge { Errno::ENOMEM } else { Errno::EINVAL });
        }
        // Copied, so that the request may outlive `enter` (`io_prep_rwv`).
        let parts = ctx.unlocked(|| import_iov(io.addr, io.len))?.into_boxed_slice();
        vector = Some(parts);
    } else if !fixed(opcode) {
        in_user(io.addr.addr(), u64::from(io.len))?;
    }
    req.call.begin(OpState::Rw(Rw { io, vector, by_worker: false }));
    Ok(())
}

/// Checks attributes: protection information is all that exists, and no file we reach takes it.
fn attributes(ctx: &mut Ctx, sqe: &io_uring_sqe) -> Result<()> {
    /// `IORING_RW_ATTR_FLAG_PI`.
    const PI: u64 = 1;
    /// Size of `struct io_uring_attr_pi`.
    const SIZE: usize = 32;
    match sqe.pad2 {
        0 => Ok(()),
        PI => {
            ctx.unlocked(|| user::read_slice(sqe.addr3, &mut [0u8; SIZE])).and(Err(Errno::EINVAL))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Checks the priority (`ioprio_check_cap`): the class must be known, and the real-time class needs
/// a privilege.
fn ioprio_check(ioprio: u16) -> Result<()> {
    /// `IOPRIO_CLASS_RT`.
    const REAL_TIME: u16 = 1;
    let (class, level) = (ioprio >> 13, ioprio & 7);
    match class {
        0 if level != 0 => Err(Errno::EINVAL),
        REAL_TIME => softring_host::creds::may_have_priority(ioprio),
        0..=3 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Checks what the kernel refuses at issue, before the file sees it (`io_rw_init_file`,
/// `rw_verify_area`).
fn check_at_issue(call: &Call, io: &Transfer, how: Try) -> Result<()> {
    let &Transfer { flags, off, .. } = io;
    if refused_flags(call, flags) {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & RWF_HIPRI != 0 {
        let unknown = rw_nowait::unknown_to_file(call);
        return Err(if unknown { Errno::EOPNOTSUPP } else { Errno::EINVAL });
    }
    let unwaiting = flags & RWF_NOWAIT != 0 && how == Try::Nonblock;
    if unwaiting && writes(call.opcode) {
        rw_nowait::buffered(call, kind_of(&call.file))?;
    }
    if off == CURRENT || off == 0 {
        return Ok(());
    }
    let end = off.cast_signed().checked_add_unsigned(call.total());
    if end.is_none_or(|end| end < 0) || off.cast_signed() < 0 {
        if rw_nowait::unknown_to_file(call) {
            return Err(Errno::EOPNOTSUPP);
        }
        // A request that must wait waits before its position is checked.
        let waits = how == Try::Nonblock && rw_nowait::never_ready(call, kind_of(&call.file));
        return Err(if waits { Errno::EAGAIN } else { Errno::EINVAL });
    }
    if kind_of(&call.file) == Kind::Pollable && is_socket(call.file.fd()) {
        return Err(Errno::ESPIPE);
    }
    Ok(())
}

/// Returns whether a flag is unknown to the kernel or unsupported by the file
/// (`kiocb_set_rw_flags`). preadv2(2) checks flags late, or not at all if nothing is transferred.
fn refused_flags(call: &Call, flags: u32) -> bool {
    if flags & (RWF_ATOMIC | RWF_DONTCACHE | RWF_NOWAIT | !RWF_KNOWN) == 0 {
        return false;
    }
    let kind = kind_of(&call.file);
    let cached = matches!(kind, Kind::Buffered | Kind::Direct);
    flags & !RWF_KNOWN != 0
        || (flags & RWF_NOWAIT != 0 && rw_nowait::unknown(call, kind))
        || (flags & (RWF_ATOMIC | RWF_DONTCACHE) != 0 && !cached)
        // If nothing is transferred, the file is not asked.
        || (flags & RWF_DONTCACHE != 0 && call.total() == 0 && rw_nowait::unknown_to_file(call))
        || (flags & RWF_ATOMIC != 0 && (!writes(call.opcode) || call.total() == 0))
}

/// Returns the error of a ring, which can be neither read nor written, with or without waiting.
pub(crate) fn refused_by_ring(call: &Call) -> Errno {
    let refused = RWF_ATOMIC | RWF_DONTCACHE | RWF_NOWAIT | !RWF_KNOWN;
    if call.io().flags & refused != 0 { Errno::EOPNOTSUPP } else { Errno::EINVAL }
}

/// Returns `e`, or `EBADF` if the number is closed, or open the other way: that comes first.
pub(crate) fn first_of(call: &Call, e: Errno) -> Errno {
    let flags = sys::file_flags(call.file.fd());
    let wrong = if writes(call.opcode) { OFlags::RDONLY } else { OFlags::WRONLY };
    match flags {
        Some(fl) if !fl.contains(OFlags::PATH) && fl & OFlags::RWMODE != wrong => e,
        _ => Errno::EBADF,
    }
}

/// Reads or writes: as far as it goes without blocking, or once with blocking.
pub(crate) fn issue(call: &mut Call, how: Try) -> Outcome {
    // The transfer is looked up once: each time takes a few instructions.
    let io = call.io();
    if io.flags & !RWF_KNOWN == 0 && rw_nowait::contradict(io.flags) {
        return Outcome::Done(first_of(call, Errno::EINVAL).res());
    }
    let outcome = match check_at_issue(call, io, how).map_err(|e| first_of(call, e)) {
        Ok(()) => attempt(call, how),
        Err(Errno::EAGAIN) => return would_block(call),
        Err(e) if e == Errno::ESPIPE || is_for_worker(call) => Outcome::Done(e.res()),
        Err(e) => return Outcome::Done(e.res()),
    };
    match outcome {
        Outcome::Done(..0) if how == Try::Nonblock => left_to_task(call, outcome),
        outcome => outcome,
    }
}

/// Returns whether only a worker of the kernel's would ask the file. Flags are refused before.
fn is_for_worker(call: &Call) -> bool {
    call.io().flags & RWF_HIPRI == 0 && matches!(kind_of(&call.file), Kind::Buffered | Kind::Memory)
}

/// Leaves the file's own refusal of a write to task work (`io_rw_done`). Other errors show before
/// the file is asked: it is closed or open the other way, or does not know a flag.
#[cold]
pub(crate) fn left_to_task(call: &Call, outcome: Outcome) -> Outcome {
    let before = [Errno::EBADF, Errno::EOPNOTSUPP].map(Errno::res);
    match outcome {
        Outcome::Done(e) if writes(call.opcode) && !before.contains(&e) => Outcome::Later(e),
        outcome => outcome,
    }
}

fn attempt(call: &mut Call, how: Try) -> Outcome {
    let found = core::mem::take(&mut call.found);
    if how == Try::Nonblock && call.is_of_stream_socket() {
        let mut refused = false;
        let outcome = rw_signals::attempt(call, (Kind::Pollable, how), |call| {
            rw_stream::attempt(call).unwrap_or_else(|| {
                refused = true;
                Outcome::Retry
            })
        });
        if !refused {
            return outcome;
        }
    }
    let mut kind = if found == Finding::Stream { Kind::Pollable } else { kind_of(&call.file) };
    if how == Try::Nonblock && kind == Kind::Memory && streams_now(call) {
        misjudged(call, &mut kind);
    }
    if rw_quick::is_known(call) {
        match how {
            Try::Nonblock if rw_quick::is_to_try(call) => return rw_quick::write(call, kind),
            Try::Nonblock => {}
            Try::Block => return rw_quick::by_worker(call, |call| by_calls(call, kind, how)),
        }
    }
    if how == Try::Nonblock && rw_nowait::punts(call, kind) {
        return Outcome::Retry;
    }
    rw_signals::attempt(call, (kind, how), |call| by_calls(call, kind, how))
}

/// Makes the system calls of an attempt.
fn by_calls(call: &mut Call, mut kind: Kind, how: Try) -> Outcome {
    let &Transfer { flags: asked, off, .. } = call.io();
    let mut given = match rw_nowait::flags_given(call, asked, kind, how) {
        Ok(given) => given,
        Err(Errno::EINVAL) if rw_nowait::never_ready(call, kind) => return Outcome::Retry,
        Err(e) => return Outcome::Done(e.res()),
    };
    loop {
        let nowait = how == Try::Nonblock && kind != Kind::Memory;
        let flags = given | if nowait { RWF_NOWAIT } else { 0 };
        match transfer(call, kind, flags) {
            Ok(n) => {
                let (done, total) = (call.add_done(n as u64), call.total());
                if asked == 0 && off != CURRENT && may_trust(call, kind) {
                    rw_cached::count(&call.file, nowait && done == total);
                }
                let more = nowait && kind == Kind::Buffered && n > 0 && done < total;
                let own = off == CURRENT && writes(call.opcode);
                if !more && n > 0 && done < total && own {
                    return rw_position::write_remaining(call, kind, given);
                }
                if !more || asked & RWF_NOWAIT != 0 {
                    return finish_with(call, done, total);
                }
            }
            Err(Errno::EAGAIN)
                if nowait
                    && kind == Kind::Buffered
                    && streams_now(call)
                    && misjudged(call, &mut kind) => {}
            Err(Errno::EAGAIN) if nowait => {
                rw_cached::count(&call.file, false);
                return would_block(call);
            }
            // A worker waits even if asked not to.
            Err(e) if how == Try::Block && given & RWF_NOWAIT != 0 && waits(e, kind) => {
                given &= !RWF_NOWAIT;
            }
            Err(Errno::EOPNOTSUPP) if rw_nowait::drops_flags(call, kind, &mut given) => {}
            Err(Errno::EOPNOTSUPP) if nowait && given & RWF_NOWAIT == 0 => {
                return rw_nowait::without(call, kind, given);
            }
            Err(Errno::EOPNOTSUPP) if nowait && newest_knows(call.file.fd()) => {
                return rw_nowait::not_to_wait(call, kind, given);
            }
            Err(Errno::ESPIPE) if misjudged(call, &mut kind) => {}
            Err(Errno::ESPIPE) if nowait && given & RWF_NOWAIT == 0 => return Outcome::Retry,
            Err(Errno::ESPIPE) => return rw_position::without_position(call, kind, given),
            Err(Errno::EINVAL) if how == Try::Nonblock && rw_nowait::never_ready(call, kind) => {
                return would_block(call);
            }
            Err(_) if call.io().done > 0 => {
                rw_position::put_back(call, kind);
                let total = call.total();
                return finish(call, total);
            }
            Err(e) => return Outcome::Done(e.res()),
        }
    }
}

/// Returns whether the page cache may answer: a plain read of a buffered file.
fn may_trust(call: &Call, kind: Kind) -> bool {
    kind == Kind::Buffered && matches!(call.opcode, IORING_OP_READ | IORING_OP_READ_FIXED)
}

/// Returns whether `RWF_NOWAIT` alone made a call fail.
fn waits(e: Errno, kind: Kind) -> bool {
    let refuses = matches!(kind, Kind::Pollable | Kind::Other | Kind::Buffered);
    e == Errno::EAGAIN || (e == Errno::EOPNOTSUPP && refuses)
}

/// Returns whether the number was reused behind our back: the supposed file is a stream.
fn misjudged(call: &Call, kind: &mut Kind) -> bool {
    let FileRef::Plain(fd) = call.file else { return false };
    let before = *kind;
    forget_kind(fd);
    *kind = crate::io::kinds::kind(fd);
    *kind != before
}

/// Returns whether a read or write at the file's own position is one of a stream. The call itself
/// would not say so, as it does for [`misjudged`].
fn streams_now(call: &Call) -> bool {
    let own = matches!(call.file, FileRef::Plain(_)) && call.io().off == CURRENT;
    own && files::position(call.file.fd()) == Err(Errno::ESPIPE)
}

/// Ends an attempt that would block; what it has done so far counts.
fn would_block(call: &mut Call) -> Outcome {
    if call.io().flags & RWF_NOWAIT != 0 {
        if call.io().done == 0 {
            return Outcome::Done(Errno::EAGAIN.res());
        }
        let total = call.total();
        return finish(call, total);
    }
    Outcome::Retry
}

pub(crate) fn finish(call: &mut Call, total: u64) -> Outcome {
    let done = call.io().done;
    finish_with(call, done, total)
}

const fn finish_with(call: &mut Call, done: u64, total: u64) -> Outcome {
    call.short = done != total;
    Outcome::Done(done as i32)
}

/// Transfers what is left by one system call.
pub(crate) fn transfer(call: &Call, kind: Kind, flags: u32) -> Result<usize> {
    transfer_by(call.file.fd(), call, kind, flags)
}

/// Does the same by another descriptor of the file.
pub(crate) fn transfer_by(fd: i32, call: &Call, kind: Kind, flags: u32) -> Result<usize> {
    let OpState::Rw(Rw { io, vector, .. }) = &call.state else { return Err(Errno::EINVAL) };
    let writes = writes(call.opcode);
    let stream = kind == Kind::Pollable;
    let off = match io.off {
        _ if stream => CURRENT,
        CURRENT => CURRENT,
        off => off.wrapping_add(io.done),
    };
    let one;
    let rest;
    let parts = match vector {
        _ if !vectored(call.opcode) => {
            one = io.rest();
            Parts::one(&one)
        }
        Some(vector) if io.done > 0 => {
            rest = skip(vector, io.done);
            Parts::of(&rest)
        }
        Some(vector) => Parts::of(vector),
        None => Parts::of_program(io.addr, io.len as usize),
    };
    if stream && call.total() == 0 && (!writes || is_socket(fd)) {
        if rw_nowait::by_parts(call, kind) {
            return rw_nowait::no_part(fd, flags);
        }
        // With nothing to transfer the file still decides (an eventfd refuses to be read, a socket
        // sends an empty message).
        return files::transfer_nothing(writes, fd);
    }
    softring_host::substitute::transfer(writes, fd, parts, off, flags)
}

/// Makes the same request for kernel aio; `None` if it must go another way.
pub(crate) fn to_iocb(call: &mut Call, data: u64, resfd: Option<i32>) -> Result<Option<Prepared>> {
    let (io, ioprio) = (call.io(), call.sqe().ioprio);
    if io.off == CURRENT || io.flags & RWF_HIPRI != 0 {
        return Ok(None);
    }
    let (write, vec) = (writes(call.opcode), vectored(call.opcode));
    let opcode = match (write, vec) {
        (false, false) => IOCB_CMD_PREAD,
        (true, false) => IOCB_CMD_PWRITE,
        (false, true) => IOCB_CMD_PREADV,
        (true, true) => IOCB_CMD_PWRITEV,
    };
    let (fd, flags, off) =
        (call.file.fd(), (io.flags | RWF_NOWAIT).cast_signed(), io.off.cast_signed());
    let mut cb = match call.state.vector() {
        // SAFETY: the request keeps its vector, and waits for the end of the aio.
        Some(parts) => unsafe { aio::rw_parts(opcode, fd, parts, off, flags, data) },
        None => aio::rw(opcode, fd, io.addr, io.len.into(), off, flags, data),
    };
    if ioprio != 0 {
        cb = cb.with_priority(ioprio);
    }
    if let Some(fd) = resfd {
        cb = cb.with_resfd(fd);
    }
    Ok(Some(cb))
}

/// Returns whether the request goes on after the result of kernel aio: we, not the program, have
/// asked aio not to wait. What it has done so far counts.
pub(crate) fn aio_goes_on(call: &mut Call, res: i64) -> bool {
    if call.io().flags & RWF_NOWAIT != 0 {
        return false;
    }
    let Ok(done) = u64::try_from(res) else { return res == i64::from(Errno::EAGAIN.res()) };
    let short = !writes(call.opcode) && done < call.total();
    if short && !nowait::ends_at(call.file.fd(), call.io().off + done) {
        call.set_done(done);
        return true;
    }
    false
}

/// Takes the result of kernel aio.
pub(crate) fn aio_done(call: &mut Call, res: i64) -> i32 {
    if res >= 0 {
        call.short = res as u64 != call.total();
    }
    res as i32
}
