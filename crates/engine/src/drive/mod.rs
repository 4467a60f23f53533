//! Who waits, who sleeps, who wakes whom.

pub mod announce;
pub(crate) mod cqwait;
pub(crate) mod driver;
mod futex_waiters;
pub(crate) mod iopoll;
mod last;
pub(crate) mod leave;
pub(crate) mod pending;
pub(crate) mod reactor;
pub mod sqpoll;
pub mod stand_in;
pub mod task_work;
pub(crate) mod teardown;
