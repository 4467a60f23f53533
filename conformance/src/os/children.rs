//! Children of a case: made by fork(2), clone(2) or vfork(2), and waited for.
#![allow(unsafe_code)]

use crate::entry::errno;

/// Runs `f` in a child made by `fork(2)` and returns its exit status; a signal counts as 128 + its
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
            // SAFETY: `_exit` ends the child at once.
            unsafe { libc::_exit(code) }
        }
        pid => wait_for(pid),
    }
}

/// Runs `f` in a child made by `fork(2)` beside the parent; end it with [`wait_for`].
pub fn spawn_child(f: impl FnOnce() -> i32) -> i32 {
    // SAFETY: as in `in_child`.
    match unsafe { libc::fork() } {
        // SAFETY: `_exit` ends the child at once.
        0 => unsafe { libc::_exit(f()) },
        pid => pid,
    }
}

/// Same as [`in_child`] by clone(2) itself, which no library sees; `flags` are added to SIGCHLD.
pub fn in_raw_child(flags: libc::c_int, f: impl FnOnce() -> i32) -> i32 {
    wait_for(spawn_raw_child(flags, f))
}

/// Gives the calling thread a table of descriptors of its own (`unshare(2)`).
pub fn unshare_files() -> i32 {
    // SAFETY: takes flags only.
    unsafe { libc::unshare(libc::CLONE_FILES) }
}

/// Same as [`spawn_child`] by clone(2) itself.
pub fn spawn_raw_child(flags: libc::c_int, f: impl FnOnce() -> i32) -> i32 {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: as in `in_child`; without a stack of its own the child has a copy of this one.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        // SAFETY: `_exit` ends the child at once.
        0 => unsafe { libc::_exit(f()) },
        pid => pid as i32,
    }
}

/// Runs `f` in a child made by vfork(2); this process stops until the child ends or execs.
pub fn spawn_vfork_child<F: FnMut() -> i32>(mut f: F) -> i32 {
    extern "C" fn start<F: FnMut() -> i32>(f: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `f` is the closure below, for which the caller waits; nobody else has it.
        unsafe { (*f.cast::<F>())() }
    }
    let mut stack = vec![0u128; 1 << 14];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let f: *mut F = &raw mut f;
    // SAFETY: the child has a stack of its own, which stays as long as it uses this memory.
    unsafe { libc::clone(start::<F>, stack.as_mut_ptr_range().end.cast(), flags, f.cast()) }
}

/// Calls `execv(3)` of libc; returns `-errno`.
pub fn exec(path: &std::ffi::CStr, args: &[std::ffi::CString]) -> i32 {
    let end = core::iter::once(core::ptr::null());
    let args: Vec<_> = args.iter().map(|arg| arg.as_ptr()).chain(end).collect();
    // SAFETY: the strings end in 0, and a null pointer follows them.
    unsafe { libc::execv(path.as_ptr(), args.as_ptr()) };
    -errno()
}

/// Waits for child `pid` and returns its exit status.
pub fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is a live int.
    if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {
        return -errno();
    }
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}
