//! Sleeping for completions without the lock that guards the context. During the sleep, reaping is
//! detached from the context: only the waiting thread takes events.
//!
//! The waiting thread is inside io_pgetevents, which takes events out of the ring on its own. So no
//! other thread may take events until the waiting thread has brought its events back
//! ([`AioCtx::detach_reap`]). Every thread may submit meanwhile.
//!
//! ```text
//! waiter                                  others, under the lock
//! lock; detach_reap: detached = waiter
//! unlock
//! io_pgetevents                           submit: yes; reap: finds nothing, the waiter will
//! lock; attach_reap: events, detached = none
//! ```
//!
//! A signal handler may interrupt the waiting thread at the end of its io_pgetevents (signals are
//! blocked otherwise), and want the events itself. The handler then takes the events in its
//! thread's name, and the interrupted wait finds none. So the events are in a buffer that both can
//! reach. The call's return value is not known yet, so events in the buffer are recognised by their
//! iocb address.
#![allow(unsafe_code)]

use super::AioCtx;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::time::Duration;
use softring_host::calls::aio::get_events;
use softring_host::limits::AIO_WAIT_BATCH;
use softring_host::sys;
use softring_uapi::aio::io_event;
use softring_uapi::errno::Result;

/// The thread that sleeps for the events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleeping {
    number: u32,
    thread: usize,
}

/// Events that a waiting thread has taken; the first event without an iocb ends them.
#[derive(Debug)]
pub(super) struct EventBuffer(UnsafeCell<[io_event; AIO_WAIT_BATCH]>);

impl Default for EventBuffer {
    fn default() -> Self {
        EventBuffer(UnsafeCell::new([io_event::default(); AIO_WAIT_BATCH]))
    }
}

// SAFETY: one thread waits at a time: its system call writes the events; after that call the thread
// that attaches the reap again reads them, under the lock.
unsafe impl Send for EventBuffer {}
// SAFETY: as above.
unsafe impl Sync for EventBuffer {}

/// The right to take events without the lock. Must be given back by [`AioCtx::attach_reap`] before
/// the context ends.
#[derive(Debug)]
#[must_use]
pub(crate) struct DetachedReap {
    id: usize,
    number: u32,
    events: Arc<EventBuffer>,
}

impl DetachedReap {
    /// Waits until `min` events have come (at most [`AIO_WAIT_BATCH`] count) or the time is over,
    /// with `sigmask` (a kernel sigset) in force meanwhile. Returns the number of events taken.
    ///
    /// # Errors
    /// EINTR; ENOSYS where io_pgetevents is missing and a mask is asked for.
    pub(crate) fn wait(
        &mut self,
        min: usize,
        time: Duration,
        sigmask: Option<u64>,
    ) -> Result<usize> {
        // SAFETY: the buffer is the one waiting thread's until the reap is attached again.
        unsafe { get_events(self.id, min, Some(time), sigmask, self.events.0.get()) }
    }
}

/// Takes events into the caller's memory: see [`get_events`].
pub(super) fn events_to(
    to: &mut [io_event; AIO_WAIT_BATCH],
    id: usize,
    min: usize,
    timeout: Option<Duration>,
    sigmask: Option<u64>,
) -> Result<usize> {
    // SAFETY: nobody else has the buffer.
    unsafe { get_events(id, min, timeout, sigmask, to) }
}

impl AioCtx {
    /// Detaches reaping for a thread that is about to sleep for events. Returns `None` if another
    /// thread sleeps for events, or if events are there already.
    pub(crate) fn detach_reap(&mut self) -> Option<DetachedReap> {
        if self.is_detached() || !self.taken.is_empty() {
            return None;
        }
        self.detachments = self.detachments.wrapping_add(1);
        let number = self.detachments;
        self.detached = Some(Sleeping { number, thread: sys::thread() });
        Some(DetachedReap { id: self.id, number, events: self.events.clone() })
    }

    /// Returns whether a thread sleeps for the events.
    pub(crate) fn is_detached(&self) -> bool {
        self.detached.is_some()
    }

    /// Attaches reaping again after the sleep, with the events it has taken unless a handler took
    /// them.
    pub(crate) fn attach_reap(&mut self, reap: &DetachedReap) {
        if self.detached.is_some_and(|l| l.number == reap.number) {
            self.take_detached_events();
        }
    }

    /// Attaches reaping again if the calling thread detached it: the caller is a signal handler
    /// that interrupts its own thread's sleep.
    pub(crate) fn attach_own(&mut self) {
        if self.detached.is_some_and(|l| l.thread == sys::thread()) {
            self.take_detached_events();
        }
    }

    fn take_detached_events(&mut self) {
        self.detached = None;
        if let Some(ring) = &mut self.ring {
            ring.resync();
        }
        // SAFETY: the sleep is over, so its call has returned, and under the lock nobody else reads
        // the events.
        let events = unsafe { &mut *self.events.0.get() };
        let n = events.iter().position(|e| e.obj == 0).unwrap_or(events.len());
        // Reaped from the end: keep the kernel's order.
        self.taken.extend(events[..n].iter().rev());
        events[..n].fill(io_event::default());
    }
}
