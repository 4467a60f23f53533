//! State of this layer that exists once per process, except for [`persistent`](super::persistent),
//! and its handling in a forked child.

use alloc::boxed::Box;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use softring_host::fd::InternalFd;
use softring_host::fork::{AtFork, keeps};
use softring_host::process_lock::ProcessLock;
use softring_host::sync::real::{Mutex, OnceLock};

use super::aio::context_cache;
use super::faults;
use super::model::{self, files};
use crate::policy::hybrid::Timer;

#[derive(Debug)]
pub(crate) struct OfProcess {
    pub(super) flags: Flags,
    pub(crate) kernel: Kernel,
    /// `/proc/loadavg`, opened once: opening it each time would take numbers that the program
    /// counts on.
    pub(super) loadavg: OnceLock<Option<InternalFd>>,
    pub(super) devices: OnceLock<Box<[model::Device]>>,
    pub(super) modelled_files: files::OfProcess,
    pub(super) faults: faults::OfProcess,
    pub(super) aio_contexts: Mutex<context_cache::State>,
    /// Lock of a thread that changes a socket's receive timeout for one call.
    pub(crate) receive_timeouts: ProcessLock,
}

/// Flags that are read often and written rarely: in a cache line of their own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Flags {
    /// Policy forced on every ring; 0: none, else `Policy` + 1.
    pub(super) forced: AtomicU8,
    /// Flag, set if a modelled device exists. Relaxed: set before the first ring, by the thread
    /// that then makes rings possible.
    pub(super) modelled: AtomicBool,
    /// Flag, set once a signal handler has entered a ring on top of its own thread's call.
    pub(super) handlers_enter: AtomicBool,
}

/// Properties of the kernel, once known.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Cost of a timer here.
    pub(super) timer: OnceLock<Timer>,
    /// Processors that the process may use: counting them takes files and system calls.
    pub(super) cpus: OnceLock<u32>,
    /// See `requeue`.
    pub(super) requeue_tells: AtomicU32,
    /// Processors that the machine can have.
    pub(crate) possible_cpus: OnceLock<u32>,
    /// Flag, true if the kernel knows both RWF_APPEND and RWF_NOAPPEND.
    pub(crate) append_flags: OnceLock<bool>,
    /// State of RESOLVE_CACHED: 2 if it works, 1 if not, 0 if untested.
    pub(crate) cached_lookup: AtomicU8,
}

pub(crate) static PROCESS: OfProcess = OfProcess {
    flags: Flags {
        forced: AtomicU8::new(0),
        modelled: AtomicBool::new(false),
        handlers_enter: AtomicBool::new(false),
    },
    kernel: Kernel {
        timer: OnceLock::new(),
        cpus: OnceLock::new(),
        requeue_tells: AtomicU32::new(0),
        possible_cpus: OnceLock::new(),
        append_flags: OnceLock::new(),
        cached_lookup: AtomicU8::new(0),
    },
    loadavg: OnceLock::new(),
    devices: OnceLock::new(),
    modelled_files: files::OfProcess::new(),
    faults: faults::OfProcess::new(),
    aio_contexts: Mutex::new(context_cache::State::new()),
    receive_timeouts: ProcessLock::new(),
};

pub(crate) const AT_FORK: AtFork = AtFork::locked(|| PROCESS.hold(), |_| PROCESS.in_child());

impl OfProcess {
    /// Holds the lock of modelled files over a fork: a child must find the lock free.
    fn hold(&'static self) -> Option<Box<dyn Any>> {
        model::any().then(|| Box::new(self.modelled_files.lock()) as Box<dyn Any>)
    }

    fn in_child(&self) {
        let Self {
            flags,
            kernel,
            loadavg,
            devices,
            modelled_files,
            faults,
            aio_contexts,
            receive_timeouts,
        } = self;
        flags.in_child();
        keeps(kernel, "the same for a child");
        keeps(loadavg, "a child has the descriptors of its parent");
        keeps(devices, "what the environment has set holds for children, which go on with copies");
        keeps(modelled_files, "held over the fork, and a child has its parent's files");
        keeps(faults, "what the environment has set holds for children, which number rings on");
        context_cache::forget(aio_contexts);
        keeps(receive_timeouts, "names its holder by process");
    }
}

impl Flags {
    fn in_child(&self) {
        let Self { forced, modelled, handlers_enter } = self;
        keeps(forced, "what the environment has set holds for children");
        keeps(modelled, "as the devices");
        keeps(handlers_enter, "only ever turns on, and what follows is slower, not wrong");
    }
}
