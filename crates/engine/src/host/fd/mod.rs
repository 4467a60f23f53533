//! Descriptors: which numbers are rings or the engine's own (`numbers`), how the engine's own are
//! taken and given back (`owned`), what kind of file the others are (`kind`), and what is
//! remembered of them (`remembered`, `kept`).

pub(crate) mod children;
pub(crate) mod duplicates;
pub mod exec;
pub(crate) mod history;
pub(crate) mod kept;
pub(crate) mod kind;
pub(crate) mod lock_race;
pub(crate) mod locks;
pub(crate) mod moved;
pub(crate) mod numbers;
pub(crate) mod owned;
pub(crate) mod probe;
pub(crate) mod refusals;
pub(crate) mod remembered;
pub(crate) mod same_table;
pub(crate) mod table_lock;

pub(crate) use children::wait_for_closes;
pub(crate) use kept::file_closes;
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
