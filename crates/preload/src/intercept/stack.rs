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
//! auxiliary vector. In a static program each call changes: a child of musl's posix_spawn(3), whose
//! execve(2) comes here, has some kilobytes amid its parent's stack.
//!
//! No handler of the program's runs on our stack: the engine defers signals meanwhile
//! (`handlers::own_stack`), and [`leave_stack`] delivers them on the program's stack.
#![allow(unsafe_code)]

use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use softring_host::initial::{BY_REGISTER, PROGRAM};
use softring_host::per_thread::{self, FACTOR, HEADS_LEN, NEXT, PROCESS, WORDS};
use softring_host::{c_library, handlers, initial, sys};

use super::patch::entry::TRAPPED;
use crate::gate;
use crate::raw::raw;

/// Room, in bytes, below which a call changes to a stack of ours.
const ROOM: usize = 64 << 10;
/// Size of our stack; `GUARD` bytes at its end cannot be touched.
pub(super) const SIZE: usize = 256 << 10;
const GUARD: usize = 4096;
/// Bytes of the first stack that count at most, as it may grow without limit.
const FIRST: usize = 8 << 20;
/// Words of glibc's `struct pthread` that are searched; all versions have more.
const GLIBC: usize = 0x880 / 8;
/// Words that are searched in this process: none with musl, whose structure is shorter, and none in
/// a static program.
static GLIBC_WORDS: AtomicUsize = AtomicUsize::new(0);

/// Start of the room on the process's first stack, and its length; see [`start`].
static FIRST_LOW: AtomicUsize = AtomicUsize::new(0);
static FIRST_LEN: AtomicUsize = AtomicUsize::new(0);

// What is known of a thread's stacks is in its block (`per_thread`): the offsets of these words.
/// Start of the room on the thread's own stack; 0: not searched yet.
pub(super) const LOW: usize = WORDS;
/// Length of this room in bytes; 0: it is not known.
pub(super) const LEN: usize = WORDS + 8;
/// Upper end of our stack; 0: there is none.
pub(super) const OURS: usize = WORDS + 16;
/// Nonzero while our stack is in use.
pub(super) const BUSY: usize = WORDS + 24;
/// Address of the engine's word for the thread ([`handlers::own_stack`]); 0: the engine does not
/// know our stack.
const WORD: usize = WORDS + 32;

/// Loads the thread pointer into rdx, as `softring_host::raw::thread` does.
macro_rules! thread_pointer {
    () => {
        concat!(
            "cmp byte ptr [rip + {program} + {by_register}], 0\n",
            "jne 97f\n",
            "mov rdx, fs:0\n",
            "98:\n",
            // Behind the function.
            ".subsection 1\n",
            "97:\n",
            "rdfsbase rdx\n",
            "jmp 98b\n",
            ".subsection 0\n",
        )
    };
}
pub(crate) use thread_pointer;

/// Loads the address of the first block of a list into rax: the list that has the block of the
/// thread whose pointer is in rdx, if that thread has one. 0: the list is empty. Changes rcx.
macro_rules! first_block {
    () => {
        concat!(
            "imul rcx, rdx, {factor}\n",
            "shr rcx, 32\n",
            "and ecx, {last}\n",
            "lea rax, [rip + {heads}]\n",
            "mov rax, [rax + 8 * rcx]\n",
        )
    };
}
pub(crate) use first_block;

/// Finds the block of the thread whose pointer is in rdx. Out: rax, its address; 0: it has none.
/// Changes rcx.
macro_rules! block {
    () => {
        concat!(
            $crate::intercept::stack::first_block!(),
            "95:\n",
            "test rax, rax\n",
            "jz 96f\n",
            "cmp [rax], rdx\n",
            "je 96f\n",
            "mov rax, [rax + {next}]\n",
            "jmp 95b\n",
            "96:\n",
        )
    };
}
pub(super) use block;

/// Changes to our stack if the caller's may be too small. In: a frame at rbp that keeps all
/// registers which are not free; the number in r11; `flag`, the offset of a word in the frame that
/// is 0, and becomes the upper end of the stack that is changed to. Goes to label 94 if the call is
/// to be made there, by a `syscall` instruction.
macro_rules! enter_stack {
    ($flag:literal) => {
        concat!(
            $crate::intercept::stack::thread_pointer!(),
            $crate::intercept::stack::first_block!(),
            "test rax, rax\n",
            "je 93f\n",
            "cmp [rax], rdx\n",
            "jne 93f\n",
            "mov rcx, rsp\n",
            "sub rcx, [rax + {low}]\n",
            "cmp rcx, [rax + {len}]\n",
            "jb 91f\n",
            "93:\n",
            "call {choose_stack}\n",
            "cmp rdx, 1\n",
            "je 94f\n",
            "jb 91f\n",
            "mov [rbp - ",
            $flag,
            "], rdx\n",
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
        concat!(
            "mov rdi, [rbp - ",
            $flag,
            "]\n",
            "test rdi, rdi\n",
            "jz 92f\n",
            "call {give_back}\n",
            "92:\n"
        )
    };
}
pub(crate) use leave_stack;

/// Gives a stack of ours back, and delivers the signals that were deferred. In: rdi, its upper end.
/// Keeps r11.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn give_back() {
    naked_asm!(
        ".cfi_startproc",
        "push r11",
        ".cfi_def_cfa_offset 16",
        "call {find_block}",
        "test rax, rax",
        "jz 3f",
        "cmp [rax + {ours}], rdi",
        "jne 3f",
        "mov dword ptr [rax + {busy}], 0",
        "mov rdi, [rax + {word}]",
        "cmp qword ptr [rdi], 0",
        "je 2f",
        "call {deliver}",
        "jmp 2f",
        // A handler has made the thread another one meanwhile.
        "3:",
        "sub rdi, {size}",
        "mov esi, {size}",
        "mov eax, {munmap}",
        "syscall",
        "2:",
        "pop r11",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        find_block = sym find_block,
        ours = const OURS,
        busy = const BUSY,
        word = const WORD,
        size = const SIZE,
        munmap = const libc::SYS_munmap,
        deliver = sym handlers::deliver,
    )
}

/// Finds the thread's block. Out: rax, its address; 0: it has none. Changes rcx and rdx.
#[unsafe(naked)]
unsafe extern "C" fn find_block() {
    naked_asm!(
        ".cfi_startproc",
        thread_pointer!(),
        block!(),
        "ret",
        ".cfi_endproc",
        program = sym PROGRAM,
        by_register = const BY_REGISTER,
        factor = const FACTOR,
        last = const HEADS_LEN - 1,
        heads = sym PROCESS,
        next = const NEXT,
    )
}

/// Chooses a stack. In: r11, the number of the call. Out: rdx, the stack to change to, which is in
/// use from now on; 0: none; 1: none, as the call enters a ring of the kernel's, and there are no
/// others. Keeps r11; changes rax, rcx, rsi, rdi, r8 to r10, and no vector register.
///
/// A thread without a block may be on a stack on which none can be made. It changes to a new stack,
/// and [`entered`] notes that. Its handler may have noted another one before:
///
/// ```text
/// thread                                  its handler
/// finds no block, maps a stack
///                                         finds no block, maps a stack, makes a block, notes its
///                                         stack there
/// runs on a stack that is not noted, and unmaps it after the call
/// ```
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
        "call {find_block}",
        "test rax, rax",
        "jz 8f",
        "cmp qword ptr [rax + {low}], 0",
        "jne 3f",
        "call {find}",
        "mov [rax + {len}], rsi",
        "mov [rax + {low}], rdx",
        "3:",
        "mov rcx, rsp",
        "sub rcx, [rax + {low}]",
        "cmp rcx, [rax + {len}]",
        "jb 4f",
        "mov rdx, [rax + {ours}]",
        "test rdx, rdx",
        "jnz 7f",
        "call {make}",
        "mov [rax + {ours}], rdx",
        "test rdx, rdx",
        "jz 5f",
        "7:",
        // A locked exchange: a thread made without a control block of its own shares this word.
        "mov ecx, 1",
        "xchg [rax + {busy}], ecx",
        "test ecx, ecx",
        "jz 5f",
        "4:",
        "xor edx, edx",
        "5:",
        "pop r11",
        ".cfi_def_cfa_offset 8",
        "6:",
        "ret",
        // Without a block.
        "8:",
        ".cfi_def_cfa_offset 16",
        "call {find}",
        "mov rcx, rsp",
        "sub rcx, rdx",
        "cmp rcx, rsi",
        "jb 4b",
        "call {make}",
        "jmp 5b",
        ".cfi_endproc",
        number = const !(TRAPPED as i32),
        enter = const libc::SYS_io_uring_enter,
        engine_rings = sym gate::ENGINE_RINGS,
        kernel_rings = sym gate::KERNEL_RINGS,
        find_block = sym find_block,
        low = const LOW,
        len = const LEN,
        ours = const OURS,
        busy = const BUSY,
        find = sym find_own,
        make = sym make_ours,
    )
}

/// Finds the thread's own stack: the process's first one, or by the pair in the control block, a
/// start below the block and a length that ends above it. Out: rdx and rsi, start and length of the
/// room on it. Changes rcx, rdi and r8.
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
        "ret",
        ".cfi_endproc",
        first_low = sym FIRST_LOW,
        first_len = sym FIRST_LEN,
        words = sym GLIBC_WORDS,
        // Bytes above a control block: itself, some 2,300 bytes, to the end of its page.
        below = const 1024,
        above = const 0x3000,
        room = const ROOM,
        longest = const i32::MAX,
    )
}

/// Maps a stack of ours. Out: rdx, its upper end; 0: there is no memory. Keeps rax; else registers
/// as for [`choose_stack`].
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
        "ret",
        ".cfi_endproc",
        size = const SIZE,
        guard = const GUARD,
        mmap = const libc::SYS_mmap,
        mprotect = const libc::SYS_mprotect,
        prot = const libc::PROT_READ | libc::PROT_WRITE,
        how = const libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
    )
}

/// Returns a word of the calling thread's block; `at` is one of the offsets above.
#[inline(always)]
fn word(at: usize) -> &'static AtomicUsize {
    &per_thread::words().0[(at - WORDS) / size_of::<usize>()]
}

/// Tells the engine, the first time, that the calling thread has changed to our stack, whose upper
/// end is given.
#[inline]
pub(super) fn entered(end: usize) {
    if word(WORD).load(Relaxed) == 0 {
        first_entered(end);
    }
}

#[cold]
fn first_entered(end: usize) {
    if word(OURS).compare_exchange(0, end, Relaxed, Relaxed).is_ok() {
        word(BUSY).store(1, Relaxed);
    }
    let end = word(OURS).load(Relaxed);
    word(WORD).store(handlers::own_stack(end - SIZE..end), Relaxed);
    if initial::is_known() {
        // Whose the stack is, if another thread with the same pointer ends (`thread_exit`).
        sys::gettid();
    }
    crate::proc::thread_begins();
}

/// Notes that our stack of the calling thread is not in use.
pub(super) fn free() {
    word(BUSY).store(0, Relaxed);
}

/// Makes an exec call, which does not return if it succeeds. A vfork child shares the block of the
/// thread that waits for it, whose next call must find our stack free.
pub fn leave_for(exec: impl FnOnce() -> isize) -> isize {
    if !crate::proc::shares_memory() {
        return exec();
    }
    let busy = word(BUSY).swap(0, Relaxed);
    let ret = exec();
    word(BUSY).store(busy, Relaxed);
    ret
}

/// Unmaps our stack of the calling thread, which ends on its own stack.
pub fn thread_ends() {
    let end = word(OURS).load(Relaxed);
    if end != 0 && word(BUSY).load(Relaxed) == 0 {
        handlers::own_stack(0..0);
        word(WORD).store(0, Relaxed);
        word(OURS).store(0, Relaxed);
        // SAFETY: our stack is not in use, as this is the program's; nothing leads to it any more.
        unsafe { raw!(libc::SYS_munmap, end - SIZE, SIZE) };
    }
}

/// Finds the process's first stack. Called by the constructor.
pub fn start() {
    if initial::is_known() {
        return;
    }
    // SAFETY: no arguments that could be wrong; the kernel writes the limit into ours.
    let (top, limit) = unsafe {
        let mut limit = [0u64; 2];
        let to = (&raw mut limit).expose_provenance();
        raw!(libc::SYS_prlimit64, 0, libc::RLIMIT_STACK, 0, to);
        (c_library::auxiliary(libc::AT_EXECFN as usize).unwrap_or(0), limit[0] as usize)
    };
    if !crate::loaders::runs_on_musl() {
        GLIBC_WORDS.store(GLIBC, Relaxed);
    }
    let len = limit.min(FIRST);
    if top > FIRST && len > ROOM {
        FIRST_LOW.store(top - len + ROOM, Relaxed);
        FIRST_LEN.store(len - ROOM, Relaxed);
    }
}
