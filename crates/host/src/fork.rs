//! Forked children. A page that the kernel wipes in a forked child (MADV_WIPEONFORK) tells us,
//! however the fork was made, that our threads, epoll sets and aio contexts are gone; a vfork child
//! shares our memory and sees it unwiped, but has another pid.
//!
//! Each module with process-wide state says by an [`AtFork`] what becomes of it; `process::forked`
//! has them all, in the order in which a child goes through them. The conformance crate's `layers`
//! test fails for one that is not there.
#![allow(unsafe_code)]

use core::any::Any;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::OnceLock;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::refused;
use crate::sys::{args, nr, sys, syscall6};
use softring_uapi::errno::{self, Errno};

static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
/// The holder before the first ring: any process, of no known namespace.
static HOLDER: AtomicU64 = AtomicU64::new(1);

/// Forks between the first process that made a ring and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Was the last of these noticed late?
static LATE: AtomicBool = AtomicBool::new(false);

/// What a child does with all process-wide state.
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// What becomes of a module's process-wide state when the process forks.
#[derive(Debug)]
pub struct AtFork {
    /// The step before the fork: takes the lock that the child is to find free. Called with the
    /// locks of all rings held.
    pub hold: fn() -> Option<Box<dyn Any>>,
    /// The step in the child, which holds no lock any more. Where the fork was noticed late, a lock
    /// may be held for ever, by a thread that the child does not have.
    pub child: fn(&Child),
}

/// A forked child leaves a piece of its process's state as it is; says why.
#[inline(always)]
pub const fn keeps<T>(_: &T, _why: &'static str) {}

/// A child, as its state is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Child {
    /// The process that forked it; 0 if that never made a ring.
    pub parent: u32,
    /// The child has run before: nobody told us of the fork, and it may have POSIX locks.
    pub late: bool,
}

impl AtFork {
    /// State that takes no lock to be whole.
    pub const fn new(child: fn(&Child)) -> AtFork {
        AtFork { hold: || None, child }
    }

    /// State that is whole while that lock is held.
    pub const fn held(hold: fn() -> Option<Box<dyn Any>>, child: fn(&Child)) -> AtFork {
        AtFork { hold, child }
    }
}

/// The state of which process this is.
pub const AT_FORK: AtFork = AtFork::new(|child| rebuild(child.late));

/// Whoever notices a fork below the layer that knows all state calls this ([`check`]).
pub fn noticed_by(in_child: fn()) {
    let _ = IN_CHILD.set(in_child);
}

/// A fork that nobody told us of (by a raw system call) is noticed here.
pub fn check() {
    if in_new_child() {
        // Before the first ring no state but this module's is another process's.
        IN_CHILD.get().map_or_else(|| rebuild(true), |in_child| in_child());
    }
}

/// May this process, a forked child, have had POSIX locks before it closed what it inherited?
pub fn noticed_late() -> bool {
    LATE.load(Relaxed)
}

/// Tells a process from those that it was forked from.
#[inline(always)]
pub fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Our process id, cached; 0 before the first ring.
pub fn pid() -> u32 {
    PID.load(Relaxed)
}

/// Our process id, and in the upper half the number of the pid namespace that it belongs to, or 0
/// where that is not known: how the locks that rings share name their holder.
#[inline]
pub fn holder() -> u64 {
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
pub fn init() {
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
    // SAFETY: that mapping, which nobody uses yet.
    let wiped = unsafe { sys!(__NR_madvise, p.expose_provenance(), 4096, MADV_WIPEONFORK) == 0 };
    let word: *mut AtomicU32 = p.cast();
    // SAFETY: a zeroed page is a valid AtomicU32, aligned, and stays mapped for ever.
    unsafe { (*word).store(u32::from(wiped), Relaxed) };
    learn();
    PAGE.store(word, Release);
}

/// Is this a forked child that has not rebuilt its engine yet?
pub fn in_new_child() -> bool {
    let word = PAGE.load(Acquire);
    // SAFETY: non-null means `init` mapped it, and it is never unmapped.
    !word.is_null() && unsafe { (*word).load(Relaxed) } == 0 && pid() != rustix_pid()
}

fn rustix_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}

/// The child makes the engine its own; `late`: it has run before, and may have POSIX locks.
fn rebuild(late: bool) {
    LATE.store(late, Relaxed);
    // Else the first ring will.
    if pid() != 0 {
        learn();
    }
    GENERATION.fetch_add(1, Relaxed);
    let word = PAGE.load(Acquire);
    if !word.is_null() {
        // SAFETY: as in `in_new_child`.
        unsafe { (*word).store(1, Relaxed) };
    }
}

/// Is the caller a vfork child (or another process sharing our memory), which must not touch the
/// engine?
pub fn is_vfork_child() -> bool {
    pid() != 0 && !in_new_child() && pid() != rustix_pid()
}

/// Do known filters let a child be made, waited for and end?
pub fn is_spared() -> bool {
    let spares = |nr: u32| refused::spares(nr.into());
    spares(nr::__NR_clone)
        && spares(nr::__NR_exit_group)
        && (spares(nr::__NR_wait4) || spares(nr::__NR_waitid))
}

/// Would the next child be the first process of a pid namespace, which would end with it? The
/// program has called unshare(2), and is about to fork.
pub fn would_found_a_namespace() -> bool {
    let of = |path: &core::ffi::CStr| rustix::fs::stat(path).ok().map(|s| s.st_ino);
    let [own, childrens] = [c"/proc/self/ns/pid", c"/proc/self/ns/pid_for_children"].map(of);
    // Until it has its first process, that namespace has no file.
    own.is_some() && own != childrens
}

/// Runs `f`, which only makes system calls, in a child of its own, and waits for its end. The child
/// is no child to the program: it ends without a signal, and only `__WALL` finds it. False if there
/// is none. The caller has signals blocked.
///
/// # Safety
/// `f` is sound in a child of a process with threads: it takes no lock, and allocates nothing.
pub(crate) unsafe fn in_child(f: impl FnOnce()) -> bool {
    const WALL: usize = 0x4000_0000;
    const RLIMIT_CORE: usize = 4;
    // The least that is no core file, also where a program takes them.
    let no_core = [1u64; 2];
    // SAFETY: the child has a copy of this stack and runs `f`, which our caller answers for.
    let pid = unsafe { syscall6(nr::__NR_clone, [0; 6]) };
    if pid == 0 {
        let limit = no_core.as_ptr().expose_provenance();
        if refused::spares(nr::__NR_prlimit64.into()) {
            // SAFETY: the kernel reads the limits.
            unsafe { syscall6(nr::__NR_prlimit64, args([0, RLIMIT_CORE, limit])) };
        }
        f();
        loop {
            // SAFETY: numbers. Where the first is refused: it has no other thread.
            unsafe {
                syscall6(nr::__NR_exit_group, [0; 6]);
                syscall6(nr::__NR_exit, [0; 6]);
            }
        }
    }
    if pid < 0 {
        return false;
    }
    const P_PID: usize = 1;
    const WEXITED: usize = 4;
    let pid = pid.cast_unsigned();
    let spared = |call: &(u32, [usize; 6])| refused::spares(call.0.into());
    let waits = [
        (nr::__NR_wait4, args([pid, 0, WALL])),
        (nr::__NR_waitid, args([P_PID, pid, 0, WEXITED | WALL])),
    ];
    // Of two calls that do the same one may be refused.
    waits.into_iter().filter(spared).any(|(nr, args)| {
        loop {
            // SAFETY: numbers.
            match errno::check(unsafe { syscall6(nr, args) }) {
                Err(Errno::EINTR) => {}
                answer => return answer.is_ok(),
            }
        }
    })
}
