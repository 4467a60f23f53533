//! Records of SQEs that are with a transport and never became requests.

use crate::ring::direct::DirectSqe;
use alloc::vec::Vec;

/// Lower half of a token that names such an SQE: no request's slot is so high.
const TAG: u64 = 0xffff_fffe;

/// One record for each SQE, by the token that its transport has.
#[derive(Debug)]
pub(crate) struct TokenTable<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

/// SQEs with kernel aio.
pub(crate) type DirectSqes = TokenTable<DirectSqe>;

/// SQEs with modelled devices.
pub(crate) type ModelledSqes = TokenTable<ModelledSqe>;

/// The record of an SQE with a modelled device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelledSqe {
    pub(crate) user_data: u64,
    pub(crate) opcode: u8,
    /// Time at which it was taken, in ns of CLOCK_MONOTONIC; 0: nobody would see it.
    pub(crate) start: u64,
}

impl<T> Default for TokenTable<T> {
    fn default() -> Self {
        TokenTable { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> TokenTable<T> {
    /// Stores a record; returns its token.
    #[inline]
    pub(crate) fn put(&mut self, entry: T) -> u64 {
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = Some(entry);
                at
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        };
        u64::from(at) << 32 | TAG
    }

    /// Returns the record that `token` names, if there is one.
    #[inline]
    pub(crate) fn get_mut(&mut self, token: u64) -> Option<&mut T> {
        self.entries.get_mut(index(token)? as usize)?.as_mut()
    }

    /// Removes the record that `token` names, if there is one.
    #[inline]
    pub(crate) fn take(&mut self, token: u64) -> Option<T> {
        let at = index(token)?;
        let entry = self.entries.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(entry)
    }
}

/// Returns the place of the record that `token` names.
#[inline]
fn index(token: u64) -> Option<u32> {
    (token & 0xffff_ffff == TAG).then_some((token >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::request::Req;
    use crate::ring::slab::Slab;

    #[test]
    fn tokens_name_no_requests_and_are_used_again() {
        let mut sqes = TokenTable::default();
        let (a, b) = (sqes.put(1), sqes.put(2));
        assert_eq!((sqes.take(a), sqes.take(a)), (Some(1), None));
        assert_eq!(sqes.put(3), a);
        assert_eq!(sqes.take(b), Some(2));
        let id = Slab::default().add(Req::default());
        assert!(sqes.take(id.to_u64()).is_none());
    }
}
