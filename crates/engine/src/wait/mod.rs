//! Who waits, who sleeps, who wakes whom.

use crate::signal::BlockAll;

pub mod announce;
pub(crate) mod cqwait;
pub(crate) mod driver;
pub mod hybrid;
pub(crate) mod iopoll;
mod last;
pub(crate) mod leave;
pub mod polling;
pub(crate) mod reactor;
pub mod sqpoll;
pub mod task_work;
pub(crate) mod vigil;

/// What a thread of the engine's own is called: `iou-WHAT-PID`.
fn name(what: &str) -> String {
    format!("iou-{what}-{}", crate::fork::pid())
}

/// Starts a thread of the engine's own, with every signal blocked that may be.
pub(crate) fn spawn(
    what: &str,
    stack: usize,
    f: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    let _blocked = BlockAll::new();
    let ours = move || {
        crate::creds::is_ours();
        f();
    };
    crate::threads::start(&name(what), stack, ours)
}
