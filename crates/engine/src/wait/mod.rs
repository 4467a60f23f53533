//! Who waits, who sleeps, who wakes whom.

pub mod announce;
pub mod cqwait;
pub mod driver;
pub mod iopoll;
pub mod reactor;
pub mod sqpoll;
