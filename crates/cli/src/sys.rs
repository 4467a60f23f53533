//! System calls that no crate in use wraps safely: probes of doctor, `execve` that changes nothing
//! else, `fork`.
#![allow(unsafe_code)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softring_uapi::io_uring_params;
use std::ffi::{CStr, CString, OsStr, c_long};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

fn checked(ret: c_long) -> io::Result<c_long> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// The file that this process runs: /proc's answer, or, without /proc, the path that the kernel
/// was given (AT_EXECFN of getauxval(3)).
pub fn own_exe() -> io::Result<PathBuf> {
    std::env::current_exe().or_else(|_| {
        let given = OsStr::from_bytes(rustix::param::linux_execfn().to_bytes());
        std::fs::canonicalize(given).or_else(|_| std::path::absolute(given))
    })
}

/// What a file of /proc says. It may hold a thread's name, which may be any bytes: those that are
/// not UTF-8 are replaced, so that the rest can be read.
///
/// # Errors
/// Those of reading the file.
pub fn proc_text(path: &str) -> io::Result<String> {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Is there no such process, or only what whoever started it has yet to wait for? By its number, as
/// proc_pid_stat(5) tells. What cannot be asked, for want of a descriptor, has not ended as far as
/// is known.
pub fn has_ended(pid: i32) -> bool {
    const GONE: [Option<i32>; 2] = [Some(libc::ENOENT), Some(libc::ESRCH)];
    /// Behind the name and the state; num_threads counts threads that live on without the first.
    const THREADS: usize = 17;
    let stat = match proc_text(&format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(e) => return GONE.contains(&e.raw_os_error()),
    };
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next();
    let others = fields.nth(THREADS - 1).is_some_and(|n| n.parse::<u32>().is_ok_and(|n| n > 1));
    matches!(state, None | Some("Z" | "X")) && !others
}

/// A process, or a thread (`/proc/PID/task/TID`), by its folder, as it knows itself: it may have a
/// pid namespace of its own.
pub fn inner_pid(folder: &str) -> Option<i32> {
    let status = proc_text(&format!("{folder}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// Which of the standard streams were closed when this process started, one bit each.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Puts /dev/null where a standard stream is closed, so that no file that is opened later gets its
/// number. What is written there is lost without a word.
pub fn fill_standard_streams() {
    for fd in 0..3 {
        // SAFETY: F_GETFD takes no pointer; the path is a C string. The lowest free number is `fd`,
        // and stays open for good.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) < 0 {
                CLOSED.fetch_or(1 << fd, Relaxed);
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}

/// Was standard output closed when this process started?
pub fn stdout_was_closed() -> bool {
    CLOSED.load(Relaxed) & 1 << 1 != 0
}

/// Descriptors that this process may have besides a few.
pub fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most.saturating_sub(16)).unwrap_or(usize::MAX).max(4)
}

/// Takes all the descriptors that the hard limit allows; as it is if not.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A descriptor that whoever started this process has left open for it. It is closed when this
/// process becomes a program.
///
/// # Errors
/// `EBADF` if there is none of that number.
pub fn inherited(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD takes no pointer.
    checked(c_long::from(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }))?;
    // SAFETY: it is open, and was made for the one call that there is of this.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// This process's environment, entry by entry, also those that std leaves out.
pub fn environ() -> Vec<CString> {
    unsafe extern "C" {
        static environ: *const *const std::ffi::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: environ(7) is null or a null-terminated array of strings, which nobody changes: this
    // process has one thread while it looks.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(CStr::from_ptr(*at).to_owned());
            at = at.add(1);
        }
    }
    entries
}

/// setenv(3): add an environment variable, for what this process starts.
pub fn set_env(name: &str, value: &OsStr) {
    // SAFETY: called while this process has one thread.
    unsafe { std::env::set_var(name, value) };
}

/// execve(2): execute program. Answers only if it failed.
pub fn execve(path: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| {
        list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (argv, envp) = (pointers(args), pointers(env));
    // SAFETY: signal() and close() take no pointer; nobody uses a stream that was closed; argv and
    // envp are null-terminated arrays of strings that outlive the call.
    unsafe {
        let closed = CLOSED.load(Relaxed);
        (0..3).filter(|fd| closed & 1 << fd != 0).for_each(|fd| _ = libc::close(fd));
        if !crate::signals::sigpipe_was_ignored() {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
    }
    let e = io::Error::last_os_error();
    // SAFETY: as above; back to what our start-up chose, since we live on.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    e
}

/// A write past RLIMIT_FSIZE is an error from now on, and no SIGXFSZ that ends us without a word.
/// Not for a process that becomes a program: it would inherit that.
pub fn ignore_file_limit_signal() {
    // SAFETY: no pointers.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process when the thread that started it ends.
pub fn end_with_parent() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// What became of a probe run in a process of its own.
pub enum Isolated {
    /// It answered this.
    Answer(Vec<u8>),
    /// It was killed by this signal.
    Killed(i32),
}

/// Runs `probe` in a forked child, so that a sandbox that kills for a system call kills only the
/// child.
pub fn isolated(probe: impl FnOnce() -> Vec<u8>) -> io::Result<Isolated> {
    let (mut from, mut to) = io::pipe()?;
    // SAFETY: this process has one thread (doctor starts none), so the child may go on as usual.
    let pid = unsafe { libc::fork() };
    checked(c_long::from(pid))?;
    if pid == 0 {
        drop(from);
        let sent = to.write_all(&probe());
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(sent.is_err())) }
    }
    drop(to);
    let mut answer = Vec::new();
    from.read_to_end(&mut answer)?;
    let status = match status_of(pid) {
        // What it has written tells its end as well.
        Err(_) if !answer.is_empty() => 0,
        status => status?,
    };
    if libc::WIFSIGNALED(status) {
        return Ok(Isolated::Killed(libc::WTERMSIG(status)));
    }
    Ok(Isolated::Answer(answer))
}

/// waitpid(2), of a child of ours.
fn status_of(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: `status` is a live i32.
    checked(c_long::from(unsafe { libc::waitpid(pid, &raw mut status, 0) }))?;
    Ok(status)
}

/// What a program wrote, and how it ended.
pub struct Captured {
    pub stdout: String,
    pub stderr: String,
    pub killed: Option<i32>,
}

/// Runs a program by fork(2) and execve(2), with variables added to its environment. Not by what
/// the standard library has for this: where a policy refuses a call of that (clone3), doctor goes
/// on.
pub fn captured(args: &[CString], add: &[(&str, &str)]) -> io::Result<Captured> {
    let ((mut out, to_out), (mut err, to_err)) = (io::pipe()?, io::pipe()?);
    let mut env = environ();
    env.retain(|e| !add.iter().any(|a| e.as_bytes().starts_with(format!("{}=", a.0).as_bytes())));
    env.extend(add.iter().filter_map(|(k, v)| CString::new(format!("{k}={v}")).ok()));
    // SAFETY: this process has one thread, so the child may go on as usual.
    let pid = unsafe { libc::fork() };
    checked(c_long::from(pid))?;
    if pid == 0 {
        // SAFETY: descriptors that are open; ends the child if there is no such program.
        unsafe {
            libc::dup2(to_out.as_raw_fd(), 1);
            libc::dup2(to_err.as_raw_fd(), 2);
            execve(&args[0], args, &env);
            libc::_exit(127)
        }
    }
    drop((to_out, to_err));
    // The program writes a few lines: no pipe fills while the other is read.
    let (mut stdout, mut stderr) = (String::new(), String::new());
    out.read_to_string(&mut stdout)?;
    err.read_to_string(&mut stderr)?;
    // A policy may refuse wait4(2); then the output has to tell.
    let status = status_of(pid).unwrap_or(0);
    let killed = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    Ok(Captured { stdout, stderr, killed })
}

/// Lends a descriptor that somebody else keeps open meanwhile.
pub fn borrowed<T>(fd: i32, f: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    // SAFETY: the caller's.
    f(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// io_uring_setup(2): set up a context for performing asynchronous I/O.
pub fn io_uring_setup(entries: u32, params: &mut io_uring_params) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads and writes one io_uring_params, which `params` is.
    let fd = checked(unsafe {
        libc::syscall(libc::SYS_io_uring_setup, entries, std::ptr::from_mut(params))
    })?;
    // SAFETY: a descriptor that was just made and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The same, of the engine that this program is linked with.
pub fn engine_setup(entries: u32, params: &mut io_uring_params) -> io::Result<OwnedFd> {
    let at = std::ptr::from_mut(params).expose_provenance();
    let fd = softring_engine::syscall::setup(entries, at);
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd as i32));
    }
    // SAFETY: a descriptor that was just made and that nobody else closes.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// io_setup(2) and io_destroy(2): can there be a kernel aio context of `n` events?
pub fn aio_context(n: u32) -> io::Result<()> {
    let mut ctx: usize = 0;
    // SAFETY: the kernel writes one word to `ctx`; then the context it named is destroyed.
    unsafe {
        checked(libc::syscall(libc::SYS_io_setup, n, &raw mut ctx))?;
        checked(libc::syscall(libc::SYS_io_destroy, ctx))?;
    }
    Ok(())
}

/// epoll_pwait2(2) on an empty set, no waiting.
pub fn epoll_pwait2() -> io::Result<()> {
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let none = std::ptr::null::<libc::sigset_t>();
    // SAFETY: one event may be written to `event`; `zero` is only read.
    checked(unsafe {
        let (fd, n) = (set.as_raw_fd(), 1);
        libc::syscall(libc::SYS_epoll_pwait2, fd, &raw mut event, n, &raw const zero, none, 8)
    })?;
    Ok(())
}

/// May this process change its own program text? Maps a page of its own executable privately, makes
/// it writable, writes, and makes it executable again: what patching a call site takes.
pub fn text_patch() -> io::Result<()> {
    let exe = File::open(own_exe()?)?;
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

/// Can a seccomp filter answer by SIGSYS (SECCOMP_RET_TRAP)? Installs nothing.
pub fn seccomp_trap() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_TRAP;
    // SAFETY: the kernel reads one u32.
    checked(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    })?;
    Ok(())
}

/// Is Syscall User Dispatch there? Turns it off, which it is already.
pub fn user_dispatch() -> io::Result<()> {
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    // SAFETY: PR_SYS_DISPATCH_OFF (0) takes no pointer.
    checked(c_long::from(unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) }))?;
    Ok(())
}

/// getrusage(2): get resource usage; user and system time of this process with all its threads,
/// io_uring's workers among them, in microseconds.
pub fn process_times() -> (u64, u64) {
    times(libc::RUSAGE_SELF)
}

/// The same of all children that were waited for.
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
