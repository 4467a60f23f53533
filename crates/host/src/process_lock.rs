//! Lock for one thread of the process at a time, for state of the kernel's that is changed for one
//! call and then put back. Such a lock is a leaf. The holder has all signals blocked: a handler
//! that enters another ring would wait for its own thread.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::os::process::getpid;

use crate::signal::BlockAll;
use crate::sys;

/// Bit that is set if others wait; no process id has it.
const WAITED: u32 = 1 << 31;

/// Lock whose word is the process of the thread that holds it; 0: none. A forked child does not
/// wait for a thread of its parent's.
#[derive(Debug, Default)]
pub struct ProcessLock(AtomicU32);

/// Guard of the lock.
#[derive(Debug)]
pub struct Guard {
    word: &'static AtomicU32,
    /// Dropped after the lock is free.
    blocked: BlockAll,
}

impl Guard {
    /// Returns the block of all signals under which the lock is held.
    pub fn blocked(&self) -> &BlockAll {
        &self.blocked
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.word.swap(0, Release) & WAITED != 0 {
            sys::futex_wake(self.word, 1);
        }
    }
}

impl ProcessLock {
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits until no other thread holds the lock, and takes it.
    pub fn hold(&'static self) -> Guard {
        let (word, blocked) = (&self.0, BlockAll::begin());
        let me = getpid().cast_unsigned();
        let (mut seen, mut mine) = (0, me);
        while let Err(owner) = word.compare_exchange(seen, mine, Acquire, Relaxed) {
            let ours = owner & !WAITED == me;
            seen = if ours { 0 } else { owner };
            if ours {
                // From here on it is unknown whether others wait, too.
                mine = me | WAITED;
                if owner == mine || word.compare_exchange(me, mine, Relaxed, Relaxed).is_ok() {
                    sys::futex_wait(word, mine, Some(Duration::from_millis(1)));
                }
            }
        }
        Guard { word, blocked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_excludes_after_its_holder_died() {
        static LOCK: ProcessLock = ProcessLock(AtomicU32::new(WAITED | 1));
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let add = || {
            for _ in 0..2_000 {
                let _held = LOCK.hold();
                let n = COUNT.load(Relaxed);
                if n.is_multiple_of(64) {
                    std::thread::yield_now();
                }
                COUNT.store(n + 1, Relaxed);
            }
        };
        std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(add))));
        assert_eq!((COUNT.load(Relaxed), LOCK.0.load(Relaxed)), (8_000, 0));
    }
}
