//! POSIX locks: fcntl(2) with `F_SETLK` or `F_SETLKW`, and lockf(3). If the engine has closed a
//! descriptor of the file, and so removed the lock, the lock is set again before the program's call
//! returns.
#![allow(unsafe_code)]

use crate::raw::{self, next, raw};
use core::ffi::c_int;
use libc::off_t;
use softring_host::fd;
use softring_host::user;

/// `lockf(3)`: apply, test or remove a POSIX lock on an open file. libc makes its system call
/// without calling our `fcntl`.
#[unsafe(no_mangle)]
unsafe extern "C" fn lockf(fd: c_int, cmd: c_int, len: off_t) -> c_int {
    libc_lockf(fd, cmd, len, next!(c"lockf", fn(c_int, c_int, off_t) -> c_int))
}

/// `lockf(3)`, under the name that programs with 64-bit offsets use.
#[unsafe(no_mangle)]
unsafe extern "C" fn lockf64(fd: c_int, cmd: c_int, len: off_t) -> c_int {
    libc_lockf(fd, cmd, len, next!(c"lockf64", fn(c_int, c_int, off_t) -> c_int))
}

type Lockf = unsafe extern "C" fn(c_int, c_int, off_t) -> c_int;

fn libc_lockf(fd: c_int, cmd: c_int, len: off_t, next: Option<Lockf>) -> c_int {
    let Some(next) = next else { return raw::libc_answer(-(libc::ENOSYS as isize)) as c_int };
    // SAFETY: the program's own call.
    let call = |cmd| unsafe { next(fd, cmd, len) } as isize;
    let again = || raw::kernel_answer(call(libc::F_TLOCK) as c_int);
    let ret = match cmd {
        libc::F_LOCK => set(fd, true, || call(cmd), again, raw::libc_answer),
        libc::F_TLOCK => set(fd, false, || call(cmd), again, raw::libc_answer),
        _ => call(cmd),
    };
    ret as c_int
}

/// Handles fcntl(2) with a command that sets a lock; `None` for other commands. `call` makes the
/// program's call. Returns its answer, or the kernel's, converted by `answer`.
pub fn set_by_fcntl(
    fd: c_int,
    cmd: c_int,
    arg: usize,
    call: impl Fn() -> isize,
    answer: fn(isize) -> isize,
) -> Option<isize> {
    if cmd != libc::F_SETLK && cmd != libc::F_SETLKW {
        return None;
    }
    let again = || match user::read::<u32>(arg as u64) {
        // An unlock, as the first two bytes say: there is no lock to lose.
        Ok(kind) if kind as u16 == libc::F_UNLCK as u16 => 0,
        // SAFETY: the program's own call, once more.
        _ => unsafe { raw!(libc::SYS_fcntl, fd, libc::F_SETLK, arg) },
    };
    Some(set(fd, cmd == libc::F_SETLKW, call, again, answer))
}

/// Makes a call that sets a lock, and repeats it until the lock is there for sure, or another
/// process has it. `again` answers as the kernel does, and never waits.
fn set(
    fd: c_int,
    waits: bool,
    call: impl Fn() -> isize,
    again: impl Fn() -> isize,
    answer: fn(isize) -> isize,
) -> isize {
    loop {
        let setter = fd::Setter::begin();
        let ret = call();
        if ret < 0 || setter.has_lock() {
            return ret;
        }
        let ret = fd::set_again(fd, &again);
        let taken = matches!(-ret as c_int, libc::EAGAIN | libc::EACCES);
        if !(waits && taken) {
            return answer(ret);
        }
    }
}
