//! The three system calls, as in section 2 of the manual. They return a raw system call's result: a
//! value, or `-errno`.

pub(crate) mod enter;
pub mod lacks;
pub(crate) mod register;
pub(crate) mod resize;
pub(crate) mod setup;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::drive::iopoll::Args;
pub use register::REGISTERS;
use softring_host::handlers::Call;
pub use softring_host::user::UserPtr;
use softring_uapi::errno::answer;

/// `io_uring_setup(2)`: set up a context for performing asynchronous I/O.
///
/// `params` is the program's; a bad address fails with `-EFAULT`.
pub fn setup(entries: u32, params: UserPtr) -> isize {
    let _call = Call::begin();
    child_check();
    answer(setup::setup(entries, params))
}

/// `io_uring_enter(2)`: initiate and/or complete asynchronous I/O.
pub fn enter(
    fd: i32,
    to_submit: u32,
    min_complete: u32,
    flags: u32,
    arg: usize,
    argsz: usize,
) -> isize {
    let call = Call::begin();
    child_check();
    let args = Args { submit: to_submit, min: min_complete, flags, arg: arg as u64, argsz };
    answer(enter::enter(fd, &args, &call))
}

/// Same as [`enter()`] for a descriptor of one of our rings; `None` if `fd` is none, whatever the
/// flags.
pub fn enter_ours(fd: i32, args: &Args) -> Option<isize> {
    let call = Call::begin();
    child_check();
    let ring = crate::ring::table::find(fd)?;
    Some(answer(enter::enter_by(fd, ring, args, &call)))
}

/// `io_uring_register(2)`: register files, buffers and the like with a ring.
pub fn register(fd: i32, opcode: u32, arg: UserPtr, nr_args: u32) -> isize {
    let _call = Call::begin();
    child_check();
    answer(register::register(fd, opcode, arg, nr_args))
}

/// Detects a fork that no handler reported (a raw system call).
pub(crate) fn child_check() {
    crate::process::forked::check();
}
