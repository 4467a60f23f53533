//! libc's `syscall()`: the entry point of Rust's io-uring, libuv, Netty, libaio, and of fio's
//! setup.
//!
//! These numbers are checked: 425..=427, those of kernel aio, rt_sigaction, rt_sigprocmask, execve
//! and execveat, of calls that change a thread's rights and, once there are rings, of calls that
//! close, duplicate or map a descriptor (libuv closes every descriptor by number), or that fork.
//! Every other number leaves by a tail jump, with registers and stack untouched, to the next
//! `syscall` (libc's): no frame of ours is in the way of `syscall(SYS_vfork)`, or of a clone(2)
//! that shares memory, whose child returns on the caller's stack. While all rings are the kernel's,
//! io_uring_enter(2) leaves so to a function that only makes the call.
#![allow(unsafe_code)]

use super::libaio::{FIRST, PGETEVENTS};
use super::stack::{self, enter_stack, leave_stack};
use crate::raw::{self, Next};
use crate::wrap::{fork, rights};
use crate::{gate, report};
use core::arch::naked_asm;
use core::ffi::{c_long, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use softring_host::initial::{BY_REGISTER, PROGRAM};
use softring_host::per_thread::{FACTOR, HEADS_LEN, PROCESS};

/// Target for other numbers: [`plain`] until the constructor has found libc's.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(plain as *mut c_void);

/// Finds libc's `syscall`.
pub fn open() {
    static LIBC: Next = Next::new(c"syscall");
    let next = LIBC.get();
    if !next.is_null() {
        NEXT.store(next, Ordering::Relaxed);
    }
}

/// Returns the address of the `syscall` that other numbers go to, once it is found.
pub fn next() -> Option<usize> {
    let next = NEXT.load(Ordering::Relaxed);
    (next != plain as *mut c_void).then(|| next.expose_provenance())
}

/// `syscall(2)`: indirect system call. Variadic in C, which on x86_64 passes integers as it passes
/// any others.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn syscall() -> c_long {
    naked_asm!(
        // Only the low 32 bits of the number count, as in the kernel.
        "lea eax, [rdi - 425]; cmp eax, 2",
        "ja 3f",
        "cmp eax, 1; jne {ours}",
        // An enter is the kernel's alone if all rings are. libc's function would check it again.
        "cmp byte ptr [rip + {kernel_rings}], 0; je {ours}",
        "cmp byte ptr [rip + {engine_rings}], 0; jne {ours}",
        "jmp {plain}",
        "3: lea eax, [rdi - {aio}]; cmp eax, 4; jbe {ours}",
        "cmp edi, {pgetevents}; je {ours}",
        "lea eax, [rdi - {setuid}]",
        "cmp eax, {setuid_to_capset}",
        "jbe {rights}",
        "cmp edi, {prctl}; je {rights}; cmp edi, {unshare}; je {rights}",
        "cmp edi, {setns}; je {rights}; cmp edi, {seccomp}; je {rights}",
        "cmp edi, 446", // landlock_restrict_self
        "je {rights}",
        "lea eax, [rdi - {rt_sigaction}]; cmp eax, {to_sigprocmask}",
        "jbe {ours}",
        "cmp edi, {execve}; je {ours}",
        "cmp edi, {execveat}; je {ours}",
        "cmp byte ptr [rip + {watched}], 0",
        "je 2f",
        "lea eax, [rdi - {clone}]; cmp eax, {clone_to_fork}; jbe {forks}",
        "cmp edi, {close}; je {ours}; cmp edi, {close_range}; je {ours}",
        "lea eax, [rdi - {dup}]",
        "cmp eax, {dup_to_dup2}",
        "jbe {ours}",
        "cmp edi, {dup3}; je {ours}",
        "cmp edi, {fcntl}; je {ours}",
        "cmp edi, {mmap}; je {ours}",
        "lea eax, [rdi - {epoll_wait}]; cmp eax, 1",
        "jbe {ours}",
        "cmp edi, {epoll_pwait}; je {ours}; cmp edi, {epoll_pwait2}; je {ours}",
        "2:",
        "jmp qword ptr [rip + {next}]",
        ours = sym ours,
        rt_sigaction = const libc::SYS_rt_sigaction,
        to_sigprocmask = const libc::SYS_rt_sigprocmask - libc::SYS_rt_sigaction,
        watched = sym gate::WATCHED,
        clone = const libc::SYS_clone,
        clone_to_fork = const libc::SYS_fork - libc::SYS_clone,
        forks = sym forks,
        plain = sym plain,
        kernel_rings = sym gate::KERNEL_RINGS,
        engine_rings = sym gate::ENGINE_RINGS,
        close = const libc::SYS_close,
        close_range = const libc::SYS_close_range,
        dup = const libc::SYS_dup,
        dup_to_dup2 = const libc::SYS_dup2 - libc::SYS_dup,
        dup3 = const libc::SYS_dup3,
        fcntl = const libc::SYS_fcntl,
        mmap = const libc::SYS_mmap,
        epoll_wait = const libc::SYS_epoll_wait,
        epoll_pwait = const libc::SYS_epoll_pwait,
        epoll_pwait2 = const libc::SYS_epoll_pwait2,
        execve = const libc::SYS_execve,
        execveat = const libc::SYS_execveat,
        aio = const FIRST,
        pgetevents = const PGETEVENTS,
        rights = sym simple,
        setuid = const libc::SYS_setuid,
        setuid_to_capset = const libc::SYS_capset - libc::SYS_setuid,
        prctl = const libc::SYS_prctl,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        seccomp = const libc::SYS_seccomp,
        next = sym NEXT,
    )
}

/// Answers fork(2), and a clone(2) that does the same; any other clone(2) leaves as other numbers.
#[unsafe(naked)]
unsafe extern "C" fn forks() -> c_long {
    naked_asm!(
        "cmp edi, {fork}; je {simple}",
        "test esi, {shares}; jnz 2f",
        // A child with a stack of its own does not return.
        "test rdx, rdx; jz {simple}",
        "2: jmp qword ptr [rip + {next}]",
        fork = const libc::SYS_fork,
        shares = const fork::SHARES,
        simple = sym simple,
        next = sym NEXT,
    )
}

/// Answers the checked calls that are not for [`simple`], as `syscall(nr, a0 … a5)`.
#[unsafe(naked)]
unsafe extern "C" fn ours() -> c_long {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push qword ptr [rbp + 16]",
        "push r9; push r8; push rcx; push rdx; push rsi",
        // The stack that is changed to, and the number.
        "push 0; push rdi",
        "mov r11, rdi",
        enter_stack!("56"),
        "mov edi, [rbp - 64]",
        "lea rsi, [rbp - 48]",
        "mov rdx, [rbp - 56]",
        "and rsp, -16",
        "call {call}",
        "mov r11, rax",
        "jmp 2f",
        "94:",
        "mov rdi, [rbp - 48]",
        "mov rsi, [rbp - 40]",
        "mov rdx, [rbp - 32]",
        "mov r10, [rbp - 24]",
        "mov r8, [rbp - 16]",
        "mov r9, [rbp - 8]",
        "mov eax, 426",
        "syscall",
        "mov r11, rax",
        "2:",
        "lea rsp, [rbp - 64]",
        leave_stack!("56"),
        "mov rdi, r11",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "jmp {answer}",
        ".cfi_endproc",
        call = sym call,
        answer = sym answer,
        program = sym PROGRAM,
        by_register = const BY_REGISTER,
        factor = const FACTOR,
        last = const HEADS_LEN - 1,
        heads = sym PROCESS,
        low = const stack::LOW,
        len = const stack::LEN,
        choose_stack = sym stack::choose_stack,
        give_back = sym stack::give_back,
    )
}

/// Passes a call to the gate. `stack`: the upper end of the stack of ours that this runs on; 0:
/// it runs on the program's.
unsafe extern "C" fn call(nr: usize, args: *const [usize; 6], stack: usize) -> isize {
    if stack != 0 {
        stack::entered(stack);
    }
    report::LIBC.add();
    // SAFETY: the program's own call; `ours` passes its own frame.
    unsafe { gate::call(nr, &*args) }
}

/// Answers calls on the program's own stack: forks, calls that change rights, and a few with
/// numbers between theirs.
unsafe extern "C" fn simple(
    nr: usize,
    a0: usize,
    a1: usize,
    a2: usize,
    a3: usize,
    a4: usize,
    a5: usize,
) -> c_long {
    let nr = nr & 0xffff_ffff;
    let args = [a0, a1, a2, a3, a4, a5];
    let forks = [libc::SYS_clone, libc::SYS_fork].contains(&(nr as c_long));
    // SAFETY: the program's own call.
    let ret = unsafe { if forks { fork::call(nr, &args) } else { rights::call(nr, &args) } };
    raw::libc_answer(ret) as c_long
}

/// Makes a call as the program itself would, so that another copy of this library may take it.
/// Returns -1 and sets `errno` on failure.
///
/// # Safety
/// The program's own call.
pub unsafe fn pass_on(nr: usize, a: &[usize; 6]) -> isize {
    type Syscall = unsafe extern "C" fn(usize, ...) -> c_long;
    // SAFETY: a function of that type, which is written in assembly; else the caller's.
    unsafe {
        let plain = core::mem::transmute::<unsafe extern "C" fn() -> c_long, Syscall>(plain);
        plain(nr, a[0], a[1], a[2], a[3], a[4], a[5]) as isize
    }
}

/// Does what libc's `syscall` does, for the constructors that run before ours. Other copies of this
/// library may patch it, so it does not lie in our text (`built_in`).
// SAFETY: a section of code.
#[unsafe(link_section = ".softring_site")]
#[unsafe(naked)]
unsafe extern "C" fn plain() -> c_long {
    naked_asm!(
        ".cfi_startproc",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {fail}",
        ".cfi_endproc",
        fail = sym answer,
    )
}

/// Answers as libc does.
extern "C" fn answer(ret: isize) -> c_long {
    raw::libc_answer(ret) as c_long
}
