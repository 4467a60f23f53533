//! What transports return: results, under the tokens that came with what was submitted. They know
//! neither requests nor SQEs; whoever turns the ring completes those.

use crate::policy::hybrid::Ticket;
use alloc::vec::Vec;

/// One result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) token: u64,
    pub(crate) res: i64,
    /// What names it for the policy that keeps track of those in flight.
    pub(crate) ticket: Ticket,
}

/// Completions of one reap.
pub(crate) type Completions = Vec<Completion>;
