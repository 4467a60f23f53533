//! What a process has once of this layer, and what a forked child does with it.

use alloc::boxed::Box;
use core::any::Any;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use softring_host::fd::InternalFd;
use softring_host::fork::{AtFork, keeps};
use softring_host::sync::real::{Mutex, OnceLock};

use super::page::{self, Page};
use super::watcher::KEY;

#[derive(Debug)]
pub(super) struct OfProcess {
    /// Nobody wants statistics.
    pub(super) disabled: AtomicBool,
    pub(super) page: Mutex<Option<Page>>,
    pub(super) trace: Trace,
    /// Each kind of watcher's.
    pub(super) keys: [OnceLock<[u8; KEY]>; 2],
}

pub(super) static PROCESS: OfProcess = OfProcess {
    disabled: AtomicBool::new(false),
    page: Mutex::new(None),
    trace: Trace::new(),
    keys: [const { OnceLock::new() }; 2],
};

/// The page stands still over a fork.
pub(crate) const AT_FORK: AtFork = AtFork::held(|| Some(PROCESS.hold()), |_| PROCESS.in_child());

impl OfProcess {
    fn hold(&'static self) -> Box<dyn Any> {
        Box::new(page::hold())
    }

    fn in_child(&self) {
        let Self { disabled, page, trace, keys } = self;
        keeps(disabled, "what the environment has set holds for children");
        page::forget(page);
        trace.in_child();
        keeps(keys, "children are watched, too");
    }
}

/// The memory of the trace.
#[derive(Debug)]
pub(super) struct Trace {
    /// This process's; null: none, or not yet.
    pub(super) buffer: AtomicPtr<u8>,
    /// One is to be made when next asked for.
    pub(super) later: AtomicBool,
    pub(super) disabled: AtomicBool,
    /// Keeps it to be found.
    pub(super) fd: Mutex<Option<InternalFd>>,
    /// The process's name when it got its buffer.
    pub(super) comm: [AtomicU64; 2],
}

impl Trace {
    const fn new() -> Self {
        Trace {
            buffer: AtomicPtr::new(core::ptr::null_mut()),
            later: AtomicBool::new(false),
            disabled: AtomicBool::new(false),
            fd: Mutex::new(None),
            comm: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// The memory is its parent's own.
    fn in_child(&self) {
        let Self { buffer, later, disabled, fd, comm } = self;
        keeps(comm, "written again with the buffer");
        if buffer.load(Relaxed).is_null() {
            return;
        }
        buffer.store(core::ptr::null_mut(), Relaxed);
        later.store(true, Relaxed);
        // The lock may be held by a thread that is no more.
        if fd.try_lock().is_none() {
            disabled.store(true, Relaxed);
        }
    }
}
