//! The steps by which closers and setters find each other, on whatever words there are: those of
//! the process, or loom's (the engine's `verify::lock_race`).

use core::fmt::Debug;
use core::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, fence};

/// The number that a closer closes; 0: none.
pub trait Slot: Debug {
    fn load(&self, order: Ordering) -> i32;
    fn store(&self, number: i32, order: Ordering);
    /// Whether the slot was free, and has the number.
    fn take(&self, number: i32, success: Ordering) -> bool;
}

/// A count of threads.
pub trait Count: Debug {
    fn load(&self, order: Ordering) -> u64;
    fn add(&self, order: Ordering);
    /// One less, unless there is none.
    fn sub(&self, order: Ordering);
}

impl Slot for AtomicI32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> i32 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, number: i32, order: Ordering) {
        self.store(number, order);
    }

    #[inline(always)]
    fn take(&self, number: i32, success: Ordering) -> bool {
        self.compare_exchange(0, number, success, Relaxed).is_ok()
    }
}

macro_rules! counts {
    ($($atomic:ty),*) => {$(
        impl Count for $atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> u64 {
                self.load(order).into()
            }

            #[inline(always)]
            fn add(&self, order: Ordering) {
                self.fetch_add(1, order);
            }

            #[inline(always)]
            fn sub(&self, order: Ordering) {
                let _ = self.fetch_update(order, order, |n| n.checked_sub(1));
            }
        }
    )*};
}

counts!(AtomicU32, AtomicU64);

/// What has the words, and the steps on them.
pub trait Race: Debug + Sized {
    type Slot: Slot;
    type Count: Count;
    type Setters: Count;

    /// Slots of closers at the same time.
    fn closing(&self) -> &[Self::Slot];
    /// How many closers have begun.
    fn begun(&self) -> &Self::Count;
    /// How many of them are through.
    fn ended(&self) -> &Self::Count;
    /// Threads that set a lock again.
    fn setters(&self) -> &Self::Setters;

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }

    /// A thread is about to close `number`. `None` if it must not, for `locked` finds a lock of
    /// the process's on the file, or another thread sets one.
    fn close(&self, number: i32, locked: impl FnOnce() -> bool) -> Option<Closing<'_, Self>> {
        let slot = self.closing().iter().find(|slot| slot.take(number, SeqCst))?;
        let closing = Closing { race: self, slot };
        self.begun().add(SeqCst);
        Self::fence(SeqCst);
        (self.setters().load(SeqCst) == 0 && !locked()).then_some(closing)
    }

    /// Before a call that sets a lock: what [`has_lock`](Self::has_lock) is to know.
    #[inline(always)]
    fn before_set(&self) -> u64 {
        self.ended().load(SeqCst)
    }

    /// After the call: is the lock surely there? `set` is told behind the fence that it is set.
    #[inline(always)]
    fn has_lock(&self, before: u64, set: impl FnOnce()) -> bool {
        Self::fence(SeqCst);
        set();
        self.begun().load(SeqCst) == before
    }

    /// Sets the lock again by `call`, once no closer is at work for which `waits` is true: that
    /// gets the closer's number, and how often it was asked of it before.
    fn set_again<R>(&self, mut waits: impl FnMut(i32, u32) -> bool, call: impl FnOnce() -> R) -> R {
        self.setters().add(SeqCst);
        Self::fence(SeqCst);
        for slot in self.closing() {
            let number = slot.load(SeqCst);
            let mut checks = 0;
            while number != 0 && slot.load(SeqCst) == number && waits(number, checks) {
                checks += 1;
            }
        }
        let ret = call();
        // A forked child starts from 0, also where a signal handler has forked in the middle.
        self.setters().sub(SeqCst);
        ret
    }
}

/// A thread that closes a number, until it is dropped.
#[derive(Debug)]
pub struct Closing<'a, R: Race> {
    race: &'a R,
    slot: &'a R::Slot,
}

impl<R: Race> Drop for Closing<'_, R> {
    fn drop(&mut self) {
        self.race.ended().add(SeqCst);
        self.slot.store(0, SeqCst);
    }
}
