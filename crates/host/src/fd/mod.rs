//! Descriptors: which numbers are rings or the engine's own (`numbers`), ownership of the engine's
//! own (`owned`), kinds of files (`kind`), and facts that are remembered of the program's files
//! (`remembered`, `dup_cache`).

pub mod children;
pub mod directories;
pub mod dup_cache;
pub mod duplicates;
pub mod exec;
pub mod file_systems;
pub mod history;
pub mod kind;
pub mod lock_race;
pub mod locks;
pub mod mounts;
pub mod moved;
pub mod numbers;
pub mod owned;
pub mod probe;
pub mod refusals;
pub mod remembered;
pub mod same_table;
pub mod sets;
pub mod table_lock;

pub use children::wait_for_closes;
pub use dup_cache::file_closes;
pub use lock_race::{Setter, set_again};
pub use moved::{check_now_and_then, know, now};
pub use numbers::{
    closes_are_all_reported, closes_are_reported, is_internal, is_known_ring, is_ring,
};
pub use owned::InternalFd;
pub use owned::{
    check_visible, dup_internal, dup_visible, is_path_only, make_internal, make_internal_opened,
    release, visible,
};
pub use owned::{is_hidden, reserve_numbers};
pub use remembered::forget_kind;
