//! iocbs, one function per form; `data` comes back with the event.
#![allow(unsafe_code)]

use softring_host::calls::{Part, UserPtr};
use softring_uapi::aio::*;
pub(crate) use softring_uapi::aio::{
    IOCB_CMD_PREAD as READ, IOCB_CMD_PREADV as READV, IOCB_CMD_PWRITE as WRITE,
    IOCB_CMD_PWRITEV as WRITEV,
};

/// `RWF_NOWAIT`: fails with EAGAIN rather than wait.
pub(crate) const RWF_NOWAIT: i32 = 8;

/// An iocb to submit. The memory that it names is the program's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    iocb: iocb,
    /// Flag, true if nobody has read its vector.
    pub(super) unread: bool,
}

impl Prepared {
    /// Makes the request signal an eventfd when done.
    #[must_use]
    pub(crate) fn with_resfd(self, eventfd: i32) -> Prepared {
        Prepared { iocb: self.iocb.with_resfd(eventfd), ..self }
    }

    /// Gives the request an I/O priority.
    #[must_use]
    pub(crate) const fn with_priority(mut self, priority: u16) -> Prepared {
        self.iocb.aio_flags |= IOCB_FLAG_IOPRIO;
        self.iocb.aio_reqprio = priority.cast_signed();
        self
    }

    pub(super) const fn iocb(self) -> iocb {
        self.iocb
    }
}

impl From<iocb> for Prepared {
    fn from(iocb: iocb) -> Prepared {
        Prepared { iocb, unread: false }
    }
}

fn base(op: u16, fd: i32, data: u64) -> iocb {
    iocb { aio_data: data, aio_lio_opcode: op, aio_fildes: fd.cast_unsigned(), ..iocb::default() }
}

/// Returns the iocb of a read or write: `op` is one of `IOCB_CMD_PREAD`, `PWRITE` (`addr`, `len` in
/// bytes), `PREADV`, `PWRITEV` (`addr` of iovecs, their number). `flags` are `RWF_*`. The kernel
/// checks the address.
pub(crate) fn rw(
    op: u16,
    fd: i32,
    addr: UserPtr,
    len: u64,
    offset: i64,
    flags: i32,
    data: u64,
) -> Prepared {
    Prepared::from(iocb {
        aio_buf: addr.addr(),
        aio_nbytes: len,
        aio_offset: offset,
        aio_rw_flags: flags,
        ..base(op, fd, data)
    })
}

/// Returns the iocb of a read or write by a vector of ours: `op` is `IOCB_CMD_PREADV` or `PWRITEV`.
///
/// # Safety
/// The vector stays as it is until the iocb has been submitted.
pub(crate) unsafe fn rw_parts(
    op: u16,
    fd: i32,
    parts: &[Part],
    offset: i64,
    flags: i32,
    data: u64,
) -> Prepared {
    Prepared::from(iocb {
        aio_buf: parts.as_ptr().expose_provenance() as u64,
        aio_nbytes: parts.len() as u64,
        aio_offset: offset,
        aio_rw_flags: flags,
        ..base(op, fd, data)
    })
}

/// Returns the iocb of a read or write by the program's own vector of one part, the last of its
/// batch: `op` is `IOCB_CMD_PREADV` or `PWRITEV`. The kernel checks the address, and
/// `AioCtx::take_vector` tells what is there.
pub(crate) fn rw_unread(op: u16, fd: i32, vector: UserPtr, offset: i64, data: u64) -> Prepared {
    Prepared { unread: true, ..rw(op, fd, vector, 1, offset, RWF_NOWAIT, data) }
}

/// Returns the iocb of a one-shot poll, whose result is the events (`POLLIN` …).
pub(crate) fn poll(fd: i32, events: u16, data: u64) -> Prepared {
    Prepared::from(iocb { aio_buf: u64::from(events), ..base(IOCB_CMD_POLL, fd, data) })
}
