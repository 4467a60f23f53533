//! Seccomp filters that the program installs through the C library. Each is read before it is
//! installed, and run here: its answer to a call is known without making the call, which may kill.
//! The list only grows, because no filter can be removed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use crate::bpf;
use softring_uapi::errno::Errno;
use softring_uapi::sock_filter;

type Args = [usize; 6];

/// Refusal of a call by a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Answers(Errno),
    Kills,
}

/// Bytes of `struct seccomp_data`.
const DATA: usize = 64;
type Program = bpf::Program<DATA>;

/// Rules about system calls.
#[derive(Debug)]
enum Rules {
    /// `SECCOMP_MODE_STRICT`: read, write, exit and rt_sigreturn.
    Strict,
    Program(Program),
}

/// Filter of the list.
#[derive(Debug)]
pub(super) struct Filter {
    rules: Rules,
    /// Filter that was installed before this one.
    older: *const Filter,
}

/// Calls that the known filters refuse if all arguments are 0, and those that a child was killed
/// for, one bit each, by number.
static REFUSED: [AtomicU64; CALLS / 64] = [const { AtomicU64::new(0) }; CALLS / 64];
/// Bound of the call numbers: more than there are.
const CALLS: usize = 512;

static NEWEST: AtomicPtr<Filter> = AtomicPtr::new(core::ptr::null_mut());

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Half of an answer that is the action. [`VALUE`]: the other half.
const ACTION: u32 = 0xffff_0000;
const VALUE: u32 = 0xffff;
/// `SECCOMP_RET_*`.
const KILL_THREAD: u32 = 0;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;
const TRACE: u32 = 0x7ff0_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;
/// read, write, rt_sigreturn, exit.
const STRICT: [u32; 4] = [0, 1, 15, 60];

impl Rules {
    fn run(&self, nr: u32, args: &Args) -> u32 {
        match self {
            Rules::Strict if STRICT.contains(&nr) => ALLOW,
            Rules::Strict => KILL_THREAD,
            Rules::Program(program) => program.run(&data(nr, args)),
        }
    }
}

/// Returns the `struct seccomp_data` of a call that this library makes.
fn data(nr: u32, args: &Args) -> [u8; DATA] {
    let at = count as *const () as usize;
    let mut data = [0; DATA];
    data[..4].copy_from_slice(&nr.to_ne_bytes());
    data[4..8].copy_from_slice(&AUDIT_ARCH_X86_64.to_ne_bytes());
    for (to, word) in data[8..].chunks_exact_mut(8).zip([&at].into_iter().chain(args)) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    data
}

/// Returns the filter of `SECCOMP_MODE_STRICT`.
pub(super) fn strict() -> Box<Filter> {
    Box::new(Filter { rules: Rules::Strict, older: core::ptr::null() })
}

/// Returns a filter of these instructions; `None` if the kernel would not take them.
pub(super) fn of(insns: Vec<sock_filter>) -> Option<Box<Filter>> {
    let rules = Rules::Program(Program::new(insns).ok()?);
    Some(Box::new(Filter { rules, older: core::ptr::null() }))
}

/// Adds a filter that was installed.
pub(super) fn add(filter: Box<Filter>) {
    let filter = Box::into_raw(filter);
    let mut older = NEWEST.load(Acquire);
    loop {
        // SAFETY: nobody else has it yet.
        unsafe { (*filter).older = older };
        match NEWEST.compare_exchange(older, filter, Release, Acquire) {
            Ok(_) => break,
            Err(newer) => older = newer,
        }
    }
    HERE.set(true);
    for nr in 0..CALLS {
        if refusal(nr as u32, &[0; 6]).is_some() {
            REFUSED[nr / 64].fetch_or(1 << (nr % 64), Relaxed);
        }
    }
}

/// Adds a call that a filter kills for whose program is not known.
pub(super) fn add_killing(nr: u32) {
    if let Some(word) = REFUSED.get(nr as usize / 64) {
        word.fetch_or(1 << (nr % 64), Relaxed);
    }
}

crate::per_thread! {
    /// Flag, set if this thread has installed a filter.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a filter kills the calling thread, which has installed one itself, for call
/// `nr`.
#[cold]
pub(super) fn kill_here(nr: u32) -> bool {
    HERE.get() && refusal(nr, &[0; 6]) == Some(Refusal::Kills)
}

/// Returns whether the known filters refuse call `nr`, tried with all arguments 0.
#[inline(always)]
pub(super) fn refuse(nr: u32) -> bool {
    let word = REFUSED.get(nr as usize / 64);
    word.is_some_and(|word| word.load(Relaxed) >> (nr % 64) & 1 != 0)
}

fn all() -> impl Iterator<Item = &'static Filter> {
    // SAFETY: filters of the list are not freed, nor changed.
    let follow = |at: *const Filter| unsafe { at.as_ref() };
    core::iter::successors(follow(NEWEST.load(Acquire)), move |f| follow(f.older))
}

/// Returns the number of known filters.
pub(super) fn count() -> usize {
    all().count()
}

/// Returns how the known filters refuse a call with these arguments; `None` if they do not.
/// SECCOMP_RET_TRAP counts as killing: the program's handler is not for calls of ours. The
/// decisions of a tracer or a supervisor are not known.
pub(super) fn refusal(nr: u32, args: &Args) -> Option<Refusal> {
    let answers = all().map(|filter| filter.rules.run(nr, args));
    // The kernel takes the lowest answer by its signed action; among equals that of the newest
    // filter, which comes first here.
    let answer = answers.min_by_key(|answer| (answer & ACTION).cast_signed())?;
    match answer & ACTION {
        ALLOW | LOG | TRACE | USER_NOTIF => None,
        // Errno 0 reports success for a call that is not made.
        ERRNO => Some(Refusal::Answers(match answer & VALUE {
            0 => Errno::ENOSYS,
            e => Errno(e.min(LARGEST).cast_signed()),
        })),
        _ => Some(Refusal::Kills),
    }
}

/// Largest errno that is noted: no known one is as large.
const LARGEST: u32 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a filter that answers `what` to call `nr`, and allows all others.
    fn filter(nr: u32, what: u32) -> Rules {
        let insn = |code, jt, jf, k| sock_filter { code, jt, jf, k };
        let (load, equals, answer) = (0x20, 0x15, 0x06);
        let program = vec![
            insn(load, 0, 0, 0),
            insn(equals, 0, 1, nr),
            insn(answer, 0, 0, what),
            insn(answer, 0, 0, ALLOW),
        ];
        Rules::Program(Program::new(program).unwrap())
    }

    #[test]
    fn the_strictest_filter_counts() {
        const CALL: u32 = 497;
        let add = |what| {
            add(Box::new(Filter { rules: filter(CALL, what), older: core::ptr::null() }));
            refusal(CALL, &[0; 6])
        };
        let answers = |e| Some(Refusal::Answers(Errno(e)));
        assert_eq!(add(ALLOW), None);
        assert!(!refuse(CALL));
        assert_eq!(add(TRACE), None);
        // An error of 0 is a call that is not made.
        assert_eq!(add(ERRNO), Some(Refusal::Answers(Errno::ENOSYS)));
        assert_eq!(add(ERRNO | 13), answers(13));
        assert_eq!(add(USER_NOTIF), answers(13));
        assert_eq!(add(ERRNO | 1), answers(1));
        // SECCOMP_RET_TRAP
        assert_eq!(add(0x0003_0000), Some(Refusal::Kills));
        assert_eq!(add(ALLOW), Some(Refusal::Kills));
        assert!(refuse(CALL) && !refuse(CALL + 1));
        assert_eq!(refusal(CALL + 1, &[0; 6]), None);
        assert_eq!(count(), 8);
    }

    #[test]
    fn strict_mode_leaves_four_calls() {
        let allowed = (0..CALLS as u32).filter(|nr| Rules::Strict.run(*nr, &[0; 6]) == ALLOW);
        assert_eq!(allowed.collect::<Vec<_>>(), STRICT);
    }
}
