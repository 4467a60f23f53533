//! The library as a file in memory: `softring run` names it by a number that programs inherit,
//! where no folder allows a file. A child may close all its files before exec. The number is then
//! opened again from the child's parent, so that the new program's loader finds the library.

use super::file::{Fd, Name};
use crate::raw::raw;
use core::fmt::Write;
use softring_host::refused;

/// Beginning of the path of such a library.
const NUMBERS: &str = "/proc/self/fd/";
/// System calls that are made.
const CALLS: [i64; 5] =
    [libc::SYS_fcntl, libc::SYS_getppid, libc::SYS_openat, libc::SYS_dup3, libc::SYS_close];

/// Opens the library's number again if it is closed. `own` is the library's path.
pub fn restore(own: &str) {
    let Some(Ok(number)) = own.strip_prefix(NUMBERS).map(str::parse::<u16>) else { return };
    if !CALLS.into_iter().all(refused::spares) || is_open(number) {
        return;
    }
    // SAFETY: the call takes nothing.
    let parent = unsafe { raw!(libc::SYS_getppid) };
    let mut path = Name::new();
    let _ = write!(path, "/proc/{parent}/fd/{number}");
    let Some(file) = Fd::open_name(&path) else { return };
    // SAFETY: numbers only; this one is free.
    unsafe { raw!(libc::SYS_dup3, file.number(), number, 0) };
}

fn is_open(number: u16) -> bool {
    // SAFETY: numbers only.
    unsafe { raw!(libc::SYS_fcntl, number, libc::F_GETFD) >= 0 }
}
