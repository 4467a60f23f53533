//! poll(2) and related calls, by the C library's functions, and signals for a thread in one.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A thread, for [`signal_thread`].
#[derive(Clone, Copy, Debug)]
pub struct Thread(libc::pthread_t);

fn entries(fds: &[RawFd]) -> Vec<libc::pollfd> {
    fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect()
}

/// Calls `poll(2)` for input; returns the number of ready fds, or -1.
pub fn poll(fds: &[RawFd], ms: i32) -> i32 {
    let mut list = entries(fds);
    // SAFETY: the array lives through the call, here and in `ppoll`.
    unsafe { libc::poll(list.as_mut_ptr(), list.len() as u64, ms) }
}

/// Calls `ppoll(2)` for input, without a mask; returns the number of ready fds, or -1.
pub fn ppoll(fds: &[RawFd], ms: i32) -> i32 {
    let mut list = entries(fds);
    let (tv_sec, tv_nsec) = ((ms / 1000).into(), i64::from(ms % 1000) * 1_000_000);
    let time = libc::timespec { tv_sec, tv_nsec };
    let n = list.len() as u64;
    // SAFETY: as above, and `time` lives, too.
    unsafe { libc::ppoll(list.as_mut_ptr(), n, &raw const time, core::ptr::null()) }
}

/// Calls `poll(2)` or `ppoll(2)` with an array of `n` entries at any address; returns the result,
/// or `-errno`. `mask`: signals that are blocked meanwhile; none: those that are, by poll(2).
pub fn poll_at(at: usize, n: usize, ms: i32, mask: Option<u64>) -> i32 {
    let array = core::ptr::with_exposed_provenance_mut(at);
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(ms) * 1_000_000 };
    // SAFETY: the kernel says if the array is bad; a zeroed set is valid, and its first word is the
    // kernel's.
    let found = unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        (&raw mut set).cast::<u64>().write_unaligned(mask.unwrap_or_default());
        match mask {
            Some(_) => libc::ppoll(array, n as u64, &raw const time, &raw const set),
            None => libc::poll(array, n as u64, ms),
        }
    };
    if found < 0 { -crate::entry::errno() } else { found }
}

/// Does the same with these files and events, and returns what each has. The array held other
/// answers before.
pub fn poll_each(files: &[(RawFd, i16)], ms: i32, mask: Option<u64>) -> (i32, Vec<i16>) {
    let entry = |&(fd, events)| libc::pollfd { fd, events, revents: 0x7ff };
    let mut list: Vec<_> = files.iter().map(entry).collect();
    let found = poll_at(list.as_mut_ptr().expose_provenance(), list.len(), ms, mask);
    (found, list.iter().map(|e| e.revents).collect())
}

/// Makes an array of one entry at `at`, of mapped memory.
pub fn put_entry(at: usize, fd: RawFd, events: i16) {
    let entry = core::ptr::with_exposed_provenance_mut::<libc::pollfd>(at);
    // SAFETY: the memory is the caller's, who uses it for this.
    unsafe { entry.write_unaligned(libc::pollfd { fd, events, revents: 0x7ff }) };
}

/// Lets nobody write to the page at `at`.
pub fn protect(at: usize) {
    // SAFETY: the page is the caller's own, who does not write to it any more.
    unsafe { libc::mprotect(core::ptr::with_exposed_provenance_mut(at), 4096, libc::PROT_READ) };
}

/// Calls `select(2)` for input; returns the number of ready fds, or -1.
pub fn select(fd: RawFd, ms: i32) -> i32 {
    let mut time =
        libc::timeval { tv_sec: (ms / 1000).into(), tv_usec: i64::from(ms % 1000) * 1000 };
    let none = core::ptr::null_mut();
    // SAFETY: a zeroed fd_set is valid; the set and the time live through the call.
    unsafe {
        let mut set: libc::fd_set = core::mem::zeroed();
        libc::FD_SET(fd, &raw mut set);
        libc::select(fd + 1, &raw mut set, none, none, &raw mut time)
    }
}

/// Calls `epoll_ctl(2)`; returns 0 or -1.
pub fn epoll_ctl(set: RawFd, op: i32, fd: RawFd, events: i32, data: u64) -> i32 {
    let mut event = libc::epoll_event { events: events as u32, u64: data };
    // SAFETY: the event lives through the call.
    unsafe { libc::epoll_ctl(set, op, fd, &raw mut event) }
}

/// Calls `epoll_wait(2)` for `max` of at most eight events; returns the result, and of each file
/// its events and its data.
pub fn epoll_wait(set: RawFd, max: i32, ms: i32) -> (i32, Vec<(u32, u64)>) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
    // SAFETY: `events` has room for eight events.
    let n = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), max.min(8), ms) };
    let got = &events[..usize::try_from(n).unwrap_or(0)];
    (n, got.iter().map(|e| (e.events, e.u64)).collect())
}

/// Calls `epoll_wait(2)` without waiting, with an array of `max` events at any address; returns the
/// result, or `-errno`.
pub fn epoll_wait_at(set: RawFd, at: usize, max: i32) -> i32 {
    let array = core::ptr::with_exposed_provenance_mut(at);
    // SAFETY: nothing lies at the addresses that the cases name, and the kernel says so.
    let n = unsafe { libc::epoll_wait(set, array, max, 0) };
    if n < 0 { -crate::entry::errno() } else { n }
}

/// Handles SIGUSR1 by `handler` from now on.
pub fn on_usr1(handler: extern "C" fn(i32)) {
    // SAFETY: a zeroed action is valid; the handler does only what handlers may do.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut());
    }
}

/// Returns the calling thread.
pub fn thread() -> Thread {
    // SAFETY: pthread_self has no arguments.
    Thread(unsafe { libc::pthread_self() })
}

/// Sends SIGUSR1 to a thread that is still there.
pub fn signal_thread(thread: Thread) {
    // SAFETY: the caller says that the thread is still there.
    unsafe { libc::pthread_kill(thread.0, libc::SIGUSR1) };
}

/// Calls `io_uring_enter(2)` through the C library's syscall(2), as a handler may do.
pub fn submit(ring: RawFd, n: u32) -> i64 {
    // SAFETY: the arguments are numbers.
    unsafe { libc::syscall(libc::SYS_io_uring_enter, ring, n, 0, 0, 0, 0) }
}

/// Calls `dup(2)`.
///
/// # Errors
/// The call's errno.
pub fn dup(fd: RawFd) -> std::io::Result<OwnedFd> {
    // SAFETY: dup takes a number, and the new descriptor is ours.
    unsafe {
        match libc::dup(fd) {
            -1 => Err(std::io::Error::last_os_error()),
            new => Ok(OwnedFd::from_raw_fd(new)),
        }
    }
}
