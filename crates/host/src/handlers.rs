//! Deferral of the program's signal handlers: they run between its calls of the engine, never in
//! the middle of one.
//!
//! On the kernel a handler runs when a system call has returned, so it may do anything: enter the
//! ring again, close it, never return (siglongjmp(3), a C++ exception, the end of the thread by
//! pthread_cancel(3)). Here a handler would run on top of a thread that holds a ring's lock, or
//! sleeps on behalf of the ring. A handler that never returns would leave both behind:
//!
//! ```text
//! thread                      handler                    another thread
//! enter: takes the uring lock
//!   adds itself as driver
//!   a signal comes            siglongjmp: the frames
//!                             of enter are gone
//!                                                        enter: waits for the lock, for ever;
//!                                                        or sleeps on, as a driver is there
//! ```
//!
//! So the entry points have each handler of the program's preceded by [`defers`]. While the thread
//! is in a [`Call`], the signal is sent to the thread once more, with its siginfo, and blocked
//! together with all others until the call is over; then its handler runs:
//!
//! ```text
//! thread                                     the signal's frame
//! Call::begin: call = stack pointer
//!   takes the lock
//!   a signal comes                           call != 0: block; send it again; deferred = 1;
//!                                            the frame's mask: all blocked. Returns
//!   gives the lock back
//!   wants to sleep: deferred: EINTR          came it just before the system call of the sleep,
//!                                            the frame is made to go on behind it, with EINTR
//! Call::drop: call = 0; deferred?
//!   the mask from before                     the handler runs, and may do as it likes
//! ```
//!
//! The interleaving that loses is a signal between a check of `deferred` and the sleep: the signal
//! is blocked by then, and would not end the sleep. So check and sleep are a few instructions with
//! known addresses ([`interruptible`]). A frame that would go on within them goes on behind them
//! instead.
//!
//! A call may wait under a mask of the program's ([`waits_under`]). A signal that this mask blocks
//! ends no sleep, and is handled when the call is over. A signal that has ended the wait is handled
//! under that mask, and the handler's return restores the program's own mask.
//!
//! Without signals a call costs two stores and two loads, and no system call. Signals that report a
//! fault of the thread's own (SIGSEGV and the like) are never deferred. A handler that was
//! installed unreported (rt_sigaction(2) by an inline system call) runs in the middle of a call;
//! the engine's `io::signal_scope` covers that case.
#![allow(unsafe_code)]

use crate::lock::OnceLock;
use core::arch::{global_asm, naked_asm};
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, compiler_fence};

use crate::sys::{self, sys};

/// Signals that are never deferred: 4 to 9, 11, 19 and 31 (faults of the thread's own, abort(3),
/// and signals that cannot be blocked), and glibc's 33, which the C library must be able to send to
/// any thread at any time.
const NEVER_DEFERRED: u64 = 0b11_1111 << 3 | 1 << 10 | 1 << 18 | 1 << 30 | 1 << 32;
/// musl's signal of the same kind; in glibc it is the program's.
const MUSLS: u64 = 1 << 33;

/// Returns the signals that are blocked while a signal is deferred.
fn deferred() -> u64 {
    !NEVER_DEFERRED & !(sys::libc_signals() & MUSLS)
}

/// Depth of a call's stack: a stack pointer that is up to this far below the call's is within the
/// call. It may also be [`ABOVE`] it, as the function that has begun the call may have a frame of
/// its own.
const DEPTH: usize = 1 << 20;
const ABOVE: usize = 4096;
/// Bit of a call that sleeps, and holds nothing that a handler could want.
const ASLEEP: usize = 1;
const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;
/// Bit of `deferred`: a signal waits for the end of the call, which must not sleep any more.
/// [`interruptible`] reads this half of the word.
const ENDS_SLEEPS: u64 = 1;
/// Bit of `deferred`: a signal waits that the call's own mask blocks. The call goes on.
const KEPT_BACK: u64 = 1 << 32;

/// State of a thread that its handlers and its calls share.
#[repr(C)]
struct Thread {
    /// Signals that wait for the end of the call: [`ENDS_SLEEPS`], [`KEPT_BACK`]. The first field,
    /// as [`own_stack`] says.
    deferred: AtomicU64,
    /// Stack pointer of the call that the thread is in, plus [`ASLEEP`]; 0: none.
    call: AtomicUsize,
    /// Flag, set while the engine blocks signals for reasons of its own.
    blocks: AtomicU32,
    /// Program's mask, while `deferred` or `blocks` is set.
    mask: AtomicU64,
    /// Mask that a call waits under. `waits`: the stack pointer of that call; 0: none.
    under: AtomicU64,
    waits: AtomicUsize,
    /// Flag, set if the next handler's return must restore `mask`.
    restores: AtomicU32,
    /// Start of the stack, not the program's, that calls may run on. `own_len`: its bytes.
    own: AtomicUsize,
    own_len: AtomicUsize,
}

impl Thread {
    /// Returns whether this stack pointer lies in the stack for calls.
    fn is_own(&self, rsp: usize) -> bool {
        rsp.wrapping_sub(self.own.load(Relaxed)) < self.own_len.load(Relaxed)
    }
}

crate::per_thread! {
    /// State of the thread. Handlers see it, all of the same thread, so the atomics are relaxed:
    /// program order is enough.
    static THREAD: Thread = const {
        Thread {
            deferred: AtomicU64::new(0),
            call: AtomicUsize::new(0),
            blocks: AtomicU32::new(0),
            mask: AtomicU64::new(0),
            under: AtomicU64::new(0),
            waits: AtomicUsize::new(0),
            restores: AtomicU32::new(0),
            own: AtomicUsize::new(0),
            own_len: AtomicUsize::new(0),
        }
    };
}

/// Registers a `stack`, not the program's, that the entry points run the calling thread's calls on.
/// No handler of the program's must run there: signals are deferred from when the thread has
/// changed to the stack until it has left the stack. If the word at the returned address is not 0
/// then, [`deliver`] must be called with that address.
pub fn own_stack(stack: core::ops::Range<usize>) -> usize {
    THREAD.with(|t| {
        t.own_len.store(0, Relaxed);
        compiler_fence(SeqCst);
        t.own.store(stack.start, Relaxed);
        compiler_fence(SeqCst);
        t.own_len.store(stack.len(), Relaxed);
        core::ptr::from_ref(t).expose_provenance()
    })
}

static ON_NEED: OnceLock<fn()> = OnceLock::new();

/// Sets the function that is called before the engine has anything that a handler could leave
/// behind.
pub fn on_need(need: fn()) {
    let _ = ON_NEED.set(need);
}

/// Asks for [`defers`] before each handler from now on.
pub fn need() {
    if let Some(need) = ON_NEED.get() {
        need();
    }
}

/// Call of the engine that the thread is in for as long as this lives.
#[derive(Debug)]
pub struct Call {
    /// Call that a handler has interrupted, without being deferred; 0: none.
    interrupted: usize,
}

impl Call {
    #[inline]
    pub fn begin() -> Call {
        let here = sys::stack_pointer() & !ASLEEP;
        THREAD.with(|t| {
            let before = t.call.load(Relaxed);
            // A call that was left for good has a lower stack pointer: it is over.
            let interrupted = if before > here { before } else { 0 };
            t.call.store(here, Relaxed);
            compiler_fence(SeqCst);
            Call { interrupted }
        })
    }

    /// Returns whether a handler made this call on top of another call of its thread.
    #[inline]
    pub fn is_on_top(&self) -> bool {
        self.interrupted != 0
    }

    /// Returns whether the interrupted call holds what this one may want.
    pub fn holds_locks(&self) -> bool {
        self.interrupted != 0 && self.interrupted & ASLEEP == 0
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        THREAD.with(|t| {
            t.call.store(self.interrupted, Release);
            compiler_fence(SeqCst);
            if t.deferred.load(Relaxed) != 0 && self.interrupted == 0 {
                end_deferral(t);
            }
        });
    }
}

#[cold]
#[inline(never)]
fn end_deferral(t: &Thread) {
    if !t.is_own(sys::stack_pointer()) {
        // SAFETY: this thread's.
        unsafe { deliver(core::ptr::from_ref(t).cast()) };
    }
}

/// Ends the deferral when the call is over: lets the waiting signals through. Handlers run here,
/// and may never return. A signal that has ended a wait under a mask of the program's is handled
/// under that mask, by a ppoll(2) that takes no time. A handler that runs clears `restores`, and
/// its return restores the mask.
///
/// Written in assembly, to use only a few words of stack and no vector register: it runs on the
/// program's stack, however small, where an inline call leaves those registers alone.
///
/// # Safety
/// `thread` is what [`own_stack`] has answered in this thread.
#[unsafe(naked)]
pub unsafe extern "C" fn deliver(thread: *const core::ffi::c_void) {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "mov rbx, rdi",
        "push qword ptr [rbx + {mask}]",
        ".cfi_def_cfa_offset 24",
        "xor ecx, ecx",
        "xor eax, eax",
        "xchg [rbx + {deferred}], rax",
        "xchg [rbx + {waits}], rcx",
        "test eax, eax",
        "jz 2f",
        "test rcx, rcx",
        "jz 2f",
        "mov dword ptr [rbx + {restores}], 1",
        "push 0",
        "push 0",
        ".cfi_def_cfa_offset 40",
        "mov rdx, rsp",
        "xor edi, edi",
        "xor esi, esi",
        "lea r10, [rbx + {under}]",
        "mov r8d, 8",
        "mov eax, {ppoll}",
        "syscall",
        "add rsp, 16",
        ".cfi_def_cfa_offset 24",
        "xor eax, eax",
        "xchg [rbx + {restores}], eax",
        "test eax, eax",
        "jz 3f",
        "2:",
        "mov edi, {set}",
        "mov rsi, rsp",
        "xor edx, edx",
        "mov r10d, 8",
        "mov eax, {sigprocmask}",
        "syscall",
        "3:",
        "add rsp, 8",
        ".cfi_def_cfa_offset 16",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        deferred = const core::mem::offset_of!(Thread, deferred),
        mask = const core::mem::offset_of!(Thread, mask),
        waits = const core::mem::offset_of!(Thread, waits),
        restores = const core::mem::offset_of!(Thread, restores),
        under = const core::mem::offset_of!(Thread, under),
        ppoll = const sys::nr::__NR_ppoll,
        sigprocmask = const sys::nr::__NR_rt_sigprocmask,
        set = const SIG_SETMASK,
    )
}

/// Returns whether a signal waits for the end of the call. Then the call does not sleep any more.
#[inline]
pub fn is_deferred() -> bool {
    THREAD.with(|t| t.deferred.load(Relaxed) as u32 != 0)
}

/// Wait of a call under a mask of the program's, for as long as this lives.
#[derive(Debug)]
pub struct Under(());

/// Begins a wait of the call under `mask`.
pub fn waits_under(mask: u64) -> Under {
    THREAD.with(|t| {
        t.under.store(mask, Relaxed);
        t.waits.store(t.call.load(Relaxed) & !ASLEEP, Relaxed);
        compiler_fence(SeqCst);
        if is_deferred() && sys::pending_signals() & deferred() & !mask == 0 {
            t.deferred.store(KEPT_BACK, Relaxed);
        }
    });
    Under(())
}

impl Drop for Under {
    fn drop(&mut self) {
        if !is_deferred() {
            THREAD.with(|t| t.waits.store(0, Relaxed));
        }
    }
}

/// Count of times that the reactor was told that the process was stopped, and goes on.
static STOPS: AtomicU32 = AtomicU32::new(0);

/// Returns [`STOPS`].
pub fn stops() -> u32 {
    STOPS.load(SeqCst)
}

/// Notes that the process was stopped, and goes on.
pub fn stopped() {
    STOPS.fetch_add(1, SeqCst);
}

/// Sleep of the thread, for as long as this lives: handlers that nobody has reported may enter.
#[derive(Debug)]
pub struct Asleep(());

/// Notes that the thread is about to sleep.
pub fn asleep() -> Asleep {
    THREAD.with(|t| t.call.store(t.call.load(Relaxed) | ASLEEP, Relaxed));
    Asleep(())
}

impl Drop for Asleep {
    fn drop(&mut self) {
        THREAD.with(|t| t.call.store(t.call.load(Relaxed) & !ASLEEP, Relaxed));
    }
}

/// Notes that the engine has blocked signals; `old` was the mask before. Returns the program's own
/// mask, and whether [`unblocks`] must be called at the end.
pub fn blocks(old: u64) -> (u64, bool) {
    THREAD.with(|t| {
        let inner = t.blocks.load(Relaxed) != 0;
        if inner || t.deferred.load(Relaxed) != 0 {
            return (t.mask.load(Relaxed), false);
        }
        t.mask.store(old, Relaxed);
        t.blocks.store(1, Relaxed);
        (old, true)
    })
}

/// Notes that the engine does not block signals any more.
pub(crate) fn unblocks() {
    THREAD.with(|t| t.blocks.store(0, Relaxed));
}

/// Offsets in the kernel's `struct ucontext` on x86_64.
const AT_RSP: usize = 160;
const AT_RIP: usize = 168;
const AT_SIGMASK: usize = 296;

/// Decides whether a handler of the program's, which is about to run for the signal `signo`, must
/// wait. Returns true if so: the signal comes again when the thread's call is over.
///
/// # Safety
/// `info` and `context` are what the kernel passes to a handler with SA_SIGINFO, which runs now.
pub unsafe fn defers(signo: i32, info: usize, context: usize) -> bool {
    let at = |offset| core::ptr::with_exposed_provenance_mut::<u64>(context + offset);
    THREAD.with(|t| {
        let call = t.call.load(Relaxed) & !ASLEEP;
        // SAFETY: the kernel's structure, says our caller.
        let (rsp, rip, mask) = unsafe { (*at(AT_RSP), *at(AT_RIP), *at(AT_SIGMASK)) };
        let below = call.wrapping_add(ABOVE).wrapping_sub(rsp as usize);
        let within = call != 0 && below < DEPTH || t.is_own(rsp as usize);
        // Of nested frames only the lowest returns to where all signals are blocked.
        if !within && mask & deferred() == deferred() && t.restores.swap(0, Relaxed) != 0 {
            // SAFETY: as above; sigreturn(2) takes it from there.
            unsafe { *at(AT_SIGMASK) = t.mask.load(Relaxed) };
        }
        if !within || !(1..=64).contains(&signo) || deferred() & 1 << (signo - 1) == 0 {
            return false;
        }
        let before = block_deferred();
        // SAFETY: the kernel reads its own siginfo_t, says our caller; the others take nothing.
        let queued = unsafe {
            let (pid, tid) = (sys!(__NR_getpid), sys!(__NR_gettid));
            sys!(__NR_rt_tgsigqueueinfo, pid, tid, signo, info)
        };
        if queued != 0 {
            // Too many signals are queued.
            sys::set_sigmask(before);
            return false;
        }
        // Frames may be nested: the lowest, which comes last, has the program's mask.
        if t.blocks.load(Relaxed) == 0 && mask & deferred() != deferred() {
            t.mask.store(mask, Relaxed);
        }
        let waits = call != 0 && t.waits.load(Relaxed) == call;
        let blocked = waits && t.under.load(Relaxed) & 1 << (signo - 1) != 0;
        let how = if blocked { KEPT_BACK } else { ENDS_SLEEPS };
        t.deferred.store(t.deferred.load(Relaxed) | how, Relaxed);
        // SAFETY: as above; sigreturn(2) takes these from there.
        unsafe {
            *at(AT_SIGMASK) = mask | deferred();
            if !blocked && (sleep_begins()..sleep_ends()).contains(&rip) {
                *at(AT_RIP) = sleep_interrupted();
            }
        }
        true
    })
}

fn block_deferred() -> u64 {
    let (set, mut old) = (deferred(), 0u64);
    let new = (&raw const set).expose_provenance();
    // SAFETY: both masks are ours, of eight bytes.
    unsafe { sys!(__NR_rt_sigprocmask, SIG_BLOCK, new, (&raw mut old).expose_provenance(), 8) };
    old
}

/// Mark in front of the one function of the engine whose system call takes any number. Code that
/// replaces calls in text must leave that function alone.
pub const MARK: &str = "softring";

global_asm!(
    ".pushsection .text.softring_interruptible,\"ax\",@progbits",
    ".balign 16",
    ".space 8",
    ".ascii \"softring\"",
    ".hidden softring_interruptible",
    ".globl softring_interruptible",
    ".type softring_interruptible,@function",
    "softring_interruptible:",
    ".cfi_startproc",
    "mov r11, rdi",
    "mov rax, rsi",
    "mov rdi, [rdx]",
    "mov rsi, [rdx + 8]",
    "mov r10, [rdx + 24]",
    "mov r8, [rdx + 32]",
    "mov r9, [rdx + 40]",
    "mov rdx, [rdx + 16]",
    ".hidden softring_idle_sleep_begins",
    ".globl softring_idle_sleep_begins",
    "softring_idle_sleep_begins:",
    "cmp dword ptr [r11], 0",
    "jne softring_idle_sleep_interrupted",
    // A restart, too, comes back to this instruction.
    "syscall",
    ".hidden softring_idle_sleep_ends",
    ".globl softring_idle_sleep_ends",
    "softring_idle_sleep_ends:",
    "ret",
    ".hidden softring_idle_sleep_interrupted",
    ".globl softring_idle_sleep_interrupted",
    "softring_idle_sleep_interrupted:",
    "mov rax, -4",
    "ret",
    ".cfi_endproc",
    ".size softring_interruptible, . - softring_interruptible",
    ".popsection",
);

unsafe extern "C" {
    fn softring_interruptible(deferred: *const AtomicU64, nr: usize, args: *const usize) -> isize;
    fn softring_idle_sleep_begins();
    fn softring_idle_sleep_ends();
    fn softring_idle_sleep_interrupted();
}

fn sleep_begins() -> u64 {
    softring_idle_sleep_begins as *const () as u64
}

fn sleep_ends() -> u64 {
    softring_idle_sleep_ends as *const () as u64
}

fn sleep_interrupted() -> u64 {
    softring_idle_sleep_interrupted as *const () as u64
}

/// Makes a system call that may sleep. Returns -EINTR if a signal was deferred, or is deferred
/// before the kernel has begun.
///
/// # Safety
/// As [`sys::syscall6`].
#[inline]
pub(crate) unsafe fn interruptible(nr: u32, args: [usize; 6]) -> isize {
    THREAD.with(|t| {
        // SAFETY: the call is the caller's; the word and the arguments live on.
        unsafe { softring_interruptible(&raw const t.deferred, nr as usize, args.as_ptr()) }
    })
}
