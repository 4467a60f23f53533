//! Epoll sets of the program that hold rings, by number. A set is *quiet* while it gets no events
//! of its rings: a thread that waits on it drives the rings itself. Whoever waits in another way
//! (poll(2) of the set, a set in the set, a request of a ring, a duplicate of the number) has the
//! set revealed first: then it gets the events of its rings.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU64};

use crate::sync::real::OnceLock;

/// Count of numbers that are known, from 0 on; a set with a higher number is never quiet.
const NUMBERS: usize = 1 << 12;

/// Numbers as bits.
struct Numbers([AtomicU64; NUMBERS / 64]);

struct Sets {
    /// Sets that hold a ring.
    holds: Numbers,
    quiet: Numbers,
    /// Numbers that others than epoll_wait(2) wait for, until they are closed.
    shared: Numbers,
    /// Set once there has been a quiet set.
    used: AtomicBool,
    /// Gives a quiet set the events of its rings; of who stands in front of the engine.
    reveal: OnceLock<fn(i32)>,
}

static SETS: Sets = Sets {
    holds: Numbers::new(),
    quiet: Numbers::new(),
    shared: Numbers::new(),
    used: AtomicBool::new(false),
    reveal: OnceLock::new(),
};

impl Numbers {
    const fn new() -> Numbers {
        Numbers([const { AtomicU64::new(0) }; NUMBERS / 64])
    }

    fn has(&self, fd: i32) -> bool {
        let at = fd.cast_unsigned() as usize;
        at < NUMBERS && self.0[at / 64].load(SeqCst) & 1 << (at % 64) != 0
    }

    fn set(&self, fd: i32, on: bool) {
        let at = fd.cast_unsigned() as usize;
        if let Some(word) = self.0.get(at / 64) {
            let bit = 1 << (at % 64);
            if on {
                word.fetch_or(bit, SeqCst)
            } else {
                word.fetch_and(!bit, SeqCst)
            };
        }
    }
}

/// Returns whether a set with this number may be quiet.
pub fn can_be_quiet(fd: i32) -> bool {
    is_known(fd) && !SETS.shared.has(fd)
}

/// Returns whether the number is below the limit of those that are known.
pub fn is_known(fd: i32) -> bool {
    usize::try_from(fd).is_ok_and(|at| at < NUMBERS)
}

/// Records that `fd` may be waited for in another way than by epoll_wait(2) of this number: a set
/// is not quiet from now on.
#[inline]
pub fn share(fd: i32) {
    if is_known(fd) && !SETS.shared.has(fd) {
        SETS.shared.set(fd, true);
        reveal(fd);
    }
}

/// Records that the number is about to be closed.
pub fn closes(fd: i32) {
    if SETS.shared.has(fd) {
        SETS.shared.set(fd, false);
    }
    mark(fd, false, false);
}

/// Returns whether `fd` is a set that holds a ring.
#[inline]
pub fn holds_ring(fd: i32) -> bool {
    SETS.holds.has(fd)
}

/// Returns whether `fd` is a quiet set.
#[inline]
pub fn is_quiet(fd: i32) -> bool {
    SETS.quiet.has(fd)
}

/// Returns whether there is a quiet set.
pub fn any_quiet() -> bool {
    SETS.used.load(SeqCst) && SETS.quiet.0.iter().any(|word| word.load(SeqCst) != 0)
}

/// Records whether the set `fd` holds a ring, and whether it is quiet.
pub fn mark(fd: i32, holds: bool, quiet: bool) {
    if quiet {
        SETS.used.store(true, SeqCst);
    }
    SETS.holds.set(fd, holds);
    SETS.quiet.set(fd, quiet);
}

/// Registers the function that gives a quiet set the events of its rings.
pub fn on_reveal(reveal: fn(i32)) {
    let _ = SETS.reveal.set(reveal);
}

/// Gives the set `fd` the events of its rings, if it is quiet.
#[inline]
pub fn reveal(fd: i32) {
    if is_quiet(fd)
        && let Some(reveal) = SETS.reveal.get()
    {
        reveal(fd);
    }
}

/// Gives every quiet set the events of its rings.
pub fn reveal_all() {
    (0..NUMBERS as i32).filter(|&fd| is_quiet(fd)).for_each(reveal);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_known_by_its_number() {
        mark(4095, true, true);
        assert!(holds_ring(4095) && is_quiet(4095) && any_quiet());
        assert!(!is_quiet(4094) && !is_quiet(-1) && !is_quiet(4096));
        mark(4095, true, false);
        assert!(holds_ring(4095) && !is_quiet(4095) && can_be_quiet(4095) && !is_known(4096));
        share(4095);
        assert!(!can_be_quiet(4095));
        closes(4095);
        assert!(!holds_ring(4095));
    }
}
