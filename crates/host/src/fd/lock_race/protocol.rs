//! Steps by which closers and setters find each other, on any words: those of the process, or
//! loom's (the engine's `verify::lock_race`).

use core::fmt::Debug;
use core::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, fence};

/// Number that a closer closes; 0: none.
pub trait Slot: Debug {
    fn load(&self, order: Ordering) -> i32;
    fn store(&self, number: i32, order: Ordering);
    /// Stores the number if the slot is free; returns whether it was.
    fn take(&self, number: i32, success: Ordering) -> bool;
}

/// Count of threads.
pub trait Count: Debug {
    fn load(&self, order: Ordering) -> u64;
    fn add(&self, order: Ordering);
    /// Subtracts one, unless the count is 0.
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

/// Shared words, and the steps on them.
pub trait Race: Debug + Sized {
    type Slot: Slot;
    type Count: Count;
    type Setters: Count;

    /// Returns the slots of closers at work.
    fn closing(&self) -> &[Self::Slot];
    /// Returns the count of closers that have begun.
    fn begun(&self) -> &Self::Count;
    /// Returns the count of closers that have ended.
    fn ended(&self) -> &Self::Count;
    /// Returns the count of threads that set a lock again.
    fn setters(&self) -> &Self::Setters;

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }

    /// Announces that a thread is about to close `number`. `None` if it must not: `locked` finds a
    /// lock of the process's on the file, another thread sets one, or no slot is free.
    fn close(&self, number: i32, locked: impl FnOnce() -> bool) -> Option<Closing<'_, Self>> {
        let slot = self.closing().iter().find(|slot| slot.take(number, SeqCst))?;
        let closing = Closing { race: self, slot };
        self.begun().add(SeqCst);
        Self::fence(SeqCst);
        (self.setters().load(SeqCst) == 0 && !locked()).then_some(closing)
    }

    /// Returns, before a call that sets a lock, the count that [`has_lock`](Self::has_lock) takes.
    #[inline(always)]
    fn before_set(&self) -> u64 {
        self.ended().load(SeqCst)
    }

    /// Returns, after the call, whether the lock surely exists. Calls `set` behind the fence.
    #[inline(always)]
    fn has_lock(&self, before: u64, set: impl FnOnce()) -> bool {
        Self::fence(SeqCst);
        set();
        self.begun().load(SeqCst) == before
    }

    /// Sets the lock again by `call`, once no closer is at work for which `waits` is true. `waits`
    /// gets the closer's number, and how often it was asked about that number before.
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
        // A forked child starts from 0, even if a signal handler forks in the middle of this.
        self.setters().sub(SeqCst);
        ret
    }
}

/// Announcement that a thread closes a number; ends when dropped.
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
