//! What io_submit(2) itself refuses, so that there is no event: io_submit_one, aio_prep_rw,
//! aio_setup_rw, aio_fsync and aio_poll in `fs/aio.c`.

use crate::abi::aio::*;
use crate::errno::{Errno, Result, check};
use crate::ops::iov::{import_iov, in_user};
use crate::sys::{borrow, sys};
use rustix::fs::{FileType, OFlags};

const RWF_APPEND: u32 = 0x10;
const RWF_NOAPPEND: u32 = 0x20;
const RWF_ATOMIC: u32 = 0x40;
/// `RWF_SUPPORTED` of Linux 6.18.
const RWF_SUPPORTED: u32 = 0x1ff;

/// Refuses an iocb by what it says, and by how its file is open.
///
/// # Errors
/// `EBADF`, `EFAULT`, `EINVAL`, `EOPNOTSUPP`.
pub(super) fn command(cb: &iocb, flags: OFlags) -> Result<()> {
    let bare = cb.aio_offset == 0 && cb.aio_nbytes == 0 && cb.aio_rw_flags == 0;
    match cb.aio_lio_opcode {
        IOCB_CMD_PREAD | IOCB_CMD_PREADV => read_or_write(cb, flags, OFlags::WRONLY),
        IOCB_CMD_PWRITE | IOCB_CMD_PWRITEV => read_or_write(cb, flags, OFlags::RDONLY),
        IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC if bare && cb.aio_buf == 0 => Ok(()),
        IOCB_CMD_POLL if bare && cb.aio_buf <= u64::from(u16::MAX) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// `wrong`: the access mode for which it is not allowed.
fn read_or_write(cb: &iocb, flags: OFlags, wrong: OFlags) -> Result<()> {
    priority(cb)?;
    let asked = cb.aio_rw_flags.cast_unsigned();
    if asked & !RWF_SUPPORTED != 0 || asked & RWF_ATOMIC != 0 && wrong == OFlags::WRONLY {
        return Err(Errno::EOPNOTSUPP);
    }
    if asked & RWF_APPEND != 0 && asked & RWF_NOAPPEND != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & OFlags::ACCMODE == wrong {
        return Err(Errno::EBADF);
    }
    let total = match cb.aio_lio_opcode {
        IOCB_CMD_PREAD | IOCB_CMD_PWRITE => {
            in_user(cb.aio_buf, cb.aio_nbytes)?;
            cb.aio_nbytes
        }
        _ => {
            let parts = u32::try_from(cb.aio_nbytes).map_err(|_| Errno::EINVAL)?;
            import_iov(cb.aio_buf, parts)?.iter().map(|part| part.len).sum()
        }
    };
    // `rw_verify_area`.
    let end = i64::try_from(total).ok().and_then(|total| cb.aio_offset.checked_add(total));
    if cb.aio_offset < 0 || end.is_none() { Err(Errno::EINVAL) } else { Ok(()) }
}

/// `ioprio_check_cap`.
fn priority(cb: &iocb) -> Result<()> {
    if cb.aio_flags & IOCB_FLAG_IOPRIO == 0 || cb.aio_reqprio == 0 {
        return Ok(());
    }
    crate::creds::may_have_priority(cb.aio_reqprio.cast_unsigned())
}

/// A file that fsync(2) may wait for.
pub(super) fn has_storage(fd: i32) -> bool {
    let stat = borrow(fd).and_then(|fd| rustix::fs::fstat(fd).ok());
    stat.is_none_or(|stat| {
        let kind = FileType::from_raw_mode(stat.st_mode);
        matches!(kind, FileType::RegularFile | FileType::BlockDevice | FileType::Directory)
    })
}

/// Is what was tried at once, with this result, refused by io_submit?
pub(super) fn refusal(cb: &iocb, fd: i32, res: isize) -> Option<Errno> {
    let e = check(res).err()?;
    match cb.aio_lio_opcode {
        IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC => (e == Errno::EINVAL).then_some(e),
        IOCB_CMD_POLL => None,
        _ if e == Errno::EOPNOTSUPP => (cb.aio_rw_flags != 0).then_some(e),
        // A directory has no read_iter.
        _ if e == Errno::EISDIR => Some(Errno::EINVAL),
        IOCB_CMD_PREAD | IOCB_CMD_PREADV if e == Errno::EINVAL => {
            (check(sys!(__NR_readv, fd, 0, 0)) == Err(e)).then_some(e)
        }
        _ if e == Errno::EINVAL => (check(sys!(__NR_writev, fd, 0, 0)) == Err(e)).then_some(e),
        _ => None,
    }
}
