//! epoll(7): a ring's eventfd represents the ring, whose memfd cannot be polled.
//!
//! A ring is readable while it holds completions; an eventfd stays readable until it is read. So
//! the engine updates the eventfds of a set's rings before each wait on the set.
#![allow(unsafe_code)]

use super::{polled, visible};
use crate::gate::watched;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use libc::{epoll_event, sigset_t, timespec};
use softring_host::fd;
use std::sync::{Mutex, PoisonError};

/// A ring in a set.
struct Member {
    set: c_int,
    ring: c_int,
    /// Descriptor that represents the ring in the set.
    stand_in: c_int,
    event: epoll_event,
}

static MEMBERS: Mutex<Vec<Member>> = Mutex::new(Vec::new());

fn members() -> std::sync::MutexGuard<'static, Vec<Member>> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    let ret = unsafe {
        let member = stand_in.unwrap_or_else(|| visible(fd));
        raw!(libc::SYS_epoll_ctl, visible(epfd), op, member, at)
    };
    if let Some(stand_in) = stand_in.filter(|_| ret == 0) {
        let mut members = members();
        members.retain(|m| fd::is_ring(m.ring) && (m.set, m.ring) != (epfd, fd));
        if op != libc::EPOLL_CTL_DEL {
            // SAFETY: the kernel has just read the event.
            let event = unsafe { event.read_unaligned() };
            members.push(Member { set: epfd, ring: fd, stand_in, event });
        }
    }
    raw::libc_answer(ret) as c_int
}

/// Calls `go`, which may move the engine's `fd` to another number. If `fd` represents a ring, the
/// program's sets get the new number. In a signal handler that has interrupted the holder of the
/// list, [`refresh`] adds the number later; the set keeps the old entry as well, and reports the
/// ring twice.
pub fn moving<E>(fd: c_int, go: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
    const TRIES: u32 = 100;
    let moved = go()?;
    let list = (0..TRIES).find_map(|_| {
        let list = MEMBERS.try_lock().ok();
        if list.is_none() {
            softring_host::threads::yield_now();
        }
        list
    });
    let Some(mut list) = list.filter(|_| moved) else { return Ok(moved) };
    for m in list.iter_mut().filter(|m| m.stand_in == fd) {
        // SAFETY: numbers. The old one means the same file until the program's call replaces it.
        unsafe { raw!(libc::SYS_epoll_ctl, m.set, libc::EPOLL_CTL_DEL, fd, 0) };
        m.follow();
    }
    Ok(moved)
}

impl Member {
    /// Replaces the descriptor in the set by the one that represents the ring now.
    fn follow(&mut self) {
        // `polled` also makes the eventfd, and updates it.
        let Some(new) = polled(self.ring).filter(|new| *new != self.stand_in) else { return };
        let event = (&raw const self.event).expose_provenance();
        // SAFETY: numbers, and an event of ours.
        unsafe { raw!(libc::SYS_epoll_ctl, self.set, libc::EPOLL_CTL_ADD, new, event) };
        self.stand_in = new;
    }
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
    next.map_or(-1, |f| unsafe { f(visible(epfd), events, max, timeout) })
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
    next.map_or(-1, |f| unsafe { f(visible(epfd), events, max, timeout, mask) })
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
        Some(f) => unsafe { f(visible(epfd), events, max, timeout, mask) },
        None => {
            raw::set_errno(libc::ENOSYS);
            -1
        }
    }
}

fn refresh(epfd: c_int) {
    if watched() {
        members().iter_mut().filter(|m| m.set == epfd).for_each(Member::follow);
    }
}
