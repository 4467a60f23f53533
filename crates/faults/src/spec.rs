//! Specifications: a seed, and the chance of each fault for some requests.

use alloc::vec::Vec;

use crate::chance::{Chance, Time};
use crate::fault::Fault;
use crate::filter::Filter;

/// Chance of a fault for some requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub fault: Fault,
    pub chance: Chance,
    /// The time of a fault that has one ([`Fault::takes_time`]).
    pub time: Option<Time>,
    pub filter: Filter,
}

/// Specification of the faults to inject. Of several entries for one fault, the last that matches a
/// request decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    pub seed: u64,
    pub entries: Vec<Entry>,
}

impl Spec {
    /// Returns whether an entry goes by paths.
    pub fn names_paths(&self) -> bool {
        self.entries.iter().any(|e| e.filter.path.is_some())
    }
}
