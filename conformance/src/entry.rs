//! System calls of the client.
//!
//! Real programs reach io_uring in three ways, and softring has one entry point for each; a case
//! that passes through one of them must pass through all. Besides the three io_uring calls, a
//! program with inline calls also maps and closes its ring inline, so [`close`], [`mmap`] and
//! [`munmap`] follow the same choice.
#![allow(unsafe_code)]

use std::arch::global_asm;
use std::fmt;
use std::str::FromStr;

/// Instruction by which a call leaves this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EntryPoint {
    /// libc's `syscall()` function, which a preloaded library can replace.
    #[default]
    Syscall,
    /// `mov $nr,%eax; syscall` inline: visible to a scan of the program's text.
    Patch,
    /// An inline `syscall` whose number comes from memory: no scan can tell, only a trap catches
    /// the call.
    Sigsys,
}

impl EntryPoint {
    pub const ALL: [Self; 3] = [Self::Syscall, Self::Patch, Self::Sigsys];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Syscall => "syscall",
            Self::Patch => "patch",
            Self::Sigsys => "sigsys",
        }
    }
}

impl fmt::Display for EntryPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EntryPoint {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|d| d.name() == s);
        found.ok_or_else(|| format!("there is no entry point {s:?}: use syscall, patch or sigsys"))
    }
}

global_asm!(
    ".pushsection .text.conformance_inline,\"ax\",@progbits",
    ".balign 16",
    ".globl conformance_inline_setup",
    ".type conformance_inline_setup,@function",
    "conformance_inline_setup:",
    "mov eax, 425",
    "syscall",
    "ret",
    ".size conformance_inline_setup, . - conformance_inline_setup",
    ".balign 16",
    ".globl conformance_inline_enter",
    ".type conformance_inline_enter,@function",
    "conformance_inline_enter:",
    "mov r10, rcx",
    "mov eax, 426",
    "syscall",
    "ret",
    ".size conformance_inline_enter, . - conformance_inline_enter",
    ".balign 16",
    ".globl conformance_inline_register",
    ".type conformance_inline_register,@function",
    "conformance_inline_register:",
    "mov r10, rcx",
    "mov eax, 427",
    "syscall",
    "ret",
    ".size conformance_inline_register, . - conformance_inline_register",
    ".balign 16",
    ".globl conformance_inline_any",
    ".type conformance_inline_any,@function",
    "conformance_inline_any:",
    // Without frames the scan would find a site that may set up a ring and cannot be patched.
    ".cfi_startproc",
    "mov r10, rcx",
    "mov rax, [rsp + 8]",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".size conformance_inline_any, . - conformance_inline_any",
    // The scan searches the next two functions only if frames tell where they end.
    ".balign 16",
    ".globl conformance_inline_close",
    ".type conformance_inline_close,@function",
    "conformance_inline_close:",
    ".cfi_startproc",
    "mov eax, 3",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".size conformance_inline_close, . - conformance_inline_close",
    ".balign 16",
    ".globl conformance_inline_mmap",
    ".type conformance_inline_mmap,@function",
    "conformance_inline_mmap:",
    ".cfi_startproc",
    "mov r10, rcx",
    "mov eax, 9",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".size conformance_inline_mmap, . - conformance_inline_mmap",
    ".popsection",
);

unsafe extern "C" {
    fn conformance_inline_setup(entries: usize, params: usize) -> isize;
    fn conformance_inline_enter(
        fd: usize,
        to_submit: usize,
        min_complete: usize,
        flags: usize,
        arg: usize,
        argsz: usize,
    ) -> isize;
    fn conformance_inline_register(fd: usize, opcode: usize, arg: usize, nr_args: usize) -> isize;
    fn conformance_inline_close(fd: usize) -> isize;
    fn conformance_inline_mmap(
        addr: usize,
        len: usize,
        prot: usize,
        flags: usize,
        fd: usize,
        offset: usize,
    ) -> isize;
    /// Takes the number last, hence on the stack.
    fn conformance_inline_any(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
        nr: usize,
    ) -> isize;
}

const SETUP: usize = 425;
const ENTER: usize = 426;
const REGISTER: usize = 427;

/// Returns an fd as a system call's argument register carries it.
const fn word(fd: i32) -> usize {
    fd.cast_unsigned() as usize
}

fn by_libc(nr: usize, a: [usize; 6]) -> isize {
    // SAFETY: a system call with integers; memory is accessed only through the caller's own
    // pointers.
    let ret = unsafe { libc::syscall(nr.cast_signed() as i64, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if ret == -1 { -(errno() as isize) } else { ret as isize }
}

fn by_number(nr: usize, a: [usize; 6]) -> isize {
    // SAFETY: as in `by_libc`; the stub keeps to the C calling convention (it clobbers rax, rcx,
    // r10 and r11 only).
    unsafe { conformance_inline_any(a[0], a[1], a[2], a[3], a[4], a[5], nr) }
}

/// Returns this thread's `errno`.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Calls `io_uring_setup(2)`: a value, or `-errno`. `params` may be any number, to test bad
/// pointers.
pub fn setup(entry: EntryPoint, entries: u32, params: usize) -> isize {
    let entries = entries as usize;
    match entry {
        EntryPoint::Syscall => by_libc(SETUP, [entries, params, 0, 0, 0, 0]),
        // SAFETY: a system call with integers, as in `by_libc`.
        EntryPoint::Patch => unsafe { conformance_inline_setup(entries, params) },
        EntryPoint::Sigsys => by_number(SETUP, [entries, params, 0, 0, 0, 0]),
    }
}

/// Calls `io_uring_enter(2)`: a value, or `-errno`. `arg` may be any number, to test bad pointers.
pub fn enter(
    entry: EntryPoint,
    fd: i32,
    submit: u32,
    min: u32,
    flags: u32,
    arg: usize,
    sz: usize,
) -> isize {
    let a = [word(fd), submit as usize, min as usize, flags as usize, arg, sz];
    match entry {
        EntryPoint::Syscall => by_libc(ENTER, a),
        // SAFETY: a system call with integers, as in `by_libc`.
        EntryPoint::Patch => unsafe {
            conformance_inline_enter(a[0], a[1], a[2], a[3], a[4], a[5])
        },
        EntryPoint::Sigsys => by_number(ENTER, a),
    }
}

/// Calls `io_uring_register(2)`: a value, or `-errno`. `arg` may be any number, to test bad
/// pointers.
pub fn register(entry: EntryPoint, fd: i32, opcode: u32, arg: usize, nr_args: u32) -> isize {
    let a = [word(fd), opcode as usize, arg, nr_args as usize, 0, 0];
    match entry {
        EntryPoint::Syscall => by_libc(REGISTER, a),
        // SAFETY: a system call with integers, as in `by_libc`.
        EntryPoint::Patch => unsafe { conformance_inline_register(a[0], a[1], a[2], a[3]) },
        EntryPoint::Sigsys => by_number(REGISTER, a),
    }
}

/// Calls `close(2)`: through libc's wrapper, or inline as a static liburing does.
pub fn close(entry: EntryPoint, fd: i32) -> isize {
    match entry {
        // SAFETY: closing an fd touches no memory.
        EntryPoint::Syscall if unsafe { libc::close(fd) } == -1 => -(errno() as isize),
        EntryPoint::Syscall => 0,
        // SAFETY: as above.
        EntryPoint::Patch => unsafe { conformance_inline_close(word(fd)) },
        EntryPoint::Sigsys => by_number(libc::SYS_close as usize, [word(fd), 0, 0, 0, 0, 0]),
    }
}

/// Maps `len` bytes of `fd` at `offset`, shared and populated; returns the address, or `-errno`.
pub fn mmap(entry: EntryPoint, fd: i32, len: usize, offset: u64) -> isize {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_SHARED | libc::MAP_POPULATE) as usize;
    let a = [0, len, prot, flags, word(fd), offset as usize];
    match entry {
        EntryPoint::Syscall => by_libc(libc::SYS_mmap as usize, a),
        // SAFETY: a new mapping overlaps nothing.
        EntryPoint::Patch => unsafe { conformance_inline_mmap(a[0], a[1], a[2], a[3], a[4], a[5]) },
        EntryPoint::Sigsys => by_number(libc::SYS_mmap as usize, a),
    }
}

/// Calls `munmap(2)`.
///
/// # Safety
/// Nothing may use the range afterwards.
pub unsafe fn munmap(entry: EntryPoint, addr: usize, len: usize) -> isize {
    match entry {
        EntryPoint::Syscall => by_libc(libc::SYS_munmap as usize, [addr, len, 0, 0, 0, 0]),
        EntryPoint::Patch | EntryPoint::Sigsys => {
            by_number(libc::SYS_munmap as usize, [addr, len, 0, 0, 0, 0])
        }
    }
}

global_asm!(
    ".pushsection .text.conformance_inline,\"ax\",@progbits",
    ".balign 16",
    ".globl conformance_keeps",
    ".type conformance_keeps,@function",
    // rdi: fd, rsi: to_submit, rdx: 1 for the immediate form, 0 for the number in a register.
    "conformance_keeps:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 136",
    "mov rbp, rdx",
    "mov rbx, 0x1111",
    "mov r12, 0x2222",
    "mov r13, 0x3333",
    "mov r14, 0x4444",
    "mov r15, 0x5555",
    "mov r8, 0x6666",
    "mov r9, 0x7777",
    "mov rax, 0x123456789abcdef",
    "movq xmm0, rax",
    "movq xmm7, rax",
    "movq xmm15, rax",
    "mov [rsp - 8], rax",
    "mov [rsp - 128], rax",
    "mov rdx, 0",
    "mov r10, 0",
    // A system call may be made with the direction flag set, a function not.
    "std",
    "test rbp, rbp",
    "jz 2f",
    "mov eax, 426",
    "syscall",
    "jmp 3f",
    "2:",
    "mov eax, 852",
    "shr eax, 1",
    "syscall",
    "3:",
    "cld",
    "mov rcx, rax",
    "xor eax, eax",
    "cmp rcx, rsi",
    "jne 4f",
    "cmp rbx, 0x1111",
    "jne 4f",
    "cmp r12, 0x2222",
    "jne 4f",
    "cmp r13, 0x3333",
    "jne 4f",
    "cmp r14, 0x4444",
    "jne 4f",
    "cmp r15, 0x5555",
    "jne 4f",
    "cmp r8, 0x6666",
    "jne 4f",
    "cmp r9, 0x7777",
    "jne 4f",
    "test rdx, rdx",
    "jne 4f",
    "test r10, r10",
    "jne 4f",
    "mov r11, 0x123456789abcdef",
    "cmp [rsp - 8], r11",
    "jne 4f",
    "cmp [rsp - 128], r11",
    "jne 4f",
    "movq rcx, xmm0",
    "cmp rcx, r11",
    "jne 4f",
    "movq rcx, xmm7",
    "cmp rcx, r11",
    "jne 4f",
    "movq rcx, xmm15",
    "cmp rcx, r11",
    "jne 4f",
    "mov eax, 1",
    "4:",
    "add rsp, 136",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".size conformance_keeps, . - conformance_keeps",
    ".popsection",
);

unsafe extern "C" {
    fn conformance_keeps(fd: usize, submit: usize, immediate: usize) -> usize;
}

/// Enters `fd` inline with `submit`, all of which must be consumed. Returns whether every register
/// that a system call preserves is preserved: callee-saved, arguments', vector registers, and the
/// red zone below the stack.
///
/// libc's `syscall()` is a function, which need not preserve them: there the result is whether the
/// call succeeded.
pub fn enter_keeps_registers(entry: EntryPoint, fd: i32, submit: u32) -> bool {
    if entry == EntryPoint::Syscall {
        return enter(entry, fd, submit, 0, 0, 0, 0) == submit as isize;
    }
    let immediate = usize::from(entry == EntryPoint::Patch);
    // SAFETY: a system call with integers; the stub saves what the C calling convention asks for.
    unsafe { conformance_keeps(word(fd), submit as usize, immediate) == 1 }
}
