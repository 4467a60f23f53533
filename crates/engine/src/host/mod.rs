//! The machine below: system calls, signals, threads, clocks, and what a policy refuses of them.

pub(crate) mod alone;
pub(crate) mod bpf;
pub mod creds;
pub mod fd;
pub(crate) mod fork;
pub mod handlers;
pub mod limits;
pub mod refused;
pub(crate) mod signal;
pub mod substitute;
pub(crate) mod sync;
pub mod sys;
pub mod threads;
pub mod time;
pub mod trial;
pub(crate) mod unlisted;
pub mod user;
