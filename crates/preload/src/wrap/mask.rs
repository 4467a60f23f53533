//! sigprocmask(2), by name and by number, and pthread_sigmask(3), while SIGSYS is ours.
//!
//! A trapped call under a blocked SIGSYS kills, so the signal is left out of every mask that would
//! block it. The program is still shown the mask that it has set. If somebody sends SIGSYS to a
//! thread that means to block it, the signal stays pending.
#![allow(unsafe_code)]

use crate::intercept::sigsys;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8};
use libc::sigset_t;
use softring_host::user::{self, UserPtr};

const UNSET: u8 = 0;
const OPEN: u8 = 1;
const BLOCKED: u8 = 2;

/// A thread's intention about SIGSYS.
struct Mask {
    /// Open or blocked; [`UNSET`]: the thread has the mask that it was made with.
    wish: AtomicU8,
    pending: AtomicBool,
}

softring_host::per_thread! {
    /// The calling thread's intention; atomics, because a handler on the same thread sees them.
    static MASK: Mask =
        const { Mask { wish: AtomicU8::new(UNSET), pending: AtomicBool::new(false) } };
}

/// Intention of the thread that has set its mask last: a new thread has the mask of its maker.
static LAST: AtomicBool = AtomicBool::new(false);

/// Returns whether the calling thread means to block SIGSYS.
pub fn is_blocked() -> bool {
    match MASK.with(|m| m.wish.load(Relaxed)) {
        UNSET => LAST.load(Relaxed),
        wish => wish == BLOCKED,
    }
}

/// Notes whether the calling thread means to block SIGSYS.
pub fn set(blocked: bool) {
    MASK.with(|m| m.wish.store(if blocked { BLOCKED } else { OPEN }, Relaxed));
    LAST.store(blocked, Relaxed);
}

/// Returns whether a SIGSYS that somebody has sent stays pending until the thread unblocks it.
pub fn keeps_pending() -> bool {
    let blocked = is_blocked();
    if blocked {
        MASK.with(|m| m.pending.store(true, Relaxed));
    }
    blocked
}

/// `sigprocmask(2)`: examine and change blocked signals.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    let next = next!(c"sigprocmask", fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    let call = |set| {
        // SAFETY: the program's own call, or the same with a set of ours.
        next.map_or(-1, |f| unsafe { f(how, set, old) })
    };
    // SAFETY: as above.
    unsafe { change(how, set, old, call) }
}

/// `pthread_sigmask(3)`: examine and change mask of blocked signals.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let next = next!(c"pthread_sigmask", fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    let call = |set| {
        // SAFETY: as in `sigprocmask`.
        next.map_or(libc::ENOSYS, |f| unsafe { f(how, set, old) })
    };
    // SAFETY: as above.
    unsafe { change(how, set, old, call) }
}

/// # Safety
/// As for sigprocmask(2), which `call` is.
unsafe fn change(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
    call: impl FnOnce(*const sigset_t) -> c_int,
) -> c_int {
    if !sigsys::handling() {
        return call(new);
    }
    // SAFETY: the program's sets, which libc reads and writes just so; the copy is ours.
    unsafe {
        let mut open = new.as_ref().copied();
        let has = open.as_mut().map(|set| {
            let has = raw::has_signal(set, libc::SIGSYS);
            // A call that unblocks SIGSYS may do so.
            if how != libc::SIG_UNBLOCK {
                raw::remove_signal(set, libc::SIGSYS);
            }
            has
        });
        let ret = call(open.as_ref().map_or(core::ptr::null(), core::ptr::from_ref));
        if ret == 0 {
            if let Some(old) = old.as_mut().filter(|_| is_blocked()) {
                raw::add_signal(old, libc::SIGSYS);
            }
            record(how, has);
        }
        ret
    }
}

/// Handles rt_sigprocmask(2) by number: the kernel's set, its order of checks, its errors.
///
/// # Safety
/// The arguments are those of a call that the program makes.
pub unsafe fn raw_sigprocmask(how: c_int, new: usize, old: usize, size: usize) -> isize {
    const SIGSYS: u64 = 1 << (libc::SIGSYS - 1);
    let call = |new: usize| {
        // SAFETY: the program's own call, or the same with a set of ours.
        unsafe { raw!(libc::SYS_rt_sigprocmask, how, new, old, size) }
    };
    if size != size_of::<u64>() || !sigsys::handling() {
        return call(new);
    }
    let Ok(set) = (new != 0).then(|| user::read::<u64>(new as u64)).transpose() else {
        return -(libc::EFAULT as isize);
    };
    let open = set.map(|set| if how == libc::SIG_UNBLOCK { set } else { set & !SIGSYS });
    let ret = call(open.as_ref().map_or(0, |open| core::ptr::from_ref(open).expose_provenance()));
    if ret == 0 {
        if old != 0 && is_blocked() {
            let shown = user::read::<u64>(old as u64).map(|old| old | SIGSYS);
            // SAFETY: the argument of the program's call.
            let to = unsafe { UserPtr::of_program(old as u64) };
            let _ = shown.and_then(|shown| user::write(to, &shown));
        }
        record(how, set.map(|set| set & SIGSYS != 0));
    }
    ret
}

/// Records a call that has succeeded. `has`: its set holds SIGSYS; `None`: there was no set.
fn record(how: c_int, has: Option<bool>) {
    let blocked = match (how, has) {
        (libc::SIG_SETMASK, Some(has)) => has,
        (libc::SIG_BLOCK, Some(true)) => true,
        (libc::SIG_UNBLOCK, Some(true)) => false,
        _ => return,
    };
    set(blocked);
    if !blocked && MASK.with(|m| m.pending.swap(false, Relaxed)) {
        raw::raise(libc::SIGSYS);
    }
}
