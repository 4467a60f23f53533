//! Where lines for people go: to the file that was stderr when the program started, and nowhere
//! else. Nothing is sent to the program for it, and nothing waited for.
#![allow(unsafe_code)]

use crate::raw::raw;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use softring_engine::refused;

/// The device and number of the file that was stderr at start; no file has the device `NONE`.
static STDERR: [AtomicU64; 2] = [AtomicU64::new(NONE), AtomicU64::new(0)];
const NONE: u64 = u64::MAX;
/// Was it one with positions? Those of the program's own are.
static SEEKABLE: AtomicBool = AtomicBool::new(false);

/// What a write to a pipe, a file or a terminal may send to who writes.
const SENT: [i32; 3] = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGTTOU];

/// Remembers which file stderr is.
pub fn start() {
    if let Some(Ok([device, number])) = file(2) {
        // Relaxed: before there are threads.
        STDERR[0].store(device, Ordering::Relaxed);
        STDERR[1].store(number, Ordering::Relaxed);
        SEEKABLE.store(is_seekable(2), Ordering::Relaxed);
    }
}

/// Writes a line to stderr, while descriptor 2 is the file that it was at start. A program may have
/// put a file of its own there. Where that has no room, or nobody reads it, the line is lost. Needs
/// no memory.
pub fn write(line: &[u8]) {
    if refused::spares(libc::SYS_write) && is_stderr() && has_room() {
        quietly(|| {
            // SAFETY: write(2) reads the line, which outlives the call. Its answer does not matter.
            unsafe { raw!(libc::SYS_write, 2, line.as_ptr().expose_provenance(), line.len()) };
        });
    }
}

/// Is descriptor 2 the file that it was at start? Where a filter of the program's lets nobody ask,
/// what has no position is no file of its own.
fn is_stderr() -> bool {
    let at_start = STDERR.each_ref().map(|word| word.load(Ordering::Relaxed));
    match file(2) {
        Some(now) => now == Ok(at_start),
        None => at_start[0] != NONE && (SEEKABLE.load(Ordering::Relaxed) || !is_seekable(2)),
    }
}

fn is_seekable(fd: i32) -> bool {
    // SAFETY: numbers.
    refused::spares(libc::SYS_lseek) && unsafe { raw!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) } >= 0
}

/// The device and number of an open file, or an error, by one of the calls that dynamic loaders
/// make. None if a policy refuses all of them.
fn file(fd: i32) -> Option<Result<[u64; 2], isize>> {
    let refusals = [libc::EPERM, libc::ENOSYS, libc::EACCES].map(|e| -e as isize);
    for nr in [libc::SYS_newfstatat, libc::SYS_fstat].into_iter().filter(|nr| refused::spares(*nr))
    {
        // SAFETY: zero is a valid `stat`, which the kernel fills in; an empty name.
        let (answer, st) = unsafe {
            let mut st: libc::stat = core::mem::zeroed();
            let (name, to) = (c"".as_ptr().expose_provenance(), (&raw mut st).expose_provenance());
            let answer = match nr {
                libc::SYS_fstat => raw!(nr, fd, to),
                _ => raw!(nr, fd, name, to, libc::AT_EMPTY_PATH),
            };
            (answer, st)
        };
        match answer {
            0 => return Some(Ok([st.st_dev, st.st_ino])),
            e if refusals.contains(&e) => {}
            e => return Some(Err(e)),
        }
    }
    None
}

/// Would a line go to stderr at once? Not if nobody reads what is written there.
fn has_room() -> bool {
    let mut fd = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one `pollfd`, which is live.
    let mut poll = || unsafe { raw!(libc::SYS_poll, (&raw mut fd).expose_provenance(), 1, 0) };
    !refused::spares(libc::SYS_poll)
        || poll() < 0
        || fd.revents & (libc::POLLOUT | libc::POLLERR | libc::POLLHUP) == libc::POLLOUT
}

/// Makes a call whose signals do not come: they are blocked meanwhile, and taken away if they were
/// not there before.
fn quietly(call: impl FnOnce()) {
    const SIZE: usize = size_of::<u64>();
    let bit = |signal: i32| 1u64 << (signal - 1);
    let sent = SENT.into_iter().map(bit).fold(0, |a, b| a | b);
    let [mut mask, mut before, mut now] = [0u64; 3];
    let at = |word: &mut u64| core::ptr::from_mut(word).expose_provenance();
    let calls = [libc::SYS_rt_sigprocmask, libc::SYS_rt_sigpending, libc::SYS_rt_sigtimedwait];
    if !calls.into_iter().all(refused::spares) {
        return call();
    }
    // SAFETY: words of our own, as large as is said; what is blocked is let in again below.
    unsafe {
        raw!(libc::SYS_rt_sigpending, at(&mut before), SIZE);
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, at(&mut { sent }), at(&mut mask), SIZE);
        call();
        raw!(libc::SYS_rt_sigpending, at(&mut now), SIZE);
        let mut new = now & !before & !mask & sent;
        let no_time = [0i64; 2];
        while new != 0 {
            let until = no_time.as_ptr().expose_provenance();
            let got = raw!(libc::SYS_rt_sigtimedwait, at(&mut new), 0, until, SIZE);
            new = if got > 0 { new & !bit(got as i32) } else { 0 };
        }
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, at(&mut mask), 0, SIZE);
    }
}
