//! Credentials: the rights of requests that threads of ours run.
//!
//! The kernel's requests carry the credentials of the thread that submitted them (`req->creds`,
//! taken when a request goes to a worker), and task work runs in that thread itself. Here a request
//! may run in a thread of ours, or in another thread of the program that waits on the same ring,
//! and Linux keeps credentials per thread. So a request whose operation depends on credentials
//! (`CREDS` in the op table) records its submitter's before it leaves that thread. The thread that
//! runs it compares them with its own: in nearly all programs they are the same. If they differ
//!
//! - the request goes to a worker that was started by a thread with the same credentials, since a
//!   thread inherits those of its maker (`ring::workers`);
//! - if there is none, a worker makes a thread that takes the credentials on, makes the call and
//!   ends ([`under`]). The worker needs rights for that: without them the request fails with EPERM.
//!   A request never runs with other rights than its submitter's. The C library does not know that
//!   thread: if the program changes the rights of all threads, that one keeps the request's.
//!
//! Credentials are what decides whether a call is allowed, or what a peer learns of its sender
//! (`SO_PEERCRED`): ids, groups and effective capabilities. They include limits that a thread can
//! never drop and no thread can take on: no_new_privs, a seccomp filter, a Landlock domain. Linux
//! does not tell which filters and domains a thread has, so the entry points report when it gets
//! one ([`restricted`]); from then on each thread has workers of its own.
//!
//! A thread of ours changes its credentials only if the C library changes those of all threads
//! (setuid(3) and the others). The entry points report that ([`changed`]), so the credentials need
//! not be read each time. A thread of the program may change its own at any time, so they are read
//! each time.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::calls::ids::{self as calls, Attribute, Capabilities as Caps};
use crate::lock::OnceLock;
use softring_uapi::errno::{Errno, Result};

/// Id that only asks: no id is that large, so nothing is set.
const ASK: u32 = u32::MAX;

/// Snapshot of the credentials that decide about a thread's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creds {
    /// Users of the thread, and the one for file access.
    pub user: Ids,
    pub group: Ids,
    pub groups: Vec<u32>,
    /// Effective capabilities, a bit each.
    pub caps: u64,
    limits: Limits,
}

/// Users of a thread, or its groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Real, effective (reported to a socket's peer) and saved id.
    pub res: [u32; 3],
    /// Id for file access.
    pub fs: u32,
}

/// Limits that a thread cannot drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    no_new_privs: bool,
    filtered: bool,
    /// Token for limits that Linux does not report; 0 while no such limit was reported.
    token: u64,
}

const EFFECTIVE: usize = 0;
const PERMITTED: usize = 1;

/// Count of calls of [`changed`].
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Last token of a thread with limits; 0 while there is none.
static TOKENS: AtomicU64 = AtomicU64::new(0);
/// Limits of the process when it made its first ring.
static START: OnceLock<Limits> = OnceLock::new();
/// Epoch in which the process made its first ring.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Credentials that a thread of ours knows of itself.
struct Known {
    epoch: u64,
    creds: Arc<Creds>,
    /// Flag, true if no call of the program's can change them.
    fixed: bool,
}

crate::per_thread! {
    /// Token of this thread's limits.
    static TOKEN: Cell<u64> = const { Cell::new(0) };
    /// True in a thread of ours.
    static OURS: Cell<bool> = const { Cell::new(false) };
    /// Credentials of a thread of ours. No destructor, because the C library calls the program's
    /// malloc(3) to register one: [`thread_ends`] drops them.
    static KNOWN: RefCell<ManuallyDrop<Option<Known>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Records the limits of the process, before its first ring is made.
pub fn begin() {
    START.get_or_init(|| {
        FIRST.store(epoch(), Relaxed);
        Creds::now().limits
    });
}

/// Notes that the credentials of all threads change: called before and after.
pub fn changed() {
    EPOCH.fetch_add(1, SeqCst);
}

/// Returns the epoch: the count of such calls.
pub fn epoch() -> u64 {
    EPOCH.load(SeqCst)
}

/// Notes that the calling thread has got limits that it cannot drop (a seccomp filter, a Landlock
/// domain), or file-system state of its own (unshare(2)).
pub fn restricted() {
    TOKEN.set(TOKENS.fetch_add(1, SeqCst) + 1);
}

/// Returns whether any thread has such limits. Threads that it makes inherit them, and nobody
/// reports which those are.
pub fn any_restricted() -> bool {
    TOKENS.load(Relaxed) != 0
}

/// Returns the token that a thread made by the calling one inherits.
pub fn token() -> u64 {
    // A thread of ours keeps its inherited limits, whatever limits others have got since.
    if any_restricted() && TOKEN.get() == 0 && !OURS.get() {
        restricted();
    }
    TOKEN.get()
}

/// Marks the calling thread as one of ours, which changes no credentials by itself. `token` is that
/// of its maker's limits.
pub fn is_ours(token: u64) {
    OURS.set(true);
    TOKEN.set(token);
}

/// Returns whether the calling thread is one of ours.
pub fn am_ours() -> bool {
    OURS.get()
}

/// Returns the calling thread's credentials; a thread of ours knows them.
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

/// Returns whether the calling thread may run a request under `creds` as it is. False if the
/// program may change the credentials of all threads in the middle, as a program does that has done
/// so before.
pub fn is_under(creds: &Creds) -> bool {
    let fixed = || if OURS.get() { known(|known| known.fixed) } else { ids_are_fixed() };
    *mine() == *creds && (epoch() == FIRST.load(Relaxed) || fixed())
}

/// Drops what the calling thread, one of ours, knows of itself: it ends.
pub fn thread_ends() {
    KNOWN.with_borrow_mut(|known| drop(known.take()));
}

impl Creds {
    /// Reads the calling thread's credentials.
    pub fn now() -> Creds {
        let filtered = is_filtered();
        let limits = Limits { no_new_privs: no_new_privs(), filtered, token: token() };
        let (user, group) = ids();
        let fs = file_ids(filtered, (user[1], group[1]));
        let (user, group) = (Ids { res: user, fs: fs.0 }, Ids { res: group, fs: fs.1 });
        Creds { user, group, groups: groups(), caps: capabilities(), limits }
    }

    /// Returns whether the thread has limits that the process did not start with, and that other
    /// threads may lack.
    pub fn is_limited(&self) -> bool {
        START.get().is_some_and(|start| *start != self.limits)
    }

    /// Returns whether both threads have the same limits. Then each may take on the other's rights.
    pub fn limited_as(&self, other: &Creds) -> bool {
        self.limits == other.limits
    }

    /// Returns the credentials with the limits of `caller`.
    pub fn within(&self, caller: &Creds) -> Creds {
        Creds { limits: caller.limits, ..self.clone() }
    }

    fn has_other_ids(&self, now: &Creds) -> bool {
        (self.user.res, self.group.res) != (now.user.res, now.group.res)
    }

    /// Gives the calling thread, which has all other ids of these, those for file access, too.
    fn set_file_ids(&self, now: &Creds) -> Result<()> {
        // A change of the other ids sets those for file access as well.
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

    /// Gives the calling thread these credentials in place of `now`. The users come last but for
    /// the capabilities, because the rights to the rest go with them.
    fn set(&self, now: &Creds) -> Result<()> {
        let caps = raise();
        if self.groups != now.groups {
            calls::setgroups(&self.groups)?;
        }
        if self.has_other_ids(now) {
            // The thread keeps its permitted capabilities until it has all its ids.
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

/// Runs `f` under `creds`. Without any, or with the thread's own, just runs it.
///
/// # Errors
/// `EPERM` if this thread may not take them on; `EAGAIN` or `ENOMEM` if no thread can be made that
/// does.
pub fn under<T>(creds: Option<&Creds>, f: impl FnOnce() -> T) -> Result<T> {
    let Some(creds) = creds else { return Ok(f()) };
    if is_under(creds) {
        return Ok(f());
    }
    if mine().limits != creds.limits {
        return Err(Errno::EPERM);
    }
    crate::unlisted::run(|| {
        // Read anew, in the thread that was just made.
        let now = Creds::now();
        if now == *creds {
            return Ok(f());
        }
        // The kernel forbids core dumps and debuggers to a process whose ids change. The program
        // has not asked for that here.
        let dumpable = calls::attribute(Attribute::Dumpable);
        let set = creds.set(&now);
        if dumpable == Ok(1) {
            calls::set_dumpable();
        }
        set.map(|()| f())
    })?
}

/// Returns whether no call can give the calling thread other ids.
fn ids_are_fixed() -> bool {
    /// `CAP_SETGID`, `CAP_SETUID`.
    const MAY: u64 = 1 << 6 | 1 << 7;
    let same = |ids: [u32; 3]| ids.iter().all(|&id| id == ids[0]);
    let (users, groups) = ids();
    same(users) && same(groups) && bits(&calls::capabilities(), PERMITTED) & MAY == 0
}

/// Returns the real, effective and saved users, and groups. If a policy refuses to tell all, the
/// effective ones stand for them.
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

/// Returns the ids for file access. Only setfsuid(2) tells them, and a filter may kill its caller;
/// under a filter `/proc` tells them. If they are the effective ids, that is remembered, because
/// they change with those. If they differ, a change of the effective ids there and back would make
/// them the same, unreported: so `/proc` is read each time.
fn file_ids(filtered: bool, effective: (u32, u32)) -> (u32, u32) {
    if !filtered {
        return asked_file_ids();
    }
    crate::per_thread! {
        /// Effective ids when those for file access were the same, and [`FILE_IDS_SET`] at that
        /// time.
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

/// Count of times that a thread of the program has set only its ids for file access.
static FILE_IDS_SET: AtomicU64 = AtomicU64::new(0);

/// Notes that the calling thread sets only its ids for file access (setfsuid(2)).
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

/// Returns whether the calling thread can gain no rights by exec.
pub fn no_new_privs() -> bool {
    crate::per_thread! {
        static SET: Cell<bool> = const { Cell::new(false) };
    }
    stays(&SET, || calls::attribute(Attribute::NoNewPrivs) == Ok(1))
}

/// Returns whether the calling thread is under a seccomp filter, as far as can be known.
fn is_filtered() -> bool {
    crate::per_thread! {
        static SET: Cell<bool> = const { Cell::new(false) };
    }
    stays(&SET, || calls::attribute(Attribute::Seccomp) != Ok(0))
}

/// Returns an attribute that no thread can give up, and that its children inherit: once the thread
/// has it, it is asked for no more.
fn stays(
    known: &'static crate::per_thread::PerThread<Cell<bool>>,
    ask: impl FnOnce() -> bool,
) -> bool {
    if !known.get() {
        known.set(ask());
    }
    known.get()
}

/// Returns the calling thread's effective capabilities.
pub fn capabilities() -> u64 {
    bits(&calls::capabilities(), EFFECTIVE)
}

/// Checks that the calling thread may give its I/O this priority. ioprio_set(2) checks the priority
/// first, and then finds no process of that number.
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

/// Makes all permitted capabilities effective, because a change of credentials needs some of them.
/// Returns the old sets.
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
    fn borrowed_credentials_are_restored() {
        let now = Creds::now();
        assert_eq!(under(Some(&now), || 7), Ok(7));
        let ids = |res, fs| Ids { res, fs };
        let (user, group) = (ids([0, 12345, 0], 12345), ids([1, 54321, 1], 54321));
        let other = Creds { user, group, groups: vec![7], caps: 0, ..now.clone() };
        let seen = under(Some(&other), Creds::now);
        // Only a privileged thread may take them on.
        assert!(seen == Ok(other) || seen == Err(Errno::EPERM), "{seen:?}");
        assert_eq!(Creds::now(), now);
    }

    #[test]
    fn credentials_with_other_limits_are_refused() {
        let mut other = Creds::now();
        other.limits.no_new_privs ^= true;
        assert_eq!(under(Some(&other), || ()), Err(Errno::EPERM));
    }

    #[test]
    fn ids_match_proc() {
        let now = Creds::now();
        assert_eq!(crate::sys::file_ids_by_proc(), Some((now.user.fs, now.group.fs)));
    }
}
