//! What belongs to the process as a whole: how rings come and go with their descriptors
//! (`closing`), what entry points tell of descriptors (`reports`), forks and forked children, and
//! threads that end.
//!
//! The engine knows no C symbol. Whoever stands in front of it (the preload's wrappers of `close`,
//! `dup` …) reports what happens to descriptors through the calls in `reports`.

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
pub use reports::{after_dup, after_setfl, before_close, before_close_range, mmap_offset};
