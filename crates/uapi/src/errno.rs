//! Error numbers, and their forms in a CQE's `res` and in a system call's answer.

use linux_raw_sys::errno as e;

/// A positive Linux error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Result of a system call of ours.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(pub const $name: Errno = Errno(e::$name.cast_signed());)*
        }
    };
}
errnos!(
    EPERM,
    ENOENT,
    ESRCH,
    EINTR,
    EIO,
    ENXIO,
    E2BIG,
    EBADF,
    EAGAIN,
    ENOMEM,
    EACCES,
    EFAULT,
    EBUSY,
    EEXIST,
    ENODEV,
    EINVAL,
    EFBIG,
    ENFILE,
    EMFILE,
    ENOSPC,
    ESPIPE,
    EPIPE,
    ERANGE,
    ENOSYS,
    EOVERFLOW,
    EBADFD,
    EOPNOTSUPP,
    ETIME,
    ETIMEDOUT,
    EALREADY,
    ECANCELED,
    EOWNERDEAD,
    ENOBUFS,
    ECONNRESET,
    EDQUOT,
    EMSGSIZE,
    EINPROGRESS,
    ENOTCONN,
    EISCONN,
    ECONNABORTED,
    ECONNREFUSED,
    ENOTSOCK,
    ENOTDIR,
    ENOTTY,
    ELOOP,
    ENAMETOOLONG,
    EISDIR,
    ETOOMANYREFS,
);

impl Errno {
    /// Returns the number as a CQE carries it.
    pub const fn res(self) -> i32 {
        -self.0
    }

    /// Returns the number as a system call answers it.
    pub const fn ret(self) -> isize {
        -(self.0 as isize)
    }
}

/// Turns a raw system call's answer into a result.
pub const fn check(ret: isize) -> Result<usize> {
    if ret < 0 && ret > -4096 { Err(Errno(-(ret as i32))) } else { Ok(ret as usize) }
}

/// Turns a result into a raw system call's answer.
pub const fn answer(r: Result<usize>) -> isize {
    match r {
        Ok(v) => v as isize,
        Err(e) => e.ret(),
    }
}
