//! poll(2), ppoll(2) and their checked forms: entries that name a ring are polled through its
//! eventfd.
//!
//! The program's array is left alone: a copy goes to libc, and the answers come back into the
//! original, both by the kernel's hand, so that a bad pointer is `EFAULT`.
//!
//! Before the program learns of a file that is ready, a ring that waits for it says so as well.
#![allow(unsafe_code)]

use super::polled;
use crate::gate::engine_rings;
use crate::raw::{next, raw};
use core::ffi::c_int;
use libc::{nfds_t, pollfd, sigset_t, timespec};

/// What most programs poll at once; more is kept in a mapping, since a signal handler may not call
/// malloc.
const FEW: usize = 32;
const ENTRY: usize = size_of::<pollfd>();

/// `poll(2)`: wait for some event on a file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    let next: Option<F> = next!(c"poll", fn(*mut pollfd, nfds_t, c_int) -> c_int);
    // SAFETY: the program's own call, here and in the other three; libc's, because it is a
    // cancellation point.
    translated(fds, n, |fds| next.map_or(-1, |f| unsafe { f(fds, n, timeout) }))
}

/// `ppoll(2)`: wait for some event on a file descriptor, with a signal mask.
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    let next: Option<F> =
        next!(c"ppoll", fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int);
    // SAFETY: as in `poll`.
    translated(fds, n, |fds| next.map_or(-1, |f| unsafe { f(fds, n, timeout, mask) }))
}

/// `poll` as `_FORTIFY_SOURCE` calls it: the array's size is checked against its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, size: usize) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int, usize) -> c_int;
    let next: Option<F> = next!(c"__poll_chk", fn(*mut pollfd, nfds_t, c_int, usize) -> c_int);
    // SAFETY: as in `poll`.
    translated(fds, n, |fds| next.map_or(-1, |f| unsafe { f(fds, n, timeout, size) }))
}

/// `ppoll` as `_FORTIFY_SOURCE` calls it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    size: usize,
) -> c_int {
    type F =
        unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, usize) -> c_int;
    let next: Option<F> = next!(
        c"__ppoll_chk",
        fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, usize) -> c_int
    );
    // SAFETY: as in `poll`.
    translated(fds, n, |fds| next.map_or(-1, |f| unsafe { f(fds, n, timeout, mask, size) }))
}

fn translated(theirs: *mut pollfd, n: nfds_t, call: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    let ret = through(theirs, n, call);
    if ret > 0 && engine_rings() {
        softring_engine::wait::announce::hurry();
    }
    ret
}

fn through(theirs: *mut pollfd, n: nfds_t, call: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    let bytes = (n as usize).saturating_mul(ENTRY);
    // More than a descriptor table can hold is the kernel's to refuse.
    if !engine_rings() || n == 0 || n > 1 << 20 {
        return call(theirs);
    }
    let mut few = [pollfd { fd: 0, events: 0, revents: 0 }; FEW];
    let ours = if n as usize <= FEW { few.as_mut_ptr() } else { map(bytes) };
    if ours.is_null() || !copy(libc::SYS_process_vm_readv, ours, theirs, bytes) {
        return call(theirs);
    }
    // SAFETY: `ours` holds n entries, just copied.
    let entries = unsafe { core::slice::from_raw_parts_mut(ours, n as usize) };
    let mut rings = false;
    for e in entries.iter_mut().filter(|e| e.fd >= 0) {
        if let Some(fd) = polled(e.fd) {
            if softring_engine::fds::sq_full(e.fd) {
                // A ring is writable while its SQ has room; what stands for it always is.
                e.events &= !(libc::POLLOUT | libc::POLLWRNORM);
            }
            e.fd = fd;
            rings = true;
        }
    }
    let ret = if rings { call(ours) } else { call(theirs) };
    if rings && ret >= 0 {
        give_back(theirs, entries);
    }
    if n as usize > FEW {
        // SAFETY: the mapping made above, of that length.
        unsafe { raw!(libc::SYS_munmap, ours.expose_provenance(), bytes) };
    }
    ret
}

/// The answers go into the program's array, whose address was good a moment ago: each with the fd
/// that is there.
fn give_back(theirs: *mut pollfd, ours: &mut [pollfd]) {
    for (i, e) in ours.iter().enumerate() {
        let at = theirs.wrapping_add(i);
        let revents = (&raw const e.revents).cast::<u8>().cast_mut();
        // SAFETY: address arithmetic only; the kernel does the write.
        let field = unsafe { &raw mut (*at).revents };
        copy(libc::SYS_process_vm_writev, revents.cast(), field.cast(), 2);
    }
}

fn map(bytes: usize) -> *mut pollfd {
    let (prot, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { raw!(libc::SYS_mmap, 0, bytes, prot, how, usize::MAX, 0) };
    if at < 0 { core::ptr::null_mut() } else { core::ptr::with_exposed_provenance_mut(at as usize) }
}

fn copy(nr: libc::c_long, ours: *mut pollfd, theirs: *mut pollfd, bytes: usize) -> bool {
    let ours = [ours.expose_provenance(), bytes];
    let theirs = [theirs.expose_provenance(), bytes];
    let (ours, theirs) = (&raw const ours, &raw const theirs);
    // SAFETY: both iovecs hold `bytes` of memory that is ours, or that the kernel checks as the
    // program's.
    let done = unsafe {
        // The thread's own id: that of the process fails once its first thread has ended.
        let tid = raw!(libc::SYS_gettid);
        raw!(nr, tid, ours.expose_provenance(), 1, theirs.expose_provenance(), 1, 0)
    };
    done == bytes as isize
}
