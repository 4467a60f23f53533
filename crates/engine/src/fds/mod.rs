//! Descriptors: which are rings (`table`), which are the engine's own (`owned`), what kind of
//! file the others are (`kinds`), and what the entry points tell of them (`reports`).
//!
//! The engine knows no C symbol. Whoever stands in front of it (the preload's wrappers of `close`,
//! `dup` …) reports what happens to descriptors through the calls in `reports`.

mod children;
mod duplicates;
pub mod exec;
mod forked;
pub mod kept;
mod kinds;
mod lock_race;
mod locks;
mod moved;
mod owned;
mod reports;
mod same_table;
mod stand_in;
mod table;
mod table_lock;

pub use children::wait_for_closes;
pub use forked::{check_forked, fork_child, fork_parent, fork_prepare};
pub use kinds::{forget_kind, is_direct, kind, known_direct, known_kind, modelled, streak};
pub use lock_race::{Setter, set_again};
pub use moved::{check_now_and_then, know, move_away, now};
pub use owned::{
    InternalFd, adopt_internal, adopt_opened, check_visible, close_numbers, dup_internal,
    dup_visible, is_hidden, is_internal, is_path_only, release, reserve_numbers, visible,
};
pub use reports::{
    after_dup, after_setfl, before_close, before_close_range, closes_all_reported,
    closes_are_all_reported, closes_are_reported, closes_reported, file_closes, mmap_offset,
    number_closes,
};
pub use stand_in::{poll_fd, readable, signal_poll_fd, sq_full};
pub use table::{
    RingFd, adopt_ring, all, checked_ring, find, forget_ended, give_back, hold_ring, insert,
    is_live_ring, is_ring, next_id, nth, ring, some, surely_no_ring, sweep,
};
