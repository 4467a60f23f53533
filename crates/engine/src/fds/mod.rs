//! Descriptors: which numbers are rings or the engine's own (`numbers`), the rings behind them
//! (`table`) and how they come and go (`closing`), how the engine's own are taken and given back
//! (`owned`), what kind of file the others are (`kinds`), and what the entry points tell of them
//! (`reports`).
//!
//! The engine knows no C symbol. Whoever stands in front of it (the preload's wrappers of `close`,
//! `dup` …) reports what happens to descriptors through the calls in `reports`.

mod children;
mod closing;
mod duplicates;
mod duties;
pub mod exec;
mod forked;
pub(crate) mod history;
pub(crate) mod kept;
pub(crate) mod kind;
mod kinds;
mod lock_race;
mod locks;
mod moved;
pub(crate) mod numbers;
mod owned;
pub(crate) mod probe;
mod refusals;
pub(crate) mod registered;
pub(crate) mod remembered;
mod reports;
mod same_table;
mod stand_in;
mod table;
mod table_lock;

pub(crate) use children::wait_for_closes;
pub use closing::sweep;
pub(crate) use closing::{checked_ring, hold_ring, insert};
pub use forked::{check_forked, fork_child, fork_parent, fork_prepare, notice_forks};
pub(crate) use kept::file_closes;
pub(crate) use kinds::{history, is_direct, kind, known_direct, known_kind, modelled};
pub use lock_race::{Setter, set_again};
pub(crate) use moved::{check_now_and_then, know, now};
pub use numbers::{
    closes_are_all_reported, closes_are_reported, is_internal, is_known_ring, is_ring,
};
pub(crate) use owned::InternalFd;
pub(crate) use owned::{
    adopt_internal, adopt_opened, check_visible, close_numbers, dup_internal, dup_visible,
    is_path_only, release, visible,
};
pub use owned::{is_hidden, reserve_numbers};
pub use remembered::forget_kind;
pub use reports::{after_dup, after_setfl, before_close, before_close_range, mmap_offset};
pub use stand_in::{poll_fd, sq_full};
pub use table::{find, move_away, ring, surely_no_ring};
pub(crate) use table::{forget_ended, next_id, nth, number_closes, some};
