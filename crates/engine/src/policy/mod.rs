//! Policies of polling and sleeping: pure functions of measurements, without I/O.

pub mod hybrid;
pub(crate) mod idle_sleep;
pub(crate) mod period;
