//! Polls and sleeps of the calling thread: poll(2), nanosleep(2) and their kin.
#![allow(unsafe_code)]

use core::time::Duration;

use super::{ends_by_stop, nr, sleeps, sys};
use softring_uapi::errno::{Errno, Result, check};

pub const POLLIN: i16 = 1;
/// Event: urgent data is there.
pub const POLLPRI: i16 = 2;
pub const POLLOUT: i16 = 4;

/// Entry of poll(2).
pub type PollEntry = nr::pollfd;

/// Makes an entry that asks for `events` of `fd`.
pub const fn poll_entry(fd: i32, events: i16) -> PollEntry {
    PollEntry { fd, events, revents: 0 }
}

/// Calls `poll(2)` on one descriptor without waiting; returns the ready events.
pub fn poll_now(fd: i32, events: i16) -> i16 {
    let mut p = poll_entry(fd, events);
    poll_all_now(core::slice::from_mut(&mut p));
    p.revents
}

/// Calls `poll(2)` on all entries at once, without waiting; false if it failed.
pub fn poll_all_now(entries: &mut [PollEntry]) -> bool {
    let (at, n) = (entries.as_mut_ptr().expose_provenance(), entries.len());
    let now = [0u64; 2];
    let now = now.as_ptr().expose_provenance();
    // SAFETY: the entries are the caller's; the time is only read.
    unsafe {
        match sys!(__NR_poll, at, n, 0) {
            refused if refused == Errno::ENOSYS.res() as isize => {
                sys!(__NR_ppoll, at, n, now, 0, 8) >= 0
            }
            done => done >= 0,
        }
    }
}

/// Calls `ppoll(2)` on up to 8 descriptors until one can be read; returns true if the time ran out.
pub fn poll_in(fds: &[i32], time: Duration) -> bool {
    let mut set = [const { poll_entry(-1, POLLIN) }; 8];
    set.iter_mut().zip(fds).for_each(|(p, fd)| p.fd = *fd);
    let ts = [time.as_secs(), u64::from(time.subsec_nanos())];
    let n = fds.len().min(set.len());
    let set = set.as_mut_ptr().expose_provenance();
    // SAFETY: the set is ours, and holds `n`; the time is only read.
    unsafe { sys!(__NR_ppoll, set, n, ts.as_ptr().expose_provenance(), 0, 8) == 0 }
}

/// Calls `poll(2)` on one descriptor without a timeout; returns the ready events.
///
/// # Errors
/// As poll(2): `EINTR`.
pub fn poll_wait(fd: i32, events: i16) -> Result<i16> {
    let mut p = poll_entry(fd, events);
    let at = (&raw mut p).expose_provenance();
    // SAFETY: the one `struct pollfd` is ours.
    let mut got = check(unsafe { sys!(__NR_poll, at, 1, usize::MAX) });
    if got == Err(Errno::ENOSYS) {
        // SAFETY: as above.
        got = check(unsafe { sys!(__NR_ppoll, at, 1, 0, 0, 8) });
    }
    got.map(|_| p.revents)
}

/// Calls `nanosleep(2)`.
///
/// # Errors
/// `EINTR` when a handler ran.
pub fn sleep(time: Duration) -> Result<()> {
    let ts = [time.as_secs(), u64::from(time.subsec_nanos())];
    // SAFETY: the time is only read.
    check(unsafe { sleeps!(__NR_nanosleep, ts.as_ptr().expose_provenance(), 0) }).map(|_| ())
}

/// Sleeps for some time, or until a handler has run. Does not use the C library's function, behind
/// which the thread's task work is due.
pub fn pause(time: Duration) {
    let ts = [time.as_secs(), u64::from(time.subsec_nanos())];
    // SAFETY: the time is only read.
    unsafe { sys!(__NR_nanosleep, ts.as_ptr().expose_provenance(), 0) };
}

/// Sleeps with `mask` in force, atomically as `ppoll(2)` does.
///
/// # Errors
/// `EINTR` when a handler ran, or the process was stopped.
pub fn sleep_under(mask: u64, time: Duration) -> Result<()> {
    poll_or_stop(Some(mask), -1, time)
}

/// Sleeps for `time`, or until `fd` can be read, under `mask`, or without one under the thread's
/// own.
///
/// # Errors
/// `EINTR` when a handler ran, or the process was stopped.
pub fn poll_or_stop(mask: Option<u64>, fd: i32, time: Duration) -> Result<()> {
    ends_by_stop(|| poll_under(mask, fd, Some(time)))
}

/// Sleeps as [`poll_or_stop`] does, but a stop does not end it; without a time, for ever.
///
/// # Errors
/// `EINTR` when a handler ran.
pub fn poll_under(mask: Option<u64>, fd: i32, time: Option<Duration>) -> Result<()> {
    ppoll(&mut [poll_entry(fd, POLLIN)], time, mask).map(|_| ())
}

/// Calls `ppoll(2)` on `entries` under `mask`, for `time` at most (`None`: without end). Returns
/// how many are ready. A signal does not end a call with a time of zero.
///
/// # Errors
/// `EINTR` when a signal came, `EINVAL` for more entries than RLIMIT_NOFILE allows.
pub fn poll_entries(
    entries: &mut [PollEntry],
    time: Option<Duration>,
    mask: Option<u64>,
) -> Result<usize> {
    if time != Some(Duration::ZERO) {
        return ppoll(entries, time, mask);
    }
    let (at, n, now) = (entries.as_mut_ptr().expose_provenance(), entries.len(), [0u64; 2]);
    // SAFETY: the entries are ours for the call; the time is only read.
    check(unsafe { sys!(__NR_ppoll, at, n, now.as_ptr().expose_provenance(), 0, 8) })
}

/// Calls ppoll(2); a signal ends the call, however early the signal comes.
fn ppoll(entries: &mut [PollEntry], time: Option<Duration>, mask: Option<u64>) -> Result<usize> {
    let ts = time.map(|time| [time.as_secs(), u64::from(time.subsec_nanos())]);
    let ts = ts.as_ref().map_or(0, |ts| ts.as_ptr().expose_provenance());
    let mask = mask.as_ref().map_or(0, |mask| core::ptr::from_ref(mask).expose_provenance());
    let (at, n) = (entries.as_mut_ptr().expose_provenance(), entries.len());
    // SAFETY: the entries are ours for the call; the time and the mask are only read.
    check(unsafe { sleeps!(__NR_ppoll, at, n, ts, mask, 8) })
}

/// Has pending signals of the calling thread handled, as far as `mask` lets them in. The caller
/// holds no lock that a handler could want.
///
/// # Errors
/// `EINTR` when a handler ran.
pub fn handle_signals(mask: u64) -> Result<()> {
    sleep_under(mask, Duration::ZERO)
}

/// Sleeps until `until`, in ns of CLOCK_MONOTONIC, or until a signal comes.
pub fn sleep_until(until: u64) {
    const CLOCK_MONOTONIC: usize = 1;
    const TIMER_ABSTIME: usize = 1;
    let ts = [until / 1_000_000_000, until % 1_000_000_000];
    let ts = ts.as_ptr().expose_provenance();
    // SAFETY: the time is only read.
    unsafe { sys!(__NR_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, ts, 0) };
}
