//! The driver: the one thread that takes events from a ring's transports. Usually it is a thread
//! waiting inside `enter`; where the program does not enter, the reactor does it. Everything here
//! happens under the uring lock except the wait itself.
//!
//! No wake-up is lost: under the lock a waiter records that it sleeps and what it waits for, and
//! under the lock every poster checks that record.
//!
//! ```text
//! waiter                          poster
//! lock                            lock
//!   ready < want                    post, publish tail
//!   sleeping = true                 sleeping && ready >= want: wake it
//! unlock                          unlock
//!                                   eventfd (level, cannot be missed)
//! epoll_wait(set with eventfd)
//! ```

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::io::clock::CLOCK_DATA;
use crate::io::persistent;
use crate::io::poll::AIO_DATA;
use crate::io::token::ReqId;
use crate::memory::lock::Control;
use crate::ring::ctx::{Completion, Ctx, Driving, Guard, Requests, Ring};
use crate::ring::request::{Phase, ReqFlags};
use crate::ring::waiters::Driver;
use crate::ring::wakeup::{Lock, Waits};
use softring_host::sys;
use softring_uapi::epoll_event;

/// File and arming order of a request that an event of the poll set names.
#[derive(Clone, Copy)]
struct WaitsOn {
    /// Number of the request's file.
    number: i32,
    /// True if the poll set has the request under a duplicate, as one of several for the file.
    beside: bool,
    /// Order of arming: whether a worker goes on with the request, and how many were armed since.
    order: (bool, u32),
}

impl Ctx {
    /// Wakes the threads that wait for the CQEs just published.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.published();
        self.completion.wakes = self.completion.wakes.wrapping_add(1);
        self.completion.signal_poll_fd();
    }

    /// Makes every passive waiter check again once the lock is released.
    #[inline]
    pub(crate) fn wake_waiters(&mut self) {
        self.recheck();
    }

    /// Gives the driver's role back, unless a signal handler has taken it over.
    pub(crate) fn end_drive(&mut self) {
        self.give_back(sys::thread());
    }

    /// Takes the driver's role and its events over if the caller is a signal handler that has
    /// interrupted its own thread's sleep in `enter`: that thread goes on only after the handler.
    #[inline]
    pub(crate) fn supersede(&mut self) {
        let aio = self.drive.transports.aio.as_mut().filter(|aio| aio.is_detached());
        if self.drive.driver.active || aio.is_some() {
            if let Some(aio) = aio {
                aio.attach_own();
            }
            if self.drive.driver.thread == sys::thread() {
                self.end_drive();
            }
        }
    }

    /// Returns the time until the earliest deadline of a timeout or a modelled device, in ns; 0 if
    /// it has passed.
    pub(crate) fn next_event_in(&self) -> Option<u64> {
        let timeout = self.reqs.timeouts.next_in();
        let Some(due) = self.drive.model_due() else {
            return timeout;
        };
        let left = due.saturating_sub(softring_host::time::Clock::Monotonic.now());
        Some(timeout.map_or(left, |t| t.min(left)))
    }

    /// Wakes those who sleep past the earliest deadline, which may have moved.
    pub(crate) fn deadline_moved(&mut self) {
        let Some(left) = self.next_event_in() else { return };
        let at = softring_host::time::Clock::Monotonic.now().saturating_add(left);
        if self.drive.driver.sleeping && at < self.drive.driver.until {
            self.drive.wake_driver();
        }
        if let Some(ring) = self.ring.upgrade() {
            let before = ring.next_deadline.swap(at, Relaxed);
            if at < before && ring.watched.load(Relaxed) {
                super::reactor::wake();
            }
        }
    }

    /// Begins a pass over the poll set, the first for what was registered since the last pass.
    /// `prompt`: the pass does not sleep.
    pub(crate) fn begin_pass(&mut self, prompt: bool) {
        if self.issue.leaves_work() {
            // Requests that the issuing thread arms are not polled yet.
            return;
        }
        self.drive.transports.passes = self.drive.transports.passes.wrapping_add(1);
        self.drive.transports.new_polls = 0;
        self.drive.transports.prompt = prompt;
    }

    /// Acts on events taken from the poll set.
    pub(crate) fn poll_events(&mut self, events: &[epoll_event]) {
        if self.issue.leaves_work() {
            return self.stash_events(events);
        }
        if self.reqs.may_share(events) {
            let mut sorted = events.to_vec();
            self.reqs.last_armed_first(&mut sorted);
            return sorted.iter().for_each(|ev| self.poll_event(ev));
        }
        events.iter().for_each(|ev| self.poll_event(ev));
    }

    fn poll_event(&mut self, ev: &epoll_event) {
        match ev.data {
            0 => {
                if let Some(p) = &self.drive.transports.poll {
                    p.clear_wake();
                }
            }
            AIO_DATA => {
                self.aio_reap();
            }
            // The end of a sleep: deadlines are checked anyway.
            CLOCK_DATA => {}
            data => match persistent::number(data) {
                Some(fd) => self.registration_fired(fd, ev.events),
                None => {
                    self.poll_fired(ReqId::from_u64(data), ev.events);
                }
            },
        }
    }
}

impl Completion {
    /// Makes the ring's stand-in readable: its pollers see new CQEs.
    fn signal_poll_fd(&self) {
        if self.poll_fd.is_some() {
            softring_host::fd::check_now_and_then();
        }
        if let Some(e) = self.poll_fd.map(softring_host::fd::now).and_then(sys::borrow) {
            let _ = softring_host::os::io::write(e, &1u64.to_ne_bytes());
        }
    }
}

impl Waits for Ctx {
    type Sequence = Control;

    #[inline(always)]
    fn sequence(&self) -> &Control {
        &self.mem.control
    }

    #[inline(always)]
    fn driver(&self) -> &Driver {
        &self.drive.driver
    }

    #[inline(always)]
    fn driver_mut(&mut self) -> &mut Driver {
        &mut self.drive.driver
    }

    #[inline(always)]
    fn ready(&self) -> u32 {
        self.mem.cq_ready()
    }

    fn signal_driver(&mut self) {
        self.drive.wake_driver();
    }

    #[inline(always)]
    fn signal_waiters(&mut self) {
        self.drive.wakes.waiters = true;
    }
}

impl Lock for Ring {
    type Guard<'a> = Guard<'a>;

    fn lock_now(&self) -> Guard<'_> {
        self.lock_now()
    }
}

impl Driving {
    /// Takes the role for the calling thread, about to sleep until `until` for `want` CQEs.
    pub(crate) fn begin_drive(&mut self, want: u32, until: u64) {
        self.driver.begin(sys::thread(), want, until);
    }

    /// Ends the driver's sleep once the lock is released.
    pub(crate) fn wake_driver(&mut self) {
        if let Some(p) = &self.transports.poll
            && self.driver.wake()
        {
            self.wakes.driver = Some(p.wake_fd().clone());
        }
    }
}

impl Requests {
    fn waits_on(&self, ev: &epoll_event) -> Option<WaitsOn> {
        let data = ev.data;
        if data == 0 || data == AIO_DATA || data == CLOCK_DATA || persistent::number(data).is_some()
        {
            return None;
        }
        let id = ReqId::from_u64(data);
        let req = self.slab.get(id)?;
        let Phase::Polling(poll) = req.phase else { return None };
        let fixed = req.flags.contains(ReqFlags::FIXED_FILE);
        let number = if fixed { req.call.file.fd() } else { req.call.sqe().fd };
        let order = (req.goes_back_to_worker(), self.slab.age(id));
        Some(WaitsOn { number, beside: poll.at != number, order })
    }
}

impl Requests {
    /// Returns whether an event names one of several requests that wait for one file. The poll set
    /// knows the first request under the file's number, and others under duplicates.
    fn may_share(&self, events: &[epoll_event]) -> bool {
        events.len() > 1 && events.iter().any(|ev| self.waits_on(ev).is_some_and(|w| w.beside))
    }

    /// Sorts events so that of the requests that wait for one file the last armed is tried first:
    /// that is the order of the kernel's wait queue. Requests that go back to a worker come behind
    /// them.
    #[cold]
    fn last_armed_first(&self, events: &mut [epoll_event]) {
        let waiting: Vec<_> = events.iter().map(|ev| self.waits_on(ev)).collect();
        let mut positions: Vec<_> = (0..events.len()).filter(|&i| waiting[i].is_some()).collect();
        let key = |i: &usize| waiting[*i].map_or((0, (false, 0)), |w| (w.number, w.order));
        let mut order = positions.clone();
        order.sort_by_key(key);
        // The events of one file keep their positions together.
        positions.sort_by_key(|i| (key(i).0, *i));
        let unsorted = events.to_vec();
        for (to, from) in positions.into_iter().zip(order) {
            events[to] = unsorted[from];
        }
    }
}
