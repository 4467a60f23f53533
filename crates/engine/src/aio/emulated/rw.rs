//! Reads and writes, as an iocb asks for them.

use crate::abi::aio::*;
use crate::errno::{Errno, Result, check};
use crate::sys::sys;
use crate::user::iovec;

/// Reads or writes.
///
/// # Errors
/// Those of preadv2(2) and pwritev2(2).
pub(super) fn read_or_write(cb: &iocb, fd: i32) -> Result<usize> {
    let (buf, len, at, flags) = (cb.aio_buf, cb.aio_nbytes, cb.aio_offset, cb.aio_rw_flags);
    let iov = iovec { base: buf, len };
    let vectored = [IOCB_CMD_PREADV, IOCB_CMD_PWRITEV].contains(&cb.aio_lio_opcode);
    let (iov, n) =
        if vectored { (buf as usize, len) } else { ((&raw const iov).expose_provenance(), 1) };
    let writes = [IOCB_CMD_PWRITE, IOCB_CMD_PWRITEV].contains(&cb.aio_lio_opcode);
    let done = match (writes, flags) {
        (false, 0) => sys!(__NR_preadv, fd, iov, n, at, 0),
        (true, 0) => sys!(__NR_pwritev, fd, iov, n, at, 0),
        (false, _) => sys!(__NR_preadv2, fd, iov, n, at, 0, flags),
        (true, _) => sys!(__NR_pwritev2, fd, iov, n, at, 0, flags),
    };
    if check(done) != Err(Errno::ESPIPE) {
        return check(done);
    }
    // A stream, which has no position: the kernel's aio does not ask for one.
    let nowhere = -1i64;
    check(match (writes, flags) {
        (false, 0) => sys!(__NR_readv, fd, iov, n),
        (true, 0) => sys!(__NR_writev, fd, iov, n),
        (false, _) => sys!(__NR_preadv2, fd, iov, n, nowhere, 0, flags),
        (true, _) => sys!(__NR_pwritev2, fd, iov, n, nowhere, 0, flags),
    })
}
