//! System calls that a policy refuses, or the kernel lacks, and that softring does without.
//!
//! A seccomp filter may answer a call with any error, or kill who makes it; EPERM, EACCES and
//! EOPNOTSUPP mean what ENOSYS means: take the substitute. So each call of [`OPTIONAL`] is tried
//! once, before the first ring, with arguments that the kernel refuses: by this thread, or, in a
//! process under a filter, by a child, which may be killed. From then on `sys!` answers ENOSYS for
//! what is refused, without a call. docs/DOORS.md lists the substitutes.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use crate::alone::Alone;
use crate::sys::{nr, syscall6};
use softring_uapi::errno::{Errno, check};

type Args = [usize; 6];

/// A descriptor, an address, a flag word that no call takes.
const BAD: usize = usize::MAX;

const fn bad(first: usize, second: usize) -> Args {
    [first, second, 0, 0, 0, 0]
}

/// Each with arguments to which the kernel's own answer is none of [`refuses`], and which change
/// nothing; only poll(2) takes all, and eventfd(2), which makes a descriptor ([`answer`]).
const OPTIONAL: &[(u32, Args)] = &[
    (nr::__NR_io_uring_setup, bad(0, 0)),
    (nr::__NR_io_uring_enter, bad(BAD, 0)),
    (nr::__NR_io_uring_register, bad(BAD, BAD)),
    (nr::__NR_io_setup, bad(0, 0)),
    (nr::__NR_io_destroy, bad(0, 0)),
    (nr::__NR_io_submit, bad(0, 0)),
    (nr::__NR_io_cancel, bad(0, 0)),
    (nr::__NR_io_getevents, bad(0, 0)),
    (nr::__NR_io_pgetevents, bad(0, 0)),
    (nr::__NR_preadv, bad(BAD, 0)),
    (nr::__NR_pwritev, bad(BAD, 0)),
    (nr::__NR_preadv2, bad(BAD, 0)),
    (nr::__NR_pwritev2, bad(BAD, 0)),
    (nr::__NR_memfd_create, bad(0, BAD)),
    (nr::__NR_ftruncate, bad(BAD, 0)),
    (nr::__NR_fstatfs, bad(BAD, 0)),
    (nr::__NR_fstat, bad(BAD, 0)),
    (nr::__NR_prlimit64, bad(BAD, BAD)),
    (nr::__NR_eventfd2, bad(0, BAD)),
    (nr::__NR_eventfd, bad(0, 0)),
    (nr::__NR_epoll_create1, bad(BAD, 0)),
    (nr::__NR_epoll_create, bad(0, 0)),
    (nr::__NR_epoll_ctl, bad(BAD, 2)),
    (nr::__NR_epoll_wait, bad(BAD, 0)),
    (nr::__NR_epoll_pwait, bad(BAD, 0)),
    (nr::__NR_epoll_pwait2, bad(BAD, 0)),
    // Of no files, not of too many: valgrind looks at each.
    (nr::__NR_poll, bad(0, 0)),
    (nr::__NR_timerfd_create, bad(BAD, BAD)),
    (nr::__NR_timer_create, bad(BAD, 0)),
    (nr::__NR_clone3, bad(0, 0)),
    (nr::__NR_close_range, bad(3, 2)),
    (nr::__NR_openat2, bad(BAD, 0)),
    (nr::__NR_pidfd_open, bad(0, 0)),
    (nr::__NR_kcmp, bad(BAD, BAD)),
    (nr::__NR_madvise, [0, 0, BAD, 0, 0, 0]),
    (nr::__NR_mremap, bad(0, 0)),
    (nr::__NR_membarrier, bad(BAD, BAD)),
    (nr::__NR_seccomp, bad(BAD, BAD)),
    (nr::__NR_prctl, bad(BAD, 0)),
    (nr::__NR_futex_wake, [0, 0, 0, BAD, 0, 0]),
    (nr::__NR_futex_waitv, bad(0, 0)),
    (nr::__NR_sched_setaffinity, bad(BAD, 0)),
    (nr::__NR_sched_getaffinity, bad(BAD, 0)),
    (nr::__NR_ioprio_set, bad(BAD, 0)),
    (nr::__NR_capget, bad(0, 0)),
    (nr::__NR_getgroups, bad(BAD, 0)),
    (nr::__NR_getresuid, bad(0, 0)),
    (nr::__NR_getresgid, bad(0, 0)),
    (nr::__NR_rt_sigtimedwait, bad(0, 0)),
    (nr::__NR_rt_tgsigqueueinfo, bad(0, 0)),
    (nr::__NR_tgkill, bad(0, 0)),
];
const N: usize = OPTIONAL.len();
const _: () = assert!(N <= u64::BITS as usize);

/// What a call answers: [`WORKS`], [`KILLS`], or the errno of its refusal.
const WORKS: u8 = 0;
const KILLS: u8 = u8::MAX;

static ANSWERS: [AtomicU8; N] = [const { AtomicU8::new(WORKS) }; N];
/// A bit for each that does not work. Relaxed: it is set before the first ring.
static REFUSED: AtomicU64 = AtomicU64::new(0);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;
static FILTERED: AtomicU8 = AtomicU8::new(UNKNOWN);
static KNOWN: AtomicBool = AtomicBool::new(false);
static LEARNING: Alone = Alone::new();

/// Does this answer mean that the call is not to be had here?
pub(crate) const fn refuses(e: Errno) -> bool {
    matches!(e, Errno::ENOSYS | Errno::EPERM | Errno::EACCES | Errno::EOPNOTSUPP)
}

/// How a policy refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Answers(Errno),
    Kills,
}

const fn index(nr: u32) -> Option<usize> {
    let mut i = 0;
    while i < N {
        if OPTIONAL[i].0 == nr {
            return Some(i);
        }
        i += 1;
    }
    None
}

/// Is call `NR` one that may be refused, and is?
#[inline(always)]
pub(crate) fn is<const NR: u32>() -> bool {
    match const { index(NR) } {
        Some(i) => REFUSED.load(Relaxed) >> i & 1 != 0,
        None => false,
    }
}

/// How call `nr` is refused; `None` also for what may not be refused, and before [`learn`].
pub fn how(nr: i64) -> Option<Refusal> {
    let i = index(u32::try_from(nr).ok()?)?;
    match ANSWERS[i].load(Relaxed) {
        WORKS => None,
        KILLS => Some(Refusal::Kills),
        errno => Some(Refusal::Answers(Errno(errno.into()))),
    }
}

/// May call `nr` be made? Until that is learned, only in a process that is under no filter.
pub fn works(nr: i64) -> bool {
    let unlearned = || !KNOWN.load(Acquire) && is_filtered();
    how(nr).is_none() && !unlearned()
}

/// Is the calling thread under a seccomp filter? Looked at once, and again when one is heard of.
pub fn is_filtered() -> bool {
    match FILTERED.load(Relaxed) {
        UNKNOWN => {
            let filtered = looks_filtered();
            FILTERED.store(if filtered { YES } else { NO }, Relaxed);
            filtered
        }
        known => known == YES,
    }
}

/// Learns what is refused, once per process; forked children inherit what their parents know.
pub fn learn() {
    if KNOWN.load(Acquire) {
        return;
    }
    let _held = LEARNING.hold();
    if !KNOWN.load(Acquire) {
        ask();
        KNOWN.store(true, Release);
    }
}

/// The calling thread has another filter: learns again, if that was learned before. What was
/// refused stays so, as it may be by another thread's filter.
pub fn filter_added() {
    FILTERED.store(UNKNOWN, Relaxed);
    if KNOWN.load(Acquire) {
        let _held = LEARNING.hold();
        ask();
    }
}

/// The calls without which no ring of ours can be driven, each with those that do the same.
const ESSENTIAL: &[(&str, &[u32])] = &[
    ("epoll_ctl", &[nr::__NR_epoll_ctl]),
    ("epoll_create1", &[nr::__NR_epoll_create1, nr::__NR_epoll_create]),
    ("epoll_wait", &[nr::__NR_epoll_wait, nr::__NR_epoll_pwait]),
    ("eventfd2", &[nr::__NR_eventfd2, nr::__NR_eventfd]),
];

/// A call that no ring of ours can do without, if one is refused.
pub fn essential() -> Option<(&'static str, Refusal)> {
    ESSENTIAL.iter().find_map(|(name, calls)| {
        let all = calls.iter().map(|nr| how((*nr).into())).collect::<Option<Vec<_>>>()?;
        Some((*name, all[0]))
    })
}

/// The calls of io_uring, for which most of the filters are that kill.
const RINGS: [u32; 3] =
    [nr::__NR_io_uring_setup, nr::__NR_io_uring_enter, nr::__NR_io_uring_register];
/// Were they not asked for, as a filter might have killed us?
static UNASKED: AtomicBool = AtomicBool::new(false);

/// Do io_uring's calls count as killing only because there was no child to try them?
pub fn rings_are_unasked() -> bool {
    UNASKED.load(Relaxed)
}

fn ask() {
    let filtered = is_filtered();
    let asked = if filtered && !founds_a_namespace() { ask_in_children() } else { 0 };
    for (i, (nr, _)) in OPTIONAL.iter().enumerate().skip(asked) {
        if filtered && RINGS.contains(nr) {
            UNASKED.store(true, Relaxed);
            note(i, KILLS);
        } else if filtered || *nr != nr::__NR_eventfd {
            // Without a filter, all kernels have eventfd(2) that have eventfd2(2). The descriptor
            // would be seen by other threads and their children.
            note(i, answer(i));
        }
    }
}

fn note(i: usize, answer: u8) {
    if answer != WORKS {
        ANSWERS[i].store(answer, Relaxed);
        REFUSED.fetch_or(1 << i, Relaxed);
    }
}

fn answer(i: usize) -> u8 {
    let (nr, args) = OPTIONAL[i];
    match check(syscall6(nr, args)) {
        Err(e) if refuses(e) => e.0 as u8,
        Ok(fd) if nr == nr::__NR_eventfd => {
            syscall6(nr::__NR_close, bad(fd, 0));
            WORKS
        }
        _ => WORKS,
    }
}

/// Is the calling thread under one? By /proc as far as there is one: prctl(2) is one
/// of the calls that a filter may kill for.
fn looks_filtered() -> bool {
    let mut text = [0u8; 4096];
    let path = c"/proc/thread-self/status".as_ptr().expose_provenance();
    let fd = syscall6(nr::__NR_openat, crate::sys::args([AT_FDCWD, path, O_CLOEXEC]));
    if fd < 0 {
        return syscall6(nr::__NR_prctl, bad(PR_GET_SECCOMP, 0)) == 2;
    }
    let fd = fd.cast_unsigned();
    let to = text.as_mut_ptr().expose_provenance();
    let n = syscall6(nr::__NR_read, crate::sys::args([fd, to, text.len()]));
    syscall6(nr::__NR_close, bad(fd, 0));
    let text = &text[..n.clamp(0, 4096).cast_unsigned()];
    // Only a name, which may be any bytes, could hold this too; it holds no line's end.
    text.windows(FILTER_MODE.len()).any(|w| w == FILTER_MODE)
}

const FILTER_MODE: &[u8] = b"\nSeccomp:\t2";
const AT_FDCWD: usize = -100_isize as usize;
const O_CLOEXEC: usize = 0o2_000_000;
const PR_GET_SECCOMP: usize = 21;

/// Would the next child be the first process of a pid namespace, which would end with it? The
/// program has called unshare(2), and is about to fork.
fn founds_a_namespace() -> bool {
    let of = |path: &core::ffi::CStr| rustix::fs::stat(path).ok().map(|s| s.st_ino);
    let [own, childrens] = [c"/proc/self/ns/pid", c"/proc/self/ns/pid_for_children"].map(of);
    // Until it has its first process, that namespace has no file.
    own.is_some() && own != childrens
}

/// What a child has found, in memory that it shares with us.
#[repr(C)]
struct Found {
    answers: [AtomicU8; N],
    /// The call that is being tried; [`N`]: all were.
    trying: AtomicU8,
}

/// Has children try all calls: the one that is killed leaves the next to another. How many were
/// tried: not all if there is no process to be had.
fn ask_in_children() -> usize {
    let Some(found) = shared() else { return 0 };
    let mut next = 0;
    while next < N {
        found.trying.store(next as u8, Relaxed);
        let tried = in_child(|| {
            for i in next..N {
                found.trying.store(i as u8, Relaxed);
                found.answers[i].store(answer(i), Relaxed);
            }
            found.trying.store(N as u8, Relaxed);
        });
        if !tried {
            break;
        }
        let at = usize::from(found.trying.load(Relaxed));
        if at < N {
            found.answers[at].store(KILLS, Relaxed);
        }
        next = at + 1;
    }
    let answers = found.answers.iter().enumerate().take(next);
    answers.for_each(|(i, a)| note(i, a.load(Relaxed)));
    let at = core::ptr::from_ref(found).expose_provenance();
    syscall6(nr::__NR_munmap, bad(at, size_of::<Found>()));
    next.min(N)
}

/// A page of zeroes, shared with children.
fn shared() -> Option<&'static Found> {
    /// `PROT_READ | PROT_WRITE`, `MAP_SHARED | MAP_ANONYMOUS`.
    const HOW: [usize; 2] = [3, 0x21];
    let args = [0, size_of::<Found>(), HOW[0], HOW[1], usize::MAX, 0];
    let at = check(syscall6(nr::__NR_mmap, args)).ok()?;
    // SAFETY: a fresh mapping, of at least that size, of zeroes, which are valid; it is unmapped
    // when nobody looks there any more.
    Some(unsafe { &*core::ptr::with_exposed_provenance(at) })
}

/// Runs `f`, which only makes system calls, in a child of its own, and waits for its end. The child
/// is no child to the program: it ends without a signal, and only `__WALL` finds it. False if there
/// is none. The caller has signals blocked.
fn in_child(f: impl FnOnce()) -> bool {
    const WALL: usize = 0x4000_0000;
    const RLIMIT_CORE: usize = 4;
    // The least that is no core file, also where a program takes them.
    let no_core = [1u64; 2];
    let pid = syscall6(nr::__NR_clone, [0; 6]);
    if pid == 0 {
        let limit = no_core.as_ptr().expose_provenance();
        syscall6(nr::__NR_prlimit64, crate::sys::args([0, RLIMIT_CORE, limit]));
        f();
        loop {
            syscall6(nr::__NR_exit_group, [0; 6]);
        }
    }
    if pid < 0 {
        return false;
    }
    const P_PID: usize = 1;
    const WEXITED: usize = 4;
    let pid = pid.cast_unsigned();
    let waits = [
        (nr::__NR_wait4, crate::sys::args([pid, 0, WALL])),
        (nr::__NR_waitid, crate::sys::args([P_PID, pid, 0, WEXITED | WALL])),
    ];
    // Of two calls that do the same one may be refused.
    waits.into_iter().any(|(nr, args)| {
        loop {
            match check(syscall6(nr, args)) {
                Err(Errno::EINTR) => {}
                answer => return answer.is_ok(),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_probe_is_taken_for_a_refusal() {
        for (i, (nr, _)) in OPTIONAL.iter().enumerate() {
            assert_eq!(index(*nr), Some(i), "{nr} stands there twice");
            let known = answer(i);
            // What the running kernel lacks, as CONFIG_KCMP, is no fault of the table's.
            assert!([WORKS, Errno::ENOSYS.0 as u8].contains(&known), "call {nr}: {known}");
        }
    }

    #[test]
    fn a_child_is_killed_in_our_place() {
        assert!(in_child(|| {
            syscall6(nr::__NR_kill, bad(syscall6(nr::__NR_getpid, [0; 6]) as usize, 9));
        }));
        assert_eq!(ask_in_children(), N);
        assert!(!is_filtered() || crate::sys::proc_text("/proc/self/status").is_some());
    }
}
