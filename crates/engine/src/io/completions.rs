//! Results that transports return, under the tokens that the submitter gave. Transports know
//! neither requests nor SQEs; the driver of the ring completes those.

use crate::policy::hybrid::Ticket;
use alloc::vec::Vec;

/// One result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) token: u64,
    pub(crate) res: i64,
    /// Ticket for the policy that tracks the request.
    pub(crate) ticket: Ticket,
}

/// Completions of one reap.
pub(crate) type Completions = Vec<Completion>;
