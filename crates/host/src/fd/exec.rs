//! exec(2) by a process with POSIX locks. The kernel's requests have no descriptors, and the locks
//! outlive exec. Here exec would close the engine's duplicates of the file, and with the first of
//! them the locks were gone. So such a duplicate stays open ([`prepare`]), if exec leaves the lock
//! to the program: it has the file open, and closes none of its own descriptors of the file.
//!
//! The new program's copy of the library is told the numbers, and retains them as any duplicate of
//! a file with a lock ([`crate::fd::owned::inherit`]): they are closed when the program closes the
//! file.
//!
//! Other threads may make duplicates, and set locks, until the kernel has ended them:
//!
//! ```text
//! thread that calls exec                    another thread
//! EXECUTING += 1                            makes and marks a duplicate; or sets a lock
//! full fence                                full fence
//! goes through the engine's descriptors     EXECUTING > 0: goes through them, too
//! ```
//!
//! Nothing here takes a lock or asks for memory: exec may be called in a signal handler.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32, fence};

use rustix::fs::{Mode, OFlags, RawDir, open};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use crate::fd::numbers::{File, all_internal, file, is_internal};
use crate::fd::{locks, moved};
use crate::fork::AtFork;
use crate::sys::{EngineFd, borrow};

/// Where the open descriptors can't be listed, those from here on are not checked.
const NUMBERS: i32 = 1 << 16;

/// Threads that are about to exec.
static EXECUTING: AtomicU32 = AtomicU32::new(0);
/// Some of the engine's descriptors would stay open.
static STAYING: AtomicBool = AtomicBool::new(false);

/// The program is about to exec. Tells `stays` of the engine's descriptors that stay open, and of
/// their files, by device and inode.
pub fn prepare(mut stays: impl FnMut(i32, (u64, u64))) {
    EXECUTING.fetch_add(1, SeqCst);
    go_through(|fd, of| {
        STAYING.store(true, SeqCst);
        stays(fd, of);
    });
}

/// As [`prepare`] in a vfork child, which has descriptors and locks of its own, but its parent's
/// memory: nothing is noted there. It has one thread.
pub fn prepare_vforked(stays: impl FnMut(i32, (u64, u64))) {
    go_through(stays);
}

fn go_through(mut stays: impl FnMut(i32, File)) {
    fence(SeqCst);
    let mut last = (File::default(), false);
    // One is locked by the engine.
    let known = moved::known();
    for fd in all_internal().filter(|&fd| Some(fd) != known && locks::any(fd)) {
        let of = file(fd);
        if last.0 != of {
            last = (of, leaves_lock(of));
        }
        if last.1 {
            set_flags(fd, FdFlags::empty());
            stays(fd, of);
        }
    }
}

/// Exec has failed.
pub fn failed() {
    EXECUTING.fetch_sub(1, SeqCst);
    if STAYING.swap(false, SeqCst) {
        all_internal().for_each(|fd| set_flags(fd, FdFlags::CLOEXEC));
    }
}

/// Exec has failed in a vfork child.
pub fn failed_vforked() {
    all_internal().filter(|&fd| locks::any(fd)).for_each(|fd| set_flags(fd, FdFlags::CLOEXEC));
}

/// Goes through the descriptors once more: there is a new duplicate, or a new lock.
#[inline]
pub fn changed() {
    if EXECUTING.load(SeqCst) > 0 {
        go_through(|_, _| STAYING.store(true, SeqCst));
    }
}

/// Does exec leave the process its locks on a file? It closes none of the program's descriptors of
/// the file, and there is one.
fn leaves_lock(of: File) -> bool {
    let (mut found, mut closed) = (false, false);
    let mut look = |fd| {
        if !is_internal(fd) && file(fd) == of {
            found = true;
            closed |= flags(fd).is_some_and(|flags| flags.contains(FdFlags::CLOEXEC));
        }
    };
    if each_open(&mut look).is_none() {
        (0..NUMBERS).for_each(look);
    }
    found && !closed
}

/// Lists the open descriptors. `RLIMIT_NOFILE` does not tell where they end: it may have been
/// lowered since. None without /proc, or without a number for its directory.
fn each_open(look: &mut impl FnMut(i32)) -> Option<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = EngineFd::from(open(c"/proc/self/fd", flags, Mode::empty()).ok()?);
    let mut buf = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&dir, &mut buf);
    while let Some(entry) = entries.next() {
        let number = entry.ok()?.file_name().to_str().ok()?.parse();
        number.into_iter().for_each(&mut *look);
    }
    Some(())
}

pub(super) fn flags(fd: i32) -> Option<FdFlags> {
    borrow(fd).and_then(|fd| fcntl_getfd(fd).ok())
}

pub(super) fn set_flags(fd: i32, flags: FdFlags) {
    let _ = borrow(fd).map(|fd| fcntl_setfd(fd, flags));
}

/// A child's parent's threads are not here.
pub const AT_FORK: AtFork = AtFork::new(|_| {
    EXECUTING.store(0, SeqCst);
    STAYING.store(false, SeqCst);
});
