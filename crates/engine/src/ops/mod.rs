//! The ops, one file per family, as in the kernel's `io_uring/`: `prep` checks the SQE, `issue`
//! tries it.

use std::ffi::CString;

use crate::ctx::Ctx;
use crate::opdef::Outcome;
use crate::req::request::{Call, Req, ReqFlags};
use softring_uapi::errno::{Errno, Result, check};
use softring_uapi::*;

pub mod advise;
pub mod cancel;
pub mod connect;
pub mod epoll;
pub mod files_update;
pub mod fs;
pub mod futex;
pub mod iov;
pub mod msg_ring;
pub mod net;
pub mod net_bundle;
pub mod net_msg;
pub mod net_zc;
pub mod nop;
pub mod nvme;
pub mod open_how;
pub mod openclose;
pub mod poll;
pub mod provide;
pub mod rw;
pub mod rw_hot;
pub mod rw_nowait;
pub mod rw_position;
pub mod rw_select;
pub mod socket;
pub mod splice;
pub mod statx;
pub mod sync;
pub mod timeout;
pub mod truncate;
pub mod tx_timestamp;
pub mod uring_cmd;
pub mod waitid;
pub mod xattr;

/// `prep` of an opcode that is not there: as a kernel that does not know it.
pub fn refuse(_: &mut Ctx, _: &mut Req) -> Result<()> {
    Err(Errno::EINVAL)
}

/// `issue` of an opcode that is not there; prep has already refused it.
pub fn refused(_: &mut Ctx, _: &mut Req) -> Outcome {
    Outcome::Done(Errno::EINVAL.res())
}

/// May an operation have a ring for its file? What is behind its number here is the ring's memory,
/// which nobody is to read, write or cut short so.
///
/// # Errors
/// What the kernel answers for a file that has no such operation.
pub fn takes_ring(call: &Call) -> Result<()> {
    match call.sqe.opcode {
        IORING_OP_FALLOCATE => Err(Errno::ENODEV),
        IORING_OP_SYNC_FILE_RANGE => Err(Errno::ESPIPE),
        IORING_OP_FSYNC | IORING_OP_FTRUNCATE => Err(Errno::EINVAL),
        IORING_OP_READ..=IORING_OP_WRITE
        | IORING_OP_READV..=IORING_OP_WRITE_FIXED
        | IORING_OP_READ_MULTISHOT
        | IORING_OP_READV_FIXED
        | IORING_OP_WRITEV_FIXED => Err(rw::refused_by_ring(call)),
        _ => Ok(()),
    }
}

/// What a raw system call answered, as an outcome.
pub fn answer(ret: isize) -> Outcome {
    Outcome::Done(check(ret).map_or_else(Errno::res, |v| v as i32))
}

/// The same for a call that may wait without end. Interrupted, it shows a program what the kernel's
/// own worker shows: `ERESTARTSYS`, which no system call lets through.
pub fn answer_waiting(ret: isize) -> Outcome {
    const ERESTARTSYS: Errno = Errno(512);
    match answer(ret) {
        Outcome::Done(res) if res == Errno::EINTR.res() => Outcome::Done(ERESTARTSYS.res()),
        other => other,
    }
}

/// Words of an SQE that must be 0.
///
/// # Errors
/// `EINVAL` if one is not.
pub fn zero(words: &[u64]) -> Result<()> {
    if words.iter().any(|&w| w != 0) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// For opcodes whose `fd` is a directory, or nothing, and never a slot.
///
/// # Errors
/// `EBADF` with IOSQE_FIXED_FILE.
pub fn no_fixed_file(req: &Req) -> Result<()> {
    if req.flags.contains(ReqFlags::FIXED_FILE) { Err(Errno::EBADF) } else { Ok(()) }
}

/// Copies a path in, as the kernel's `getname` does.
///
/// # Errors
/// `EFAULT`, `ENAMETOOLONG` from 4096 bytes on with the NUL, `ENOENT` if it is empty and may not
/// be.
pub fn path(addr: u64, may_be_empty: bool) -> Result<CString> {
    const PATH_MAX: usize = 4096;
    let path = crate::user::read_cstr(addr, PATH_MAX)?;
    if path.is_empty() && !may_be_empty {
        return Err(Errno::ENOENT);
    }
    CString::new(path).map_err(|_| Errno::EINVAL)
}
