//! System calls that a policy refuses or the kernel lacks, and that softring does without.
//!
//! A seccomp filter may answer a call with any error, or kill its caller. EPERM, EACCES and
//! EOPNOTSUPP mean the same as ENOSYS: take the substitute. So each call of [`OPTIONAL`] is tried
//! once, before the first ring, with arguments that the kernel refuses: by this thread, or by a
//! child, which may be killed, if the process is under a filter whose program is not known. From
//! then on `sys!` answers ENOSYS for a refused call, without making it. docs/INTERCEPTION.md lists
//! the substitutes.
//!
//! A filter that the program installs through the C library is [`known`]: its answers are computed,
//! without a call. A filter that nobody reports (an inline system call) shows when a call is
//! refused that has worked: such a call is tried [`again`].
#![allow(unsafe_code)]

mod calls;
mod known;
mod shared;

use crate::lock::OnceLock;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use crate::fork::Ended;
use crate::process_lock::ProcessLock;
use crate::sys::{any_syscall, nr, syscall6};
use crate::user;
use calls::{NEEDED, OPTIONAL, WAITS, bad, wrong};
pub use known::Refusal;
use shared::{N, Shared};
use softring_uapi::errno::{Errno, check};
use softring_uapi::sock_filter;

const _: () = assert!(N <= u64::BITS as usize);

/// Answer of a call that works. Other answers: [`KILLS`], or the errno of the refusal.
const WORKS: u8 = 0;
const KILLS: u8 = u8::MAX;

static ANSWERS: [AtomicU8; N] = [const { AtomicU8::new(WORKS) }; N];
/// Calls that do not work, one bit each. Relaxed: set before the first ring.
static REFUSED: AtomicU64 = AtomicU64::new(0);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;
static FILTERED: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Filters whose programs are not known.
struct Unread {
    /// Flag, set if there is one.
    any: AtomicBool,
    /// Flag, set if one has come that nobody reported, before anything was learned.
    late: AtomicBool,
}
static UNREAD: Unread = Unread { any: AtomicBool::new(false), late: AtomicBool::new(false) };
static KNOWN: AtomicBool = AtomicBool::new(false);
static LEARNING: ProcessLock = ProcessLock::new();

/// Returns whether this answer means that the call is not available here.
pub const fn refuses(e: Errno) -> bool {
    matches!(e, Errno::ENOSYS | Errno::EPERM | Errno::EACCES | Errno::EOPNOTSUPP)
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

/// Returns whether call `NR` is one that may be refused, and is.
#[inline(always)]
pub fn is<const NR: u32>() -> bool {
    match const { index(NR) } {
        Some(i) => REFUSED.load(Relaxed) >> i & 1 != 0,
        None => false,
    }
}

/// Returns whether the known filters let call `nr` be made, and no child was killed for it. Makes
/// no call.
pub fn spares(nr: i64) -> bool {
    u32::try_from(nr).is_ok_and(|nr| !known::refuse(nr))
}

/// Returns how known filters refuse call `nr`, which has no substitute.
pub fn known_refusal(nr: i64) -> Option<Refusal> {
    known::refusal(u32::try_from(nr).ok()?, &[0; 6])
}

/// Calls that are made in any case: without them a thread would wait for ever, or not find out that
/// it need not.
const MADE_ALWAYS: [u32; 2] = [nr::__NR_futex, nr::__NR_rt_sigprocmask];

/// Returns whether call `NR` must not be made, because a filter refuses it.
#[inline(always)]
pub(crate) fn withheld<const NR: u32>() -> bool {
    match const { index(NR) } {
        Some(i) => REFUSED.load(Relaxed) >> i & 1 != 0,
        None if const { contains(&MADE_ALWAYS, NR) } => false,
        // Only the calling thread's own filter counts: another thread's may let the call be made
        // here.
        None => known::refuse(NR) && known::kill_here(NR),
    }
}

const fn contains(calls: &[u32], nr: u32) -> bool {
    let mut i = 0;
    while i < calls.len() {
        if calls[i] == nr {
            return true;
        }
        i += 1;
    }
    false
}

/// Function that gets the name of a call that is not made and has no substitute.
static TELL: OnceLock<fn(&str, Refusal)> = OnceLock::new();

/// Has `tell` called when a request may fail for want of a call.
pub fn on_want(tell: fn(&str, Refusal)) {
    let _ = TELL.set(tell);
}

/// Returns the answer of call `NR`, which is not made.
#[cold]
pub(crate) fn answer_without<const NR: u32>(name: &'static str) -> isize {
    if const { index(NR).is_some() && NR != nr::__NR_epoll_ctl } {
        return Errno::ENOSYS.ret();
    }
    want_if::<NR>(name.trim_start_matches("__NR_"), true);
    Errno::ENOSYS.ret()
}

/// Reports, if `missing`, that a request may fail for want of call `NR` and of all that do the
/// same.
pub(crate) fn want_if<const NR: u32>(name: &str, missing: bool) {
    if !missing {
        return;
    }
    let refusal = how(NR.into()).or_else(|| known_refusal(NR.into()));
    if let (Some(tell), Some(how)) = (TELL.get(), refusal) {
        tell(name, how);
    }
}

/// Returns whether a filter that nobody reported refuses call `i`, which has answered a refusal.
/// With the arguments of [`OPTIONAL`] the kernel's own answer is no refusal.
#[cold]
fn is_refused_again(i: usize) -> bool {
    record(i, answer(i));
    REFUSED.load(Relaxed) >> i & 1 != 0
}

/// Returns ENOSYS, now and later, if `ret` is a filter's answer to call `NR`; else `ret`.
#[inline(always)]
pub fn again<const NR: u32>(ret: isize) -> isize {
    const REFUSES: [isize; 3] = [Errno::ENOSYS.ret(), Errno::EPERM.ret(), Errno::EACCES.ret()];
    match const { index(NR) } {
        Some(i) if REFUSES.contains(&ret) && is_refused_again(i) => Errno::ENOSYS.ret(),
        _ => ret,
    }
}

/// Returns whether this error of call `NR` comes from a filter that nobody reported.
pub(crate) fn has_come<const NR: u32>(e: Errno) -> bool {
    refuses(e) && again::<NR>(e.ret()) == Errno::ENOSYS.ret()
}

/// Returns how call `nr` is refused; `None` also for a call that may not be refused, and before
/// [`learn`].
pub fn how(nr: i64) -> Option<Refusal> {
    let i = index(u32::try_from(nr).ok()?)?;
    match ANSWERS[i].load(Relaxed) {
        WORKS => None,
        KILLS => Some(Refusal::Kills),
        errno => Some(Refusal::Answers(Errno(errno.into()))),
    }
}

/// Returns whether call `nr` may be made. Until that is learned, true only under no filter.
pub fn works(nr: i64) -> bool {
    let unlearned = || !KNOWN.load(Acquire) && is_filtered();
    how(nr).is_none() && !unlearned()
}

/// Returns whether the calling thread is under a seccomp filter. Read once, and recorded when a
/// filter is reported.
pub fn is_filtered() -> bool {
    if FILTERED.load(Relaxed) == UNKNOWN {
        count_filters();
    }
    FILTERED.load(Relaxed) == YES
}

/// Asks the kernel how many filters the calling thread is under.
fn count_filters() {
    let filters = filters_on();
    FILTERED.store(if filters > 0 { YES } else { NO }, Relaxed);
    UNREAD.any.fetch_or(filters > known::count(), Relaxed);
}

/// Returns whether a filter that nobody reported has come before anything was learned. Such a
/// filter may kill a thread that tries its calls.
pub fn came_unreported() -> bool {
    let expected = FILTERED.load(Relaxed) == UNKNOWN || UNREAD.any.load(Relaxed);
    if !UNREAD.late.load(Relaxed) && !expected && !KNOWN.load(Acquire) {
        count_filters();
        UNREAD.late.store(UNREAD.any.load(Relaxed), Relaxed);
    }
    UNREAD.late.load(Relaxed) && !KNOWN.load(Acquire)
}

/// Learns which calls are refused, once per process; forked children inherit what their parents
/// know. If known filters bar softring's rings, there is nothing to learn.
pub fn learn() {
    if KNOWN.load(Acquire) || barred().is_some() {
        return;
    }
    let _held = LEARNING.hold();
    if !KNOWN.load(Acquire) {
        crate::valgrind::unreported(ask);
        KNOWN.store(true, Release);
    }
}

/// Filter that a thread of the program's is about to install.
#[derive(Clone, Copy, Debug)]
pub enum Filter {
    /// `SECCOMP_MODE_STRICT`.
    Strict,
    /// The filter of the `struct sock_fprog` at this address.
    Program(u64),
}

/// Filter that was read and is not installed yet.
#[derive(Debug)]
pub struct Coming(Option<Box<known::Filter>>);

/// Reads a filter that is about to be installed. All that needs a system call is done now, because
/// each call may kill afterwards.
pub fn filter_comes(filter: Filter) -> Coming {
    is_filtered();
    Coming(match filter {
        Filter::Strict => Some(known::strict()),
        // One of these two calls checks the memory that the kernel will read.
        Filter::Program(at) if works(nr::__NR_madvise.into()) || spares(SIGPROCMASK) => {
            read_filter(at)
        }
        Filter::Program(_) => None,
    })
}

/// Adds a filter that was installed. Makes no system call. A refused call stays refused, because
/// another thread's filter may refuse it.
pub fn filter_added(Coming(filter): Coming) {
    match filter {
        Some(filter) => known::add(filter),
        None => UNREAD.any.store(true, Relaxed),
    }
    FILTERED.store(YES, Relaxed);
    record_known();
}

/// Records which calls the known filters refuse.
fn record_known() {
    for (i, (nr, args)) in OPTIONAL.iter().enumerate() {
        match known::refusal(*nr, args) {
            None => {}
            Some(Refusal::Kills) => record(i, KILLS),
            Some(Refusal::Answers(e)) => record(i, e.0 as u8),
        }
    }
    let bars = |(_, nr, any): &(&str, u32, bool)| match known::refusal(*nr, &[0; 6]) {
        Some(Refusal::Answers(_)) => *any,
        how => how.is_some(),
    };
    if let Some(bar) = NEEDED.iter().position(bars) {
        BARRED.store(bar as u8, Relaxed);
    }
}

const SIGPROCMASK: i64 = nr::__NR_rt_sigprocmask as i64;

const NOT: u8 = u8::MAX;
/// Value of [`BARRED`] if a policy kills for both of [`WAITS`].
const NO_WAIT: u8 = NOT - 1;
static BARRED: AtomicU8 = AtomicU8::new(NOT);

/// Returns a call that each ring of ours needs, and that a known filter refuses, or a child was
/// killed for. No ring can be made then, and nothing must be tried for one.
pub fn barred() -> Option<(&'static str, Refusal)> {
    let (name, nr) = match BARRED.load(Relaxed) {
        NO_WAIT => WAITS[0],
        bar => NEEDED.get(usize::from(bar)).map(|(name, nr, _)| (*name, *nr))?,
    };
    Some((name, known::refusal(nr, &[0; 6]).unwrap_or(Refusal::Kills)))
}

/// Calls without which no ring of ours can be made or driven, each with its equivalents.
const ESSENTIAL: &[(&str, &[u32])] = &[
    ("epoll_ctl", &[nr::__NR_epoll_ctl]),
    ("epoll_create1", &[nr::__NR_epoll_create1, nr::__NR_epoll_create]),
    ("epoll_wait", &[nr::__NR_epoll_wait, nr::__NR_epoll_pwait]),
    ("eventfd2", &[nr::__NR_eventfd2, nr::__NR_eventfd]),
    ("fstat", &[nr::__NR_fstat, nr::__NR_newfstatat, nr::__NR_statx]),
    ("fcntl", &[nr::__NR_fcntl]),
    ("ftruncate", &[nr::__NR_ftruncate, nr::__NR_pwrite64]),
];

/// Returns an essential call that is refused with all its equivalents, if any.
pub fn essential() -> Option<(&'static str, Refusal)> {
    ESSENTIAL.iter().find_map(|(name, calls)| {
        let all = calls.iter().map(|nr| how((*nr).into())).collect::<Option<Vec<_>>>()?;
        Some((*name, all[0]))
    })
}

/// Calls of io_uring, at which most filters that kill are aimed.
const RINGS: [u32; 3] =
    [nr::__NR_io_uring_setup, nr::__NR_io_uring_enter, nr::__NR_io_uring_register];
/// Flag, set if those calls were not tried, because a filter might have killed us.
static UNASKED: AtomicBool = AtomicBool::new(false);

/// Returns whether io_uring's calls count as killing only because there was no child to try them.
pub fn rings_are_unasked() -> bool {
    UNASKED.load(Relaxed)
}

fn ask() {
    let unread = is_filtered() && UNREAD.any.load(Relaxed);
    let in_children = unread && crate::fork::is_spared() && !crate::fork::would_found_a_namespace();
    let asked = if in_children { ask_in_children() } else { Some(0) };
    let Some(asked) = asked else {
        return RINGS.iter().for_each(|nr| leave_unasked(*nr));
    };
    for (i, (nr, args)) in OPTIONAL.iter().enumerate().skip(asked) {
        if known::refusal(*nr, args).is_some() {
            // Noted when the filter was installed.
        } else if unread && RINGS.contains(nr) {
            leave_unasked(*nr);
        } else if unread || *nr != nr::__NR_eventfd {
            // Without a filter, all kernels have eventfd(2) that have eventfd2(2). Other threads
            // and their children would see the descriptor.
            record(i, answer(i));
        }
    }
}

/// Has one of [`RINGS`] count as killing.
fn leave_unasked(nr: u32) {
    UNASKED.store(true, Relaxed);
    index(nr).into_iter().for_each(|i| record(i, KILLS));
}

/// Records an answer. Killing outranks any other answer, and of two others the first stays.
fn record(i: usize, answer: u8) {
    if answer == WORKS {
        return;
    }
    if answer == KILLS {
        ANSWERS[i].store(KILLS, Relaxed);
        known::add_killing(OPTIONAL[i].0);
    } else {
        let _ = ANSWERS[i].compare_exchange(WORKS, answer, Relaxed, Relaxed);
    }
    REFUSED.fetch_or(1 << i, Relaxed);
}

fn answer(i: usize) -> u8 {
    let (nr, args) = OPTIONAL[i];
    // SAFETY: arguments that change nothing: see `OPTIONAL`.
    match check(unsafe { any_syscall(nr, args) }) {
        Err(e) if refuses(e) => e.0 as u8,
        Ok(fd) if nr == nr::__NR_eventfd => {
            // SAFETY: made this moment.
            unsafe { syscall6(nr::__NR_close, bad(fd, 0)) };
            WORKS
        }
        _ => WORKS,
    }
}

/// Returns the calls that bar rings of ours if a policy kills for them. Those with a substitute are
/// tried like all others with one.
fn bars() -> impl Iterator<Item = u32> {
    let needed = NEEDED.iter().map(|(_, nr, _)| *nr).filter(|nr| index(*nr).is_none());
    WAITS.iter().map(|(_, nr)| *nr).chain(needed)
}

/// Records a call of [`bars`] that a policy kills for.
fn kills(nr: u32) {
    known::add_killing(nr);
    let bar = NEEDED.iter().position(|(_, needed, _)| *needed == nr);
    let no_wait = || (!crate::fork::is_spared()).then_some(NO_WAIT);
    if let Some(bar) = bar.map(|bar| bar as u8).or_else(no_wait) {
        BARRED.store(bar, Relaxed);
    }
}

/// Flag, set if a handler of ours answers trapped calls of io_uring (SECCOMP_RET_TRAP).
static TRAPS: AtomicBool = AtomicBool::new(false);

/// Notes that the process handles SIGSYS from now on. A child that tries these calls is then not
/// killed for them.
pub fn ring_traps_are_handled() {
    TRAPS.store(true, Relaxed);
}

/// Blocks SIGSYS, or unblocks it, in a child.
fn block_sigsys(block: bool) {
    const SIGSYS: u32 = 31;
    let set = 1u64 << (SIGSYS - 1);
    let at = (&raw const set).expose_provenance();
    let args = crate::sys::args([usize::from(!block), at, 0, size_of::<u64>()]);
    // SAFETY: the kernel reads the mask.
    unsafe { syscall6(nr::__NR_rt_sigprocmask, args) };
}

/// Has children try the calls of [`bars`], and then all of [`OPTIONAL`]: when one is killed, the
/// next child goes on. Returns how many of the latter were tried: fewer than all if no process can
/// be made, `None` if a policy kills for the calls that wait for one.
fn ask_in_children() -> Option<usize> {
    let Some(found) = Shared::new() else { return Some(0) };
    let barring = bars().count();
    let (mut next, mut unreaped) = (0, None);
    while next < barring + N {
        let tries = || {
            for (at, nr) in bars().enumerate().skip(next) {
                found.trying.store(at as u8, Relaxed);
                // SAFETY: arguments that change nothing.
                unsafe { any_syscall(nr, wrong(nr)) };
            }
            for i in next.saturating_sub(barring)..N {
                found.trying.store((barring + i) as u8, Relaxed);
                try_in_child(i, &found.answers[i]);
            }
            found.trying.store((barring + N) as u8, Relaxed);
        };
        found.trying.store(next as u8, Relaxed);
        // SAFETY: makes system calls, and writes to memory that the child shares.
        let Some(child) = (unsafe { crate::fork::in_child(tries) }) else { break };
        let at = usize::from(found.trying.load(Relaxed));
        match at.checked_sub(barring) {
            None => bars().nth(at).into_iter().for_each(kills),
            Some(i) if i < N => found.answers[i].store(KILLS, Relaxed),
            Some(_) => {}
        }
        if !crate::fork::is_spared() {
            return None;
        }
        next = at + 1;
        if at == 0 {
            // Nobody knows yet whether the second of the calls that wait works.
            unreaped = Some(child);
        } else {
            [Some(child), unreaped.take()].into_iter().flatten().for_each(Ended::reap);
        }
    }
    let tried = next.saturating_sub(barring).min(N);
    let answers = found.answers.iter().enumerate().take(tried);
    answers.for_each(|(i, a)| record(i, a.load(Relaxed)));
    Some(tried)
}

/// Tries a call of [`OPTIONAL`] in a child. Only for [`RINGS`], which come first, does a handler of
/// ours answer traps.
fn try_in_child(i: usize, found: &AtomicU8) {
    if spares(SIGPROCMASK) && i <= RINGS.len() {
        let handled = i < RINGS.len() && TRAPS.load(Relaxed);
        block_sigsys(!handled);
    }
    found.store(answer(i), Relaxed);
}

/// Reads the filter of a `struct sock_fprog`; `None` if the kernel would not take it.
fn read_filter(fprog: u64) -> Option<Box<known::Filter>> {
    /// `BPF_MAXINSNS`.
    const MOST: u64 = 4096;
    // The length with six bytes that mean nothing, and the address.
    let [len, at] = user::read::<[u64; 2]>(fprog).ok()?;
    let len = len & u64::from(u16::MAX);
    if !(1..=MOST).contains(&len) {
        return None;
    }
    let mut insns = vec![sock_filter::default(); len as usize];
    user::read_slice(at, &mut insns).ok()?;
    known::of(insns)
}

/// Returns the number of filters that the calling thread is under; 1 if an old kernel does not
/// count them. Reads /proc if there is one, because a filter may kill for prctl(2).
fn filters_on() -> usize {
    let mut text = [0u8; 4096];
    let path = c"/proc/thread-self/status".as_ptr().expose_provenance();
    // SAFETY: the kernel reads the path.
    let fd = unsafe { syscall6(nr::__NR_openat, crate::sys::args([AT_FDCWD, path, O_CLOEXEC])) };
    if fd < 0 {
        // SAFETY: numbers.
        return usize::from(unsafe { syscall6(nr::__NR_prctl, bad(PR_GET_SECCOMP, 0)) } == 2);
    }
    let fd = fd.cast_unsigned();
    let to = text.as_mut_ptr().expose_provenance();
    // SAFETY: the text is ours, and the kernel is told its length; the descriptor was made here.
    let n = unsafe {
        let n = syscall6(nr::__NR_read, crate::sys::args([fd, to, text.len()]));
        syscall6(nr::__NR_close, bad(fd, 0));
        n
    };
    let text = &text[..n.clamp(0, 4096).cast_unsigned()];
    // Only the name, which may be any bytes, could hold this text, too; but it holds no newline.
    if number_in(text, b"\nSeccomp:\t") != Some(2) {
        return 0;
    }
    number_in(text, b"\nSeccomp_filters:\t").unwrap_or(1)
}

/// Returns the number behind `name`.
fn number_in(text: &[u8], name: &[u8]) -> Option<usize> {
    let at = text.windows(name.len()).position(|w| w == name)? + name.len();
    let digits = text[at..].iter().take_while(|b| b.is_ascii_digit());
    Some(digits.fold(0, |n, b| n * 10 + usize::from(b - b'0')))
}

const AT_FDCWD: usize = -100_isize as usize;
const O_CLOEXEC: usize = 0o2_000_000;
const PR_GET_SECCOMP: usize = 21;

#[cfg(test)]
mod tests;
