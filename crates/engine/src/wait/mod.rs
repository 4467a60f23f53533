//! Who waits, who sleeps, who wakes whom.

pub mod cqwait;
pub mod driver;
pub mod reactor;
