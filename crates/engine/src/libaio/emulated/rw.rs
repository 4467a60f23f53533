//! Reads and writes, as an iocb asks for them.

use super::check::capped;
use super::iocb::Iocb;
use crate::io::iov::import_iov;
use crate::ops::rw_nowait::writes_unbuffered;
use softring_host::calls::{Part, Parts, ReadPtr, UserPtr, files, sockets};
use softring_host::fd::kind::{Kind, is_socket};
use softring_host::os::fs::FileType;
use softring_host::substitute::file_type;
use softring_host::substitute::{positioned, transfer};
use softring_uapi::RWF_NOWAIT;
use softring_uapi::aio::*;
use softring_uapi::errno::{Errno, Result};

/// Reads or writes.
///
/// # Errors
/// Those of preadv2(2) and pwritev2(2).
pub(super) fn read_or_write(cb: &Iocb, fd: i32) -> Result<usize> {
    let (buf, len, at, flags) = (cb.buf(), cb.aio_nbytes, cb.aio_offset, cb.aio_rw_flags);
    // preadv2(2) would refuse a buffer that is longer than any call reads or writes.
    let whole = Part::new(buf, capped(len));
    let vectored = [IOCB_CMD_PREADV, IOCB_CMD_PWRITEV].contains(&cb.aio_lio_opcode);
    let parts = match vectored {
        true => Parts::of_program(buf, len as usize),
        false => Parts::one(&whole),
    };
    let writes = [IOCB_CMD_PWRITE, IOCB_CMD_PWRITEV].contains(&cb.aio_lio_opcode);
    let flagged = |at: i64| {
        let (at, flags) = (at.cast_unsigned(), flags.cast_unsigned());
        transfer(writes, fd, parts, at, flags)
    };
    let done = match (writes, flags) {
        (_, 0) => positioned(writes, fd, parts, at.cast_unsigned()),
        _ => flagged(at),
    };
    if done != Err(Errno::ESPIPE) {
        // pwritev2(2) answers for a write of nothing without asking the file.
        let nowait = writes && flags.cast_unsigned() & RWF_NOWAIT != 0;
        let refused = nowait && done == Ok(0) && writes_unbuffered(fd, Kind::of(fd));
        return if refused { Err(Errno::EOPNOTSUPP) } else { done };
    }
    // A stream, which has no position: the kernel's aio does not ask for one.
    let nowhere = -1i64;
    let done = match (writes, flags) {
        (false, 0) => files::readv(fd, parts),
        (true, 0) => files::writev(fd, parts),
        _ => flagged(nowhere),
    };
    match done == Ok(0) && wants_nothing(cb) {
        true if writes => write_nothing(fd, flags),
        true => read_nothing(fd),
        false => done,
    }
}

fn wants_nothing(cb: &Iocb) -> bool {
    if [IOCB_CMD_PREAD, IOCB_CMD_PWRITE].contains(&cb.aio_lio_opcode) {
        return cb.aio_nbytes == 0;
    }
    let parts = u32::try_from(cb.aio_nbytes).map_err(|_| Errno::EINVAL);
    let parts = parts.and_then(|n| import_iov(cb.buf(), n));
    parts.is_ok_and(|parts| parts.iter().all(|part| part.len == 0))
}

/// Reads nothing. preadv2(2) answers such a read without asking the file. An eventfd, a timerfd and
/// a signalfd refuse it as they refuse one byte.
fn read_nothing(fd: i32) -> Result<usize> {
    let special = file_type(fd) == Some(FileType::Unknown);
    let byte = [Part::new(UserPtr::NULL, 1)];
    match files::readv(fd, Parts::of(&byte[..usize::from(special)])) {
        Err(Errno::EINVAL) => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

/// Writes nothing, which to a socket is a datagram.
fn write_nothing(fd: i32, flags: i32) -> Result<usize> {
    const MSG_DONTWAIT: u32 = 0x40;
    if !is_socket(fd) {
        return Ok(0);
    }
    let wait = if flags.cast_unsigned() & RWF_NOWAIT != 0 { MSG_DONTWAIT } else { 0 };
    sockets::send(fd, ReadPtr::NULL, 0, wait, None)
}
