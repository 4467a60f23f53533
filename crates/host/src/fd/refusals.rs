//! Refusals by a file of kernel aio requests that must not wait (`io::aio::nowait`).

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use softring_uapi::errno::Errno;

/// Writes refused in a row, after which the next one is expected to be refused, too.
const TRUSTED_AFTER: u8 = 4;
/// Writes that go to a worker untried before one is tried again.
const UNTRIED: u8 = 64;
/// Mark of a file that knows no `RWF_NOWAIT`.
const NEVER: u8 = u8::MAX;

/// Refusals by a file of requests that must not wait: the count of writes refused in a row, and
/// above that the writes untried since. Several threads may write it: a lost update costs a try in
/// vain, or one not made.
#[derive(Debug, Default)]
pub struct Refusals(AtomicU8);

impl Refusals {
    pub const fn new() -> Self {
        Refusals(AtomicU8::new(0))
    }

    /// Resets the count: the number may mean another file.
    pub fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// Returns whether the file has refused nothing lately. Then there is nothing to expect or to
    /// count.
    #[inline]
    pub fn none(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Returns whether a request would most likely be refused if it were tried now.
    #[inline]
    pub fn expected(&self, write: bool) -> bool {
        match self.0.load(Relaxed) {
            n if n < TRUSTED_AFTER => false,
            NEVER => true,
            n => write && n < TRUSTED_AFTER + UNTRIED,
        }
    }

    /// Returns [`Self::expected`], and counts a write that is therefore not tried.
    pub fn skips(&self, write: bool) -> bool {
        let skips = self.expected(write);
        let n = self.0.load(Relaxed);
        if skips && n != NEVER {
            self.0.store(n + 1, Relaxed);
        }
        skips
    }

    /// Notes that a request is tried. If that ends a row of untried writes, another such row
    /// follows, unless the request is [`Self::written`].
    #[inline]
    pub fn tried(&self, write: bool) {
        let n = self.0.load(Relaxed);
        if write && n > TRUSTED_AFTER && n != NEVER {
            self.0.store(TRUSTED_AFTER, Relaxed);
        }
    }

    /// Notes that a request was refused.
    pub fn refused(&self, e: Errno, write: bool) {
        match (e, self.0.load(Relaxed)) {
            (Errno::EOPNOTSUPP, _) => self.0.store(NEVER, Relaxed),
            (Errno::EAGAIN, n) if write && n < TRUSTED_AFTER => self.0.store(n + 1, Relaxed),
            _ => {}
        }
    }

    /// Notes that a write was taken.
    pub fn written(&self) {
        if !matches!(self.0.load(Relaxed), 0 | NEVER) {
            self.0.store(0, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn repeated_refusals_are_retried_sometimes() {
        let r = Refusals::new();
        for _ in 0..TRUSTED_AFTER {
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
    fn nowait_reads_are_tried_unless_unsupported() {
        let r = Refusals::new();
        (0..TRUSTED_AFTER).for_each(|_| r.refused(Errno::EAGAIN, true));
        assert!(r.expected(true) && !r.expected(false));
        r.refused(Errno::EOPNOTSUPP, false);
        r.tried(true);
        r.written();
        assert!(r.skips(true) && r.skips(false));
        r.forget();
        assert!(!r.expected(false));
    }
}
