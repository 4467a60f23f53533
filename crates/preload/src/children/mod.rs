//! Programs that this one starts without the library while io_uring is softring's. If such a
//! program seems to make rings, one line says so, once per program of a run: else nobody could tell
//! why the program finds io_uring denied.
//!
//! `softring run` asks for this by `SOFTRING_RUN`, the path of a file that lists the programs
//! already named. The first name creates the file. exec may be called in a signal handler or after
//! vfork(2), so nothing here allocates, and every system call is made directly.
#![allow(unsafe_code)]

mod file;
pub mod follow;
mod launch;
mod memory;
mod rings;
mod room;
mod sanitizer;

use crate::config;
use crate::{dynamic, raw};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use file::File;
pub use launch::Launch;
pub use room::{Room, thread_ends, with_stack};
use softring_host::{c_library, refused, user};

/// A program as an exec call names it.
#[derive(Clone, Copy)]
pub enum Program {
    /// A path relative to this directory.
    At(i32, *const c_char),
    /// A name that is searched in `PATH` unless it holds a slash.
    Named(*const c_char),
    Open(i32),
}

/// Reason why a program starts without the library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Environment,
    /// `Environment` for a program that starts others, which nobody will check.
    Launcher,
    Static,
    Privileged,
}

/// Path in `SOFTRING_RUN`; null: nobody asks.
static RUN: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
/// Path of this library as LD_PRELOAD names it.
static OWN: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Finds the paths of this library and of `SOFTRING_RUN`. Called once, before `main`.
pub fn start() {
    let Some(own) = dynamic::object_of(start as fn() as *const c_void) else { return };
    OWN.store(own.name.cast_mut(), Relaxed);
    if let Some(run) = config::run().filter(|run| !run.is_empty() && !config::quiet()) {
        RUN.store(run.as_ptr().cast_mut(), Relaxed);
    }
    if config::is_secure() {
        return;
    }
    // SAFETY: the C library's variable, before anybody else uses it.
    if let Some(environ) = unsafe { c_library::environ().as_ref() } {
        // SAFETY: as above.
        unsafe { follow::start(environ.cast_mut()) };
    }
    if !RUN.load(Relaxed).is_null()
        && let Some(run) = follow::setting(c"SOFTRING_RUN")
    {
        RUN.store(run.cast_mut(), Relaxed);
    }
}

/// System calls needed to judge a program.
const CALLS: [i64; 16] = [
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_fstat,
    libc::SYS_fgetxattr,
    libc::SYS_pread64,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_rt_sigprocmask,
    libc::SYS_flock,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_getuid,
    libc::SYS_getgid,
    libc::SYS_prctl,
    libc::SYS_fcntl,
];

/// System calls of the command and its helper, besides.
const LAUNCH_CALLS: [i64; 14] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_openat2,
    libc::SYS_clone,
    libc::SYS_pipe2,
    libc::SYS_read,
    libc::SYS_wait4,
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_mprotect,
    libc::SYS_brk,
    libc::SYS_getpid,
    libc::SYS_rt_sigaction,
    libc::SYS_prlimit64,
];

/// Makes sure that the next program's loader finds this library by the path that LD_PRELOAD has.
/// Called before exec.
pub fn keep_library() {
    let own = OWN.load(Relaxed);
    if own.is_null() {
        return;
    }
    let errno = raw::errno();
    // SAFETY: the loader's own string.
    memory::restore(unsafe { CStr::from_ptr(own) }.to_str().unwrap_or_default());
    raw::set_errno(errno);
}

/// Opens the file of a program that is about to start. `None` if that is not possible, or if a
/// filter of the program's may kill for the calls needed to judge it.
pub fn inspect(program: Program) -> Option<File> {
    if OWN.load(Relaxed).is_null() || !CALLS.into_iter().all(refused::spares) {
        return None;
    }
    let errno = raw::errno();
    let file = File::of(program);
    raw::set_errno(errno);
    file
}

/// Returns what the environment `envp` needs for a program to start with the library, if that is to
/// be added.
pub fn follow(file: &File, envp: *const *const c_char) -> Option<follow::Added> {
    let errno = raw::errno();
    let added = follow::follow(file, envp);
    raw::set_errno(errno);
    added
}

/// Reports a program, which is about to start with `envp`, if it starts without the library.
pub fn starts(file: &File, envp: *const *const c_char) {
    let _ = starts_or_launches(file, envp, |_| None);
}

/// Returns what to start in place of `program`, if that brings the library to it; else does as
/// [`starts`].
pub fn launch(
    program: (Program, &File),
    flags: i32,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> Option<Launch> {
    starts_or_launches(program.1, envp, |tell| {
        let spared = LAUNCH_CALLS.into_iter().all(refused::spares);
        if spared { Launch::of(program, flags, (argv, envp), tell) } else { None }
    })
}

/// `launch` gets whether the program is to be told of if it starts without the library.
fn starts_or_launches(
    file: &File,
    envp: *const *const c_char,
    launch: impl FnOnce(bool) -> Option<Launch>,
) -> Option<Launch> {
    let (errno, run) = (raw::errno(), RUN.load(Relaxed));
    let judged = if run.is_null() { None } else { file.judge(preloads(envp).is_some()) };
    let told = judged.filter(|_| file::is_first(run, file.name()));
    let launched = launch(told.is_some());
    if launched.is_none()
        && let Some(why) = told
    {
        say(file.name(), why);
    }
    raw::set_errno(errno);
    launched
}

/// Returns the LD_PRELOAD that a program needs, and the index of the string of `envp` that it
/// replaces; `None` if the present one will do.
pub fn preload_for(file: &File, envp: *const *const c_char) -> Option<(sanitizer::Preload, usize)> {
    let errno = raw::errno();
    let preload =
        preloads(envp).and_then(|(value, nth)| Some((sanitizer::preload(file, value)?, nth)));
    raw::set_errno(errno);
    preload
}

/// Finds the environment's last LD_PRELOAD, which is the one that loaders take. If it holds this
/// library, returns the address of its value and its index in the environment.
fn preloads(envp: *const *const c_char) -> Option<(u64, usize)> {
    // SAFETY: the loader's own string.
    let own = unsafe { CStr::from_ptr(OWN.load(Relaxed)) }.to_bytes();
    let word = |nth: usize| {
        user::read::<u64>(envp.wrapping_add(nth).expose_provenance() as u64).unwrap_or(0)
    };
    let (mut nth, mut found) = (0, None);
    while !envp.is_null() && word(nth) != 0 {
        if let Some(value) = after(word(nth), b"LD_PRELOAD=") {
            found = holds(value, own).then_some((value, nth));
        }
        nth += 1;
    }
    found
}

fn byte(at: u64) -> u8 {
    user::read::<u8>(at).unwrap_or(0)
}

/// Returns the address behind `prefix` if the string at `at` starts with it.
fn after(at: u64, prefix: &[u8]) -> Option<u64> {
    prefix.iter().zip(at..).all(|(&b, at)| byte(at) == b).then_some(at + prefix.len() as u64)
}

/// Returns whether `path` is one of the paths at `list`.
fn holds(list: u64, path: &[u8]) -> bool {
    let ends = |at: u64| matches!(byte(at), 0 | b':' | b' ' | b'\t' | b'\n');
    let mut at = list;
    loop {
        if after(at, path).is_some_and(ends) {
            return true;
        }
        while !ends(at) {
            at += 1;
        }
        if byte(at) == 0 {
            return false;
        }
        at += 1;
    }
}

fn say(name: &file::Name, why: Why) {
    let why: &[u8] = match why {
        Why::Environment => {
            b" starts without softring (LD_PRELOAD is not in its environment), and seems to use \
              io_uring: leave LD_PRELOAD and SOFTRING_* in the environment\n"
        }
        Why::Launcher => {
            b" starts without softring (LD_PRELOAD is not in its environment), and so do its \
              children: leave LD_PRELOAD and SOFTRING_* in the environment\n"
        }
        Why::Static => {
            b" starts without softring (it is statically linked), and seems to use io_uring: \
              start it where the command softring is and may trace it, or link it dynamically\n"
        }
        Why::Privileged => {
            b" starts without softring (it is set-user-id, set-group-id, or has capabilities), and \
              seems to use io_uring: start the program as the user that it changes to, or start a \
              copy without the privilege\n"
        }
    };
    let mut line = file::Name::new();
    line.add(b"softring: ");
    // Control characters are replaced: the name stays on one line and sends a terminal nothing.
    name.bytes().iter().for_each(|b| line.add(&[if b.is_ascii_control() { b'?' } else { *b }]));
    line.add(why);
    crate::stderr::write(line.bytes());
}
