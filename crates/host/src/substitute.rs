//! What stands in for system calls that may be refused ([`crate::refused`]).

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::OnceLock;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, StatFs, Statx, StatxFlags, makedev, statx,
};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};

use crate::refused;
use crate::sys::{self, nr, sys};
use crate::user;
use softring_uapi::errno::{Errno, Result, check};
use softring_uapi::version::Release;
use softring_uapi::{RWF_NOWAIT, epoll_event, iovec};

const CLOEXEC: usize = 0o2_000_000;
const NONBLOCK: usize = 0o4000;
const F_SETFL: usize = 4;

fn own(fd: usize) -> OwnedFd {
    sys::own(fd as i32)
}

/// Sets what an older call cannot be told.
fn with_flags(fd: usize, nonblock: bool) -> OwnedFd {
    const F_SETFD: usize = 2;
    const FD_CLOEXEC: usize = 1;
    sys!(__NR_fcntl, fd, F_SETFD, FD_CLOEXEC);
    if nonblock {
        sys!(__NR_fcntl, fd, F_SETFL, NONBLOCK);
    }
    own(fd)
}

/// An eventfd of ours that never blocks: eventfd2(2), or eventfd(2).
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`; `ENOSYS` where both are refused.
pub fn eventfd() -> Result<OwnedFd> {
    match check(sys!(__NR_eventfd2, 0, CLOEXEC | NONBLOCK)) {
        Err(Errno::ENOSYS) => {
            let made = check(sys!(__NR_eventfd, 0));
            refused::want_if::<{ nr::__NR_eventfd2 }>("eventfd2", made == Err(Errno::ENOSYS));
            Ok(with_flags(made?, true))
        }
        made => Ok(own(made?)),
    }
}

/// An epoll set: epoll_create1(2), or epoll_create(2).
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`; `ENOSYS` where both are refused.
pub fn epoll_create() -> Result<OwnedFd> {
    match check(sys!(__NR_epoll_create1, CLOEXEC)) {
        Err(Errno::ENOSYS) => {
            let made = check(sys!(__NR_epoll_create, 1));
            let none = made == Err(Errno::ENOSYS);
            refused::want_if::<{ nr::__NR_epoll_create1 }>("epoll_create1", none);
            Ok(with_flags(made?, false))
        }
        made => Ok(own(made?)),
    }
}

/// Events that are there, at once: by epoll_wait(2), which costs a third less than with a time to
/// look at, or epoll_pwait(2).
///
/// # Errors
/// As epoll_wait(2).
pub fn epoll_now(ep: i32, buf: &mut [epoll_event]) -> Result<usize> {
    let at = buf.as_mut_ptr().expose_provenance();
    match check(sys!(__NR_epoll_wait, ep, at, buf.len(), 0)) {
        Err(Errno::ENOSYS) => check(sys!(__NR_epoll_pwait, ep, at, buf.len(), 0, 0, 8)),
        done => done,
    }
}

/// Waits for events: by epoll_pwait2(2) to the nanosecond, by epoll_pwait(2) or epoll_wait(2) in
/// milliseconds, rounded up; the last of them can have no mask.
///
/// # Errors
/// `EINTR` when a signal came.
pub fn epoll_wait(
    ep: i32,
    buf: &mut [epoll_event],
    timeout_ns: Option<u64>,
    sigmask: Option<u64>,
) -> Result<usize> {
    match sys::epoll_pwait2(ep, buf, timeout_ns, sigmask) {
        Err(Errno::ENOSYS) => {}
        done => return done,
    }
    let done = match sys::epoll_pwait(ep, buf, timeout_ns, sigmask) {
        Err(Errno::ENOSYS) if sigmask.is_none() => sys::epoll_wait(ep, buf, timeout_ns),
        done => done,
    };
    refused::want_if::<{ nr::__NR_epoll_pwait }>("epoll_pwait", done == Err(Errno::ENOSYS));
    done
}

/// Puts `fd` into an epoll set.
///
/// # Errors
/// As epoll_ctl(2); `ENOSYS`.
pub fn epoll_add(set: impl AsFd, fd: impl AsFd, data: u64, events: u32) -> Result<()> {
    let [set, fd] = [set.as_fd().as_raw_fd(), fd.as_fd().as_raw_fd()];
    sys::epoll_ctl(set, sys::EPOLL_CTL_ADD, fd, &epoll_event { events, data })
}

/// Takes `fd` out of an epoll set.
///
/// # Errors
/// As [`epoll_add`].
pub fn epoll_delete(set: impl AsFd, fd: impl AsFd) -> Result<()> {
    let [set, fd] = [set.as_fd().as_raw_fd(), fd.as_fd().as_raw_fd()];
    sys::epoll_ctl(set, sys::EPOLL_CTL_DEL, fd, &epoll_event { events: 0, data: 0 })
}

/// The offset that means a file's own position.
const CURRENT: u64 = u64::MAX;

/// The release that the kernel calls itself by: version and patch level.
pub fn release() -> Release {
    static RELEASE: OnceLock<Release> = OnceLock::new();
    *RELEASE.get_or_init(|| {
        let name = rustix::system::uname();
        let mut numbers = name.release().to_bytes().split(|b| !b.is_ascii_digit());
        let mut number = || core::str::from_utf8(numbers.next()?).ok()?.parse().ok();
        Release(number().unwrap_or(0), number().unwrap_or(0))
    })
}

/// May this kernel ignore `RWF_NOWAIT` on pipes and eventfds, and wait? gVisor does, which names
/// itself an old Linux; to try it would mean to wait. A Linux as old refuses the flag there.
fn ignores_nowait() -> bool {
    release() < Release(5, 8)
}

/// Did a read with `RWF_NOWAIT` answer 0 where the file does not end? Linux 5.9 and 5.10 do so now
/// and then for what is not in the page cache yet (`generic_file_buffered_read`; preadv2(2), BUGS).
fn ends_early(fd: i32, off: u64) -> bool {
    let position = |fd| rustix::fs::tell(fd).unwrap_or(0);
    release() < Release(5, 11)
        && sys::borrow(fd).is_some_and(|fd| {
            let at = if off == CURRENT { position(fd) } else { off };
            // What has no size, as a block device, may go on, too.
            fstat(fd).is_ok_and(|s| s.st_size == 0 || at < s.st_size.cast_unsigned())
        })
}

fn is_file(fd: i32) -> bool {
    matches!(sys::file_type(fd), Some(FileType::RegularFile | FileType::BlockDevice))
}

/// Does this kernel refuse a write whose memory ends before it does? Those before Linux 5.16 may;
/// newer ones write what is there (`generic_perform_write`).
fn refuses_half_mapped(fd: i32) -> bool {
    let cached = |flags: OFlags| !flags.contains(OFlags::DIRECT);
    release() < Release(5, 16) && is_file(fd) && sys::file_flags(fd).is_some_and(cached)
}

/// Writes as much of these parts as can be read from the start.
///
/// # Errors
/// As pwritev2(2); `EFAULT` if it is nothing.
#[cold]
fn write_readable(fd: i32, iov: usize, count: usize, off: u64, flags: u32) -> Result<usize> {
    let mut parts = user::read_prefix::<iovec>(iov as u64, count);
    let cut = |part: &mut iovec| {
        let whole = part.len;
        part.len = user::readable_prefix(part.base, whole as usize) as u64;
        part.len < whole
    };
    let whole = parts.iter_mut().position(cut).map_or(parts.len(), |last| last + 1);
    parts.truncate(whole);
    if parts.iter().all(|part| part.len == 0) {
        return Err(Errno::EFAULT);
    }
    let at = parts.as_ptr().expose_provenance();
    check(sys!(__NR_pwritev2, fd, at, parts.len(), off, upper_half(off), flags))
}

/// The upper half of a position, which 64-bit kernels ignore except in −1.
fn upper_half(off: u64) -> u64 {
    if off == CURRENT { CURRENT } else { 0 }
}

/// preadv2(2) or pwritev2(2). Where those are refused, the calls that know no flags; flags then
/// answer as a file that does not know them.
///
/// # Errors
/// As the call; `EAGAIN` also where a kernel takes what it has not read yet for the file's end.
pub fn transfer(
    writes: bool,
    fd: i32,
    iov: usize,
    count: usize,
    off: u64,
    flags: u32,
) -> Result<usize> {
    if flags & RWF_NOWAIT != 0 && ignores_nowait() && !is_file(fd) {
        return Err(Errno::EOPNOTSUPP);
    }
    let high = upper_half(off);
    let done = check(match writes {
        true => sys!(__NR_pwritev2, fd, iov, count, off, high, flags),
        false => sys!(__NR_preadv2, fd, iov, count, off, high, flags),
    });
    if done == Ok(0) && !writes && flags & RWF_NOWAIT != 0 && ends_early(fd, off) {
        return Err(Errno::EAGAIN);
    }
    if done == Err(Errno::EFAULT) && writes && refuses_half_mapped(fd) {
        return write_readable(fd, iov, count, off, flags);
    }
    if done != Err(Errno::ENOSYS) {
        return done;
    }
    if flags != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    check(match (writes, off) {
        (true, CURRENT) => sys!(__NR_writev, fd, iov, count),
        (false, CURRENT) => sys!(__NR_readv, fd, iov, count),
        _ => return positioned(writes, fd, iov, count, off),
    })
}

/// preadv(2) or pwritev(2). Where those are refused, pread(2) or pwrite(2) of one part after the
/// other: another writer may come between two.
///
/// # Errors
/// As the call, for the first part.
pub fn positioned(writes: bool, fd: i32, iov: usize, count: usize, off: u64) -> Result<usize> {
    let done = check(match writes {
        true => sys!(__NR_pwritev, fd, iov, count, off, 0),
        false => sys!(__NR_preadv, fd, iov, count, off, 0),
    });
    if done != Err(Errno::ENOSYS) {
        return done;
    }
    const IOV_MAX: usize = 1024;
    if count > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    let mut parts = vec![iovec::default(); count.max(1)];
    user::read_slice(iov as u64, &mut parts[..count])?;
    let mut total = 0;
    for part in parts {
        let at = off.wrapping_add(total as u64);
        let done = check(match writes {
            true => sys!(__NR_pwrite64, fd, part.base, part.len, at),
            false => sys!(__NR_pread64, fd, part.base, part.len, at),
        });
        match done {
            Err(e) if total == 0 => return Err(e),
            Ok(n) if n as u64 == part.len => total += n,
            done => return Ok(total + done.unwrap_or(0)),
        }
    }
    Ok(total)
}

/// Processors that this thread may use: sched_getaffinity(2) alone, where the standard library
/// reads files as well; one, where that is refused.
pub fn processors() -> u32 {
    const MOST: usize = 8192;
    let mut set = [0u64; MOST / 64];
    let (to, len) = (set.as_mut_ptr().expose_provenance(), size_of_val(&set));
    match sys!(__NR_sched_getaffinity, 0, len, to) {
        1.. => set.iter().map(|word| word.count_ones()).sum::<u32>().max(1),
        _ => 1,
    }
}

/// A file in memory that others may be kept from changing: memfd_create(2) alone, as its name tells
/// others what it is.
///
/// # Errors
/// As memfd_create(2).
pub fn memfd(name: &str, seals: bool) -> Result<OwnedFd> {
    /// Bytes of a name that are kept.
    const NAME: usize = 31;
    const MFD_CLOEXEC: usize = 1;
    const MFD_ALLOW_SEALING: usize = 2;
    let flags = if seals { MFD_CLOEXEC | MFD_ALLOW_SEALING } else { MFD_CLOEXEC };
    let mut text = [0u8; 32];
    text.iter_mut().take(NAME).zip(name.bytes()).for_each(|(to, from)| *to = from);
    check(sys!(__NR_memfd_create, text.as_ptr().expose_provenance(), flags)).map(own)
}

/// The same; where that is refused, a file without a name, in /dev/shm if there is room, else where
/// temporary files lie.
///
/// # Errors
/// As memfd_create(2) if no such file can be made.
pub fn memory_file(name: &str) -> Result<OwnedFd> {
    let refusal = match memfd(name, true) {
        Err(e) if refused::refuses(e) => e,
        made => return made,
    };
    let temporary = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
    let dirs = ["/dev/shm", "/tmp", "/var/tmp", "/run"].map(std::path::PathBuf::from);
    let [first, rest @ ..] = dirs;
    let dirs = [first].into_iter().chain(temporary.map(Into::into)).chain(rest);
    dirs.into_iter().find_map(|dir| unnamed(&dir)).ok_or(refusal)
}

/// A file that no name leads to, in a directory with room for some rings.
fn unnamed(dir: &std::path::Path) -> Option<OwnedFd> {
    const ROOM: u64 = 1 << 20;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let how = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let made = rustix::fs::open(dir, how | OFlags::TMPFILE | OFlags::EXCL, mode).ok();
    let file = made.or_else(|| {
        let (pid, n) = (crate::fork::pid(), NEXT.fetch_add(1, Relaxed));
        let path = dir.join(format!(".softring-{pid}-{n}"));
        let made = rustix::fs::open(&path, how | OFlags::CREATE | OFlags::EXCL, mode).ok()?;
        rustix::fs::unlink(&path).ok().map(|()| made)
    })?;
    // A file system that does not tell, or that has no size, has room.
    let room = statfs(sys::borrow(file.as_raw_fd())?);
    let enough = room.is_ok_and(|s| s.f_blocks == 0 || s.f_bavail * s.f_bsize as u64 >= ROOM);
    (enough || refused::is::<{ nr::__NR_fstatfs }>()).then_some(file)
}

/// Makes a file of ours that long: ftruncate(2), or a write of its last byte.
///
/// # Errors
/// As ftruncate(2), for what grows.
pub fn set_size(fd: i32, size: u64) -> Result<()> {
    let done = match check(sys!(__NR_ftruncate, fd, size)) {
        Err(Errno::ENOSYS) => {
            let zero = 0u8;
            check(sys!(__NR_pwrite64, fd, (&raw const zero).expose_provenance(), 1, size - 1))
        }
        done => done,
    };
    done.map(|_| ())
}

/// fstatfs(2); nobody knows where it is refused.
///
/// # Errors
/// As fstatfs(2); `ENOSYS`.
pub fn statfs(fd: BorrowedFd<'_>) -> Result<StatFs> {
    if refused::is::<{ nr::__NR_fstatfs }>() {
        return Err(Errno::ENOSYS);
    }
    Ok(rustix::fs::fstatfs(fd)?)
}

/// fstat(2), newfstatat(2) of the same file, or statx(2).
///
/// # Errors
/// As fstat(2).
pub fn fstat(fd: impl AsFd) -> rustix::io::Result<Stat> {
    if !refused::is::<{ nr::__NR_fstat }>() {
        match rustix::fs::fstat(&fd) {
            Err(e) if refused::has_come::<{ nr::__NR_fstat }>(e.into()) => {}
            done => return done,
        }
    }
    match rustix::fs::statat(&fd, c"", AtFlags::EMPTY_PATH) {
        Err(e) if refused::refuses(e.into()) => {
            let told = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
            told.map(of_statx).or(Err(e))
        }
        done => done,
    }
}

/// What statx(2) tells, as fstat(2) has it.
fn of_statx(x: Statx) -> Stat {
    let mut stat = user::no_stat();
    stat.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
    stat.st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor);
    (stat.st_ino, stat.st_nlink, stat.st_mode) = (x.stx_ino, x.stx_nlink.into(), x.stx_mode.into());
    (stat.st_size, stat.st_blksize) = (x.stx_size.cast_signed(), x.stx_blksize.into());
    (stat.st_uid, stat.st_gid) = (x.stx_uid, x.stx_gid);
    stat
}

/// prlimit(2) of this process, or getrlimit(2): no limits where neither is to be had.
pub fn getrlimit(what: Resource) -> Rlimit {
    let mut limits = [u64::MAX; 2];
    let to = limits.as_mut_ptr().expose_provenance();
    if sys!(__NR_prlimit64, 0, what as u32, 0, to) != 0 {
        sys!(__NR_getrlimit, what as u32, to);
    }
    let [current, maximum] = limits.map(|most| (most != u64::MAX).then_some(most));
    Rlimit { current, maximum }
}

/// The same, to set limits: setrlimit(2).
///
/// # Errors
/// As prlimit(2).
pub fn setrlimit(what: Resource, new: Rlimit) -> Result<()> {
    let limits = [new.current, new.maximum].map(|most| most.unwrap_or(u64::MAX));
    let from = limits.as_ptr().expose_provenance();
    let done = check(sys!(__NR_prlimit64, 0, what as u32, from, 0));
    done.or_else(|_| check(sys!(__NR_setrlimit, what as u32, from))).map(drop)
}

/// timerfd_create(2), of CLOCK_REALTIME, that never blocks.
///
/// # Errors
/// As timerfd_create(2); `ENOSYS`.
pub fn timerfd() -> Result<OwnedFd> {
    const CLOCK_REALTIME: usize = 0;
    check(sys!(__NR_timerfd_create, CLOCK_REALTIME, CLOEXEC | NONBLOCK)).map(own)
}

/// madvise(2) of memory of ours.
///
/// # Errors
/// As madvise(2); `ENOSYS`.
pub fn advise(at: usize, len: usize, advice: u32) -> Result<()> {
    check(sys!(__NR_madvise, at, len, advice)).map(|_| ())
}

/// Memory of a shared mapping, mapped once more: mremap(2) with an old size of 0.
pub fn alias(at: usize, len: usize) -> Option<usize> {
    const MREMAP_MAYMOVE: usize = 1;
    check(sys!(__NR_mremap, at, 0, len, MREMAP_MAYMOVE)).ok()
}

/// pidfd_open(2).
///
/// # Errors
/// As pidfd_open(2); `ENOSYS`.
pub fn pidfd_open(pid: Pid) -> Result<OwnedFd> {
    if refused::is::<{ nr::__NR_pidfd_open }>() {
        return Err(Errno::ENOSYS);
    }
    let made = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(Errno::from);
    let refused = |e| refused::has_come::<{ nr::__NR_pidfd_open }>(e);
    made.map_err(|e| if refused(e) { Errno::ENOSYS } else { e })
}
