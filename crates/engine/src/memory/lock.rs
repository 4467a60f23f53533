//! The lock of a ring, in the ring's own file so that every process that inherited the
//! ring takes the same lock. It guards submission, every table of the ring, and posting.
//!
//! The kernel has two locks for this: `uring_lock`, held over issue, which may sleep in a page
//! fault or in a file system, and `completion_lock`, under which it posts CQEs and never sleeps.
//! Softring has one lock and a word. The issuing thread releases the lock around each system call
//! and marks in the word that an issue is in progress:
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
//! unlock; wake threads on the word
//! ```
//!
//! `issue` is written under the lock only, so it needs no ordering of its own. The interleaving
//! that would lose is a second issuer: it would take SQEs from under the first, or the data of a
//! stream in another order than that of its requests. `verify::lock` has that as a fault.
//!
//! Both words name the process that holds them: its id, and the number of the pid namespace in
//! which that id is valid. Locking and naming the holder are one step, so no holder is nameless. A
//! process that dies or execs while one of its threads holds a word would leave it held. A waiting
//! thread therefore checks now and then whether the holder is gone ([`holder`]), and if so takes
//! over. If the holder's namespace is not the waiting thread's, the id says nothing, and the thread
//! waits on. Nothing is torn by a death: ring words are published last, and everything else is
//! private to the dead process.
#![allow(unsafe_code)]

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

/// Marks that the calling thread begins or ends to take the locks of all rings.
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

/// The lock of a ring, by the words of its page. Private, since the steps of [`Locked`] do not
/// check that their caller holds the lock: those of [`Control`] that rely on it are unsafe.
#[derive(Debug)]
struct LockWords {
    words: Region,
    /// The thread of this process that holds the lock; 0 if none does, or one has just taken it.
    holder: AtomicUsize,
}

/// Bytes of the engine's words of a ring.
pub(super) const WORDS: usize = 256;

/// The engine's words of a ring, and its journal.
#[derive(Debug)]
pub(crate) struct Control {
    lock: LockWords,
    /// Memory of the journal. Untouched until a forked child has requests in flight.
    journal: Region,
    /// Address of the state that the lock guards, stored by the last issuing thread of this
    /// process; null if there is none.
    guarded: AtomicPtr<()>,
}

impl Control {
    /// `words` has [`WORDS`] bytes.
    pub(crate) fn new(words: Region, journal: Region) -> Self {
        let lock = LockWords { words, holder: AtomicUsize::new(0) };
        Control { lock, journal, guarded: AtomicPtr::default() }
    }

    /// Returns the word of SQEs consumed: the engine's copy of `sq.head`. Lock holder only.
    pub(crate) fn sq_head(&self) -> &AtomicU32 {
        self.lock.words.word(64)
    }

    /// Returns the word of CQEs filled: the engine's copy of `cq.tail`, ahead of it until commit.
    /// Lock holder only.
    pub(crate) fn cq_tail(&self) -> &AtomicU32 {
        self.lock.words.word(68)
    }

    /// Returns the word of [`Sequence::waiters`].
    #[inline(always)]
    pub(crate) fn waiters(&self) -> &AtomicU32 {
        self.lock.words.word(128)
    }

    /// Returns the word of [`Sequence::seq`].
    #[inline(always)]
    pub(crate) fn seq(&self) -> &AtomicU32 {
        self.lock.words.word(132)
    }

    /// Returns a word of the message by which a forked child asks its parent
    /// (`process::remote_cancel`). Lock holder only.
    pub(crate) fn cancel_word(&self, word: usize) -> &AtomicU32 {
        self.lock.words.word(192 + 4 * word)
    }

    /// Returns the number of times that children have begun to write their requests in flight
    /// (`process::journal`).
    pub(crate) fn journal_writes(&self) -> &AtomicU32 {
        self.lock.words.word(252)
    }

    /// Returns a word of that journal. Lock holder only.
    pub(crate) fn left(&self, word: usize) -> &AtomicU32 {
        self.journal.word(4 * word)
    }

    /// Takes the lock when no other thread has an issue in progress.
    #[inline(always)]
    pub(crate) fn lock(&self) {
        self.lock.lock();
    }

    /// Takes the lock, also while another thread has an issue in progress.
    #[inline(always)]
    pub(crate) fn lock_now(&self) {
        self.lock.lock_now();
    }

    /// Takes the lock for a caller that knows its thread; see [`lock_now`](Self::lock_now).
    #[inline(always)]
    pub(crate) fn lock_now_as(&self, thread: usize) {
        self.lock.take_word();
        self.lock.holder.store(thread, Relaxed);
    }

    /// Takes the lock as [`lock_now`](Self::lock_now) does, if nobody holds it.
    #[inline]
    pub(crate) fn try_lock_now(&self) -> bool {
        let free = self.lock.try_take_word();
        if free {
            self.lock.set_holder(true);
        }
        free
    }

    /// Takes the lock as [`lock_now`](Self::lock_now) does, unless a sleep for the lock lasts for
    /// `limit`.
    pub(crate) fn lock_now_within(&self, limit: Duration) -> bool {
        self.lock.lock_now_within(limit)
    }

    /// Takes the lock as [`try_lock_now`](Self::try_lock_now) does, for a fork. Writes to no
    /// private memory: an earlier child may share the page copy-on-write, and a write would copy
    /// it.
    pub(crate) fn try_hold(&self) -> bool {
        self.lock.try_take_word()
    }

    /// Returns whether the calling thread holds the lock, as far as it can tell. Wrong only in the
    /// moment in which another thread takes the lock.
    pub(crate) fn is_locked_here(&self) -> bool {
        let forking = PROCESS.forking.load(Relaxed);
        if forking != 0 {
            return forking == sys::thread();
        }
        self.lock.holder.load(Relaxed) == sys::thread()
            && self.lock.lock_word().word.load(Relaxed) != 0
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The caller holds the lock, and borrows nothing that it guards, past this, but for what
    /// [`begin_issue`](Self::begin_issue) has published.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        self.lock.unlock();
    }

    /// Returns whether a thread, of any process, has an issue in progress. Lock holder only.
    #[inline]
    pub(crate) fn issuing(&self) -> bool {
        self.lock.issuing()
    }

    /// Ends an issue whose process is gone.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(crate) unsafe fn end_issue_of_dead(&self) {
        self.lock.end_issue_of_dead();
    }

    /// Begins an issue of the calling thread, and makes the guarded state available to those who
    /// take the lock meanwhile.
    ///
    /// # Safety
    /// The caller holds the lock, and no other thread has an issue in progress. The state is what
    /// the lock guards. Until [`end_issue`](Self::end_issue) the caller uses it only while it holds
    /// the lock, and through this pointer.
    #[inline]
    pub(crate) unsafe fn begin_issue(&self, guarded: *mut ()) {
        self.guarded.store(guarded, Relaxed);
        self.lock.mark_issue();
    }

    /// Ends the issue; wakes threads that wait for its end.
    ///
    /// # Safety
    /// The caller holds the lock, and it is its own issue.
    #[inline]
    pub(crate) unsafe fn end_issue(&self) {
        self.lock.end_issue();
    }

    /// Clears the guarded state's address in a forked child: it is the parent's. A lock holder that
    /// finds none takes the ring's own.
    pub(crate) fn fork_child(&self) {
        self.guarded.store(core::ptr::null_mut(), Relaxed);
    }

    /// Returns the guarded state's address while a thread has an issue in progress; null if that is
    /// another process's.
    ///
    /// # Safety
    /// The caller holds the lock, without which the address may be one of an issue that is over.
    pub(crate) unsafe fn guarded(&self) -> *mut () {
        let here =
            self.lock.issue_word().word.load(Relaxed) & !WAITED == softring_host::fork::holder();
        if here { self.guarded.load(Relaxed) } else { core::ptr::null_mut() }
    }
}

impl Locked for LockWords {
    type Word<'a> = Futex<'a>;

    #[inline(always)]
    fn lock_word(&self) -> Futex<'_> {
        Futex { word: self.words.word64(0), low: self.words.word(0) }
    }

    #[inline(always)]
    fn issue_word(&self) -> Futex<'_> {
        Futex { word: self.words.word64(16), low: self.words.word(16) }
    }

    #[inline(always)]
    fn me(&self) -> u64 {
        softring_host::fork::holder()
    }

    fn is_dead(&self, word: u64) -> bool {
        let (pid, namespace) = ((word & !WAITED) as u32, word >> 32);
        let known = namespace != 0 && namespace == softring_host::fork::holder() >> 32;
        known && holder::is_gone(pid, self.words.addr())
    }

    #[inline(always)]
    fn set_holder(&self, holds: bool) {
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
