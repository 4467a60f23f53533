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

use crate::sys::sys;
use softring_uapi::errno::{Errno, Result, check};

const PR_GET_DUMPABLE: u32 = 3;
const PR_SET_DUMPABLE: u32 = 4;
const PR_SET_KEEPCAPS: u32 = 8;
const PR_GET_SECCOMP: u32 = 21;
const PR_GET_NO_NEW_PRIVS: u32 = 39;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
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
    /// Stands for what Linux does not tell; 0 while nobody has heard of any.
    token: u64,
}

/// `struct __user_cap_data_struct`, twice.
type Caps = [[u32; 3]; 2];
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
    settled: bool,
}

std::thread_local! {
    /// The name of this thread's limits.
    static TOKEN: Cell<u64> = const { Cell::new(0) };
    /// Is it one of ours?
    static OURS: Cell<bool> = const { Cell::new(false) };
    /// Then: its credentials. No destructor, for whose registration
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
            f(other.insert(Known { epoch, creds, settled: settled() }))
        }
    })
}

/// May the calling thread run a request under `creds` as it is? Not where the program may change
/// the credentials of all threads in the midst of it, as one does that has done so before.
pub fn is_under(creds: &Creds) -> bool {
    let settles = || if OURS.get() { known(|known| known.settled) } else { settled() };
    *mine() == *creds && (epoch() == FIRST.load(Relaxed) || settles())
}

/// The calling thread is one of ours, and ends.
pub fn thread_ends() {
    KNOWN.with_borrow_mut(|known| drop(known.take()));
}

fn prctl(what: u32) -> isize {
    sys!(__NR_prctl, what, 0, 0, 0, 0)
}

impl Creds {
    /// The calling thread's.
    pub fn now() -> Creds {
        let filtered = prctl(PR_GET_SECCOMP) != 0;
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

    /// These, with the limits of `caller`.
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
        sys!(__NR_setfsgid, wanted.1);
        sys!(__NR_setfsuid, wanted.0);
        let is = (sys!(__NR_setfsuid, ASK) as u32, sys!(__NR_setfsgid, ASK) as u32);
        if is == wanted { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Gives the calling thread these in place of `now`. The user comes last but for the
    /// capabilities, for with it go the rights to the rest.
    fn set(&self, now: &Creds) -> Result<()> {
        let caps = raise();
        if self.groups != now.groups {
            let at = self.groups.as_ptr().expose_provenance();
            check(sys!(__NR_setgroups, self.groups.len(), at))?;
        }
        if self.has_other_ids(now) {
            // The thread is to keep what it may have until it has all it is to have.
            sys!(__NR_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0);
            let ([r, e, s], [gr, ge, gs]) = (self.user.res, self.group.res);
            check(sys!(__NR_setresgid, gr, ge, gs))?;
            check(sys!(__NR_setresuid, r, e, s))?;
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
        let dumpable = prctl(PR_GET_DUMPABLE);
        let set = creds.set(&now);
        if dumpable == 1 {
            sys!(__NR_prctl, PR_SET_DUMPABLE, 1);
        }
        set.map(|()| f())
    })?
}

/// Can no call give the calling thread other ids?
fn settled() -> bool {
    /// `CAP_SETGID`, `CAP_SETUID`.
    const MAY: u64 = 1 << 6 | 1 << 7;
    let same = |ids: [u32; 3]| ids.iter().all(|&id| id == ids[0]);
    let (users, groups) = ids();
    same(users) && same(groups) && bits(&caps(), PERMITTED) & MAY == 0
}

/// The real, effective and saved users, and groups. A policy may refuse to tell all; the effective
/// ones stand for them then.
fn ids() -> ([u32; 3], [u32; 3]) {
    let (mut user, mut group) = ([0u32; 3], [0u32; 3]);
    let at = |ids: &mut [u32; 3]| ids.each_mut().map(|id| (&raw mut *id).expose_provenance());
    let ([r, e, s], [gr, ge, gs]) = (at(&mut user), at(&mut group));
    if sys!(__NR_getresuid, r, e, s) < 0 {
        user = [sys!(__NR_geteuid) as u32; 3];
    }
    if sys!(__NR_getresgid, gr, ge, gs) < 0 {
        group = [sys!(__NR_getegid) as u32; 3];
    }
    (user, group)
}

/// The ids that files are accessed by. Only setfsuid(2) tells them. A filter may kill whoever calls
/// that; there `/proc` tells. That they are the effective ones is remembered, for they change with
/// those. Where they differ, a change of the effective ones there and back would make them the
/// same, unheard of: `/proc` is asked each time.
fn file_ids(filtered: bool, effective: (u32, u32)) -> (u32, u32) {
    if !filtered {
        return (sys!(__NR_setfsuid, ASK) as u32, sys!(__NR_setfsgid, ASK) as u32);
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
    let at = few.as_mut_ptr().expose_provenance();
    if let Ok(n) = check(sys!(__NR_getgroups, few.len(), at)) {
        return few[..n].to_vec();
    }
    let n = check(sys!(__NR_getgroups, 0, 0)).unwrap_or(0);
    let mut all = vec![0u32; n];
    let at = all.as_mut_ptr().expose_provenance();
    all.truncate(check(sys!(__NR_getgroups, n, at)).unwrap_or(0));
    all
}

fn caps() -> Caps {
    let (header, mut caps) = ([CAPABILITY_VERSION_3, 0], Caps::default());
    let to = caps.as_mut_ptr().expose_provenance();
    sys!(__NR_capget, header.as_ptr().expose_provenance(), to);
    caps
}

/// Can the calling thread gain no rights by exec?
pub fn no_new_privs() -> bool {
    prctl(PR_GET_NO_NEW_PRIVS) == 1
}

/// The calling thread's effective capabilities.
pub fn capabilities() -> u64 {
    bits(&caps(), EFFECTIVE)
}

/// May the calling thread give its I/O this priority? ioprio_set(2) checks that first, and then
/// finds no process of that number.
///
/// # Errors
/// `EPERM` for the real-time class without `CAP_SYS_ADMIN` or `CAP_SYS_NICE`; `EINVAL` for a class
/// that does not exist.
pub fn may_have_priority(ioprio: u16) -> Result<()> {
    /// `IOPRIO_WHO_PROCESS`.
    const PROCESS: usize = 1;
    match check(sys!(__NR_ioprio_set, PROCESS, i32::MAX, ioprio)) {
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
    let caps = caps();
    let _ = set_effective(caps, bits(&caps, PERMITTED));
    caps
}

fn set_effective(mut caps: Caps, to: u64) -> Result<()> {
    if bits(&self::caps(), EFFECTIVE) == to {
        return Ok(());
    }
    (caps[0][EFFECTIVE], caps[1][EFFECTIVE]) = (to as u32, (to >> 32) as u32);
    let header = [CAPABILITY_VERSION_3, 0];
    let from = caps.as_ptr().expose_provenance();
    check(sys!(__NR_capset, header.as_ptr().expose_provenance(), from)).map(|_| ())
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
