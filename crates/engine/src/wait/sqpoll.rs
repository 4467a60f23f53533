//! SQPOLL: a thread that watches submission queues, so that the program need not enter.
//! Kernel counterpart: `io_uring/sqpoll.c`.
//!
//! One thread serves a ring, or several that share it (ATTACH_WQ). While there is work, and for
//! `sq_thread_idle` after it, the thread spins: it looks at the tails, submits, and drives the
//! rings' transports. Then it rests: it sets NEED_WAKEUP, hands what is in flight to the reactor,
//! and sleeps until a program wakes it by `enter`. One of the two sees a queue that fills up just
//! then, because each stores before it loads, with a full fence between:
//!
//! ```text
//! program                         thread                     without the fences, both loads
//! tail = new                      flags |= NEED_WAKEUP       may come first: the program sees
//! fence                           fence                      no flag and does not enter, the
//! flags & NEED_WAKEUP -> enter    tail == head -> sleep      thread sees no SQE and sleeps
//! ```
//!
//! `verify::sqpoll` has that as a model. A wake-up that comes before the sleep is kept in `seq`.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::time::{ClockId, clock_gettime};

use crate::abi::*;
use crate::ctx::{Ctx, Ring};
use crate::errno::{Errno, Result};
use crate::mem::lock::Control;
use crate::mem::region::Region;
use crate::mem::rings::off;
use crate::stats::meter::{Kind, Meter};
use crate::sys;
use crate::transport::aio::AioCtx;
use crate::transport::poll::{self, BATCH, Event};

/// SQEs that one of several rings gets in its turn (kernel: `IORING_SQPOLL_CAP_ENTRIES_VALUE`).
const CAP: u32 = 8;
/// `sq_thread_idle` in ms where the program gives none.
const DEFAULT_IDLE: u32 = 1000;
/// While it spins, the thread asks the kernel about readiness in one pass of so many.
const ASK_EVERY: u32 = 16;

/// Words of the thread's page, which forked children share.
mod word {
    /// Bumped by whoever wants the thread awake; it sleeps on this.
    pub const SEQ: usize = 0;
    /// It rests, or is about to: it does not drive its rings.
    pub const RESTS: usize = 4;
    /// Its thread id; 0 once it has ended.
    pub const TID: usize = 8;
}

/// One SQ thread (kernel: `struct io_sq_data`).
#[derive(Debug)]
pub struct SqData {
    /// The process that it lives in.
    pid: u32,
    page: Region,
    rings: Mutex<Vec<Weak<Ring>>>,
    /// The list of rings has changed.
    changed: AtomicBool,
    /// Longest `sq_thread_idle` of its rings, in ms.
    idle: AtomicU32,
}

/// A ring's part in its SQ thread.
#[derive(Debug)]
pub struct SqPoll {
    pub data: Arc<SqData>,
    idle: u32,
    /// The ring's words, without the lock. A ring with an SQ thread is never resized, and whoever
    /// looks has the ring.
    words: Region,
    /// Something is in flight that the thread drives.
    drives: AtomicBool,
    /// It alone finds the ring's completions (IOPOLL): it does not rest while there are some to
    /// come.
    polls: bool,
}

impl SqPoll {
    /// SQEs that wait.
    fn ready(&self, control: &Control) -> u32 {
        let tail = self.words.word(off::SQ_TAIL).load(Acquire);
        tail.wrapping_sub(control.sq_head().load(Relaxed))
    }

    fn need_wakeup(&self, on: bool) {
        let flags = self.words.word(off::SQ_FLAGS);
        if on {
            flags.fetch_or(IORING_SQ_NEED_WAKEUP, SeqCst);
        } else {
            flags.fetch_and(!IORING_SQ_NEED_WAKEUP, SeqCst);
        }
    }

    /// Somebody leaves the ring with work in flight: true if the thread drives it.
    pub fn takes_over(&self) -> bool {
        let awake = self.data.page.word(word::RESTS).load(SeqCst) == 0;
        if awake {
            self.drives.store(true, SeqCst);
        }
        awake && self.data.pid == crate::fork::pid()
    }
}

/// Gives a new ring its SQ thread: that of the `other` that it attaches to, or one of its own
/// (`io_sq_offload_create`).
///
/// # Errors
/// `EINVAL` for a processor that is not there or not allowed, or a ring to attach to that has no SQ
/// thread; `ENXIO` if its thread is gone; `ENOMEM`, `EAGAIN`.
pub fn offload(ring: &Arc<Ring>, p: &io_uring_params, other: Option<&Ring>) -> Result<()> {
    let idle = if p.sq_thread_idle == 0 { DEFAULT_IDLE } else { p.sq_thread_idle };
    let data = match other.map(shared).transpose()?.flatten() {
        Some(data) => data,
        None => SqData::start(p)?,
    };
    let words = {
        let rings = &ring.lock().mem.rings;
        Region::user(rings.addr() as u64, rings.len())?
    };
    let polls = p.flags & IORING_SETUP_IOPOLL != 0;
    let sq = SqPoll { data: data.clone(), idle, words, drives: AtomicBool::new(false), polls };
    let _ = ring.sq.set(sq);
    ring.lock().stats.sq_thread.set(u64::from(data.page.word(word::TID).load(SeqCst)));
    data.attach(ring);
    crate::wait::reactor::ensure();
    Ok(())
}

/// The SQ thread of a ring that another attaches to; none if that is another process's.
fn shared(ring: &Ring) -> Result<Option<Arc<SqData>>> {
    let data = ring.sq.get().ok_or(Errno::EINVAL)?.data.clone();
    if data.pid != crate::fork::pid() {
        return Ok(None);
    }
    if data.lives() { Ok(Some(data)) } else { Err(Errno::ENXIO) }
}

impl SqData {
    fn start(p: &io_uring_params) -> Result<Arc<SqData>> {
        let data = Arc::new(SqData {
            pid: crate::fork::pid(),
            page: Region::anonymous(4096)?,
            rings: Mutex::default(),
            changed: AtomicBool::new(true),
            idle: AtomicU32::new(DEFAULT_IDLE),
        });
        let cpu = (p.flags & IORING_SETUP_SQ_AFF != 0).then_some(p.sq_thread_cpu);
        let own = data.clone();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = super::spawn("sqp", 512 << 10, move || {
            let confined = cpu.map_or(Ok(()), confine);
            if confined.is_ok() {
                own.page.word(word::TID).store(sys::gettid().cast_unsigned(), SeqCst);
            }
            let _ = tell.send(confined);
            if confined.is_ok() {
                own.run();
            }
        });
        thread.map_err(|_| Errno::EAGAIN)?;
        told.recv().map_err(|_| Errno::EAGAIN)??;
        Ok(data)
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Ring>>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attach(&self, ring: &Arc<Ring>) {
        let mut list = self.list();
        list.push(Arc::downgrade(ring));
        self.list_changed(&list);
    }

    /// The ring ends; with the last one the thread does.
    pub fn detach(&self, ring: &Arc<Ring>) {
        if self.pid != crate::fork::pid() {
            return;
        }
        let mut list = self.list();
        list.retain(|w| w.upgrade().is_some_and(|r| r.id != ring.id));
        self.list_changed(&list);
    }

    fn list_changed(&self, list: &[Weak<Ring>]) {
        let idle = |w: &Weak<Ring>| w.upgrade()?.sq.get().map(|sq| sq.idle);
        self.idle.store(list.iter().filter_map(idle).max().unwrap_or(0), Relaxed);
        self.changed.store(true, SeqCst);
        self.wake();
    }

    /// Is the thread there? Asks the kernel only in a forked child, whose parent it lives in.
    pub fn lives(&self) -> bool {
        let ours = self.pid == crate::fork::pid();
        self.page.word(word::TID).load(Relaxed) != 0 && (ours || sys::process_lives(self.pid))
    }

    /// Ends the thread's rest.
    pub fn wake(&self) {
        let seq = self.page.word(word::SEQ);
        seq.fetch_add(1, SeqCst);
        sys::futex_wake(seq, 1);
    }

    fn run(&self) {
        let mut rings: Vec<Arc<Ring>> = Vec::new();
        let (mut turn, mut until) = (0u32, None);
        let mut meter = Meter::of(Kind::SqThread, &super::name("sqp"));
        loop {
            if self.changed.swap(false, SeqCst) {
                rings = self.list().iter().filter_map(Weak::upgrade).collect();
                // The idle time may be another.
                until = None;
            }
            turn = turn.wrapping_add(1);
            let most = if rings.len() > 1 { CAP } else { u32::MAX };
            let mut worked = false;
            for ring in &rings {
                worked |= self.pass(ring, most, turn.is_multiple_of(ASK_EVERY), &mut meter);
            }
            if worked {
                until = None;
                continue;
            }
            meter.end();
            let now = coarse_ms();
            if now < *until.get_or_insert(now + u64::from(self.idle.load(Relaxed))) {
                core::hint::spin_loop();
                continue;
            }
            if self.may_end() {
                return;
            }
            let polling = |sq: &SqPoll| sq.polls && sq.drives.load(Relaxed);
            if rings.iter().any(|r| r.sq.get().is_some_and(polling)) {
                until = None;
                continue;
            }
            self.rest(&rings);
            until = None;
        }
    }

    /// Ends the thread if it has no ring any more.
    fn may_end(&self) -> bool {
        let list = self.list();
        if list.iter().any(|w| w.strong_count() > 0) {
            return false;
        }
        self.page.word(word::TID).store(0, SeqCst);
        true
    }

    /// Looks at one ring; true if there was work (`__io_sq_thread`).
    fn pass(&self, ring: &Arc<Ring>, most: u32, ask: bool, meter: &mut Meter) -> bool {
        let Some(sq) = ring.sq.get() else { return false };
        // Its memory may be the program's (NO_MMAP), and gone.
        if ring.dead.load(Relaxed) {
            return false;
        }
        let ready = sq.ready(&ring.control);
        if ready == 0 && !sq.drives.load(Relaxed) {
            return false;
        }
        let mut ctx = ring.lock();
        if ring.dead.load(Relaxed) {
            return false;
        }
        let mut events = [Event::default(); BATCH];
        let n = if ask { ctx.ask_readiness(&mut events) } else { 0 };
        let submits = ready > 0 && !ctx.disabled;
        if !submits && n == 0 && !ctx.memory_has_news(ask) {
            sq.drives.store(ctx.needs_driver(), Relaxed);
            return false;
        }
        meter.begin();
        let before = ctx.completions();
        if submits {
            let _ = ctx.submit_sqes(ready.min(most));
            ctx.after_submit(false);
        }
        ctx.poll_events(&events[..n]);
        ctx.collect_memory();
        ctx.flush();
        // Whoever waits for room in the submission queue.
        ctx.nudge();
        let posted = ctx.completions() != before;
        sq.drives.store(ctx.needs_driver(), Relaxed);
        let parcels = !ctx.outbox.is_empty();
        drop(ctx);
        if parcels {
            crate::wait::reactor::deliver(ring);
        }
        submits || posted
    }

    /// Sleeps until somebody wakes it, unless a queue has filled up.
    fn rest(&self, rings: &[Arc<Ring>]) {
        let (seq, rests) = (self.page.word(word::SEQ), self.page.word(word::RESTS));
        let seen = seq.load(SeqCst);
        rests.store(1, SeqCst);
        let each = || rings.iter().filter_map(|r| Some((r, r.sq.get()?)));
        each().for_each(|(_, sq)| sq.need_wakeup(true));
        fence(SeqCst);
        if each().all(|(ring, sq)| sq.ready(&ring.control) == 0) {
            for ring in rings {
                crate::syscall::enter::leave(ring, ring.lock());
            }
            if !self.changed.load(SeqCst) {
                sys::futex_wait(seq, seen, None);
            }
        }
        rests.store(0, SeqCst);
        for (_, sq) in each().filter(|(ring, _)| !ring.dead.load(Relaxed)) {
            sq.need_wakeup(false);
            sq.drives.store(true, Relaxed);
        }
    }
}

/// SQ_WAIT: until the submission queue has room (`io_sqpoll_wait_sq`). A signal ends it.
pub fn wait_sq(ring: &Ring) {
    let Some(sq) = ring.sq.get() else { return };
    let (control, words) = (&ring.control, &sq.words);
    let entries = words.word(off::SQ_ENTRIES).load(Relaxed);
    while sq.ready(control) == entries && sq.data.lives() && !ring.dead.load(Relaxed) {
        control.waiters().fetch_add(1, SeqCst);
        let seen = control.seq().load(SeqCst);
        let full = sq.ready(control) == entries;
        let limit = core::time::Duration::from_millis(100);
        let slept = if full { sys::futex_wait_sig(control.seq(), seen, limit) } else { Ok(()) };
        control.waiters().fetch_sub(1, SeqCst);
        if slept == Err(Errno::EINTR) {
            return;
        }
    }
}

/// A processor that is not there, or not in the cpuset, is EINVAL.
fn confine(cpu: u32) -> Result<()> {
    const MASK: usize = 1024;
    let mut mask = [0u8; MASK];
    let byte = mask.get_mut(cpu as usize / 8).ok_or(Errno::EINVAL)?;
    *byte = 1 << (cpu % 8);
    crate::errno::check(sys::sys!(__NR_sched_setaffinity, 0, MASK, mask.as_ptr().addr()))?;
    Ok(())
}

/// Milliseconds of a clock that costs no more than a load.
fn coarse_ms() -> u64 {
    let t = clock_gettime(ClockId::MonotonicCoarse);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

impl Ctx {
    /// Events that wait in the poll set, unless a waiter takes them.
    fn ask_readiness(&self, buf: &mut [Event; BATCH]) -> usize {
        let armed = self.transports.poll.as_ref().is_some_and(|p| p.armed() > 0);
        if !armed || self.driver.active {
            return 0;
        }
        poll::wait(self.transports.epoll_fd().unwrap_or(-1), buf, Some(0), None).unwrap_or(0)
    }

    /// Is there something for [`Self::collect_memory`]?
    fn memory_has_news(&self, ask: bool) -> bool {
        // Where its ring cannot be seen, the kernel has to be asked.
        let unseen = |a: &AioCtx| ask && a.in_flight() > 0 && !a.user_mapped();
        !self.transports.stash.is_empty()
            || self.transports.aio.as_ref().is_some_and(|a| a.ready() || unseen(a))
            || self.next_event_in() == Some(0)
    }
}
