//! Functions of the operating system that the cases need and no safe library offers: fork, signals,
//! pages with chosen protection, limits. Calls go through libc, so that a preloaded library sees
//! them like a program's.
#![allow(unsafe_code)]

mod children;
mod namespaces;

pub use children::{
    exec, in_child, in_raw_child, spawn_child, spawn_raw_child, spawn_vfork_child, unshare_files,
    wait_for,
};
pub use namespaces::{mount_tmpfs, own_mounts, own_users, spawn_in_namespace, unshare_time};

use crate::entry::errno;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Address in user space that is never mapped.
pub const BAD: usize = 8;
/// Address outside user space.
pub const KERNEL: usize = usize::MAX - 4095;

/// Calls `exit(2)`, which ends only the calling thread.
pub fn exit_thread(code: i32) -> ! {
    // SAFETY: the thread's frames stay, so others may go on with their data.
    unsafe { libc::syscall(libc::SYS_exit, code) };
    unreachable!("exit(2) does not return")
}

static CAUGHT: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of signals caught so far by [`catch`].
pub fn caught() -> u32 {
    CAUGHT.load(Ordering::Relaxed)
}

/// Counts `signal` from now on; `flags` are `SA_*`.
pub fn catch(signal: i32, flags: i32) {
    handle(signal, count_signal, flags);
}

/// Handles `signal` by `handler`.
pub fn handle(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: the mask is empty, and the handler stays.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = handler as *const () as usize;
        act.sa_flags = flags;
        libc::sigaction(signal, &raw const act, std::ptr::null_mut());
    }
}

/// Returns the kernel's signal mask with one signal in it.
pub const fn mask_of(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Blocks or unblocks `signal` for this thread.
pub fn block(signal: i32, blocked: bool) {
    let how = if blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the set is initialised by sigemptyset before use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Sends `signal` to the calling thread `ms` from now, from another thread.
pub fn signal_me_after(signal: i32, ms: u64) -> std::thread::JoinHandle<()> {
    // SAFETY: pthread_self involves no memory.
    let me = unsafe { libc::pthread_self() } as usize;
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        // SAFETY: the thread joins us before it ends, so its id is live.
        unsafe { libc::pthread_kill(me as libc::pthread_t, signal) };
    })
}

/// Calls `raise(3)`.
pub fn raise(signal: i32) {
    // SAFETY: raise involves no memory.
    unsafe { libc::raise(signal) };
}

/// Creates an epoll set that watches `fd`, edge-triggered, by libc's wrappers, which a preloaded
/// library can replace.
pub fn edge_set(fd: RawFd) -> std::os::fd::OwnedFd {
    let mut ev = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
    // SAFETY: `ev` is live; the set is new.
    let (set, added) = unsafe {
        let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        (set, libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut ev))
    };
    assert!(added == 0, "epoll_ctl: {}", errno());
    own(set)
}

/// Returns the events that a set of one descriptor reports now.
pub fn events_now(set: &impl std::os::fd::AsRawFd) -> u32 {
    let mut ev = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: `ev` has room for the one event asked for.
    match unsafe { libc::epoll_wait(set.as_raw_fd(), &raw mut ev, 1, 0) } {
        1 => ev.events,
        _ => 0,
    }
}

/// Returns how often the calling thread has slept so far.
pub fn sleeps() -> u64 {
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a structure to fill.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw.cast_unsigned()
}

/// Maps an anonymous page with `prot`; it stays until the process ends.
pub fn page(prot: i32) -> usize {
    // SAFETY: a new mapping overlaps nothing.
    let p = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, prot, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0)
    };
    assert!(p != libc::MAP_FAILED, "mmap of a page");
    p.expose_provenance()
}

/// Unmaps the page at `at`, made by [`page`].
pub fn unmap(at: usize) {
    // SAFETY: the page is this case's own, and the case does not access it any more.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(at), 4096) };
}

/// Maps a readable page and an inaccessible one behind it; returns the address of the border.
pub fn border() -> usize {
    // SAFETY: a new mapping overlaps nothing; its second half is ours to protect.
    unsafe {
        let (prot, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        let p = libc::mmap(std::ptr::null_mut(), 8192, prot, kind, -1, 0);
        assert!(p != libc::MAP_FAILED, "mmap of two pages");
        libc::mprotect(p.byte_add(4096), 4096, libc::PROT_NONE);
        p.expose_provenance() + 4096
    }
}

/// Calls `mmap(2)` of `fd`, raw: the address, or `-errno`.
pub fn mmap_fd(fd: RawFd, len: usize, prot: i32, flags: i32, offset: i64) -> isize {
    // SAFETY: a new mapping overlaps nothing.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) };
    if p == libc::MAP_FAILED { -(errno() as isize) } else { p.expose_provenance().cast_signed() }
}

/// Type of a limit's number in libc's headers.
#[cfg(target_env = "gnu")]
pub type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub type Resource = i32;

/// Sets the soft limit of `resource`, as far as the hard limit allows, and returns the old one.
pub fn set_limit(resource: Resource, soft: u64) -> u64 {
    let mut lim = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `lim` is a live rlimit.
    unsafe {
        libc::getrlimit(resource, &raw mut lim);
        let was = lim.rlim_cur;
        lim.rlim_cur = soft.min(lim.rlim_max);
        libc::setrlimit(resource, &raw const lim);
        was
    }
}

/// Calls `fcntl(2)` with an integer: a value, or `-errno`.
pub fn fcntl(fd: RawFd, cmd: i32, arg: i32) -> i32 {
    // SAFETY: the commands used take an integer.
    match unsafe { libc::fcntl(fd, cmd, arg) } {
        -1 => -errno(),
        v => v,
    }
}

/// Sets an option of a socket that is a number: 0, or `-errno`.
pub fn set_socket(fd: RawFd, name: i32, value: i32) -> i32 {
    let (at, len) = (&raw const value, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the value lives for the call.
    match unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, at.cast(), len) } {
        0 => 0,
        _ => -errno(),
    }
}

/// Returns a lock of a whole file, for `F_SETLK` and related commands.
fn whole(kind: i32) -> libc::flock {
    let l_whence = libc::SEEK_SET as i16;
    libc::flock { l_type: kind as i16, l_whence, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Locks a whole file for writing, by a POSIX lock of this process: 0, or `-errno`.
pub fn lock(fd: RawFd) -> i32 {
    set_lock(fd, libc::F_SETLK, libc::F_WRLCK)
}

/// Same as [`lock`], but waits.
pub fn lock_waiting(fd: RawFd) -> i32 {
    set_lock(fd, libc::F_SETLKW, libc::F_WRLCK)
}

/// Same as [`lock`] by lockf(3), from the current position on.
pub fn lockf(fd: RawFd) -> i32 {
    // SAFETY: lockf takes an fd and numbers.
    if unsafe { libc::lockf(fd, libc::F_TLOCK, 0) } == -1 { -errno() } else { 0 }
}

/// Releases this process's POSIX locks on a file.
pub fn unlock(fd: RawFd) -> i32 {
    set_lock(fd, libc::F_SETLK, libc::F_UNLCK)
}

fn set_lock(fd: RawFd, cmd: i32, kind: i32) -> i32 {
    // SAFETY: the lock is live and only read.
    if unsafe { libc::fcntl(fd, cmd, &whole(kind)) } == -1 { -errno() } else { 0 }
}

/// Takes a lock by flock(2) for this description; true if nobody else has one.
pub fn flock(fd: RawFd) -> bool {
    // SAFETY: flock takes an fd and numbers.
    unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Returns whether any process, this one included, has a POSIX lock on the file of `fd`.
pub fn locked(fd: RawFd) -> bool {
    let mut lock = whole(libc::F_WRLCK);
    // SAFETY: `lock` is live. The description itself has no locks, which would not be reported.
    let asked = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &mut lock) };
    asked == 0 && lock.l_type != libc::F_UNLCK as i16
}

/// Calls `close(2)` of libc: 0, or `-errno`.
pub fn close(fd: RawFd) -> i32 {
    // SAFETY: close takes an fd, no memory.
    if unsafe { libc::close(fd) } == -1 { -errno() } else { 0 }
}

/// Starts a thread that is given a number, calls `then`, and cancels the thread; returns whether
/// that ended it.
pub fn cancel(
    start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    number: usize,
    then: impl FnOnce(),
) -> bool {
    type Start = extern "C" fn(*mut c_void) -> *mut c_void;
    // SAFETY: as for any function that pthread_create(3) calls; only its ABI lets it unwind.
    let start: Start = unsafe { std::mem::transmute(start) };
    let argument = std::ptr::without_provenance_mut(number);
    // SAFETY: `thread` is plain data; the thread takes a number, and is joined.
    unsafe {
        let mut thread = std::mem::zeroed();
        if libc::pthread_create(&raw mut thread, std::ptr::null(), start, argument) != 0 {
            return false;
        }
        then();
        let mut result = std::ptr::null_mut();
        libc::pthread_cancel(thread) == 0
            && libc::pthread_join(thread, &raw mut result) == 0
            && result.addr() == usize::MAX
    }
}

/// Calls `close_range(2)` by libc's `syscall()`.
pub fn close_range(first: RawFd, last: RawFd) -> i32 {
    // SAFETY: close_range takes fds, no memory.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == -1 { -errno() } else { 0 }
}

/// Calls `dup(2)` of libc: an fd, or `-errno`.
pub fn dup(fd: RawFd) -> i32 {
    // SAFETY: dup takes an fd, no memory.
    match unsafe { libc::dup(fd) } {
        -1 => -errno(),
        v => v,
    }
}

/// Calls `dup2(2)` of libc: an fd, or `-errno`.
pub fn dup2(fd: RawFd, to: RawFd) -> i32 {
    // SAFETY: dup2 takes fds, no memory.
    match unsafe { libc::dup2(fd, to) } {
        -1 => -errno(),
        v => v,
    }
}

/// Calls `poll(2)` of libc for one fd: the ready events, or `-errno`.
pub fn poll(fd: RawFd, events: i16, timeout_ms: i32) -> i32 {
    let mut p = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: `p` is one live pollfd.
    match unsafe { libc::poll(&raw mut p, 1, timeout_ms) } {
        -1 => -errno(),
        _ => i32::from(p.revents),
    }
}

/// Returns the number of this process's open fds.
pub fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Returns the number of this process's threads.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Returns the used bytes of this process's address space.
pub fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Returns the thread's id in the kernel.
pub fn tid() -> i32 {
    // SAFETY: gettid involves no memory.
    unsafe { libc::gettid() }
}

/// Takes ownership of an fd that a system call has just returned.
pub fn own(fd: RawFd) -> std::os::fd::OwnedFd {
    // SAFETY: the caller got `fd` from the kernel this moment and owns it alone.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

/// Makes the command's process lead a group of its own.
pub fn own_group(cmd: &mut std::process::Command) {
    std::os::unix::process::CommandExt::process_group(cmd, 0);
}

/// Kills the process group that `leader` led, members left behind included.
pub fn kill_group(leader: u32) {
    // SAFETY: kill involves no memory.
    unsafe { libc::kill(-leader.cast_signed(), libc::SIGKILL) };
}

/// Starts the command's process under a seccomp filter.
pub fn deny_in_child(cmd: &mut std::process::Command, filter: seccompiler::BpfProgram) {
    let install =
        move || seccompiler::apply_filter(&filter).map_err(|_| std::io::Error::last_os_error());
    // SAFETY: between fork and exec only prctl and seccomp are called, on memory made before the
    // fork.
    unsafe { std::os::unix::process::CommandExt::pre_exec(cmd, install) };
}

/// Returns the word at `addr`, in memory that is mapped and shared.
pub fn load(addr: usize) -> u32 {
    let p = std::ptr::with_exposed_provenance::<u32>(addr);
    // SAFETY: the caller has just mapped `addr` and never unmaps it.
    unsafe { p.read_volatile() }
}

/// Writes `values` to memory made by [`page`].
pub fn store<T: Copy>(addr: usize, values: &[T]) {
    assert!(size_of_val(values) <= 4096);
    let p = std::ptr::with_exposed_provenance_mut::<T>(addr);
    // SAFETY: the caller passes an address in a writable page with room for `values`; the page is
    // never unmapped.
    unsafe { p.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
}

/// Opens a pseudo-terminal: its master and the terminal.
pub fn terminal() -> std::io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    let (mut master, mut slave) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: the two ints are live; name, settings and size are not asked for.
    let done =
        unsafe { libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), none.cast()) };
    if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok((own(master), own(slave))) }
}

/// Returns 127.0.0.1 and a port, as system calls take them.
pub fn loopback(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    }
}

/// Returns a `struct statx` to be filled in.
pub fn zeroed_statx() -> libc::statx {
    // SAFETY: statx is plain data of the uapi, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Sends `signal` to the calling thread again and again, from another thread, until `stop`.
pub fn signal_me_until(
    signal: i32,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> std::thread::JoinHandle<()> {
    // SAFETY: pthread_self involves no memory.
    let me = unsafe { libc::pthread_self() } as usize;
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: the thread sets `stop` and joins us before it ends, so its id is live.
            unsafe { libc::pthread_kill(me as libc::pthread_t, signal) };
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    })
}

/// Changes the ids by which this thread accesses files.
pub fn file_ids(id: u32) {
    // SAFETY: the calls change this thread's credentials, no memory.
    unsafe {
        libc::setfsgid(id);
        libc::setfsuid(id);
    }
}

/// Gives up root's rights for good, since limits do not bind root; false if that fails.
pub fn become_nobody() -> bool {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: the calls change credentials, no memory.
    unsafe {
        if libc::getuid() != 0 {
            return true;
        }
        libc::setresgid(NOBODY, NOBODY, NOBODY) == 0 && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0
    }
}

/// Calls `recv(2)` with MSG_PEEK and MSG_DONTWAIT; returns the number of bytes there, or -1.
pub fn peek(fd: RawFd, buf: &mut [u8]) -> isize {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: `buf` is live, with its length.
    unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), flags) }
}

/// Calls `ioctl(2)` with `SIOCOUTQ`; returns the number of unacknowledged bytes, or -1.
pub fn outq(fd: RawFd) -> i32 {
    let mut n = -1;
    // SAFETY: `n` is a live int; TIOCOUTQ is the same number.
    unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut n) };
    n
}

/// Calls `FUTEX_WAKE_BITSET` on a word that may be shared with other processes; returns how many
/// woke.
pub fn futex_wake(word: &AtomicU32, n: i32, mask: u32) -> i64 {
    let none = std::ptr::null::<u8>();
    let (op, at) = (libc::FUTEX_WAKE_BITSET, word.as_ptr());
    // SAFETY: the word is live; the call only uses its address.
    unsafe { libc::syscall(libc::SYS_futex, at, op, n, none, none, mask) }
}

/// Calls `kill(2)`.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: kill involves no memory.
    unsafe { libc::kill(pid, signal) };
}

/// Calls `pidfd_open(2)`.
pub fn pidfd(pid: i32, flags: i32) -> std::io::Result<std::os::fd::OwnedFd> {
    // SAFETY: the arguments are numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) };
    if fd == -1 { Err(std::io::Error::last_os_error()) } else { Ok(own(fd as RawFd)) }
}

/// Waits until a child has ended, without reaping it.
pub fn wait_until_zombie(pid: i32) {
    let none = std::ptr::null_mut();
    // SAFETY: the arguments are numbers, and no siginfo_t is written.
    unsafe { libc::waitid(libc::P_PID, pid.cast_unsigned(), none, libc::WEXITED | libc::WNOWAIT) };
}

/// Calls `FUTEX_WAKE` for at most `n` waiters; `private` is `FUTEX_PRIVATE_FLAG` or 0.
pub fn futex_wake_of(word: &AtomicU32, n: i32, private: i32) -> i64 {
    let (op, at) = (libc::FUTEX_WAKE | private, word.as_ptr());
    // SAFETY: the word is live; the call only uses its address.
    unsafe { libc::syscall(libc::SYS_futex, at, op, n) }
}

/// Calls `gettid(2)`.
pub fn gettid() -> i32 {
    // SAFETY: gettid involves no memory.
    unsafe { libc::gettid() }
}

/// Calls `tgkill(2)` for a thread of this process.
pub fn signal_thread(tid: i32, signal: i32) {
    // SAFETY: tgkill involves no memory.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) };
}

/// Maps `n` fresh writable pages: `MAP_SHARED` or `MAP_PRIVATE`.
pub fn pages(n: usize, kind: i32) -> usize {
    map_pages(0, n, kind)
}

/// Maps `n` fresh private pages at `at`, in place of any old mapping.
pub fn pages_at(at: usize, n: usize) -> usize {
    map_pages(at, n, libc::MAP_PRIVATE | libc::MAP_FIXED)
}

fn map_pages(at: usize, n: usize, kind: i32) -> usize {
    let (at, prot) =
        (std::ptr::with_exposed_provenance_mut(at), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the mapping is new, or lies where its caller has unmapped its own.
    let p = unsafe { libc::mmap(at, n * 4096, prot, kind | libc::MAP_ANON, -1, 0) };
    assert!(p != libc::MAP_FAILED, "mmap of {n} pages");
    p.expose_provenance()
}

/// Unmaps pages made by [`pages`].
pub fn unmap_pages(at: usize, n: usize) {
    // SAFETY: the pages are this case's own, and the case does not access them any more.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(at), n * 4096) };
}

/// Returns whether the bytes at `at`, mapped by [`pages_at`], are all zero.
pub fn is_zero(at: usize, len: usize) -> bool {
    let at = std::ptr::with_exposed_provenance::<u8>(at);
    // SAFETY: the pages are mapped; the read is volatile because others may write to them.
    (0..len).all(|i| unsafe { at.add(i).read_volatile() } == 0)
}
