//! A thread that sleeps in its own poll, with rings among what it waits for, drives them meanwhile:
//! it waits for what the rings wait for, and reaps when it wakes. No other thread wakes for it.
//!
//! Runs on: the program's thread, in poll(2), epoll_wait(2) and their like (the preload library
//! makes those calls).
//!
//! ```text
//! Poller::add      under the lock: is anything ready? else the thread takes the driver's role
//! ppoll(2)         on the ring's poll set instead of the ring, until the ring's next deadline
//! Poller::end      under the lock: takes the events, turns the ring, gives the role back
//! ```
//!
//! Where the thread cannot have the role (another thread drives, an SQ thread does, the ring is
//! polled, a signal handler has interrupted the engine), the thread sleeps on the ring's
//! [`stand_in`](super::stand_in). Whoever posts signals the stand-in while a thread sleeps so
//! ([`OfProcess::passive_polls`]), and while no thread drives the ring by polling.
//!
//! ```text
//! passive poller                      poster (holds the uring lock)
//! passive_polls += 1                  posts
//! lock: is the ring readable?         passive_polls > 0: signals the stand-in
//! unlock; sleeps on the stand-in
//! ```
//!
//! Either the poster sees the count, or the poller, which takes the lock later, sees the CQE.
//!
//! A thread that leaves its poll by longjmp(3) from a handler, or ends there, keeps the role. It
//! loses the role when it next enters or polls (`Ctx::supersede`), or when it ends
//! ([`thread_ends`]).
//!
//! [`OfProcess::passive_polls`]: super::of_process

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Arc;

use super::leave::leave;
use super::of_process::{EVENTFDS, PROCESS};
use super::sleep::FOREVER;
use crate::io::poll::BATCH;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::table::find;
use crate::ring::turn::Turn;
use softring_host::fd::numbers::closes_all_reported;
use softring_host::handlers::Call;
use softring_host::sys;
use softring_host::time::Clock;
use softring_uapi::epoll_event;

/// Rings that one poll drives at most; others are polled by their stand-ins.
pub const MOST: usize = 4;

/// When a poll is told of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// While the ring is readable.
    Level,
    /// When its pollers were to be woken since it was told, as [`Readiness::wakes`] counts that;
    /// none: it was told of nothing yet.
    Edge(Option<u32>),
    /// Never: an eventfd that is registered with the ring tells.
    Eventfd,
}

/// What a ring has for its pollers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    pub readable: bool,
    /// The stand-in says so, too: a thread sleeps on it.
    pub signalled: bool,
    /// How often its pollers were to be woken so far; wraps.
    pub wakes: u32,
}

/// What to poll in place of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing: the ring is readable now.
    Ready(Readiness),
    /// This descriptor; once it is readable, [`Poller::end`] knows whether the ring is.
    Driven(i32),
    /// This descriptor, which is readable while the ring is.
    StandIn(i32),
}

#[derive(Debug)]
struct Driven {
    ring: Arc<Ring>,
    /// The descriptor of its poll set.
    set: i32,
    trigger: Trigger,
    /// When it has something to do whatever the poll set says, in ns of CLOCK_MONOTONIC.
    until: u64,
    now: Readiness,
}

/// The rings of one poll of the program's.
#[derive(Debug, Default)]
pub struct Poller {
    driven: [Option<Driven>; MOST],
    /// It sleeps on stand-ins as well.
    passive: bool,
}

impl Poller {
    /// What to poll in place of `fd`; none if it is no ring of ours.
    pub fn add(&mut self, fd: i32) -> Option<Source> {
        let call = Call::begin();
        self.add_ring(&call, &find(fd)?, Trigger::Level, false)
    }

    /// What to poll beside the eventfd `fd`, if it is registered with a ring that the calling
    /// thread can drive: once this descriptor is readable, [`Self::end`] may signal the eventfd.
    pub fn add_eventfd(&mut self, fd: i32) -> Option<i32> {
        if !is_eventfd(fd) {
            return None;
        }
        let call = Call::begin();
        let named = |ring: &Arc<Ring>| ring.eventfd_number.load(Relaxed) == fd;
        let ring = (0..).map_while(crate::ring::table::nth).find(named)?;
        if call.is_in_the_way() || self.all().any(|d| Arc::ptr_eq(&d.ring, &ring)) {
            return None;
        }
        match self.drive(&ring, Trigger::Eventfd, false)? {
            Source::Driven(set) => Some(set),
            _ => None,
        }
    }

    /// The same for a member of an epoll set, which has its stand-in: the stand-in is to say
    /// nothing while the thread drives.
    pub fn add_member(&mut self, ring: &Arc<Ring>, trigger: Trigger) -> Option<Source> {
        let call = Call::begin();
        self.add_ring(&call, ring, trigger, true)
    }

    fn add_ring(
        &mut self,
        call: &Call,
        ring: &Arc<Ring>,
        trigger: Trigger,
        alone: bool,
    ) -> Option<Source> {
        if let Some(known) = self.all().find(|d| Arc::ptr_eq(&d.ring, ring)) {
            return Some(Source::Driven(known.set));
        }
        if !call.is_in_the_way()
            && let Some(source) = self.drive(ring, trigger, alone)
        {
            return Some(source);
        }
        self.sleeps_passively();
        super::stand_in::poll_fd_of(ring).map(Source::StandIn)
    }

    /// The thread is about to sleep on stand-ins, for as long as this lives.
    pub fn sleeps_passively(&mut self) {
        if !core::mem::replace(&mut self.passive, true) {
            PROCESS.passive_polls.fetch_add(1, SeqCst);
        }
    }

    /// The calling thread takes the driver's role, if it can and there is need.
    fn drive(&mut self, ring: &Arc<Ring>, trigger: Trigger, alone: bool) -> Option<Source> {
        let free = self.driven.iter_mut().find(|d| d.is_none())?;
        if ring.sq.get().is_some() || ring.is_inherited() {
            return None;
        }
        let mut ctx = ring.lock_soon()?;
        if ctx.polls() || ctx.leaves_work() || (ctx.defers() && matches!(trigger, Trigger::Edge(_)))
        {
            return None;
        }
        if ctx.driver.thread == sys::thread() {
            // It has left an earlier sleep by a jump.
            ctx.end_drive();
        }
        if ctx.driver.active || ring.dead.load(Relaxed) {
            return None;
        }
        ctx.transports.poll_set().ok()?;
        let set = ctx.transports.epoll_fd()?;
        ring.note_polled();
        if alone {
            ctx.clear_stand_in();
        }
        if !ctx.defers() {
            ctx.turn(Turn::Memory);
        }
        let now = ctx.readiness(trigger);
        if now.readable {
            leave(ring, ctx);
            return Some(Source::Ready(now));
        }
        let left = ctx.next_event_in();
        let until = left.map_or(FOREVER, |ns| Clock::Monotonic.now().saturating_add(ns));
        if ctx.transports.with_models() {
            sys::exact_timers();
        }
        ctx.begin_drive(1, until);
        // So that its end is noticed.
        crate::ring::task::current();
        // Others are told what the turn has left for them.
        leave(ring, ctx);
        *free = Some(Driven { ring: ring.clone(), set, trigger, until, now });
        Some(Source::Driven(set))
    }

    fn all(&self) -> impl Iterator<Item = &Driven> {
        self.driven.iter().flatten()
    }

    /// When the poll is to end at the latest, in ns of CLOCK_MONOTONIC.
    pub fn until(&self) -> Option<u64> {
        self.all().map(|d| d.until).filter(|&until| until != FOREVER).min()
    }

    /// Descriptors that [`Self::add`] has answered.
    pub fn sets(&self) -> impl Iterator<Item = i32> {
        self.all().map(|d| d.set)
    }

    /// The poll is over: turns the rings, and gives the role back. `fired`: is this descriptor,
    /// which [`Self::add`] has answered, readable?
    pub fn end(&mut self, fired: impl Fn(i32) -> bool) {
        for driven in self.driven.iter_mut().flatten() {
            let _call = Call::begin();
            driven.end(fired(driven.set));
        }
    }

    /// What the ring has for which [`Self::add`] has answered this descriptor.
    pub fn readiness(&self, set: i32) -> Option<Readiness> {
        self.all().find(|d| d.set == set).map(|d| d.now)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if self.passive {
            PROCESS.passive_polls.fetch_sub(1, SeqCst);
        }
    }
}

impl Driven {
    fn end(&mut self, fired: bool) {
        let mut ctx = self.ring.lock_now();
        // A handler may have taken the role over.
        if ctx.driver.thread == sys::thread() {
            ctx.begin_pass(false);
            ctx.end_drive();
            let due = self.until != FOREVER && Clock::Monotonic.now() >= self.until;
            ctx.polled_outside(fired || due);
        }
        self.ring.note_polled();
        self.now = ctx.readiness(self.trigger);
        self.now.readable |= fired && self.trigger != Trigger::Eventfd && ctx.owes_task_work();
        leave(&self.ring, ctx);
    }
}

/// Is `fd` a number under which an eventfd was registered with a ring?
pub fn is_eventfd(fd: i32) -> bool {
    bit(fd).is_some_and(|(word, mask)| word.load(Relaxed) & mask != 0)
}

/// The program has registered the eventfd `fd` with a ring.
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

/// The calling thread ends, perhaps in the middle of a poll (pthread_cancel(3)).
pub(crate) fn thread_ends(ring: &Arc<Ring>) {
    let mut ctx = ring.lock_now();
    if ctx.driver.thread == sys::thread() {
        ctx.end_drive();
        leave(ring, ctx);
    }
}

impl Ring {
    /// A thread polls the ring, and is its driver.
    fn note_polled(&self) {
        self.driven.store(true, Relaxed);
        self.polled.store(true, Relaxed);
    }

    /// Is it to be expected that a thread polls the ring soon, and drives it?
    pub(super) fn is_polled(&self) -> bool {
        self.polled.load(Relaxed) && self.driven.load(Relaxed)
    }
}

impl Ctx {
    /// What poll(2) says of the ring, as far as memory tells (`io_uring_poll`).
    fn readiness(&mut self, trigger: Trigger) -> Readiness {
        let any = self.mem.cq_ready() > 0 || !self.overflow.is_empty();
        let readable = match trigger {
            Trigger::Edge(Some(told)) => any && self.poll_wakes != told,
            Trigger::Eventfd => false,
            _ => any || (self.defers() && self.has_work_in_memory()),
        };
        Readiness { readable, signalled: self.poll_fd_signalled, wakes: self.poll_wakes }
    }

    /// A poll of the program's that has driven the ring is over. `fired`: its poll set has events.
    fn polled_outside(&mut self, fired: bool) {
        if self.defers() {
            // Only the program's entering posts.
            if fired && self.eventfd.is_some() && self.owes_task_work() {
                self.set_taskrun();
            }
            return;
        }
        if !fired {
            return self.turn(Turn::Memory);
        }
        let mut buf = [epoll_event::default(); BATCH];
        let n = self.transports.ready_events(&mut buf);
        self.turn(Turn::Events { events: &buf[..n], early: None });
    }

    /// Does every thread that polls the ring drive it? The stand-in need not be signalled then.
    /// Where duplicates go unreported, nobody knows who waits for a set.
    pub(super) fn is_polled_by_drivers(&self) -> bool {
        closes_all_reported()
            && !self.poll_fd_shared
            && PROCESS.passive_polls.load(SeqCst) == 0
            && self.ring.upgrade().is_some_and(|ring| ring.polled.load(Relaxed))
    }

    /// No thread has polled the ring for a while: the stand-in is signalled again.
    pub(super) fn polled_no_more(&mut self) {
        let Some(ring) = self.ring.upgrade() else { return };
        if ring.polled.swap(false, Relaxed) && self.readiness(Trigger::Level).readable {
            self.signal_poll_fd();
        }
    }
}
