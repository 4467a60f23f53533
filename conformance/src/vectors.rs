//! Inline call that fills vector registers and masks of AVX-512, which a system call preserves.
#![allow(unsafe_code)]

use crate::entry::{EntryPoint, enter};
use std::arch::global_asm;

global_asm!(
    ".pushsection .text.conformance_inline,\"ax\",@progbits",
    ".balign 16",
    ".globl conformance_keeps_vectors",
    ".type conformance_keeps_vectors,@function",
    // rdi: fd, rsi: to_submit, rdx: nonzero if the upper half of ymm3 is to be in use.
    "conformance_keeps_vectors:",
    "mov r8, rdx",
    "mov rax, 0x123456789abcdef",
    "vzeroupper",
    "vpbroadcastq zmm16, rax",
    "vpbroadcastq zmm25, rax",
    "vpbroadcastq zmm31, rax",
    "kmovq k1, rax",
    "kmovq k7, rax",
    "movq xmm3, rax",
    "punpcklqdq xmm3, xmm3",
    "test r8, r8",
    "jz 2f",
    "vpbroadcastq ymm3, rax",
    "2:",
    "mov rdx, 0",
    "mov r10, 0",
    "mov eax, 426",
    "syscall",
    "mov rcx, rax",
    "xor eax, eax",
    "cmp rcx, rsi",
    "jne 4f",
    "mov rax, 0x123456789abcdef",
    "vpbroadcastq zmm17, rax",
    "vpcmpeqq k2, zmm17, zmm16",
    "vpcmpeqq k3, zmm17, zmm25",
    "vpcmpeqq k4, zmm17, zmm31",
    "kandb k2, k2, k3",
    "kandb k2, k2, k4",
    "vpcmpeqq k3, ymm17, ymm3",
    "kmovq rcx, k1",
    "kmovq rdx, k7",
    "kmovb r9d, k2",
    "kmovb r10d, k3",
    "vzeroupper",
    "xor rcx, rax",
    "xor rdx, rax",
    "or rcx, rdx",
    "xor r9d, 0xff",
    // Two of the four words of ymm3 are zero if its upper half was not in use.
    "neg r8d",
    "sbb r8d, r8d",
    "and r8d, 0xc",
    "or r8d, 3",
    "xor r10d, r8d",
    "or r9d, r10d",
    "or rcx, r9",
    "xor eax, eax",
    "test rcx, rcx",
    "sete al",
    "4:",
    "ret",
    ".size conformance_keeps_vectors, . - conformance_keeps_vectors",
    ".popsection",
);

unsafe extern "C" {
    fn conformance_keeps_vectors(fd: usize, submit: usize, upper: usize) -> usize;
}

/// Enters `fd` inline with `submit`, all of which must be consumed. Returns whether registers and
/// masks of AVX-512 are preserved, where the machine has them; `upper`: while the upper half of a
/// lower register is in use, too. For other entry points see [`crate::entry`].
pub fn enter_keeps_vectors(entry: EntryPoint, fd: i32, submit: u32, upper: bool) -> bool {
    let there = ["avx512bw", "avx512dq", "avx512vl"].map(|what| match what {
        "avx512bw" => std::is_x86_feature_detected!("avx512bw"),
        "avx512dq" => std::is_x86_feature_detected!("avx512dq"),
        _ => std::is_x86_feature_detected!("avx512vl"),
    });
    if entry != EntryPoint::Patch || there != [true; 3] {
        return enter(entry, fd, submit, 0, 0, 0, 0) == submit as isize;
    }
    // SAFETY: a system call with integers, and registers that no caller expects to be kept.
    unsafe { conformance_keeps_vectors(fd as usize, submit as usize, upper.into()) == 1 }
}
