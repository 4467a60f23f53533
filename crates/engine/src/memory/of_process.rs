//! State of this layer that exists once per process, and its handling in a forked child.

use alloc::boxed::Box;
use core::any::Any;
use core::sync::atomic::AtomicUsize;
use softring_host::fork::{AtFork, keeps};
use softring_host::process_lock::ProcessLock;

use super::left::Trials;

#[derive(Debug)]
pub(super) struct OfProcess {
    /// The thread that takes the locks of all rings, for a fork (`Control::try_hold`); 0: none.
    pub(super) forking: AtomicUsize,
    /// Lock of the thread that lifts RLIMIT_FSIZE.
    pub(super) lifts: ProcessLock,
    /// Trials of the memory that is left.
    pub(super) trials: Trials,
}

pub(super) static PROCESS: OfProcess =
    OfProcess { forking: AtomicUsize::new(0), lifts: ProcessLock::new(), trials: Trials::new() };

/// Holds `lifts` over a fork: if another thread had the limit lifted, the child would keep it
/// lifted.
pub(crate) const AT_FORK: AtFork = AtFork::locked(|| Some(PROCESS.hold()), |_| PROCESS.in_child());

impl OfProcess {
    fn hold(&'static self) -> Box<dyn Any> {
        Box::new(self.lifts.hold())
    }

    fn in_child(&self) {
        let Self { forking, lifts, trials } = self;
        keeps(forking, "process::forked has turned it off by now");
        keeps(lifts, "held over the fork, and free");
        keeps(trials, "a child has as much memory left as its parent");
    }
}
