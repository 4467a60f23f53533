//! Forked children. A page that the kernel wipes in a forked child (MADV_WIPEONFORK) tells us,
//! however the fork was made, that our threads, epoll sets and aio contexts are gone; a vfork child
//! shares our memory and sees it unwiped, but has another pid.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
/// Before the first ring: any process, of no known namespace.
static HOLDER: AtomicU64 = AtomicU64::new(1);

/// Forks between the first process that made a ring and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Was the last of these noticed late?
static LATE: AtomicBool = AtomicBool::new(false);

/// May this process, a forked child, have had POSIX locks before it closed what it inherited?
pub(crate) fn noticed_late() -> bool {
    LATE.load(Relaxed)
}

/// Tells a process from those that it was forked from.
#[inline(always)]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Our process id, cached; 0 before the first ring.
pub(crate) fn pid() -> u32 {
    PID.load(Relaxed)
}

/// Our process id, and in the upper half the number of the pid namespace that it belongs to, or 0
/// where that is not known: how the locks that rings share name their holder.
#[inline]
pub(crate) fn holder() -> u64 {
    HOLDER.load(Relaxed)
}

/// Learns who we are.
fn learn() {
    let pid = rustix_pid();
    // 32 bits wide, as the kernel counts them.
    let namespace = rustix::fs::stat(c"/proc/self/ns/pid").map_or(0, |s| s.st_ino as u32);
    HOLDER.store(u64::from(namespace) << 32 | u64::from(pid), Relaxed);
    PID.store(pid, Relaxed);
}

/// Marks this address space as ours. Called before the first ring is made.
pub(crate) fn init() {
    if !PAGE.load(Acquire).is_null() {
        return;
    }
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping overlays nothing.
    let Ok(p) = (unsafe { mmap_anonymous(core::ptr::null_mut(), 4096, prot, MapFlags::PRIVATE) })
    else {
        return;
    };
    const MADV_WIPEONFORK: u32 = 18;
    let wiped = crate::substitute::advise(p.expose_provenance(), 4096, MADV_WIPEONFORK).is_ok();
    let word: *mut AtomicU32 = p.cast();
    // SAFETY: a zeroed page is a valid AtomicU32, aligned, and stays mapped for ever.
    unsafe { (*word).store(u32::from(wiped), Relaxed) };
    learn();
    PAGE.store(word, Release);
}

/// Is this a forked child that has not rebuilt its engine yet?
pub(crate) fn in_new_child() -> bool {
    let word = PAGE.load(Acquire);
    // SAFETY: non-null means `init` mapped it, and it is never unmapped.
    !word.is_null() && unsafe { (*word).load(Relaxed) } == 0 && pid() != rustix_pid()
}

fn rustix_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}

/// The child makes the engine its own; `late`: it has run before, and may have POSIX locks.
pub(crate) fn adopt(late: bool) {
    LATE.store(late, Relaxed);
    learn();
    GENERATION.fetch_add(1, Relaxed);
    crate::rsrc::task_rules::in_child();
    let word = PAGE.load(Acquire);
    if !word.is_null() {
        // SAFETY: as in `in_new_child`.
        unsafe { (*word).store(1, Relaxed) };
    }
}

/// Is the caller a vfork child (or another process sharing our memory), which must not touch the
/// engine?
pub(crate) fn is_vfork_child() -> bool {
    pid() != 0 && !in_new_child() && pid() != rustix_pid()
}
