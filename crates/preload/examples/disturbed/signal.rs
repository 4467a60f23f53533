//! SIGALRM, once or repeatedly, and its handlers.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize};
use std::time::Duration;

static RAN: AtomicUsize = AtomicUsize::new(0);
/// Arguments of a handler's enter: the descriptor, and the number of completions to wait for.
static RING: AtomicI32 = AtomicI32::new(-1);
static WANT: AtomicU32 = AtomicU32::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

pub type Handler = extern "C" fn(i32);

/// Counts the signal.
pub extern "C" fn count(_: i32) {
    RAN.fetch_add(1, SeqCst);
}

/// Enters the ring of [`enters`].
pub extern "C" fn enter(_: i32) {
    const GETEVENTS: u32 = 1;
    let (fd, want) = (RING.load(SeqCst), WANT.load(SeqCst));
    // SAFETY: no memory is passed; errno is the interrupted code's.
    unsafe {
        let errno = *libc::__errno_location();
        let r = libc::syscall(libc::SYS_io_uring_enter, fd, 0, want, GETEVENTS, 0, 0);
        REFUSED.fetch_add(usize::from(r < 0), SeqCst);
        *libc::__errno_location() = errno;
    }
    RAN.fetch_add(1, SeqCst);
}

/// Makes [`enter`] enter this ring, and wait for `want` completions.
pub fn enters(fd: i32, want: u32) {
    RING.store(fd, SeqCst);
    WANT.store(want, SeqCst);
}

/// Returns how many handlers' calls were answered by an error.
pub fn refused() -> usize {
    REFUSED.load(SeqCst)
}

/// Returns how many handlers have run.
pub fn ran() -> usize {
    RAN.load(SeqCst)
}

fn set(handler: Handler, first: Duration, then: Duration) {
    let time = |d: Duration| libc::timeval {
        tv_sec: d.as_secs() as i64,
        tv_usec: i64::from(d.subsec_micros()),
    };
    let timer = libc::itimerval { it_interval: time(then), it_value: time(first) };
    // SAFETY: zero is a valid sigaction; the handler is one, and touches atomics only.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGALRM, &raw const act, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
}

/// Raises one signal after `time`.
pub fn raise_in(time: Duration, handler: Handler) {
    set(handler, time, Duration::ZERO);
}

/// Raises a signal every `time`; zero: none any more.
pub fn every(time: Duration, handler: Handler) {
    set(handler, time, time);
}
