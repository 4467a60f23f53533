//! Names of flags, as headers have them.

use softring_uapi::*;
use std::fmt::Write;

/// Flags of the ABI, each by its own name.
macro_rules! named {
    ($($name:ident),* $(,)?) => { &[$(($name as u32, stringify!($name))),*] };
}

/// A set of flags with their names.
pub type Names = &'static [(u32, &'static str)];

/// Formats flags: `A|B|0x80`; `0` if none is set.
pub fn flags(mut bits: u32, names: Names) -> String {
    let mut text = String::new();
    for &(bit, name) in names.iter().filter(|(bit, _)| *bit != 0) {
        if bits & bit == bit {
            bits &= !bit;
            text.push_str(if text.is_empty() { "" } else { "|" });
            text.push_str(name);
        }
    }
    if bits != 0 || text.is_empty() {
        text.push_str(if text.is_empty() { "" } else { "|" });
        // Writing to a string does not fail.
        let _ = if bits == 0 { write!(text, "0") } else { write!(text, "{bits:#x}") };
    }
    text
}

/// Returns the name of a value that is one of several.
pub fn one(value: u32, names: Names) -> String {
    let name = names.iter().find(|(v, _)| *v == value);
    name.map_or_else(|| format!("{value:#x}"), |(_, name)| (*name).to_owned())
}

pub const SQE: Names = named![
    IOSQE_FIXED_FILE,
    IOSQE_IO_DRAIN,
    IOSQE_IO_LINK,
    IOSQE_IO_HARDLINK,
    IOSQE_ASYNC,
    IOSQE_BUFFER_SELECT,
    IOSQE_CQE_SKIP_SUCCESS,
];

/// Flags of a CQE, without the prefix and without the buffer's.
pub const CQE: Names = &[
    (IORING_CQE_F_MORE, "MORE"),
    (IORING_CQE_F_SOCK_NONEMPTY, "SOCK_NONEMPTY"),
    (IORING_CQE_F_NOTIF, "NOTIF"),
    (IORING_CQE_F_BUF_MORE, "BUF_MORE"),
    (IORING_CQE_F_SKIP, "SKIP"),
    (IORING_CQE_F_32, "32"),
];

pub const RWF: Names = &[
    (1, "RWF_HIPRI"),
    (2, "RWF_DSYNC"),
    (4, "RWF_SYNC"),
    (8, "RWF_NOWAIT"),
    (0x10, "RWF_APPEND"),
    (0x20, "RWF_NOAPPEND"),
    (0x40, "RWF_ATOMIC"),
    (0x80, "RWF_DONTCACHE"),
];

pub const FSYNC: Names = named![IORING_FSYNC_DATASYNC];

pub const POLL: Names = &[
    (1, "POLLIN"),
    (2, "POLLPRI"),
    (4, "POLLOUT"),
    (8, "POLLERR"),
    (0x10, "POLLHUP"),
    (0x20, "POLLNVAL"),
    (0x40, "POLLRDNORM"),
    (0x80, "POLLRDBAND"),
    (0x100, "POLLWRNORM"),
    (0x200, "POLLWRBAND"),
    (0x400, "POLLMSG"),
    (0x2000, "POLLRDHUP"),
    (1 << 28, "EPOLLEXCLUSIVE"),
    (1 << 30, "EPOLLONESHOT"),
    (1 << 31, "EPOLLET"),
];

/// Flags in `len` of a poll.
pub const POLL_HOW: Names = named![
    IORING_POLL_ADD_MULTI,
    IORING_POLL_UPDATE_EVENTS,
    IORING_POLL_UPDATE_USER_DATA,
    IORING_POLL_ADD_LEVEL,
];

pub const TIMEOUT: Names = named![
    IORING_TIMEOUT_ABS,
    IORING_TIMEOUT_UPDATE,
    IORING_TIMEOUT_BOOTTIME,
    IORING_TIMEOUT_REALTIME,
    IORING_LINK_TIMEOUT_UPDATE,
    IORING_TIMEOUT_ETIME_SUCCESS,
    IORING_TIMEOUT_MULTISHOT,
    IORING_TIMEOUT_IMMEDIATE_ARG,
];

pub const CANCEL: Names = named![
    IORING_ASYNC_CANCEL_ALL,
    IORING_ASYNC_CANCEL_FD,
    IORING_ASYNC_CANCEL_ANY,
    IORING_ASYNC_CANCEL_FD_FIXED,
    IORING_ASYNC_CANCEL_USERDATA,
    IORING_ASYNC_CANCEL_OP,
];

pub const MSG: Names = &[
    (1, "MSG_OOB"),
    (2, "MSG_PEEK"),
    (4, "MSG_DONTROUTE"),
    (8, "MSG_CTRUNC"),
    (0x20, "MSG_TRUNC"),
    (0x40, "MSG_DONTWAIT"),
    (0x80, "MSG_EOR"),
    (0x100, "MSG_WAITALL"),
    (0x800, "MSG_CONFIRM"),
    (0x2000, "MSG_ERRQUEUE"),
    (0x4000, "MSG_NOSIGNAL"),
    (0x8000, "MSG_MORE"),
    (0x1_0000, "MSG_WAITFORONE"),
    (0x400_0000, "MSG_ZEROCOPY"),
    (0x2000_0000, "MSG_FASTOPEN"),
    (0x4000_0000, "MSG_CMSG_CLOEXEC"),
];

/// Flags in `ioprio` of sends and receives.
pub const NET_HOW: Names = named![
    IORING_RECVSEND_POLL_FIRST,
    IORING_RECV_MULTISHOT,
    IORING_RECVSEND_FIXED_BUF,
    IORING_SEND_ZC_REPORT_USAGE,
    IORING_RECVSEND_BUNDLE,
    IORING_SEND_VECTORIZED,
];

/// Flags in `ioprio` of ACCEPT.
pub const ACCEPT_HOW: Names =
    named![IORING_ACCEPT_MULTISHOT, IORING_ACCEPT_DONTWAIT, IORING_ACCEPT_POLL_FIRST];

pub const SOCK: Names = &[(0x800, "SOCK_NONBLOCK"), (0x8_0000, "SOCK_CLOEXEC")];

pub const SOCK_TYPE: Names = &[
    (1, "SOCK_STREAM"),
    (2, "SOCK_DGRAM"),
    (3, "SOCK_RAW"),
    (4, "SOCK_RDM"),
    (5, "SOCK_SEQPACKET"),
];

pub const AF: Names =
    &[(1, "AF_UNIX"), (2, "AF_INET"), (10, "AF_INET6"), (16, "AF_NETLINK"), (17, "AF_PACKET")];

pub const SHUT: Names = &[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")];

/// Flags of open(2), without the access mode.
pub const OPEN: Names = &[
    (0o100, "O_CREAT"),
    (0o200, "O_EXCL"),
    (0o400, "O_NOCTTY"),
    (0o1000, "O_TRUNC"),
    (0o2000, "O_APPEND"),
    (0o4000, "O_NONBLOCK"),
    (0o401_0000, "O_SYNC"),
    (0o1_0000, "O_DSYNC"),
    (0o2_0000, "O_ASYNC"),
    (0o4_0000, "O_DIRECT"),
    (0o10_0000, "O_LARGEFILE"),
    (0o2020_0000, "O_TMPFILE"),
    (0o20_0000, "O_DIRECTORY"),
    (0o40_0000, "O_NOFOLLOW"),
    (0o100_0000, "O_NOATIME"),
    (0o200_0000, "O_CLOEXEC"),
    (0o1000_0000, "O_PATH"),
];

/// Access modes, in the lowest two bits of the same flags.
pub const ACCESS: Names = &[(0, "O_RDONLY"), (1, "O_WRONLY"), (2, "O_RDWR")];

pub const RESOLVE: Names = &[
    (1, "RESOLVE_NO_XDEV"),
    (2, "RESOLVE_NO_MAGICLINKS"),
    (4, "RESOLVE_NO_SYMLINKS"),
    (8, "RESOLVE_BENEATH"),
    (0x10, "RESOLVE_IN_ROOT"),
    (0x20, "RESOLVE_CACHED"),
];

pub const AT: Names = &[
    (0x100, "AT_SYMLINK_NOFOLLOW"),
    (0x200, "AT_REMOVEDIR"),
    (0x400, "AT_SYMLINK_FOLLOW"),
    (0x800, "AT_NO_AUTOMOUNT"),
    (0x1000, "AT_EMPTY_PATH"),
    (0x2000, "AT_STATX_FORCE_SYNC"),
    (0x4000, "AT_STATX_DONT_SYNC"),
];

pub const RENAME: Names =
    &[(1, "RENAME_NOREPLACE"), (2, "RENAME_EXCHANGE"), (4, "RENAME_WHITEOUT")];

pub const SPLICE: Names = &[
    (1, "SPLICE_F_MOVE"),
    (2, "SPLICE_F_NONBLOCK"),
    (4, "SPLICE_F_MORE"),
    (8, "SPLICE_F_GIFT"),
    (SPLICE_F_FD_IN_FIXED, "SPLICE_F_FD_IN_FIXED"),
];

pub const FALLOCATE: Names = &[
    (1, "FALLOC_FL_KEEP_SIZE"),
    (2, "FALLOC_FL_PUNCH_HOLE"),
    (8, "FALLOC_FL_COLLAPSE_RANGE"),
    (0x10, "FALLOC_FL_ZERO_RANGE"),
    (0x20, "FALLOC_FL_INSERT_RANGE"),
    (0x40, "FALLOC_FL_UNSHARE_RANGE"),
];

pub const FADVICE: Names = &[
    (0, "POSIX_FADV_NORMAL"),
    (1, "POSIX_FADV_RANDOM"),
    (2, "POSIX_FADV_SEQUENTIAL"),
    (3, "POSIX_FADV_WILLNEED"),
    (4, "POSIX_FADV_DONTNEED"),
    (5, "POSIX_FADV_NOREUSE"),
];

pub const MADVICE: Names = &[
    (0, "MADV_NORMAL"),
    (1, "MADV_RANDOM"),
    (2, "MADV_SEQUENTIAL"),
    (3, "MADV_WILLNEED"),
    (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"),
    (9, "MADV_REMOVE"),
    (14, "MADV_HUGEPAGE"),
    (15, "MADV_NOHUGEPAGE"),
    (20, "MADV_COLD"),
    (21, "MADV_PAGEOUT"),
];

pub const EPOLL_CTL: Names = &[(1, "EPOLL_CTL_ADD"), (2, "EPOLL_CTL_DEL"), (3, "EPOLL_CTL_MOD")];

pub const MSG_RING: Names = named![IORING_MSG_DATA, IORING_MSG_SEND_FD];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_values() {
        assert_eq!(flags(0, RWF), "0");
        assert_eq!(flags(0x14, SQE), "IOSQE_IO_LINK|IOSQE_ASYNC");
        assert_eq!(flags(0x101, RWF), "RWF_HIPRI|0x100");
        assert_eq!(flags(0x1000, RWF), "0x1000");
        assert_eq!(flags(0o401_0000, OPEN), "O_SYNC");
        assert_eq!((one(2, SHUT), one(7, SHUT)), ("SHUT_RDWR".into(), "0x7".into()));
    }
}
