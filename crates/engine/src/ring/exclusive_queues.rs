//! Exclusive wait queues: requests that wait for a listener, in order (`exclusive`).

use alloc::collections::{BTreeMap, VecDeque};

use crate::io::token::ReqId;

/// A listener as the SQE names it: whether registered, and its number.
pub(crate) type Key = (bool, i32);

/// Waiting requests of each listener, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ExclusiveQueues(pub(super) BTreeMap<Key, VecDeque<ReqId>>);

impl ExclusiveQueues {
    /// Returns whether no request waits behind the first.
    pub(crate) fn is_last(&self, key: Option<Key>) -> bool {
        key.and_then(|key| self.0.get(&key)).is_none_or(|q| q.len() <= 1)
    }
}
