//! The stack that a call of the engine runs on.
//!
//! A system call needs nothing of its caller's stack. The engine needs kilobytes, which a thread's
//! own stack has. A goroutine's stack (2 KiB, without a guard page below), a coroutine's or an
//! alternate signal stack may not have them. So an entry point checks the stack pointer:
//!
//! ```text
//! within the thread's own stack, at least ROOM above its end    goes on there
//! anywhere else                                                 changes to a stack of ours,
//!                                                               one for each thread
//! ours is in use (a handler that nobody told us of has          goes on there
//! interrupted a call), or there is no memory for it
//! ```
//!
//! It would be simpler to change always. But a profiler that copies some kilobytes from the stack
//! pointer on (perf with `--call-graph dwarf`) then sees none of the program's frames.
//!
//! The thread's own stack is found without the C library: pthread_getattr_np(3) calls malloc(3),
//! which the caller may have interrupted. A thread's control block lies at the upper end of its
//! stack and holds, side by side, the start and the length of the stack; this pair is searched.
//! Where none is found (musl) each call changes. The process's first stack is known from the
//! auxiliary vector.
//!
//! No handler of the program's runs on our stack: the engine defers signals meanwhile
//! (`handlers::own_stack`), and [`leave_stack`] delivers them on the program's stack.
#![allow(unsafe_code)]

use core::arch::{global_asm, naked_asm};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use softring_host::handlers;

use super::patch::entry::TRAPPED;
use crate::gate;
use crate::raw::raw;

/// Room, in bytes, below which a call changes to a stack of ours.
const ROOM: usize = 64 << 10;
/// Size of our stack; `GUARD` bytes at its end cannot be touched.
const SIZE: usize = 256 << 10;
const GUARD: usize = 4096;
/// Bytes of the first stack that count at most, as it may grow without limit.
const FIRST: usize = 8 << 20;
/// Words of glibc's `struct pthread` that are searched; all versions have more.
const GLIBC: usize = 0x880 / 8;
/// Words that are searched in this process: none with musl, whose structure is shorter.
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Start of the room on the process's first stack, and its length; see [`start`].
static FIRST_LOW: AtomicUsize = AtomicUsize::new(0);
static FIRST_LEN: AtomicUsize = AtomicUsize::new(0);

// The record of each thread, as offsets into `softring_stack`:
/// Start of the room on the thread's own stack; 0: not searched yet.
pub(super) const LOW: usize = 0;
/// Length of this room in bytes; 0: it is not known.
pub(super) const LEN: usize = 8;
/// Upper end of our stack; 0: there is none.
const OURS: usize = 16;
/// Nonzero while our stack is in use.
const BUSY: usize = 24;
/// Address of the engine's word for the thread ([`handlers::own_stack`]); 0: the engine does not
/// know our stack.
const WORD: usize = 32;

global_asm!(
    ".pushsection .tbss.softring_stack,\"awT\",@nobits",
    ".balign 8",
    ".hidden softring_stack",
    ".globl softring_stack",
    "softring_stack:",
    ".zero 40",
    ".size softring_stack, 40",
    ".popsection",
);

/// Changes to our stack if the caller's may be too small. In: a frame at rbp that keeps all
/// registers which are not free; the number in r11; `flag`, the offset of a word in the frame that
/// is 0, and becomes 1 if the stack is changed. Goes to label 94 if the call is to be made there,
/// by a `syscall` instruction.
macro_rules! enter_stack {
    ($flag:literal) => {
        concat!(
            "mov rax, [rip + softring_stack@GOTTPOFF]\n",
            "mov rcx, rsp\n",
            "sub rcx, fs:[rax + {low}]\n",
            "cmp rcx, fs:[rax + {len}]\n",
            "jb 91f\n",
            "call {choose_stack}\n",
            "cmp rdx, 1\n",
            "je 94f\n",
            "jb 91f\n",
            "mov qword ptr [rbp - ",
            $flag,
            "], 1\n",
            "mov rsp, rdx\n",
            "91:\n",
        )
    };
}
pub(crate) use enter_stack;

/// Gives our stack back if the call has changed to it, after `rsp` has been set back into the
/// frame. Keeps r11, rbp and rsp; all else is free.
macro_rules! leave_stack {
    ($flag:literal) => {
        concat!("cmp qword ptr [rbp - ", $flag, "], 0\n", "je 92f\n", "call {give_back}\n", "92:\n")
    };
}
pub(crate) use leave_stack;

/// Gives our stack back, and delivers the signals that were deferred. Keeps r11.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn give_back() {
    naked_asm!(
        ".cfi_startproc",
        "push r11",
        ".cfi_def_cfa_offset 16",
        "mov rax, [rip + softring_stack@GOTTPOFF]",
        "mov dword ptr fs:[rax + {busy}], 0",
        "mov rdi, fs:[rax + {word}]",
        "cmp qword ptr [rdi], 0",
        "je 2f",
        "call {deliver}",
        "2:",
        "pop r11",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        busy = const BUSY,
        word = const WORD,
        deliver = sym handlers::deliver,
    )
}

/// Chooses a stack. In: rax, the offset of `softring_stack`; r11, the number of the call. Out: rdx,
/// the stack to change to, which is in use from now on; 0: none; 1: none, as the call enters a ring
/// of the kernel's, and there are no others. Keeps rax and r11; changes rcx, rsi, rdi, r8 to r10,
/// and no vector register.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn choose_stack() {
    naked_asm!(
        ".cfi_startproc",
        "mov ecx, r11d",
        "and ecx, {number}",
        "cmp ecx, {enter}",
        "jne 2f",
        "cmp byte ptr [rip + {engine_rings}], 0",
        "jne 2f",
        "mov edx, 1",
        "cmp byte ptr [rip + {kernel_rings}], 0",
        "jne 6f",
        "2:",
        "push r11",
        ".cfi_def_cfa_offset 16",
        "cmp qword ptr fs:[rax + {low}], 0",
        "jne 3f",
        "call {find}",
        "mov rcx, rsp",
        "sub rcx, fs:[rax + {low}]",
        "cmp rcx, fs:[rax + {len}]",
        "jb 4f",
        "3:",
        "mov rdx, fs:[rax + {ours}]",
        "test rdx, rdx",
        "jnz 7f",
        "call {make}",
        "test rdx, rdx",
        "jz 5f",
        "7:",
        // A locked exchange: a thread made without a control block of its own shares this word.
        "mov ecx, 1",
        "xchg fs:[rax + {busy}], ecx",
        "test ecx, ecx",
        "jz 5f",
        "4:",
        "xor edx, edx",
        "5:",
        "pop r11",
        ".cfi_def_cfa_offset 8",
        "6:",
        "ret",
        ".cfi_endproc",
        number = const !(TRAPPED as i32),
        enter = const libc::SYS_io_uring_enter,
        engine_rings = sym gate::ENGINE_RINGS,
        kernel_rings = sym gate::KERNEL_RINGS,
        low = const LOW,
        len = const LEN,
        ours = const OURS,
        busy = const BUSY,
        find = sym find_own,
        make = sym make_ours,
    )
}

/// Finds the thread's own stack: the process's first one, or by the pair in the control block, a
/// start below the block and a length that ends above it. Registers as for [`choose_stack`].
#[unsafe(naked)]
unsafe extern "C" fn find_own() {
    naked_asm!(
        ".cfi_startproc",
        "mov rdx, [rip + {first_low}]",
        "mov rsi, [rip + {first_len}]",
        "mov rcx, rsp",
        "sub rcx, rdx",
        "cmp rcx, rsi",
        "jb 4f",
        "mov r8, fs:0",
        "xor ecx, ecx",
        "2:",
        "cmp rcx, [rip + {words}]",
        "jae 3f",
        "mov rdx, [r8 + 8 * rcx]",
        "mov rsi, [r8 + 8 * rcx + 8]",
        "inc ecx",
        "lea rdi, [rdx + rsi]",
        "sub rdi, r8",
        "cmp rdi, {above}",
        "ja 2b",
        "cmp rdi, {below}",
        "jb 2b",
        "cmp rdx, r8",
        "jae 2b",
        "cmp rdx, 0x10000",
        "jb 2b",
        "cmp rsi, {room}",
        "jbe 2b",
        "cmp rsi, {longest}",
        "ja 2b",
        "add rdx, {room}",
        "sub rsi, {room}",
        "jmp 4f",
        "3:",
        "mov edx, 1",
        "xor esi, esi",
        "4:",
        "mov fs:[rax + {len}], rsi",
        "mov fs:[rax + {low}], rdx",
        "ret",
        ".cfi_endproc",
        low = const LOW,
        len = const LEN,
        first_low = sym FIRST_LOW,
        first_len = sym FIRST_LEN,
        words = sym WORDS,
        // Bytes above a control block: itself, some 2,300 bytes, to the end of its page.
        below = const 1024,
        above = const 0x3000,
        room = const ROOM,
        longest = const i32::MAX,
    )
}

/// Maps a stack of ours. Out: rdx, its upper end; 0: there is no memory. Registers as for
/// [`choose_stack`].
#[unsafe(naked)]
unsafe extern "C" fn make_ours() {
    naked_asm!(
        ".cfi_startproc",
        "push rax",
        ".cfi_def_cfa_offset 16",
        "mov eax, {mmap}",
        "xor edi, edi",
        "mov esi, {size}",
        "mov edx, {prot}",
        "mov r10d, {how}",
        "mov r8, -1",
        "xor r9d, r9d",
        "syscall",
        "xor edx, edx",
        "cmp rax, -4095",
        "jae 2f",
        "mov rdi, rax",
        "mov esi, {guard}",
        "mov eax, {mprotect}",
        "syscall",
        "lea rdx, [rdi + {size}]",
        "2:",
        "pop rax",
        ".cfi_def_cfa_offset 8",
        "mov fs:[rax + {ours}], rdx",
        "ret",
        ".cfi_endproc",
        ours = const OURS,
        size = const SIZE,
        guard = const GUARD,
        mmap = const libc::SYS_mmap,
        mprotect = const libc::SYS_mprotect,
        prot = const libc::PROT_READ | libc::PROT_WRITE,
        how = const libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
    )
}

/// Returns a word of the calling thread's record; `at` is one of the offsets above.
fn word(at: usize) -> *mut usize {
    let record: usize;
    // SAFETY: reads the thread pointer and an offset that the loader has filled in.
    unsafe {
        core::arch::asm!(
            "mov {0}, [rip + softring_stack@GOTTPOFF]",
            "add {0}, fs:0",
            out(reg) record,
            options(nostack, readonly),
        );
    }
    core::ptr::with_exposed_provenance_mut(record + at)
}

/// Tells the engine, the first time, that the calling thread has changed to our stack.
#[inline]
pub(super) fn entered() {
    // SAFETY: words of this thread's own record.
    unsafe {
        if *word(WORD) == 0 {
            first_entered();
        }
    }
}

#[cold]
fn first_entered() {
    // SAFETY: as in `entered`; our stack lies below its upper end.
    unsafe {
        let end = *word(OURS);
        *word(WORD) = handlers::own_stack(end - SIZE..end);
    }
    crate::proc::thread_begins();
}

/// Makes an exec call, which does not return if it succeeds. A vfork child shares the record of the
/// thread that waits for it, whose next call must find our stack free.
pub fn leave_for(exec: impl FnOnce() -> isize) -> isize {
    if !crate::proc::shares_memory() {
        return exec();
    }
    // SAFETY: a word of this thread's own record.
    let busy = unsafe { word(BUSY).replace(0) };
    let ret = exec();
    // SAFETY: as above.
    unsafe { word(BUSY).write(busy) };
    ret
}

/// Unmaps our stack of the calling thread, which ends on its own stack.
pub fn thread_ends() {
    // SAFETY: words of this thread's own record; our stack is not in use, as this is the program's.
    unsafe {
        let end = word(OURS).replace(0);
        if end != 0 && *word(BUSY) == 0 {
            handlers::own_stack(0..0);
            *word(WORD) = 0;
            raw!(libc::SYS_munmap, end - SIZE, SIZE);
        }
    }
}

/// Finds the process's first stack. Called by the constructor.
pub fn start() {
    // SAFETY: no arguments that could be wrong; the kernel writes the limit into ours.
    let (top, limit) = unsafe {
        let mut limit = [0u64; 2];
        let to = (&raw mut limit).expose_provenance();
        raw!(libc::SYS_prlimit64, 0, libc::RLIMIT_STACK, 0, to);
        (libc::getauxval(libc::AT_EXECFN) as usize, limit[0] as usize)
    };
    if !crate::loaders::runs_on_musl() {
        WORDS.store(GLIBC, Relaxed);
    }
    let len = limit.min(FIRST);
    if top > FIRST && len > ROOM {
        FIRST_LOW.store(top - len + ROOM, Relaxed);
        FIRST_LEN.store(len - ROOM, Relaxed);
    }
}
