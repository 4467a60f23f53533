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
//! which that id means it. Holding and naming the holder are one step, so no holder is nameless.
//! A process that dies or execs while a thread of it has one would leave it held. A sleeper
//! therefore looks now and then whether the holder is gone ([`holder`]), and takes over from it.
//! Where the holder's namespace is not the sleeper's, the id says nothing, and the sleeper waits
//! on. Nothing is torn by a death: ring words are published last, and everything else is private to
//! the dead process.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use core::time::Duration;

use super::holder;
use super::region::Region;
use crate::host::sys;

/// When a sleeper first checks that the holder lives: a process may end while a thread of the
/// engine's has the lock. It doubles from check to check, up to [`LOCK_CHECK`].
const FIRST_CHECK: Duration = Duration::from_millis(1);
/// How often a sleeper checks at the least.
const LOCK_CHECK: Duration = Duration::from_millis(100);
/// Spins before sleeping: holders rarely keep it longer than one inline operation.
const SPINS: u32 = 100;
/// Somebody may sleep on the word. No process id has this bit.
const WAITED: u64 = 1 << 31;

/// One who looks at the sequence word without sleeping, in the count of waiters.
pub(crate) const SPINNER: u32 = 1 << 16;

/// The thread that takes the locks of all rings, for a fork ([`Control::try_hold`]); 0: none does.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// The calling thread begins or ends to take the locks of all rings.
pub(crate) fn set_forking(on: bool) {
    FORKING.store(if on { sys::thread() } else { 0 }, Relaxed);
}

/// The engine's page of a ring.
#[derive(Debug)]
pub struct Control {
    page: Region,
    /// Where the thread of this process that issued last has lent what the lock guards; null if
    /// none has.
    lent: AtomicPtr<()>,
    /// The thread of this process that has the lock; 0 if none has, or has just taken it.
    holder: AtomicUsize,
}

impl Control {
    pub fn new(page: Region) -> Self {
        Control { page, lent: AtomicPtr::default(), holder: AtomicUsize::new(0) }
    }

    fn lock_word(&self) -> &AtomicU64 {
        self.page.word64(0)
    }

    /// The low half of [`lock_word`](Self::lock_word), to sleep on.
    fn lock_futex(&self) -> &AtomicU32 {
        self.page.word(0)
    }

    fn issue_word(&self) -> &AtomicU64 {
        self.page.word64(16)
    }

    fn issue_futex(&self) -> &AtomicU32 {
        self.page.word(16)
    }

    /// SQEs consumed: the engine's copy of `sq.head`. Lock holder only.
    pub fn sq_head(&self) -> &AtomicU32 {
        self.page.word(64)
    }

    /// CQEs filled: the engine's copy of `cq.tail`, ahead of it until commit. Lock holder only.
    pub fn cq_tail(&self) -> &AtomicU32 {
        self.page.word(68)
    }

    /// Sleepers on [`seq`](Self::seq), of all processes, and, times [`SPINNER`], those that look at
    /// it without sleeping.
    pub fn waiters(&self) -> &AtomicU32 {
        self.page.word(128)
    }

    /// Bumped under the lock whenever a sleeper should look again.
    pub fn seq(&self) -> &AtomicU32 {
        self.page.word(132)
    }

    /// A word of the note by which a forked child asks its parent (`process::relay`). Lock holder
    /// only.
    pub fn note(&self, word: usize) -> &AtomicU32 {
        self.page.word(192 + 4 * word)
    }

    /// How often children have begun to write down what they have in flight (`process::estate`).
    pub fn heirs(&self) -> &AtomicU32 {
        self.page.word(252)
    }

    /// A word of what they have written. Lock holder only.
    pub fn left(&self, word: usize) -> &AtomicU32 {
        self.page.word(256 + 4 * word)
    }

    /// Takes the lock when no other thread is in the middle of an issue.
    #[inline(always)]
    pub fn lock(&self) {
        self.lock_now();
        let mut check = FIRST_CHECK;
        while self.issuing() {
            self.await_issue(check);
            check = (check * 2).min(LOCK_CHECK);
        }
    }

    /// Takes the lock, also while another thread is in the middle of an issue.
    #[inline(always)]
    pub fn lock_now(&self) {
        self.lock_now_as(sys::thread());
    }

    /// As [`lock_now`](Self::lock_now), for a caller that knows which thread it is.
    #[inline(always)]
    pub fn lock_now_as(&self, thread: usize) {
        if !self.try_lock_word() {
            self.lock_slow();
        }
        self.holder.store(thread, Relaxed);
    }

    /// As [`lock_now`](Self::lock_now), if nobody holds the lock.
    #[inline]
    pub fn try_lock_now(&self) -> bool {
        let free = self.try_lock_word();
        if free {
            self.holder.store(sys::thread(), Relaxed);
        }
        free
    }

    #[inline(always)]
    fn try_lock_word(&self) -> bool {
        let me = crate::host::fork::holder();
        self.lock_word().compare_exchange(0, me, Acquire, Relaxed).is_ok()
    }

    /// As [`try_lock_now`](Self::try_lock_now), for a fork: writes to no memory of this process
    /// alone, as a forked child may have the same page, and would keep the old one.
    pub fn try_hold(&self) -> bool {
        self.try_lock_word()
    }

    /// Does the calling thread have the lock, as far as it can tell? Right but for the moment in
    /// which another thread takes it.
    pub fn is_held_here(&self) -> bool {
        let forking = FORKING.load(Relaxed);
        if forking != 0 {
            return forking == sys::thread();
        }
        self.holder.load(Relaxed) == sys::thread() && self.lock_word().load(Relaxed) != 0
    }

    /// Will the holder that `word` names surely never give the lock back?
    fn is_dead(&self, word: u64) -> bool {
        let (pid, namespace) = ((word & !WAITED) as u32, word >> 32);
        let known = namespace != 0 && namespace == crate::host::fork::holder() >> 32;
        known && holder::is_gone(pid, self.page.addr())
    }

    #[cold]
    fn lock_slow(&self) {
        let (w, me) = (self.lock_word(), crate::host::fork::holder());
        for _ in 0..SPINS {
            if w.load(Relaxed) == 0 && w.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        // From here on nobody knows whether others sleep, too: it is taken as if they did.
        let me = me | WAITED;
        let mut check = FIRST_CHECK;
        loop {
            let seen = w.load(Relaxed);
            let marked = seen | WAITED;
            if seen == 0 {
                if w.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
                    return;
                }
                continue;
            }
            if seen != marked && w.compare_exchange(seen, marked, Relaxed, Relaxed).is_err() {
                continue;
            }
            if !sys::futex_wait(self.lock_futex(), marked as u32, Some(check)) {
                continue;
            }
            check = (check * 2).min(LOCK_CHECK);
            if self.is_dead(marked) && w.compare_exchange(marked, me, Acquire, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Gives the lock back.
    #[inline]
    pub fn unlock(&self) {
        self.holder.store(0, Relaxed);
        if self.lock_word().swap(0, Release) & WAITED != 0 {
            sys::futex_wake(self.lock_futex(), 1);
        }
    }

    /// Is a thread, of whatever process, in the middle of an issue? Lock holder only.
    #[inline]
    pub fn issuing(&self) -> bool {
        self.issue_word().load(Relaxed) != 0
    }

    /// Sleeps until the issue that another thread is in the middle of may be over, and `check` at
    /// the most. The lock is held before and afterwards.
    #[cold]
    fn await_issue(&self, check: Duration) {
        self.unlock();
        let w = self.issue_word();
        for _ in 0..SPINS {
            if w.load(Relaxed) == 0 {
                return self.lock_now();
            }
            core::hint::spin_loop();
        }
        self.lock_now();
        let marked = w.load(Relaxed) | WAITED;
        if marked == WAITED {
            return;
        }
        w.store(marked, Relaxed);
        self.unlock();
        let timed_out = sys::futex_wait(self.issue_futex(), marked as u32, Some(check));
        self.lock_now();
        if timed_out {
            self.end_issue_of_dead();
        }
    }

    /// Ends an issue whose process is gone. Lock holder only.
    pub fn end_issue_of_dead(&self) {
        let seen = self.issue_word().load(Relaxed);
        if seen != 0 && self.is_dead(seen) {
            self.end_issue();
        }
    }

    /// The calling thread is in the middle of an issue from now on, and lends what the lock guards
    /// to whoever takes the lock meanwhile. Lock holder only.
    #[inline]
    pub fn begin_issue(&self, guarded: *mut ()) {
        self.lent.store(guarded, Relaxed);
        self.issue_word().store(crate::host::fork::holder(), Relaxed);
    }

    /// It is no more; wakes who waits for that. Lock holder only.
    #[inline]
    pub fn end_issue(&self) {
        let w = self.issue_word();
        let before = w.load(Relaxed);
        w.store(0, Relaxed);
        if before & WAITED != 0 {
            sys::futex_wake(self.issue_futex(), i32::MAX.cast_unsigned());
        }
    }

    /// In a forked child: what the parent's issuer has lent is the parent's.
    pub fn fork_child(&self) {
        self.lent.store(core::ptr::null_mut(), Relaxed);
    }

    /// What was lent; null where another process issues. Lock holder only.
    pub fn lent(&self) -> *mut () {
        let here = self.issue_word().load(Relaxed) & !WAITED == crate::host::fork::holder();
        if here { self.lent.load(Relaxed) } else { core::ptr::null_mut() }
    }
}
