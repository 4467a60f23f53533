//! Raw host system calls: never a libc name that a door interposes, so no recursion. rustix (its `linux_raw`
//! backend) serves where our own objects are meant; these serve where the program's pointers go to the kernel
//! unlooked-at, so that a bad one is `-EFAULT` and never a SIGSEGV.
#![allow(unsafe_code)]

use core::arch::asm;

pub use linux_raw_sys::general as nr;

/// A raw system call with up to six arguments; answers the kernel's `rax`.
///
/// Callers pass only addresses that the kernel itself checks, or memory they own for the call's duration;
/// [`nr`] has the numbers. This is a safe function because the kernel's own checks keep *Rust-owned* memory from
/// being misused only if the caller passes the right arguments: it is crate-private for that reason, and each
/// caller names what it passes.
#[inline(always)]
pub(crate) fn syscall6(n: u32, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the instruction clobbers rax, rcx and r11 only, as declared; the callers uphold the argument rules above.
    unsafe {
        asm!("syscall", inlateout("rax") n as usize => ret, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

macro_rules! sys {
    ($n:ident $(, $a:expr)* $(,)?) => {
        $crate::sys::syscall6($crate::sys::nr::$n, $crate::sys::args([$($a as usize),*]))
    };
}
pub(crate) use sys;

/// Pads an argument list to six.
#[inline(always)]
pub(crate) const fn args<const N: usize>(a: [usize; N]) -> [usize; 6] {
    let mut out = [0; 6];
    let mut i = 0;
    while i < N {
        out[i] = a[i];
        i += 1;
    }
    out
}
