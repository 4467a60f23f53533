//! Jumps out of signal handlers, as siglongjmp(3) makes them: Rust has no function that returns
//! twice.
#![allow(unsafe_code)]

use std::arch::global_asm;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use crate::os;

// setjmp and longjmp in one: callee-saved registers are on the stack, which `save` points to.
global_asm!(
    ".pushsection .text.conformance_jumps,\"ax\",@progbits",
    // conformance_jumpable(save, f, argument): calls f(argument) and returns its result.
    ".globl conformance_jumpable",
    ".type conformance_jumpable,@function",
    "conformance_jumpable:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov [rdi], rsp",
    "mov rax, rsi",
    "mov rdi, rdx",
    "call rax",
    "2:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".size conformance_jumpable, . - conformance_jumpable",
    // conformance_jump(save): makes the call above return JUMPED.
    ".globl conformance_jump",
    ".type conformance_jump,@function",
    "conformance_jump:",
    "mov rsp, [rdi]",
    "mov eax, 4711",
    "jmp 2b",
    ".size conformance_jump, . - conformance_jump",
    ".popsection",
);

unsafe extern "C" {
    fn conformance_jumpable(save: *mut usize, f: extern "C" fn(i32) -> isize, fd: i32) -> isize;
    fn conformance_jump(save: *mut usize) -> !;
}
/// Result of a call that was left by a jump.
pub const JUMPED: isize = 4711;

/// The one thread that may be jumped in, and the stack pointer to jump to.
static JUMPER: AtomicI32 = AtomicI32::new(0);
static SAVED: AtomicPtr<usize> = AtomicPtr::new(std::ptr::null_mut());

/// Calls `f(argument)`, which [`handler`] may leave between [`begin`] and [`end`]; then returns
/// [`JUMPED`].
///
/// `f` must have nothing to drop while it may be left.
pub fn call(f: extern "C" fn(i32) -> isize, argument: i32) -> isize {
    let mut save = 0usize;
    let save = &raw mut save;
    SAVED.store(save, Ordering::Release);
    // SAFETY: the frames that a jump leaves out have nothing to drop, as the caller knows.
    unsafe { conformance_jumpable(save, f, argument) }
}

/// Allows jumps: a signal is jumped out of from here on.
pub fn begin() {
    JUMPER.store(os::tid(), Ordering::Release);
}

/// Ends the jumps.
pub fn end() {
    JUMPER.store(0, Ordering::Release);
}

/// Returns the thread that may be jumped in now, or 0.
pub fn jumper() -> i32 {
    JUMPER.load(Ordering::Acquire)
}

/// Handles a signal by a jump out of [`call`], if its thread is between [`begin`] and [`end`].
pub extern "C" fn handler(_: i32) {
    if JUMPER.compare_exchange(os::tid(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // SAFETY: the thread is between `begin` and `end`, within `call`.
        unsafe { conformance_jump(SAVED.load(Ordering::Acquire)) }
    }
}
