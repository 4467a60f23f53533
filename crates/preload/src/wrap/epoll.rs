//! epoll(7): a ring's eventfd stands for the ring, whose memfd cannot be polled.
//!
//! A ring is readable while it holds completions; an eventfd stays readable until it is read. So
//! before each wait on a set that holds rings, the engine brings their eventfds up to date.
#![allow(unsafe_code)]

use super::polled;
use crate::gate::engine_rings;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use libc::{epoll_event, sigset_t, timespec};
use softring_engine::fds;
use std::sync::{Mutex, PoisonError};

/// Which rings are in which sets: (set, ring).
static MEMBERS: Mutex<Vec<(c_int, c_int)>> = Mutex::new(Vec::new());

/// `epoll_ctl(2)`: control interface for an epoll file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let stand_in = polled(fd);
    let at = event.expose_provenance();
    // SAFETY: the program's own call, with its own pointer.
    let ret = unsafe { raw!(libc::SYS_epoll_ctl, epfd, op, stand_in.unwrap_or(fd), at) };
    if stand_in.is_some() && ret == 0 {
        let mut members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        match op {
            libc::EPOLL_CTL_ADD => {
                members.retain(|m| fds::is_ring(m.1));
                members.push((epfd, fd));
            }
            libc::EPOLL_CTL_DEL => members.retain(|m| *m != (epfd, fd)),
            _ => {}
        }
    }
    raw::libc_answer(ret) as c_int
}

/// `epoll_wait(2)`: wait for an I/O event on an epoll file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    refresh(epfd);
    let next = next!(c"epoll_wait", fn(c_int, *mut epoll_event, c_int, c_int) -> c_int);
    // SAFETY: the program's own call, here and in the other two; libc's, because it is a
    // cancellation point.
    next.map_or(-1, |f| unsafe { f(epfd, events, max, timeout) })
}

/// `epoll_pwait(2)`: `epoll_wait` with a signal mask.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    refresh(epfd);
    let next =
        next!(c"epoll_pwait", fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int);
    // SAFETY: as in `epoll_wait`.
    next.map_or(-1, |f| unsafe { f(epfd, events, max, timeout, mask) })
}

/// `epoll_pwait2(2)`: `epoll_pwait` with nanoseconds.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    refresh(epfd);
    let next = next!(
        c"epoll_pwait2",
        fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int
    );
    match next {
        // SAFETY: as in `epoll_wait`.
        Some(f) => unsafe { f(epfd, events, max, timeout, mask) },
        None => {
            raw::set_errno(libc::ENOSYS);
            -1
        }
    }
}

fn refresh(epfd: c_int) {
    if engine_rings() {
        let members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, ring) in members.iter().filter(|m| m.0 == epfd) {
            // Also what makes the eventfd; here for its effect.
            let _ = polled(*ring);
        }
    }
}
