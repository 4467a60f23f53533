//! A handler jumps out of enter (siglongjmp), so that the call never comes back.
#![allow(unsafe_code)]

use std::arch::global_asm;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use super::super::{Check, ensure};
use super::{Place, one, sys};
use crate::door::{self, Door};
use crate::os;
use crate::sqe;
use softring_engine::abi::IORING_ENTER_GETEVENTS;

// setjmp and longjmp in one: what the callee keeps is on the stack, which is found by `save`. Rust
// has no function that returns twice.
global_asm!(
    ".pushsection .text.conformance_jumps,\"ax\",@progbits",
    // conformance_jumpable(save, f, argument): calls f(argument); answers what it does.
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
    // conformance_jump(save): the call above answers JUMPED.
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
const JUMPED: isize = 4711;

/// The thread that may be jumped in, and its place. One at a time.
static JUMPER: AtomicI32 = AtomicI32::new(0);
static SAVED: AtomicPtr<usize> = AtomicPtr::new(std::ptr::null_mut());
static BUSY: AtomicBool = AtomicBool::new(false);
static DOOR: AtomicU32 = AtomicU32::new(0);

extern "C" fn wait(fd: i32) -> isize {
    let door = Door::ALL[DOOR.load(Ordering::Relaxed) as usize];
    JUMPER.store(os::tid(), Ordering::Release);
    let ret = door::enter(door, fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
    JUMPER.store(0, Ordering::Release);
    ret
}

extern "C" fn handler(_: i32) {
    if JUMPER.compare_exchange(os::tid(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // SAFETY: the thread is within `wait`, called by `conformance_jumpable`; the frames between
        // have nothing to drop.
        unsafe { conformance_jump(SAVED.load(Ordering::Acquire)) }
    }
}

/// Waits for a completion that never comes, is jumped out of it, and uses the ring again, by this
/// thread and by another.
pub fn run(p: &mut Place) -> Check<bool> {
    if BUSY.swap(true, Ordering::Acquire) {
        return Ok(false);
    }
    let out = jump(p);
    BUSY.store(false, Ordering::Release);
    out
}

fn jump(p: &mut Place) -> Check<bool> {
    sys::handle(libc::SIGUSR2, handler, libc::SA_NODEFER);
    let mut book = p.ring_with(0)?;
    let fd = book.ring.fd;
    let door = Door::ALL.iter().position(|d| *d == p.door).unwrap_or(0);
    DOOR.store(door as u32, Ordering::Relaxed);
    let (late, back) = (Duration::from_micros(p.rng.u64(0..2000)), AtomicBool::new(false));
    let got = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut save = 0usize;
            SAVED.store(&raw mut save, Ordering::Release);
            // SAFETY: `wait` takes a number; the handler jumps only while it runs.
            let got = unsafe { conformance_jumpable(&raw mut save, wait, fd) };
            back.store(true, Ordering::Release);
            (got, one(&mut book, sqe::nop()))
        });
        std::thread::sleep(late);
        while !back.load(Ordering::Acquire) {
            match JUMPER.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                tid => sys::tell(tid, libc::SIGUSR2),
            }
        }
        waiter.join().map_err(|_| "a thread fell".to_owned())
    })?;
    ensure(got == (JUMPED, Ok(0)), || format!("in the thread that was jumped in: {got:?}"))?;
    let other = one(&mut book, sqe::nop())?;
    ensure(other == 0, || format!("in another: {other}"))?;
    p.close(book)?;
    Ok(true)
}
