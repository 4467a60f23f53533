//! Forked children that have their parent's table of descriptors (clone(2) with CLONE_FILES). Their
//! inherited descriptors are still the parent's, and a close by the child closes them for both,
//! with the locks of both. So the child closes none of the engine's descriptors that were there
//! before it.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

use crate::calls::process::kcmp;
use crate::fd::numbers::{WORDS, internal_words};
use crate::fd::{locks, moved};
use crate::fork::{AtFork, Child};

/// Flag, set if this process has its parent's table.
static SAME: AtomicBool = AtomicBool::new(false);
/// The engine's descriptors at the fork, one bit each.
static PARENTS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Fork step before the child closes anything.
pub const AT_FORK: AtFork = AtFork::new(in_child);

const KCMP_FILES: u32 = 2;

fn bit(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    Some((PARENTS.get(at / 64)?, 1 << (at % 64)))
}

/// Returns whether a number of the engine's is also the parent's.
#[inline]
pub(crate) fn is_parents(fd: i32) -> bool {
    SAME.load(Relaxed) && bit(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// Notes that the kernel has given this process a number.
#[inline]
pub fn take(fd: i32) {
    if SAME.load(Relaxed)
        && let Some((word, bit)) = bit(fd)
    {
        word.fetch_and(!bit, Relaxed);
    }
}

/// Checks whether the table is the parent's. No library's fork makes such a child, so a child that
/// was told of its fork need not ask.
fn in_child(child: &Child) {
    let same = child.late && is_same();
    if same {
        for (parents, own) in PARENTS.iter().zip(internal_words()) {
            parents.fetch_or(own.load(Relaxed), Relaxed);
        }
    }
    SAME.store(same, Relaxed);
}

/// Returns whether the table is the parent's, by a lock of the parent's, which belongs to its
/// table; without a lock by kcmp(2), if that is allowed.
fn is_same() -> bool {
    let own = moved::known().and_then(locks::is_own_table);
    own.unwrap_or_else(|| {
        let (own, parent) = (crate::os::process::getpid(), crate::os::process::getppid());
        kcmp(own, parent, KCMP_FILES) == Ok(0)
    })
}
