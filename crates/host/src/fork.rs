//! Forked children. The kernel wipes a page of ours in a forked child (MADV_WIPEONFORK), however
//! the fork was made. A wiped page tells that our threads, epoll sets and aio contexts are gone. A
//! vfork child shares our memory and sees the page unwiped, but has another pid.
//!
//! Each module with process-wide state declares an [`AtFork`] for it. `process::forked` has them
//! all, in the order in which a child runs them. The conformance crate's `layers` test fails if one
//! is not there.
#![allow(unsafe_code)]

use crate::lock::OnceLock;
use alloc::boxed::Box;
use core::any::Any;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use crate::os::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::refused;
use crate::sys::{any_syscall, args, nr, sys, syscall6};
use softring_uapi::errno::{self, Errno};

static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
/// The holder before the first ring: any process, of no known namespace.
static HOLDER: AtomicU64 = AtomicU64::new(1);

/// Facts about the forks between the first process that made a ring and this one.
struct Forks {
    count: AtomicU32,
    /// Flag, set if the last of them was noticed late.
    late: AtomicBool,
    /// Forks in progress that began before the first ring, and so hold no lock.
    bare: AtomicU32,
}

static FORKS: Forks =
    Forks { count: AtomicU32::new(0), late: AtomicBool::new(false), bare: AtomicU32::new(0) };

crate::per_thread! {
    /// The calling thread's part of [`Forks::bare`]: a handler may fork amid a fork.
    static BARE: Cell<u32> = const { Cell::new(0) };
}

/// Function that a child runs for all process-wide state.
static IN_CHILD: OnceLock<unsafe fn()> = OnceLock::new();

/// Steps for a module's process-wide state when the process forks.
#[derive(Debug)]
pub struct AtFork {
    /// The step before the fork: takes the lock that the child must find free. Called with the
    /// locks of all rings held.
    pub hold: fn() -> Option<Box<dyn Any>>,
    /// The step in the child, which holds no lock any more. If the fork was noticed late, a thread
    /// that the child does not have may hold a lock for ever.
    ///
    /// # Safety
    /// This is a forked child that has not been here before, with one thread, which is in no call
    /// of the engine.
    pub child: unsafe fn(&Child),
}

/// Declares that a forked child leaves a piece of its process's state as it is, and why.
#[inline(always)]
pub const fn keeps<T>(_: &T, _why: &'static str) {}

/// Facts about a forked child.
#[derive(Clone, Copy, Debug)]
pub struct Child {
    /// Process that forked the child; 0 if that process never made a ring.
    pub parent: u32,
    /// Flag, true if the child has run before: nobody reported the fork, and it may have POSIX
    /// locks.
    pub late: bool,
}

impl AtFork {
    /// Declares state that is whole without a lock.
    pub const fn new(child: unsafe fn(&Child)) -> AtFork {
        AtFork { hold: || None, child }
    }

    /// Declares state that is whole while the lock of `hold` is held.
    pub const fn locked(hold: fn() -> Option<Box<dyn Any>>, child: unsafe fn(&Child)) -> AtFork {
        AtFork { hold, child }
    }
}

/// Fork step for the identity of the process.
pub const AT_FORK: AtFork = AtFork::new(|child| rebuild(child.late));

/// Sets the function that [`check`] calls in a new child. It belongs to the layer that knows all
/// state, and may rely on being called in a forked child, once, before any thread there has used
/// the engine.
pub fn noticed_by(in_child: unsafe fn()) {
    let _ = IN_CHILD.set(in_child);
}

/// Notices a fork that nobody reported (by a raw system call).
pub fn check() {
    if in_new_child() {
        // Before the first ring, only this module has state of another process.
        let Some(in_child) = IN_CHILD.get() else { return rebuild(true) };
        // SAFETY: the page says that this child has not rebuilt its engine, and each call of the
        // engine checks first: this is the first. The thread that forked is the only one here, but
        // for those that a program makes behind our back and calls the engine from at once, which
        // then race as they would in the program's own memory.
        unsafe { in_child() };
    }
}

/// Returns whether this process, a forked child, may have had POSIX locks before it closed its
/// inherited descriptors.
pub fn noticed_late() -> bool {
    FORKS.late.load(Relaxed)
}

/// Returns a count that tells a process from those that it was forked from.
#[inline(always)]
pub fn generation() -> u32 {
    FORKS.count.load(Relaxed)
}

/// Returns our process id, cached; 0 before the first ring.
pub fn pid() -> u32 {
    PID.load(Relaxed)
}

/// Returns our process id, with the number of its pid namespace in the upper half, or 0 there if
/// that is not known. The locks that rings share name their holder so.
#[inline]
pub fn holder() -> u64 {
    HOLDER.load(Relaxed)
}

/// Learns our process id and pid namespace.
fn learn() {
    let pid = asked_pid();
    // The kernel counts namespaces with 32 bits.
    let namespace = crate::os::fs::stat(c"/proc/self/ns/pid").map_or(0, |s| s.st_ino as u32);
    HOLDER.store(u64::from(namespace) << 32 | u64::from(pid), Relaxed);
    PID.store(pid, SeqCst);
}

/// Begins a fork that needs no lock, as there was no ring yet; false if there is one by now.
///
/// ```text
/// who forks                   who makes the first ring
/// is there a ring? no
///                             takes a lock
/// fork(2): the child finds
/// it taken, for ever
/// ```
///
/// So who makes the ring waits for such forks ([`init`]), and who forks counts itself before it
/// asks.
pub fn begin_bare() -> bool {
    FORKS.bare.fetch_add(1, SeqCst);
    BARE.set(BARE.get() + 1);
    PID.load(SeqCst) == 0 || {
        end_bare();
        false
    }
}

/// Ends such a fork in the parent; nothing for others.
pub fn end_bare() {
    if let Some(rest) = BARE.get().checked_sub(1) {
        BARE.set(rest);
        FORKS.bare.fetch_sub(1, SeqCst);
    }
}

/// Waits until no other thread's fork is without locks. A program's own fork handler may wait for
/// this thread in turn, so it has an end.
#[cold]
fn wait_for_bare() {
    /// Half a second and more.
    const TIMES: u32 = 1 << 20;
    for _ in 0..TIMES {
        if FORKS.bare.load(SeqCst) <= BARE.get() {
            return;
        }
        // SAFETY: no arguments.
        unsafe { sys!(__NR_sched_yield) };
    }
}

/// Marks this address space as ours. Called before the first ring is made.
pub fn init() {
    mark();
    if FORKS.bare.load(SeqCst) > 0 {
        wait_for_bare();
    }
}

fn mark() {
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

/// Returns whether this is a forked child that has not rebuilt its engine yet.
pub fn in_new_child() -> bool {
    let word = PAGE.load(Acquire);
    // SAFETY: non-null means `init` mapped it, and it is never unmapped.
    !word.is_null() && unsafe { (*word).load(Relaxed) } == 0 && pid() != asked_pid()
}

fn asked_pid() -> u32 {
    crate::os::process::getpid().cast_unsigned()
}

/// Makes the engine the child's own. `late`: the child has run before, and may have POSIX locks.
fn rebuild(late: bool) {
    crate::per_thread::fork_child(late);
    FORKS.late.store(late, Relaxed);
    FORKS.bare.store(0, Relaxed);
    BARE.set(0);
    // Otherwise the first ring does.
    if pid() != 0 {
        learn();
    }
    FORKS.count.fetch_add(1, Relaxed);
    let word = PAGE.load(Acquire);
    if !word.is_null() {
        // SAFETY: as in `in_new_child`.
        unsafe { (*word).store(1, Relaxed) };
    }
}

/// Returns whether the caller is a vfork child (or another process that shares our memory), which
/// must not touch the engine.
pub fn is_vfork_child() -> bool {
    pid() != 0 && !in_new_child() && pid() != asked_pid()
}

/// Returns whether known filters let a child be made, waited for and ended.
pub(crate) fn is_spared() -> bool {
    let spares = |nr: u32| refused::spares(nr.into());
    spares(nr::__NR_clone)
        && spares(nr::__NR_exit_group)
        && (spares(nr::__NR_wait4) || spares(nr::__NR_waitid))
}

/// Returns whether the next child would be the first process of a pid namespace, which would end
/// with that child: the program has called unshare(2), and is about to fork.
pub(crate) fn would_found_a_namespace() -> bool {
    let of = |path: &core::ffi::CStr| crate::os::fs::stat(path).ok().map(|s| s.st_ino);
    let [own, childrens] = [c"/proc/self/ns/pid", c"/proc/self/ns/pid_for_children"].map(of);
    // The namespace has no file until it has its first process.
    own.is_some() && own != childrens
}

/// A child that has ended.
#[must_use]
pub(crate) struct Ended(Option<usize>);

impl Ended {
    /// Reaps the child, by a call that waits for one.
    pub(crate) fn reap(self) {
        self.0.into_iter().for_each(reap);
    }
}

/// Runs `f`, which only makes system calls, in a child; returns when the child has ended, or `None`
/// if no child can be made. The program does not see that child: it ends without a signal, and only
/// `__WALL` finds it. The caller has signals blocked.
///
/// # Safety
/// `f` is sound in a child of a process with threads: it takes no lock, and allocates nothing.
pub(crate) unsafe fn in_child(f: impl FnOnce()) -> Option<Ended> {
    const VFORK: usize = 0x4000;
    if crate::valgrind::runs() {
        // Valgrind knows no child with memory of its own that this thread waits for.
        // SAFETY: the caller's.
        let child = unsafe { start(0, f) }?;
        reap(child);
        return Some(Ended(None));
    }
    // SAFETY: as above.
    unsafe { start(VFORK, f) }.map(|child| Ended(Some(child)))
}

/// Starts a child that runs `f`; returns its number.
///
/// # Safety
/// As for [`in_child`].
unsafe fn start(flags: usize, f: impl FnOnce()) -> Option<usize> {
    const RLIMIT_CORE: usize = 4;
    // The least limit that prevents a core file, also if core dumps go to a program.
    let no_core = [1u64; 2];
    // SAFETY: the child has a copy of this stack and runs `f`, which our caller answers for.
    let pid = unsafe { syscall6(nr::__NR_clone, args([flags])) };
    if pid == 0 {
        let limit = no_core.as_ptr().expose_provenance();
        if refused::spares(nr::__NR_prlimit64.into()) {
            // SAFETY: the kernel reads the limits.
            unsafe { syscall6(nr::__NR_prlimit64, args([0, RLIMIT_CORE, limit])) };
        }
        f();
        loop {
            // SAFETY: numbers. If exit_group(2) is refused, exit(2) does: the child has no other
            // thread.
            unsafe {
                syscall6(nr::__NR_exit_group, [0; 6]);
                syscall6(nr::__NR_exit, [0; 6]);
            }
        }
    }
    usize::try_from(pid).ok()
}

/// Waits for the end of such a child, if a call may be made that does.
fn reap(pid: usize) {
    const WALL: usize = 0x4000_0000;
    const P_PID: usize = 1;
    const WEXITED: usize = 4;
    let spared = |call: &(u32, [usize; 6])| refused::spares(call.0.into());
    let waits = [
        (nr::__NR_wait4, args([pid, 0, WALL])),
        (nr::__NR_waitid, args([P_PID, pid, 0, WEXITED | WALL])),
    ];
    // One of the two calls, which do the same, may be refused.
    waits.into_iter().filter(spared).any(|(nr, args)| {
        loop {
            // SAFETY: numbers.
            match errno::check(unsafe { any_syscall(nr, args) }) {
                Err(Errno::EINTR) => {}
                answer => return answer.is_ok(),
            }
        }
    });
}
