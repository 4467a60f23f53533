//! System calls that no crate in use wraps safely: doctor's probes, and an `execve` that changes
//! nothing else.
#![allow(unsafe_code)]

use crate::run::lib_path;
use crate::{files, signals};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softring_uapi::io_uring_params;
use std::ffi::{CStr, CString, OsStr, c_long};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Gives a descriptor to the engine, whose type of one is not std's.
pub fn to_engine(fd: impl Into<OwnedFd>) -> softring_host::os::fd::OwnedFd {
    use softring_host::os::fd::FromRawFd;
    // SAFETY: given up by its owner, and open.
    unsafe { softring_host::os::fd::OwnedFd::from_raw_fd(fd.into().into_raw_fd()) }
}

/// Takes over a descriptor of the engine's.
pub fn from_engine(fd: softring_host::os::fd::OwnedFd) -> OwnedFd {
    use softring_host::os::fd::IntoRawFd;
    // SAFETY: as above.
    unsafe { OwnedFd::from_raw_fd(fd.into_raw_fd()) }
}

/// Lends a descriptor to the engine.
pub fn for_engine(fd: &impl AsRawFd) -> softring_host::sys::Number {
    softring_host::sys::borrow(fd.as_raw_fd()).expect("an open descriptor")
}

fn checked(ret: c_long) -> io::Result<c_long> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// Returns whether there is no such process, or only a zombie without other threads. The process is
/// known by its number, as proc_pid_stat(5) tells. A process that cannot be asked, for want of a
/// descriptor, counts as running.
pub fn has_ended(pid: i32) -> bool {
    const GONE: [Option<i32>; 2] = [Some(libc::ENOENT), Some(libc::ESRCH)];
    /// Field num_threads, behind the name and the state. It counts threads that live on without the
    /// first.
    const THREADS: usize = 17;
    let stat = match files::proc_text(&format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(e) => return GONE.contains(&e.raw_os_error()),
    };
    let mut fields = files::stat_fields(&stat);
    let state = fields.next();
    let others = fields.nth(THREADS - 1).is_some_and(|n| n.parse::<u32>().is_ok_and(|n| n > 1));
    matches!(state, None | Some("Z" | "X")) && !others
}

/// Returns the numbers of a process, as its `status` tells them: in the pid namespace that /proc is
/// of, and in each below.
pub fn pids(status: &str) -> std::str::SplitWhitespace<'_> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.unwrap_or_default().split_whitespace()
}

/// Returns the number by which a process or a thread (`/proc/PID/task/TID`), given by its folder,
/// knows itself: it may have a pid namespace of its own.
pub fn inner_pid(folder: &str) -> Option<i32> {
    let status = files::proc_text(&format!("{folder}/status")).ok()?;
    pids(&status).next_back()?.parse().ok()
}

/// The standard streams that were closed when this process started, one bit each.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Puts /dev/null where a standard stream is closed, so that no file that is opened later gets its
/// number. Output to such a stream is lost without a word. A stream is closed if a file that is
/// opened gets its number: fcntl(2) does not tell as surely, and a policy may refuse it.
pub fn fill_standard_streams() {
    loop {
        // SAFETY: the paths are C strings; a descriptor with a number above is closed again, the
        // others stay open for good.
        unsafe {
            // musl's function would make open(2), which fewer policies allow.
            let open = |path: &CStr, how: i32| {
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), how) as i32
            };
            let mut fd = open(c"/dev/null", libc::O_RDWR);
            if fd < 0 {
                // The root has no devices.
                fd = open(c"/", libc::O_RDONLY);
            }
            if !(0..3).contains(&fd) {
                if fd >= 0 {
                    libc::close(fd);
                }
                return;
            }
            CLOSED.fetch_or(1 << fd, Relaxed);
        }
    }
}

/// Returns whether standard output was closed when this process started.
pub fn stdout_was_closed() -> bool {
    CLOSED.load(Relaxed) & 1 << 1 != 0
}

/// Counts no standard stream as closed, in a child that has put files in their place.
pub fn streams_are_put() {
    CLOSED.store(0, Relaxed);
}

/// Returns the number of descriptors that this process may have besides a few.
pub fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most.saturating_sub(16)).unwrap_or(usize::MAX).max(4)
}

/// Returns the limit of descriptors of this process, and of one that it starts.
pub fn descriptor_limit() -> Rlimit {
    getrlimit(Resource::Nofile)
}

/// Sets that limit, which stays as it is if that fails.
pub fn set_descriptor_limit(limit: Rlimit) {
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Raises the limit of descriptors to the hard limit; it stays as it is if that fails.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Takes a descriptor that whoever started this process has left open for it. It is closed when
/// this process becomes a program.
///
/// # Errors
/// `EBADF` if there is none of that number.
pub fn inherited(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD takes no pointer.
    checked(c_long::from(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }))?;
    // SAFETY: the descriptor is open, and was made for the only call of this function.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns this process's environment, entry by entry, also entries that std leaves out.
pub fn environ() -> Vec<CString> {
    unsafe extern "C" {
        static environ: *const *const std::ffi::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: environ(7) is null or a null-terminated array of strings, which nobody changes: this
    // process has one thread while it reads them.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(CStr::from_ptr(*at).to_owned());
            at = at.add(1);
        }
    }
    entries
}

/// Sets an environment variable by setenv(3), for programs that this process starts.
pub fn set_env(name: &str, value: &OsStr) {
    // SAFETY: called while this process has one thread.
    unsafe { std::env::set_var(name, value) };
}

/// Executes a program by execve(2). Returns only if that failed.
pub fn execve(path: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    let (argv, envp) = (pointers(args), pointers(env));
    let closed = CLOSED.load(Relaxed);
    signals::restore_sigpipe();
    // SAFETY: close() takes no pointer; nobody uses a stream that was closed; argv and envp are
    // null-terminated arrays of strings that outlive the call.
    unsafe {
        (0..3).filter(|fd| closed & 1 << fd != 0).for_each(|fd| _ = libc::close(fd));
        libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
    }
    io::Error::last_os_error()
}

/// Executes a program by execveat(2). Returns only if that failed.
pub fn execveat(dir: i32, path: &CStr, args: &[CString], env: &[CString], flags: i32) -> io::Error {
    let (argv, envp, path) = (pointers(args), pointers(env), path.as_ptr());
    // SAFETY: as in `execve`.
    unsafe {
        libc::syscall(libc::SYS_execveat, dir, path, argv.as_ptr(), envp.as_ptr(), flags);
    }
    io::Error::last_os_error()
}

/// Returns an array as exec(3) takes it.
fn pointers(list: &[CString]) -> Vec<*const std::ffi::c_char> {
    list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Makes a write past RLIMIT_FSIZE an error from now on, instead of a SIGXFSZ that ends us without
/// a word. A process that becomes a program must not call this: the program would inherit it.
pub fn ignore_file_limit_signal() {
    // SAFETY: no pointers.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process when the thread that started it ends.
pub fn end_with_parent() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Calls io_uring_setup(2): sets up a context for performing asynchronous I/O.
pub fn io_uring_setup(entries: u32, params: &mut io_uring_params) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads and writes one io_uring_params, which `params` is.
    let fd = checked(unsafe {
        libc::syscall(libc::SYS_io_uring_setup, entries, std::ptr::from_mut(params))
    })?;
    // SAFETY: a descriptor that was just made and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Makes a ring of the engine that this program is linked with.
pub fn engine_setup(entries: u32, params: &mut io_uring_params) -> io::Result<OwnedFd> {
    let at = std::ptr::from_mut(params).expose_provenance() as u64;
    // SAFETY: the caller's structure, borrowed for the call.
    let at = unsafe { softring_engine::syscall::UserPtr::of_program(at) };
    let fd = softring_engine::syscall::setup(entries, at);
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd as i32));
    }
    // SAFETY: a descriptor that was just made and that nobody else closes.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Checks that there can be a kernel aio context of `n` events, by io_setup(2) and io_destroy(2).
pub fn aio_context(n: u32) -> io::Result<()> {
    let mut ctx: usize = 0;
    // SAFETY: the kernel writes one word to `ctx`; then the context it named is destroyed.
    unsafe {
        checked(libc::syscall(libc::SYS_io_setup, n, &raw mut ctx))?;
        checked(libc::syscall(libc::SYS_io_destroy, ctx))?;
    }
    Ok(())
}

/// Calls epoll_pwait2(2) on an empty set, without waiting.
pub fn epoll_pwait2() -> io::Result<()> {
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let none = std::ptr::null::<libc::sigset_t>();
    // SAFETY: one event may be written to `event`; `zero` is only read.
    checked(unsafe {
        let (fd, n) = (set.as_raw_fd(), 1);
        libc::syscall(libc::SYS_epoll_pwait2, fd, &raw mut event, n, &raw const zero, none, 8usize)
    })?;
    Ok(())
}

/// Checks that this process may change its own program text: maps a page of its own executable
/// privately, makes it writable, writes, and makes it executable again, as patching a call site
/// does.
pub fn text_patch() -> io::Result<()> {
    let exe = File::open(files::own_exe()?)?;
    let len = 4096;
    // SAFETY: a fresh private mapping that nothing else uses is changed and unmapped again.
    unsafe {
        let rx = libc::PROT_READ | libc::PROT_EXEC;
        let at = libc::mmap(std::ptr::null_mut(), len, rx, libc::MAP_PRIVATE, exe.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let done =
            checked(c_long::from(libc::mprotect(at, len, libc::PROT_READ | libc::PROT_WRITE)))
                .inspect(|_| at.cast::<u8>().write_volatile(0xc3))
                .and_then(|_| checked(c_long::from(libc::mprotect(at, len, rx))));
        libc::munmap(at, len);
        done.map(drop)
    }
}

/// Checks that a file can be mapped as the dynamic linker maps a library's text: `EPERM` on a
/// noexec mount.
///
/// # Errors
/// Those of mmap(2).
pub fn map_text(file: &File) -> io::Result<()> {
    let (len, rights) = (4096, libc::PROT_READ | libc::PROT_EXEC);
    // SAFETY: a fresh private mapping that nothing else uses is unmapped again.
    unsafe {
        let none = std::ptr::null_mut();
        let at = libc::mmap(none, len, rights, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(at, len);
    }
    Ok(())
}

/// Returns whether softring's library is under this process, by a function that it alone has. In a
/// static process the library is mapped, and no loader knows it.
pub fn is_under_softring() -> bool {
    // SAFETY: a string; what is found is not called.
    let loaded = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softring_version".as_ptr()) };
    !loaded.is_null() || files::maps_file(lib_path::NAME)
}

/// Checks that a seccomp filter can answer by SIGSYS (SECCOMP_RET_TRAP); installs nothing.
pub fn seccomp_trap() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_TRAP;
    // SAFETY: the kernel reads one u32.
    checked(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    })?;
    Ok(())
}

/// Checks that Syscall User Dispatch is there, by turning it off, which it is already.
pub fn user_dispatch() -> io::Result<()> {
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    // SAFETY: PR_SYS_DISPATCH_OFF (0) takes no pointer.
    checked(c_long::from(unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) }))?;
    Ok(())
}

/// Returns user and system time of this process with all its threads, io_uring's workers among
/// them, in microseconds, by getrusage(2).
pub fn process_times() -> (u64, u64) {
    times(libc::RUSAGE_SELF)
}

/// Returns the same of all children that were waited for.
pub fn children_times() -> (u64, u64) {
    times(libc::RUSAGE_CHILDREN)
}

fn times(whose: libc::c_int) -> (u64, u64) {
    // SAFETY: an all-zero rusage is a valid one; the kernel fills it in, and cannot fail for what
    // we ask of.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &raw mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec.cast_unsigned() * 1_000_000 + t.tv_usec.cast_unsigned();
    (us(usage.ru_utime), us(usage.ru_stime))
}

/// Returns the local time of day of a moment in seconds since 1970: hours, minutes, seconds.
pub fn local_time(seconds: u64) -> [i32; 3] {
    let seconds = seconds.cast_signed();
    // SAFETY: all-zero bytes are a valid `tm`, which the call fills in; it reads the other.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut tm);
        tm
    };
    [tm.tm_hour, tm.tm_min, tm.tm_sec]
}
