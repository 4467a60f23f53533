//! `RWF_NOWAIT` in a write's SQE, where io_uring answers otherwise than pwritev2(2) does. Kernel
//! counterpart: `io_write`, `loop_rw_iter`.

use rustix::fs::{FileType, OFlags};

use crate::abi::IORING_OP_WRITEV_FIXED;
use crate::errno::{Errno, Result};
use crate::opdef::{Outcome, Try};
use crate::ops::rw::{RWF_ATOMIC, RWF_DONTCACHE, RWF_NOWAIT, total, writes};
use crate::ops::rw_hot;
use crate::req::request::Call;
use crate::req::route::kind_of;
use crate::sys::{self, sys};
use crate::transport::kind::{Kind, is_socket};
use crate::user::iovec;

/// The flags of the SQE, but for the RWF_NOWAIT of a write that needs none.
///
/// # Errors
/// As [`may_write`].
pub fn flags_given(call: &Call, kind: Kind, how: Try) -> Result<u32> {
    let given = call.sqe.op_flags;
    let special = call.sqe.opcode == IORING_OP_WRITEV_FIXED || given & RWF_NOWAIT != 0;
    if !special || !writes(call.sqe.opcode) || !simple(call, kind) {
        return Ok(given);
    }
    if how == Try::Nonblock {
        may_write(call)?;
    }
    Ok(given & !RWF_NOWAIT)
}

/// `EXT4_SUPER_MAGIC`, `F2FS_SUPER_MAGIC`.
const UNBUFFERED: [u64; 2] = [0xef53, 0xf2f5_2010];

/// Is it known beforehand that the file cannot do without waiting? Where there is nothing to
/// transfer it does not say so itself.
pub fn punts(call: &Call, kind: Kind) -> bool {
    let flags = call.sqe.op_flags;
    match kind {
        Kind::Buffered if writes(call.sqe.opcode) => {
            let nothing = || total(call) == 0 && buffered(call, kind).is_err();
            flags == 0 && (rw_hot::write_punts(&call.file) || nothing())
        }
        Kind::Other if flags & RWF_NOWAIT == 0 && total(call) == 0 => unknown(call, kind),
        _ => false,
    }
}

/// File systems that read without waiting, but write so only past the cache: pwritev2(2) answers
/// `EOPNOTSUPP`, and 0 if there is nothing to write.
///
/// # Errors
/// `EAGAIN`.
pub fn buffered(call: &Call, kind: Kind) -> Result<()> {
    if writes_unbuffered(call.file.fd(), kind) { Err(Errno::EAGAIN) } else { Ok(()) }
}

/// Is it a buffered file of such a file system?
pub fn writes_unbuffered(fd: i32, kind: Kind) -> bool {
    let fd = sys::borrow(fd).filter(|_| kind == Kind::Buffered);
    let magic = fd.and_then(|fd| crate::substitute::statfs(fd).ok()).map(|s| s.f_type as u64);
    magic.is_some_and(|m| UNBUFFERED.contains(&m))
}

/// Does the file lack `write_iter`, as an eventfd does? pwritev2(2) refuses it every flag.
pub fn simple(call: &Call, kind: Kind) -> bool {
    let fd = sys::borrow(call.file.fd()).filter(|_| kind == Kind::Pollable);
    let stat = fd.and_then(|fd| rustix::fs::fstat(fd).ok());
    stat.is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Unknown)
}

/// Is it a write to a [`simple`] file that blocks? No attempt is made without (`loop_rw_iter`).
pub fn only_blocks(call: &Call, kind: Kind) -> bool {
    writes(call.sqe.opcode) && simple(call, kind) && sys::blocks(call.file.fd())
}

/// The outcome of an attempt that only a worker of the kernel's would make: a failure is left to
/// task work.
pub fn left_to_task(outcome: Outcome, call: &Call, how: Try) -> Outcome {
    match outcome {
        Outcome::Done(e @ ..0)
            if how == Try::Nonblock && only_blocks(call, kind_of(&call.file)) =>
        {
            Outcome::Later(e)
        }
        outcome => outcome,
    }
}

/// Are there flags that some file systems can do, and not this one? pwritev2(2) looks at the
/// position first.
#[cold]
pub fn unknown_to_file(call: &Call) -> bool {
    let flags = call.sqe.op_flags & (RWF_ATOMIC | RWF_DONTCACHE);
    flags != 0 && try_byte(call.file.fd(), writes(call.sqe.opcode), flags) == UNKNOWN_FLAG
}

/// Is it a file that is read part by part, as inotify's, and so not at all if there is no part?
/// Those refuse flags that others take; the others refuse a single byte.
pub fn by_parts(call: &Call, kind: Kind) -> bool {
    /// `RWF_DSYNC`, which says nothing to a read.
    const ANY_FLAG: u32 = 2;
    if super::rw::writes(call.sqe.opcode) || !simple(call, kind) {
        return false;
    }
    try_byte(call.file.fd(), false, ANY_FLAG) == UNKNOWN_FLAG
}

/// A read of no part of such a file: it waits, unless the file is not to be waited for.
///
/// # Errors
/// `EAGAIN` where it may not block.
pub fn no_part(fd: i32, flags: u32) -> Result<usize> {
    let file = sys::file_flags(fd);
    let waits = file.is_some_and(|fl| !fl.contains(OFlags::NONBLOCK));
    let asked = flags & super::rw::RWF_NOWAIT != 0;
    if asked && waits && sys::poll_now(fd, sys::POLLIN) == 0 { Err(Errno::EAGAIN) } else { Ok(0) }
}

/// Does the file know no `RWF_NOWAIT`? preadv2(2) says so only where there is something to
/// transfer.
pub fn unknown(call: &Call, kind: Kind) -> bool {
    let fd = sys::borrow(call.file.fd());
    match kind {
        Kind::Memory => true,
        Kind::Pollable => !is_socket(call.file.fd()) && !tries(call.file.fd()),
        Kind::Other => {
            let stat = fd.and_then(|fd| rustix::fs::fstat(fd).ok());
            stat.is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory)
        }
        _ => false,
    }
}

/// What a file answers to a flag that it does not know.
pub const UNKNOWN_FLAG: Result<usize> = Err(Errno::EOPNOTSUPP);

/// preadv2(2) or pwritev2(2) of one byte at no address: no data move.
///
/// # Errors
/// What the file says of `flags`.
pub fn try_byte(fd: i32, writes: bool, flags: u32) -> Result<usize> {
    let byte = iovec { base: 0, len: 1 };
    let at = core::ptr::from_ref(&byte).expose_provenance();
    crate::substitute::transfer(writes, fd, at, 1, u64::MAX, flags)
}

/// No other file than an epoll set tells an epoll_wait(2) without room from one of no use.
fn is_epoll(fd: i32) -> bool {
    sys!(__NR_epoll_pwait, fd, 0, 1, 0, 0, 8) != Errno::EINVAL.res() as isize
}

/// May attempts at `fd`, which is no socket, be told not to wait (`FMODE_NOWAIT`)? A read of a byte
/// to nowhere takes nothing out of a pipe, an eventfd and their kin.
pub fn tries(fd: i32) -> bool {
    try_byte(fd, false, RWF_NOWAIT) != UNKNOWN_FLAG && !is_epoll(fd)
}

/// An epoll set: it can be polled, so that the kernel waits for it before it is refused; and it is
/// not ready.
pub fn never_ready(call: &Call, kind: Kind) -> bool {
    let fd = call.file.fd();
    let epoll = || is_epoll(fd);
    let writes = super::rw::writes(call.sqe.opcode);
    simple(call, kind) && epoll() && (writes || sys::poll_now(fd, sys::POLLIN) == 0)
}

/// A write to a [`simple`] file: may it be tried?
///
/// # Errors
/// `EAGAIN` if it is asked not to wait, and the file is not.
/// `EINVAL` for parts of a registered buffer: in their place the kernel hands such a file their
/// number and the address of their list, and an eventfd takes no less than eight bytes.
pub fn may_write(call: &Call) -> Result<()> {
    let asked = call.sqe.op_flags & super::rw::RWF_NOWAIT != 0;
    if asked && sys::blocks(call.file.fd()) {
        return Err(Errno::EAGAIN);
    }
    let parts = call.sqe.opcode == IORING_OP_WRITEV_FIXED && call.sqe.len > 0;
    if parts { Err(Errno::EINVAL) } else { Ok(()) }
}
