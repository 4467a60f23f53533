//! Process-wide state of this layer, and its handling in a forked child.

use alloc::boxed::Box;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use softring_host::fork::{AtFork, Child, keeps};

use super::reactor;

#[derive(Debug)]
pub(super) struct OfProcess {
    pub(super) reactor: reactor::OfProcess,
    /// Flag, true once a ring has been made that reports task work in its flags word. Only ever
    /// turns on.
    pub(super) flagging: AtomicBool,
    /// Flag, true if SQ threads that start sleep between submissions.
    pub(super) sq_idle_sleeps: AtomicBool,
    /// Numbers under which the program has registered eventfds with rings. A hint: a number may
    /// mean another file by now.
    pub(super) eventfds: [AtomicU64; EVENTFDS / 64],
    /// Count of threads that the program has cancelled.
    pub(super) cancels: AtomicU32,
}

/// Number of eventfd numbers that are known, from 0 on.
pub(super) const EVENTFDS: usize = 1 << 12;

pub(super) static PROCESS: OfProcess = OfProcess {
    reactor: reactor::OfProcess::new(),
    flagging: AtomicBool::new(false),
    sq_idle_sleeps: AtomicBool::new(false),
    eventfds: [const { AtomicU64::new(0) }; EVENTFDS / 64],
    cancels: AtomicU32::new(0),
};

/// Fork hooks: the reactor stands still over a fork.
pub(crate) const AT_FORK: AtFork =
    AtFork::locked(|| Some(PROCESS.hold()), |child| PROCESS.in_child(child));

impl OfProcess {
    fn hold(&'static self) -> Box<dyn Any> {
        Box::new(self.reactor.hold())
    }

    fn in_child(&self, child: &Child) {
        let Self { reactor, flagging, sq_idle_sleeps, eventfds, cancels } = self;
        reactor.in_child(child);
        keeps(flagging, "costs a child no more than a look");
        keeps(cancels, "only its changes count");
        keeps(eventfds, "a child's rings have the same eventfds");
        keeps(sq_idle_sleeps, "what the program has set holds for its children");
    }
}
