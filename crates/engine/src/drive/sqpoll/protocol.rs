//! The steps by which an SQ thread goes to sleep, is woken and lets go of rings. The words are
//! those of its page and its rings, or loom's (`verify::sqpoll`).

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, fence};

use crate::memory::cq::protocol::Word;
use softring_host::sys;
use softring_uapi::IORING_SQ_NEED_WAKEUP;

/// A word of the thread's page.
pub(crate) trait PageWord: Word {
    /// Adds one, and returns the new value.
    fn next(&self, order: Ordering) -> u32;
    /// Wakes at most `n` threads that sleep on the word.
    fn wake(&self, n: u32);
    fn fence(order: Ordering);
}

impl PageWord for AtomicU32 {
    #[inline(always)]
    fn next(&self, order: Ordering) -> u32 {
        self.fetch_add(1, order).wrapping_add(1)
    }

    #[inline(always)]
    fn wake(&self, n: u32) {
        sys::futex_wake(self, n);
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Returns the number of a ring's SQEs that wait; `head` counts those that are consumed.
#[inline(always)]
pub(crate) fn ready<W: Word>(tail: &W, head: &W) -> u32 {
    tail.load(Acquire).wrapping_sub(head.load(Relaxed))
}

/// Records in a ring's flags whether the program has to wake the thread.
#[inline(always)]
pub(crate) fn need_wakeup<W: Word>(flags: &W, on: bool) {
    if on {
        flags.set(IORING_SQ_NEED_WAKEUP, SeqCst);
    } else {
        flags.clear(IORING_SQ_NEED_WAKEUP, SeqCst);
    }
}

/// The words of the thread's page, and the steps on them.
pub(crate) trait Page {
    type Word: PageWord;

    /// Returns the sequence on which the thread sleeps, bumped to wake it.
    fn seq(&self) -> &Self::Word;
    /// Returns the thread's id; 0 once it has ended.
    fn tid(&self) -> &Self::Word;
    /// Returns the version of the list of rings.
    fn list(&self) -> &Self::Word;
    /// Returns the version that the thread has.
    fn has(&self) -> &Self::Word;

    // On the thread's side.

    /// Sleeps as long as `seq` is as it was before the thread `says` that it sleeps. Does not sleep
    /// if the thread is then not `idle`, or has an old list of rings.
    fn sleep_if<T>(
        &self,
        says: impl FnOnce(),
        idle: impl FnOnce() -> bool,
        sleep: impl FnOnce(&Self::Word, u32) -> T,
    ) -> Option<T> {
        let seen = self.seq().load(SeqCst);
        says();
        Self::Word::fence(SeqCst);
        let same = || self.list().load(SeqCst) == self.has().load(Relaxed);
        (idle() && same()).then(|| sleep(self.seq(), seen))
    }

    /// Reads the list if it has changed; true if so. Afterwards the thread must not touch a ring
    /// that it had before and has no more.
    #[inline]
    fn take_list(&self, read: impl FnOnce()) -> bool {
        let version = self.list().load(SeqCst);
        if version == self.has().load(Relaxed) {
            return false;
        }
        read();
        self.has().store(version, SeqCst);
        self.has().wake(i32::MAX.cast_unsigned());
        true
    }

    /// Ends the thread, which touches no ring any more. Called under the list's lock.
    fn end(&self) {
        self.tid().store(0, SeqCst);
        // Wakes whoever waits for the thread to let go of a ring.
        self.has().store(self.list().load(SeqCst), SeqCst);
        self.has().wake(i32::MAX.cast_unsigned());
    }

    // On the others' side.

    /// Ends a sleep on `seq`.
    fn bump(&self) {
        self.seq().next(SeqCst);
        self.seq().wake(1);
    }

    /// Counts a change of the list; returns its version. Called under the list's lock.
    fn changed(&self) -> u32 {
        self.list().next(SeqCst)
    }

    /// Waits until the thread has this version of the list, or has ended. False from `sleep` ends
    /// the wait; the thread itself, `me`, does not wait.
    fn await_taken(&self, version: u32, me: u32, mut sleep: impl FnMut(&Self::Word, u32) -> bool) {
        let lives = || ![0, me].contains(&self.tid().load(SeqCst));
        while lives() {
            let seen = self.has().load(SeqCst);
            if version.wrapping_sub(seen).cast_signed() <= 0 || !sleep(self.has(), seen) {
                return;
            }
        }
    }
}
