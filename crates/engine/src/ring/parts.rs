//! The parts of a ring's state, each with what it is for. [`Ctx`] has them all.
//!
//! [`Ctx`]: crate::ring::ctx::Ctx

use std::collections::VecDeque;
use std::sync::Arc;

use crate::io::Transports;
use crate::io::token::ReqId;
use crate::io::workers::Workers;
use crate::memory::cq::Overflow;
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
use crate::ring::exclusive_queues::ExclusiveQueues;
use crate::ring::inherited::Inherited;
use crate::ring::job::{Finished, Job};
use crate::ring::kept::{DirectSqes, ModelledSqes};
use crate::ring::pending::Pending;
use crate::ring::slab::Slab;
use crate::ring::timer_queue::Timeouts;
use crate::ring::waiters::{AdaptiveSpin, Driver, Wakes};
use softring_host::creds::Creds;
use softring_host::fd::InternalFd;
use softring_host::time::Clock;

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

/// The issue that is being made, and what others leave to the thread that makes it.
#[derive(Debug)]
pub(crate) struct Issue {
    pub(crate) issuing: Issuing,
    /// The issuing thread, as [`softring_host::sys::thread`] has it, once it makes a system call.
    pub(crate) thread: usize,
    /// The program's number that the call is about; -1: none.
    pub(crate) at_hand: i32,
    /// The file that number meant, if it was closed during the call.
    pub(crate) moved: Option<InternalFd>,
    /// Somebody left work to the issuing thread.
    pub(crate) left_work: bool,
}

/// Who is in the middle of an issue, and makes its system calls without the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Issuing {
    /// Nobody.
    #[default]
    Nobody,
    /// The thread that holds the lock.
    Here,
    /// Another thread. The holder of the lock issues nothing and takes no events from transports.
    Elsewhere,
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
    /// Who waits in turn.
    pub(crate) exclusive: ExclusiveQueues,
    /// SQEs with kernel aio that are no requests.
    pub(crate) direct: DirectSqes,
    /// The same with modelled devices.
    pub(crate) modelled: ModelledSqes,
}

/// Task work, and what else is to be done later.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Task work: requests to issue next.
    pub(crate) run: VecDeque<ReqId>,
    /// Requests that a worker is to begin (`ring::iowq`).
    pub(crate) iowq: VecDeque<ReqId>,
    /// Multishot receives that go on when the program next comes for completions (DEFER_TASKRUN).
    pub(crate) next_turn: VecDeque<ReqId>,
    /// Completions that wait for the program to enter (DEFER_TASKRUN).
    pub(crate) deferred: VecDeque<Finished>,
    /// CQEs to be posted to other rings once this one's lock is released.
    pub(crate) pending: Vec<Pending>,
    /// A thread delivers what was in `pending`: what comes later queues behind.
    pub(crate) delivering: bool,
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
    /// Its workers, once it has needed one.
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

impl Default for Issue {
    fn default() -> Self {
        Issue { issuing: Issuing::Nobody, thread: 0, at_hand: -1, moved: None, left_work: false }
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
