//! Requests that kernel aio may not wait for.
//!
//! io_submit(2) waits for the disk inside the call where a file system does not do a request
//! asynchronously: a write that makes the file longer or needs blocks, a read of pages that must be
//! written back first, files of network file systems. So every iocb has `RWF_NOWAIT`, as the
//! kernel's io_uring tries each request first, and what is refused for that goes to a worker.
//!
//! A file that grows refuses one write after the other. Its refusals are counted, so that most
//! such writes go to a worker without having been tried. Kernel counterpart: `io_write`,
//! `io_file_supports_nowait`.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use rustix::fs::FileType;

use crate::sys;
use softring_uapi::errno::Errno;

/// Writes refused in a row, after which the next one is expected to be refused, too.
const STREAK: u8 = 4;
/// So many go to a worker untried before one is tried again.
const UNTRIED: u8 = 64;
/// The file knows no `RWF_NOWAIT`.
const NEVER: u8 = u8::MAX;

/// What a file has answered to requests that were not to wait: the length of a streak of refused
/// writes, and above that the writes untried since. Several threads may write it; a lost update
/// costs a try in vain, or one not made.
#[derive(Debug, Default)]
pub struct Refusals(AtomicU8);

impl Refusals {
    pub const fn new() -> Self {
        Refusals(AtomicU8::new(0))
    }

    /// The number may mean another file.
    pub fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// Has the file refused nothing lately? Then there is nothing else to ask, or to count.
    #[inline]
    pub fn none(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Would a request, if it is tried now, most likely be refused?
    #[inline]
    pub fn expected(&self, write: bool) -> bool {
        match self.0.load(Relaxed) {
            n if n < STREAK => false,
            NEVER => true,
            n => write && n < STREAK + UNTRIED,
        }
    }

    /// As [`Self::expected`], and counts a request that is therefore not tried.
    pub fn skips(&self, write: bool) -> bool {
        let skips = self.expected(write);
        let n = self.0.load(Relaxed);
        if skips && n != NEVER {
            self.0.store(n + 1, Relaxed);
        }
        skips
    }

    /// A request is tried. If that ends a row of untried ones, another such row follows, unless
    /// the request is [`Self::written`].
    #[inline]
    pub fn tried(&self, write: bool) {
        let n = self.0.load(Relaxed);
        if write && n > STREAK && n != NEVER {
            self.0.store(STREAK, Relaxed);
        }
    }

    /// A request was refused.
    pub fn refused(&self, e: Errno, write: bool) {
        match (e, self.0.load(Relaxed)) {
            (Errno::EOPNOTSUPP, _) => self.0.store(NEVER, Relaxed),
            (Errno::EAGAIN, n) if write && n < STREAK => self.0.store(n + 1, Relaxed),
            _ => {}
        }
    }

    /// A write was taken.
    pub fn written(&self) {
        if !matches!(self.0.load(Relaxed), 0 | NEVER) {
            self.0.store(0, Relaxed);
        }
    }
}

/// Did io_submit(2) refuse an iocb for its `RWF_NOWAIT`, or for want of room? Then a worker can
/// still do it; what fails there, too, gets its errno there.
pub(crate) fn is_for_worker(e: Errno) -> bool {
    matches!(e, Errno::EAGAIN | Errno::ENOSYS | Errno::EINVAL | Errno::EOPNOTSUPP)
}

/// Does the file end at `end`, or before? A short read that was not to wait says so only where
/// this holds. False where it is not known.
pub(crate) fn ends_at(fd: i32, end: u64) -> bool {
    let stat = sys::borrow(fd).and_then(|fd| crate::substitute::fstat(fd).ok());
    stat.is_some_and(|s| {
        FileType::from_raw_mode(s.st_mode) == FileType::RegularFile && s.st_size as u64 <= end
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_streak_is_tried_again_now_and_then() {
        let r = Refusals::new();
        for _ in 0..STREAK {
            assert!(!r.skips(true));
            r.refused(Errno::EAGAIN, true);
        }
        let skipped = || (0..).take_while(|_| r.skips(true)).count();
        for _ in 0..2 {
            assert_eq!(skipped(), usize::from(UNTRIED));
            r.tried(true);
            r.refused(Errno::EAGAIN, true);
        }
        r.written();
        assert!(!r.expected(true));
    }

    #[test]
    fn reads_are_tried_unless_the_file_knows_no_such_flag() {
        let r = Refusals::new();
        (0..STREAK).for_each(|_| r.refused(Errno::EAGAIN, true));
        assert!(r.expected(true) && !r.expected(false));
        r.refused(Errno::EOPNOTSUPP, false);
        r.tried(true);
        r.written();
        assert!(r.skips(true) && r.skips(false));
        r.forget();
        assert!(!r.expected(false));
    }

    #[test]
    fn a_short_read_is_the_end_of_a_file_only_there() {
        let file = rustix::fs::memfd_create("end", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 100).unwrap();
        let fd = rustix::fd::AsRawFd::as_raw_fd(&file);
        assert!(ends_at(fd, 100) && ends_at(fd, 4096) && !ends_at(fd, 99));
        assert!(!ends_at(-1, 0));
    }
}
