//! State of this layer that exists once per process, and its handling in a forked child.

use core::sync::atomic::AtomicU64;
use softring_host::fork::{AtFork, keeps};

use super::task_rules;

#[derive(Debug)]
pub(super) struct OfProcess {
    pub(super) rules: task_rules::OfProcess,
    /// Pages that count against RLIMIT_MEMLOCK.
    pub(super) locked: AtomicU64,
}

pub(super) static PROCESS: OfProcess =
    OfProcess { rules: task_rules::OfProcess::new(), locked: AtomicU64::new(0) };

pub(crate) const AT_FORK: AtFork = AtFork::new(|_| PROCESS.in_child());

impl OfProcess {
    fn in_child(&self) {
        let Self { rules, locked } = self;
        rules.in_child();
        keeps(locked, "a child has the registered buffers, and gives them back");
    }
}
