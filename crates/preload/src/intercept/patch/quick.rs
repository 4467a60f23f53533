//! The instructions that compilers write most, decoded without tables. What is not certain is not
//! taken: `None` leaves the instruction to the decoder. See Intel's manual, volume 2, appendix A.

use super::ins::{Ins, Kind, Value};
use super::opcodes::{Operands, may_lock, of_one, of_two, one_has_modrm, two_have_modrm};
use iced_x86::FlowControl;

pub const OPERAND_SIZE: u8 = 0x66;
pub const REPEAT: u8 = 0xf3;
pub const REPEAT_NOT: u8 = 0xf2;
const CS: u8 = 0x2e;
const FS: u8 = 0x64;
const LOCK: u8 = 0xf0;
/// Longest instruction.
const LONGEST: usize = 15;

/// Bytes of an instruction, taken one after another.
struct Bytes<'a> {
    text: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Takes the next byte if it is one of these.
    fn take(&mut self, these: impl Fn(u8) -> bool) -> u8 {
        match self.peek() {
            Some(byte) if these(byte) => {
                self.at += 1;
                byte
            }
            _ => 0,
        }
    }

    /// Takes a signed number of 0, 1, 2, 4 or 8 bytes.
    fn number(&mut self, len: usize) -> Option<i64> {
        let bytes = self.text.get(self.at..self.at + len)?;
        self.at += len;
        Some(match bytes {
            [] => 0,
            [byte] => byte.cast_signed().into(),
            [low, high] => i16::from_le_bytes([*low, *high]).into(),
            bytes if len == 4 => i32::from_le_bytes(bytes.try_into().ok()?).into(),
            bytes => i64::from_le_bytes(bytes.try_into().ok()?),
        })
    }
}

/// Decodes the instruction that `text` begins with, if it is one of those that are known here.
pub fn quick(text: &[u8], ip: u64) -> Option<Ins> {
    let mut bytes = Bytes { text, at: 0 };
    let before = bytes.take(|b| matches!(b, FS | LOCK));
    let prefix = bytes.take(|b| matches!(b, OPERAND_SIZE | REPEAT | REPEAT_NOT));
    let padding = prefix == OPERAND_SIZE && matches!(bytes.peek()?, OPERAND_SIZE | CS);
    while padding && bytes.take(|b| matches!(b, OPERAND_SIZE | CS)) != 0 {}
    if padding && !bytes.text[bytes.at..].starts_with(NOP) {
        return None;
    }
    let rex = bytes.take(|b| b & 0xf0 == 0x40);
    let first = bytes.peek()?;
    bytes.at += 1;
    let two = first == 0x0f;
    let opcode = if two { bytes.number(1)? as u8 } else { first };
    let has_modrm = if two { two_have_modrm(opcode)? } else { one_has_modrm(opcode)? };
    let mut operands = Operands { prefix, rex, reg: (rex & 1) << 3 | opcode & 7, rm: None };
    let mut relative = 0;
    if has_modrm {
        let modrm = bytes.number(1)? as u8;
        operands.reg = (rex & 4) << 1 | modrm >> 3 & 7;
        if modrm >> 6 == 3 {
            operands.rm = Some((rex & 1) << 3 | modrm & 7);
        } else {
            relative = memory(&mut bytes, modrm)?;
        }
    }
    let memory = has_modrm && operands.rm.is_none();
    // Without an operand in memory a segment means nothing, or something else.
    if before == FS && !memory || before == LOCK && !(memory && may_lock(two, opcode, &operands)) {
        return None;
    }
    let meaning =
        if two { of_two(opcode, &operands, memory)? } else { of_one(opcode, &operands, memory)? };
    let immediate = bytes.number(meaning.immediate)?;
    if bytes.at > LONGEST {
        return None;
    }
    let next = ip.wrapping_add(bytes.at as u64);
    use FlowControl::{Call, ConditionalBranch, UnconditionalBranch};
    let leads = matches!(meaning.flow, Call | ConditionalBranch | UnconditionalBranch);
    let target = leads && meaning.kind != Kind::Syscall;
    let wide = operands.wide();
    let value = match meaning.value {
        _ if meaning.moved && wide => Value::Constant(immediate.cast_unsigned()),
        _ if meaning.moved => Value::Constant((immediate as u32).into()),
        value => value,
    };
    Some(Ins {
        ip,
        len: bytes.at as u8,
        flow: meaning.flow,
        kind: meaning.kind,
        target: if target { next.wrapping_add_signed(immediate) } else { 0 },
        writes: meaning.writes,
        value,
        relative,
    })
}

/// Opcode of a `nop` with an operand, before which compilers write prefixes without meaning.
const NOP: &[u8] = b"\x0f\x1f";

/// Takes what describes an operand in memory; returns the offset of a displacement from RIP, or 0.
fn memory(bytes: &mut Bytes<'_>, modrm: u8) -> Option<u8> {
    const SIB: u8 = 4;
    const WITHOUT_BASE: u8 = 5;
    let (displaced, rm) = (modrm >> 6, modrm & 7);
    let base = if rm == SIB { bytes.number(1)? as u8 & 7 } else { rm };
    let len = match displaced {
        0 if base == WITHOUT_BASE => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    let at = bytes.at as u8;
    bytes.number(len)?;
    Some(if displaced == 0 && rm == WITHOUT_BASE { at } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::super::ins::thorough;
    use super::*;
    use iced_x86::InstructionInfoFactory;
    use proptest::prelude::*;

    const IP: u64 = 0x7f00_1234_5678;

    /// Compares the two, if `quick` takes the instruction; returns whether it does.
    fn agree(text: &[u8], info: &mut InstructionInfoFactory) -> bool {
        let Some(ins) = quick(text, IP) else { return false };
        assert_eq!(ins, thorough(text, IP, info), "{text:02x?}");
        true
    }

    /// All prefixes and opcodes, with all operands.
    #[test]
    fn what_is_taken_is_decoded_as_by_the_decoder() {
        let mut info = InstructionInfoFactory::new();
        let mut taken = 0u32;
        let mixed = [0x25, 0x20, 1, 0x80, 7, 0x9c, 0x61, 3, 0x84, 0x45];
        let tails = [[0u8; 10], [0xff; 10], [0x20; 10], mixed];
        let prefixes: [&[u8]; 11] = [
            b"",
            b"\x66",
            b"\xf2",
            b"\xf3",
            b"\x64",
            b"\x64\x66",
            b"\xf0",
            b"\xf0\x66",
            b"\x66\x2e",
            b"\x66\x66\x66\x2e",
            b"\x2e",
        ];
        for prefix in prefixes {
            for rex in [&[][..]].into_iter().chain(REX.chunks(1)) {
                for opcode in 0..=0x1ffu16 {
                    for modrm in 0..=255u8 {
                        for tail in &tails {
                            let two: &[u8] = if opcode > 0xff { &[0x0f] } else { &[] };
                            let head = [prefix, rex, two, &[opcode as u8, modrm]].concat();
                            let text = [&head[..], tail].concat();
                            taken += u32::from(agree(&text, &mut info));
                        }
                    }
                }
            }
        }
        assert!(taken > 1_000_000, "{taken}");
    }
    const REX: &[u8] = b"\x40\x41\x42\x43\x44\x45\x46\x47\x48\x49\x4a\x4b\x4c\x4d\x4e\x4f";

    /// The text of this test, from every byte on, and cut off.
    #[test]
    fn compiled_code_is_decoded_as_by_the_decoder() {
        let mut info = InstructionInfoFactory::new();
        let from = agree as fn(&[u8], &mut InstructionInfoFactory) -> bool as *const u8;
        // SAFETY: text of this program around this function.
        let text = unsafe { core::slice::from_raw_parts(from, 64 << 10) };
        let taken = (0..text.len()).filter(|at| agree(&text[*at..], &mut info)).count();
        assert!(taken > text.len() / 4, "{taken}");
        for at in 0..text.len() - 15 {
            (1..15).for_each(|len| _ = agree(&text[at..at + len], &mut info));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_as_by_the_decoder(
            text in prop::collection::vec(prop::num::u8::ANY, 1..20)
        ) {
            agree(&text, &mut InstructionInfoFactory::new());
        }
    }
}
