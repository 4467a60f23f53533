//! Numbers in a transcript: errnos and CQE flags by name.

use libc as c;
use softring_uapi::*;

/// A value or an errno.
pub trait Answer {
    /// Returns a value, or `-errno`.
    fn answer(&self) -> i64;
}

macro_rules! plain {
    ($($t:ty),*) => { $(impl Answer for $t {
        fn answer(&self) -> i64 {
            i64::try_from(*self).unwrap_or(i64::MAX)
        }
    })* };
}
plain!(isize, usize, u64);

impl Answer for i32 {
    fn answer(&self) -> i64 {
        i64::from(*self)
    }
}

impl Answer for u32 {
    fn answer(&self) -> i64 {
        i64::from(*self)
    }
}

impl<T> Answer for Result<T, crate::ring::Errno> {
    fn answer(&self) -> i64 {
        self.as_ref().err().map_or(0, |e| -i64::from(*e))
    }
}

const ERRNOS: [(&str, i32); 47] = [
    ("EPERM", c::EPERM),
    ("ENOENT", c::ENOENT),
    ("EINTR", c::EINTR),
    ("EIO", c::EIO),
    ("ENXIO", c::ENXIO),
    ("E2BIG", c::E2BIG),
    ("EBADF", c::EBADF),
    ("EAGAIN", c::EAGAIN),
    ("ENOMEM", c::ENOMEM),
    ("EACCES", c::EACCES),
    ("EFAULT", c::EFAULT),
    ("EBUSY", c::EBUSY),
    ("EEXIST", c::EEXIST),
    ("EXDEV", c::EXDEV),
    ("ENODEV", c::ENODEV),
    ("ENOTDIR", c::ENOTDIR),
    ("EISDIR", c::EISDIR),
    ("EINVAL", c::EINVAL),
    ("ENFILE", c::ENFILE),
    ("EMFILE", c::EMFILE),
    ("ENOTTY", c::ENOTTY),
    ("EFBIG", c::EFBIG),
    ("ENOSPC", c::ENOSPC),
    ("ESPIPE", c::ESPIPE),
    ("EROFS", c::EROFS),
    ("EPIPE", c::EPIPE),
    ("ERANGE", c::ERANGE),
    ("ENAMETOOLONG", c::ENAMETOOLONG),
    ("ENOSYS", c::ENOSYS),
    ("ENOTEMPTY", c::ENOTEMPTY),
    ("ELOOP", c::ELOOP),
    ("ENODATA", c::ENODATA),
    ("ETIME", c::ETIME),
    ("EOVERFLOW", c::EOVERFLOW),
    ("EBADFD", c::EBADFD),
    ("EMSGSIZE", c::EMSGSIZE),
    ("EOPNOTSUPP", c::EOPNOTSUPP),
    ("ENOBUFS", c::ENOBUFS),
    ("ENOTCONN", c::ENOTCONN),
    ("ETIMEDOUT", c::ETIMEDOUT),
    ("EALREADY", c::EALREADY),
    ("EINPROGRESS", c::EINPROGRESS),
    ("ECANCELED", c::ECANCELED),
    ("EOWNERDEAD", c::EOWNERDEAD),
    ("EDEADLK", c::EDEADLK),
    ("ENOTSOCK", c::ENOTSOCK),
    ("ESRCH", c::ESRCH),
];

/// Returns a name such as `-EINVAL`, or the number.
pub fn answer(v: i64) -> String {
    let known = ERRNOS.iter().find(|(_, e)| i64::from(-*e) == v);
    known.map_or_else(|| v.to_string(), |(name, _)| format!("-{name}"))
}

/// Returns CQE flags by name, joined by `|`; empty for none.
pub fn cqe_flags(flags: u32) -> String {
    const NAMES: [(&str, u32); 7] = [
        ("BUFFER", IORING_CQE_F_BUFFER),
        ("MORE", IORING_CQE_F_MORE),
        ("SOCK_NONEMPTY", IORING_CQE_F_SOCK_NONEMPTY),
        ("NOTIF", IORING_CQE_F_NOTIF),
        ("BUF_MORE", IORING_CQE_F_BUF_MORE),
        ("SKIP", IORING_CQE_F_SKIP),
        ("32", IORING_CQE_F_32),
    ];
    let known = NAMES.iter().filter(|(_, bit)| flags & bit != 0).map(|(n, _)| (*n).to_owned());
    let rest = flags & !NAMES.iter().map(|(_, bit)| bit).sum::<u32>();
    let rest = (rest != 0).then(|| format!("{rest:#x}"));
    known.chain(rest).collect::<Vec<_>>().join("|")
}
