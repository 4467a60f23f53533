//! libc's own `syscall()`. Ours comes before it by name, but a program may reach libc's directly:
//! by dlsym(3) on libc's handle, as Python's ctypes does, or from a library opened with
//! RTLD_DEEPBIND. So libc's function checks the number, too.
//!
//! glibc's is recognised by its bytes, as the decoder's tables take longer to build than most
//! programs take to start. Another libc's is decoded.
#![allow(unsafe_code)]

use super::modules::{self, Module};
use super::{site, stub, text};
use crate::intercept::syscall;

/// Bytes of glibc's, up to the `mov 8(%rsp),%r9` before its instruction `syscall`.
const MOVES: [u8; 18] = [
    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d,
    0x89, 0xc8,
];
const LAST_MOVE: [u8; text::JUMP] = [0x4c, 0x8b, 0x4c, 0x24, 0x08];
const SYSCALL: [u8; text::SYSCALL] = [0x0f, 0x05];
/// First instruction of the function if the compiler was asked for branch protection.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Makes libc's `syscall()` check the number. False if it could not be patched.
pub fn patch() -> bool {
    let Some(m) = modules::libc() else { return true };
    let is_there = |at: &usize| m.text_at(*at).is_some();
    // Another library's may come before it by name.
    let found = syscall::next().filter(is_there);
    let Some(at) = found.or_else(|| modules::libcs(c"syscall").filter(is_there)) else {
        return true;
    };
    stub::begin_below(modules::lowest_near(&m));
    match last_move(&m, at) {
        Some(at) => text::replace_move(&m, at, LAST_MOVE),
        None => site::wrapper(&m, at).is_some_and(|s| text::replace(&m, &[s], false).len() == 1),
    }
}

/// Returns the address of the last move in glibc's `syscall()`.
fn last_move(m: &Module, at: usize) -> Option<usize> {
    let (text, from) = m.text_at(at)?;
    let code = &text[from..];
    let endbr64 = if code.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    let moves = code[endbr64..].strip_prefix(&MOVES)?;
    let there = moves.strip_prefix(&LAST_MOVE)?.starts_with(&SYSCALL);
    there.then_some(at + endbr64 + MOVES.len())
}
