//! Meaning of opcodes, as far as [`super::quick`] asks about it.

use super::ins::{Kind, RAX, Value};
use super::quick::{OPERAND_SIZE, REPEAT, REPEAT_NOT};
use iced_x86::FlowControl;

const RCX: u8 = 1;
const RDX: u8 = 2;
const RSP: u8 = 4;
const RBP: u8 = 5;
const RSI: u8 = 6;
const RDI: u8 = 7;
const R11: u8 = 11;

/// Prefixes and operands, as far as the meaning of an opcode depends on them.
pub struct Operands {
    /// 0x66, 0xf2, 0xf3, or 0: none.
    pub prefix: u8,
    /// REX, or 0.
    pub rex: u8,
    /// Numbers in a ModRM byte, if the opcode has one: reg, and rm if that is a register.
    pub reg: u8,
    pub rm: Option<u8>,
}

impl Operands {
    pub fn wide(&self) -> bool {
        self.rex & 8 != 0
    }

    /// Returns whether operands have 16 bits.
    fn short(&self) -> bool {
        self.prefix == OPERAND_SIZE && !self.wide()
    }

    /// Returns the bit of a register. `byte`: it is one of a byte, where 4 to 7 are ah to bh.
    fn bit(&self, number: u8, byte: bool) -> u16 {
        let high = byte && self.rex == 0 && (4..8).contains(&number);
        1 << if high { number - 4 } else { number }
    }

    fn rm(&self, byte: bool) -> u16 {
        self.rm.map_or(0, |rm| self.bit(rm, byte))
    }

    fn reg(&self, byte: bool) -> u16 {
        self.bit(self.reg, byte)
    }

    /// Returns the third of the opcode that a ModRM byte holds.
    fn group(&self) -> u8 {
        self.reg & 7
    }

    /// Returns the bytes of an immediate that is as long as operands, up to four.
    fn immediate(&self) -> usize {
        if self.short() { 2 } else { 4 }
    }
}

/// Meaning of an opcode.
pub struct Meaning {
    pub flow: FlowControl,
    pub kind: Kind,
    /// Bytes of the immediate, which is a displacement if the flow says so.
    pub immediate: usize,
    pub writes: u16,
    pub value: Value,
    /// Flag, true if the value is the immediate; with `wide` as a signed number.
    pub moved: bool,
}

const NOTHING: Meaning = Meaning {
    flow: FlowControl::Next,
    kind: Kind::Other,
    immediate: 0,
    writes: 0,
    value: Value::Unknown,
    moved: false,
};

fn writes(writes: u16) -> Option<Meaning> {
    Some(Meaning { writes, ..NOTHING })
}

fn writes_by(writes: u16, immediate: usize) -> Option<Meaning> {
    Some(Meaning { writes, immediate, ..NOTHING })
}

fn flows(flow: FlowControl, immediate: usize, writes: u16) -> Option<Meaning> {
    Some(Meaning { flow, immediate, writes, ..NOTHING })
}

/// Returns whether a ModRM byte follows an opcode; `None` for one that is not known.
pub fn one_has_modrm(opcode: u8) -> Option<bool> {
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => Some(true),
            4 | 5 => Some(false),
            _ => None,
        },
        0x50..=0x5f | 0x68 | 0x6a | 0x70..=0x7f | 0x90 | 0x98 | 0x99 | 0xa8 | 0xa9 => Some(false),
        0xa4 | 0xa5 | 0xaa | 0xab => Some(false),
        0xb0..=0xbf | 0xc3 | 0xc9 | 0xcc | 0xe8 | 0xe9 | 0xeb => Some(false),
        0x63 | 0x69 | 0x6b | 0x80 | 0x81 | 0x83..=0x8b | 0x8d => Some(true),
        0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xf6 | 0xf7 | 0xfe | 0xff => Some(true),
        _ => None,
    }
}

/// Returns the same for an opcode behind 0x0f.
pub fn two_have_modrm(opcode: u8) -> Option<bool> {
    match opcode {
        0x05 | 0x0b | 0x80..=0x8f | 0xc8..=0xcf => Some(false),
        0x10..=0x12 | 0x14..=0x16 | 0x1e | 0x1f | 0x28..=0x2a | 0x2c..=0x2f => Some(true),
        0x40..=0x4f | 0x51 | 0x54 | 0x57..=0x59 | 0x5c..=0x70 | 0x74..=0x76 => Some(true),
        0x7e | 0x7f | 0x90..=0x9f | 0xa3 | 0xab | 0xaf | 0xb0 | 0xb1 | 0xb3 => Some(true),
        0xb6 | 0xb7 | 0xba..=0xbf | 0xc0 | 0xc1 | 0xd4 | 0xd6 | 0xd7 | 0xdb => Some(true),
        0xdf | 0xeb | 0xef | 0xfa..=0xfe => Some(true),
        _ => None,
    }
}

/// Returns what an opcode of one byte means. `memory`: its operand is in memory.
pub fn of_one(opcode: u8, o: &Operands, memory: bool) -> Option<Meaning> {
    let none = o.prefix == 0;
    if !none && o.prefix != OPERAND_SIZE {
        return repeated(opcode, o);
    }
    let bare = none && o.rex == 0;
    let stack = 1 << RSP;
    match opcode {
        0x00..=0x3f => arithmetic(opcode, o),
        0x50..=0x57 if none => writes(stack),
        0x58..=0x5f if none => writes(stack | o.reg(false)),
        0x63 if none && o.wide() => writes(o.reg(false)),
        0x68 if bare => writes_by(stack, 4),
        0x6a if bare => writes_by(stack, 1),
        0x69 => writes_by(o.reg(false), o.immediate()),
        0x6b => writes_by(o.reg(false), 1),
        0x70..=0x7f if bare => flows(FlowControl::ConditionalBranch, 1, 0),
        0x80 | 0x81 | 0x83 => {
            let byte = opcode == 0x80;
            let written = if o.group() == 7 { 0 } else { o.rm(byte) };
            writes_by(written, if opcode == 0x81 { o.immediate() } else { 1 })
        }
        0x84 | 0x85 => writes(0),
        0x86 | 0x87 => writes(o.rm(opcode == 0x86) | o.reg(opcode == 0x86)),
        0x88..=0x8b => moves(opcode, o),
        0x8d if memory => writes(o.reg(false)),
        0x90 if o.rex == 0 => Some(Meaning { kind: Kind::Nop, ..NOTHING }),
        0x98 => writes(1 << RAX),
        0x99 => writes(1 << RDX),
        0xa8 => writes_by(0, 1),
        0xa9 => writes_by(0, o.immediate()),
        0xb0..=0xb7 if none => writes_by(o.reg(true), 1),
        0xb8..=0xbf => {
            let immediate = if o.wide() { 8 } else { o.immediate() };
            let moved = immediate == 4;
            Some(Meaning { writes: o.reg(false), immediate, moved, ..NOTHING })
        }
        0xc0 | 0xc1 | 0xd0..=0xd3 => shifts(opcode, o),
        0xc3 if bare => flows(FlowControl::Return, 0, stack),
        0xc6 if o.group() == 0 => writes_by(o.rm(true), 1),
        0xc7 if o.group() == 0 => {
            let (immediate, writes) = (o.immediate(), o.rm(false));
            Some(Meaning { immediate, writes, moved: !memory && !o.short(), ..NOTHING })
        }
        0xc9 if bare => writes(stack | 1 << RBP),
        0xcc if bare => Some(Meaning { kind: Kind::Int3, flow: FlowControl::Interrupt, ..NOTHING }),
        0xe8 if bare => flows(FlowControl::Call, 4, stack),
        0xe9 if bare => flows(FlowControl::UnconditionalBranch, 4, 0),
        0xeb if bare => flows(FlowControl::UnconditionalBranch, 1, 0),
        0xf6 | 0xf7 | 0xfe | 0xff => groups(opcode, o),
        _ => None,
    }
}

/// Returns what an opcode behind 0xf2 or 0xf3 means: `pause`, `rep movs`, `rep stos`.
fn repeated(opcode: u8, o: &Operands) -> Option<Meaning> {
    const MOVED: u16 = 1 << RCX | 1 << RSI | 1 << RDI;
    match opcode {
        _ if o.prefix != REPEAT => None,
        0x90 if o.rex == 0 => writes(0),
        0xa4 | 0xa5 => writes(MOVED),
        0xaa | 0xab => writes(MOVED & !(1 << RSI)),
        _ => None,
    }
}

/// `add`, `or`, `adc`, `sbb`, `and`, `sub`, `xor`, `cmp`.
fn arithmetic(opcode: u8, o: &Operands) -> Option<Meaning> {
    const XOR: u8 = 6;
    const CMP: u8 = 7;
    let (operation, form) = (opcode >> 3, opcode & 7);
    let byte = form & 1 == 0;
    let written = match form {
        0 | 1 => o.rm(byte),
        2 | 3 => o.reg(byte),
        _ => 1 << RAX,
    };
    let immediate = match form {
        4 => 1,
        5 => o.immediate(),
        _ => 0,
    };
    let is_zero =
        operation == XOR && matches!(form, 1 | 3) && o.rm == Some(o.reg) && !o.short() && !o.wide();
    let value = if is_zero { Value::Constant(0) } else { Value::Unknown };
    let writes = if operation == CMP { 0 } else { written };
    Some(Meaning { writes, immediate, value, ..NOTHING })
}

/// `mov` between a register and a register or memory.
fn moves(opcode: u8, o: &Operands) -> Option<Meaning> {
    let byte = opcode & 1 == 0;
    let loads = opcode >= 0x8a;
    let writes = if loads { o.reg(byte) } else { o.rm(byte) };
    let value = match o.rm.filter(|_| !byte && !o.short()) {
        Some(rm) => Value::CopyOf(if loads { rm } else { o.reg }),
        None => Value::Unknown,
    };
    Some(Meaning { writes, value, ..NOTHING })
}

fn shifts(opcode: u8, o: &Operands) -> Option<Meaning> {
    // `rcl`, `rcr`, and a second `shl`.
    if matches!(o.group(), 2 | 3 | 6) {
        return None;
    }
    let immediate = usize::from(opcode < 0xd0);
    writes_by(o.rm(opcode & 1 == 0), immediate)
}

fn groups(opcode: u8, o: &Operands) -> Option<Meaning> {
    let byte = opcode & 1 == 0;
    match (opcode, o.group()) {
        (0xf6, 0) => writes_by(0, 1),
        (0xf7, 0) => writes_by(0, o.immediate()),
        (0xf6 | 0xf7, 2 | 3) => writes(o.rm(byte)),
        (0xf6, 4..) => writes(1 << RAX),
        (0xf7, 4..) => writes(1 << RAX | 1 << RDX),
        (0xfe | 0xff, 0 | 1) => writes(o.rm(byte)),
        (0xff, 2) if o.prefix == 0 => flows(FlowControl::IndirectCall, 0, 1 << RSP),
        (0xff, 4) if o.prefix == 0 => flows(FlowControl::IndirectBranch, 0, 0),
        (0xff, 6) if o.prefix == 0 => writes(1 << RSP),
        _ => None,
    }
}

/// Returns what an opcode behind 0x0f means. `memory`: its operand is in memory.
pub fn of_two(opcode: u8, o: &Operands, memory: bool) -> Option<Meaning> {
    let none = o.prefix == 0;
    let bare = none && o.rex == 0;
    let size = none || o.prefix == OPERAND_SIZE;
    match opcode {
        0x05 if bare => Some(Meaning {
            kind: Kind::Syscall,
            flow: FlowControl::Call,
            writes: 1 << RCX | 1 << R11,
            ..NOTHING
        }),
        0x0b if bare => flows(FlowControl::Exception, 0, 0),
        // endbr64
        0x1e if o.prefix == REPEAT && o.rex == 0 && (o.reg, o.rm) == (7, Some(2)) => writes(0),
        0x1f if size && o.group() == 0 && memory => Some(Meaning { kind: Kind::Nop, ..NOTHING }),
        0x40..=0x4f if size => writes(o.reg(false)),
        0x80..=0x8f if bare => flows(FlowControl::ConditionalBranch, 4, 0),
        0x90..=0x9f if size => writes(o.rm(true)),
        0xa3 if size => writes(0),
        0xab | 0xb3 | 0xbb if size => writes(o.rm(false)),
        0xb0 | 0xb1 if size => writes(o.rm(opcode == 0xb0) | 1 << RAX),
        0xc0 | 0xc1 if size => writes(o.rm(opcode == 0xc0) | o.reg(opcode == 0xc0)),
        0xba if size && o.group() >= 4 => {
            writes_by(if o.group() == 4 { 0 } else { o.rm(false) }, 1)
        }
        0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf if size => writes(o.reg(false)),
        0xbc | 0xbd if size || o.prefix == REPEAT => writes(o.reg(false)),
        // `bswap`
        0xc8..=0xcf if none => writes(o.reg(false)),
        _ => vector(opcode, o, memory),
    }
}

/// Returns what an opcode of the vector instructions means.
fn vector(opcode: u8, o: &Operands, memory: bool) -> Option<Meaning> {
    let size = matches!(o.prefix, 0 | OPERAND_SIZE);
    let scalar = matches!(o.prefix, REPEAT | REPEAT_NOT);
    match (opcode, o.prefix) {
        (0x10 | 0x11 | 0x51 | 0x58 | 0x59 | 0x5c..=0x5f, _) => writes(0),
        (0x12 | 0x16, OPERAND_SIZE) if memory => writes(0),
        (0x12 | 0x16, 0) => writes(0),
        (0x14 | 0x15 | 0x28 | 0x29 | 0x2e | 0x2f | 0x54 | 0x57, _) if size => writes(0),
        (0x2a, _) if scalar => writes(0),
        (0x2c | 0x2d, _) if scalar => writes(o.reg(false)),
        (0x6f | 0x7f, OPERAND_SIZE | REPEAT) | (0x7e, REPEAT) => writes(0),
        (0x60..=0x6e | 0x74..=0x76 | 0xd4 | 0xd6 | 0xdb, OPERAND_SIZE) => writes(0),
        (0xdf | 0xeb | 0xef | 0xfa..=0xfe, OPERAND_SIZE) => writes(0),
        (0x70, OPERAND_SIZE | REPEAT | REPEAT_NOT) => writes_by(0, 1),
        (0x7e, OPERAND_SIZE) => writes(o.rm(false)),
        (0xd7, OPERAND_SIZE) if !memory => writes(o.reg(false)),
        _ => None,
    }
}

/// Returns whether an instruction that changes memory may be locked.
pub fn may_lock(two: bool, opcode: u8, o: &Operands) -> bool {
    if two {
        return matches!(opcode, 0xab | 0xb0 | 0xb1 | 0xb3 | 0xbb | 0xc0 | 0xc1);
    }
    match opcode {
        0x00..=0x37 => matches!(opcode & 7, 0 | 1),
        0x80 | 0x81 | 0x83 => o.group() != 7,
        0x86 | 0x87 => true,
        0xf6 | 0xf7 => matches!(o.group(), 2 | 3),
        0xfe | 0xff => matches!(o.group(), 0 | 1),
        _ => false,
    }
}
