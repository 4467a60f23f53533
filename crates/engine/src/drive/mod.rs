//! The drivers of a ring: waiting, sleeping and waking.

pub(crate) mod cqwait;
pub(crate) mod driver;
mod futex_waiters;
pub(crate) mod iopoll;
mod iowq;
mod last;
pub(crate) mod leave;
mod of_process;
pub(crate) mod pending;
pub(crate) mod poller;
pub(crate) mod reactor;
mod regular;
pub(crate) mod sets;
pub(crate) mod sleep;
pub(crate) mod sqpoll;
pub(crate) mod stand_in;
pub(crate) mod sync_cancel;
pub mod task_work;
pub(crate) mod taskrun;
pub(crate) mod teardown;
pub(crate) mod turn;

pub(crate) use of_process::AT_FORK;
