//! A thread of the program's sets a POSIX lock while another thread closes a duplicate of the file.
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
//! The closer announces itself before its question, and the setter asks after its call whether a
//! closer was at work at any time of the call. Then the setter sets the lock again, before the
//! program is told of it, and meanwhile closers give way:
//!
//! ```text
//! closer                                    setter
//! CLOSING[i] = number                       seen = ENDED
//! BEGUN += 1                                F_SETLK
//! full fence                                full fence
//! SETTERS > 0: retain                       BEGUN == seen: done
//! F_OFD_GETLK: a lock: retain               SETTERS += 1
//! close                                     full fence
//! ENDED += 1                                wait for CLOSING of the same file
//! CLOSING[i] = 0                            F_SETLK: its answer is the program's
//!                                           SETTERS -= 1
//! ```
//!
//! Either the setter sees `BEGUN` move, or the closer's question finds the lock. Either the setter
//! waits for the closer, or the closer sees `SETTERS`. If another process takes the lock between
//! the two calls, the program is told so: it never had the lock. `verify/lock_race.rs` tries every
//! order.
//!
//! A thread that waits in F_SETLKW holds nothing here: it may be cancelled, or wait for hours.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, fence};
use core::time::Duration;

use crate::fd::numbers::{File, file};
use crate::fd::{exec, locks};
use crate::fork::AtFork;
use crate::sys;

/// Closers at the same time. One more retains its duplicate.
const SLOTS: usize = 16;
/// Looks at a slot before a sleep, each followed by a yield.
const YIELDS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(50);
/// The most looks at a slot: about ten seconds. A close may wait for a network file system.
const LOOKS: u32 = 100_000;

/// Numbers that are being closed; 0: free.
static CLOSING: [AtomicI32; SLOTS] = [const { AtomicI32::new(0) }; SLOTS];
/// How many closers have begun, and how many of them are through.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
/// Threads that set a lock again.
static SETTERS: AtomicU32 = AtomicU32::new(0);

/// A thread that closes a descriptor of a file of the program's, until it is dropped.
#[derive(Debug)]
pub struct Closer(&'static AtomicI32);

impl Closer {
    /// None if the process may have a lock on the file, or be about to set one.
    pub fn begin(number: i32) -> Option<Closer> {
        let free = |slot: &&AtomicI32| slot.compare_exchange(0, number, SeqCst, Relaxed).is_ok();
        let closer = Closer(CLOSING.iter().find(free)?);
        BEGUN.fetch_add(1, SeqCst);
        fence(SeqCst);
        (SETTERS.load(SeqCst) == 0 && !locks::any(number)).then_some(closer)
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        ENDED.fetch_add(1, SeqCst);
        self.0.store(0, SeqCst);
    }
}

/// A call that sets a POSIX lock.
#[derive(Debug)]
pub struct Setter {
    ended: u64,
}

impl Setter {
    /// Before the call.
    #[must_use]
    pub fn begin() -> Setter {
        Setter { ended: ENDED.load(SeqCst) }
    }

    /// After the call, if that set a lock: is the lock surely there?
    #[must_use]
    pub fn has_lock(self) -> bool {
        fence(SeqCst);
        exec::changed();
        BEGUN.load(SeqCst) == self.ended
    }
}

/// Sets the lock on `fd` again by `call`, which must not wait, and answers what it answers. No
/// closer takes the lock away.
pub fn set_again(fd: i32, call: impl FnOnce() -> isize) -> isize {
    SETTERS.fetch_add(1, SeqCst);
    fence(SeqCst);
    wait_for_closers(file(fd));
    let ret = call();
    exec::changed();
    // A forked child starts from 0, also where a signal handler has forked in the middle of this.
    let _ = SETTERS.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    ret
}

fn wait_for_closers(of: File) {
    for slot in &CLOSING {
        let number = slot.load(SeqCst);
        let mut looks = 0;
        while number != 0 && slot.load(SeqCst) == number && may_be(number, of) && looks < LOOKS {
            if looks < YIELDS {
                std::thread::yield_now();
            } else {
                let _ = sys::sleep(PAUSE);
            }
            looks += 1;
        }
    }
}

/// May `number`, which is closed soon or just now, mean this file?
fn may_be(number: i32, of: File) -> bool {
    let found = file(number);
    found == of || found == File::default()
}

pub const AT_FORK: AtFork = AtFork::new(|_| forget_parents_threads());

/// The counts go on from where they are, for a thread of the child's may be setting a lock already.
fn forget_parents_threads() {
    CLOSING.iter().for_each(|slot| slot.store(0, Relaxed));
    ENDED.store(BEGUN.load(SeqCst), SeqCst);
    SETTERS.store(0, Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_knows_whether_a_closer_was_at_work() {
        let file = rustix::fs::memfd_create(c"f", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let number = rustix::fd::AsRawFd::as_raw_fd(&file);
        let during = Setter::begin();
        let closer = Closer::begin(number).unwrap();
        let within = Setter::begin();
        drop(closer);
        assert!(!during.has_lock());
        assert!(!within.has_lock());
    }
}
