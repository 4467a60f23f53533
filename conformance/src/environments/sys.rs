//! System calls of the checks and of the launcher that need unsafe code.
#![allow(unsafe_code)]

use super::Fault;
use libc::sock_filter;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

static DOING: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static DOING_LEN: AtomicUsize = AtomicUsize::new(0);

/// Tells the alarm the current check.
pub fn doing(name: &'static str) {
    DOING_LEN.store(0, Ordering::SeqCst);
    DOING.store(name.as_ptr().cast_mut(), Ordering::SeqCst);
    DOING_LEN.store(name.len(), Ordering::SeqCst);
}

extern "C" fn on_alarm(_: i32) {
    let write = |at: *const u8, len: usize| {
        // SAFETY: `at` is live memory of `len` bytes: a literal, or a name that is a literal.
        unsafe { libc::write(1, at.cast(), len) };
    };
    write(DOING.load(Ordering::SeqCst), DOING_LEN.load(Ordering::SeqCst));
    let end = b": no end\n";
    write(end.as_ptr(), end.len());
    // SAFETY: `_exit` ends the process.
    unsafe { libc::_exit(124) };
}

/// Ends this process after some seconds, with a line that names the check.
pub fn end_after(seconds: u32) {
    crate::os::handle(libc::SIGALRM, on_alarm, 0);
    // SAFETY: alarm(2) takes a number.
    unsafe { libc::alarm(seconds) };
}

fn last() -> Fault {
    std::io::Error::last_os_error().to_string()
}

fn checked(ret: libc::c_int) -> Result<(), Fault> {
    if ret == -1 { Err(last()) } else { Ok(()) }
}

/// Installs a seccomp filter on this process, and what it execs.
pub fn install(filter: &[sock_filter]) -> Result<(), Fault> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| "the filter is too long")?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: `program` is valid, and the kernel copies it.
    unsafe {
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        checked(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))
    }
}

/// Calls `prctl(2)` with numbers only.
pub fn prctl(what: i32, value: u64) -> Result<(), Fault> {
    // SAFETY: the arguments are numbers, for commands that take numbers.
    checked(unsafe { libc::prctl(what, value, 0, 0, 0) })
}

/// Sets the soft and the hard limit.
pub fn limit(resource: libc::__rlimit_resource_t, most: u64) -> Result<(), Fault> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: `limit` is a live rlimit.
    checked(unsafe { libc::setrlimit(resource, &raw const limit) })
}

/// Executes a command by execvp(3), with one more variable in its environment, after `last`. The
/// standard library's way makes calls that `last` may have had refused. Returns the error.
pub fn become_command(
    command: &[OsString],
    variable: &(&str, String),
    last: impl FnOnce() -> Result<(), Fault>,
) -> Result<Fault, Fault> {
    let words = command.iter().map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let mut args: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    args.push(std::ptr::null());
    // SAFETY: this process has one thread; SIGPIPE is as it was before Rust's start-up, and no
    // pointer is kept; `args` is a null-terminated array of strings that outlive the call.
    unsafe {
        std::env::set_var(variable.0, &variable.1);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        last()?;
        libc::execvp(args[0], args.as_ptr());
    }
    Ok(self::last())
}

/// Becomes another user, for good.
pub fn become_user(id: u32) -> Result<(), Fault> {
    // SAFETY: the arguments are numbers, and no groups.
    unsafe {
        checked(libc::setgroups(0, std::ptr::null()))?;
        checked(libc::setresgid(id, id, id))?;
        checked(libc::setresuid(id, id, id))
    }
}
