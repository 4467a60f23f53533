//! The requests that wait for a listener, in their order (`exclusive`).

use alloc::collections::{BTreeMap, VecDeque};

use crate::io::token::ReqId;

/// The listener, as the SQE names it: registered or not, and its number.
pub(crate) type Key = (bool, i32);

/// Requests that wait, the first first.
#[derive(Debug, Default)]
pub(crate) struct ExclusiveQueues(pub(super) BTreeMap<Key, VecDeque<ReqId>>);

impl ExclusiveQueues {
    /// Is there nobody behind a request who would wait on?
    pub(crate) fn is_last(&self, key: Option<Key>) -> bool {
        key.and_then(|key| self.0.get(&key)).is_none_or(|q| q.len() <= 1)
    }
}
