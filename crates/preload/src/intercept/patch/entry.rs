//! The entry from a stub into Rust. It preserves every register that `syscall` preserves: all but
//! rax, rcx and r11.
//!
//! Vector registers may be live over an inline call, and both the engine's code and libc's memcpy
//! use them. While XINUSE says that nothing beyond xmm is in use, sixteen moves save all of the
//! state. Where the C library has used the second sixteen registers of AVX-512 once, these and the
//! masks stay in use for good, and moves save them, too: a tenth of the time that XSAVE and XRSTOR
//! take. If upper halves are in use, XSAVE saves all. What the call has used and was not in use is
//! reset to its initial state, which is the one it was in.
#![allow(unsafe_code)]

use crate::intercept::stack::{self, enter_stack, leave_stack};
use crate::intercept::thread_exit;
use crate::{gate, raw, report};
use core::arch::naked_asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use core::sync::atomic::{AtomicU32, Ordering};
use softring_host::initial::{self, BY_REGISTER, PROGRAM};
use softring_host::per_thread::{FACTOR, HEADS_LEN, PROCESS};

/// Number that the loader's hook passes; no system call has it.
pub const HOOK: usize = 0x4000_0000;
/// Bit beside the number: the call was trapped.
pub const TRAPPED: usize = 0x2000_0000;

/// State components: SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM.
const VECTOR: u32 = 0b1110_0110;
/// State components of these that moves save: opmask, Hi16_ZMM.
const HIGH: u32 = 0b1010_0000;
/// Room for what moves save: xmm and the flags, the high registers, the masks.
const MOVED: usize = 320 + 16 * 64 + 8 * 8;
/// Size of an XSAVE area for these, in the standard format, up to the end of Hi16_ZMM.
const AREA: usize = 2688;

/// Vector state beyond xmm that this machine has; 0 if xmm is all.
static WIDE: AtomicU32 = AtomicU32::new(0);
/// Nonzero if XGETBV can tell what is in use.
static IN_USE: AtomicU32 = AtomicU32::new(0);
/// Vector state beyond xmm that moves cannot save on this machine.
static BULKY: AtomicU32 = AtomicU32::new(0);

/// An XSAVE area with all components in their initial state.
#[repr(C, align(64))]
struct Initial([u8; AREA]);
static INITIAL: Initial = {
    let mut area = [0; AREA];
    // MXCSR, which XRSTOR loads with AVX, must be valid; the program's own is loaded after it.
    area[24] = 0x80;
    area[25] = 0x1f;
    Initial(area)
};

#[target_feature(enable = "xsave")]
fn enabled() -> u32 {
    // SAFETY: register 0 exists where OSXSAVE is set.
    unsafe { _xgetbv(0) as u32 }
}

/// Returns whether the processor has AVX2, and the kernel keeps its registers.
pub(super) fn has_avx2() -> bool {
    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const XMM_AND_YMM: u32 = 0b110;
    const AVX2: u32 = 1 << 5;
    __cpuid(1).ecx & OSXSAVE_AND_AVX == OSXSAVE_AND_AVX
        // SAFETY: OSXSAVE says that the processor has XGETBV and the kernel enabled it.
        && unsafe { enabled() } & XMM_AND_YMM == XMM_AND_YMM
        && __cpuid_count(7, 0).ebx & AVX2 != 0
}

/// Asks the processor for its features. Called before the first stub is reachable.
pub fn probe() {
    const OSXSAVE: u32 = 1 << 27;
    const XGETBV_1: u32 = 1 << 2;
    // Masks of 64 bits.
    const AVX512BW: u32 = 1 << 30;
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return;
    }
    // SAFETY: OSXSAVE says that the processor has XGETBV and the kernel enabled it.
    let wide = unsafe { enabled() } & VECTOR & !2;
    // Relaxed: before any stub is written.
    IN_USE.store(u32::from(__cpuid_count(0xd, 1).eax & XGETBV_1 != 0), Ordering::Relaxed);
    let moves = __cpuid_count(7, 0).ebx & AVX512BW != 0;
    BULKY.store(if moves { wide & !HIGH } else { wide }, Ordering::Relaxed);
    WIDE.store(wide, Ordering::Relaxed);
}

/// Pushes the frame that unwinders follow: the program's stack pointer is 144 bytes above rbp, past
/// the red zone, the stub's return address and rbp itself. Unwinders take rcx as the return
/// address. Leaves the number in r11.
macro_rules! push_frame {
    () => {
        concat!(
            ".cfi_startproc\n",
            ".cfi_def_cfa rsp, 136\n",
            ".cfi_register rip, rcx\n",
            "push rbp\n",
            ".cfi_def_cfa_offset 144\n",
            ".cfi_offset rbp, -144\n",
            "mov rbp, rsp\n",
            ".cfi_def_cfa_register rbp\n",
            "mov r11, rax\n",
            // The flags except DF, which stays clear after the call: the ABI keeps it so.
            "lahf\n",
            "seto al\n",
            "cld\n",
            "push rax; push rcx\n",
            ".cfi_offset rip, -160\n",
            "push r9; push r8; push r10; push rdx; push rsi; push rdi\n",
            // The stack that is changed to, and the number.
            "push 0; push r11\n",
        )
    };
}
/// Pops the frame and returns the value of r11.
macro_rules! pop_frame {
    () => {
        concat!(
            "lea rsp, [rbp - 64]\n",
            "pop rdi; pop rsi; pop rdx; pop r10; pop r8; pop r9; pop rcx; pop rax\n",
            ".cfi_register rip, rcx\n",
            "add al, 127\n",
            "sahf\n",
            "mov rax, r11\n",
            "pop rbp\n",
            ".cfi_def_cfa rsp, 136\n",
            ".cfi_same_value rbp\n",
            "ret\n",
            ".cfi_endproc\n",
        )
    };
}
/// Enters the kernel's rings directly, where nothing else can be entered. The arguments are in
/// their registers, except rdx.
macro_rules! enter_kernels {
    () => {
        concat!(
            "jmp 6f\n",
            "94:\n",
            "mov rdx, [rbp - 48]\n",
            "mov eax, 426\n",
            "syscall\n",
            "mov r11, rax\n",
        )
    };
}
macro_rules! save_xmm {
    () => {
        concat!(
            "movaps [rsp + 0], xmm0\n",
            "movaps [rsp + 16], xmm1\n",
            "movaps [rsp + 32], xmm2\n",
            "movaps [rsp + 48], xmm3\n",
            "movaps [rsp + 64], xmm4\n",
            "movaps [rsp + 80], xmm5\n",
            "movaps [rsp + 96], xmm6\n",
            "movaps [rsp + 112], xmm7\n",
            "movaps [rsp + 128], xmm8\n",
            "movaps [rsp + 144], xmm9\n",
            "movaps [rsp + 160], xmm10\n",
            "movaps [rsp + 176], xmm11\n",
            "movaps [rsp + 192], xmm12\n",
            "movaps [rsp + 208], xmm13\n",
            "movaps [rsp + 224], xmm14\n",
            "movaps [rsp + 240], xmm15\n",
        )
    };
}
macro_rules! load_xmm {
    () => {
        concat!(
            "movaps xmm0, [rsp + 0]\n",
            "movaps xmm1, [rsp + 16]\n",
            "movaps xmm2, [rsp + 32]\n",
            "movaps xmm3, [rsp + 48]\n",
            "movaps xmm4, [rsp + 64]\n",
            "movaps xmm5, [rsp + 80]\n",
            "movaps xmm6, [rsp + 96]\n",
            "movaps xmm7, [rsp + 112]\n",
            "movaps xmm8, [rsp + 128]\n",
            "movaps xmm9, [rsp + 144]\n",
            "movaps xmm10, [rsp + 160]\n",
            "movaps xmm11, [rsp + 176]\n",
            "movaps xmm12, [rsp + 192]\n",
            "movaps xmm13, [rsp + 208]\n",
            "movaps xmm14, [rsp + 224]\n",
            "movaps xmm15, [rsp + 240]\n",
        )
    };
}
macro_rules! save_high {
    () => {
        concat!(
            "vmovups [rsp + 320], zmm16\n",
            "vmovups [rsp + 384], zmm17\n",
            "vmovups [rsp + 448], zmm18\n",
            "vmovups [rsp + 512], zmm19\n",
            "vmovups [rsp + 576], zmm20\n",
            "vmovups [rsp + 640], zmm21\n",
            "vmovups [rsp + 704], zmm22\n",
            "vmovups [rsp + 768], zmm23\n",
            "vmovups [rsp + 832], zmm24\n",
            "vmovups [rsp + 896], zmm25\n",
            "vmovups [rsp + 960], zmm26\n",
            "vmovups [rsp + 1024], zmm27\n",
            "vmovups [rsp + 1088], zmm28\n",
            "vmovups [rsp + 1152], zmm29\n",
            "vmovups [rsp + 1216], zmm30\n",
            "vmovups [rsp + 1280], zmm31\n",
            "kmovq [rsp + 1344], k0\n",
            "kmovq [rsp + 1352], k1\n",
            "kmovq [rsp + 1360], k2\n",
            "kmovq [rsp + 1368], k3\n",
            "kmovq [rsp + 1376], k4\n",
            "kmovq [rsp + 1384], k5\n",
            "kmovq [rsp + 1392], k6\n",
            "kmovq [rsp + 1400], k7\n",
        )
    };
}
macro_rules! load_high {
    () => {
        concat!(
            "vmovups zmm16, [rsp + 320]\n",
            "vmovups zmm17, [rsp + 384]\n",
            "vmovups zmm18, [rsp + 448]\n",
            "vmovups zmm19, [rsp + 512]\n",
            "vmovups zmm20, [rsp + 576]\n",
            "vmovups zmm21, [rsp + 640]\n",
            "vmovups zmm22, [rsp + 704]\n",
            "vmovups zmm23, [rsp + 768]\n",
            "vmovups zmm24, [rsp + 832]\n",
            "vmovups zmm25, [rsp + 896]\n",
            "vmovups zmm26, [rsp + 960]\n",
            "vmovups zmm27, [rsp + 1024]\n",
            "vmovups zmm28, [rsp + 1088]\n",
            "vmovups zmm29, [rsp + 1152]\n",
            "vmovups zmm30, [rsp + 1216]\n",
            "vmovups zmm31, [rsp + 1280]\n",
            "kmovq k0, [rsp + 1344]\n",
            "kmovq k1, [rsp + 1352]\n",
            "kmovq k2, [rsp + 1360]\n",
            "kmovq k3, [rsp + 1368]\n",
            "kmovq k4, [rsp + 1376]\n",
            "kmovq k5, [rsp + 1384]\n",
            "kmovq k6, [rsp + 1392]\n",
            "kmovq k7, [rsp + 1400]\n",
        )
    };
}
/// Resets what the call has used beyond xmm, and loads what moves have saved.
macro_rules! load_moved {
    () => {
        concat!(
            "mov r8d, [rip + {wide}]\n",
            "test r8d, r8d\n",
            "jz 4f\n",
            "mov ecx, 1\n",
            "xgetbv\n",
            "and eax, r8d\n",
            "mov r8d, [rsp + 260]\n",
            "not r8d\n",
            "and eax, r8d\n",
            "jz 4f\n",
            "xor edx, edx\n",
            "xrstor64 [rip + {initial}]\n",
            "4:\n",
            load_xmm!(),
            "ldmxcsr [rsp + 256]\n",
            "cmp dword ptr [rsp + 260], 0\n",
            "je 6f\n",
            load_high!(),
        )
    };
}
macro_rules! clear_header {
    () => {
        concat!(
            "mov [rsp + 512], rax\n",
            "mov [rsp + 520], rax\n",
            "mov [rsp + 528], rax\n",
            "mov [rsp + 536], rax\n",
            "mov [rsp + 544], rax\n",
            "mov [rsp + 552], rax\n",
            "mov [rsp + 560], rax\n",
            "mov [rsp + 568], rax\n",
        )
    };
}

/// Enters Rust from a stub: 128 bytes below the program's stack pointer, with the number in eax,
/// the arguments where `syscall` takes them, and in rcx what `syscall` leaves there: the address of
/// the instruction behind it.
///
/// Unwinders (debuggers, profilers, exceptions) take that instruction for the caller. They do not
/// see the stub: it is in no file in which a description could be found.
#[unsafe(naked)]
pub unsafe extern "C" fn enter() {
    naked_asm!(
        push_frame!(),
        enter_stack!("72"),
        // Only the low 32 bits of the number count, as in the kernel.
        "mov edi, [rbp - 80]",
        "lea rsi, [rbp - 64]",
        "and rsp, -64",
        "mov r8d, [rip + {wide}]",
        "test r8d, r8d",
        "jz 3f",
        "cmp dword ptr [rip + {in_use}], 0",
        "je 5f",
        "mov ecx, 1",
        "xgetbv",
        "and eax, r8d",
        "jz 3f",
        "test eax, [rip + {bulky}]",
        "jnz 5f",
        // Save xmm, and the high registers and the masks.
        "sub rsp, {moved}",
        save_high!(),
        "jmp 7f",
        // Save xmm only.
        "3:",
        "sub rsp, 320",
        "xor eax, eax",
        "7:",
        // What is in use beyond xmm.
        "mov [rsp + 260], eax",
        "stmxcsr [rsp + 256]",
        save_xmm!(),
        "mov rdx, [rbp - 72]",
        "call {call}",
        "mov r11, rax",
        load_moved!(),
        "jmp 6f",
        // Save all vector state. XSAVE wants the header of its area clear.
        "5:",
        "sub rsp, {area}",
        "xor eax, eax",
        clear_header!(),
        "mov eax, r8d; or eax, 2",
        "xor edx, edx",
        "xsave64 [rsp]",
        "mov rdx, [rbp - 72]",
        "call {call}",
        "mov r11, rax",
        "mov eax, [rip + {wide}]; or eax, 2",
        "xor edx, edx",
        "xrstor64 [rsp]",
        enter_kernels!(),
        "6:",
        "lea rsp, [rbp - 80]",
        leave_stack!("72"),
        pop_frame!(),
        wide = sym WIDE,
        in_use = sym IN_USE,
        initial = sym INITIAL,
        bulky = sym BULKY,
        moved = const MOVED,
        area = const AREA,
        call = sym call,
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

/// Continues a trapped call as if its instruction had been patched: with the program's own
/// registers, rcx as `syscall` leaves it, and the number in eax.
///
/// Unwinders take it for a stub, and so do not see it.
#[unsafe(naked)]
pub unsafe extern "C" fn trapped() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa rsp, 0",
        ".cfi_register rip, rcx",
        "lea rsp, [rsp - 128]",
        ".cfi_def_cfa_offset 128",
        // `lea` changes no flag.
        "lea eax, [rax + {trapped}]",
        "call {enter}",
        "lea rsp, [rsp + 128]",
        ".cfi_def_cfa_offset 0",
        "jmp rcx",
        ".cfi_endproc",
        trapped = const TRAPPED,
        enter = sym enter,
    )
}

/// Answers a call from a stub. `stack`: the upper end of the stack of ours that this runs on; 0:
/// it runs on the program's.
unsafe extern "C" fn call(nr: usize, args: *const [usize; 6], stack: usize) -> isize {
    if stack != 0 {
        stack::entered(stack);
        if nr == libc::SYS_exit as usize && initial::is_known() {
            // SAFETY: the stack of the calling thread, which does not come back.
            unsafe { thread_exit::on_ours((*args)[0], stack) };
        }
    }
    // A `syscall` instruction does not change errno, so this must not either.
    let errno = raw::errno();
    let ret = if nr == HOOK {
        super::changed();
        0
    } else {
        let count = if nr & TRAPPED == 0 { &report::PATCHED } else { &report::TRAPPED };
        count.add();
        // SAFETY: `enter` passes its own frame, where it pushed the six arguments in order.
        unsafe { gate::call(nr & !TRAPPED, &*args) }
    };
    raw::set_errno(errno);
    ret
}
