//! Jumps that straddle two aligned words, written while other threads run.
//!
//! No store covers such a jump whole, and a thread must never fetch half of it. The jump replaces
//! one instruction whose first two bytes lie in one word. So these two bytes become a jump to
//! itself first: a thread that arrives waits there, and nobody fetches the bytes behind them.
//!
//! ```text
//! patching thread                    another thread         without the first step
//! word 1: mov -> jmp to itself       fetches either:
//!   every thread fetches anew        passes, or spins
//! word 2: the end of the jump        spins                  fetches half of mov, half of jmp
//!   every thread fetches anew        spins
//! word 1: the start of the jump      fetches either:
//!                                    spins, or goes to the stub
//! ```
//!
//! Signals are blocked meanwhile, as a handler on the patching thread would spin for ever. fork(3)
//! must not copy the text in this state: either the fork waits, or the change is not made. A
//! handler may fork within a fork, so forks are counted and hold no lock:
//!
//! ```text
//! patching thread                    fork(3)
//! CHANGING = pid                     FORKS += 1
//! fence                              fence
//! FORKS > 0 -> give up               CHANGING = pid -> wait
//! ```
//!
//! A fork by raw system call in those microseconds is not seen: its child may spin at such a site.
#![allow(unsafe_code)]

use super::text::{JUMP, WORD, store, synchronize};
use crate::raw::raw;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicU32, fence};

/// `jmp` to itself.
const SPIN: [u8; 2] = [0xeb, 0xfe];
/// Attempts at a barrier that fails for want of memory.
const TRIES: u32 = 100;

/// Times that a change gives way to a fork before it is given up.
const FORK_TRIES: u32 = 1000;

/// Process that changes text; another process's value was copied by a fork that did not wait.
static CHANGING: AtomicI32 = AtomicI32::new(0);
/// Calls of fork(3) in progress.
static FORKS: AtomicU32 = AtomicU32::new(0);

fn pid() -> i32 {
    crate::proc::getpid()
}

fn yield_now() {
    // SAFETY: no arguments.
    unsafe { raw!(libc::SYS_sched_yield) };
}

/// Waits before a fork until no text is changed; [`forked`] or [`fork_child`] follows.
pub fn fork_prepare() {
    FORKS.fetch_add(1, SeqCst);
    fence(SeqCst);
    while CHANGING.load(SeqCst) != 0 && CHANGING.load(SeqCst) == pid() {
        yield_now();
    }
}

/// Ends a fork in the parent, or in a handler's child that goes on with what the handler
/// interrupted.
pub fn forked() {
    let _ = FORKS.fetch_update(SeqCst, Relaxed, |n| n.checked_sub(1));
}

pub fn fork_child() {
    FORKS.store(0, SeqCst);
    CHANGING.store(0, SeqCst);
}

/// Returns whether one instruction at `at`, of [`JUMP`] bytes or more, may be changed in this way.
pub fn may(at: usize) -> bool {
    at % WORD + SPIN.len() <= WORD
}

/// Writes jumps over instructions that [`may`] be changed, in writable text. False if nothing was
/// done: the kernel cannot make other threads fetch anew, or a fork is in progress.
pub fn write(jumps: &[(usize, [u8; JUMP])]) -> bool {
    // Before signals are blocked: a sandbox may answer membarrier(2) by SIGSYS.
    if !synchronize() {
        return false;
    }
    (0..FORK_TRIES).take_while(|_| FORKS.load(Relaxed) > 0).for_each(|_| yield_now());
    let all = u64::MAX;
    let mut before = 0u64;
    let (new, old) = ((&raw const all).expose_provenance(), &raw mut before);
    // SAFETY: two signal sets of the kernel's size; the old one is put back below.
    unsafe { raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old.expose_provenance(), 8) };
    let mine = CHANGING.compare_exchange(0, pid(), SeqCst, Relaxed).is_ok();
    fence(SeqCst);
    let done = mine && FORKS.load(SeqCst) == 0 && write_jumps(jumps);
    if mine {
        CHANGING.store(0, Release);
    }
    let old = (&raw const before).expose_provenance();
    // SAFETY: the set that was there before.
    unsafe { raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, old, 0, 8) };
    done
}

fn write_jumps(jumps: &[(usize, [u8; JUMP])]) -> bool {
    let fetched_anew = || (0..TRIES).any(|_| synchronize());
    let heads: Vec<_> = jumps.iter().map(|(at, _)| (*at, super::text::load(*at))).collect();
    heads.iter().for_each(|(at, _)| store(*at, &SPIN));
    if !fetched_anew() {
        heads.iter().for_each(|(at, old)| store(*at, old));
        return false;
    }
    jumps.iter().for_each(|(at, jump)| tail(at + SPIN.len(), &jump[SPIN.len()..]));
    // Nobody has fetched the new bytes, but perhaps the old ones.
    fetched_anew();
    jumps.iter().for_each(|(at, jump)| store(*at, &jump[..SPIN.len()]));
    true
}

/// Writes bytes that nobody fetches, in two words.
fn tail(at: usize, bytes: &[u8]) {
    let first = bytes.len().min((WORD - at % WORD) % WORD);
    for (at, part) in [(at, &bytes[..first]), (at + first, &bytes[first..])] {
        if !part.is_empty() {
            store(at, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    const PAGE: usize = 4096;

    fn map() -> usize {
        let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { raw!(libc::SYS_mmap, 0, PAGE, prot, how, usize::MAX, 0) };
        at.cast_unsigned()
    }

    fn put(at: usize, code: &[u8]) {
        for (i, byte) in code.iter().enumerate() {
            // SAFETY: within the mapping that `map` made, which no thread runs in yet.
            unsafe { core::ptr::with_exposed_provenance_mut::<u8>(at + i).write(*byte) };
        }
    }

    /// Replaces `mov $1, %eax; ret` by a jump to code that returns 2.
    #[test]
    fn running_threads_see_old_or_new_code() {
        const ONE: [u8; 6] = [0xb8, 1, 0, 0, 0, 0xc3];
        const TWO: [u8; 6] = [0xb8, 2, 0, 0, 0, 0xc3];
        let page = map();
        put(page + PAGE / 2, &TWO);
        let sites: Vec<usize> =
            (0..100).map(|i| page + 16 * i + 4 + i % 3).filter(|at| may(*at)).collect();
        sites.iter().for_each(|at| put(*at, &ONE));
        let (now, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        let run = |at: usize| -> u32 {
            // SAFETY: a function without arguments lies there.
            let f: extern "C" fn() -> u32 =
                unsafe { core::mem::transmute(core::ptr::with_exposed_provenance::<()>(at)) };
            f()
        };
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while let Some(at) = sites.get(now.load(Ordering::Relaxed) as usize) {
                        assert!([1, 2].contains(&run(*at)));
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for at in &sites {
                let before = seen.load(Ordering::Relaxed);
                while seen.load(Ordering::Relaxed) < before + 100 {
                    std::thread::yield_now();
                }
                let to = ((page + PAGE / 2) as i64 - (*at + JUMP) as i64) as i32;
                let d = to.to_le_bytes();
                assert!(write(&[(*at, [0xe9, d[0], d[1], d[2], d[3]])]));
                assert_eq!(run(*at), 2);
                now.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(sites.len(), 100);
    }

    #[test]
    fn a_site_at_a_words_last_byte_is_not_patched() {
        assert!(may(4) && may(6) && !may(7));
    }
}
