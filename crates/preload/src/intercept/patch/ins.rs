//! Decoded instructions, as far as the search for sites asks about them.
//!
//! The decoder's tables take 2.5 million instructions to build, longer than most programs take to
//! start. So what compilers write most is decoded by [`quick`], which needs no tables; the decoder
//! does the rest. Each instruction is decoded by itself, so the two may take turns. A test compares
//! them, for all that `quick` takes.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

pub use super::quick::quick;

/// Numbers of general registers, as instructions have them.
pub const RAX: u8 = 0;

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ins {
    pub ip: u64,
    pub len: u8,
    pub flow: FlowControl,
    pub kind: Kind,
    /// Target of a branch or call with a displacement; else 0.
    pub target: u64,
    /// General registers that it may write, even in part: one bit each, by number.
    pub writes: u16,
    /// Value that it writes to them.
    pub value: Value,
    /// Offset of a 32-bit displacement from RIP among its bytes; 0: it has none.
    pub relative: u8,
}

/// Instructions that are asked about by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Syscall,
    Nop,
    Int3,
    /// No instruction.
    Invalid,
    Other,
}

/// Value that an instruction writes to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Unknown,
    Constant(u64),
    /// A copy of the register of this number, or of its lower half.
    CopyOf(u8),
}

/// [`Ins::relative`] of an operand that is relative to EIP, which cannot be moved.
pub const RELATIVE_TO_EIP: u8 = u8::MAX;

impl Ins {
    pub fn next_ip(&self) -> u64 {
        self.ip.wrapping_add(self.len.into())
    }

    /// Returns whether it is the kind that a stub can run in another place.
    pub fn is_movable(&self) -> bool {
        self.flow == FlowControl::Next && self.kind != Kind::Invalid
    }

    /// Returns whether it may write to the register of this number.
    pub fn writes(&self, register: u8) -> bool {
        self.writes & 1 << register != 0
    }
}

/// Decodes instruction after instruction.
pub struct Walk<'a> {
    text: &'a [u8],
    ip: u64,
    info: Option<InstructionInfoFactory>,
}

impl<'a> Walk<'a> {
    /// `ip`: the address of the first instruction, with which `text` begins.
    pub fn new(text: &'a [u8], ip: usize) -> Walk<'a> {
        Walk { text, ip: ip as u64, info: None }
    }
}

impl Iterator for Walk<'_> {
    type Item = Ins;

    fn next(&mut self) -> Option<Ins> {
        if self.text.is_empty() {
            return None;
        }
        let ins = quick(self.text, self.ip).unwrap_or_else(|| {
            let info = self.info.get_or_insert_with(InstructionInfoFactory::new);
            thorough(self.text, self.ip, info)
        });
        self.text = &self.text[ins.len.into()..];
        self.ip = ins.next_ip();
        Some(ins)
    }
}

/// Decodes any instruction. `text` has a byte at least.
pub fn thorough(text: &[u8], ip: u64, info: &mut InstructionInfoFactory) -> Ins {
    const LONGEST: usize = 15;
    let text = &text[..text.len().min(LONGEST)];
    let mut decoder = Decoder::with_ip(64, text, ip, DecoderOptions::NONE);
    let i = decoder.decode();
    let at = decoder.get_constant_offsets(&i);
    let relative = match i.memory_base() {
        _ if !i.is_ip_rel_memory_operand() => 0,
        Register::RIP if at.displacement_size() == 4 => at.displacement_offset() as u8,
        _ => RELATIVE_TO_EIP,
    };
    let kind = match i.mnemonic() {
        _ if i.is_invalid() => Kind::Invalid,
        Mnemonic::Syscall => Kind::Syscall,
        Mnemonic::Nop => Kind::Nop,
        Mnemonic::Int3 => Kind::Int3,
        _ => Kind::Other,
    };
    let used = info.info(&i).used_registers();
    let written = used.iter().filter(|u| is_write(u.access()));
    let numbers = written.filter_map(|u| number(u.register()));
    let writes = numbers.fold(0, |writes, number| writes | 1 << number);
    let (len, flow) = (i.len() as u8, i.flow_control());
    let target = i.near_branch_target();
    Ins { ip, len, flow, kind, target, writes, value: value(&i), relative }
}

fn is_write(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Returns the number of a general register, or of the one that it is a part of.
fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number() as u8)
}

/// Returns the constant that `mov`, or `xor` of a register with itself, puts into a register, or
/// the register that `mov` copies.
fn value(i: &Instruction) -> Value {
    let to_register = i.op0_kind() == OpKind::Register;
    let from_register = i.op1_kind() == OpKind::Register;
    let same = to_register && from_register && i.op0_register() == i.op1_register();
    let copied = i.mnemonic() == Mnemonic::Mov && from_register && to_register;
    match (i.code(), i.op1_register()) {
        (Code::Xor_r32_rm32 | Code::Xor_rm32_r32, _) if same => Value::Constant(0),
        (Code::Mov_r32_imm32 | Code::Mov_rm32_imm32, _) if to_register => {
            Value::Constant(i.immediate32().into())
        }
        (Code::Mov_rm64_imm32, _) if to_register => {
            Value::Constant(i.immediate32to64().cast_unsigned())
        }
        (_, r) if copied && (r.is_gpr32() || r.is_gpr64()) => {
            number(r).map_or(Value::Unknown, Value::CopyOf)
        }
        _ => Value::Unknown,
    }
}
