//! Registered personalities: credentials to act under. Kernel counterpart:
//! `io_register_personality`.
//!
//! The kernel gives a request the whole credentials. Here they are those that decide about calls:
//! the file-system ids, the groups and the effective capabilities. A worker takes them on for one
//! call ([`softring_host::creds::under`]), within the limits of the submitting thread.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use softring_host::creds::Creds;
use softring_uapi::errno::{Errno, Result};

/// Registered credentials by id. Ids are allocated cyclically, from 1.
#[derive(Debug, Default)]
pub(crate) struct Personalities {
    map: BTreeMap<u16, Arc<Creds>>,
    last: u16,
}

impl Personalities {
    pub(crate) fn get(&self, id: u16) -> Option<Arc<Creds>> {
        self.map.get(&id).cloned()
    }

    /// Adds credentials; returns their id.
    ///
    /// # Errors
    /// `EBUSY` if every id is in use.
    pub(crate) fn insert(&mut self, creds: Creds) -> Result<u16> {
        let after = (1..=u16::MAX).map(|i| self.last.checked_add(i));
        let circle = after.flatten().chain(1..=self.last);
        let id = circle.into_iter().find(|id| !self.map.contains_key(id)).ok_or(Errno::EBUSY)?;
        self.map.insert(id, Arc::new(creds));
        self.last = id;
        Ok(id)
    }

    /// Removes the credentials of an id.
    ///
    /// # Errors
    /// `EINVAL` for an id that is not in use.
    pub(crate) fn remove(&mut self, id: u16) -> Result<()> {
        self.map.remove(&id).map(|_| ()).ok_or(Errno::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_wrap_around() {
        let mut p = Personalities::default();
        assert_eq!(p.insert(Creds::default()), Ok(1));
        assert_eq!(p.insert(Creds::default()), Ok(2));
        assert_eq!(p.remove(1), Ok(()));
        assert_eq!(p.remove(1), Err(Errno::EINVAL));
        assert_eq!(p.insert(Creds::default()), Ok(3));
        p.last = u16::MAX;
        assert_eq!(p.insert(Creds::default()), Ok(1));
    }
}
