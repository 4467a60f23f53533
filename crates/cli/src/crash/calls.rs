//! System calls that change files or make them durable, by what they do.

use super::ptrace::Call;
use super::tracee::Tracee;

/// A path of a call: a directory's descriptor, and the address of the text.
#[derive(Clone, Copy, Debug)]
pub struct At(pub i32, pub u64);

/// The file that a call changes.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    Fd(i32),
    Path(At),
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Bytes of a file change, and its size with them.
    Change {
        of: Of,
        /// First byte; none: the file's position.
        from: Option<u64>,
        len: u64,
        /// Flag, true if the result is the number of bytes.
        counted: bool,
        /// Flags as in pwritev2(2).
        flags: i32,
    },
    Open {
        path: At,
        flags: i32,
    },
    /// A directory, symbolic link or special file is made.
    Make {
        path: At,
    },
    Rename {
        from: At,
        to: At,
        exchange: bool,
    },
    Remove {
        path: At,
    },
    Link {
        from: At,
        to: At,
        follow: bool,
    },
    Sync {
        fd: i32,
        data_only: bool,
    },
    SyncAll,
    Msync {
        at: u64,
        len: u64,
    },
    Map {
        fd: i32,
    },
}

const HERE: i32 = libc::AT_FDCWD;

/// Returns a call by its name and by what it does; None: it changes nothing.
pub fn decode(tracee: Tracee, call: &Call) -> Option<(&'static str, Kind)> {
    data(tracee, call).or_else(|| names(tracee, call)).or_else(|| durable(call))
}

fn written(fd: u64, from: Option<u64>, len: u64, flags: u64) -> Kind {
    let (of, flags) = (Of::Fd(fd as i32), flags as i32);
    Kind::Change { of, from, len, counted: true, flags }
}

fn data(tracee: Tracee, call: &Call) -> Option<(&'static str, Kind)> {
    let [a, b, c, d, e, f] = call.args;
    let sum = |at, n| tracee.vector(at, n).iter().map(|part| part.1).sum();
    let pointed = |at: u64| if at == 0 { None } else { tracee.word(at) };
    let region = |of, from, to: u64| Kind::Change {
        of,
        from: Some(from),
        len: to.saturating_sub(from),
        counted: false,
        flags: 0,
    };
    let here = Of::Fd(a as i32);
    Some(match call.nr {
        libc::SYS_write => ("write", written(a, None, c, 0)),
        libc::SYS_pwrite64 => ("pwrite64", written(a, Some(d), c, 0)),
        libc::SYS_writev => ("writev", written(a, None, sum(b, c), 0)),
        libc::SYS_pwritev => ("pwritev", written(a, Some(d), sum(b, c), 0)),
        libc::SYS_pwritev2 => {
            let from = (d.cast_signed() != -1).then_some(d);
            ("pwritev2", written(a, from, sum(b, c), f))
        }
        libc::SYS_sendfile => ("sendfile", written(a, None, d, 0)),
        libc::SYS_splice => ("splice", written(c, pointed(d), e, 0)),
        libc::SYS_copy_file_range => ("copy_file_range", written(c, pointed(d), e, 0)),
        libc::SYS_truncate => ("truncate", region(Of::Path(At(HERE, a)), b, u64::MAX)),
        libc::SYS_ftruncate => ("ftruncate", region(here, b, u64::MAX)),
        libc::SYS_ioctl => ("ioctl", region(here, 0, u64::MAX)),
        libc::SYS_fallocate => {
            let [from, to] = [c, c.saturating_add(d)];
            let mode = b as i32;
            let moves = libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;
            let zeroes = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
            let kind = match mode {
                mode if mode & moves != 0 => region(here, from, u64::MAX),
                mode if mode & zeroes != 0 => region(here, from, to),
                mode if mode & libc::FALLOC_FL_KEEP_SIZE != 0 => return None,
                _ => region(here, to, to),
            };
            ("fallocate", kind)
        }
        _ => return None,
    })
}

fn names(tracee: Tracee, call: &Call) -> Option<(&'static str, Kind)> {
    let [a, b, c, d, e, _] = call.args;
    let (fd, at) = (a as i32, At(a as i32, b));
    let rename = |from, to, flags: u64| Kind::Rename {
        from,
        to,
        exchange: flags as u32 & libc::RENAME_EXCHANGE != 0,
    };
    let make_empty = libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY;
    Some(match call.nr {
        libc::SYS_open => ("open", Kind::Open { path: At(HERE, a), flags: b as i32 }),
        libc::SYS_creat => ("creat", Kind::Open { path: At(HERE, a), flags: make_empty }),
        libc::SYS_openat => ("openat", Kind::Open { path: at, flags: c as i32 }),
        libc::SYS_openat2 => ("openat2", Kind::Open { path: at, flags: tracee.word(c)? as i32 }),
        libc::SYS_mkdir => ("mkdir", Kind::Make { path: At(HERE, a) }),
        libc::SYS_mkdirat => ("mkdirat", Kind::Make { path: at }),
        libc::SYS_mknod => ("mknod", Kind::Make { path: At(HERE, a) }),
        libc::SYS_mknodat => ("mknodat", Kind::Make { path: at }),
        libc::SYS_symlink => ("symlink", Kind::Make { path: At(HERE, b) }),
        libc::SYS_symlinkat => ("symlinkat", Kind::Make { path: At(b as i32, c) }),
        libc::SYS_rename => ("rename", rename(At(HERE, a), At(HERE, b), 0)),
        libc::SYS_renameat => ("renameat", rename(At(fd, b), At(c as i32, d), 0)),
        libc::SYS_renameat2 => ("renameat2", rename(At(fd, b), At(c as i32, d), e)),
        libc::SYS_unlink => ("unlink", Kind::Remove { path: At(HERE, a) }),
        libc::SYS_unlinkat => ("unlinkat", Kind::Remove { path: at }),
        libc::SYS_rmdir => ("rmdir", Kind::Remove { path: At(HERE, a) }),
        libc::SYS_link => {
            ("link", Kind::Link { from: At(HERE, a), to: At(HERE, b), follow: false })
        }
        libc::SYS_linkat => {
            let follow = e as i32 & libc::AT_SYMLINK_FOLLOW != 0;
            ("linkat", Kind::Link { from: at, to: At(c as i32, d), follow })
        }
        _ => return None,
    })
}

fn durable(call: &Call) -> Option<(&'static str, Kind)> {
    let [a, b, c, _, e, _] = call.args;
    let fd = a as i32;
    Some(match call.nr {
        libc::SYS_fsync => ("fsync", Kind::Sync { fd, data_only: false }),
        libc::SYS_fdatasync => ("fdatasync", Kind::Sync { fd, data_only: true }),
        libc::SYS_sync => ("sync", Kind::SyncAll),
        libc::SYS_syncfs => ("syncfs", Kind::SyncAll),
        libc::SYS_msync if c as i32 & libc::MS_SYNC != 0 => {
            ("msync", Kind::Msync { at: a, len: b })
        }
        libc::SYS_mmap => ("mmap", Kind::Map { fd: e as i32 }),
        _ => return None,
    })
}
