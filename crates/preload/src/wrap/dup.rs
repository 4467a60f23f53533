//! dup(2), dup2(2), dup3(2), and fcntl(2)'s two ways to duplicate.
#![allow(unsafe_code)]

use super::{closing, duplicated, internal};
use crate::gate;
use crate::raw::{self, next, raw};
use core::ffi::{c_int, c_long};
use softring_engine::fds;

/// `dup(2)`: duplicate a file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    if internal(old) {
        return refuse();
    }
    // SAFETY: numbers only.
    let new = raw::libc_answer(unsafe { raw!(libc::SYS_dup, old) }) as c_int;
    duplicated(old, new);
    new
}

/// `dup2(2)`: duplicate a file descriptor to a given number.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: numbers only.
    onto(old, new, || unsafe { raw!(libc::SYS_dup2, old, new) })
}

/// `dup3(2)`: `dup2` with flags.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: numbers only.
    onto(old, new, || unsafe { raw!(libc::SYS_dup3, old, new, flags) })
}

/// `fcntl(2)`: manipulate file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, cmd: c_int, arg: c_long) -> c_int {
    control(fd, cmd, arg, next!(c"fcntl", fn(c_int, c_int, c_long) -> c_int))
}

/// `fcntl(2)`, under the name that programs with 64-bit offsets use.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, cmd: c_int, arg: c_long) -> c_int {
    control(fd, cmd, arg, next!(c"fcntl64", fn(c_int, c_int, c_long) -> c_int))
}

type Fcntl = unsafe extern "C" fn(c_int, c_int, c_long) -> c_int;

/// The optional argument travels in the same register, given or not.
fn control(fd: c_int, cmd: c_int, arg: c_long, next: Option<Fcntl>) -> c_int {
    let duplicates = cmd == libc::F_DUPFD || cmd == libc::F_DUPFD_CLOEXEC;
    if duplicates && internal(fd) {
        return refuse();
    }
    let ret = match next {
        // SAFETY: the program's own call; libc's, because some commands are cancellation points.
        Some(f) => unsafe { f(fd, cmd, arg) },
        // SAFETY: as above.
        None => unsafe { raw::libc_answer(raw!(libc::SYS_fcntl, fd, cmd, arg)) as c_int },
    };
    if duplicates {
        duplicated(fd, ret);
    } else if cmd == libc::F_SETFL && ret == 0 && gate::engine_rings() {
        fds::after_setfl(fd);
    }
    ret
}

/// `new` may be a ring, which this closes, or the engine's, which answers as a number out of range
/// does.
fn onto(old: c_int, new: c_int, call: impl FnOnce() -> isize) -> c_int {
    if internal(old) || internal(new) {
        return refuse();
    }
    let closing = (old != new && valid(old)).then(|| closing(new));
    let ret = raw::libc_answer(call()) as c_int;
    drop(closing);
    if old != new {
        duplicated(old, ret);
    }
    ret
}

/// A dup2 from a bad descriptor closes nothing. Asked only while there are rings to close.
fn valid(fd: c_int) -> bool {
    // SAFETY: numbers only.
    gate::engine_rings() && unsafe { raw!(libc::SYS_fcntl, fd, libc::F_GETFD) } >= 0
}

fn refuse() -> c_int {
    raw::set_errno(libc::EBADF);
    -1
}
