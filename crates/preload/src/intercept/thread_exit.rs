//! The end of a thread in a static program, where no C library tells of it: exit(2).
//!
//! The caller may have no stack any more. musl's detached threads unmap theirs, with the thread's
//! control block, and Go gives it back. So a stub jumps to [`exit`], which uses no stack before it
//! has changed to ours, and unmaps that without any:
//!
//! ```text
//! find the block of the thread, by the thread pointer alone
//! no block, no stack of ours, or the stack is in use    exit(2)
//! on our stack: end the task, give up the block
//! unmap our stack
//! exit(2)
//! ```
#![allow(unsafe_code)]

use core::arch::naked_asm;
use softring_engine::exit::task_ends;
use softring_host::initial::{BY_REGISTER, PROGRAM};
use softring_host::per_thread::{self, FACTOR, HEADS_LEN, NEXT, PROCESS};
use softring_host::sys;

use super::stack::{self, BUSY, OURS, SIZE};
use crate::raw::raw;

/// Ends the calling thread with the status in edi, in the place of `exit(2)`. Not called, but
/// jumped to.
#[unsafe(naked)]
pub unsafe extern "C" fn exit() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        // Without the instruction, a thread pointer is read from memory that may be gone.
        "cmp byte ptr [rip + {program} + {by_register}], 0",
        "je 5f",
        "rdfsbase rdx",
        stack::block!(),
        "test rax, rax",
        "jz 5f",
        "mov rsi, [rax + {ours}]",
        "test rsi, rsi",
        "jz 5f",
        "mov ecx, 1",
        "xchg [rax + {busy}], ecx",
        "test ecx, ecx",
        "jz {on_ours}",
        "5:",
        "mov eax, {exit}",
        "syscall",
        "jmp 5b",
        ".cfi_endproc",
        program = sym PROGRAM,
        by_register = const BY_REGISTER,
        factor = const FACTOR,
        last = const HEADS_LEN - 1,
        heads = sym PROCESS,
        next = const NEXT,
        ours = const OURS,
        busy = const BUSY,
        on_ours = sym on_ours,
        exit = const libc::SYS_exit,
    )
}

/// Ends the calling thread, whose stack of ours ends at `end` and is in use: all that is on it is
/// lost.
#[unsafe(naked)]
pub unsafe extern "C" fn on_ours(status: usize, end: usize) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rsp, rsi",
        "mov rbx, rdi",
        "mov r12, rsi",
        "cld",
        "call {ends}",
        "test al, al",
        "jz 2f",
        "lea rdi, [r12 - {size}]",
        "mov esi, {size}",
        "mov eax, {munmap}",
        "syscall",
        "2:",
        "mov rdi, rbx",
        "mov eax, {exit}",
        "syscall",
        "jmp 2b",
        ".cfi_endproc",
        ends = sym ends,
        size = const SIZE,
        munmap = const libc::SYS_munmap,
        exit = const libc::SYS_exit,
    )
}

/// Ends what is known of the calling thread. Returns false if all of that is another's: a vfork
/// child, and a thread that was made without a thread pointer of its own, stand in for the thread
/// whose pointer they have.
extern "C" fn ends() -> bool {
    // SAFETY: no arguments.
    let me = unsafe { raw!(libc::SYS_gettid) as i32 };
    if crate::proc::shares_memory() || sys::gettid() != me {
        stack::free();
        return false;
    }
    task_ends();
    crate::children::thread_ends();
    // No handler of the program's finds the stack gone.
    let all = u64::MAX;
    // SAFETY: a set that lives on.
    unsafe { raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, 0, 8) };
    per_thread::thread_ends();
    true
}
