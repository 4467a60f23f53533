//! Race of a thread that sets a POSIX lock with a thread that closes a duplicate of the file.
//!
//! The interleaving that loses the lock:
//!
//! ```text
//! closer (Closer::begin)                    setter (fcntl with F_SETLK or F_SETLKW)
//! ────────────────────────                  ───────────────────────────────────────
//! F_OFD_GETLK: no lock
//!                                           F_SETLK: the process has the lock
//! close: the kernel ends the lock
//!                                           the program is told that it has the lock
//! ```
//!
//! The closer announces itself before it asks for locks. The setter checks after its call whether a
//! closer was at work during the call. If so, the setter sets the lock again before the program
//! gets the answer, and closers give way meanwhile:
//!
//! ```text
//! closer                                    setter
//! closing[i] = number                       seen = ended
//! begun += 1                                F_SETLK
//! full fence                                full fence
//! setters > 0: retain                       begun == seen: done
//! F_OFD_GETLK: a lock: retain               setters += 1
//! close                                     full fence
//! ended += 1                                wait for closing of the same file
//! closing[i] = 0                            F_SETLK: its answer is the program's
//!                                           setters -= 1
//! ```
//!
//! Either the setter sees `begun` move, or the closer's question finds the lock. Either the setter
//! waits for the closer, or the closer sees `setters`. If another process takes the lock between
//! the two calls, the program gets that answer: it never had the lock. [`protocol`] has the steps;
//! loom tries every order of them in the engine's `verify/lock_race.rs`.
//!
//! A thread that waits in F_SETLKW has changed none of these words: it may be cancelled, or wait
//! for hours.

pub mod protocol;

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use core::time::Duration;

use self::protocol::{Closing, Race};
use crate::fd::numbers::{File, file};
use crate::fd::{exec, locks};
use crate::fork::AtFork;
use crate::sys;

/// Most closers at the same time. One more retains its duplicate.
const SLOTS: usize = 16;
/// Checks of a slot before a sleep, each followed by a yield.
const YIELDS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(50);
/// Most checks of a slot: about ten seconds. A close may wait for a network file system.
const CHECKS: u32 = 100_000;

/// Shared words of the process.
#[derive(Debug)]
struct OfProcess {
    closing: [AtomicI32; SLOTS],
    begun: AtomicU64,
    ended: AtomicU64,
    setters: AtomicU32,
}

static PROCESS: OfProcess = OfProcess {
    closing: [const { AtomicI32::new(0) }; SLOTS],
    begun: AtomicU64::new(0),
    ended: AtomicU64::new(0),
    setters: AtomicU32::new(0),
};

impl Race for OfProcess {
    type Slot = AtomicI32;
    type Count = AtomicU64;
    type Setters = AtomicU32;

    #[inline(always)]
    fn closing(&self) -> &[AtomicI32] {
        &self.closing
    }

    #[inline(always)]
    fn begun(&self) -> &AtomicU64 {
        &self.begun
    }

    #[inline(always)]
    fn ended(&self) -> &AtomicU64 {
        &self.ended
    }

    #[inline(always)]
    fn setters(&self) -> &AtomicU32 {
        &self.setters
    }
}

/// Announcement that a thread closes a descriptor of a file of the program's; ends when dropped.
#[derive(Debug)]
pub struct Closer {
    _closing: Closing<'static, OfProcess>,
}

impl Closer {
    /// Announces a close. `None` if the process may have a lock on the file, or be about to set
    /// one.
    pub fn begin(number: i32) -> Option<Closer> {
        let closing = PROCESS.close(number, || locks::any(number))?;
        Some(Closer { _closing: closing })
    }
}

/// A call that sets a POSIX lock.
#[derive(Debug)]
pub struct Setter {
    ended: u64,
}

impl Setter {
    /// Reads the count of closers, before the call.
    #[must_use]
    pub fn begin() -> Setter {
        Setter { ended: PROCESS.before_set() }
    }

    /// Returns, after a call that has set a lock, whether the lock surely exists.
    #[must_use]
    pub fn has_lock(self) -> bool {
        PROCESS.has_lock(self.ended, exec::changed)
    }
}

/// Sets the lock on `fd` again by `call`, which must not wait, and returns the call's answer. No
/// closer drops the lock meanwhile.
pub fn set_again(fd: i32, call: impl FnOnce() -> isize) -> isize {
    let of = file(fd);
    let waits = |number, checks| wait_for_closer(number, of, checks);
    PROCESS.set_again(waits, || {
        let ret = call();
        exec::changed();
        ret
    })
}

/// Waits a moment and returns true, unless the closer of `number` closes another file or was waited
/// for long enough.
fn wait_for_closer(number: i32, of: File, checks: u32) -> bool {
    if !may_be(number, of) || checks >= CHECKS {
        return false;
    }
    if checks < YIELDS {
        crate::calls::process::sched_yield();
    } else {
        let _ = sys::sleep(PAUSE);
    }
    true
}

/// Returns whether `number`, which is about to be closed or was closed just now, may mean this
/// file.
fn may_be(number: i32, of: File) -> bool {
    let found = file(number);
    found == of || found == File::default()
}

pub const AT_FORK: AtFork = AtFork::new(|_| PROCESS.in_child());

impl OfProcess {
    /// Resets the words: the child does not have the parent's threads. The counts go on from their
    /// values, because a thread of the child may already be setting a lock.
    fn in_child(&self) {
        let Self { closing, begun, ended, setters } = self;
        closing.iter().for_each(|slot| slot.store(0, Relaxed));
        ended.store(begun.load(SeqCst), SeqCst);
        setters.store(0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_detects_a_concurrent_close() {
        let file = crate::substitute::memfd("f", false).unwrap();
        let number = crate::os::fd::AsRawFd::as_raw_fd(&file);
        let during = Setter::begin();
        let closer = Closer::begin(number).unwrap();
        let within = Setter::begin();
        drop(closer);
        assert!(!during.has_lock());
        assert!(!within.has_lock());
    }
}
