//! System calls below the entry points, and libc's names behind them. A raw call never goes through
//! a name that this library interposes, so nothing here can recurse.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use softring_host::initial;

/// A raw system call: a program's own, passed on unread, or one of ours.
pub use softring_host::raw::syscall as syscall6;
pub use softring_host::raw::{thread, weak_fn};

/// [`syscall6`] with fewer arguments: `raw!(libc::SYS_close, fd)`.
macro_rules! raw {
    ($nr:expr $(, $arg:expr)* $(,)?) => {
        $crate::raw::syscall6($nr as usize, &softring_host::raw::args([$($arg as usize),*]))
    };
}
pub(crate) use raw;

/// Maps zeroed memory, private or shared; null without memory. Does not call libc, so a signal
/// handler may call this.
pub fn map(bytes: usize, how: c_int) -> *mut u8 {
    let (prot, how) = (libc::PROT_READ | libc::PROT_WRITE, how | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { raw!(libc::SYS_mmap, 0, bytes, prot, how, usize::MAX, 0) };
    if at < 0 { core::ptr::null_mut() } else { core::ptr::with_exposed_provenance_mut(at as usize) }
}

/// Answers as libc does: `-errno` becomes -1, with `errno` set.
#[inline]
pub fn libc_answer(ret: isize) -> isize {
    if (-4095..0).contains(&ret) {
        fail(-ret as c_int);
        return -1;
    }
    ret
}

/// Answers as the kernel does: the -1 of a function of libc's becomes `-errno`.
#[inline]
pub fn kernel_answer(ret: c_int) -> isize {
    if ret == -1 { -(errno() as isize) } else { ret as isize }
}

/// Returns the calling thread's `errno`, which a caller keeps over calls of libc's. Where calls are
/// taken at their instructions alone, no call of ours goes to libc, and a thread may have no
/// `errno`.
pub fn errno() -> c_int {
    let at = if initial::is_known() { None } else { location() };
    // SAFETY: as in `fail`.
    at.map_or(0, |at| unsafe { *at })
}

/// Sets the calling thread's `errno` to what [`errno`] has returned.
pub fn set_errno(e: c_int) {
    if !initial::is_known() {
        fail(e);
    }
}

/// Sets the calling thread's `errno`, for the caller of a function of C.
pub fn fail(e: c_int) {
    if let Some(at) = location() {
        // SAFETY: libc's pointer to the calling thread's errno, valid while the thread lives.
        unsafe { *at = e }
    }
}

/// Returns where the calling thread's `errno` is; `None` without a C library.
fn location() -> Option<*mut c_int> {
    // SAFETY: the function of this name, in every C library.
    let ask = unsafe { weak_fn!("__errno_location", extern "C" fn() -> *mut c_int) };
    ask.map(|ask| ask())
}

/// `raise(3)`: send a signal to the caller.
pub fn raise(signo: c_int) {
    // SAFETY: numbers.
    unsafe {
        let (pid, tid) = (raw!(libc::SYS_getpid), raw!(libc::SYS_gettid));
        raw!(libc::SYS_tgkill, pid, tid, signo);
    }
}

/// Bit of a signal in a set's first word.
const fn bit(signo: c_int) -> u64 {
    1 << (signo - 1)
}

/// Returns a set's first word, which has all signals of Linux.
fn first_word(set: *mut libc::sigset_t) -> *mut u64 {
    set.cast()
}

/// `sigismember(3)`: test for a signal in a set.
///
/// # Safety
/// `set` can be read.
pub unsafe fn has_signal(set: *const libc::sigset_t, signo: c_int) -> bool {
    // SAFETY: the caller's.
    unsafe { *first_word(set.cast_mut()) & bit(signo) != 0 }
}

/// `sigaddset(3)`: add a signal to a set.
///
/// # Safety
/// `set` can be read and written.
pub unsafe fn add_signal(set: *mut libc::sigset_t, signo: c_int) {
    // SAFETY: the caller's.
    unsafe { *first_word(set) |= bit(signo) }
}

/// `sigdelset(3)`: delete a signal from a set.
///
/// # Safety
/// As [`add_signal`].
pub unsafe fn remove_signal(set: *mut libc::sigset_t, signo: c_int) {
    // SAFETY: the caller's.
    unsafe { *first_word(set) &= !bit(signo) }
}

/// The next definition of a libc name after ours, looked up once.
#[repr(C)]
pub struct Next {
    name: &'static CStr,
    addr: AtomicPtr<c_void>,
}

impl Next {
    /// Offset of the name's address, which is null until it is resolved.
    pub const ADDRESS: usize = core::mem::offset_of!(Next, addr);

    pub const fn new(name: &'static CStr) -> Self {
        Self { name, addr: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Returns the name's address; null if this libc has no such name.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        // Relaxed: the value is an address into a library that is mapped for good, and every lookup
        // finds the same.
        let found = self.addr.load(Ordering::Relaxed);
        if found.is_null() { self.look_up() } else { found }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let found = crate::dynamic::next(self.name);
        self.addr.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls libc's own definition of an interposed name: `next!(c"dup", fn(c_int) -> c_int)(fd)`.
macro_rules! next {
    ($name:literal, fn($($t:ty),*) -> $r:ty) => {{
        static NEXT: $crate::raw::Next = $crate::raw::Next::new($name);
        // SAFETY: the address is that of the libc function of this name, whose signature the man
        // page gives.
        unsafe {
            core::mem::transmute::<
                *mut core::ffi::c_void,
                Option<unsafe extern "C" fn($($t),*) -> $r>,
            >(NEXT.get())
        }
    }};
}
pub(crate) use next;
