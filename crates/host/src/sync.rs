//! Locks, parking and signals to workers, by the kernel or by loom. The choice is made only here.

#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use real::*;

/// The kernel's versions, also in a build for loom: for statics, and for code that is in no model.
pub mod real {
    pub use crate::lock::{Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
    use crate::os::thread::{futex_wait, futex_wake};
    use crate::os::time::Timespec;
    pub use crate::signal::Repeated;
    use core::sync::atomic::{AtomicU32, Ordering::*};
    use core::time::Duration;
    use softring_uapi::errno::Errno;

    /// Value that one thread gives to another, once.
    #[derive(Debug)]
    pub struct Handover<T> {
        value: Mutex<Option<T>>,
        taker: Parker,
    }

    impl<T> Default for Handover<T> {
        fn default() -> Self {
            Self { value: Mutex::new(None), taker: Parker::default() }
        }
    }

    impl<T> Handover<T> {
        pub fn give(&self, value: T) {
            *self.value.lock() = Some(value);
            self.taker.unpark();
        }

        /// Waits for the value. Only one thread takes.
        pub fn take(&self) -> T {
            loop {
                if let Some(value) = self.value.lock().take() {
                    return value;
                }
                self.taker.park(None);
            }
        }
    }

    const EMPTY: u32 = 0;
    const TOKEN: u32 = 1;
    const PARKED: u32 = 2;

    /// Sleep of one thread, which any other thread ends. A wake-up before the sleep is kept.
    #[derive(Debug, Default)]
    pub struct Parker(AtomicU32);

    impl Parker {
        /// Sleeps until [`Self::unpark`], or for `limit`; returns true if woken. Only the owner
        /// parks.
        pub fn park(&self, limit: Option<Duration>) -> bool {
            if self.0.compare_exchange(EMPTY, PARKED, Acquire, Acquire).is_err() {
                self.0.store(EMPTY, Relaxed);
                return true;
            }
            let limit = limit.and_then(Timespec::of);
            loop {
                let r = futex_wait(&self.0, PARKED, limit.as_ref());
                let timed_out = r == Err(Errno::ETIMEDOUT);
                if timed_out || self.0.load(Relaxed) != PARKED {
                    return self.0.swap(EMPTY, Acquire) == TOKEN;
                }
            }
        }

        /// Wakes the owner: one `futex_wake` if the owner sleeps, none if it does not sleep yet.
        pub fn unpark(&self) {
            if self.0.swap(TOKEN, Release) == PARKED {
                futex_wake(&self.0, 1);
            }
        }
    }

    /// Starts a detached thread.
    ///
    /// # Errors
    /// As `pthread_create(3)`: EAGAIN, ENOMEM.
    pub fn spawn(
        name: &str,
        stack: usize,
        f: impl FnOnce() + Send + 'static,
    ) -> softring_uapi::errno::Result<()> {
        crate::threads::start(name, stack, f)
    }
}

#[cfg(loom)]
mod model {
    use core::time::Duration;
    pub use loom::sync::MutexGuard;
    use softring_uapi::errno::Result;

    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// Model of the parker. A sleep with a limit ends at once: loom has no time, and this lets the
    /// timer lose or win every race.
    #[derive(Debug)]
    pub struct Parker {
        token: loom::sync::Mutex<bool>,
        cond: loom::sync::Condvar,
    }

    impl Default for Parker {
        fn default() -> Self {
            Self { token: loom::sync::Mutex::new(false), cond: loom::sync::Condvar::new() }
        }
    }

    impl Parker {
        pub fn park(&self, limit: Option<Duration>) -> bool {
            let mut t = self.token.lock().unwrap();
            while !*t && limit.is_none() {
                t = self.cond.wait(t).unwrap();
            }
            core::mem::take(&mut *t)
        }

        pub fn unpark(&self) {
            *self.token.lock().unwrap() = true;
            self.cond.notify_one();
        }
    }

    pub fn spawn(_: &str, _: usize, f: impl FnOnce() + Send + 'static) -> Result<()> {
        loom::thread::spawn(f);
        Ok(())
    }

    /// Signals to one worker: a model that sends any has no other worker.
    #[derive(Default)]
    struct Signals {
        state: loom::sync::Mutex<State>,
        come: loom::sync::Condvar,
    }

    #[derive(Clone, Copy, Default)]
    struct State {
        coming: bool,
        /// Fault for a test: [`Repeated::stop`] has no effect.
        forever: bool,
    }

    loom::lazy_static! {
        static ref SIGNALS: Signals = Signals::default();
    }

    /// Model of `signal::Repeated`.
    #[derive(Default)]
    pub struct Repeated {
        sent: bool,
    }

    impl Repeated {
        pub fn start(&mut self, _: i32, _: usize) {
            self.sent = true;
            SIGNALS.state.lock().unwrap().coming = true;
            SIGNALS.come.notify_all();
        }

        pub fn stop(&mut self) {
            if core::mem::take(&mut self.sent) {
                let mut state = SIGNALS.state.lock().unwrap();
                state.coming = state.forever;
            }
        }
    }

    /// Blocks as a system call that only a signal ends.
    pub fn block_until_signal() {
        let mut state = SIGNALS.state.lock().unwrap();
        while !state.coming {
            state = SIGNALS.come.wait(state).unwrap();
        }
    }

    /// Returns whether a signal would end a system call.
    pub fn is_signalled() -> bool {
        SIGNALS.state.lock().unwrap().coming
    }

    /// Makes [`Repeated::stop`] have no effect from now on.
    pub fn signal_forever() {
        SIGNALS.state.lock().unwrap().forever = true;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::real::*;
    use core::time::Duration;
    use std::sync::Arc;

    #[test]
    fn mutex_excludes() {
        let m = Arc::new(Mutex::new(0u64));
        let t: Vec<_> = (0..4)
            .map(|_| {
                let m = m.clone();
                std::thread::spawn(move || (0..20_000).for_each(|_| *m.lock() += 1))
            })
            .collect();
        t.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*m.lock(), 80_000);
    }

    #[test]
    fn a_mutex_that_is_held_cannot_be_tried() {
        let m = Mutex::new(1);
        let held = m.lock();
        assert!(m.try_lock().is_none());
        drop(held);
        *m.try_lock().unwrap() = 2;
        assert_eq!(*m.lock(), 2);
    }

    #[test]
    fn a_value_is_passed_before_and_after_the_request() {
        let h = Arc::new(Handover::default());
        h.give(1);
        assert_eq!(h.take(), 1);
        let giver = h.clone();
        let t = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            giver.give(2);
        });
        assert_eq!(h.take(), 2);
        t.join().unwrap();
    }

    #[test]
    fn parker_keeps_an_early_wake_up_and_times_out() {
        let p = Arc::new(Parker::default());
        p.unpark();
        assert!(p.park(None));
        assert!(!p.park(Some(Duration::from_millis(1))));
        let q = p.clone();
        let t = std::thread::spawn(move || q.park(None));
        std::thread::sleep(Duration::from_millis(5));
        p.unpark();
        assert!(t.join().unwrap());
    }
}
