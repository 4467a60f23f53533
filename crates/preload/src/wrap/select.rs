//! select(2) and pselect(2): as `poll`, with sets instead of arrays.
#![allow(unsafe_code)]

use super::polled;
use crate::gate::engine_rings;
use crate::raw::next;
use core::ffi::c_int;
use libc::{fd_set, sigset_t, timespec, timeval};

const SETS: usize = 3;
const LIMIT: usize = libc::FD_SETSIZE;

/// `select(2)`: synchronous I/O multiplexing.
#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    e: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    type F =
        unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
    let next: Option<F> =
        next!(c"select", fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int);
    translated(n, [r, w, e], |n, [r, w, e]| {
        // SAFETY: the program's own call, or the same with sets of ours.
        next.map_or(-1, |f| unsafe { f(n, r, w, e, timeout) })
    })
}

/// `pselect(2)`: synchronous I/O multiplexing, with a signal mask.
#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    e: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type F = unsafe extern "C" fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int;
    let next: Option<F> = next!(
        c"pselect",
        fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int
    );
    translated(n, [r, w, e], |n, [r, w, e]| {
        // SAFETY: as in `select`.
        next.map_or(-1, |f| unsafe { f(n, r, w, e, timeout, mask) })
    })
}

/// Puts each ring's stand-in in its place. Sets beyond FD_SETSIZE (which some programs allocate)
/// and stand-ins that do not fit one go to libc as they are.
fn translated(
    n: c_int,
    theirs: [*mut fd_set; SETS],
    call: impl Fn(c_int, [*mut fd_set; SETS]) -> c_int,
) -> c_int {
    if !engine_rings() || n <= 0 || n as usize > LIMIT {
        return call(n, theirs);
    }
    let mut rings = [(0 as c_int, 0 as c_int); LIMIT];
    let mut found = 0;
    let mut top = n;
    for fd in 0..n {
        if let Some(stand_in) = polled(fd).filter(|f| (*f as usize) < LIMIT) {
            rings[found] = (fd, stand_in);
            found += 1;
            top = top.max(stand_in + 1);
        }
    }
    let rings = &rings[..found];
    // SAFETY: a set is at least n bits long (select(2)); null ones are skipped by `used`.
    let used =
        |s: usize, fd: c_int| unsafe { !theirs[s].is_null() && libc::FD_ISSET(fd, theirs[s]) };
    if !rings.iter().any(|(fd, _)| (0..SETS).any(|s| used(s, *fd))) {
        return call(n, theirs);
    }
    // SAFETY: fd_set is an array of integers: zero is the empty set.
    let mut sets: [fd_set; SETS] = unsafe { core::mem::zeroed() };
    let mut ours = [core::ptr::null_mut(); SETS];
    for s in (0..SETS).filter(|s| !theirs[*s].is_null()) {
        ours[s] = &raw mut sets[s];
        for fd in (0..n).filter(|fd| used(s, *fd)) {
            let stand_in = rings.iter().find(|(ring, _)| *ring == fd).map_or(fd, |r| r.1);
            // SAFETY: below FD_SETSIZE, into a whole set of ours.
            unsafe { libc::FD_SET(stand_in, ours[s]) };
        }
    }
    let ret = call(top, ours);
    if ret >= 0 {
        hand_back(n, theirs, ours, rings);
    }
    ret
}

fn hand_back(
    n: c_int,
    theirs: [*mut fd_set; SETS],
    ours: [*mut fd_set; SETS],
    rings: &[(c_int, c_int)],
) {
    for s in (0..SETS).filter(|s| !theirs[*s].is_null()) {
        for fd in 0..n {
            let stand_in = rings.iter().find(|(ring, _)| *ring == fd).map_or(fd, |r| r.1);
            // SAFETY: below n, into the program's own set, which is at least that long; ours is
            // whole.
            unsafe {
                if libc::FD_ISSET(stand_in, ours[s]) {
                    libc::FD_SET(fd, theirs[s]);
                } else {
                    libc::FD_CLR(fd, theirs[s]);
                }
            }
        }
    }
}
