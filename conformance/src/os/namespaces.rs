//! Namespaces of a case's own, and mounts in them.
#![allow(unsafe_code)]

use super::spawn_child;
use crate::entry::errno;
use std::os::fd::AsRawFd;

fn checked(ret: i32) -> std::io::Result<()> {
    if ret == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Calls unshare(2) for the user namespace: 0, or an errno.
pub fn own_users() -> i32 {
    // SAFETY: unshare takes a number.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } == 0 { 0 } else { errno() }
}

/// Calls unshare(2) for the time namespace of later children.
pub fn unshare_time() -> std::io::Result<()> {
    const CLONE_NEWTIME: i32 = 0x80;
    // SAFETY: unshare takes a number.
    checked(unsafe { libc::unshare(CLONE_NEWTIME) })
}

/// Same as [`spawn_child`] for a child that is the first process of a pid namespace of its own.
pub fn spawn_in_namespace(f: impl FnOnce() -> i32) -> std::io::Result<i32> {
    let own = std::fs::File::open("/proc/self/ns/pid")?;
    // SAFETY: unshare takes a number.
    checked(unsafe { libc::unshare(libc::CLONE_NEWPID) })?;
    let child = spawn_child(f);
    // SAFETY: as above. Further children, and threads, start here again.
    checked(unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWPID) })?;
    Ok(child)
}

/// Makes later mounts private to this process; without root's rights, in a user namespace.
///
/// Only for programs with one thread.
pub fn own_mounts() -> std::io::Result<()> {
    // SAFETY: the calls take and return numbers.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    // SAFETY: as above.
    if checked(unsafe { libc::unshare(libc::CLONE_NEWNS) }).is_err() {
        // SAFETY: as above.
        checked(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: the path is NUL-terminated; the rest may be null.
    checked(unsafe { libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) })
}

/// Mounts an empty tmpfs; call [`own_mounts`] first.
pub fn mount_tmpfs(at: &std::ffi::CStr, options: &std::ffi::CStr) -> std::io::Result<()> {
    let (name, data) = (c"tmpfs".as_ptr(), options.as_ptr().cast());
    // SAFETY: all four strings are NUL-terminated.
    checked(unsafe { libc::mount(name, at.as_ptr(), name, 0, data) })
}
