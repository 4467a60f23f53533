//! select(2) and pselect(2): like `poll`, with sets instead of arrays. The kernel copies the
//! program's sets in and out, so that a bad pointer is `EFAULT`.
#![allow(unsafe_code)]

use super::sleep::awake;
use super::{internal, polled};
use crate::gate::watched;
use crate::raw::{self, next};
use core::ffi::c_int;
use libc::{fd_set, sigset_t, timespec, timeval};
use softring_host::fd;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::Errno;

const SETS: usize = 3;
const LIMIT: usize = libc::FD_SETSIZE;
/// A set as the kernel sees it. A call reads and writes as many words as hold `n` bits.
type Words = [u64; LIMIT / 64];
/// The sets of a call.
type Sets = [*mut fd_set; SETS];

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
    libc_select(n, [r, w, e], |n, [r, w, e]| {
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
    libc_select(n, [r, w, e], |n, [r, w, e]| {
        // SAFETY: as in `select`.
        next.map_or(-1, |f| unsafe { f(n, r, w, e, timeout, mask) })
    })
}

fn libc_select(n: c_int, theirs: Sets, call: impl Fn(c_int, Sets) -> c_int) -> c_int {
    raw::libc_answer(translated(n, theirs, &|n, sets| raw::kernel_answer(call(n, sets)))) as c_int
}

/// Handles select(2) and pselect6(2) by number.
///
/// # Safety
/// The program's own call.
pub unsafe fn by_number(nr: usize, a: &[usize; 6]) -> isize {
    let sets = [a[1], a[2], a[3]].map(core::ptr::with_exposed_provenance_mut);
    translated(a[0] as c_int, sets, &|n, sets| {
        let [r, w, e] = sets.map(|set| set.expose_provenance());
        // SAFETY: our caller's, or the same with sets of ours.
        unsafe { raw::syscall6(nr, &[n as usize, r, w, e, a[4], a[5]]) }
    })
}

/// Replaces each ring by its stand-in. Sets beyond FD_SETSIZE (which some programs allocate) and
/// rings whose stand-in does not fit into a set go to libc unchanged. Answers as the kernel does.
fn translated(n: c_int, theirs: Sets, call: &dyn Fn(c_int, Sets) -> isize) -> isize {
    if theirs.iter().all(|set| set.is_null()) {
        return awake(call(n, theirs));
    }
    if !watched() || n <= 0 || n as usize > LIMIT {
        return call(n, theirs);
    }
    if fd::sets::any_quiet() {
        (0..n).for_each(fd::sets::reveal);
    }
    if !(0..n).any(|fd| fd::is_ring(fd) || fd::is_internal(fd)) {
        return call(n, theirs);
    }
    with_rings(n, theirs, call)
}

/// Does so where rings may be in the sets. Never inlined: its room would be on the stack of every
/// call, which may be an alternate signal stack.
#[inline(never)]
fn with_rings(n: c_int, theirs: Sets, call: &dyn Fn(c_int, Sets) -> isize) -> isize {
    let Some(read) = copy_in(n, &theirs) else { return Errno::EFAULT.ret() };
    let named = |fd: &c_int| read.iter().any(|set| has(set, *fd));
    if (0..n).any(|fd| fd::is_internal(fd) && named(&fd) && internal(fd)) {
        return Errno::EBADF.ret();
    }
    let used = |fd: &c_int| fd::is_ring(*fd) && named(fd);
    let mut rings = [(0 as c_int, 0 as c_int); LIMIT];
    let mut found = 0;
    let mut top = n;
    for fd in (0..n).filter(used) {
        if let Some(stand_in) = polled(fd).filter(|f| (*f as usize) < LIMIT) {
            rings[found] = (fd, stand_in);
            found += 1;
            top = top.max(stand_in + 1);
        }
    }
    let rings = &rings[..found];
    if rings.is_empty() {
        return call(n, theirs);
    }
    let mut sets = [Words::default(); SETS];
    let mut ours = [core::ptr::null_mut(); SETS];
    for s in (0..SETS).filter(|s| !theirs[*s].is_null()) {
        for fd in (0..n).filter(|fd| has(&read[s], *fd)) {
            put(&mut sets[s], stand_in(rings, fd));
        }
        ours[s] = (&raw mut sets[s]).cast();
    }
    let ret = call(top, ours);
    if ret >= 0 && write_back(n, &theirs, &sets, rings).is_none() {
        return Errno::EFAULT.ret();
    }
    ret
}

fn stand_in(rings: &[(c_int, c_int)], fd: c_int) -> c_int {
    rings.iter().find(|(ring, _)| *ring == fd).map_or(fd, |r| r.1)
}

fn has(set: &Words, fd: c_int) -> bool {
    set[fd as usize / 64] >> (fd % 64) & 1 == 1
}

fn put(set: &mut Words, fd: c_int) {
    set[fd as usize / 64] |= 1 << (fd % 64);
}

/// Returns the number of words of a set that hold `n` bits.
fn words(n: c_int) -> usize {
    (n as usize).div_ceil(64)
}

/// Reads the program's sets up to number `n`; `None` if one cannot be read.
fn copy_in(n: c_int, theirs: &Sets) -> Option<[Words; SETS]> {
    let mut sets = [Words::default(); SETS];
    for (set, at) in sets.iter_mut().zip(theirs).filter(|(_, at)| !at.is_null()) {
        user::read_slice(at.expose_provenance() as u64, &mut set[..words(n)]).ok()?;
        if n % 64 != 0 {
            set[words(n) - 1] &= (1 << (n % 64)) - 1;
        }
    }
    Some(sets)
}

/// Writes the program's sets anew, as the kernel does; `None` if one cannot be written.
fn write_back(
    n: c_int,
    theirs: &Sets,
    ours: &[Words; SETS],
    rings: &[(c_int, c_int)],
) -> Option<()> {
    for (at, set) in theirs.iter().zip(ours).filter(|(at, _)| !at.is_null()) {
        let mut answer = Words::default();
        for fd in (0..n).filter(|fd| has(set, stand_in(rings, *fd))) {
            put(&mut answer, fd);
        }
        // SAFETY: a set of the program's call.
        let at = unsafe { UserPtr::of_program(at.expose_provenance() as u64) };
        user::write_slice(at, &answer[..words(n)]).ok()?;
    }
    Some(())
}
