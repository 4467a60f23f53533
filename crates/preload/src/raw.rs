//! System calls below the entry points, and libc's names behind them. A raw call never goes through
//! a name that this library interposes, so nothing here can recurse.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// A raw system call: a program's own, passed on unread, or one of ours.
pub use softring_host::raw::syscall as syscall6;
pub use softring_host::raw::thread;

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
        set_errno(-ret as c_int);
        return -1;
    }
    ret
}

/// Returns the calling thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: libc's pointer to the calling thread's errno, valid while the thread lives.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(e: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = e }
}

/// The next definition of a libc name after ours, looked up once.
pub struct Next {
    name: &'static CStr,
    addr: AtomicPtr<c_void>,
}

impl Next {
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
        // SAFETY: a NUL-terminated name; RTLD_NEXT is resolved from this library's place in the
        // search order.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
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
