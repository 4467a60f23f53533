//! The ops, one file per family, as in the kernel's `io_uring/`: `prep` checks the SQE, `issue`
//! tries it.

use alloc::ffi::CString;

use crate::ring::opdef::Outcome;
use crate::ring::request::{Call, OpState, Req, ReqFlags};
use softring_host::calls::ReadPtr;
use softring_uapi::errno::{Errno, Result};

pub(crate) mod advise;
pub(crate) mod cancel;
pub(crate) mod connect;
pub(crate) mod epoll;
pub(crate) mod fast_poll;
pub(crate) mod fast_recv;
pub(crate) mod fast_stream;
pub(crate) mod faults;
pub(crate) mod files_update;
pub(crate) mod fs;
pub(crate) mod futex;
pub(crate) mod msg_ring;
pub(crate) mod net;
pub(crate) mod net_bundle;
pub(crate) mod net_msg;
pub(crate) mod net_zc;
pub(crate) mod nop;
pub(crate) mod nvme;
pub(crate) mod open_how;
pub(crate) mod open_quick;
pub(crate) mod openclose;
pub(crate) mod poll;
pub(crate) mod provide;
pub(crate) mod rw;
pub(crate) mod rw_cached;
pub(crate) mod rw_nowait;
pub(crate) mod rw_polled;
pub(crate) mod rw_position;
pub(crate) mod rw_quick;
pub(crate) mod rw_select;
pub(crate) mod rw_signals;
pub(crate) mod rw_stream;
pub(crate) mod socket;
pub(crate) mod splice;
pub(crate) mod statx;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod timeout;
pub(crate) mod truncate;
pub(crate) mod tx_timestamp;
pub(crate) mod uring_cmd;
pub(crate) mod waitid;
pub(crate) mod xattr;

/// Turns the answer of a system call into an outcome.
pub(crate) fn answer(done: Result<usize>) -> Outcome {
    Outcome::Done(done.map_or_else(Errno::res, |v| v as i32))
}

/// Does the same for a call that may wait without end. If interrupted, it shows the program what
/// the kernel's own worker shows: `ERESTARTSYS`, which no system call lets through.
pub(crate) fn answer_waiting(done: Result<usize>) -> Outcome {
    const ERESTARTSYS: Errno = Errno(512);
    match answer(done) {
        Outcome::Done(res) if res == Errno::EINTR.res() => Outcome::Done(ERESTARTSYS.res()),
        other => other,
    }
}

/// Checks words of an SQE that must be 0.
///
/// # Errors
/// `EINVAL` if one is not.
pub(crate) fn zero(words: &[u64]) -> Result<()> {
    if words.iter().any(|&w| w != 0) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Checks a request whose `fd` is a directory, or nothing, and never a slot.
///
/// # Errors
/// `EBADF` with IOSQE_FIXED_FILE.
pub(crate) fn no_fixed_file(req: &Req) -> Result<()> {
    if req.flags.contains(ReqFlags::FIXED_FILE) { Err(Errno::EBADF) } else { Ok(()) }
}

/// Returns the addresses of the paths that prep has copied; 0 for an absent one.
pub(crate) fn paths(call: &Call) -> [ReadPtr; 2] {
    let at = |path: &CString| ReadPtr::of(path.as_c_str());
    match &call.state {
        OpState::Path(one) => [at(one), ReadPtr::NULL],
        OpState::Paths(both) => [at(&both[0]), at(&both[1])],
        _ => [ReadPtr::NULL; 2],
    }
}

/// Copies a path in, as the kernel's `getname` does.
///
/// # Errors
/// `EFAULT`, `ENAMETOOLONG` from 4096 bytes on with the NUL, `ENOENT` if it is empty and may not
/// be.
pub(crate) fn path(addr: u64, may_be_empty: bool) -> Result<CString> {
    const PATH_MAX: usize = 4096;
    let path = softring_host::user::read_cstr(addr, PATH_MAX)?;
    if path.is_empty() && !may_be_empty {
        return Err(Errno::ENOENT);
    }
    CString::new(path).map_err(|_| Errno::EINVAL)
}
