//! Recognition of `syscall` in text without frames or padding: C without unwind tables, assembly
//! without directives. Most bytes that resemble `syscall` there are part of another instruction, or
//! of a table.
//!
//! Code decodes the same from any start, after a few instructions. So bytes count as an instruction
//! if most starts before them lead there, and if the instructions around them are ones that
//! compilers write.

use super::frames::Function;
use super::modules::Module;
use super::text::SYSCALL;
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register,
};

/// Bytes before the instruction in which decoding must agree.
const NEAR: usize = 64;
/// Bytes before and behind the instruction that are returned: more than a short jump reaches.
const FAR: usize = 512;
/// Distances before the instruction, in bytes, from most of which decoding must lead to it.
const VOTERS: core::ops::Range<usize> = 16..64;
/// Bytes before the instruction that compilers must write.
const LINE: usize = 16;
/// Instructions from the `syscall` on that compilers must write; fewer if the function ends.
const BEHIND: usize = 6;

/// Returns code around the `syscall` at `at` whose first instruction begins at its start; `None` if
/// this is no `syscall`.
pub fn around(m: &Module, at: usize) -> Option<Function> {
    let (text, i) = m.text_at(at)?;
    let low = i.saturating_sub(NEAR);
    let next: Vec<Option<usize>> = (low..i).map(|from| next(text, from, i)).collect();
    let mut leads = vec![false; i - low + 1];
    leads[i - low] = true;
    for from in (low..i).rev() {
        leads[from - low] = next[from - low].is_some_and(|next| leads[next - low]);
    }
    let voters = i.saturating_sub(VOTERS.end).max(low)..i.saturating_sub(VOTERS.start);
    let votes = voters.clone().filter(|from| leads[from - low]).count();
    if votes * 2 <= voters.len() || !is_compiled_behind(text, i) {
        return None;
    }
    let is_compiled = |from: &usize| is_compiled_up_to(text, *from, i);
    let line = (low..=i.saturating_sub(LINE)).rev().filter(|from| leads[from - low]);
    line.take(8).find(is_compiled)?;
    let start = (i.saturating_sub(FAR)..i).find(|from| leads_to(text, *from, i))?;
    let end = text.len().min(i + SYSCALL + FAR);
    Some(Function { start: at - (i - start), end: at + (end - i) })
}

/// Returns the end of the instruction at `from`, unless it is behind `to`.
fn next(text: &[u8], from: usize, to: usize) -> Option<usize> {
    let i = decode(text, from)?;
    Some(from + i.len()).filter(|end| *end <= to)
}

/// Returns whether decoding from `from` leads to `to`.
fn leads_to(text: &[u8], mut from: usize, to: usize) -> bool {
    while from < to {
        let Some(behind) = next(text, from, to) else { return false };
        from = behind;
    }
    true
}

fn decode(text: &[u8], from: usize) -> Option<Instruction> {
    const LONGEST: usize = 15;
    let bytes = &text[from..text.len().min(from + LONGEST)];
    let i = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
    (!i.is_invalid()).then_some(i)
}

fn is_compiled_up_to(text: &[u8], mut from: usize, to: usize) -> bool {
    while from < to {
        match decode(text, from).filter(is_compiled) {
            Some(i) => from += i.len(),
            None => return false,
        }
    }
    from == to
}

fn is_compiled_behind(text: &[u8], mut from: usize) -> bool {
    for _ in 0..BEHIND {
        let Some(i) = decode(text, from).filter(is_compiled) else { return false };
        if matches!(i.flow_control(), FlowControl::Return | FlowControl::UnconditionalBranch) {
            break;
        }
        from += i.len();
    }
    true
}

/// Returns whether compilers write this instruction in ordinary code. Zeros and random bytes often
/// decode to others.
fn is_compiled(i: &Instruction) -> bool {
    use Mnemonic::*;
    let zeros = i.code() == Code::Add_rm8_r8 && i.memory_base() == Register::RAX;
    // Padding has a prefix without meaning.
    let segment = !matches!(i.segment_prefix(), Register::None | Register::FS)
        && i.mnemonic() != Mnemonic::Nop;
    let flow = matches!(
        i.flow_control(),
        FlowControl::Call
            | FlowControl::ConditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::IndirectCall
            | FlowControl::Return
            | FlowControl::UnconditionalBranch
    ) && !matches!(
        i.mnemonic(),
        Loop | Loope | Loopne | Jrcxz | Jecxz | Retf | Iretq | Iretd | Sysret | Sysexit | Sysenter
    );
    // `setcc`, `cmovcc`.
    let conditional = i.condition_code() != ConditionCode::None;
    !zeros && !segment && (flow || conditional || is_plain(i.mnemonic()))
}

/// Returns whether the instruction moves, computes or compares.
fn is_plain(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Mov | Movzx
            | Movsx
            | Movsxd
            | Lea
            | Xor
            | And
            | Or
            | Add
            | Sub
            | Cmp
            | Test
            | Push
            | Pop
            | Nop
            | Endbr64
            | Neg
            | Not
            | Inc
            | Dec
            | Shl
            | Shr
            | Sar
            | Xchg
            | Leave
            | Cdqe
            | Cdq
            | Cqo
            | Imul
            | Bswap
            | Bt
            | Movd
            | Movq
            | Movaps
            | Movups
            | Movdqa
            | Movdqu
            | Pxor
            | Int3
            | Syscall
            | Adc
            | Sbb
            | Rol
            | Ror
            | Mul
            | Div
            | Idiv
            | Bts
            | Btr
            | Bsf
            | Bsr
            | Tzcnt
            | Xadd
            | Cmpxchg
    )
}

#[cfg(test)]
mod tests {
    use super::super::modules::Text;
    use super::*;

    /// Returns whether `text` is taken for code around its `syscall`.
    fn found(text: &'static [u8]) -> bool {
        let at = text.windows(2).position(|w| w == [0x0f, 5]).unwrap();
        let start = text.as_ptr().expose_provenance();
        let mut m = Module::default();
        m.text.push(Text { start, len: text.len(), prot: 0 });
        around(&m, start + at).is_some()
    }

    #[test]
    fn functions_are_distinguished_from_data() {
        // mov eax, [rip]; mov r10, rcx; cmp eax, 1; sbb rax, rax; and eax, 387; add rax, 39
        static CODE: &[u8] = b"\x8b\x05\x8e\x2a\0\0\x49\x89\xca\x83\xf8\x01\x48\x19\xc0\x25\
            \x83\x01\0\0\x48\x83\xc0\x27\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\
            \xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x0f\x05\xc3";
        assert!(found(CODE));
        static CONSTANT: &[u8] = b"\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\
            \xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\x48\x89\xc0\xb8\x0f\
            \x05\0\0\xc3\xc3\xc3\xc3\xc3\xc3\xc3\xc3";
        assert!(!found(CONSTANT));
        static TABLE: &[u8] = b"\x63\x7c\x77\x7b\xf2\x6b\x6f\xc5\x30\x01\x67\x2b\xfe\xd7\xab\
            \x76\xca\x82\xc9\x7d\xfa\x59\x47\xf0\xad\xd4\xa2\xaf\x9c\xa4\x72\xc0\xb7\xfd\x93\x26\
            \x0f\x05\xf7\xcc\x34\xa5\xe5\xf1\x71\xd8\x31\x15";
        assert!(!found(TABLE));
    }
}
