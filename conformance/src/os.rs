//! What the cases need of the operating system and no safe library offers: fork, signals, pages
//! with chosen protection, limits. Calls go through libc, so that a preloaded library sees them as
//! it would a program's.
#![allow(unsafe_code)]

mod namespaces;

pub use namespaces::{mount_tmpfs, own_mounts, own_users, spawn_in_namespace, unshare_time};

use crate::entry::errno;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// An address that is never mapped, in user space.
pub const BAD: usize = 8;
/// An address that is no user's.
pub const KERNEL: usize = usize::MAX - 4095;

/// `fork(2)`: runs `f` in the child and answers its exit status; a signal counts as 128 + its
/// number.
///
/// Only for programs with one thread: the child runs more than async-signal-safe code.
pub fn in_child(f: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the caller promises one thread; the child leaves by _exit, so nothing of the parent
    // runs twice.
    match unsafe { libc::fork() } {
        -1 => -errno(),
        0 => {
            let code = f();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) }
        }
        pid => wait_for(pid),
    }
}

/// `fork(2)` of a child that runs beside us; end it with [`wait_for`].
pub fn spawn_child(f: impl FnOnce() -> i32) -> i32 {
    // SAFETY: as in `in_child`.
    match unsafe { libc::fork() } {
        // SAFETY: ends the child at once.
        0 => unsafe { libc::_exit(f()) },
        pid => pid,
    }
}

/// As [`in_child`], by clone(2) itself: no library is told of the fork. `flags` beside SIGCHLD.
pub fn in_raw_child(flags: libc::c_int, f: impl FnOnce() -> i32) -> i32 {
    wait_for(spawn_raw_child(flags, f))
}

/// As [`spawn_child`], by clone(2) itself.
pub fn spawn_raw_child(flags: libc::c_int, f: impl FnOnce() -> i32) -> i32 {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: as in `in_child`; without a stack of its own the child has a copy of this one.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        // SAFETY: ends the child at once.
        0 => unsafe { libc::_exit(f()) },
        pid => pid as i32,
    }
}

/// vfork(2) of a child that ends itself or execs; until then this process stands still.
pub fn spawn_vfork_child<F: FnMut() -> i32>(mut f: F) -> i32 {
    extern "C" fn start<F: FnMut() -> i32>(f: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the closure below, which the caller waits with; nobody else has it.
        unsafe { (*f.cast::<F>())() }
    }
    let mut stack = vec![0u128; 1 << 14];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let f: *mut F = &raw mut f;
    // SAFETY: the child has a stack of its own, which stays as long as it uses this memory.
    unsafe { libc::clone(start::<F>, stack.as_mut_ptr_range().end.cast(), flags, f.cast()) }
}

/// `execv(3)` by libc: `-errno`.
pub fn exec(path: &std::ffi::CStr, args: &[std::ffi::CString]) -> i32 {
    let end = core::iter::once(core::ptr::null());
    let args: Vec<_> = args.iter().map(|arg| arg.as_ptr()).chain(end).collect();
    // SAFETY: strings that end in 0, and a null pointer behind them.
    unsafe { libc::execv(path.as_ptr(), args.as_ptr()) };
    -errno()
}

/// The exit status of child `pid`.
pub fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is a live int.
    if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {
        return -errno();
    }
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// `exit(2)`, which ends only the calling thread.
pub fn exit_thread(code: i32) -> ! {
    // SAFETY: others may go on with what the thread's frames own, which stays.
    unsafe { libc::syscall(libc::SYS_exit, code) };
    unreachable!("exit(2) does not return")
}

static CAUGHT: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

/// Signals caught so far by [`catch`].
pub fn caught() -> u32 {
    CAUGHT.load(Ordering::Relaxed)
}

/// Counts `signal` from now on; `flags` are `SA_*`.
pub fn catch(signal: i32, flags: i32) {
    handle(signal, count_signal, flags);
}

/// Handles `signal` by `handler`.
pub fn handle(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: an empty mask; the handler stays.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = handler as *const () as usize;
        act.sa_flags = flags;
        libc::sigaction(signal, &raw const act, std::ptr::null_mut());
    }
}

/// The kernel's signal mask with one signal in it.
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
    // SAFETY: no memory involved.
    let me = unsafe { libc::pthread_self() } as usize;
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        // SAFETY: the thread joins us before it ends, so its id is live.
        unsafe { libc::pthread_kill(me as libc::pthread_t, signal) };
    })
}

/// `raise(3)`.
pub fn raise(signal: i32) {
    // SAFETY: no memory involved.
    unsafe { libc::raise(signal) };
}

/// An epoll set that watches `fd`, edge-triggered; by libc's wrappers, where a ring may be told
/// from other files.
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

/// The events that a set of one tells now.
pub fn told_now(set: &impl std::os::fd::AsRawFd) -> u32 {
    let mut ev = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for the one event asked for.
    match unsafe { libc::epoll_wait(set.as_raw_fd(), &raw mut ev, 1, 0) } {
        1 => ev.events,
        _ => 0,
    }
}

/// How often the calling thread has slept so far.
pub fn sleeps() -> u64 {
    // SAFETY: all zeroes is a value of the structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a structure to fill.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw.cast_unsigned()
}

/// An anonymous page with `prot`; it stays until the process ends.
pub fn page(prot: i32) -> usize {
    // SAFETY: a new mapping overlaps nothing.
    let p = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, prot, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0)
    };
    assert!(p != libc::MAP_FAILED, "mmap of a page");
    p.expose_provenance()
}

/// Takes the page at `at`, made by [`page`], away.
pub fn unmap(at: usize) {
    // SAFETY: the page is this case's own, and the case does not access it any more.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(at), 4096) };
}

/// A readable page followed by one that is not: the address of the border.
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

/// `mmap(2)` of `fd`, raw: the address, or `-errno`.
pub fn mmap_fd(fd: RawFd, len: usize, prot: i32, flags: i32, offset: i64) -> isize {
    // SAFETY: a new mapping overlaps nothing.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) };
    if p == libc::MAP_FAILED { -(errno() as isize) } else { p.expose_provenance().cast_signed() }
}

/// As libc's headers have the number of a limit.
#[cfg(target_env = "gnu")]
pub type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub type Resource = i32;

/// Sets the soft limit of `resource`, as far as the hard one allows, and answers what it was.
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

/// `fcntl(2)` without an argument: a value, or `-errno`.
pub fn fcntl(fd: RawFd, cmd: i32, arg: i32) -> i32 {
    // SAFETY: the commands used take an integer.
    match unsafe { libc::fcntl(fd, cmd, arg) } {
        -1 => -errno(),
        v => v,
    }
}

/// The whole of a file, for `F_SETLK` and the like.
fn whole(kind: i32) -> libc::flock {
    let l_whence = libc::SEEK_SET as i16;
    libc::flock { l_type: kind as i16, l_whence, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Locks a whole file for writing, by a POSIX lock of this process: 0, or `-errno`.
pub fn lock(fd: RawFd) -> i32 {
    set_lock(fd, libc::F_SETLK, libc::F_WRLCK)
}

/// As [`lock`], waiting.
pub fn lock_waiting(fd: RawFd) -> i32 {
    set_lock(fd, libc::F_SETLKW, libc::F_WRLCK)
}

/// As [`lock`], by lockf(3), from the current position on.
pub fn lockf(fd: RawFd) -> i32 {
    // SAFETY: an fd and numbers.
    if unsafe { libc::lockf(fd, libc::F_TLOCK, 0) } == -1 { -errno() } else { 0 }
}

/// Gives up this process's POSIX locks on a file.
pub fn unlock(fd: RawFd) -> i32 {
    set_lock(fd, libc::F_SETLK, libc::F_UNLCK)
}

fn set_lock(fd: RawFd, cmd: i32, kind: i32) -> i32 {
    // SAFETY: a live lock, which is only read.
    if unsafe { libc::fcntl(fd, cmd, &whole(kind)) } == -1 { -errno() } else { 0 }
}

/// Takes a lock by flock(2) for this description; true if nobody else has one.
pub fn flock(fd: RawFd) -> bool {
    // SAFETY: an fd and numbers.
    unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Has any process, this one included, a POSIX lock on the file of `fd`?
pub fn locked(fd: RawFd) -> bool {
    let mut lock = whole(libc::F_WRLCK);
    // SAFETY: a live lock. The description's own locks, of which there are none, are not told of.
    let asked = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &mut lock) };
    asked == 0 && lock.l_type != libc::F_UNLCK as i16
}

/// `close(2)` by libc: 0, or `-errno`.
pub fn close(fd: RawFd) -> i32 {
    // SAFETY: an fd, no memory.
    if unsafe { libc::close(fd) } == -1 { -errno() } else { 0 }
}

/// `dup(2)` by libc: an fd, or `-errno`.
pub fn dup(fd: RawFd) -> i32 {
    // SAFETY: an fd, no memory.
    match unsafe { libc::dup(fd) } {
        -1 => -errno(),
        v => v,
    }
}

/// `dup2(2)` by libc.
pub fn dup2(fd: RawFd, to: RawFd) -> i32 {
    // SAFETY: fds, no memory.
    match unsafe { libc::dup2(fd, to) } {
        -1 => -errno(),
        v => v,
    }
}

/// `poll(2)` of one fd by libc: the events that are there, or `-errno`.
pub fn poll(fd: RawFd, events: i16, timeout_ms: i32) -> i32 {
    let mut p = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one live pollfd.
    match unsafe { libc::poll(&raw mut p, 1, timeout_ms) } {
        -1 => -errno(),
        _ => i32::from(p.revents),
    }
}

/// This process's open fds.
pub fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// This process's threads.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Bytes of this process's address space in use.
pub fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The thread's id, as the kernel counts.
pub fn tid() -> i32 {
    // SAFETY: no memory involved.
    unsafe { libc::gettid() }
}

/// Takes over an fd that a system call has just handed out.
pub fn own(fd: RawFd) -> std::os::fd::OwnedFd {
    // SAFETY: the caller got `fd` from the kernel this moment and owns it alone.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

/// The command's process leads a group of its own.
pub fn own_group(cmd: &mut std::process::Command) {
    std::os::unix::process::CommandExt::process_group(cmd, 0);
}

/// Ends the process group that `leader` led, members left behind included.
pub fn kill_group(leader: u32) {
    // SAFETY: no memory involved.
    unsafe { libc::kill(-leader.cast_signed(), libc::SIGKILL) };
}

/// The command's process starts under a seccomp filter.
pub fn deny_in_child(cmd: &mut std::process::Command, filter: seccompiler::BpfProgram) {
    let install =
        move || seccompiler::apply_filter(&filter).map_err(|_| std::io::Error::last_os_error());
    // SAFETY: between fork and exec only prctl and seccomp are called, on memory made before the
    // fork.
    unsafe { std::os::unix::process::CommandExt::pre_exec(cmd, install) };
}

/// The word at `addr`, in memory that is mapped and shared.
pub fn load(addr: usize) -> u32 {
    let p = std::ptr::with_exposed_provenance::<u32>(addr);
    // SAFETY: the caller has just mapped `addr` and never unmaps it.
    unsafe { p.read_volatile() }
}

/// Writes `values` to memory made by [`page`].
pub fn store<T: Copy>(addr: usize, values: &[T]) {
    assert!(size_of_val(values) <= 4096);
    let p = std::ptr::with_exposed_provenance_mut::<T>(addr);
    // SAFETY: the caller hands the start of a writable page, which is never unmapped.
    unsafe { p.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
}

/// A pseudo-terminal: its master's end and the terminal.
pub fn terminal() -> std::io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    let (mut master, mut slave) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: two live ints; name, settings and size are not asked for.
    let done =
        unsafe { libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), none.cast()) };
    if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok((own(master), own(slave))) }
}

/// 127.0.0.1 and a port, as system calls take it.
pub fn loopback(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    }
}

/// A `struct statx` to be filled in.
pub fn zeroed_statx() -> libc::statx {
    // SAFETY: plain data of the uapi, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Sends `signal` to the calling thread again and again, from another thread, until `stop`.
pub fn signal_me_until(
    signal: i32,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> std::thread::JoinHandle<()> {
    // SAFETY: no memory involved.
    let me = unsafe { libc::pthread_self() } as usize;
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: the thread sets `stop` and joins us before it ends, so its id is live.
            unsafe { libc::pthread_kill(me as libc::pthread_t, signal) };
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    })
}

/// Gives this thread other ids to access files under.
pub fn file_ids(id: u32) {
    // SAFETY: changes this thread's credentials, no memory.
    unsafe {
        libc::setfsgid(id);
        libc::setfsuid(id);
    }
}

/// Gives up root's rights for good, since limits do not bind it; false if they could not be given
/// up.
pub fn become_nobody() -> bool {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: change credentials, no memory.
    unsafe {
        if libc::getuid() != 0 {
            return true;
        }
        libc::setresgid(NOBODY, NOBODY, NOBODY) == 0 && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0
    }
}

/// `recv(2)` with MSG_PEEK and MSG_DONTWAIT: how many bytes are there, or -1.
pub fn peek(fd: RawFd, buf: &mut [u8]) -> isize {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: a live buffer and its length.
    unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), flags) }
}

/// `ioctl(2)`, `SIOCOUTQ`: bytes that are not acknowledged, or -1.
pub fn outq(fd: RawFd) -> i32 {
    let mut n = -1;
    // SAFETY: a live int; TIOCOUTQ is the same number.
    unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut n) };
    n
}

/// `FUTEX_WAKE_BITSET` on a word that may be shared with other processes: how many woke.
pub fn futex_wake(word: &AtomicU32, n: i32, mask: u32) -> i64 {
    let none = std::ptr::null::<u8>();
    let (op, at) = (libc::FUTEX_WAKE_BITSET, word.as_ptr());
    // SAFETY: a live word; the call only uses its address.
    unsafe { libc::syscall(libc::SYS_futex, at, op, n, none, none, mask) }
}

/// `kill(2)`.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: no memory involved.
    unsafe { libc::kill(pid, signal) };
}

/// `pidfd_open(2)`.
pub fn pidfd(pid: i32, flags: i32) -> std::io::Result<std::os::fd::OwnedFd> {
    // SAFETY: numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) };
    if fd == -1 { Err(std::io::Error::last_os_error()) } else { Ok(own(fd as RawFd)) }
}

/// Waits until a child has ended, and leaves it to be waited for.
pub fn wait_until_zombie(pid: i32) {
    let none = std::ptr::null_mut();
    // SAFETY: numbers only; nothing is told.
    unsafe { libc::waitid(libc::P_PID, pid.cast_unsigned(), none, libc::WEXITED | libc::WNOWAIT) };
}

/// `FUTEX_WAKE` of as many as `n`; `private`: `FUTEX_PRIVATE_FLAG` or nothing.
pub fn futex_wake_of(word: &AtomicU32, n: i32, private: i32) -> i64 {
    let (op, at) = (libc::FUTEX_WAKE | private, word.as_ptr());
    // SAFETY: a live word; the call only uses its address.
    unsafe { libc::syscall(libc::SYS_futex, at, op, n) }
}

/// `gettid(2)`.
pub fn gettid() -> i32 {
    // SAFETY: no memory involved.
    unsafe { libc::gettid() }
}

/// `tgkill(2)` of a thread of this process.
pub fn signal_thread(tid: i32, signal: i32) {
    // SAFETY: no memory involved.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) };
}

/// `n` fresh pages that can be written: `MAP_SHARED` or `MAP_PRIVATE`.
pub fn pages(n: usize, kind: i32) -> usize {
    map_pages(0, n, kind)
}

/// `n` fresh private pages at `at`, in place of whatever is there.
pub fn pages_at(at: usize, n: usize) -> usize {
    map_pages(at, n, libc::MAP_PRIVATE | libc::MAP_FIXED)
}

fn map_pages(at: usize, n: usize, kind: i32) -> usize {
    let (at, prot) =
        (std::ptr::with_exposed_provenance_mut(at), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping, or one where its caller has unmapped its own.
    let p = unsafe { libc::mmap(at, n * 4096, prot, kind | libc::MAP_ANON, -1, 0) };
    assert!(p != libc::MAP_FAILED, "mmap of {n} pages");
    p.expose_provenance()
}

/// Takes pages away, made by [`pages`].
pub fn unmap_pages(at: usize, n: usize) {
    // SAFETY: the pages are this case's own, and the case does not access them any more.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(at), n * 4096) };
}

/// Are the bytes at `at`, mapped by [`pages_at`], all zero?
pub fn is_zero(at: usize, len: usize) -> bool {
    let at = std::ptr::with_exposed_provenance::<u8>(at);
    // SAFETY: the pages are there; volatile because somebody else may write to them.
    (0..len).all(|i| unsafe { at.add(i).read_volatile() } == 0)
}
