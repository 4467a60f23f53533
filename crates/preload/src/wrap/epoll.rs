//! epoll_ctl(2): a ring's eventfd stands for the ring, whose memfd cannot be polled.
#![allow(unsafe_code)]

use super::polled;
use crate::raw::{self, raw};
use core::ffi::c_int;

/// `epoll_ctl(2)`: control interface for an epoll file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    let fd = polled(fd).unwrap_or(fd);
    // SAFETY: the program's own call, with its own pointer.
    let ret = unsafe { raw!(libc::SYS_epoll_ctl, epfd, op, fd, event.expose_provenance()) };
    raw::libc_answer(ret) as c_int
}
