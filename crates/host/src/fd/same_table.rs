//! A forked child that has its parent's table of descriptors (clone(2) with CLONE_FILES): what it
//! inherits is its parent's still, and what it closes is closed there, with the locks of both. So
//! it closes none of the engine's descriptors that were there before it.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

use crate::calls::process::kcmp;
use crate::fd::numbers::{WORDS, internal_words};
use crate::fd::{locks, moved};
use crate::fork::{AtFork, Child};

/// Has this process its parent's table?
static SAME: AtomicBool = AtomicBool::new(false);
/// The engine's descriptors at the fork, one bit each.
static PARENTS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// The step before the child closes anything.
pub const AT_FORK: AtFork = AtFork::new(in_child);

const KCMP_FILES: u32 = 2;

fn bit(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    Some((PARENTS.get(at / 64)?, 1 << (at % 64)))
}

/// Is a number of the engine's the parent's, too?
#[inline]
pub fn is_parents(fd: i32) -> bool {
    SAME.load(Relaxed) && bit(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// The kernel has given this process a number.
#[inline]
pub fn take(fd: i32) {
    if SAME.load(Relaxed)
        && let Some((word, bit)) = bit(fd)
    {
        word.fetch_and(!bit, Relaxed);
    }
}

/// No library's fork makes such a child, so one that was told of its fork need not ask.
fn in_child(child: &Child) {
    let same = child.late && is_same();
    if same {
        for (parents, own) in PARENTS.iter().zip(internal_words()) {
            parents.fetch_or(own.load(Relaxed), Relaxed);
        }
    }
    SAME.store(same, Relaxed);
}

/// A lock of the parent's, which belongs to its table, tells; where there is none, kcmp(2), if that
/// is allowed.
fn is_same() -> bool {
    let own = moved::known().and_then(locks::is_own_table);
    own.unwrap_or_else(|| {
        let pid =
            |pid: Option<rustix::process::Pid>| pid.map_or(0, |pid| pid.as_raw_nonzero().get());
        let (own, parent) = (rustix::process::getpid(), rustix::process::getppid());
        kcmp(pid(Some(own)), pid(parent), KCMP_FILES) == Ok(0)
    })
}
