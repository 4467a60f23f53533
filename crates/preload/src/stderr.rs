//! Output of lines for people: to the file that was stderr when the program started, and nowhere
//! else. It sends the program no signal, and does not wait.
#![allow(unsafe_code)]

use crate::raw::raw;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use softring_host::refused;
use softring_uapi::errno::Errno;

/// Device and number of the file that was stderr at start; no file has the device `NONE`.
static STDERR: [AtomicU64; 2] = [AtomicU64::new(NONE), AtomicU64::new(0)];
const NONE: u64 = u64::MAX;
/// Flag, true if this was a regular file, as files of the program's own are.
static REGULAR: AtomicBool = AtomicBool::new(false);

/// Remembers which file stderr is.
pub fn start() {
    if let Some(Ok(file)) = stat(2) {
        // Relaxed: before there are threads.
        STDERR[0].store(file.st_dev, Ordering::Relaxed);
        STDERR[1].store(file.st_ino, Ordering::Relaxed);
        REGULAR.store(file.st_mode & libc::S_IFMT == libc::S_IFREG, Ordering::Relaxed);
    }
}

/// Writes a line to stderr, while descriptor 2 is the file that it was at start: a program may have
/// put a file of its own there. If the file has no room, or nobody reads it, the line is lost.
/// Needs no memory.
pub fn write(line: &[u8]) {
    if refused::spares(libc::SYS_write) && is_stderr() && has_room(line.len()) {
        // SAFETY: write(2) reads the line, which outlives the call.
        quietly(|| unsafe {
            raw!(libc::SYS_write, 2, line.as_ptr().expose_provenance(), line.len())
        });
    }
}

/// Returns whether descriptor 2 is the file that it was at start. If a filter refuses the question,
/// a regular file at start counts as this file, and so does a file without a position, as the
/// program's own would have one.
fn is_stderr() -> bool {
    let at_start = STDERR.each_ref().map(|word| word.load(Ordering::Relaxed));
    match stat(2) {
        Some(now) => now.is_ok_and(|file| [file.st_dev, file.st_ino] == at_start),
        None => at_start[0] != NONE && (REGULAR.load(Ordering::Relaxed) || position().is_none()),
    }
}

/// Returns the position of the file at descriptor 2, if it has positions.
fn position() -> Option<u64> {
    if !refused::spares(libc::SYS_lseek) {
        return None;
    }
    // SAFETY: numbers.
    u64::try_from(unsafe { raw!(libc::SYS_lseek, 2, 0, libc::SEEK_CUR) }).ok()
}

/// Returns the `stat` of an open file, or an error, by one of the calls that dynamic loaders make.
/// `None` if a policy refuses all of them.
fn stat(fd: i32) -> Option<Result<libc::stat, isize>> {
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
            0 => return Some(Ok(st)),
            e if refused::refuses(Errno(-e as i32)) => {}
            e => return Some(Err(e)),
        }
    }
    None
}

/// Returns whether a line of so many bytes would go to stderr at once, and without a signal. False
/// if nobody reads what is written there, or if it passes the limit on the size of files.
fn has_room(len: usize) -> bool {
    is_ready() && fits(len)
}

fn is_ready() -> bool {
    let mut fd = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    let at = (&raw mut fd).expose_provenance();
    // SAFETY: one `pollfd`, which is live; no time to wait.
    let asked = unsafe {
        let no_time = [0i64; 2];
        let until = no_time.as_ptr().expose_provenance();
        (refused::spares(libc::SYS_poll) && raw!(libc::SYS_poll, at, 1, 0) >= 0)
            || (refused::spares(libc::SYS_ppoll) && raw!(libc::SYS_ppoll, at, 1, until, 0, 0) >= 0)
    };
    !asked || fd.revents & (libc::POLLOUT | libc::POLLERR | libc::POLLHUP) == libc::POLLOUT
}

/// Returns whether a file has room for so many bytes more, at its position and behind its end.
fn fits(len: usize) -> bool {
    let Some(at) = position().filter(|_| refused::spares(libc::SYS_prlimit64)) else {
        return true;
    };
    let mut limit = [u64::MAX; 2];
    let to = limit.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel fills in the two words.
    unsafe { raw!(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, 0, to) };
    let end = stat(2).and_then(Result::ok).map_or(0, |file| file.st_size.max(0).cast_unsigned());
    at.max(end).saturating_add(len as u64) <= limit[0]
}

/// Makes a call that stops no thread of a background job: a thread that blocks SIGTTOU may write to
/// the terminal. If the last reader of a pipe has gone since the check, SIGPIPE comes with EPIPE
/// and is taken.
fn quietly(call: impl FnOnce() -> isize) {
    const SIZE: usize = size_of::<u64>();
    let bit = |signal: i32| 1u64 << (signal - 1);
    let sent = bit(libc::SIGTTOU) | bit(libc::SIGPIPE);
    let mut mask = 0u64;
    let at = |word: &mut u64| core::ptr::from_mut(word).expose_provenance();
    if !refused::spares(libc::SYS_rt_sigprocmask) {
        call();
        return;
    }
    // SAFETY: words of our own, of the size that is passed; the mask is restored below.
    unsafe {
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, at(&mut { sent }), at(&mut mask), SIZE);
        let is_sent = call() == -(libc::EPIPE as isize) && mask & bit(libc::SIGPIPE) == 0;
        if is_sent && refused::spares(libc::SYS_rt_sigtimedwait) {
            let no_time = [0i64; 2];
            let until = no_time.as_ptr().expose_provenance();
            raw!(libc::SYS_rt_sigtimedwait, at(&mut { bit(libc::SIGPIPE) }), 0, until, SIZE);
        }
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, at(&mut mask), 0, SIZE);
    }
}
