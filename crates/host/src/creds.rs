//! Credentials: what a request that a thread of ours runs is allowed to do.
//!
//! The kernel's requests carry the credentials of the thread that submitted them (`req->creds`,
//! taken when a request goes to a worker), and its task work runs in that thread itself. Here
//! threads of ours run requests, or another thread of the program that waits on the same ring, and
//! Linux keeps credentials per thread. So a request that asks about them (`CREDS` in the op
//! table) takes note of its submitter's before it leaves it, and whoever runs it compares them with
//! its own: the same in nearly all programs. Where they differ
//!
//! - the request goes to a worker that was born of a thread with the same credentials, since a
//!   thread inherits all that its maker had (`submit::glue`);
//! - if there is none, the worker makes a thread that takes them on, makes the call and ends
//!   ([`under`]), which takes rights of its own; without those the request fails with EPERM. It
//!   never runs with other rights than its submitter's. The C library does not know that thread:
//!   when the program changes the rights of all threads, that one keeps those of the request.
//!
//! The credentials are those that decide what a call may do, or what a peer is told of who made it
//! (`SO_PEERCRED`): ids, groups, effective capabilities; and the limits that a thread can never lay
//! down, which nobody can take on: no_new_privs, a seccomp filter, a Landlock domain. Linux does
//! not tell which filters and domains a thread has, so whoever stands in front of the engine says
//! when it gets one ([`restricted`]); from then on each thread has workers of its own.
//!
//! A thread of ours changes its credentials only if the C library changes those of all threads
//! (setuid(3) and the others): whoever stands in front of the engine says so ([`changed`]), so that
//! they need not be asked for each time. A thread of the program may change its own at any time,
//! and is asked.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, OnceLock};

use crate::calls::ids::{self as calls, Attribute, Capabilities as Caps};
use softring_uapi::errno::{Errno, Result};

/// Asks only: no id is that large, so nothing is set.
const ASK: u32 = u32::MAX;

/// A snapshot of what decides about a thread's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creds {
    /// What the thread is, and what it accesses files by.
    pub user: Ids,
    pub group: Ids,
    pub groups: Vec<u32>,
    /// Effective capabilities, a bit each.
    pub caps: u64,
    limits: Limits,
}

/// A thread's users, or its groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Real, effective (what a socket's peer is told) and saved.
    pub res: [u32; 3],
    /// What files are accessed by.
    pub fs: u32,
}

/// What a thread cannot lay down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    no_new_privs: bool,
    filtered: bool,
    /// Stands for what Linux does not tell; 0 while no such limit was reported.
    token: u64,
}

const EFFECTIVE: usize = 0;
const PERMITTED: usize = 1;

/// Times that the C library has changed the credentials of all threads.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Names for threads with limits; 0 while there is none.
static TOKENS: AtomicU64 = AtomicU64::new(0);
/// The limits that the process had when it made its first ring.
static START: OnceLock<Limits> = OnceLock::new();
/// The epoch in which it did.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// What a thread of ours knows of itself.
struct Known {
    epoch: u64,
    creds: Arc<Creds>,
    /// Whatever the program calls, they stay so.
    fixed: bool,
}

std::thread_local! {
    /// The name of this thread's limits.
    static TOKEN: Cell<u64> = const { Cell::new(0) };
    /// Is it one of ours?
    static OURS: Cell<bool> = const { Cell::new(false) };
    /// The thread's credentials then. No destructor, for whose registration
    /// the C library asks the program's malloc(3): [`thread_ends`] drops them.
    static KNOWN: RefCell<ManuallyDrop<Option<Known>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// A ring is about to be made.
pub fn begin() {
    START.get_or_init(|| {
        FIRST.store(epoch(), Relaxed);
        Creds::now().limits
    });
}

/// The credentials of all threads change: called before and after.
pub fn changed() {
    EPOCH.fetch_add(1, SeqCst);
}

/// How often they did.
pub fn epoch() -> u64 {
    EPOCH.load(SeqCst)
}

/// The calling thread has got limits that it cannot lay down (a seccomp filter, a Landlock domain),
/// or file-system state of its own (unshare(2)).
pub fn restricted() {
    TOKEN.set(TOKENS.fetch_add(1, SeqCst) + 1);
}

/// Has any thread? Its threads inherit them, and nobody says which those are.
pub fn any_restricted() -> bool {
    TOKENS.load(Relaxed) != 0
}

/// What a thread that the calling one makes has of its limits.
pub fn token() -> u64 {
    // A thread of ours has what it inherited, whatever others have got since.
    if any_restricted() && TOKEN.get() == 0 && !OURS.get() {
        restricted();
    }
    TOKEN.get()
}

/// The calling thread is one of ours, which changes no credentials by itself; its maker's limits
/// were `token`'s.
pub fn is_ours(token: u64) {
    OURS.set(true);
    TOKEN.set(token);
}

/// Is the calling thread one of ours?
pub fn am_ours() -> bool {
    OURS.get()
}

/// The calling thread's credentials; a thread of ours knows them.
pub fn mine() -> Arc<Creds> {
    if !OURS.get() {
        return Arc::new(Creds::now());
    }
    known(|known| known.creds.clone())
}

fn known<T>(f: impl FnOnce(&Known) -> T) -> T {
    let epoch = epoch();
    KNOWN.with_borrow_mut(|known| match &mut **known {
        Some(known) if known.epoch == epoch => f(known),
        other => {
            let creds = Arc::new(Creds::now());
            f(other.insert(Known { epoch, creds, fixed: ids_are_fixed() }))
        }
    })
}

/// May the calling thread run a request under `creds` as it is? Not where the program may change
/// the credentials of all threads in the midst of it, as one does that has done so before.
pub fn is_under(creds: &Creds) -> bool {
    let fixed = || if OURS.get() { known(|known| known.fixed) } else { ids_are_fixed() };
    *mine() == *creds && (epoch() == FIRST.load(Relaxed) || fixed())
}

/// The calling thread is one of ours, and ends.
pub fn thread_ends() {
    KNOWN.with_borrow_mut(|known| drop(known.take()));
}

impl Creds {
    /// The calling thread's.
    pub fn now() -> Creds {
        let filtered = calls::attribute(Attribute::Seccomp) != Ok(0);
        let limits = Limits { no_new_privs: no_new_privs(), filtered, token: token() };
        let (user, group) = ids();
        let fs = file_ids(filtered, (user[1], group[1]));
        let (user, group) = (Ids { res: user, fs: fs.0 }, Ids { res: group, fs: fs.1 });
        Creds { user, group, groups: groups(), caps: capabilities(), limits }
    }

    /// Has the thread limits that the process did not start with, and other threads may lack?
    pub fn is_limited(&self) -> bool {
        START.get().is_some_and(|start| *start != self.limits)
    }

    /// Are both threads' limits the same? Then each may take on the other's rights.
    pub fn limited_as(&self, other: &Creds) -> bool {
        self.limits == other.limits
    }

    /// The credentials, with the limits of `caller`.
    pub fn within(&self, caller: &Creds) -> Creds {
        Creds { limits: caller.limits, ..self.clone() }
    }

    fn has_other_ids(&self, now: &Creds) -> bool {
        (self.user.res, self.group.res) != (now.user.res, now.group.res)
    }

    /// Gives the calling thread, which has these ids but for those of files, the latter, too.
    fn set_file_ids(&self, now: &Creds) -> Result<()> {
        // A change of the others takes those of files with it.
        let has = match self.has_other_ids(now) {
            true => (self.user.res[1], self.group.res[1]),
            false => (now.user.fs, now.group.fs),
        };
        let wanted = (self.user.fs, self.group.fs);
        if wanted == has {
            return Ok(());
        }
        let _ = calls::setfsgid(wanted.1);
        let _ = calls::setfsuid(wanted.0);
        if asked_file_ids() == wanted { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Gives the calling thread these in place of `now`. The user comes last but for the
    /// capabilities, for with it go the rights to the rest.
    fn set(&self, now: &Creds) -> Result<()> {
        let caps = raise();
        if self.groups != now.groups {
            calls::setgroups(&self.groups)?;
        }
        if self.has_other_ids(now) {
            // The thread is to keep what it may have until it has all it is to have.
            calls::keep_capabilities();
            let ([r, e, s], [gr, ge, gs]) = (self.user.res, self.group.res);
            calls::setresgid(gr, ge, gs)?;
            calls::setresuid(r, e, s)?;
            let _ = set_effective(caps, bits(&caps, PERMITTED));
        }
        self.set_file_ids(now)?;
        set_effective(caps, self.caps)
    }
}

/// Runs `f` under `creds`; without any, or with the thread's own, just runs it.
///
/// # Errors
/// `EPERM` if this thread may not take them on; `EAGAIN` or `ENOMEM` if there can be no other
/// thread that does.
pub fn under<T>(creds: Option<&Creds>, f: impl FnOnce() -> T) -> Result<T> {
    let Some(creds) = creds else { return Ok(f()) };
    if is_under(creds) {
        return Ok(f());
    }
    if mine().limits != creds.limits {
        return Err(Errno::EPERM);
    }
    crate::unlisted::run(|| {
        // Those that this thread got just now, and keeps.
        let now = Creds::now();
        if now == *creds {
            return Ok(f());
        }
        // The kernel forbids core dumps and debuggers to a process whose ids change; that is not
        // the program's wish here.
        let dumpable = calls::attribute(Attribute::Dumpable);
        let set = creds.set(&now);
        if dumpable == Ok(1) {
            calls::set_dumpable();
        }
        set.map(|()| f())
    })?
}

/// Can no call give the calling thread other ids?
fn ids_are_fixed() -> bool {
    /// `CAP_SETGID`, `CAP_SETUID`.
    const MAY: u64 = 1 << 6 | 1 << 7;
    let same = |ids: [u32; 3]| ids.iter().all(|&id| id == ids[0]);
    let (users, groups) = ids();
    same(users) && same(groups) && bits(&calls::capabilities(), PERMITTED) & MAY == 0
}

/// The real, effective and saved users, and groups. A policy may refuse to tell all; the effective
/// ones stand for them then.
fn ids() -> ([u32; 3], [u32; 3]) {
    let user = calls::three(false).unwrap_or_else(|_| [id(calls::geteuid()); 3]);
    let group = calls::three(true).unwrap_or_else(|_| [id(calls::getegid()); 3]);
    (user, group)
}

fn id(answer: Result<usize>) -> u32 {
    answer.map_or_else(|e| e.ret() as u32, |id| id as u32)
}

fn asked_file_ids() -> (u32, u32) {
    (id(calls::setfsuid(ASK)), id(calls::setfsgid(ASK)))
}

/// The ids that files are accessed by. Only setfsuid(2) tells them. A filter may kill whoever calls
/// that; there `/proc` tells. That they are the effective ones is remembered, for they change with
/// those. Where they differ, a change of the effective ones there and back would make them the
/// same, unreported: `/proc` is asked each time.
fn file_ids(filtered: bool, effective: (u32, u32)) -> (u32, u32) {
    if !filtered {
        return asked_file_ids();
    }
    std::thread_local! {
        /// The effective ids when those of files were the same, and the times that the program
        /// had set the latter.
        static LAST: Cell<Option<((u32, u32), u64)>> = const { Cell::new(None) };
    }
    let now = Some((effective, FILE_IDS_SET.load(Relaxed)));
    if LAST.get() == now {
        return effective;
    }
    let ids = crate::sys::file_ids_by_proc().unwrap_or(effective);
    LAST.set(now.filter(|_| ids == effective));
    ids
}

/// Times that a thread of the program has set the ids for files alone.
static FILE_IDS_SET: AtomicU64 = AtomicU64::new(0);

/// The calling thread sets the ids that it accesses files by, alone (setfsuid(2)).
pub fn file_ids_set() {
    FILE_IDS_SET.fetch_add(1, Relaxed);
}

fn groups() -> Vec<u32> {
    let mut few = [0u32; 32];
    if let Ok(n) = calls::getgroups(&mut few) {
        return few[..n].to_vec();
    }
    let n = calls::getgroups(&mut []).unwrap_or(0);
    let mut all = vec![0u32; n];
    let n = calls::getgroups(&mut all).unwrap_or(0);
    all.truncate(n);
    all
}

/// Can the calling thread gain no rights by exec?
pub fn no_new_privs() -> bool {
    calls::attribute(Attribute::NoNewPrivs) == Ok(1)
}

/// The calling thread's effective capabilities.
pub fn capabilities() -> u64 {
    bits(&calls::capabilities(), EFFECTIVE)
}

/// May the calling thread give its I/O this priority? ioprio_set(2) checks that first, and then
/// finds no process of that number.
///
/// # Errors
/// `EPERM` for the real-time class without `CAP_SYS_ADMIN` or `CAP_SYS_NICE`; `EINVAL` for a class
/// that does not exist.
pub fn may_have_priority(ioprio: u16) -> Result<()> {
    /// `IOPRIO_WHO_PROCESS`.
    const PROCESS: u32 = 1;
    match calls::ioprio_set(PROCESS, i32::MAX, ioprio) {
        Err(e @ (Errno::EPERM | Errno::EINVAL)) => Err(e),
        _ => Ok(()),
    }
}

fn bits(caps: &Caps, set: usize) -> u64 {
    u64::from(caps[0][set]) | u64::from(caps[1][set]) << 32
}

/// Makes effective all that the thread may have, as changing credentials takes some of it; answers
/// what was.
fn raise() -> Caps {
    let caps = calls::capabilities();
    let _ = set_effective(caps, bits(&caps, PERMITTED));
    caps
}

fn set_effective(mut caps: Caps, to: u64) -> Result<()> {
    if bits(&calls::capabilities(), EFFECTIVE) == to {
        return Ok(());
    }
    (caps[0][EFFECTIVE], caps[1][EFFECTIVE]) = (to as u32, (to >> 32) as u32);
    calls::set_capabilities(&caps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_credentials_change_nothing_and_others_are_given_back() {
        let now = Creds::now();
        assert_eq!(under(Some(&now), || 7), Ok(7));
        let ids = |res, fs| Ids { res, fs };
        let (user, group) = (ids([0, 12345, 0], 12345), ids([1, 54321, 1], 54321));
        let other = Creds { user, group, groups: vec![7], caps: 0, ..now.clone() };
        let seen = under(Some(&other), Creds::now);
        // Only a privileged thread may.
        assert!(seen == Ok(other) || seen == Err(Errno::EPERM), "{seen:?}");
        assert_eq!(Creds::now(), now);
    }

    #[test]
    fn limits_are_not_taken_on() {
        let mut other = Creds::now();
        other.limits.no_new_privs ^= true;
        assert_eq!(under(Some(&other), || ()), Err(Errno::EPERM));
    }

    #[test]
    fn proc_tells_the_same_ids() {
        let now = Creds::now();
        assert_eq!(crate::sys::file_ids_by_proc(), Some((now.user.fs, now.group.fs)));
    }
}
