//! One ring. [`Ring`] is what threads share; [`Ctx`] is everything the uring lock guards.
//!
//! Lock order: a ring's uring lock is never waited for while another's is held (`pending` carries
//! what is meant for others), nor while holding the descriptor table, which may be read while
//! holding one. The reactor's list is never locked while holding one.
//!
//! Around a system call that may sleep the lock is given back ([`Ctx::unlocked`]; `memory::lock`
//! draws the protocol). Two things make that sound. The thread that calls lends its own `&mut Ctx`:
//! who takes the lock meanwhile ([`Ring::lock_now`]) borrows from that pointer, not from the ring's
//! cell. And only one thread lends at a time, because whoever finds the lock lent issues nothing
//! ([`Issue::is_elsewhere`]). Kernel counterpart: `struct io_ring_ctx`.
#![allow(unsafe_code)]

use alloc::sync::{Arc, Weak};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use softring_host::sync::real::OnceLock;

use crate::io::Transports;
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
use crate::ring::inherited::Inherited;
use crate::ring::issuing::Issue;
use crate::ring::job::Job;
use crate::ring::left::Moves;
use crate::ring::slab::Slab;
use crate::ring::sq_thread::SqPoll;
use crate::ring::timer_queue::Timeouts;
use crate::ring::token_table::{DirectSqes, ModelledSqes};
use crate::ring::turn::Turn;
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
    /// Unique in this process.
    pub(crate) id: u64,
    pub(crate) control: Arc<Control>,
    ctx: UnsafeCell<Ctx>,
    /// Earliest armed timeout in ns of CLOCK_MONOTONIC, for the reactor; `u64::MAX`: none.
    pub(crate) next_deadline: AtomicU64,
    /// The reactor watches this ring's poll set.
    pub(crate) watched: AtomicBool,
    /// A thread inside `enter` drove this ring since the reactor last checked.
    pub(crate) driven: AtomicBool,
    /// Threads that sleep in their own poll drive it ([`crate::drive::poller`]).
    pub(crate) polled: AtomicBool,
    /// As that, at any time so far.
    pub(crate) polled_ever: AtomicBool,
    /// A forked child has it, too.
    pub(crate) forked: AtomicBool,
    /// The number under which its eventfd was registered; -1: none.
    pub(crate) eventfd_number: AtomicI32,
    /// The reactor knows this ring.
    pub(crate) listed: AtomicBool,
    /// The task that last left `enter` with requests in flight; 0: none.
    pub(crate) left_by: AtomicU32,
    /// All descriptors are closed.
    pub(crate) dead: AtomicBool,
    /// The eventfd that stands for the ring where the program polls it, by its first
    /// number; -1: none yet.
    pub(crate) stand_in: AtomicI32,
    /// Calls of `enter` by descriptor: now and then one makes sure that the descriptor is still
    /// open.
    pub(crate) enters: AtomicU32,
    /// The process that its state is of, as [`softring_host::fork::generation`] tells.
    generation: AtomicU32,
    /// Calls of children that the reactor has checked (`process::journal`).
    pub(crate) journal_writes: AtomicU32,
    /// Numbers that were closed while their closer could not take the lock.
    pub(crate) moves: Moves,
    /// The ring's part in an SQ thread (SQPOLL).
    pub(crate) sq: OnceLock<SqPoll>,
}

// SAFETY: `ctx` is reached only through `Guard`, which holds the uring lock; everything else is
// atomic or immutable. The nodes of registered files, whose counts are not atomic, are all in
// `ctx`: in its table and its requests. What leaves the lock is `Send` by itself (`job::Sent`).
unsafe impl Sync for Ring {}
// SAFETY: as above; nothing in it is tied to a thread.
unsafe impl Send for Ring {}

/// The uring lock, held.
#[derive(Debug)]
pub struct Guard<'a> {
    ring: &'a Ring,
    /// What it guards: the ring's cell, or what the issuing thread has lent.
    ctx: NonNull<Ctx>,
}

impl Ring {
    pub(crate) fn new(id: u64, mut ctx: Ctx) -> Arc<Ring> {
        let control = ctx.mem.control.clone();
        Arc::new_cyclic(|weak| {
            ctx.ring = weak.clone();
            Ring {
                id,
                control,
                ctx: UnsafeCell::new(ctx),
                next_deadline: AtomicU64::new(u64::MAX),
                watched: AtomicBool::new(false),
                driven: AtomicBool::new(false),
                polled: AtomicBool::new(false),
                polled_ever: AtomicBool::new(false),
                forked: AtomicBool::new(false),
                eventfd_number: AtomicI32::new(-1),
                listed: AtomicBool::new(false),
                left_by: AtomicU32::new(0),
                dead: AtomicBool::new(false),
                stand_in: AtomicI32::new(-1),
                enters: AtomicU32::new(0),
                generation: softring_host::fork::generation().into(),
                journal_writes: AtomicU32::new(0),
                moves: Moves::default(),
                sq: OnceLock::new(),
            }
        })
    }

    /// Takes the uring lock when no other thread is in the middle of an issue. That may take as
    /// long as a file system or a page fault does: for submission and registration, which wait for
    /// each other on the kernel, too.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_> {
        self.control.lock();
        self.renew();
        self.guard(self.cell())
    }

    /// Takes the uring lock, also while another thread is in the middle of an issue: for whatever
    /// must not wait for the I/O of others.
    #[inline]
    pub(crate) fn lock_now(&self) -> Guard<'_> {
        self.control.lock_now();
        self.locked_now()
    }

    /// As [`Self::lock_now`], if nobody holds the lock: the one way to it while holding another
    /// ring's.
    pub fn try_lock_now(&self) -> Option<Guard<'_>> {
        // Lazily: a guard made in vain would unlock what another thread holds.
        self.control.try_lock_now().then(|| self.locked_now())
    }

    #[inline]
    fn cell(&self) -> NonNull<Ctx> {
        // SAFETY: the address of a cell is not null.
        unsafe { NonNull::new_unchecked(self.ctx.get()) }
    }

    fn locked_now(&self) -> Guard<'_> {
        self.renew();
        if !self.control.issuing() {
            return self.guard(self.cell());
        }
        // None is lent where the issuer is in another process, which has a `Ctx` of its own.
        let lent = NonNull::new(self.control.lent().cast());
        let ctx = lent.unwrap_or_else(|| self.cell());
        // SAFETY: the lock is held.
        unsafe { (*ctx.as_ptr()).issue.begin_elsewhere() };
        self.guard(ctx)
    }

    /// The lock has been taken: the ring's memory is there, and what closers have left is done.
    #[inline(always)]
    fn guard(&self, ctx: NonNull<Ctx>) -> Guard<'_> {
        let mut guard = Guard { ring: self, ctx };
        if guard.mem.may_go() {
            // Without memory for it there is nothing better to do than to go on.
            let _ = guard.mem.outlive();
        }
        if self.moves.any() {
            guard.take_moves();
        }
        guard
    }

    /// Takes the uring lock unless the calling thread has it: in a signal handler, in the middle of
    /// the engine. No other thread keeps it for long; should one all the same, it is given up after
    /// a second.
    pub(crate) fn lock_soon(&self) -> Option<Guard<'_>> {
        for _ in 0..1000 {
            if let Some(guard) = self.try_lock_now() {
                return Some(guard);
            }
            if self.control.is_held_here() {
                return None;
            }
            softring_host::sys::pause(core::time::Duration::from_micros(20));
        }
        for _ in 0..980 {
            if let Some(guard) = self.try_lock_now() {
                return Some(guard);
            }
            softring_host::sys::pause(core::time::Duration::from_millis(1));
        }
        None
    }

    /// Is its state still as a process had it that this one was forked from?
    #[inline(always)]
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation.load(Relaxed) != softring_host::fork::generation()
    }

    /// The lock has been taken: a forked child makes the state its own when it first does so.
    #[inline(always)]
    fn renew(&self) {
        if self.is_inherited() {
            // SAFETY: the lock has just been taken, and no guard is made yet.
            unsafe { self.renew_now() };
        }
    }

    /// A forked child makes the state its own.
    ///
    /// # Safety
    /// The caller holds the lock and has no guard, or is the only thread of a fresh child: the
    /// parent may hold the shared lock on its own behalf then.
    #[cold]
    pub(crate) unsafe fn renew_now(&self) {
        // SAFETY: nobody else reaches the state, says our caller.
        unsafe { &mut *self.ctx.get() }.fork_child(self);
        self.generation.store(softring_host::fork::generation(), Relaxed);
    }

    /// Peeks at the state without a guard, which would write to the state. None while somebody is
    /// in the middle of an issue.
    ///
    /// # Safety
    /// As for [`Self::renew_now`], as long as what this answers is used.
    pub(crate) unsafe fn peek(&self) -> Option<&Ctx> {
        // SAFETY: nobody else reaches it, says our caller.
        (!self.control.issuing()).then(|| unsafe { &*self.ctx.get() })
    }
}

impl Deref for Guard<'_> {
    type Target = Ctx;
    fn deref(&self) -> &Ctx {
        // SAFETY: the uring lock is held, so nobody else reaches what it guards; a pointer that was
        // lent is good until the lender has the lock back.
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
        self.ring.control.unlock();
        if let Some(wakes) = wakes {
            wakes.run(&self.ring.control);
        }
    }
}

/// Everything the uring lock guards, by what it is for.
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
}

/// What the program asked for when it made the ring, and what it forbade since.
#[derive(Debug)]
pub(crate) struct Setup {
    /// IORING_SETUP_* flags.
    pub(crate) flags: u32,
    pub(crate) clock: Clock,
    pub(crate) disabled: bool,
    /// What the ring is to a forked child.
    pub(crate) inherited: Inherited,
    /// The one task that may submit (SINGLE_ISSUER), once known.
    pub(crate) issuer: Option<i32>,
    pub(crate) restrictions: Restrictions,
    pub(crate) filters: Filters,
}

/// The requests, and the queues that they wait in.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) slab: Slab,
    /// Requests in existence: those in the slab and the one at hand.
    pub(crate) nr_reqs: u32,
    /// Requests of these that have ended, and are not subtracted yet.
    pub(crate) nr_ended: u32,
    pub(crate) drain: Drain,
    pub(crate) timeouts: Timeouts,
    /// Requests that wait in turn.
    pub(crate) exclusive: ExclusiveQueues,
    /// SQEs with kernel aio that are no requests.
    pub(crate) direct: DirectSqes,
    /// The same with modelled devices.
    pub(crate) modelled: ModelledSqes,
}

/// What posting a CQE needs beside the CQ itself.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    pub(crate) overflow: Overflow,
    pub(crate) eventfd: Option<EventFd>,
    /// The eventfd that stands for the ring where the program polls it, by its first number.
    pub(crate) poll_fd: Option<i32>,
    pub(crate) posted: bool,
    /// When the first of what is being reaped ended, in ns of CLOCK_MONOTONIC; 0: not read yet.
    pub(crate) reaped: u64,
    /// The CQ's tail when CQEs were last counted.
    pub(crate) counted_tail: u32,
}

/// The transports, who waits on them, and who is to be woken.
#[derive(Debug)]
pub struct Driving {
    pub(crate) driver: Driver,
    /// Threads that are in `enter`.
    pub(crate) entered: u32,
    /// The last descriptor is closed; the ring ends when nobody is in `enter` any more.
    pub(crate) closed: bool,
    pub(crate) wakes: Wakes,
    pub(crate) spin: AdaptiveSpin,
    pub transports: Transports,
    /// What a worker does with a call of this ring's.
    pub(crate) run_job: fn(Job),
    /// The ring's workers, once it has needed one.
    pub(crate) pool: Option<Arc<Workers<Job>>>,
}

/// What is registered with the ring.
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
    pub(crate) fn new(mem: Rings, flags: u32, run_job: fn(Job)) -> Self {
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
            stats: CounterSlot::default(),
            trace: Writer::default(),
        }
    }

    /// Calls `f`, which may sleep, without the lock. Others take the lock meanwhile, and find the
    /// ring whole but for what the caller has at hand. Whatever the caller has read of the ring
    /// before may have changed afterwards, except for what only submission and registration change:
    /// they wait.
    #[inline(always)]
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        if self.issue.is_elsewhere() {
            // That thread lends the ring already.
            return f();
        }
        let lent = core::ptr::from_mut(self);
        // SAFETY: nobody changes which control page a ring has, and `self` outlives the call.
        let control = unsafe { &*Arc::as_ptr(&(*lent).mem.control) };
        // SAFETY: as above; the lock is still held.
        unsafe {
            if (*lent).issue.begin_call() {
                control.begin_issue(lent.cast());
            }
        }
        // SAFETY: as above; only the issuing thread writes this.
        let thread = unsafe { (*lent).issue.thread() };
        control.unlock();
        let answer = f();
        control.lock_now_as(thread);
        // SAFETY: the lock is held again, and every borrow from what was lent has ended with it.
        unsafe { (*lent).issue.end_call() };
        answer
    }

    /// The lock is about to be given back by who took it.
    #[inline]
    fn stop_issuing(&mut self) {
        if self.issue.is_here() {
            while self.issue.take_left_work() {
                self.take_left_work();
            }
            self.mem.control.end_issue();
        }
        self.issue.end();
    }

    /// Does what others came upon while this thread was in the middle of an issue.
    #[cold]
    fn take_left_work(&mut self) {
        if !self.defers() {
            return self.turn(Turn::Memory);
        }
        self.turn(Turn::Publish);
        if self.has_work() {
            self.set_taskrun();
        }
    }

    /// Completions wait for the program to enter (DEFER_TASKRUN).
    pub(crate) fn defers(&self) -> bool {
        self.setup.flags & IORING_SETUP_DEFER_TASKRUN != 0
    }

    /// Does the ring hold what others wait for, should its closing go unnoticed: requests, files,
    /// an eventfd?
    pub(crate) fn holds_anything(&self) -> bool {
        self.reqs.nr_reqs > 0 || self.completion.eventfd.is_some() || self.resources.files.used > 0
    }

    /// Is anything of this process in flight that its driver would wait for?
    pub(crate) fn in_flight(&self) -> bool {
        self.drive.transports.in_flight() || !self.reqs.timeouts.is_empty()
    }
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            flags: 0,
            clock: Clock::Monotonic,
            disabled: false,
            inherited: Inherited::default(),
            issuer: None,
            restrictions: Restrictions::default(),
            filters: Filters::default(),
        }
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
