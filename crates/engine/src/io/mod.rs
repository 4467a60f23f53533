//! Where a request waits: in the poll set, with the kernel's aio, or with a worker. Each is made
//! when first needed, and one that cannot be had is replaced by a slower one that is right.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::io::polling::Polling;
use softring_uapi::epoll_event;
use softring_uapi::errno::Result;

pub(crate) mod aio;
pub(crate) mod clock;
pub(crate) mod completions;
mod epoll;
pub(crate) mod futex_each;
pub(crate) mod futex_owner;
pub(crate) mod futex_waiter;
pub(crate) mod kinds;
pub(crate) mod marks;
pub mod model;
pub(crate) mod of_process;
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
    /// Requests with workers.
    pub workers: u32,
    pub(crate) futex_waiters: FutexWaiters,
    pub(crate) aio: Option<AioCtx>,
    /// How those who wait for them do, where it is not the ring's usual way.
    pub(crate) polling: Option<Box<Polling>>,
    /// Kernel aio is not to be had here.
    pub(crate) aio_refused: bool,
    /// Requests with modelled devices.
    pub(crate) model: Option<Box<model::queue::Queue>>,
    /// Room for what one reap takes; empty between two.
    pub(crate) completions: Completions,
    /// A batch waits for submission.
    pub(crate) aio_queued: bool,
    /// Something was ready already when it was armed: poll before leaving `enter`.
    pub(crate) ready_now: bool,
    /// Requests registered in the poll set since its last pass.
    pub(crate) new_polls: u32,
    /// Events that were taken from the set in the middle of a batch.
    pub(crate) stash: VecDeque<epoll_event>,
    /// Passes over the poll set so far.
    pub(crate) passes: u32,
    /// Multishot POLL_ADDs in the poll set.
    pub(crate) multishot_polls: u32,
    /// The passes over the poll set so far, and waits since the last that found enough without one.
    unseen: (u32, u32),
    /// The pass at hand found what it found without sleeping.
    pub(crate) prompt: bool,
}

impl Transports {
    /// Is anything with a transport?
    pub(crate) fn in_flight(&self) -> bool {
        self.workers > 0 || self.needs_driver()
    }

    /// Is anything with a transport that completes only if somebody drives?
    pub(crate) fn needs_driver(&self) -> bool {
        self.poll.as_ref().is_some_and(|p| p.armed() > 0)
            || self.aio.as_ref().is_some_and(|a| a.in_flight() > 0)
            || self.with_models()
    }

    /// A wait finds enough, and so does not poll epoll. Is a pass due all the same? A server's
    /// sends end at once: it would poll twice as often if each wait did. But epoll takes two
    /// wake-ups of a file for one, so multishot polls, which tell of each, are polled.
    pub(crate) fn unseen_long(&mut self) -> bool {
        let (passes, waits) = self.unseen;
        let waits = if passes == self.passes { waits + 1 } else { 1 };
        self.unseen = (self.passes, waits % UNSEEN_MAX);
        waits == UNSEEN_MAX || self.multishot_polls > 0
    }

    /// Is anything with a modelled device?
    pub(crate) fn with_models(&self) -> bool {
        self.model.as_ref().is_some_and(|q| !q.is_empty())
    }

    /// The poll set, made now if need be.
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

    /// The same where an event has disarmed it: leaves it for the next.
    pub(crate) fn poll_leave(&mut self, fd: i32) {
        if let Some(p) = &mut self.poll {
            p.leave(fd);
        }
    }

    /// A request has left the poll set.
    /// `multishot`: each wake-up had a completion of its own.
    pub(crate) fn one_poll_less(&mut self, multishot: bool) {
        let multishot = u32::from(multishot);
        self.multishot_polls = self.multishot_polls.saturating_sub(multishot);
    }

    /// Was any of them made?
    pub(crate) fn any(&self) -> bool {
        self.poll.is_some()
            || self.aio.is_some()
            || self.model.is_some()
            || self.polling.is_some()
            || self.futex_waiters.any()
    }

    /// The ring ends: let go of everything.
    pub(crate) fn end(self) {}

    /// In a forked child: aio contexts are the parent's. The epoll set is shared with
    /// the parent, so it is closed without touching what it watches.
    pub(crate) fn forget(self) {
        if let Some(aio) = self.aio {
            aio.fork_child();
        }
    }

    /// The descriptor that becomes readable when a transport has something.
    pub(crate) fn epoll_fd(&self) -> Option<i32> {
        self.poll.as_ref().map(PollSet::number)
    }

    /// Takes events that are ready in the poll set, without waiting; answers how many. Where they
    /// fill `buf` there may be more.
    pub(crate) fn ready_events(&self, buf: &mut [epoll_event; BATCH]) -> usize {
        poll::wait(self.epoll_fd().unwrap_or(-1), buf, Some(0), None).unwrap_or(0)
    }

    /// Have tests put a list in the place of epoll? Then files are tokens.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn list(&self) -> Option<&epoll::list::List> {
        self.poll.as_ref()?.list()
    }
}
