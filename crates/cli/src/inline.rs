//! The calls of io_uring by inline instructions, as liburing makes them and softring patches them.
#![allow(unsafe_code)]

use std::arch::asm;

macro_rules! inline {
    ($nr:literal, $a:expr, $b:expr, $c:expr, $d:expr) => {{
        let ret: isize;
        // SAFETY: the instruction clobbers rax, rcx and r11 only, as declared; the caller answers
        // for the arguments.
        unsafe {
            asm!(
                concat!("mov eax, ", $nr),
                "syscall",
                out("rax") ret,
                in("rdi") $a,
                in("rsi") $b,
                in("rdx") $c,
                in("r10") $d,
                in("r8") 0usize,
                in("r9") 0usize,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        ret
    }};
}

/// Calls io_uring_setup(2).
///
/// # Safety
/// The caller answers for the parameters.
#[inline(never)]
pub unsafe fn setup(entries: usize, params: usize) -> isize {
    inline!("425", entries, params, 0usize, 0usize)
}

/// Calls io_uring_enter(2).
///
/// # Safety
/// The caller answers for what the SQEs name.
#[inline(never)]
pub unsafe fn enter(ring: usize, submit: usize, min: usize, flags: usize) -> isize {
    inline!("426", ring, submit, min, flags)
}

/// Calls close(2) of the C library, as liburing's caller may.
///
/// # Safety
/// The descriptor is the caller's.
pub unsafe fn close(fd: usize) -> isize {
    // SAFETY: the caller's.
    unsafe { libc::close(fd as i32) as isize }
}
