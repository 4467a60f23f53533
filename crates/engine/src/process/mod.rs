//! The process as a whole: rings that come and go with their descriptors (`closing`), reports of
//! entry points on descriptors (`reports`), forks and forked children, and threads that end.
//!
//! The engine knows no C symbol. The entry points in front of it (the preload's wrappers of
//! `close`, `dup` …) report what happens to descriptors through the calls in `reports`.

mod closing;
mod duties;
pub mod exit;
pub mod forked;
pub(crate) mod journal;
pub(crate) mod registered;
pub(crate) mod remote_cancel;
mod reports;
pub(crate) mod worker_side;

pub use closing::sweep;
pub(crate) use closing::{checked_ring, hold_ring, insert};
pub use reports::{
    after_dup, after_setfl, before_close, before_close_range, before_plain_close, mmap_offset,
};
