//! The parts of a ring's state, each with what it is for. [`Ctx`] has them all.
//!
//! [`Ctx`]: crate::ring::ctx::Ctx

use std::sync::Arc;

use crate::io::Transports;
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
use crate::ring::job::Job;
use crate::ring::kept::{DirectSqes, ModelledSqes};
use crate::ring::slab::Slab;
use crate::ring::timer_queue::Timeouts;
use crate::ring::waiters::{AdaptiveSpin, Driver, Wakes};
use softring_host::creds::Creds;
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
