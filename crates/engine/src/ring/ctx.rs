//! One ring. Threads share a [`Ring`]; [`Ctx`] is everything that the uring lock guards.
//!
//! Lock order: no thread waits for a ring's uring lock while it holds another ring's (`pending`
//! carries work for other rings) or the descriptor table. The table may be read under a ring's
//! lock. The reactor's list is never locked under a ring's lock.
//!
//! The lock is released around a system call that may sleep ([`Ctx::unlocked`]; `memory::lock`
//! draws the protocol). Two facts make this sound. The calling thread publishes its own `&mut Ctx`:
//! a thread that takes the lock meanwhile ([`Ring::lock_now`]) borrows from that pointer, not from
//! the ring's cell. And only one thread publishes at a time, because a thread that finds an issue
//! in progress issues nothing ([`Issue::is_elsewhere`]). Kernel counterpart: `struct io_ring_ctx`.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use softring_host::sync::real::OnceLock;

use crate::io::Transports;
use crate::io::faults::Faults;
use crate::io::workers::Workers;
use crate::memory::cq::Overflow;
use crate::memory::lock::Control;
use crate::memory::rings::Rings;
use crate::resources::buffers::BufTable;
use crate::resources::eventfd::EventFd;
use crate::resources::files::{FileTable, TagSink};
use crate::resources::filters::Filters;
use crate::resources::kbuf::Groups;
use crate::resources::napi::Napi;
use crate::resources::personality::Personalities;
use crate::resources::region::ParamRegion;
use crate::resources::restrictions::Restrictions;
use crate::ring::barrier::Drain;
use crate::ring::batch::SubmitState;
use crate::ring::exclusive_queues::ExclusiveQueues;
use crate::ring::file_ref::is_send;
use crate::ring::inherited::Inherited;
use crate::ring::issuing::Issue;
use crate::ring::job::Job;
use crate::ring::left::Moves;
use crate::ring::regular::Regular;
use crate::ring::slab::Slab;
use crate::ring::sq_thread::SqPoll;
use crate::ring::timer_queue::Timeouts;
use crate::ring::token_table::{DirectSqes, ModelledSqes};
use crate::ring::turn::Drives;
use crate::ring::waiters::{AdaptiveSpin, Driver, Wakes};
use crate::ring::work::Work;
use crate::stats::CounterSlot;
use crate::stats::trace::Writer;
use softring_host::creds::Creds;
use softring_host::time::Clock;
use softring_uapi::IORING_SETUP_DEFER_TASKRUN;

/// One ring, as threads share it.
#[derive(Debug)]
pub struct Ring {
    /// Id of the ring, unique in this process.
    pub(crate) id: u64,
    pub(crate) control: Arc<Control>,
    ctx: Guarded,
    /// Earliest armed timeout in ns of CLOCK_MONOTONIC, for the reactor; `u64::MAX`: none.
    pub(crate) next_deadline: AtomicU64,
    /// Flag, true while the reactor watches this ring's poll set.
    pub(crate) watched: AtomicBool,
    /// Flag, true if a thread inside `enter` drove this ring since the reactor last checked.
    pub(crate) driven: AtomicBool,
    /// Flag, true while threads that sleep in their own poll drive the ring
    /// ([`crate::drive::poller`]).
    pub(crate) polled: AtomicBool,
    /// Flag, set once `polled` was true.
    pub(crate) polled_ever: AtomicBool,
    /// Times that `polled` has ended because no thread drove the ring, and `enters` at the last.
    pub(crate) doubts: AtomicU32,
    pub(crate) doubted_at: AtomicU32,
    /// The thread that comes back to the ring.
    pub(crate) regular: Regular,
    /// Flag, true if a forked child has the ring, too.
    pub(crate) forked: AtomicBool,
    /// Flag, true in a forked child if its relatives do not signal the ring's stand-in.
    pub(crate) unsignalled: AtomicBool,
    /// Flag, true once a thread signals the stand-in for them.
    pub(crate) followed: AtomicBool,
    /// Descriptor number under which the eventfd was registered; -1: none.
    pub(crate) eventfd_number: AtomicI32,
    /// Flag, true if the reactor knows this ring.
    pub(crate) listed: AtomicBool,
    /// Flag, set once a request waits for room to send; cleared when a check finds none.
    pub(crate) sends_wait: AtomicBool,
    /// The task that last left `enter` with requests in flight; 0: none.
    pub(crate) left_by: AtomicU32,
    /// Flag, set once all descriptors are closed.
    pub(crate) dead: AtomicBool,
    /// The eventfd that represents the ring where the program polls it, by its first number; -1:
    /// none yet; [`CLOSED`](super::table::CLOSED): none any more. Used under the ring's lock: once
    /// that has shown it closed, the number may be another file's.
    pub(crate) stand_in: AtomicI32,
    /// Flag, set once others than epoll sets of the program use the stand-in. Only ever turns on.
    pub(crate) stand_in_used: AtomicBool,
    /// Flag, set when a thread has signalled the stand-in without the lock.
    pub(crate) stand_in_unsure: AtomicBool,
    /// Calls of `enter` by descriptor; some of them check that the descriptor is still open.
    pub(crate) enters: AtomicU32,
    /// Fork generation of the process that owns the state ([`softring_host::fork::generation`]).
    generation: AtomicU32,
    /// Journal writes of children that the reactor has checked (`process::journal`).
    pub(crate) journal_writes: AtomicU32,
    /// Numbers that were closed while the closer could not take the lock.
    pub(crate) moves: Moves,
    /// The ring's part in an SQ thread (SQPOLL).
    pub(crate) sq: OnceLock<SqPoll>,
}

/// The state that the uring lock guards. The other parts of a [`Ring`] are `Send` and `Sync` by
/// themselves.
#[derive(Debug)]
struct Guarded(UnsafeCell<Ctx>);

// SAFETY: the state is reached only through `Guard`, which holds the uring lock. Its parts are
// `Send` by themselves, which `_PARTS_ARE_SEND` proves, but for the nodes of registered files,
// whose counts are not atomic: these are all in the state, in its table and its requests. Data that
// leaves the lock has none (`job::Sent`).
unsafe impl Sync for Guarded {}
// SAFETY: as above; nothing in it is tied to a thread.
unsafe impl Send for Guarded {}

/// Proof that the parts of the state that hold no nodes are `Send`: else it does not compile.
#[rustfmt::skip]
const _PARTS_ARE_SEND: fn(&Ctx) = |ctx| {
    let Ctx {
        ring, mem, setup, submit, issue, reqs, work: _, completion, drive, resources, stats, trace,
        faults,
    } = ctx;
    let _ = is_send(faults);
    let _ = is_send(ring) && is_send(mem) && is_send(setup) && is_send(submit) && is_send(issue);
    let _ = is_send(completion) && is_send(drive) && is_send(stats) && is_send(trace);
    let Requests {
        slab: _, nr_reqs, nr_ended, drain, timeouts, exclusive, direct: _, modelled,
    } = reqs;
    let _ = is_send(nr_reqs) && is_send(nr_ended) && is_send(drain) && is_send(timeouts);
    let _ = is_send(exclusive) && is_send(modelled);
    let Resources {
        files: _, buffers, tags, personalities, sq_creds, groups, param_region, napi,
    } = resources;
    let _ = is_send(buffers) && is_send(tags) && is_send(personalities) && is_send(sq_creds);
    let _ = is_send(groups) && is_send(param_region) && is_send(napi);
};

/// Guard of the uring lock.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    ring: &'a Ring,
    /// The guarded state: the ring's cell, or the pointer that the issuing thread has published.
    ctx: NonNull<Ctx>,
}

/// Guard of the uring lock for those outside of the engine, who only read: the state of a ring must
/// not change places with another's.
#[derive(Debug)]
pub struct ReadGuard<'a>(Guard<'a>);

impl Ring {
    pub(crate) fn new(id: u64, mut ctx: Ctx) -> Arc<Ring> {
        let control = ctx.mem.control.clone();
        Arc::new_cyclic(|weak| {
            ctx.ring = weak.clone();
            Ring {
                id,
                control,
                ctx: Guarded(UnsafeCell::new(ctx)),
                next_deadline: AtomicU64::new(u64::MAX),
                watched: AtomicBool::new(false),
                driven: AtomicBool::new(false),
                polled: AtomicBool::new(false),
                polled_ever: AtomicBool::new(false),
                doubts: AtomicU32::new(0),
                doubted_at: AtomicU32::new(0),
                regular: Regular::default(),
                forked: AtomicBool::new(false),
                unsignalled: AtomicBool::new(false),
                followed: AtomicBool::new(false),
                eventfd_number: AtomicI32::new(-1),
                listed: AtomicBool::new(false),
                sends_wait: AtomicBool::new(false),
                left_by: AtomicU32::new(0),
                dead: AtomicBool::new(false),
                stand_in: AtomicI32::new(-1),
                stand_in_used: AtomicBool::new(false),
                stand_in_unsure: AtomicBool::new(false),
                enters: AtomicU32::new(0),
                generation: softring_host::fork::generation().into(),
                journal_writes: AtomicU32::new(0),
                moves: Moves::default(),
                sq: OnceLock::new(),
            }
        })
    }

    /// Takes the uring lock when no other thread is in the middle of an issue. The wait may last as
    /// long as a file system or a page fault does. Submission and registration take it; in the
    /// kernel, too, they wait for each other.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.control.lock();
        self.renew();
        // SAFETY: the lock is held, and no other thread has an issue in progress.
        unsafe { self.guard(self.cell()) }
    }

    /// Takes the uring lock, also while another thread is in the middle of an issue: for callers
    /// that must not wait for the I/O of others.
    #[inline]
    pub(crate) fn lock_now(&self) -> Guard<'_> {
        self.control.lock_now();
        // SAFETY: the lock has just been taken.
        unsafe { self.locked_now() }
    }

    /// Takes the uring lock as [`Self::lock_now`] does, if nobody holds it. Only this function may
    /// take the lock while another ring's is held.
    pub(crate) fn try_lock_now(&self) -> Option<Guard<'_>> {
        // Lazily: an unused guard would unlock a lock that another thread holds.
        // SAFETY: the lock has just been taken.
        self.control.try_lock_now().then(|| unsafe { self.locked_now() })
    }

    /// Takes the uring lock as a submission does, and lets the caller read the ring's state.
    pub fn read(&self) -> ReadGuard<'_> {
        ReadGuard(self.lock())
    }

    /// Does the same as [`Self::read`], also while another thread is in the middle of an issue, if
    /// nobody holds the lock.
    pub fn try_read_now(&self) -> Option<ReadGuard<'_>> {
        self.try_lock_now().map(ReadGuard)
    }

    #[inline]
    fn cell(&self) -> NonNull<Ctx> {
        // SAFETY: the address of a cell is not null.
        unsafe { NonNull::new_unchecked(self.ctx.0.get()) }
    }

    /// Makes the guard of a lock just taken, wherever its state is.
    ///
    /// # Safety
    /// The caller has just taken the lock, and has no other guard of it.
    unsafe fn locked_now(&self) -> Guard<'_> {
        self.renew();
        if !self.control.issuing() {
            // SAFETY: as the caller says, and nobody has published another pointer.
            return unsafe { self.guard(self.cell()) };
        }
        // No pointer is published if the issuer is in another process, which has a `Ctx` of its
        // own.
        // SAFETY: the lock is held.
        let guarded = NonNull::new(unsafe { self.control.guarded() }.cast());
        let ctx = guarded.unwrap_or_else(|| self.cell());
        // SAFETY: as above.
        unsafe { (*ctx.as_ptr()).issue.begin_elsewhere() };
        // SAFETY: as above; the issuing thread's pointer, or that of this process's own state.
        unsafe { self.guard(ctx) }
    }

    /// Makes the guard of a lock just taken: ensures the ring's memory, and handles the closers'
    /// moves.
    ///
    /// # Safety
    /// The caller has just taken the lock, and has no other guard of it. `ctx` is the cell, or the
    /// pointer that an issuing thread has published.
    #[inline(always)]
    unsafe fn guard(&self, ctx: NonNull<Ctx>) -> Guard<'_> {
        let mut guard = Guard { ring: self, ctx };
        if guard.mem.may_go() {
            // Without memory for it there is no better choice than to go on.
            let _ = guard.mem.outlive();
        }
        if self.moves.any() {
            guard.take_left_numbers();
        }
        guard
    }

    /// Takes the uring lock unless the calling thread has it (a signal handler in the middle of the
    /// engine). No other thread should hold the lock for long; gives up after a second.
    pub(crate) fn lock_soon(&self) -> Option<Guard<'_>> {
        /// Longest sleep: the moment in which another thread takes the lock may hide that this one
        /// has it.
        const SLEEP: core::time::Duration = core::time::Duration::from_millis(1);
        for _ in 0..1000 {
            if let Some(guard) = self.try_lock_now() {
                return Some(guard);
            }
            if self.control.is_locked_here() {
                return None;
            }
            if self.control.lock_now_within(SLEEP) {
                // SAFETY: the lock has just been taken.
                return Some(unsafe { self.locked_now() });
            }
        }
        None
    }

    /// Returns whether the state still belongs to the process that this one was forked from.
    #[inline(always)]
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation.load(Relaxed) != softring_host::fork::generation()
    }

    /// Makes the state a forked child's own at its first lock.
    #[inline(always)]
    fn renew(&self) {
        if self.is_inherited() {
            // SAFETY: the lock has just been taken, and no guard is made yet.
            unsafe { self.renew_now() };
        }
    }

    /// Makes the state a forked child's own.
    ///
    /// # Safety
    /// The caller holds the lock and has no guard, or is the only thread of a fresh child, whose
    /// parent may hold the shared lock for itself.
    #[cold]
    pub(crate) unsafe fn renew_now(&self) {
        // SAFETY: the caller guarantees that nobody else reaches the state.
        unsafe { &mut *self.ctx.0.get() }.fork_child(self);
        self.generation.store(softring_host::fork::generation(), Relaxed);
    }

    /// Peeks at the state without a guard, which would write to the state. `None` while a thread is
    /// in the middle of an issue.
    ///
    /// # Safety
    /// Same as [`Self::renew_now`], for as long as the returned reference is used.
    pub(crate) unsafe fn peek(&self) -> Option<&Ctx> {
        // SAFETY: the caller guarantees that nobody else reaches the state.
        (!self.control.issuing()).then(|| unsafe { &*self.ctx.0.get() })
    }
}

impl Guard<'_> {
    /// Ends another process's issue if that process is gone.
    pub(crate) fn end_issue_of_dead(&self) {
        // SAFETY: the guard holds the lock.
        unsafe { self.ring.control.end_issue_of_dead() };
    }
}

impl Deref for ReadGuard<'_> {
    type Target = Ctx;
    fn deref(&self) -> &Ctx {
        &self.0
    }
}

impl Deref for Guard<'_> {
    type Target = Ctx;
    fn deref(&self) -> &Ctx {
        // SAFETY: the uring lock is held, so nobody else reaches what it guards; a published
        // pointer is valid until its thread has the lock back.
        unsafe { self.ctx.as_ref() }
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Ctx {
        // SAFETY: as in `deref`; `&mut self` makes the borrow unique within this guard.
        unsafe { self.ctx.as_mut() }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.issue.is_made() {
            self.stop_issuing();
        }
        let wakes = (!self.drive.wakes.is_empty()).then(|| core::mem::take(&mut self.drive.wakes));
        // SAFETY: the guard's lock, and the end of the guard.
        unsafe { self.ring.control.unlock() };
        if let Some(wakes) = wakes {
            wakes.run(&self.ring.control);
        }
    }
}

/// Everything that the uring lock guards, by purpose.
#[derive(Debug)]
pub struct Ctx {
    pub(crate) ring: Weak<Ring>,
    pub(crate) mem: Rings,
    pub(crate) setup: Setup,
    pub(crate) submit: SubmitState,
    pub(crate) issue: Issue,
    pub(crate) reqs: Requests,
    pub(crate) work: Work,
    pub(crate) completion: Completion,
    pub drive: Driving,
    pub(crate) resources: Resources,
    pub stats: CounterSlot,
    pub(crate) trace: Writer,
    /// State of injected faults, if the process has any.
    pub(crate) faults: Option<Box<Faults>>,
}

/// The ring's parameters: requested at set-up, and restricted since.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    /// IORING_SETUP_* flags.
    pub(crate) flags: u32,
    pub(crate) clock: Clock,
    pub(crate) disabled: bool,
    /// Flag, true if the ring's maker might lock memory without limit.
    pub(crate) unlimited: bool,
    /// The ring's state in a forked child.
    pub(crate) inherited: Inherited,
    /// The one task that may submit (SINGLE_ISSUER), once known.
    pub(crate) issuer: Option<i32>,
    pub(crate) restrictions: Restrictions,
    pub(crate) filters: Filters,
}

/// The requests, and the queues in which they wait.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) slab: Slab,
    /// Requests in existence: those in the slab and the current one.
    pub(crate) nr_reqs: u32,
    /// Requests among `nr_reqs` that have ended and are not subtracted yet.
    pub(crate) nr_ended: u32,
    pub(crate) drain: Drain,
    pub(crate) timeouts: Timeouts,
    /// Exclusive wait queues.
    pub(crate) exclusive: ExclusiveQueues,
    /// SQEs with kernel aio that are no requests.
    pub(crate) direct: DirectSqes,
    /// SQEs with modelled devices that are no requests.
    pub(crate) modelled: ModelledSqes,
}

/// State for posting CQEs, beside the CQ itself.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    pub(crate) overflow: Overflow,
    pub(crate) eventfd: Option<EventFd>,
    /// The eventfd that represents the ring where the program polls it, by its first number.
    pub(crate) poll_fd: Option<i32>,
    /// State of that eventfd, true if it is readable, as far as this process knows.
    pub(crate) signalled: Option<bool>,
    /// Number of times that waiters were woken: each is an edge to an epoll set. Wraps.
    pub(crate) wakes: u32,
    pub(crate) posted: bool,
    /// Time at which the first of the events being reaped ended, in ns of CLOCK_MONOTONIC; 0: not
    /// read yet.
    pub(crate) reaped: u64,
    /// The CQ's tail when CQEs were last counted.
    pub(crate) counted_tail: u32,
}

/// The transports, the threads that wait on them, and the threads to wake.
#[derive(Debug)]
pub struct Driving {
    pub(crate) driver: Driver,
    /// Threads that are in `enter`.
    pub(crate) entered: u32,
    /// Flag, set once the last descriptor is closed; the ring ends when no thread is in `enter` any
    /// more.
    pub(crate) closed: bool,
    pub(crate) wakes: Wakes,
    pub(crate) spin: AdaptiveSpin,
    pub transports: Transports,
    /// Function by which a worker runs a call of this ring.
    pub(crate) run_job: fn(Job),
    /// The ring's workers, once it has needed one.
    pub(crate) pool: Option<Arc<Workers<Job>>>,
}

/// Resources registered with the ring.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    pub(crate) files: FileTable,
    pub(crate) buffers: BufTable,
    pub(crate) tags: Arc<TagSink>,
    pub(crate) personalities: Personalities,
    /// The credentials of the ring's maker, with which its SQ thread submits.
    pub(crate) sq_creds: Option<Arc<Creds>>,
    /// Provided buffers.
    pub(crate) groups: Groups,
    pub(crate) param_region: Option<ParamRegion>,
    pub(crate) napi: Napi,
}

impl Ctx {
    pub(crate) fn new(mem: Rings, flags: u32, run_job: fn(Job), stats: CounterSlot) -> Self {
        Ctx {
            ring: Weak::new(),
            mem,
            setup: Setup { flags, ..Setup::default() },
            submit: SubmitState::default(),
            issue: Issue::default(),
            reqs: Requests::default(),
            work: Work::default(),
            completion: Completion::default(),
            drive: Driving::new(run_job),
            resources: Resources::default(),
            stats,
            trace: Writer::default(),
            faults: crate::io::faults::of_new_ring(),
        }
    }

    /// Calls `f`, which may sleep, without the lock. Other threads take the lock meanwhile, and
    /// find the ring whole except for the caller's current request. State that the caller has read
    /// before may have changed afterwards, except for the state that only submission and
    /// registration change: they wait.
    #[inline(always)]
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let worker = self.drive.wakes.take_worker();
        if self.issue.is_elsewhere() {
            worker.run();
            // The other thread has published its pointer already.
            return f();
        }
        let guarded = core::ptr::from_mut(self);
        // SAFETY: nobody changes which control words a ring has, and `self` outlives the call.
        let control = unsafe { &*Arc::as_ptr(&(*guarded).mem.control) };
        // SAFETY: as above; the lock is still held. No other thread issues, as the state says.
        // `self` is not used from here on, but for `guarded` with the lock held.
        unsafe {
            if (*guarded).issue.begin_call() {
                control.begin_issue(guarded.cast());
            }
        }
        // SAFETY: as above; only the issuing thread writes this.
        let thread = unsafe { (*guarded).issue.thread() };
        // SAFETY: the lock of our caller's guard, which cannot be used while `self` is borrowed.
        unsafe { control.unlock() };
        worker.run();
        let answer = f();
        control.lock_now_as(thread);
        // SAFETY: the lock is held again, and every borrow from the published pointer has ended
        // with it.
        unsafe { (*guarded).issue.end_call() };
        answer
    }

    /// Ends the issue, before its thread releases the lock.
    #[inline]
    fn stop_issuing(&mut self) {
        if self.issue.is_here() {
            while self.issue.take_left_work() {
                self.take_left_work();
            }
            // SAFETY: called by the guard, which holds the lock; the issue is this thread's.
            unsafe { self.mem.control.end_issue() };
        }
        self.issue.end();
    }

    /// Returns whether completions wait for the program to enter (DEFER_TASKRUN).
    pub(crate) fn defers(&self) -> bool {
        self.setup.flags & IORING_SETUP_DEFER_TASKRUN != 0
    }

    /// Returns whether the ring holds requests, files or an eventfd: others wait for them if the
    /// ring's closing goes unnoticed.
    pub(crate) fn holds_anything(&self) -> bool {
        self.reqs.nr_reqs > 0 || self.completion.eventfd.is_some() || self.resources.files.used > 0
    }

    /// Returns whether this process has something in flight that its driver would wait for.
    pub(crate) fn in_flight(&self) -> bool {
        self.drive.transports.in_flight() || !self.reqs.timeouts.is_empty()
    }
}

impl Driving {
    pub(crate) fn new(run_job: fn(Job)) -> Self {
        Driving {
            driver: Driver::default(),
            entered: 0,
            closed: false,
            wakes: Wakes::default(),
            spin: AdaptiveSpin::default(),
            transports: Transports::default(),
            run_job,
            pool: None,
        }
    }
}
