//! SQPOLL: a thread that watches submission queues, so that the program need not enter.
//! Kernel counterpart: `io_uring/sqpoll.c`.
//!
//! One thread serves a ring, or several that share it (ATTACH_WQ). While there is work, and for
//! `sq_thread_idle` after it, the thread spins: it reads the tails, submits, and drives the rings'
//! transports. Then it sleeps: it sets NEED_WAKEUP, hands what is in flight to the reactor, and
//! sleeps until a program wakes it by `enter`. One of the two sees a queue that fills up just then,
//! because each stores before it loads, with a full fence between:
//!
//! ```text
//! program                         thread                     without the fences, both loads
//! tail = new                      flags |= NEED_WAKEUP       may come first: the program sees
//! fence                           fence                      no flag and does not enter, the
//! flags & NEED_WAKEUP -> enter    tail == head -> sleep      thread sees no SQE and sleeps
//! ```
//!
//! The steps are in [`protocol`]; `verify::sqpoll` has loom try every order. A wake-up that comes
//! before the sleep is kept in `seq`.
//!
//! If `set_idle_sleeps` asks for it, the thread does not only spin before it sets NEED_WAKEUP: it
//! sleeps if that spares processor time and nothing is expected (`policy::idle_sleep`). NEED_WAKEUP
//! is not set meanwhile: the program does not enter, and the thread finds new SQEs at the sleep's
//! end. On a ring with HYBRID_IOPOLL the thread sleeps for completions, as the kernel's does: new
//! SQEs wait for the sleep's end there, too.
//!
//! While only devices of polled rings have something to do, the thread pauses and sleeps
//! ([`stall`]).

pub(crate) mod protocol;
mod stall;
mod thread;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use core::time::Duration;
use softring_host::sync::real::{Handover, Mutex, MutexGuard, OnceLock};
use softring_host::time::Deadline;

use self::protocol::Page;
use super::of_process::PROCESS;
use super::sleep::{On, Woke, sleep, sleep_on_sequence};
use crate::io::poll::WakeFd;
use crate::memory::lock::Control;
use crate::memory::region::Region;
use crate::memory::rings::off;
use crate::ring::ctx::Ring;
use crate::ring::sq_thread::{SqData, SqPoll};
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Value of `sq_thread_idle` in ms if the program gives none.
const DEFAULT_IDLE: u32 = 1000;
/// Longest time for which the closer of a ring waits for its SQ thread to let go of it: the closer
/// may be a signal handler that has interrupted the holder of a lock that the thread waits for.
const LET_GO: Duration = Duration::from_secs(1);
/// Interval at which a thread that waits for room in a submission queue checks again, in ns.
const SQ_WAIT_NS: u64 = 100_000_000;

/// Makes SQ threads that start from now on sleep between submissions
/// (`thread::Thread::sleep_between`), or spin.
pub fn set_idle_sleeps(on: bool) {
    PROCESS.sq_idle_sleeps.store(on, Relaxed);
}

/// Offsets of words in the thread's page, which forked children share.
mod word {
    /// Sequence on which the thread sleeps, bumped to wake it.
    pub(super) const SEQ: usize = 0;
    /// Flag: the thread sleeps with NEED_WAKEUP set, or is about to, and drives no rings.
    pub(super) const ASLEEP: usize = 4;
    /// Id of the thread; 0 once it has ended.
    pub(super) const TID: usize = 8;
    /// Events that end a sleep between submissions ([`super::wakes_by`]); 0: no such sleep. Work
    /// that cannot wait for the sleep's end wakes the thread.
    pub(super) const IDLE_SLEEPS: usize = 12;
    /// Version of the list of rings, and the version that the thread has.
    pub(super) const LIST: usize = 16;
    pub(super) const HAS: usize = 20;
}

/// Events that end a sleep of the thread.
mod wakes_by {
    /// SEQ alone.
    pub(super) const WORD: u32 = 1;
    /// SEQ and the eventfd: the thread may sleep for completions of kernel aio.
    pub(super) const EVENTFD: u32 = 2;
}

impl SqPoll {
    /// Returns the number of SQEs that wait.
    fn ready(&self, control: &Control) -> u32 {
        protocol::ready(self.words.word(off::SQ_TAIL), control.sq_head())
    }

    /// Returns whether the program sees no free entry. Entries that the thread has in hand are
    /// given back together.
    fn is_full(&self) -> bool {
        let head = self.words.word(off::SQ_HEAD).load(Acquire);
        let tail = self.words.word(off::SQ_TAIL).load(Acquire);
        tail.wrapping_sub(head) == self.words.word(off::SQ_ENTRIES).load(Relaxed)
    }

    fn need_wakeup(&self, on: bool) {
        protocol::need_wakeup(self.words.word(off::SQ_FLAGS), on);
    }

    /// Tells the thread that somebody leaves the ring with work in flight; true if it drives the
    /// ring.
    pub(crate) fn takes_over(&self) -> bool {
        let awake = self.data.page.word(word::ASLEEP).load(SeqCst) == 0;
        if awake {
            self.drives.store(true, SeqCst);
            self.wake_sq_thread();
        }
        awake && self.data.pid == softring_host::fork::pid()
    }

    /// Wakes the thread for work that cannot wait for the end of a sleep. A sleep that begins just
    /// now delays the work.
    pub(crate) fn wake_sq_thread(&self) {
        if self.data.page.word(word::IDLE_SLEEPS).load(SeqCst) != 0 {
            self.data.wake();
        }
    }

    /// Wakes the thread to submit, for a caller that is about to wait for it.
    pub(crate) fn await_thread(&self, control: &Control) {
        if self.ready(control) > 0 {
            self.wake_sq_thread();
        }
    }
}

/// Gives a new ring its SQ thread: that of the `other` ring that it attaches to, or one of its own
/// (`io_sq_offload_create`).
///
/// # Errors
/// `EINVAL` for a processor that is not there or not allowed, or a ring to attach to that has no SQ
/// thread; `ENXIO` if its thread is gone; `ENOMEM`, `EAGAIN`.
pub(crate) fn offload(ring: &Arc<Ring>, p: &io_uring_params, other: Option<&Ring>) -> Result<()> {
    let idle = if p.sq_thread_idle == 0 { DEFAULT_IDLE } else { p.sq_thread_idle };
    let shared = other.map(shared).transpose()?.flatten();
    let mut data = match &shared {
        Some(data) => data.clone(),
        None => SqData::start(p)?,
    };
    let words = ring.lock().mem.rings.view();
    ring.lock().resources.sq_creds = Some(softring_host::creds::mine());
    let polls = p.flags & IORING_SETUP_IOPOLL != 0;
    if !data.attach(ring) {
        // The SQ thread has ended since it was checked, with the last ring that it had.
        data = SqData::start(p)?;
        data.attach(ring);
    }
    if polls
        && data.wake_fd.get().is_none()
        && let Ok(wake_fd) = WakeFd::new()
    {
        // Another ring that attaches may have been faster.
        let _ = data.wake_fd.set(wake_fd);
    }
    let (drives, poll_fd) = (AtomicBool::new(false), AtomicI32::new(-1));
    let tid = data.tid().load(SeqCst);
    ring.lock().stats.sq_thread.set(u64::from(tid));
    let policy = AtomicBool::new(false);
    let sq = SqPoll { data: data.clone(), idle, words, drives, poll_fd, polls, policy };
    let _ = ring.sq.set(sq);
    data.list_changed(&data.rings());
    crate::drive::reactor::ensure();
    Ok(())
}

/// Returns the SQ thread of a ring that another attaches to; none if it is another process's.
fn shared(ring: &Ring) -> Result<Option<Arc<SqData>>> {
    let data = ring.sq.get().ok_or(Errno::EINVAL)?.data.clone();
    if data.pid != softring_host::fork::pid() {
        return Ok(None);
    }
    if data.lives() { Ok(Some(data)) } else { Err(Errno::ENXIO) }
}

impl SqData {
    fn start(p: &io_uring_params) -> Result<Arc<SqData>> {
        let data = Arc::new(SqData {
            pid: softring_host::fork::pid(),
            page: Region::anonymous(4096)?,
            wake_fd: OnceLock::new(),
            rings: Mutex::default(),
            idle: AtomicU32::new(DEFAULT_IDLE),
        });
        let cpu = (p.flags & IORING_SETUP_SQ_AFF != 0).then_some(p.sq_thread_cpu);
        let own = data.clone();
        let started = Arc::new(Handover::default());
        let starter = started.clone();
        let thread = softring_host::threads::spawn("sqp", 512 << 10, move || {
            let confined = cpu.map_or(Ok(()), confine);
            if confined.is_ok() {
                own.tid().store(sys::gettid().cast_unsigned(), SeqCst);
            }
            started.give(confined);
            if confined.is_ok() {
                thread::Thread::new(own).run();
            }
        });
        thread.map_err(|_| Errno::EAGAIN)?;
        starter.take()?;
        Ok(data)
    }

    fn rings(&self) -> MutexGuard<'_, Vec<Weak<Ring>>> {
        self.rings.lock()
    }

    /// Adds a ring to the list; false if the thread has ended. It reads the list once more before.
    fn attach(&self, ring: &Arc<Ring>) -> bool {
        let mut list = self.rings();
        let lives = self.tid().load(SeqCst) != 0;
        if lives {
            list.push(Arc::downgrade(ring));
        }
        lives
    }

    /// Removes a ring that ends from the list; the thread ends with the last ring. On return the
    /// thread has let go of the ring's memory, which may be the program's own (NO_MMAP).
    ///
    /// ```text
    /// detach                          thread
    /// LIST = n, wake                  pass over the old list, without the uring lock
    /// HAS < n -> sleep on HAS         LIST != HAS: takes the new list; HAS = n, wake
    /// ```
    pub(crate) fn detach(&self, ring: &Arc<Ring>) {
        if self.pid != softring_host::fork::pid() {
            return;
        }
        let version = {
            let mut list = self.rings();
            list.retain(|w| w.upgrade().is_some_and(|r| r.id != ring.id));
            self.list_changed(&list)
        };
        let end = Deadline::after(LET_GO);
        self.await_taken(version, sys::gettid().cast_unsigned(), |has, seen| {
            let left = end.left();
            if !left.is_zero() {
                let _ = sleep(On::Word(has, seen), left.as_nanos() as u64, None);
            }
            !left.is_zero()
        });
    }

    /// Publishes a change of the list, wakes the thread, and returns the list's version.
    fn list_changed(&self, list: &[Weak<Ring>]) -> u32 {
        let idle = |w: &Weak<Ring>| w.upgrade()?.sq.get().map(|sq| sq.idle);
        self.idle.store(list.iter().filter_map(idle).max().unwrap_or(0), Relaxed);
        let version = self.changed();
        self.wake();
        version
    }

    /// Returns whether the thread lives. Asks the kernel only in a forked child, whose parent has
    /// it.
    pub(crate) fn lives(&self) -> bool {
        let ours = self.pid == softring_host::fork::pid();
        self.tid().load(Relaxed) != 0
            && (ours || softring_host::substitute::process_lives(self.pid))
    }

    /// Ends the thread's sleep, also one for devices.
    pub(crate) fn wake(&self) {
        self.bump();
        if self.page.word(word::IDLE_SLEEPS).load(SeqCst) == wakes_by::EVENTFD
            && let Some(wake_fd) = self.wake_fd.get()
        {
            wake_fd.signal();
        }
    }
}

impl Page for SqData {
    type Word = AtomicU32;

    #[inline(always)]
    fn seq(&self) -> &AtomicU32 {
        self.page.word(word::SEQ)
    }

    #[inline(always)]
    fn tid(&self) -> &AtomicU32 {
        self.page.word(word::TID)
    }

    #[inline(always)]
    fn list(&self) -> &AtomicU32 {
        self.page.word(word::LIST)
    }

    #[inline(always)]
    fn has(&self) -> &AtomicU32 {
        self.page.word(word::HAS)
    }
}

/// Waits until the submission queue has room (SQ_WAIT, `io_sqpoll_wait_sq`). A signal ends the
/// wait.
pub(crate) fn wait_sq(ring: &Ring) {
    let Some(sq) = ring.sq.get() else { return };
    while sq.is_full() && sq.data.lives() && !ring.dead.load(Relaxed) {
        let slept = sleep_on_sequence(&ring.control, false, SQ_WAIT_NS, None, || sq.is_full());
        if slept == Woke::Signal {
            return;
        }
    }
}

/// Pins the calling thread to `cpu`: `EINVAL` if it is not there, or not in the cpuset.
fn confine(cpu: u32) -> Result<()> {
    const MASK: usize = 1024;
    let mut mask = [0u8; MASK];
    let byte = mask.get_mut(cpu as usize / 8).ok_or(Errno::EINVAL)?;
    *byte = 1 << (cpu % 8);
    softring_host::calls::process::set_affinity(0, &mask)
}
