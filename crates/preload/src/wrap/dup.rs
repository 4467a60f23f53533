//! dup(2), dup2(2), dup3(2), and the two commands of fcntl(2) that duplicate.
#![allow(unsafe_code)]

use super::{closing, duplicated, internal};
use crate::gate;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use softring_engine::fds;

/// `dup(2)`: duplicate a file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    raw::libc_answer(raw_dup(old)) as c_int
}

/// `dup2(2)`: duplicate a file descriptor to a given number.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    raw::libc_answer(raw_dup2(old, new)) as c_int
}

/// `dup3(2)`: `dup2` with flags.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    raw::libc_answer(raw_dup3(old, new, flags)) as c_int
}

/// `fcntl(2)`: manipulate file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    libc_fcntl(fd, cmd, arg, next!(c"fcntl", fn(c_int, c_int, usize) -> c_int))
}

/// `fcntl(2)`, under the name that programs with 64-bit offsets use.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    libc_fcntl(fd, cmd, arg, next!(c"fcntl64", fn(c_int, c_int, usize) -> c_int))
}

/// Handles dup(2) by number.
#[inline]
pub fn raw_dup(old: c_int) -> isize {
    if internal(old) {
        return REFUSED;
    }
    // SAFETY: numbers only.
    let new = unsafe { raw!(libc::SYS_dup, old) };
    duplicated(old, new);
    new
}

/// Handles dup2(2) by number.
pub fn raw_dup2(old: c_int, new: c_int) -> isize {
    // SAFETY: numbers only.
    onto(old, new, 0, || unsafe { raw!(libc::SYS_dup2, old, new) })
}

/// Handles dup3(2) by number.
pub fn raw_dup3(old: c_int, new: c_int, flags: c_int) -> isize {
    // SAFETY: numbers only.
    onto(old, new, flags, || unsafe { raw!(libc::SYS_dup3, old, new, flags) })
}

/// Handles fcntl(2) by number.
pub fn raw_fcntl(fd: c_int, cmd: c_int, arg: usize) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { raw!(libc::SYS_fcntl, fd, cmd, arg) };
    control(fd, cmd, arg, call, |ret| ret).unwrap_or(REFUSED)
}

type Fcntl = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;

/// Handles fcntl(2) by name. The optional argument is in the same register, given or not.
fn libc_fcntl(fd: c_int, cmd: c_int, arg: usize, next: Option<Fcntl>) -> c_int {
    let Some(next) = next else { return raw::libc_answer(raw_fcntl(fd, cmd, arg)) as c_int };
    // SAFETY: the program's own call; libc's, because some commands are cancellation points.
    let call = || unsafe { next(fd, cmd, arg) } as isize;
    let done = control(fd, cmd, arg, call, raw::libc_answer);
    done.unwrap_or_else(|| raw::libc_answer(REFUSED)) as c_int
}

/// Answer for a number that is not open.
const REFUSED: isize = -(libc::EBADF as isize);

/// Handles fcntl(2); `None` if the call is refused. `answer` converts the kernel's answer for the
/// caller.
fn control(
    fd: c_int,
    cmd: c_int,
    arg: usize,
    call: impl Fn() -> isize,
    answer: fn(isize) -> isize,
) -> Option<isize> {
    let duplicates = cmd == libc::F_DUPFD || cmd == libc::F_DUPFD_CLOEXEC;
    if internal(fd) {
        return None;
    }
    if let Some(ret) = super::locks::set_by_fcntl(fd, cmd, arg, &call, answer) {
        return Some(ret);
    }
    let ret = call();
    if duplicates {
        duplicated(fd, ret);
    } else if cmd == libc::F_SETFL && ret == 0 && gate::watched() {
        fds::after_setfl(fd);
    }
    Some(ret)
}

/// Duplicates `old` onto `new`. `new` may be a ring, which this closes, or the engine's, which
/// moves away.
fn onto(old: c_int, new: c_int, flags: c_int, call: impl FnOnce() -> isize) -> isize {
    if internal(old) {
        return REFUSED;
    }
    let closes = old != new && flags & !libc::O_CLOEXEC == 0 && may_be(new) && valid(old);
    let mut moved = false;
    if closes && internal(new) {
        match super::epoll::moving(new, || fds::move_away(new)) {
            Ok(open) => moved = open,
            Err(_) => return -(libc::EMFILE as isize),
        }
    }
    let closing = closes.then(|| closing(new));
    let ret = call();
    if moved && ret < 0 {
        // SAFETY: the engine's file has moved from this number.
        unsafe { raw!(libc::SYS_close, new) };
    }
    drop(closing);
    if old != new {
        duplicated(old, ret);
    }
    ret
}

/// Returns whether a dup2 onto `fd` may close something; beyond the limit there is nothing.
fn may_be(fd: c_int) -> bool {
    gate::watched() && u64::try_from(fd).is_ok_and(|fd| fd < super::close::limit())
}

/// Returns whether `fd` is open: a dup2 from a bad descriptor closes nothing. False, unasked, while
/// there are no rings to close.
fn valid(fd: c_int) -> bool {
    // SAFETY: numbers only.
    gate::watched() && unsafe { raw!(libc::SYS_fcntl, fd, libc::F_GETFD) } >= 0
}
