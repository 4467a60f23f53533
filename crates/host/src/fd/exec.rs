//! exec(2) by a process with POSIX locks. The kernel's requests have no descriptors, and the locks
//! survive exec. Here exec would close the engine's duplicates of the file, and the first such
//! close would drop the locks. So a duplicate stays open over exec ([`prepare`]) if exec leaves the
//! lock to the program: the program has the file open, and none of its descriptors of the file is
//! close-on-exec.
//!
//! The new program's copy of the library gets the numbers. It retains them like any duplicate of a
//! file with a lock ([`crate::fd::owned::inherit`]), and closes them when the program closes the
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
//! Nothing here takes a lock or allocates memory: exec may be called in a signal handler.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32, fence};

use crate::os::fs::{Mode, OFlags, RawDir, open};
use crate::os::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use crate::fd::numbers::{File, all_internal, file, is_internal};
use crate::fd::{locks, moved};
use crate::fork::AtFork;
use crate::sys::{EngineFd, borrow};

/// Bound of the numbers that are checked if the open descriptors cannot be listed.
const NUMBERS: i32 = 1 << 16;

/// Count of threads that are about to exec.
static EXECUTING: AtomicU32 = AtomicU32::new(0);
/// Flag, set while some of the engine's descriptors would stay open over exec.
static STAYING: AtomicBool = AtomicBool::new(false);

/// Keeps open, over the program's coming exec, the engine's descriptors that exec must not close.
/// Calls `stays` with each of them and its file (device and inode).
pub fn prepare(mut stays: impl FnMut(i32, (u64, u64))) {
    EXECUTING.fetch_add(1, SeqCst);
    go_through(|fd, of| {
        STAYING.store(true, SeqCst);
        stays(fd, of);
    });
}

/// Does the same as [`prepare`] in a vfork child, which has one thread, descriptors and locks of
/// its own, but its parent's memory: this writes nothing there.
pub fn prepare_vforked(stays: impl FnMut(i32, (u64, u64))) {
    go_through(stays);
}

fn go_through(mut stays: impl FnMut(i32, File)) {
    fence(SeqCst);
    let mut last = (File::default(), false);
    // The engine itself has locked this one (`locks::mark_table`).
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

/// Undoes [`prepare`] after exec has failed.
pub fn failed() {
    EXECUTING.fetch_sub(1, SeqCst);
    if STAYING.swap(false, SeqCst) {
        all_internal().for_each(|fd| set_flags(fd, FdFlags::CLOEXEC));
    }
}

/// Undoes [`prepare_vforked`] after exec has failed.
pub fn failed_vforked() {
    all_internal().filter(|&fd| locks::any(fd)).for_each(|fd| set_flags(fd, FdFlags::CLOEXEC));
}

/// Goes through the descriptors again if a thread is about to exec, after a new duplicate or lock.
#[inline]
pub fn changed() {
    if EXECUTING.load(SeqCst) > 0 {
        go_through(|_, _| STAYING.store(true, SeqCst));
    }
}

/// Returns whether exec leaves the process its locks on a file: the program has the file open, and
/// exec closes none of the program's descriptors of it.
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

/// Calls `look` with each open descriptor. `RLIMIT_NOFILE` is no bound: it may have been lowered
/// since. Returns `None` without /proc, or without a free number for its directory.
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

/// Fork step: the child does not have its parent's threads that are about to exec.
pub const AT_FORK: AtFork = AtFork::new(|_| {
    EXECUTING.store(0, SeqCst);
    STAYING.store(false, SeqCst);
});
