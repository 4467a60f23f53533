//! When to poll, and when to sleep: pure functions of what is measured, without I/O.

pub mod hybrid;
pub(crate) mod idle_sleep;
pub(crate) mod period;
