//! Registered personalities: credentials to act under. Kernel counterpart:
//! `io_register_personality`.
//!
//! The kernel lends a request the whole credentials. Here they are what decides about files: the
//! file-system ids and the supplementary groups, which Linux keeps per thread. A request whose
//! credentials are those of its thread runs as ever; for another one the worker changes its own
//! before the system call and changes back after it, which takes the rights that setfsuid(2) and
//! setgroups(2) ask for; without them the request fails with EPERM.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ctx::Ctx;
use crate::errno::{Errno, Result, check};
use crate::sys::sys;

/// A snapshot of what a thread's credentials say about files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creds {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// Ids are handed out in a circle, from 1.
#[derive(Debug, Default)]
pub struct Personalities {
    map: BTreeMap<u16, Arc<Creds>>,
    last: u16,
}

impl Personalities {
    pub fn get(&self, id: u16) -> Option<Arc<Creds>> {
        self.map.get(&id).cloned()
    }

    /// # Errors
    /// `EBUSY` if every id is in use.
    fn insert(&mut self, creds: Creds) -> Result<u16> {
        let after = (1..=u16::MAX).map(|i| self.last.checked_add(i));
        let circle = after.flatten().chain(1..=self.last);
        let id = circle.into_iter().find(|id| !self.map.contains_key(id)).ok_or(Errno::EBUSY)?;
        self.map.insert(id, Arc::new(creds));
        self.last = id;
        Ok(id)
    }
}

/// `IORING_REGISTER_PERSONALITY`: registers the caller's credentials; answers their id.
///
/// # Errors
/// `EBUSY` if every id is in use.
pub fn register(ctx: &mut Ctx, _: u64, _: u32) -> Result<usize> {
    ctx.personalities.insert(Creds::now()?).map(usize::from)
}

/// `IORING_UNREGISTER_PERSONALITY`: forgets one; requests in flight keep it.
///
/// # Errors
/// `EINVAL` for an id that is not in use.
pub fn unregister(ctx: &mut Ctx, _: u64, id: u32) -> Result<usize> {
    let id = u16::try_from(id).map_err(|_| Errno::EINVAL)?;
    ctx.personalities.map.remove(&id).map(|_| 0).ok_or(Errno::EINVAL)
}

/// Asks only: no id is that large, so nothing is set.
const ASK: u32 = u32::MAX;

impl Creds {
    /// The calling thread's.
    ///
    /// # Errors
    /// As getgroups(2).
    pub fn now() -> Result<Creds> {
        let uid = sys!(__NR_setfsuid, ASK) as u32;
        let gid = sys!(__NR_setfsgid, ASK) as u32;
        let n = check(sys!(__NR_getgroups, 0, 0))?;
        let mut groups = vec![0u32; n];
        let at = groups.as_mut_ptr().expose_provenance();
        groups.truncate(check(sys!(__NR_getgroups, n, at))?);
        Ok(Creds { uid, gid, groups })
    }

    /// Gives the calling thread these in place of `now`. The user comes last, for with it go the
    /// rights to the rest.
    fn set(&self, now: &Creds) -> Result<()> {
        if self.groups != now.groups {
            let at = self.groups.as_ptr().expose_provenance();
            check(sys!(__NR_setgroups, self.groups.len(), at))?;
        }
        sys!(__NR_setfsgid, self.gid);
        sys!(__NR_setfsuid, self.uid);
        let same = sys!(__NR_setfsgid, ASK) as u32 == self.gid
            && sys!(__NR_setfsuid, ASK) as u32 == self.uid;
        if same { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Undoes [`set`](Self::set): the user first, then what its rights allow.
    fn restore(&self) {
        sys!(__NR_setfsuid, self.uid);
        sys!(__NR_setfsgid, self.gid);
        let at = self.groups.as_ptr().expose_provenance();
        sys!(__NR_setgroups, self.groups.len(), at);
    }
}

const PR_GET_DUMPABLE: u32 = 3;
const PR_SET_DUMPABLE: u32 = 4;

/// Runs `f` under `creds`; without any, or with the thread's own, just runs it.
///
/// # Errors
/// `EPERM` if this thread may not take them on.
pub fn under<T>(creds: Option<&Creds>, f: impl FnOnce() -> T) -> Result<T> {
    let Some(creds) = creds else { return Ok(f()) };
    let now = Creds::now()?;
    if now == *creds {
        return Ok(f());
    }
    // The kernel forbids core dumps and debuggers to a process whose ids change; that is not the
    // program's wish here.
    let dumpable = sys!(__NR_prctl, PR_GET_DUMPABLE);
    let set = creds.set(&now);
    let r = set.map(|()| f());
    now.restore();
    if dumpable == 1 {
        sys!(__NR_prctl, PR_SET_DUMPABLE, 1);
    }
    r
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_in_a_circle() {
        let mut p = Personalities::default();
        assert_eq!(p.insert(Creds::default()), Ok(1));
        assert_eq!(p.insert(Creds::default()), Ok(2));
        p.map.remove(&1);
        assert_eq!(p.insert(Creds::default()), Ok(3));
        p.last = u16::MAX;
        assert_eq!(p.insert(Creds::default()), Ok(1));
    }

    #[test]
    fn own_credentials_change_nothing_and_others_are_given_back() {
        let now = Creds::now().unwrap();
        assert_eq!(under(Some(&now), || 7), Ok(7));
        let other = Creds { uid: 12345, gid: 54321, groups: vec![7] };
        let seen = under(Some(&other), || Creds::now().unwrap());
        // Only a privileged thread may.
        assert!(seen == Ok(other) || seen == Err(Errno::EPERM), "{seen:?}");
        assert_eq!(Creds::now(), Ok(now));
    }
}
