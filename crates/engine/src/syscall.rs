//! The three system calls, as in section 2 of the manual. They answer as a raw system call does: a value, or `-errno`.
#![allow(unsafe_code)]

/// `io_uring_setup(2)`: set up a context for performing asynchronous I/O.
///
/// `params` is the program's pointer; a bad one answers `-EFAULT`.
pub fn setup(_entries: u32, _params: usize) -> isize {
    -38
}

/// `io_uring_enter(2)`: initiate and/or complete asynchronous I/O.
pub fn enter(
    _fd: i32,
    _to_submit: u32,
    _min_complete: u32,
    _flags: u32,
    _arg: usize,
    _argsz: usize,
) -> isize {
    -9
}

/// `io_uring_register(2)`: register files, buffers and the like with a ring.
pub fn register(_fd: i32, _opcode: u32, _arg: usize, _nr_args: u32) -> isize {
    -9
}
