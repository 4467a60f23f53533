//! Lock of the ring table. Signal handlers take it, too: they may call close(2), dup(2) and
//! poll(2), whatever the interrupted thread does.
//!
//! - A writer blocks signals, so no handler interrupts it.
//! - A reader overtakes waiting writers. So a handler that reads while its own thread reads waits
//!   for nobody. Reading costs no system call.
//! - A handler that writes while its own thread reads would wait for ever: [`Locked::write_soon`]
//!   gives up then.
#![allow(unsafe_code)]

use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::fork::Child;
use crate::signal::BlockAll;
use crate::sys;

/// Bit of a writer. The bits below count readers.
const WRITER: u32 = 1 << 31;
/// Tries before a sleep, each followed by a yield.
const YIELDS: u32 = 100;
/// The time between two tries of a thread that sleeps.
const PAUSE: Duration = Duration::from_micros(50);

crate::per_thread! {
    /// Count of reads under such a lock that the thread is in.
    static READS: Cell<u32> = const { Cell::new(0) };
}

/// Value and its lock.
#[derive(Debug)]
pub struct Locked<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the word admits either readers or one writer to the value.
unsafe impl<T: Send + Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub const fn new(value: T) -> Self {
        Locked { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock for reading; waits only for a writer.
    #[inline]
    pub fn read(&self) -> Read<'_, T> {
        let mut tries = 0;
        loop {
            if let Some(read) = self.try_read() {
                return read;
            }
            pause(tries);
            tries += 1;
        }
    }

    /// Takes the lock for reading, if no thread writes.
    #[inline]
    pub fn try_read(&self) -> Option<Read<'_, T>> {
        let more = |w: u32| (w & WRITER == 0).then(|| w + 1);
        // Counted first: a handler in between would wait for a read that only its own thread ends.
        let reads = Reads::one_more();
        if self.word.fetch_update(Acquire, Relaxed, more).is_ok() {
            return Some(Read { lock: self, reads });
        }
        reads.one_less();
        None
    }

    /// Takes the lock for writing.
    pub fn write(&'static self) -> Write<T> {
        let signals = BlockAll::begin();
        let mut tries = 0;
        while !self.enter() {
            pause(tries);
            tries += 1;
        }
        Write { lock: self, _signals: signals }
    }

    /// Takes the lock for writing; `None` if the calling thread reads, which a handler has
    /// interrupted.
    pub fn write_soon(&'static self) -> Option<Write<T>> {
        (READS.get() == 0).then(|| self.write())
    }

    /// Forgets the reads of threads that a forked child does not have, if nobody told of the fork.
    /// (A writer that the child does not have may have left the value half changed.)
    pub fn fork_child(&self, child: &Child) {
        // The calling thread is the only one.
        if child.late && READS.get() == 0 {
            self.word.fetch_and(WRITER, Relaxed);
        }
    }

    fn enter(&self) -> bool {
        self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }
}

/// Lets the holder of the lock go on. Not inlined: what a sleep needs of the thread's own variables
/// would be fetched before each lock.
#[cold]
#[inline(never)]
fn pause(tries: u32) {
    if tries < YIELDS {
        crate::calls::process::sched_yield();
    } else {
        let _ = sys::sleep(PAUSE);
    }
}

/// Pointer to the calling thread's count of reads, so not `Send`. In a shared library each access
/// to a thread's own variable is a call.
#[derive(Clone, Copy, Debug)]
struct Reads(*const Cell<u32>);

impl Reads {
    #[inline]
    fn one_more() -> Reads {
        let reads = Reads(READS.with(core::ptr::from_ref));
        reads.change(|n| n + 1);
        reads
    }

    #[inline]
    fn one_less(self) {
        self.change(|n| n - 1);
    }

    #[inline]
    fn change(self, f: impl FnOnce(u32) -> u32) {
        // SAFETY: the variable of the thread that made this, which it never leaves; one without a
        // destructor is there until the thread is gone.
        let count = unsafe { &*self.0 };
        count.set(f(count.get()));
    }
}

/// Read guard, of the thread that has taken the lock.
#[derive(Debug)]
pub struct Read<'a, T> {
    lock: &'a Locked<T>,
    reads: Reads,
}

impl<T> Deref for Read<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: counted in the word, so nobody changes the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for Read<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.word.fetch_sub(1, Release);
        self.reads.one_less();
    }
}

/// Write guard, with signals blocked.
#[derive(Debug)]
pub struct Write<T: 'static> {
    lock: &'static Locked<T>,
    _signals: BlockAll,
}

impl<T> Deref for Write<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the word says WRITER, which only this one set.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Write<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `&mut self` makes the reference unique.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Write<T> {
    fn drop(&mut self) {
        // The lock is free before signals are let in: the fields are dropped after this.
        self.lock.word.store(0, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_do_not_wait_for_waiting_writers() {
        static TABLE: Locked<u32> = Locked::new(0);
        let first = TABLE.read();
        let writer = std::thread::spawn(|| *TABLE.write() += 1);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(*TABLE.read(), 0);
        drop(first);
        writer.join().unwrap();
        assert_eq!(*TABLE.read(), 1);
        let all: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..500).for_each(|_| *TABLE.write() += 1)))
            .collect();
        all.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*TABLE.read(), 2001);
    }

    #[test]
    fn a_writer_that_reads_itself_gives_up() {
        static TABLE: Locked<u32> = Locked::new(0);
        let (own, theirs) = (TABLE.read(), std::thread::spawn(|| TABLE.write_soon().is_some()));
        assert!(TABLE.write_soon().is_none());
        drop(own);
        assert!(theirs.join().unwrap(), "it waits for who reads elsewhere");
        // This thread has ended its read, and another thread reads.
        let (begun, wait) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let read = TABLE.read();
            begun.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            drop(read);
        });
        wait.recv().unwrap();
        drop(TABLE.read());
        assert!(TABLE.write_soon().is_some());
        reader.join().unwrap();
    }
}
