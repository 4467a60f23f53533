//! iocbs, one function per form; `data` comes back with the event.

use softring_uapi::aio::*;
pub(crate) use softring_uapi::aio::{IOCB_CMD_PREAD as READ, IOCB_CMD_PWRITE as WRITE};

/// `RWF_NOWAIT`: fails with EAGAIN rather than wait.
pub(crate) const RWF_NOWAIT: i32 = 8;

fn base(op: u16, fd: i32, data: u64) -> iocb {
    iocb { aio_data: data, aio_lio_opcode: op, aio_fildes: fd.cast_unsigned(), ..iocb::default() }
}

/// Returns the iocb of a read or write: `op` is one of `IOCB_CMD_PREAD`, `PWRITE` (`addr`, `len` in
/// bytes), `PREADV`, `PWRITEV` (`addr` of iovecs, their number). `flags` are `RWF_*`. The kernel
/// checks the address.
pub(crate) fn rw(
    op: u16,
    fd: i32,
    addr: u64,
    len: u64,
    offset: i64,
    flags: i32,
    data: u64,
) -> iocb {
    iocb {
        aio_buf: addr,
        aio_nbytes: len,
        aio_offset: offset,
        aio_rw_flags: flags,
        ..base(op, fd, data)
    }
}

/// Returns the iocb of a one-shot poll, whose result is the events (`POLLIN` …).
pub(crate) fn poll(fd: i32, events: u16, data: u64) -> iocb {
    iocb { aio_buf: u64::from(events), ..base(IOCB_CMD_POLL, fd, data) }
}
