//! Transports, where requests wait: the poll set, the kernel's aio, workers. Each is created when
//! first needed; if one cannot be created, a slower one that is right replaces it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::io::polling::Polling;
use crate::io::token::ReqId;
use softring_uapi::epoll_event;
use softring_uapi::errno::Result;

pub(crate) mod aio;
pub(crate) mod clock;
pub(crate) mod completions;
mod epoll;
pub mod faults;
pub(crate) mod futex_each;
pub(crate) mod futex_owner;
pub(crate) mod futex_waiter;
pub(crate) mod iov;
pub(crate) mod kinds;
pub(crate) mod marks;
pub mod model;
pub(crate) mod of_process;
pub(crate) mod peers;
pub(crate) mod persistent;
pub(crate) mod poll;
pub mod poll_queues;
pub mod polling;
mod requeue;
pub(crate) mod signal_scope;
pub(crate) mod socket;
pub(crate) mod token;
pub(crate) mod worker;
pub(crate) mod workers;

use aio::AioCtx;
use completions::Completions;
use futex_waiter::FutexWaiters;
pub(crate) use of_process::AT_FORK;
use poll::{BATCH, PollSet};

/// Waits in a row that find enough without polling the poll set; the last of these waits polls.
const UNSEEN_MAX: u32 = 32;

/// The transports of one ring.
#[derive(Debug, Default)]
pub struct Transports {
    pub(crate) poll: Option<PollSet>,
    /// Ticks until the poll set leaves the reactor's set, if waiters go on driving; 0: it is not
    /// there.
    pub(crate) in_reactor: u8,
    /// Requests with workers.
    pub workers: u32,
    pub(crate) futex_waiters: FutexWaiters,
    pub(crate) aio: Option<Box<AioCtx>>,
    /// Policy of waiting threads, if not the ring's usual one.
    pub(crate) polling: Option<Box<Polling>>,
    /// Flag, set once the kernel has refused aio.
    pub(crate) aio_refused: bool,
    /// Queue of requests with modelled devices.
    pub(crate) model: Option<Box<model::queue::Queue>>,
    /// Buffer for the completions of one reap; empty between two.
    pub(crate) completions: Completions,
    /// Flag, set while a batch of iocbs waits for submission.
    pub(crate) aio_queued: bool,
    /// Flag, set if something was ready when it was armed: poll before leaving `enter`.
    pub(crate) ready_now: bool,
    /// Requests registered in the poll set since its last pass.
    pub(crate) new_polls: u32,
    /// Events that were taken from the set in the middle of a batch.
    pub(crate) stash: VecDeque<epoll_event>,
    /// Passes over the poll set so far.
    pub(crate) passes: u32,
    /// Multishot POLL_ADDs in the poll set.
    pub(crate) multishot_polls: u32,
    /// Polls, the first few, among some that have ended (`ring::taken`).
    pub(crate) data_polls: Vec<ReqId>,
    /// The passes over the poll set when those that have ended were last removed.
    pub(crate) data_polls_pass: u32,
    /// The passes over the poll set so far, and waits since the last that found enough without one.
    unseen: (u32, u32),
    /// Flag, set if the current pass found its events without sleeping.
    pub(crate) prompt: bool,
}

impl Transports {
    /// Returns whether any request is with a transport.
    pub(crate) fn in_flight(&self) -> bool {
        self.workers > 0 || self.needs_driver()
    }

    /// Returns whether any request is with a transport that completes only if a thread drives.
    pub(crate) fn needs_driver(&self) -> bool {
        self.poll.as_ref().is_some_and(|p| p.armed() > 0)
            || self.aio.as_ref().is_some_and(|a| a.in_flight() > 0)
            || self.with_models()
    }

    /// Returns whether a pass over the poll set is due though a wait finds enough without one. A
    /// server's sends complete at once, and a pass in each wait would double its polls. But epoll
    /// merges two wake-ups of a file, so with multishot polls, which report each wake-up, every
    /// wait polls.
    pub(crate) fn unseen_long(&mut self) -> bool {
        let (passes, waits) = self.unseen;
        let waits = if passes == self.passes { waits + 1 } else { 1 };
        self.unseen = (self.passes, waits % UNSEEN_MAX);
        waits == UNSEEN_MAX || self.multishot_polls > 0
    }

    /// Returns whether any request is with a modelled device.
    pub(crate) fn with_models(&self) -> bool {
        self.model.as_ref().is_some_and(|q| !q.is_empty())
    }

    /// Returns the poll set, creating it if needed.
    pub(crate) fn poll_set(&mut self) -> Result<&mut PollSet> {
        if self.poll.is_none() {
            self.poll = Some(PollSet::new()?);
        }
        Ok(self.poll.as_mut().expect("made above"))
    }

    /// Removes the registration of `fd` from the poll set.
    pub(crate) fn poll_del(&mut self, fd: i32) {
        if let Some(p) = &mut self.poll {
            p.del(fd);
        }
    }

    /// Leaves the registration of `fd`, disarmed by an event, for the next request.
    pub(crate) fn poll_leave(&mut self, fd: i32) {
        if let Some(p) = &mut self.poll {
            p.leave(fd);
        }
    }

    /// Counts a request that has left the poll set. `multishot`: each wake-up had a completion of
    /// its own.
    pub(crate) fn one_poll_less(&mut self, multishot: bool) {
        let multishot = u32::from(multishot);
        self.multishot_polls = self.multishot_polls.saturating_sub(multishot);
    }

    /// Returns whether any transport was created.
    pub(crate) fn any(&self) -> bool {
        self.poll.is_some()
            || self.aio.is_some()
            || self.model.is_some()
            || self.polling.is_some()
            || self.futex_waiters.any()
    }

    /// Drops all transports, because the ring ends.
    pub(crate) fn end(self) {}

    /// Drops the transports in a forked child. aio contexts are the parent's. The epoll set is
    /// shared with the parent, so it is closed and its registrations are left alone.
    pub(crate) fn forget(self) {
        if let Some(aio) = self.aio {
            aio.fork_child();
        }
    }

    /// Returns the descriptor that becomes readable when a transport has something.
    pub(crate) fn epoll_fd(&self) -> Option<i32> {
        self.poll.as_ref().map(PollSet::number)
    }

    /// Takes events that are ready in the poll set, without waiting; returns their number. If they
    /// fill `buf` there may be more.
    pub(crate) fn ready_events(&self, buf: &mut [epoll_event; BATCH]) -> usize {
        poll::wait(self.epoll_fd().unwrap_or(-1), buf, Some(0), None).unwrap_or(0)
    }

    /// Returns what changes when events are taken from the poll set.
    pub(crate) fn events_state(&self) -> (u32, usize) {
        (self.passes, self.stash.len())
    }

    /// Returns the list that tests use in place of epoll, if any; files are then tokens.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn list(&self) -> Option<&epoll::list::List> {
        self.poll.as_ref()?.list()
    }
}
