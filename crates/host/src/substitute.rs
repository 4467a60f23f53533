//! Substitutes for system calls that may be refused ([`crate::refused`]).

use crate::c_library;
use crate::lock::OnceLock;
use alloc::format;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::os::fd::{AsFd, AsRawFd, OwnedFd};
use crate::os::fs::{FileType, Mode, OFlags, StatFs};
use crate::os::process::{Resource, Rlimit};

use crate::calls::{Part, Parts, ReadPtr, epoll, events, files, process};
use crate::refused;
use crate::sys::{self, nr};
use crate::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::Release;
use softring_uapi::{RWF_NOWAIT, epoll_event};

pub(crate) mod status;

pub use status::{file_type, fstat, pidfd_open, process_lives};

const CLOEXEC: u32 = 0o2_000_000;
const NONBLOCK: u32 = 0o4000;

/// Sets the flags that an older call does not take.
fn with_flags(fd: OwnedFd, nonblock: bool) -> OwnedFd {
    let _ = files::close_on_exec(fd.as_raw_fd());
    if nonblock {
        let _ = files::set_flags(fd.as_raw_fd(), NONBLOCK.into());
    }
    fd
}

/// Makes an eventfd of ours that never blocks: eventfd2(2), or eventfd(2).
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`; `ENOSYS` where both are refused.
pub fn eventfd() -> Result<OwnedFd> {
    match events::eventfd2(CLOEXEC | NONBLOCK) {
        Err(Errno::ENOSYS) => {
            let made = events::eventfd();
            let none = matches!(made, Err(Errno::ENOSYS));
            refused::want_if::<{ nr::__NR_eventfd2 }>("eventfd2", none);
            Ok(with_flags(made?, true))
        }
        made => made,
    }
}

/// Makes an epoll set: epoll_create1(2), or epoll_create(2).
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`; `ENOSYS` where both are refused.
pub fn epoll_create() -> Result<OwnedFd> {
    match events::epoll_create1(CLOEXEC) {
        Err(Errno::ENOSYS) => {
            let made = events::epoll_create();
            let none = matches!(made, Err(Errno::ENOSYS));
            refused::want_if::<{ nr::__NR_epoll_create1 }>("epoll_create1", none);
            Ok(with_flags(made?, false))
        }
        made => made,
    }
}

/// Returns the events that are there, at once: by epoll_wait(2), which costs a third less than a
/// call that reads a time, or epoll_pwait(2).
///
/// # Errors
/// As epoll_wait(2).
pub fn epoll_now(ep: i32, buf: &mut [epoll_event]) -> Result<usize> {
    match events::epoll_wait_now(ep, buf) {
        Err(Errno::ENOSYS) => events::epoll_pwait_now(ep, buf),
        done => done,
    }
}

/// Waits for events: by epoll_pwait2(2) to the nanosecond, by epoll_pwait(2) or epoll_wait(2) in
/// milliseconds, rounded up. epoll_wait(2) takes no mask.
///
/// # Errors
/// `EINTR` when a signal came.
pub fn epoll_wait(
    ep: i32,
    buf: &mut [epoll_event],
    timeout_ns: Option<u64>,
    sigmask: Option<u64>,
) -> Result<usize> {
    match epoll::epoll_pwait2(ep, buf, timeout_ns, sigmask) {
        Err(Errno::ENOSYS) => {}
        done => return done,
    }
    let done = match epoll::epoll_pwait(ep, buf, timeout_ns, sigmask) {
        Err(Errno::ENOSYS) if sigmask.is_none() => epoll::epoll_wait(ep, buf, timeout_ns),
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
    epoll::epoll_ctl(set, epoll::EPOLL_CTL_ADD, fd, &epoll_event { events, data })
}

/// Takes `fd` out of an epoll set.
///
/// # Errors
/// As [`epoll_add`].
pub fn epoll_delete(set: impl AsFd, fd: impl AsFd) -> Result<()> {
    let [set, fd] = [set.as_fd().as_raw_fd(), fd.as_fd().as_raw_fd()];
    epoll::epoll_ctl(set, epoll::EPOLL_CTL_DEL, fd, &epoll_event { events: 0, data: 0 })
}

/// Offset that means a file's own position.
const CURRENT: u64 = u64::MAX;

/// Returns the release that the kernel reports: version and patch level.
pub fn release() -> Release {
    static RELEASE: OnceLock<Release> = OnceLock::new();
    *RELEASE.get_or_init(|| {
        let name = crate::os::process::release();
        let mut numbers = name.split(|b| !b.is_ascii_digit());
        let mut number = || core::str::from_utf8(numbers.next()?).ok()?.parse().ok();
        Release(number().unwrap_or(0), number().unwrap_or(0))
    })
}

/// Returns whether this kernel may ignore `RWF_NOWAIT` on pipes and eventfds, and wait. gVisor
/// does, and reports itself as an old Linux; a try would wait. A Linux of that age refuses the flag
/// there.
fn ignores_nowait() -> bool {
    release() < Release(5, 8)
}

/// Returns whether a read with `RWF_NOWAIT` answered 0 although the file does not end there. Linux
/// 5.9 and 5.10 do so now and then for data that is not in the page cache yet
/// (`generic_file_buffered_read`; preadv2(2), BUGS).
fn ends_early(fd: i32, off: u64) -> bool {
    let position = |fd| crate::os::fs::tell(fd).unwrap_or(0);
    release() < Release(5, 11)
        && sys::borrow(fd).is_some_and(|fd| {
            let at = if off == CURRENT { position(fd) } else { off };
            // A file without a size, such as a block device, may go on, too.
            fstat(fd).is_ok_and(|s| s.st_size == 0 || at < s.st_size.cast_unsigned())
        })
}

fn is_file(fd: i32) -> bool {
    matches!(file_type(fd), Some(FileType::RegularFile | FileType::BlockDevice))
}

/// Returns whether this kernel may refuse a write whose memory ends early. Those before Linux 5.16
/// may; newer ones write the mapped prefix (`generic_perform_write`).
fn refuses_half_mapped(fd: i32) -> bool {
    let cached = |flags: OFlags| !flags.contains(OFlags::DIRECT);
    release() < Release(5, 16) && is_file(fd) && sys::file_flags(fd).is_some_and(cached)
}

/// Writes the prefix of these parts that can be read.
///
/// # Errors
/// As pwritev2(2); `EFAULT` if there is none.
#[cold]
fn write_readable(fd: i32, from: Parts<'_>, off: u64, flags: u32) -> Result<usize> {
    let mut parts = from.copied_prefix();
    let cut = |part: &mut Part| {
        let whole = part.len;
        *part = Part::new(part.base(), user::readable_prefix(part.base, whole as usize) as u64);
        part.len < whole
    };
    let whole = parts.iter_mut().position(cut).map_or(parts.len(), |last| last + 1);
    parts.truncate(whole);
    if parts.iter().all(|part| part.len == 0) {
        return Err(Errno::EFAULT);
    }
    files::pwritev2(fd, Parts::of(&parts), off, flags)
}

/// Calls preadv2(2) or pwritev2(2), or, if those are refused, the calls that know no flags. Flags
/// are then answered as by a file that does not know them.
///
/// # Errors
/// As the call; `EAGAIN` also if a kernel takes unread data for the file's end.
pub fn transfer(writes: bool, fd: i32, parts: Parts<'_>, off: u64, flags: u32) -> Result<usize> {
    if flags & RWF_NOWAIT != 0 && ignores_nowait() && !is_file(fd) {
        return Err(Errno::EOPNOTSUPP);
    }
    let done = match writes {
        true => files::pwritev2(fd, parts, off, flags),
        false => files::preadv2(fd, parts, off, flags),
    };
    if done == Ok(0) && !writes && flags & RWF_NOWAIT != 0 && ends_early(fd, off) {
        return Err(Errno::EAGAIN);
    }
    if done == Err(Errno::EFAULT) && writes && refuses_half_mapped(fd) {
        return write_readable(fd, parts, off, flags);
    }
    if done != Err(Errno::ENOSYS) {
        return done;
    }
    if flags != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    match (writes, off) {
        (true, CURRENT) => files::writev(fd, parts),
        (false, CURRENT) => files::readv(fd, parts),
        _ => positioned(writes, fd, parts, off),
    }
}

/// Calls preadv(2) or pwritev(2), or, if those are refused, pread(2) or pwrite(2) for one part
/// after the other: another writer may come in between.
///
/// # Errors
/// As the call, for the first part.
pub fn positioned(writes: bool, fd: i32, parts: Parts<'_>, off: u64) -> Result<usize> {
    let done = match writes {
        true => files::pwritev(fd, parts, off),
        false => files::preadv(fd, parts, off),
    };
    if done != Err(Errno::ENOSYS) {
        return done;
    }
    const IOV_MAX: usize = 1024;
    if parts.count() > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    let mut parts = parts.copied()?;
    if parts.is_empty() {
        parts.push(Part::default());
    }
    let mut total = 0;
    for part in parts {
        let at = off.wrapping_add(total as u64);
        let len = part.len as usize;
        let done = match writes {
            true => files::pwrite(fd, ReadPtr(part.base), len, at),
            false => files::pread(fd, part.base(), len, at),
        };
        match done {
            Err(e) if total == 0 => return Err(e),
            Ok(n) if n as u64 == part.len => total += n,
            done => return Ok(total + done.unwrap_or(0)),
        }
    }
    Ok(total)
}

/// Returns the number of processors that this thread may use, by sched_getaffinity(2) alone (the
/// standard library reads files as well); 1 if that is refused.
pub fn processors() -> u32 {
    const MOST: usize = 8192;
    let mut set = [0u8; MOST / 8];
    match process::affinity(&mut set) {
        Ok(1..) => set.iter().map(|byte| byte.count_ones()).sum::<u32>().max(1),
        _ => 1,
    }
}

/// Makes a file in memory by memfd_create(2) alone, because its name tells others what it is.
/// `seals`: others may be kept from changing it.
///
/// # Errors
/// As memfd_create(2).
pub fn memfd(name: &str, seals: bool) -> Result<OwnedFd> {
    /// Bytes of a name that are used.
    const NAME: usize = 31;
    const MFD_CLOEXEC: u32 = 1;
    const MFD_ALLOW_SEALING: u32 = 2;
    let flags = if seals { MFD_CLOEXEC | MFD_ALLOW_SEALING } else { MFD_CLOEXEC };
    let mut text = [0u8; 32];
    text.iter_mut().take(NAME).zip(name.bytes()).for_each(|(to, from)| *to = from);
    events::memfd_create(&text, flags)
}

/// Makes a file in memory that can be sealed. If memfd_create(2) is refused, makes a file without a
/// name, in /dev/shm if there is room, else in a directory for temporary files.
///
/// # Errors
/// As memfd_create(2) if no such file can be made.
pub fn memory_file(name: &str) -> Result<OwnedFd> {
    let refusal = match memfd(name, true) {
        Err(e) if refused::refuses(e) => e,
        made => return made,
    };
    let temporary = c_library::variable(b"TMPDIR").filter(|dir| !dir.is_empty());
    let temporary = temporary.map(core::ffi::CStr::to_bytes);
    let [first, rest @ ..]: [&[u8]; 4] = [b"/dev/shm", b"/tmp", b"/var/tmp", b"/run"];
    let dirs = [first].into_iter().chain(temporary).chain(rest);
    dirs.into_iter().find_map(unnamed).ok_or(refusal)
}

/// Makes a file without a name, in a directory with room for some rings.
fn unnamed(dir: &[u8]) -> Option<OwnedFd> {
    const ROOM: u64 = 1 << 20;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let how = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let made = crate::os::fs::open(dir, how | OFlags::TMPFILE | OFlags::EXCL, mode).ok();
    let file = made.or_else(|| {
        let (pid, n) = (crate::fork::pid(), NEXT.fetch_add(1, Relaxed));
        let path = [dir, format!("/.softring-{pid}-{n}").as_bytes()].concat();
        let made = crate::os::fs::open(&*path, how | OFlags::CREATE | OFlags::EXCL, mode).ok()?;
        crate::os::fs::unlink(&*path).ok().map(|()| made)
    })?;
    // A file system without a size has room; so has any if fstatfs(2) is refused.
    let room = statfs(&file);
    let enough =
        room.is_ok_and(|s| s.f_blocks == 0 || (s.f_bavail * s.f_bsize).cast_unsigned() >= ROOM);
    (enough || refused::is::<{ nr::__NR_fstatfs }>()).then_some(file)
}

/// Gives a file of ours this size: ftruncate(2), or a write of its last byte.
///
/// # Errors
/// As ftruncate(2), for a file that grows.
pub fn set_size(fd: i32, size: u64) -> Result<()> {
    let done = match files::ftruncate(fd, size) {
        Err(Errno::ENOSYS) => files::pwrite_of(fd, &[0], size - 1),
        done => done,
    };
    done.map(|_| ())
}

/// Calls fstatfs(2), which has no substitute.
///
/// # Errors
/// As fstatfs(2); `ENOSYS`.
pub fn statfs(fd: impl AsFd) -> Result<StatFs> {
    if refused::is::<{ nr::__NR_fstatfs }>() {
        return Err(Errno::ENOSYS);
    }
    crate::os::fs::fstatfs(fd)
}

/// Returns the limits by prlimit(2) of this process, or getrlimit(2); none if both are refused.
pub fn getrlimit(what: Resource) -> Rlimit {
    let limits = process::prlimit(what as u32, None);
    let limits = limits.or_else(|_| process::getrlimit(what as u32)).unwrap_or([u64::MAX; 2]);
    let [current, maximum] = limits.map(|most| (most != u64::MAX).then_some(most));
    Rlimit { current, maximum }
}

/// Returns whether the size of the files that this process writes is limited.
pub fn limits_file_size() -> bool {
    getrlimit(Resource::Fsize).current.is_some()
}

/// Returns whether the memory of this process is limited, or may be.
pub fn limits_memory() -> bool {
    let unlimited = |what: Resource| {
        let limits = process::prlimit(what as u32, None);
        limits.or_else(|_| process::getrlimit(what as u32)).is_ok_and(|[now, _]| now == u64::MAX)
    };
    !(unlimited(Resource::As) && unlimited(Resource::Data))
}

/// Sets the limits by prlimit(2) of this process, or setrlimit(2).
///
/// # Errors
/// As prlimit(2).
pub fn setrlimit(what: Resource, new: Rlimit) -> Result<()> {
    let limits = [new.current, new.maximum].map(|most| most.unwrap_or(u64::MAX));
    let done = process::prlimit(what as u32, Some(limits)).map(drop);
    done.or_else(|_| process::setrlimit(what as u32, limits))
}

/// Makes a timerfd of CLOCK_REALTIME that never blocks.
///
/// # Errors
/// As timerfd_create(2); `ENOSYS`.
pub fn timerfd() -> Result<OwnedFd> {
    const CLOCK_REALTIME: u32 = 0;
    events::timerfd_create(CLOCK_REALTIME, CLOEXEC | NONBLOCK)
}
