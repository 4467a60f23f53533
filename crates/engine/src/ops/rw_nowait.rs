//! `RWF_NOWAIT` in a write's SQE, for which io_uring answers otherwise than pwritev2(2). Kernel
//! counterpart: `io_write`, `loop_rw_iter`.

use alloc::format;
use alloc::vec;
use softring_host::os::fd::AsRawFd;
use softring_host::os::fs::{FileType, Mode, OFlags};

use crate::io::iov::skip;
use crate::io::socket::MSG_DONTWAIT;
use crate::ops::rw::{RWF_NOAPPEND, finish, first_of, transfer_by, writes};
use crate::ops::rw_cached;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::Call;
use softring_host::calls::{Incoming, Outgoing};
use softring_host::fd::InternalFd;
use softring_host::fd::kind::{Kind, is_socket};
use softring_host::fd::probe::{
    UNKNOWN_FLAG, is_epoll, is_eventfd, is_pipe, is_simple, is_zero, tries, try_byte,
};
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{IORING_OP_WRITEV_FIXED, RWF_NOWAIT};
use softring_uapi::{RWF_ATOMIC, RWF_DONTCACHE};

/// Flags that any file takes, though it may have no use for them: `RWF_DSYNC
/// RWF_SYNC
/// RWF_APPEND
/// RWF_NOAPPEND`.
const RWF_ANY: u32 = 0x2 | 0x4 | 0x10 | 0x20;
/// Flag of a file without `write_iter`, which sends no signal.
const RWF_NOSIGNAL: u32 = 0x100;

/// Returns the flags of the SQE, without the RWF_NOWAIT of a write that needs none.
///
/// # Errors
/// Those of [`may_write`].
pub(crate) fn flags_given(call: &Call, given: u32, kind: Kind, how: Try) -> Result<u32> {
    let special = call.opcode == IORING_OP_WRITEV_FIXED || given & RWF_NOWAIT != 0;
    if !special || !writes(call.opcode) || !is_simple(call.file.fd(), kind) {
        return Ok(given);
    }
    if how == Try::Nonblock {
        may_write(call)?;
    }
    Ok(given & !RWF_NOWAIT)
}

/// Types of [`buffered`]'s file systems: `EXT4_SUPER_MAGIC`, `F2FS_SUPER_MAGIC`.
const UNBUFFERED: [u64; 2] = [0xef53, 0xf2f5_2010];

/// Returns whether it is known beforehand that the file cannot do without waiting. With nothing to
/// transfer the file does not say so itself.
pub(crate) fn punts(call: &Call, kind: Kind) -> bool {
    let unwaiting = || call.io().flags & RWF_NOWAIT != 0;
    match kind {
        Kind::Buffered if writes(call.opcode) => {
            let nothing = || call.total() == 0 && buffered(call, kind).is_err();
            !unwaiting() && (rw_cached::write_punts(&call.file) || nothing())
        }
        Kind::Other if !unwaiting() && call.total() == 0 => unknown(call, kind),
        _ => false,
    }
}

/// Checks for a file system that reads without waiting, but writes so only past the cache:
/// pwritev2(2) answers `EOPNOTSUPP`, and 0 if there is nothing to write.
///
/// # Errors
/// `EAGAIN`.
pub(crate) fn buffered(call: &Call, kind: Kind) -> Result<()> {
    if writes_unbuffered(call.file.fd(), kind) { Err(Errno::EAGAIN) } else { Ok(()) }
}

/// Returns whether the file is a buffered one of such a file system.
pub(crate) fn writes_unbuffered(fd: i32, kind: Kind) -> bool {
    let fd = sys::borrow(fd).filter(|_| kind == Kind::Buffered);
    let magic =
        fd.and_then(|fd| softring_host::substitute::statfs(fd).ok()).map(|s| s.f_type as u64);
    magic.is_some_and(|m| UNBUFFERED.contains(&m))
}

/// Returns whether there are flags that some file systems support, but not this one. pwritev2(2)
/// checks the position first.
#[cold]
pub(crate) fn unknown_to_file(call: &Call) -> bool {
    let flags = call.io().flags & (RWF_ATOMIC | RWF_DONTCACHE);
    flags != 0 && try_byte(call.file.fd(), writes(call.opcode), flags) == UNKNOWN_FLAG
}

/// Returns whether two flags contradict each other (`kiocb_set_rw_flags`). No file is asked then.
pub(crate) fn contradict(flags: u32) -> bool {
    /// `RWF_APPEND`.
    const APPEND: u32 = 0x10;
    const BOTH: u32 = APPEND | RWF_NOAPPEND;
    flags & BOTH == BOTH
}

/// Returns whether the file is read part by part, like inotify's, and so not at all without a part.
/// Such files refuse flags that others take; the others refuse a single byte.
pub(crate) fn by_parts(call: &Call, kind: Kind) -> bool {
    /// `RWF_DSYNC`, which says nothing to a read.
    const ANY_FLAG: u32 = 2;
    if super::rw::writes(call.opcode) || !is_simple(call.file.fd(), kind) {
        return false;
    }
    try_byte(call.file.fd(), false, ANY_FLAG) == UNKNOWN_FLAG
}

/// Answers a read of no part of such a file: 0, unless it may not wait and the file is not ready.
///
/// # Errors
/// `EAGAIN` if the read may not block.
pub(crate) fn no_part(fd: i32, flags: u32) -> Result<usize> {
    let file = sys::file_flags(fd);
    let waits = file.is_some_and(|fl| !fl.contains(OFlags::NONBLOCK));
    let asked = flags & RWF_NOWAIT != 0;
    if asked && waits && sys::poll_now(fd, sys::POLLIN) == 0 { Err(Errno::EAGAIN) } else { Ok(0) }
}

/// Takes flags out of `given` that a file refuses, though the newest kernel's io_uring takes them;
/// false if there are none. These are, of files without `read_iter` or `write_iter`, the flags that
/// any file takes; RWF_NOAPPEND, of Linux 6.9, if there is nothing to append to; and RWF_NOWAIT of
/// /dev/zero.
pub(crate) fn drops_flags(call: &Call, kind: Kind, given: &mut u32) -> bool {
    let (fd, before) = (call.file.fd(), *given);
    if matches!(kind, Kind::Pollable | Kind::Other) {
        *given &= !RWF_ANY;
    }
    if *given & RWF_NOSIGNAL != 0 && is_simple(call.file.fd(), kind) {
        *given &= !RWF_NOSIGNAL;
    }
    if *given & RWF_NOWAIT != 0 && is_zero(fd) {
        *given &= !RWF_NOWAIT;
    }
    let appends = || sys::file_flags(fd).is_none_or(|flags| flags.contains(OFlags::APPEND));
    if *given & RWF_NOAPPEND != 0 && !appends() {
        *given &= !RWF_NOAPPEND;
    }
    *given != before
}

/// Transfers on a file that takes RWF_NOWAIT on the newest kernel only: what would wait is EAGAIN.
pub(crate) fn not_to_wait(call: &mut Call, kind: Kind, given: u32) -> Outcome {
    match without(call, kind, given & !RWF_NOWAIT) {
        Outcome::Retry | Outcome::Punt => Outcome::Done(Errno::EAGAIN.res()),
        done => done,
    }
}

/// Transfers on a file that knows no `RWF_NOWAIT`: readiness decides if it can be polled, else a
/// worker does it.
pub(crate) fn without(call: &mut Call, kind: Kind, flags: u32) -> Outcome {
    if kind != Kind::Pollable {
        if kind == Kind::Buffered && writes(call.opcode) {
            rw_cached::writes_punt(&call.file);
        }
        return Outcome::Retry;
    }
    let writes = writes(call.opcode);
    let events = if writes { sys::POLLOUT } else { sys::POLLIN };
    // A pipe without a free page may have room in its last one.
    let has_room = || writes && is_pipe(call.file.fd());
    // A hang-up is enough for a file that does not block (`io_file_supports_nowait`).
    let found = sys::poll_now(call.file.fd(), events);
    let ready = found & events != 0 || found != 0 && !sys::blocks(call.file.fd());
    if !ready && !has_room() {
        return judged(call).map_or(Outcome::Retry, |e| Outcome::Done(e.res()));
    }
    if is_socket(call.file.fd()) && call.total() > 0 {
        return by_message(call);
    }
    let second = match without_waiting(call.file.fd()) {
        Ok(second) => second,
        Err(_) => return Outcome::Punt,
    };
    let fd = second.as_ref().map_or(call.file.fd(), AsRawFd::as_raw_fd);
    let moved = transfer_by(fd, call, kind, flags);
    moved_now(call, moved)
}

fn moved_now(call: &mut Call, moved: Result<usize>) -> Outcome {
    match moved {
        Ok(n) => {
            call.add_done(n as u64);
            let total = call.total();
            finish(call, total)
        }
        Err(Errno::EAGAIN) => Outcome::Retry,
        Err(e) => Outcome::Done(e.res()),
    }
}

/// Does the same on a socket: kernels before 6.4 know no `RWF_NOWAIT` there, and all know
/// MSG_DONTWAIT.
fn by_message(call: &mut Call) -> Outcome {
    let io = call.io();
    let parts = match call.state.vector() {
        Some(vector) => skip(vector, io.done),
        None => vec![io.rest()],
    };
    let fd = call.file.fd();
    let moved = match writes(call.opcode) {
        true => Outgoing::new(&parts).send(fd, MSG_DONTWAIT),
        false => Incoming::new(&parts).receive(fd, MSG_DONTWAIT).map(|(n, _)| n),
    };
    moved_now(call, moved)
}

/// Returns the error that a file which is not ready would give at once, as the attempt does not
/// come to wait: it is open the other way, or is an eventfd, whose counter has eight bytes.
fn judged(call: &Call) -> Option<Errno> {
    let e = first_of(call, Errno::EINVAL);
    (e == Errno::EBADF || (call.total() < 8 && is_eventfd(call.file.fd()))).then_some(e)
}

/// Opens a second, non-blocking description of a blocking pipe, if pipes know no `RWF_NOWAIT`
/// (Linux before 6.4): readiness of a pipe means room for a page or a byte, not for all, and
/// another reader may be faster. `None`: a call by `fd` itself waits for nobody, or the kernel's
/// ring, too, trusts that a ready file does not wait (`io_file_supports_nowait`).
///
/// # Errors
/// Those of open(2): without /proc, or rights to open the pipe again.
fn without_waiting(fd: i32) -> Result<Option<InternalFd>> {
    let Some(flags) = sys::file_flags(fd).filter(|f| !f.contains(OFlags::NONBLOCK) && is_pipe(fd))
    else {
        return Ok(None);
    };
    let same = flags & (OFlags::RWMODE | OFlags::DIRECT);
    let path = format!("/proc/thread-self/fd/{fd}");
    let how = same | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(Some(softring_host::fd::make_internal_opened(softring_host::os::fs::open(
        path,
        how,
        Mode::empty(),
    )?)))
}

/// Returns whether the file knows no `RWF_NOWAIT`. preadv2(2) says so only if there is something to
/// transfer.
pub(crate) fn unknown(call: &Call, kind: Kind) -> bool {
    match kind {
        Kind::Memory => true,
        Kind::Pollable => !is_socket(call.file.fd()) && !tries(call.file.fd()),
        Kind::Other => {
            softring_host::substitute::file_type(call.file.fd()) == Some(FileType::Directory)
        }
        _ => false,
    }
}

/// Returns whether the file is an epoll set that is not ready. It can be polled, so the kernel
/// waits for it before it is refused.
pub(crate) fn never_ready(call: &Call, kind: Kind) -> bool {
    let fd = call.file.fd();
    let epoll = || is_epoll(fd);
    let writes = super::rw::writes(call.opcode);
    is_simple(fd, kind) && epoll() && (writes || sys::poll_now(fd, sys::POLLIN) == 0)
}

/// Checks whether a write to a [simple](is_simple) file may be tried.
///
/// # Errors
/// `EAGAIN` if the write is asked not to wait, and the file blocks. `EINVAL` for parts of a
/// registered buffer: the kernel hands such a file their number and the address of their list
/// instead, and an eventfd takes no less than eight bytes.
pub(crate) fn may_write(call: &Call) -> Result<()> {
    let asked = call.io().flags & RWF_NOWAIT != 0;
    if asked && sys::blocks(call.file.fd()) {
        return Err(Errno::EAGAIN);
    }
    let parts = call.opcode == IORING_OP_WRITEV_FIXED && call.io().len > 0;
    if parts { Err(Errno::EINVAL) } else { Ok(()) }
}
