//! The start of a program without a dynamic loader. The stack that execve(2) has made for it
//! holds the environment and the auxiliary vector, which no C library tells here. Its threads may
//! have anything in the word that the thread pointer leads to: Go has a zero there.
#![allow(unsafe_code)]

use core::ffi::c_char;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

/// State of this module. Set before there are threads; all zero in a program with a loader.
#[repr(C)]
#[derive(Debug)]
pub struct Program {
    /// Flag, true if the thread pointer is read by RDFSBASE. Assembly reads it.
    by_register: AtomicBool,
    /// Address of the argument count.
    stack: AtomicPtr<usize>,
    /// The environment, as a C library has it in its variable `environ`.
    environ: AtomicPtr<*const c_char>,
}

/// Offset, for assembly, of the byte that is 1 if the thread pointer is read by RDFSBASE.
pub const BY_REGISTER: usize = core::mem::offset_of!(Program, by_register);

pub static PROGRAM: Program = Program {
    by_register: AtomicBool::new(false),
    stack: AtomicPtr::new(null_mut()),
    environ: AtomicPtr::new(null_mut()),
};

/// Notes where the stack begins.
///
/// # Safety
/// `stack` is the stack pointer with which the program began. The program leaves what is above as
/// it is, as far as C libraries rely on that, too.
pub unsafe fn begins_at(stack: *mut usize) {
    PROGRAM.stack.store(stack, Relaxed);
    PROGRAM.environ.store(environment(), Relaxed);
}

/// Has thread pointers read by RDFSBASE from now on.
///
/// # Safety
/// The processor and the kernel have that instruction.
pub unsafe fn by_register() {
    PROGRAM.by_register.store(true, Relaxed);
}

#[inline(always)]
pub(crate) fn is_by_register() -> bool {
    PROGRAM.by_register.load(Relaxed)
}

/// Returns whether this program has no dynamic loader.
pub fn is_known() -> bool {
    !PROGRAM.stack.load(Relaxed).is_null()
}

/// Returns the address of a variable like `environ`, which is null in a program with a loader.
pub(crate) fn environ() -> *mut *const *const c_char {
    PROGRAM.environ.as_ptr().cast()
}

fn environment() -> *mut *const c_char {
    let stack = PROGRAM.stack.load(Relaxed);
    if stack.is_null() {
        return null_mut();
    }
    // SAFETY: the count, as many arguments, and a null.
    unsafe { stack.add(*stack + 2).cast() }
}

/// Returns a value of the auxiliary vector, if it is there and not 0.
pub fn auxiliary(kind: usize) -> Option<usize> {
    const NULL: usize = 0;
    let mut at = environment().cast::<usize>();
    if at.is_null() {
        return None;
    }
    // SAFETY: the environment ends with a null; then come pairs, the last of which is of NULL.
    unsafe {
        while *at != 0 {
            at = at.add(1);
        }
        at = at.add(1);
        while *at != NULL {
            if *at == kind {
                return Some(*at.add(1)).filter(|value| *value != 0);
            }
            at = at.add(2);
        }
    }
    None
}
