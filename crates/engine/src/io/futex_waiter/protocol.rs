//! The steps between a futex waiter and its submitter, generic over the words and system calls:
//! those of the process, or loom's (`verify::futex_moves`, `verify::cancel`).

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{self, SeqCst};

use softring_uapi::errno::{Errno, Result};

/// Values of a futex waiter's word: no job; wait at the program's futex; read the job or `leave`.
pub(crate) const IDLE: u32 = 0;
pub(crate) const MOVED: u32 = 1;
pub(crate) const ASKED: u32 = 2;

/// Values of `state`: nothing to report, woken, taken back.
pub(crate) const BUSY: u32 = 0;
pub(crate) const WOKEN: u32 = 1;
pub(crate) const BACK: u32 = 2;

/// Yields after which a new thread is asleep if a processor is free.
const SURELY_ASLEEP: u32 = 50;

/// A word that a futex waiter shares with its submitter.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
    /// Sleeps if the word is `seen`, until it is woken, or for a while.
    fn sleep(&self, seen: u32);
    /// Wakes one thread that sleeps on the word.
    fn wake(&self);
}

/// The words that a futex waiter shares with its submitter.
#[derive(Debug)]
pub(crate) struct Words<W> {
    /// A word for each futex.
    pub(crate) futexes: Box<[W]>,
    pub(crate) state: W,
    /// Flag: the waiter is being taken back.
    pub(crate) stop: W,
    /// Flag: the waiter shall end.
    pub(crate) leave: W,
}

impl<W> Words<W> {
    /// Makes the words of a busy waiter for `n` futexes whose words are `futex`.
    pub(crate) fn new(n: usize, futex: u32, word: impl Fn(u32) -> W) -> Self {
        let futexes = (0..n).map(|_| word(futex)).collect();
        Words { futexes, state: word(BUSY), stop: word(0), leave: word(0) }
    }
}

/// Words and system calls of a futex waiter, and the steps on them.
pub(crate) trait Steps {
    type Word: Word;
    /// A futex of the program's.
    type There;

    /// Returns its words.
    fn words(&self) -> &Words<Self::Word>;

    /// Moves the futex waiter from a word of its own, if that is `val`; returns the number of
    /// waiters moved.
    ///
    /// # Errors
    /// Those of futex(2).
    fn requeue(&self, word: &Self::Word, val: u32, there: &Self::There) -> Result<usize>;
    /// Checks that the futex has its value.
    ///
    /// # Errors
    /// `EAGAIN` if not; those of futex(2).
    fn check(&self, there: &Self::There) -> Result<()>;
    /// Returns whether the kernel reports the number of moved waiters.
    fn reports_moved(&self) -> bool;
    /// Lets another thread run.
    fn pause(&self);
    /// Sends the futex waiter's thread a signal; false if there is none.
    fn interrupt(&self) -> bool;

    /// Sleeps on its own words; if there are several, on those that are not MOVED.
    ///
    /// # Errors
    /// Those of futex(2).
    fn sleep_idle(&self) -> Result<usize>;
    /// Sleeps at the program's futexes.
    ///
    /// # Errors
    /// Those of futex(2).
    fn sleep_there(&self) -> Result<usize>;
    /// Waits until waitid(2) would return at once, and takes nothing.
    ///
    /// # Errors
    /// Those of waitid(2).
    fn watch_children(&self) -> Result<usize>;
    /// Returns the index of a futex where it waits and that has another value.
    fn changed(&self) -> Option<i32>;
    fn has_job(&self) -> bool;

    /// Returns the last futex word, which tells the waiter what to do.
    fn flag(&self) -> &Self::Word {
        let futexes = &self.words().futexes;
        &futexes[futexes.len() - 1]
    }

    // On the side of the submitter, under the uring lock.

    /// Begins a job.
    fn begin(&self) {
        self.words().state.store(BUSY, SeqCst);
    }

    /// Moves the futex waiter to the program's futexes, one after the other: the last word says
    /// that all are placed.
    ///
    /// # Errors
    /// Those of futex(2); `EAGAIN` also if the futex waiter was woken at one futex before it waited
    /// at the next: it does not come back to its own words then.
    fn move_all(&self, all: &[Self::There]) -> Result<()> {
        for (word, there) in self.words().futexes.iter().zip(all) {
            self.move_there(word, there)?;
            word.store(MOVED, SeqCst);
            self.requeue(word, MOVED, there)?;
        }
        all.iter().try_for_each(|there| self.check(there))
    }

    /// Moves the futex waiter from `word`, once it is asleep.
    fn move_there(&self, word: &Self::Word, there: &Self::There) -> Result<()> {
        let mut tries = 0;
        while self.requeue(word, IDLE, there)? == 0 {
            if self.words().state.load(SeqCst) != BUSY {
                return Err(Errno::EAGAIN);
            }
            // Not asleep yet, or moved by a kernel that does not report it.
            tries += 1;
            if tries > SURELY_ASLEEP && !self.reports_moved() {
                break;
            }
            self.pause();
        }
        Ok(())
    }

    /// Takes the waiter back; false if it was woken before, and will report it.
    fn take_back(&self) -> bool {
        self.words().stop.store(1, SeqCst);
        let mut sent = 0;
        while self.words().state.load(SeqCst) == BUSY && self.interrupt() {
            sent += 1;
            self.words().state.sleep(BUSY);
        }
        let back = self.words().state.load(SeqCst) == BACK;
        if sent > u32::from(back) {
            // The last signal may come late, and end the thread's next job.
            self.words().leave.store(1, SeqCst);
        }
        self.words().stop.store(0, SeqCst);
        back
    }

    // On its own thread.

    /// Sleeps, and stores in `state` what has ended the sleep. Returns the result to report, and
    /// whether the thread shall end.
    fn sleep_once(&self) -> (Option<i32>, bool) {
        let woken = self.sleep();
        if woken.is_none() {
            self.reset();
        }
        let leave = self.words().leave.load(SeqCst) != 0;
        self.words().state.store(if woken.is_some() { WOKEN } else { BACK }, SeqCst);
        // The thread that takes the waiter back sets `stop` first, then reads the state.
        if self.words().stop.load(SeqCst) != 0 {
            self.words().state.wake();
        }
        (woken, leave)
    }

    /// Sleeps until there is a result to report; `None` if taken back, or if it shall end.
    fn sleep(&self) -> Option<i32> {
        loop {
            let at = self.flag().load(SeqCst);
            let slept = match at {
                _ if self.words().leave.load(SeqCst) != 0 => return None,
                IDLE => self.sleep_idle(),
                MOVED => self.sleep_there(),
                _ => self.watch_children(),
            };
            match slept {
                Err(Errno::EINTR) if self.words().stop.load(SeqCst) != 0 => return None,
                Err(Errno::EINTR) => {}
                Ok(_) | Err(Errno::EAGAIN) if at == IDLE && self.is_asked() => {}
                // No job: a late wake of an earlier futex at this word's address.
                Ok(_) if !self.has_job() => {}
                // The futex changed before the waiter slept there: same as a wake.
                Err(Errno::EAGAIN) => match self.changed() {
                    None if at == IDLE => {}
                    which => return Some(which.unwrap_or(0)),
                },
                Ok(n) => return Some(n as i32),
                Err(e) => return Some(e.res()),
            }
        }
    }

    fn is_asked(&self) -> bool {
        self.flag().load(SeqCst) == ASKED
    }

    /// Clears its words after a job. Called on its own thread, or under the uring lock.
    fn reset(&self) {
        self.words().futexes.iter().for_each(|w| w.store(IDLE, SeqCst));
    }
}
