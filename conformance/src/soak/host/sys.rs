//! System calls that no safe library offers.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::RawFd;

use super::super::ensure;
use super::{Check, wrong};
use crate::os;

fn lock_of(kind: i32) -> libc::flock {
    // SAFETY: all-zero is a valid lock of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock
}

/// Takes a POSIX write lock of the whole file.
pub fn lock(fd: RawFd) -> Check {
    let lock = lock_of(libc::F_WRLCK);
    // SAFETY: `lock` is live.
    match unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(wrong(std::io::Error::last_os_error())),
    }
}

/// Returns the process that holds a lock on the file, as another process sees it; 0 for none.
pub fn holder(path: &CStr) -> Check<i32> {
    let found = super::super::sys::new_page()?;
    let code = os::in_child(|| {
        let mut lock = lock_of(libc::F_WRLCK);
        // SAFETY: the calls are async-signal-safe, with a NUL-terminated name and a live lock.
        let got = unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDWR);
            libc::fcntl(fd, libc::F_GETLK, &raw mut lock)
        };
        let free = lock.l_type == libc::F_UNLCK as libc::c_short;
        os::store(found.addr, &[if free { 0 } else { lock.l_pid }]);
        got
    });
    ensure(code == 0, || format!("F_GETLK in a child: {code}"))?;
    Ok(os::load(found.addr).cast_signed())
}

/// Number of ways to close a descriptor.
pub const CLOSES: usize = 5;

/// Closes `fd`, which the caller owns, by one of [`CLOSES`] ways.
pub fn close_by(way: usize, fd: RawFd) {
    // SAFETY: the descriptor is the caller's and not used any more.
    unsafe {
        match way {
            0 => libc::syscall(libc::SYS_close, fd),
            1 => libc::syscall(libc::SYS_close_range, fd, fd, 0),
            #[cfg(target_env = "gnu")]
            2 => libc::close_range(fd as u32, fd as u32, 0).into(),
            3 => crate::entry::close(crate::entry::EntryPoint::Patch, fd) as i64,
            _ => libc::close(fd).into(),
        };
    }
}

/// Makes a number in use refer to another file, by one of two ways.
pub fn replace(way: usize, from: RawFd, to: RawFd) -> Check {
    // SAFETY: the descriptors are the caller's.
    let got = unsafe {
        match way {
            0 => libc::syscall(libc::SYS_dup3, from, to, libc::O_CLOEXEC),
            _ => libc::dup3(from, to, libc::O_CLOEXEC).into(),
        }
    };
    let errno = std::io::Error::last_os_error();
    ensure(got == i64::from(to), || format!("dup3 onto {to}: {got}, {errno}"))
}

/// Sends a signal to one thread of this process.
pub fn tell(tid: i32, signal: i32) {
    // SAFETY: the arguments are numbers; a thread that has ended is not found.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, signal) };
}

pub fn is_root() -> bool {
    // SAFETY: geteuid has no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Creates an eventfd that never blocks.
pub fn eventfd() -> Check<std::os::fd::OwnedFd> {
    let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
    rustix::event::eventfd(0, flags).map_err(wrong)
}
