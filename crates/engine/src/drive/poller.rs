//! Rings driven by a thread that sleeps in its own poll: the thread waits for what the rings wait
//! for, and reaps when it wakes. No other thread wakes for it.
//!
//! Runs on: the program's thread, in poll(2) and ppoll(2) (the preload library's wrappers).
//!
//! ```text
//! Poller::add      under the lock: is anything ready? else the thread takes the driver's role
//! Poller::sleep    ppoll(2) on the ring's poll set instead of the ring, until the next deadline
//! Poller::end      under the lock: takes the events, turns the ring, gives the role back
//! ```
//!
//! If the thread cannot have the role (another thread drives, an SQ thread does, the ring is
//! polled, a signal handler has interrupted the engine), it sleeps on the ring's
//! [`stand_in`](super::stand_in), which every poster signals. An eventfd that is registered with a
//! ring is polled as it is, and the ring's poll set beside it.
//!
//! A thread that is in the middle of an issue, without the lock, does not hinder this. It takes
//! what the poller finds meanwhile (`Ctx::stash_events`), and its completions wake the poller.
//!
//! All three are one call of the engine's ([`Call`]), so that handlers of the program run after the
//! role has been given back: a handler may do anything, and never return.

use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::leave::leave;
use super::of_process::{EVENTFDS, PROCESS};
use super::sets::Report;
use super::sleep::{FOREVER, On, sleep};
use crate::io::poll::BATCH;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::table::find;
use crate::ring::turn::{Drives, Turn};
use softring_host::handlers::{Call, waits_under};
use softring_host::sys::nr::{EPOLLIN, EPOLLOUT, EPOLLRDNORM, EPOLLWRNORM};
use softring_host::sys::{self, PollEntry};
use softring_host::time::Clock;
use softring_uapi::epoll_event;
use softring_uapi::errno::Result;

/// Events of a ring with completions, and of one with room in its SQ.
const READABLE: u32 = EPOLLIN | EPOLLRDNORM;
const WRITABLE: u32 = EPOLLOUT | EPOLLWRNORM;

/// Number of rings that one poll drives at most; others are polled by their stand-ins.
pub const MOST: usize = 4;

/// Descriptor to poll in place of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// None: the ring is readable now.
    Ready,
    /// Descriptor of the poll set; once it is readable, [`Poller::end`] knows whether the ring is.
    Driven(i32),
    /// Descriptor that is readable while the ring is.
    StandIn(i32),
}

#[derive(Debug)]
struct Driven {
    ring: Arc<Ring>,
    /// Descriptor of the ring's poll set.
    set: i32,
    /// Flag, true if the program polls an eventfd that is registered with the ring.
    by_eventfd: bool,
    /// Time at which the ring has work without an event, in ns of CLOCK_MONOTONIC.
    until: u64,
    /// Events of the ring at the end of the poll.
    events: u32,
    report: Report,
}

/// Rings of one poll of the program. To be dropped before errno is set: the drop runs handlers.
#[derive(Debug)]
pub struct Poller {
    driven: [Option<Driven>; MOST],
    /// Count of cancellations before the caller checked for its own.
    cancels: u32,
    call: Call,
}

/// Returns how many threads the program has cancelled ([`thread_is_cancelled`]).
pub fn cancels() -> u32 {
    PROCESS.cancels.load(SeqCst)
}

/// Reports that a thread was cancelled (pthread_cancel(3)): no signal tells it so while it sleeps
/// in a poll that is not the C library's. Ends the sleep of each thread that drives a ring in its
/// own poll. A thread that is about to sleep either has the role already when this asks for the
/// driver, or sees the count in [`Poller::sleep`].
pub fn thread_is_cancelled() {
    let _call = Call::begin();
    PROCESS.cancels.fetch_add(1, SeqCst);
    for ring in crate::ring::table::some(|ring| ring.polled_ever.load(Relaxed)) {
        if let Some(mut ctx) = ring.lock_soon().filter(|ctx| ctx.drive.driver.active) {
            ctx.drive.wake_driver();
        }
    }
}

impl Poller {
    /// Begins a poll of a thread that was not cancelled when it had read `cancels` ([`cancels`]).
    pub fn begin(cancels: u32) -> Poller {
        Poller { driven: [const { None }; MOST], cancels, call: Call::begin() }
    }

    /// Returns what to poll in place of `fd`; none if `fd` is no ring of ours.
    pub fn add(&mut self, fd: i32) -> Option<Source> {
        let ring = find(fd)?;
        if let Some(known) = self.all().find(|d| Arc::ptr_eq(&d.ring, &ring)) {
            return Some(Source::Driven(known.set));
        }
        let driven = self.drive(&ring, READABLE, None);
        driven.or_else(|| super::stand_in::poll_fd(fd).map(Source::StandIn))
    }

    /// Returns whether ring `fd` has completions, where the calling thread could drive it. It
    /// counts as a poll of the thread's.
    pub fn finds_ready(&self, fd: i32) -> bool {
        let Some(ring) = find(fd) else { return false };
        if self.call.holds_locks() || ring.sq.get().is_some() || ring.is_inherited() {
            return false;
        }
        let Some(ctx) = ring.lock_soon() else { return false };
        // A thread that has left an earlier sleep by a jump drives, and is to end that.
        let usual = !ctx.setup.polls() && ctx.drive.driver.thread != sys::thread();
        let ready = usual && ctx.mem.cq_ready() > 0 && !ring.dead.load(Relaxed);
        if ready {
            ring.mark_polled();
        }
        ready
    }

    /// Does the same as [`add`](Self::add) for a ring in an epoll set that asks for the events
    /// `asked`; none if the calling thread cannot drive it. The ring is [`Source::Ready`] only with
    /// news since `last`.
    pub fn add_member(&mut self, fd: i32, asked: u32, last: Option<Report>) -> Option<Source> {
        self.drive(&find(fd)?, asked, last)
    }

    /// Returns the events of the ring for which [`Self::add_member`] has returned this descriptor,
    /// and its report.
    pub fn report(&self, set: i32) -> Option<(u32, Report)> {
        self.all().find(|d| d.set == set && !d.by_eventfd).map(|d| (d.events, d.report))
    }

    /// Returns the descriptor to poll beside the eventfd `fd`, if it is registered with a ring that
    /// the calling thread can drive: once it is readable, [`Self::end`] may signal the eventfd.
    pub fn add_eventfd(&mut self, fd: i32) -> Option<i32> {
        if !is_eventfd(fd) {
            return None;
        }
        let named = |ring: &Arc<Ring>| ring.eventfd_number.load(Relaxed) == fd;
        let ring = (0..).map_while(crate::ring::table::nth).find(named)?;
        if self.all().any(|d| Arc::ptr_eq(&d.ring, &ring)) {
            return None;
        }
        match self.drive(&ring, 0, None)? {
            Source::Driven(set) => Some(set),
            _ => None,
        }
    }

    /// Takes the driver's role for the calling thread, if it can and there is need. `asked`: events
    /// that the program asks for; 0: it polls an eventfd that is registered with the ring.
    fn drive(&mut self, ring: &Arc<Ring>, asked: u32, last: Option<Report>) -> Option<Source> {
        if self.call.holds_locks() || ring.sq.get().is_some() || ring.is_inherited() {
            return None;
        }
        let signalled = ring.forked.load(Relaxed) && ring.stand_in.load(Relaxed) >= 0;
        if signalled || ring.unsignalled.load(Relaxed) {
            // The other process, too, signals the stand-in when it posts, or a thread does for it.
            return None;
        }
        let free = self.driven.iter_mut().find(|d| d.is_none())?;
        let mut ctx = ring.lock_soon()?;
        if ctx.setup.polls() || ring.dead.load(Relaxed) {
            return None;
        }
        if ctx.drive.driver.thread == sys::thread() {
            // The thread has left an earlier sleep by a jump.
            ctx.end_drive();
        }
        if ctx.drive.driver.active {
            return None;
        }
        ctx.drive.transports.poll_set().ok()?;
        let set = ctx.drive.transports.epoll_fd()?;
        ring.mark_polled();
        if !ctx.defers() {
            ctx.turn(Turn::Memory);
        }
        let ready = asked != 0 && ctx.poll_mask() & asked != 0;
        if ready && last.is_none_or(|last| ctx.report().is_news(last)) {
            leave(ring, ctx);
            return Some(Source::Ready);
        }
        let left = ctx.next_event_in();
        let until = left.map_or(FOREVER, |ns| Clock::Monotonic.now().saturating_add(ns));
        if ctx.drive.transports.with_models() {
            sys::exact_timers();
        }
        ctx.drive.begin_drive(1, until);
        // Makes sure that the thread's end is noticed.
        crate::ring::task::current();
        // Others are told what the turn has left for them.
        leave(ring, ctx);
        let (by_eventfd, events, report) = (asked == 0, 0, Report::default());
        *free = Some(Driven { ring: ring.clone(), set, by_eventfd, until, events, report });
        Some(Source::Driven(set))
    }

    fn all(&self) -> impl Iterator<Item = &Driven> {
        self.driven.iter().flatten()
    }

    /// Polls `entries` under `mask` until `deadline` (in ns of CLOCK_MONOTONIC; 0: no longer than
    /// now; none: without end), or until a ring has something to do.
    ///
    /// # Errors
    /// `EINTR` when a signal came; its handler runs when the poller is dropped. `EINVAL` for more
    /// entries than RLIMIT_NOFILE allows.
    pub fn sleep(
        &self,
        entries: &mut [PollEntry],
        deadline: Option<u64>,
        mask: Option<u64>,
    ) -> Result<usize> {
        let until = self.all().map(|d| d.until).filter(|&until| until != FOREVER);
        let ns = match until.chain(deadline).min() {
            _ if cancels() != self.cancels => 0,
            None => FOREVER,
            Some(0) => 0,
            Some(at) => at.saturating_sub(Clock::Monotonic.now()),
        };
        let _under = mask.filter(|_| ns > 0).map(waits_under);
        sleep(On::Entries(entries), ns, mask)
    }

    /// Ends the poll: turns the rings, and gives the role back. `fired` returns whether a
    /// descriptor from [`Self::add`] is readable.
    pub fn end(&mut self, fired: impl Fn(i32) -> bool) {
        for driven in self.driven.iter_mut().flatten() {
            driven.end(fired(driven.set));
        }
    }

    /// Returns whether the ring is readable for which [`Self::add`] has returned this descriptor;
    /// none if there is no such ring.
    pub fn is_readable(&self, set: i32) -> Option<bool> {
        let driven = self.all().find(|d| d.set == set && !d.by_eventfd);
        driven.map(|d| d.events & READABLE != 0)
    }
}

impl Driven {
    fn end(&mut self, fired: bool) {
        let mut ctx = self.ring.lock_now();
        // A handler that was not reported may have taken the role over.
        if ctx.drive.driver.thread == sys::thread() {
            ctx.begin_pass(false);
            ctx.end_drive();
            let due = self.until != FOREVER && Clock::Monotonic.now() >= self.until;
            ctx.polled_outside(fired || due);
        }
        self.ring.mark_polled();
        let owes = fired && ctx.owes_task_work();
        self.events = ctx.poll_mask() | if owes { READABLE } else { 0 };
        self.report = ctx.report().with_work(owes);
        leave(&self.ring, ctx);
    }
}

/// Returns whether `fd` is a number under which an eventfd was registered with a ring.
pub fn is_eventfd(fd: i32) -> bool {
    bit(fd).is_some_and(|(word, mask)| word.load(Relaxed) & mask != 0)
}

/// Records that the program has registered the eventfd `fd` with a ring.
pub(crate) fn has_eventfd(ring: &Ring, fd: i32) {
    ring.eventfd_number.store(fd, Relaxed);
    if let Some((word, mask)) = bit(fd) {
        word.fetch_or(mask, Relaxed);
    }
}

fn bit(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok().filter(|&at| at < EVENTFDS)?;
    Some((&PROCESS.eventfds[at / 64], 1 << (at % 64)))
}

/// Gives the role back for a thread that ends, perhaps in the middle of a poll.
pub(crate) fn thread_ends(ring: &Arc<Ring>) {
    if !ring.polled_ever.load(Relaxed) {
        return;
    }
    let mut ctx = ring.lock_now();
    if ctx.drive.driver.thread == sys::thread() {
        ctx.end_drive();
        leave(ring, ctx);
    }
}

impl Ctx {
    /// Returns the ring's events, as far as memory tells (`io_uring_poll`).
    pub(super) fn poll_mask(&mut self) -> u32 {
        let readable = self.mem.cq_ready() > 0
            || !self.completion.overflow.is_empty()
            || (self.defers() && self.has_work_in_memory());
        let room = if self.mem.sq_full() { 0 } else { WRITABLE };
        room | if readable { READABLE } else { 0 }
    }

    /// Ends a poll of the program that has driven the ring. `fired`: its poll set has events.
    fn polled_outside(&mut self, fired: bool) {
        if self.defers() {
            // Only an enter of the program posts.
            if fired && self.completion.eventfd.is_some() && self.owes_task_work() {
                self.set_taskrun();
            }
            return;
        }
        if !fired {
            return self.turn(Turn::Memory);
        }
        let mut buf = [epoll_event::default(); BATCH];
        let n = self.drive.transports.ready_events(&mut buf);
        self.turn(Turn::Events { events: &buf[..n], early: None });
    }
}
