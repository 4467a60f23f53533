//! The lock of a ring, in a page of the ring's own file so that every process that inherited the
//! ring takes the same one. It guards submission, every table of the ring, and posting.
//!
//! The kernel has two locks for this: `uring_lock`, held over issue, which may sleep in a page
//! fault or in a file system, and `completion_lock`, under which it posts CQEs and which nobody
//! holds while asleep. Here it is one lock and a word. The thread that issues gives the lock back
//! around each system call and says in the word that it is in the middle of an issue:
//!
//! ```text
//! issuer                                others
//! lock
//!   issue = me      (Ctx::unlocked)
//! unlock
//! the system call                       lock_now: fork, poll, close, completions, waits.
//!                                         The tables are whole; the request at hand is in none.
//!                                         issue != 0: nothing is issued, that is left to `me`
//! lock                                  lock: submission, registration
//!   ...                                   issue != 0: unlock; sleep on the word; again
//!   issue = 0       (Guard::drop)
//! unlock; wake who sleeps on the word
//! ```
//!
//! `issue` is written under the lock only, so it needs no ordering of its own. The interleaving
//! that loses is a second issuer: it would take SQEs from under the first, or the data of a stream
//! in another order than their requests came. `verify::lock` has that as a fault.
//!
//! Both words name the process that holds them: its id, and the number of the pid namespace in
//! which that id means it. Holding and naming the holder are one step, so no holder is nameless. A
//! process that dies or execs while a thread of it has one would leave it held. A waiting thread
//! therefore checks now and then whether the holder is gone ([`holder`]), and takes over from a
//! holder that is. Where the holder's namespace is not the waiting thread's, the id says nothing,
//! and the thread waits on. Nothing is torn by a death: ring words are published last, and
//! everything else is private to the dead process.

pub(crate) mod protocol;
pub(crate) mod sequence;

use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use core::time::Duration;

use self::protocol::{Locked, WAITED, Word};
use self::sequence::Sequence;
use super::holder;
use super::of_process::PROCESS;
use super::region::Region;
use softring_host::sys;

/// The calling thread begins or ends to take the locks of all rings.
pub(crate) fn set_forking(on: bool) {
    PROCESS.forking.store(if on { sys::thread() } else { 0 }, Relaxed);
}

/// A word of a ring's page. The kernel compares its low half when a thread goes to sleep on it.
#[derive(Clone, Copy)]
pub(crate) struct Futex<'a> {
    word: &'a AtomicU64,
    low: &'a AtomicU32,
}

impl Word for Futex<'_> {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.word.store(value, order);
    }

    #[inline(always)]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.word.swap(value, order)
    }

    #[inline(always)]
    fn exchange(&self, old: u64, new: u64, success: Ordering) -> bool {
        self.word.compare_exchange(old, new, success, Relaxed).is_ok()
    }

    fn sleep(&self, seen: u64, limit: Duration) -> bool {
        sys::futex_wait(self.low, seen as u32, Some(limit))
    }

    fn wake(&self, n: u32) {
        sys::futex_wake(self.low, n);
    }
}

/// The engine's page of a ring.
#[derive(Debug)]
pub(crate) struct Control {
    page: Region,
    /// Where the thread of this process that issued last has lent what the lock guards; null if
    /// none has.
    lent: AtomicPtr<()>,
    /// The thread of this process that has the lock; 0 if none has, or has just taken it.
    holder: AtomicUsize,
}

impl Control {
    pub(crate) fn new(page: Region) -> Self {
        Control { page, lent: AtomicPtr::default(), holder: AtomicUsize::new(0) }
    }

    /// SQEs consumed: the engine's copy of `sq.head`. Lock holder only.
    pub(crate) fn sq_head(&self) -> &AtomicU32 {
        self.page.word(64)
    }

    /// CQEs filled: the engine's copy of `cq.tail`, ahead of it until commit. Lock holder only.
    pub(crate) fn cq_tail(&self) -> &AtomicU32 {
        self.page.word(68)
    }

    /// As [`Sequence::waiters`].
    #[inline(always)]
    pub(crate) fn waiters(&self) -> &AtomicU32 {
        self.page.word(128)
    }

    /// As [`Sequence::seq`].
    #[inline(always)]
    pub(crate) fn seq(&self) -> &AtomicU32 {
        self.page.word(132)
    }

    /// A word of the message by which a forked child asks its parent (`process::remote_cancel`).
    /// Lock holder only.
    pub(crate) fn cancel_word(&self, word: usize) -> &AtomicU32 {
        self.page.word(192 + 4 * word)
    }

    /// How often children have begun to write down what they have in flight (`process::journal`).
    pub(crate) fn journal_writes(&self) -> &AtomicU32 {
        self.page.word(252)
    }

    /// A word of what they have written. Lock holder only.
    pub(crate) fn left(&self, word: usize) -> &AtomicU32 {
        self.page.word(256 + 4 * word)
    }

    /// Takes the lock when no other thread is in the middle of an issue.
    #[inline(always)]
    pub(crate) fn lock(&self) {
        Locked::lock(self);
    }

    /// Takes the lock, also while another thread is in the middle of an issue.
    #[inline(always)]
    pub(crate) fn lock_now(&self) {
        Locked::lock_now(self);
    }

    /// As [`lock_now`](Self::lock_now), for a caller that knows which thread it is.
    #[inline(always)]
    pub(crate) fn lock_now_as(&self, thread: usize) {
        self.take_word();
        self.holder.store(thread, Relaxed);
    }

    /// As [`lock_now`](Self::lock_now), if nobody holds the lock.
    #[inline]
    pub(crate) fn try_lock_now(&self) -> bool {
        let free = self.try_take_word();
        if free {
            self.note_holder(true);
        }
        free
    }

    /// As [`try_lock_now`](Self::try_lock_now), for a fork: writes to no memory of this process
    /// alone, as a forked child may have the same page, and would keep the old one.
    pub(crate) fn try_hold(&self) -> bool {
        self.try_take_word()
    }

    /// Does the calling thread have the lock, as far as it can tell? Right but for the moment in
    /// which another thread takes it.
    pub(crate) fn is_held_here(&self) -> bool {
        let forking = PROCESS.forking.load(Relaxed);
        if forking != 0 {
            return forking == sys::thread();
        }
        self.holder.load(Relaxed) == sys::thread() && self.lock_word().word.load(Relaxed) != 0
    }

    /// Gives the lock back.
    #[inline]
    pub(crate) fn unlock(&self) {
        Locked::unlock(self);
    }

    /// Is a thread, of whatever process, in the middle of an issue? Lock holder only.
    #[inline]
    pub(crate) fn issuing(&self) -> bool {
        Locked::issuing(self)
    }

    /// Ends an issue whose process is gone. Lock holder only.
    pub(crate) fn end_issue_of_dead(&self) {
        Locked::end_issue_of_dead(self);
    }

    /// The calling thread is in the middle of an issue from now on, and lends what the lock guards
    /// to whoever takes the lock meanwhile. Lock holder only.
    #[inline]
    pub(crate) fn begin_issue(&self, guarded: *mut ()) {
        self.lent.store(guarded, Relaxed);
        self.mark_issue();
    }

    /// Ends the issue; wakes who waits for that. Lock holder only.
    #[inline]
    pub(crate) fn end_issue(&self) {
        Locked::end_issue(self);
    }

    /// In a forked child: what the parent's issuer has lent is the parent's.
    pub(crate) fn fork_child(&self) {
        self.lent.store(core::ptr::null_mut(), Relaxed);
    }

    /// What was lent; null where another process issues. Lock holder only.
    pub(crate) fn lent(&self) -> *mut () {
        let here = self.issue_word().word.load(Relaxed) & !WAITED == softring_host::fork::holder();
        if here { self.lent.load(Relaxed) } else { core::ptr::null_mut() }
    }
}

impl Locked for Control {
    type Word<'a> = Futex<'a>;

    #[inline(always)]
    fn lock_word(&self) -> Futex<'_> {
        Futex { word: self.page.word64(0), low: self.page.word(0) }
    }

    #[inline(always)]
    fn issue_word(&self) -> Futex<'_> {
        Futex { word: self.page.word64(16), low: self.page.word(16) }
    }

    #[inline(always)]
    fn me(&self) -> u64 {
        softring_host::fork::holder()
    }

    fn is_dead(&self, word: u64) -> bool {
        let (pid, namespace) = ((word & !WAITED) as u32, word >> 32);
        let known = namespace != 0 && namespace == softring_host::fork::holder() >> 32;
        known && holder::is_gone(pid, self.page.addr())
    }

    #[inline(always)]
    fn note_holder(&self, holds: bool) {
        self.holder.store(if holds { sys::thread() } else { 0 }, Relaxed);
    }
}

impl Sequence for Control {
    type Word = AtomicU32;

    #[inline(always)]
    fn waiters(&self) -> &AtomicU32 {
        self.waiters()
    }

    #[inline(always)]
    fn seq(&self) -> &AtomicU32 {
        self.seq()
    }
}
