//! memcpy(3) and its like, which the compiler calls by name, and which a program without a C
//! library does not have.
//!
//! Each moves blocks of 16 bytes, the last of which overlaps the one before it, so that no length
//! needs a loop over single bytes. Long copies go by `rep movsb`, which processors have microcode
//! for.

use core::arch::global_asm;

/// Bytes from which on `rep movsb` and `rep stosb` are used.
const LONG: usize = 1024;

/// Defines a hidden function. A test program has the C library's beside it, so its name differs
/// there.
#[cfg(not(test))]
macro_rules! named {
    ($($before:literal)? ; $name:literal; $($after:literal)?) => {
        concat!($($before,)? $name $(, $after)?)
    };
}
#[cfg(test)]
macro_rules! named {
    ($($before:literal)? ; $name:literal; $($after:literal)?) => {
        concat!($($before,)? "softring_", $name $(, $after)?)
    };
}

macro_rules! hidden {
    ($name:literal, [$($line:expr),* $(,)?] $(, $operand:ident = $value:ident)?) => {
        // The function of this name as C has it, in the C calling convention.
        global_asm!(
            ".pushsection .text.softring_memory, \"ax\", @progbits",
            ".p2align 4",
            named!(".hidden "; $name;),
            named!(".globl "; $name;),
            named!(".type "; $name; ", @function"),
            named!(; $name; ":"),
            ".cfi_startproc",
            $($line,)*
            ".cfi_endproc",
            named!(".size "; $name; ", . - ."),
            ".popsection",
            $($operand = const $value,)?
        );
    };
}

hidden!(
    "memcpy",
    [
        "mov rax, rdi",
        "cmp rdx, 16",
        "jb softring_copy_short",
        "cmp rdx, 32",
        "ja softring_copy_up",
        "softring_copy_two:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "ret",
        // More than 32 bytes, upwards. The last ones are loaded first: a move to lower addresses
        // may write over them.
        "softring_copy_up:",
        "cmp rdx, {long}",
        "jae 4f",
        "movups xmm4, [rsi + rdx - 32]",
        "movups xmm5, [rsi + rdx - 16]",
        "lea rcx, [rdi + rdx - 32]",
        "cmp rdx, 64",
        "ja 2f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rcx], xmm4",
        "movups [rcx + 16], xmm5",
        "ret",
        "2:",
        "movups xmm6, [rsi + rdx - 64]",
        "movups xmm7, [rsi + rdx - 48]",
        "3:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "add rsi, 64",
        "add rdi, 64",
        "lea r8, [rdi + 32]",
        "cmp r8, rcx",
        "jb 3b",
        "movups [rcx - 32], xmm6",
        "movups [rcx - 16], xmm7",
        "movups [rcx], xmm4",
        "movups [rcx + 16], xmm5",
        "ret",
        "4:",
        "mov rcx, rdx",
        "rep movsb",
        "ret",
        // Fewer than 16 bytes: all are loaded before any is stored.
        "softring_copy_short:",
        "cmp edx, 8",
        "jae 8f",
        "cmp edx, 4",
        "jae 5f",
        "test edx, edx",
        "jz 6f",
        "lea r10, [rdi + rdx - 1]",
        "movzx ecx, byte ptr [rsi]",
        "movzx r8d, byte ptr [rsi + rdx - 1]",
        "shr edx",
        "movzx r9d, byte ptr [rsi + rdx]",
        "mov [rdi], cl",
        "mov [rdi + rdx], r9b",
        "mov [r10], r8b",
        "6:",
        "ret",
        "5:",
        "mov ecx, [rsi]",
        "mov r8d, [rsi + rdx - 4]",
        "mov [rdi], ecx",
        "mov [rdi + rdx - 4], r8d",
        "ret",
        "8:",
        "mov rcx, [rsi]",
        "mov r8, [rsi + rdx - 8]",
        "mov [rdi], rcx",
        "mov [rdi + rdx - 8], r8",
        "ret",
    ],
    long = LONG
);

hidden!(
    "memmove",
    [
        "mov rax, rdi",
        "cmp rdx, 16",
        "jb softring_copy_short",
        "cmp rdx, 32",
        "jbe softring_copy_two",
        "mov rcx, rdi",
        "sub rcx, rsi",
        "cmp rcx, rdx",
        "jae softring_copy_up",
        // The target begins within the source: downwards. The first 32 bytes are loaded first.
        "movups xmm2, [rsi]",
        "movups xmm3, [rsi + 16]",
        "add rsi, rdx",
        "lea rcx, [rdi + rdx]",
        "lea r8, [rdi + 32]",
        "2:",
        "movups xmm0, [rsi - 16]",
        "movups xmm1, [rsi - 32]",
        "movups [rcx - 16], xmm0",
        "movups [rcx - 32], xmm1",
        "sub rsi, 32",
        "sub rcx, 32",
        "cmp rcx, r8",
        "ja 2b",
        "movups [rdi], xmm2",
        "movups [rdi + 16], xmm3",
        "ret",
    ]
);

hidden!(
    "memset",
    [
        "movzx esi, sil",
        "mov rax, 0x0101010101010101",
        "imul rsi, rax",
        "mov rax, rdi",
        "cmp rdx, 16",
        "jb 4f",
        "cmp rdx, {long}",
        "jae 3f",
        "movq xmm0, rsi",
        "punpcklqdq xmm0, xmm0",
        "lea rcx, [rdi + rdx - 64]",
        "cmp rdx, 64",
        "jbe 7f",
        "2:",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm0",
        "movups [rdi + 32], xmm0",
        "movups [rdi + 48], xmm0",
        "add rdi, 64",
        "cmp rdi, rcx",
        "jb 2b",
        "movups [rcx], xmm0",
        "movups [rcx + 16], xmm0",
        "movups [rcx + 32], xmm0",
        "movups [rcx + 48], xmm0",
        "ret",
        // Not more than 64 bytes.
        "7:",
        "movups [rdi], xmm0",
        "movups [rcx + 48], xmm0",
        "cmp rdx, 32",
        "jbe 6f",
        "movups [rdi + 16], xmm0",
        "movups [rcx + 32], xmm0",
        "ret",
        "3:",
        "mov r8, rdi",
        "mov rcx, rdx",
        "mov rax, rsi",
        "rep stosb",
        "mov rax, r8",
        "ret",
        "4:",
        "cmp edx, 8",
        "jae 8f",
        "cmp edx, 4",
        "jae 5f",
        "test edx, edx",
        "jz 6f",
        "mov [rdi], sil",
        "mov [rdi + rdx - 1], sil",
        "shr edx",
        "mov [rdi + rdx], sil",
        "6:",
        "ret",
        "5:",
        "mov [rdi], esi",
        "mov [rdi + rdx - 4], esi",
        "ret",
        "8:",
        "mov [rdi], rsi",
        "mov [rdi + rdx - 8], rsi",
        "ret",
    ],
    long = LONG
);

hidden!(
    "memcmp",
    [
        "softring_compare:",
        "xor ecx, ecx",
        "2:",
        "lea r8, [rcx + 8]",
        "cmp r8, rdx",
        "ja 3f",
        "mov rax, [rdi + rcx]",
        "mov r9, [rsi + rcx]",
        "mov rcx, r8",
        "cmp rax, r9",
        "je 2b",
        "bswap rax",
        "bswap r9",
        "cmp rax, r9",
        "sbb eax, eax",
        "or eax, 1",
        "ret",
        // Fewer than eight bytes are left.
        "3:",
        "xor eax, eax",
        "4:",
        "cmp rcx, rdx",
        "jae 5f",
        "movzx eax, byte ptr [rdi + rcx]",
        "movzx r9d, byte ptr [rsi + rcx]",
        "inc rcx",
        "sub eax, r9d",
        "jz 4b",
        "5:",
        "ret",
    ]
);

hidden!("bcmp", ["jmp softring_compare"]);

hidden!(
    "strlen",
    [
        // Aligned blocks, which lie within a page, from the one that the string begins in.
        "mov ecx, edi",
        "mov rax, rdi",
        "and rax, -16",
        "and ecx, 15",
        "pxor xmm0, xmm0",
        "movdqa xmm1, [rax]",
        "pcmpeqb xmm1, xmm0",
        "pmovmskb edx, xmm1",
        "shr edx, cl",
        "shl edx, cl",
        "2:",
        "test edx, edx",
        "jnz 3f",
        "add rax, 16",
        "movdqa xmm1, [rax]",
        "pcmpeqb xmm1, xmm0",
        "pmovmskb edx, xmm1",
        "jmp 2b",
        "3:",
        "bsf edx, edx",
        "add rax, rdx",
        "sub rax, rdi",
        "ret",
    ]
);

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::LONG;
    use core::ffi::{c_char, c_int, c_void};

    unsafe extern "C" {
        fn softring_memcpy(to: *mut c_void, from: *const c_void, n: usize) -> *mut c_void;
        fn softring_memmove(to: *mut c_void, from: *const c_void, n: usize) -> *mut c_void;
        fn softring_memset(to: *mut c_void, byte: c_int, n: usize) -> *mut c_void;
        fn softring_memcmp(a: *const c_void, b: *const c_void, n: usize) -> c_int;
        fn softring_bcmp(a: *const c_void, b: *const c_void, n: usize) -> c_int;
        fn softring_strlen(text: *const c_char) -> usize;
    }

    fn lengths() -> impl Iterator<Item = usize> {
        (0..200).chain([LONG - 1, LONG, LONG + 1, 2 * LONG + 5])
    }

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i * 7 + i / 256 + 1) as u8).collect()
    }

    #[test]
    fn copies_are_whole_and_no_longer() {
        for n in lengths() {
            let from = bytes(n);
            let mut to = vec![0u8; n + 2];
            // SAFETY: both have room.
            let ret =
                unsafe { softring_memcpy(to[1..].as_mut_ptr().cast(), from.as_ptr().cast(), n) };
            assert_eq!(ret.addr(), to[1..].as_ptr().addr());
            assert!(to[1..=n] == from && (to[0], to[n + 1]) == (0, 0), "{n} bytes");
        }
    }

    #[test]
    fn moves_may_overlap_in_both_directions() {
        for n in lengths() {
            for (from, to) in [(0, 0), (0, 1), (1, 0), (0, 15), (31, 0), (0, 40), (40, 0), (0, 7)] {
                let mut got = bytes(n + 64);
                let mut want = got.clone();
                want.copy_within(from..from + n, to);
                let at = got.as_mut_ptr();
                // SAFETY: both parts are within the memory.
                unsafe { softring_memmove(at.add(to).cast(), at.add(from).cast(), n) };
                assert!(got == want, "{n} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn memory_is_set() {
        for n in lengths() {
            let mut to = vec![1u8; n + 2];
            // SAFETY: there is room.
            let ret = unsafe { softring_memset(to[1..].as_mut_ptr().cast(), 0x1a5, n) };
            assert_eq!(ret.addr(), to[1..].as_ptr().addr());
            assert!(to[1..=n].iter().all(|b| *b == 0xa5) && (to[0], to[n + 1]) == (1, 1), "{n}");
        }
    }

    #[test]
    fn the_first_different_byte_decides() {
        for n in lengths().filter(|n| *n < 200) {
            let a = bytes(n);
            let compare = |b: &[u8]| {
                let [a, b] = [a.as_ptr().cast(), b.as_ptr().cast()];
                // SAFETY: both have that many bytes.
                unsafe { (softring_memcmp(a, b, n), softring_bcmp(a, b, n)) }
            };
            assert_eq!(compare(&a), (0, 0));
            for at in 0..n {
                let mut b = a.clone();
                b[at] ^= 0x80;
                b[at + 1..].fill(0xff);
                let (order, differ) = compare(&b);
                let want = a.as_slice().cmp(&b) as c_int;
                assert!(order.signum() == want && differ != 0, "{n} bytes, at {at}");
            }
        }
    }

    #[test]
    fn a_strings_length_is_found_at_each_alignment() {
        for start in 0..32 {
            for n in 0..64 {
                let mut text = vec![0u8; start + n + 33];
                text[start..start + n].fill(b'x');
                // SAFETY: the string ends in 0.
                assert_eq!(unsafe { softring_strlen(text[start..].as_ptr().cast()) }, n);
            }
        }
    }
}
