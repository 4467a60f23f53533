//! The calling process: the one that was started, a fork of it, or a vfork child that shares its
//! memory.
//!
//! `fork(3)` tells us through `pthread_atfork`. A fork by raw system call does not, but wipes
//! [`Mark`]'s page (`MADV_WIPEONFORK`), which the next call through an entry point sees. A vfork
//! child sees its parent's memory unchanged, so only its process number differs.
//!
//! A thread that leaves requests in flight gets a value under a key of pthreads, whose destructor
//! runs when the thread ends. The destructor of a thread-local would also run when the thread calls
//! `exit(3)`, whose handlers may go on using their rings.
#![allow(unsafe_code)]

use crate::config;
use crate::intercept::patch::straddle;
use crate::raw::{self, raw, weak_fn};
use crate::wrap::epoll;
use crate::wrap::handlers;
use crate::{heap, notice};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use softring_engine::exit;
use softring_engine::fork;
use softring_engine::task;
use softring_host::refused;

/// A page of our own; all zero in a fork.
struct Mark {
    alive: AtomicBool,
}

static MARK: AtomicPtr<Mark> = AtomicPtr::new(core::ptr::null_mut());
static FAMILY: AtomicPtr<AtomicBool> = AtomicPtr::new(core::ptr::null_mut());
static PID: AtomicI32 = AtomicI32::new(0);
const PAGE: usize = 4096;
/// Key that tells us of the ends of threads, as `pthread_key_create` numbers it.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// Notes the process number, and asks to be told of forks and of the engine's needs.
pub fn start() {
    PID.store(getpid(), Ordering::Relaxed);
    softring_host::per_thread::prepare();
    if config::aio_hipri() {
        handlers::activate();
    }
    fork::notice();
    softring_host::handlers::on_need(handlers::activate);
    softring_host::threads::start_by(crate::threads::start);
    refused::on_want(notice::wanting);
    if crate::loaders::runs_on_musl() {
        softring_host::sys::runs_on_musl();
    }
    // SAFETY: the three functions take and return nothing, and stay loaded: this library is never
    // unloaded.
    if !unsafe { crate::loaders::at_fork(Some(prepare), Some(parent), Some(child)) } {
        share_family();
    }
}

/// Prepares for a ring of this process. The first time, marks the memory that tells forks apart,
/// and asks to be told of threads that leave requests in flight.
pub fn first_ring() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if !ASKED.swap(true, Ordering::Relaxed) {
        handlers::activate();
        if key().is_some() {
            task::on_first(thread_begins);
        }
    }
    if MARK.load(Ordering::Acquire).is_null() {
        let page = raw::map(PAGE, libc::MAP_PRIVATE).cast::<Mark>();
        if !page.is_null() {
            // SAFETY: a fresh page of ours, all zero, which is a valid `Mark`.
            unsafe {
                if refused::works(libc::SYS_madvise) {
                    raw!(libc::SYS_madvise, page.expose_provenance(), PAGE, libc::MADV_WIPEONFORK);
                }
                (*page).alive.store(true, Ordering::Relaxed);
            }
            MARK.store(page, Ordering::Release);
        }
    }
}

/// Returns the key, made at the first need.
fn key() -> Option<u32> {
    type End = extern "C" fn(*mut c_void);
    // Relaxed throughout: a number that has a meaning only for the C library.
    let known = KEY.load(Ordering::Relaxed);
    if known != NO_KEY {
        return Some(known);
    }
    let mut new = 0;
    // SAFETY: the destructor stays loaded; `new` is ours, and the key that nobody uses is given
    // back.
    unsafe {
        let create = weak_fn!("pthread_key_create", extern "C" fn(*mut u32, End) -> c_int)?;
        if create(&raw mut new, thread_ends) != 0 {
            return None;
        }
        match KEY.compare_exchange(NO_KEY, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(new),
            Err(other) => {
                weak_fn!("pthread_key_delete", extern "C" fn(u32) -> c_int)?(new);
                Some(other)
            }
        }
    }
}

/// Notes that a thread leaves its first request in flight, or has a stack of ours. Without memory
/// for the value, the thread's end goes unreported.
pub fn thread_begins() {
    if let Some(key) = key() {
        // SAFETY: a key of ours, whose value is never read.
        let set = unsafe { weak_fn!("pthread_setspecific", extern "C" fn(u32, usize) -> c_int) };
        let _ = set.map(|set| set(key, 1));
    }
}

extern "C" fn thread_ends(_: *mut c_void) {
    exit::task_ends();
    crate::children::thread_ends();
    crate::intercept::stack::thread_ends();
}

/// True for the first caller among this process and all that were forked from it since the
/// constructor ran.
pub fn first_in_family() -> bool {
    let flag = FAMILY.load(Ordering::Acquire);
    // SAFETY: a shared page of ours, never unmapped; zero is a valid AtomicBool.
    flag.is_null() || unsafe { !(*flag).swap(true, Ordering::Relaxed) }
}

/// Notices a fork that was not reported. Called before a call into the engine.
#[inline]
pub fn check_forked() {
    let mark = MARK.load(Ordering::Acquire);
    // SAFETY: a page of ours, never unmapped; zero (wiped) is a valid value.
    if let Some(mark) = unsafe { mark.as_ref() }
        && !mark.alive.load(Ordering::Relaxed)
    {
        child_once(mark);
    }
}

#[cold]
fn child_once(mark: &Mark) {
    if !mark.alive.swap(true, Ordering::AcqRel) {
        heap::fork_child();
        PID.store(getpid(), Ordering::Relaxed);
        straddle::fork_child();
        epoll::forked_unseen();
        fork::check();
    }
}

/// Makes a fork of which the C library does not tell us; `fork` returns as fork(2) does.
pub fn forks(fork: impl FnOnce() -> isize) -> isize {
    prepare();
    let pid = fork();
    let errno = raw::errno();
    if pid == 0 {
        child()
    } else {
        parent()
    }
    raw::set_errno(errno);
    pid
}

/// True in a vfork child, which shares our memory but is another process: a descriptor that the
/// child closes stays open here.
pub fn shares_memory() -> bool {
    check_forked();
    getpid() != PID.load(Ordering::Relaxed)
}

/// Returns the process number, as `start` or the last fork noted it.
pub fn id() -> i32 {
    PID.load(Ordering::Relaxed)
}

/// Returns the caller's process number, also in a vfork child; the noted one if the program's own
/// filter refuses the call.
pub fn getpid() -> i32 {
    if !refused::spares(libc::SYS_getpid) {
        return id();
    }
    // SAFETY: no arguments.
    unsafe { raw!(libc::SYS_getpid) as i32 }
}

/// Maps a page that forks share, so that one process of the family prints for all: at the first
/// fork, or at the start where nobody tells of forks.
fn share_family() {
    let page = raw::map(PAGE, libc::MAP_SHARED).cast::<AtomicBool>();
    FAMILY.store(page, Ordering::Release);
}

extern "C" fn prepare() {
    check_forked();
    if FAMILY.load(Ordering::Relaxed).is_null() {
        share_family();
    }
    epoll::fork_prepare();
    fork::prepare();
    straddle::fork_prepare();
}

extern "C" fn parent() {
    straddle::forked();
    fork::in_parent();
    epoll::forked(false);
}

extern "C" fn child() {
    heap::fork_child();
    straddle::fork_child();
    PID.store(getpid(), Ordering::Relaxed);
    let mark = MARK.load(Ordering::Acquire);
    if !mark.is_null() {
        // SAFETY: as in `check_forked`; the child is single-threaded here.
        unsafe { (*mark).alive.store(true, Ordering::Relaxed) };
    }
    // SAFETY: the handler of a fork runs in the fresh child, on the thread that forked, before the
    // program goes on.
    unsafe { fork::in_child() };
    epoll::forked(true);
}
