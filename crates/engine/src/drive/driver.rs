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

use crate::io::clock::CLOCK_DATA;
use crate::io::persistent::{self, RETOLD};
use crate::io::poll::AIO_DATA;
use crate::io::token::ReqId;
use crate::ring::ctx::{Ctx, Requests};
use crate::ring::request::{Phase, ReqFlags};
use softring_host::sys;
use softring_uapi::epoll_event;

/// File and arming order of a request that an event of the poll set names.
#[derive(Clone, Copy)]
struct WaitsOn {
    /// Number of the request's file.
    number: i32,
    /// Flag, true if the poll set has the request under a duplicate, as one of several for the
    /// file.
    beside: bool,
    /// Order of arming: whether a worker goes on with the request, and how many were armed since.
    order: (bool, u32),
}

impl Ctx {
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
            0 => self.drive.clear_wake(),
            AIO_DATA => {
                self.aio_reap();
            }
            // The end of a sleep: deadlines are checked anyway.
            CLOCK_DATA => {}
            data => match persistent::number(data) {
                Some(fd) => self.number_fired(fd, ev.events),
                None => {
                    self.poll_fired(ReqId::from_u64(data), ev.events);
                }
            },
        }
    }

    fn number_fired(&mut self, fd: i32, events: u32) {
        if let Some(seen) = self.drive.registration(fd).and_then(|s| s.events_of(events)) {
            self.registration_fired(fd, seen);
        }
    }

    pub(super) fn take_stash_now(&mut self) {
        if self.drive.transports.stash.iter().any(|ev| ev.events == RETOLD) {
            // A newer event of the same file says more.
            self.poll_aside();
        }
        while let Some(ev) = self.drive.transports.stash.pop_front() {
            if self.drive.transports.stash.is_empty() {
                self.poll_events(&[ev]);
            } else {
                // All events together, for several may be of one file.
                let others = self.drive.transports.stash.drain(..);
                let events: Vec<_> = core::iter::once(ev).chain(others).collect();
                self.poll_events(&events);
            }
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
