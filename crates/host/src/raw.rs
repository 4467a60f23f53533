//! The machine without the C library: a system call, the thread pointer, and the C library's names,
//! where the process has some.
#![allow(unsafe_code)]

use core::arch::asm;

pub use linux_raw_sys::general as nr;

/// Makes a raw system call; returns the kernel's `rax`: a value, or `-errno`. [`nr`] has the
/// numbers.
///
/// # Safety
/// Memory that the call writes is the caller's for its duration, or the program's, which has
/// offered it ([`crate::calls::UserPtr`]). Nobody uses a mapping or a descriptor any more that the
/// call takes away. The kernel itself checks addresses that it only reads.
#[inline(always)]
pub unsafe fn syscall(n: usize, a: &[usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the instruction clobbers rax, rcx and r11 only, as declared; the caller answers for
    // the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") n => ret,
            in("rdi") a[0],
            in("rsi") a[1],
            in("rdx") a[2],
            in("r10") a[3],
            in("r8") a[4],
            in("r9") a[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    ret
}

/// Makes a thread by clone(2), with its five arguments `a`: flags, upper end of the stack, two
/// addresses for the thread's number, thread pointer. The thread calls `entry` with `word`, and
/// ends when this returns. Returns the kernel's answer in the calling thread.
///
/// # Safety
/// The stack is the thread's alone. `entry` is an `extern "C"` function that takes a word, and what
/// it uses lives long enough.
pub(crate) unsafe fn clone(a: [usize; 5], entry: usize, word: usize) -> isize {
    let ret: isize;
    // SAFETY: the new thread runs on its own stack and never comes back here; in this thread the
    // call is as any system call.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const nr::__NR_exit,
            inlateout("rax") nr::__NR_clone as isize => ret,
            in("rdi") a[0],
            in("rsi") a[1],
            in("rdx") a[2],
            in("r10") a[3],
            in("r8") a[4],
            in("r12") entry,
            in("r13") word,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    ret
}

/// Pads an argument list to six.
#[inline(always)]
pub const fn args<const N: usize>(a: [usize; N]) -> [usize; 6] {
    let mut out = [0; 6];
    let mut i = 0;
    while i < N {
        out[i] = a[i];
        i += 1;
    }
    out
}

/// Returns the thread pointer, which tells the calling thread from all others of its process.
#[inline(always)]
pub fn thread() -> usize {
    let at: usize;
    if crate::initial::is_by_register() {
        // SAFETY: the processor and the kernel have the instruction.
        unsafe { asm!("rdfsbase {}", out(reg) at, options(pure, nomem, nostack, preserves_flags)) };
        return at;
    }
    // SAFETY: the ABI has the thread control block's own address in its first word. It is the same
    // for as long as a function runs, so the compiler may keep it.
    unsafe { asm!("mov {}, fs:0", out(reg) at, options(pure, nomem, nostack, preserves_flags)) };
    at
}

/// Sets the signal mask by `rt_sigprocmask(2)`; returns the old mask.
pub(crate) fn set_sigmask(mask: u64) -> u64 {
    const SIG_SETMASK: usize = 2;
    let mut old = 0u64;
    let new = core::ptr::from_ref(&mask).expose_provenance();
    let a = [SIG_SETMASK, new, (&raw mut old).expose_provenance(), 8, 0, 0];
    // SAFETY: both masks are ours, of eight bytes.
    unsafe { syscall(nr::__NR_rt_sigprocmask as usize, &a) };
    old
}

/// Returns the address of a name that the process may define or not; 0 if it does not. Unsafe as
/// assembly, which reads a word that the loader has filled in.
#[macro_export]
macro_rules! weak {
    ($name:literal) => {{
        let at: usize;
        core::arch::asm!(
            concat!(".weak ", $name),
            concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
            out(reg) at,
            options(pure, nomem, nostack, preserves_flags),
        );
        at
    }};
}
pub use crate::weak;

/// Returns the function of a name that the process may define or not, as
/// `weak_fn!("raise", extern "C" fn(c_int) -> c_int)`. Unsafe: the type is as the name's manual
/// page says.
#[macro_export]
macro_rules! weak_fn {
    ($name:literal, $t:ty) => {
        core::mem::transmute::<usize, Option<$t>>($crate::raw::weak!($name))
    };
}
pub use crate::weak_fn;
