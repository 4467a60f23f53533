//! Process-wide state of this layer, and its handling in a forked child.

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
    /// Flag, true if statistics are switched off.
    pub(super) disabled: AtomicBool,
    pub(super) page: Mutex<Option<Page>>,
    pub(super) trace: Trace,
    /// Keys of each kind of watcher.
    pub(super) keys: [OnceLock<[u8; KEY]>; 2],
}

pub(super) static PROCESS: OfProcess = OfProcess {
    disabled: AtomicBool::new(false),
    page: Mutex::new(None),
    trace: Trace::new(),
    keys: [const { OnceLock::new() }; 2],
};

/// Fork hooks: the page stands still over a fork.
pub(crate) const AT_FORK: AtFork = AtFork::locked(|| Some(PROCESS.hold()), |_| PROCESS.in_child());

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

/// Memory of the trace.
#[derive(Debug)]
pub(super) struct Trace {
    /// Memory of this process; null: none, or not yet.
    pub(super) buffer: AtomicPtr<u8>,
    /// Flag, true if the memory is to be made at the next use of a ring.
    pub(super) later: AtomicBool,
    pub(super) disabled: AtomicBool,
    /// Descriptor that keeps the memory to be found.
    pub(super) fd: Mutex<Option<InternalFd>>,
    /// Name of the process when it got its buffer.
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

    /// Resets the state in a forked child: the memory is its parent's own.
    fn in_child(&self) {
        let Self { buffer, later, disabled, fd, comm } = self;
        keeps(comm, "written again with the buffer");
        // The lock may be held by a thread that does not exist here, also before there is a buffer:
        // by one that makes the first ring.
        if fd.try_lock().is_none() {
            disabled.store(true, Relaxed);
        }
        if buffer.load(Relaxed).is_null() {
            return;
        }
        buffer.store(core::ptr::null_mut(), Relaxed);
        later.store(true, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_forked_while_the_trace_is_made_goes_without() {
        let trace = Trace::new();
        let held = trace.fd.lock();
        trace.in_child();
        assert!(trace.disabled.load(Relaxed), "the first ring would wait for the lock for ever");
        drop(held);
    }

    #[test]
    fn another_child_may_be_traced() {
        let trace = Trace::new();
        trace.in_child();
        assert!(!trace.disabled.load(Relaxed));
    }
}
