//! Refusals of io_submit(2) itself, which make no event: io_submit_one, aio_prep_rw, aio_setup_rw,
//! aio_fsync and aio_poll in `fs/aio.c`.

use super::iocb::Iocb;
use crate::io::iov::{MAX_RW_COUNT, import_iov};
use crate::io::of_process::PROCESS;
use crate::ops::rw_nowait::contradict;
use softring_host::calls::{Parts, files};
use softring_host::fd::kind::{Kind, is_socket, of_kernel};
use softring_host::fd::make_internal;
use softring_host::fd::probe::{UNKNOWN_FLAG, is_eventfd, try_byte};
use softring_host::os::fd::AsRawFd;
use softring_host::os::fs::{FileType, OFlags};
use softring_host::substitute::file_type;
use softring_host::substitute::statfs;
use softring_host::sys::borrow;
use softring_host::user::in_user;
use softring_uapi::aio::*;
use softring_uapi::errno::{Errno, Result, check};
use softring_uapi::{RWF_ATOMIC, RWF_DONTCACHE, RWF_NOWAIT};

/// Flags that every kernel knows, and any file with `read_iter` or `write_iter` takes, but for
/// `RWF_NOWAIT`: `RWF_HIPRI` to `RWF_APPEND`.
const BASIC: u32 = 0x1f;
const RWF_APPEND: u32 = 0x10;
const RWF_NOAPPEND: u32 = 0x20;
/// `RWF_SUPPORTED` of Linux 6.18.
const RWF_SUPPORTED: u32 = 0x1ff;

/// Refuses an iocb for its fields or its file `fd`, which is open with `flags`.
///
/// # Errors
/// `EBADF`, `EFAULT`, `EINVAL`, `EOPNOTSUPP`.
pub(super) fn command(cb: &Iocb, fd: i32, flags: OFlags) -> Result<()> {
    let bare = cb.aio_offset == 0 && cb.aio_nbytes == 0 && cb.aio_rw_flags == 0;
    match cb.aio_lio_opcode {
        IOCB_CMD_PREAD | IOCB_CMD_PREADV => read_or_write(cb, fd, flags, OFlags::WRONLY),
        IOCB_CMD_PWRITE | IOCB_CMD_PWRITEV => read_or_write(cb, fd, flags, OFlags::RDONLY),
        IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC if bare && cb.aio_buf == 0 => Ok(()),
        IOCB_CMD_POLL if bare && cb.aio_buf <= u64::from(u16::MAX) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Checks a read or a write; `wrong` is the access mode that does not allow it.
fn read_or_write(cb: &Iocb, fd: i32, flags: OFlags, wrong: OFlags) -> Result<()> {
    priority(cb)?;
    let (asked, writes) = (cb.aio_rw_flags.cast_unsigned(), wrong == OFlags::RDONLY);
    rw_flags(asked, fd, writes)?;
    let direct = flags.contains(OFlags::DIRECT);
    // An error that a worker found would be reported in an event.
    if asked & RWF_ATOMIC != 0 && direct && try_byte(fd, true, RWF_ATOMIC) == UNKNOWN_FLAG {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & OFlags::ACCMODE == wrong {
        // The kernel checks the flags before.
        let atomic = asked & RWF_ATOMIC != 0 && !direct;
        let special = atomic || asked & RWF_DONTCACHE != 0 && !knows_dontcache(fd);
        return Err(if special { Errno::EOPNOTSUPP } else { Errno::EBADF });
    }
    if !has_iter(fd, writes) {
        // Such a file takes neither flag.
        let special = asked & (RWF_ATOMIC | RWF_DONTCACHE) != 0;
        return Err(if special { Errno::EOPNOTSUPP } else { Errno::EINVAL });
    }
    let total = match cb.aio_lio_opcode {
        IOCB_CMD_PREAD | IOCB_CMD_PWRITE => {
            in_user(cb.aio_buf, capped(cb.aio_nbytes))?;
            capped(cb.aio_nbytes)
        }
        _ => {
            let parts = u32::try_from(cb.aio_nbytes).map_err(|_| Errno::EINVAL)?;
            import_iov(cb.buf(), parts)?.iter().map(|part| part.len).sum()
        }
    };
    // `rw_verify_area`.
    let end = i64::try_from(total).ok().and_then(|total| cb.aio_offset.checked_add(total));
    if cb.aio_offset < 0 || end.is_none() { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Checks those rules of `kiocb_set_rw_flags` that a tried read or write does not report itself.
fn rw_flags(asked: u32, fd: i32, writes: bool) -> Result<()> {
    if asked & !RWF_SUPPORTED != 0 || asked & RWF_ATOMIC != 0 && !writes {
        return Err(Errno::EOPNOTSUPP);
    }
    if contradict(asked) {
        return Err(Errno::EINVAL);
    }
    if asked & RWF_NOWAIT != 0 && !knows_nowait(fd) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// Returns whether I/O on the file may leave nothing in the page cache (`FOP_DONTCACHE`).
fn knows_dontcache(fd: i32) -> bool {
    let cached = matches!(Kind::of(fd), Kind::Buffered | Kind::Direct);
    cached && try_byte(fd, false, RWF_DONTCACHE) != UNKNOWN_FLAG
}

/// Returns whether the file has `read` or `read_iter`, or for a write `write` or `write_iter`.
fn has_any(fd: i32, writes: bool) -> bool {
    let none = Parts::of(&[]);
    let nothing = if writes { files::writev(fd, none) } else { files::readv(fd, none) };
    nothing != Err(Errno::EINVAL)
}

/// Returns whether I/O on the file may be told not to wait (`FMODE_NOWAIT`). Only its file system
/// tells that of a file that is open for writing alone.
fn knows_nowait(fd: i32) -> bool {
    if is_socket(fd) {
        return true;
    }
    if Kind::of(fd) == Kind::Memory {
        return false;
    }
    try_byte(fd, false, RWF_NOWAIT) != UNKNOWN_FLAG && has_any(fd, false)
}

/// Returns whether the file has `read_iter`, or for a write `write_iter`. A file that has only
/// `read` or `write`, such as the write side of an eventfd, refuses every flag before it checks the
/// rest. Any other file refuses two flags that contradict each other.
fn has_iter(fd: i32, writes: bool) -> bool {
    match try_byte(fd, writes, RWF_APPEND | RWF_NOAPPEND) {
        Err(Errno::EOPNOTSUPP) if knows_both() => false,
        // Linux before 6.9 knows only one of the two flags.
        Err(Errno::EOPNOTSUPP) => !(writes && is_eventfd(fd)),
        _ => has_any(fd, writes),
    }
}

/// Returns whether the kernel knows both flags of [`has_iter`]. An eventfd has `read_iter`.
fn knows_both() -> bool {
    *PROCESS.kernel.append_flags.get_or_init(|| {
        let Ok(fd) = softring_host::substitute::eventfd().map(make_internal) else { return false };
        let tried = try_byte(fd.as_raw_fd(), false, RWF_APPEND | RWF_NOAPPEND);
        tried == Err(Errno::EINVAL)
    })
}

/// Checks the I/O priority (`ioprio_check_cap`).
fn priority(cb: &iocb) -> Result<()> {
    if cb.aio_flags & IOCB_FLAG_IOPRIO == 0 || cb.aio_reqprio == 0 {
        return Ok(());
    }
    softring_host::creds::may_have_priority(cb.aio_reqprio.cast_unsigned())
}

/// Returns whether fsync(2) may wait for the file.
pub(super) fn has_storage(fd: i32) -> bool {
    file_type(fd).is_none_or(|kind| {
        matches!(kind, FileType::RegularFile | FileType::BlockDevice | FileType::Directory)
    })
}

/// Returns whether fsync(2) of the file takes time. Files of the kernel's own file systems refuse
/// it.
pub(super) fn syncs_later(fd: i32) -> bool {
    has_storage(fd) && !borrow(fd).is_some_and(|fd| statfs(fd).is_ok_and(|fs| of_kernel(&fs)))
}

/// Limits `bytes` to what one call reads or writes (`import_ubuf`).
pub(super) fn capped(bytes: u64) -> u64 {
    bytes.min(MAX_RW_COUNT.into())
}

/// Returns the error if io_submit refuses an iocb that was tried at once with this result.
pub(super) fn refusal(cb: &iocb, res: isize) -> Option<Errno> {
    let e = check(res).err()?;
    match cb.aio_lio_opcode {
        IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC => (e == Errno::EINVAL).then_some(e),
        IOCB_CMD_POLL => None,
        _ if e == Errno::EOPNOTSUPP => (cb.aio_rw_flags.cast_unsigned() & !BASIC != 0).then_some(e),
        // A directory has no read_iter.
        _ if e == Errno::EISDIR => Some(Errno::EINVAL),
        _ => None,
    }
}
