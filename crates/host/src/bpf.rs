//! Classic BPF, as far as a filter of requests or of system calls may use it. Kernel counterpart:
//! `bpf_check_classic`, `io_uring_check_cbpf_filter`, `seccomp_check_filter`, and the interpreter.

use alloc::vec;
use alloc::vec::Vec;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::sock_filter;

/// Cells of scratch memory.
const CELLS: usize = 16;

mod code {
    pub(super) const CLASS: u16 = 0x07;
    pub(super) const LD: u16 = 0x00;
    pub(super) const LDX: u16 = 0x01;
    pub(super) const ST: u16 = 0x02;
    pub(super) const STX: u16 = 0x03;
    pub(super) const ALU: u16 = 0x04;
    pub(super) const JMP: u16 = 0x05;
    pub(super) const RET_K: u16 = 0x06;
    pub(super) const RET_A: u16 = 0x16;
    pub(super) const TAX: u16 = 0x07;
    pub(super) const TXA: u16 = 0x87;
    /// Modes of loads.
    pub(super) const IMM: u16 = 0x00;
    pub(super) const ABS: u16 = 0x20;
    pub(super) const MEM: u16 = 0x60;
    pub(super) const LEN: u16 = 0x80;
    /// Bit: the operand is X, not the constant.
    pub(super) const X: u16 = 0x08;
    pub(super) const OP: u16 = 0xf0;
    pub(super) const ADD: u16 = 0x00;
    pub(super) const SUB: u16 = 0x10;
    pub(super) const MUL: u16 = 0x20;
    pub(super) const DIV: u16 = 0x30;
    pub(super) const OR: u16 = 0x40;
    pub(super) const AND: u16 = 0x50;
    pub(super) const LSH: u16 = 0x60;
    pub(super) const RSH: u16 = 0x70;
    pub(super) const NEG: u16 = 0x80;
    pub(super) const XOR: u16 = 0xa0;
    pub(super) const JA: u16 = 0x00;
    pub(super) const JEQ: u16 = 0x10;
    pub(super) const JGT: u16 = 0x20;
    pub(super) const JGE: u16 = 0x30;
    pub(super) const JSET: u16 = 0x40;
}
use code::*;

/// Checked program: it ends, and stays within its `DATA` bytes and its memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Program<const DATA: usize>(Vec<sock_filter>);

impl<const DATA: usize> Program<DATA> {
    /// Checks a program.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn new(insns: Vec<sock_filter>) -> Result<Self> {
        let ends = insns.last().is_some_and(|last| matches!(last.code, RET_K | RET_A));
        let known = insns.iter().all(|i| is_known(i, DATA as u32));
        if ends && known && jumps_stay(&insns) && memory_is_written(&insns) {
            Ok(Program(insns))
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// Returns the filter's instructions.
    pub fn insns(&self) -> &[sock_filter] {
        &self.0
    }

    /// Runs the program, and returns its result.
    pub fn run(&self, data: &[u8; DATA]) -> u32 {
        let mut machine = Machine { a: 0, x: 0, mem: [0; CELLS] };
        let mut pc = 0;
        while let Some(insn) = self.0.get(pc) {
            match machine.step(insn, data) {
                Step::Next => pc += 1,
                Step::Skip(n) => pc = pc.saturating_add(1).saturating_add(n),
                Step::Return(value) => return value,
            }
        }
        0
    }
}

/// Returns whether a filter may have this instruction with this operand.
fn is_known(i: &sock_filter, data: u32) -> bool {
    let shift = |op| matches!(op, LSH | RSH);
    match i.code & CLASS {
        LD | LDX if i.code & !CLASS == ABS => {
            i.code & CLASS == LD && i.k.is_multiple_of(4) && i.k < data
        }
        LD | LDX => match i.code & !CLASS {
            IMM | LEN => true,
            MEM => i.k < CELLS as u32,
            _ => false,
        },
        ST | STX => i.code & !CLASS == 0 && i.k < CELLS as u32,
        ALU => match i.code & !(CLASS | X) {
            NEG => i.code & X == 0,
            DIV if i.code & X == 0 => i.k != 0,
            op if shift(op) && i.code & X == 0 => i.k < 32,
            ADD | SUB | MUL | DIV | OR | AND | LSH | RSH | XOR => true,
            _ => false,
        },
        JMP => match i.code & !(CLASS | X) {
            JA => i.code & X == 0,
            JEQ | JGT | JGE | JSET => true,
            _ => false,
        },
        _ => matches!(i.code, RET_K | RET_A | TAX | TXA),
    }
}

/// Returns how many instructions a jump skips if its condition is true, and if it is false.
fn skips(i: &sock_filter) -> [usize; 2] {
    if i.code & OP == JA { [i.k as usize; 2] } else { [usize::from(i.jt), usize::from(i.jf)] }
}

fn is_jump(i: &sock_filter) -> bool {
    i.code & CLASS == JMP
}

/// Returns whether all jumps lead to an instruction.
fn jumps_stay(insns: &[sock_filter]) -> bool {
    let stays = |(at, i): (usize, &sock_filter)| {
        let inside = |n: usize| at.checked_add(n).is_some_and(|to| to + 1 < insns.len());
        !is_jump(i) || skips(i).into_iter().all(inside)
    };
    insns.iter().enumerate().all(stays)
}

/// Returns whether every cell is written, on every path, before it is loaded
/// (`check_load_and_stores`).
fn memory_is_written(insns: &[sock_filter]) -> bool {
    let mut at_target = vec![u16::MAX; insns.len()];
    let mut written = 0u16;
    for (at, i) in insns.iter().enumerate() {
        written &= at_target[at];
        let cell = 1u16.checked_shl(i.k).unwrap_or(0);
        match i.code {
            ST | STX => written |= cell,
            c if matches!(c & CLASS, LD | LDX) && c & !CLASS == MEM && written & cell == 0 => {
                return false;
            }
            _ if is_jump(i) => {
                skips(i).into_iter().for_each(|n| at_target[at + 1 + n] &= written);
                written = u16::MAX;
            }
            _ => {}
        }
    }
    true
}

/// Registers and memory.
struct Machine {
    a: u32,
    x: u32,
    mem: [u32; CELLS],
}

/// Continuation after an instruction.
enum Step {
    Next,
    Skip(usize),
    Return(u32),
}

impl Machine {
    fn step(&mut self, i: &sock_filter, data: &[u8]) -> Step {
        match i.code & CLASS {
            LD => self.a = self.load(i, data),
            LDX => self.x = self.load(i, data),
            ST => self.mem[i.k as usize % CELLS] = self.a,
            STX => self.mem[i.k as usize % CELLS] = self.x,
            ALU => match self.compute(i) {
                Some(a) => self.a = a,
                // A division by zero ends the program.
                None => return Step::Return(0),
            },
            JMP => return Step::Skip(self.jump(i)),
            _ => match i.code {
                TAX => self.x = self.a,
                TXA => self.a = self.x,
                RET_A => return Step::Return(self.a),
                _ => return Step::Return(i.k),
            },
        }
        Step::Next
    }

    fn load(&self, i: &sock_filter, data: &[u8]) -> u32 {
        match i.code & !CLASS {
            ABS => {
                let at = i.k as usize;
                data.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
            }
            MEM => self.mem[i.k as usize % CELLS],
            LEN => data.len() as u32,
            _ => i.k,
        }
    }

    fn operand(&self, i: &sock_filter) -> u32 {
        if i.code & X != 0 { self.x } else { i.k }
    }

    fn compute(&self, i: &sock_filter) -> Option<u32> {
        let (a, b) = (self.a, self.operand(i));
        Some(match i.code & OP {
            ADD => a.wrapping_add(b),
            SUB => a.wrapping_sub(b),
            MUL => a.wrapping_mul(b),
            DIV => a.checked_div(b)?,
            OR => a | b,
            AND => a & b,
            LSH => a.wrapping_shl(b),
            RSH => a.wrapping_shr(b),
            XOR => a ^ b,
            _ => a.wrapping_neg(),
        })
    }

    fn jump(&self, i: &sock_filter) -> usize {
        let (a, b) = (self.a, self.operand(i));
        let yes = match i.code & OP {
            JA => return i.k as usize,
            JEQ => a == b,
            JGT => a > b,
            JGE => a >= b,
            _ => a & b != 0,
        };
        usize::from(if yes { i.jt } else { i.jf })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: usize = 40;

    const fn insn(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
        sock_filter { code, jt, jf, k }
    }

    fn run(insns: &[sock_filter]) -> Result<u32> {
        let mut data = [0; DATA];
        data[8] = 7;
        Program::<DATA>::new(insns.to_vec()).map(|p| p.run(&data))
    }

    const ALLOW: sock_filter = insn(RET_K, 0, 0, 1);

    #[test]
    fn bpf_programs_compute_results() {
        let opcode = insn(LD | ABS, 0, 0, 8);
        for (what, insns, want) in [
            ("a word", vec![opcode, insn(RET_A, 0, 0, 0)], 7),
            ("the length", vec![insn(LD | LEN, 0, 0, 0), insn(RET_A, 0, 0, 0)], 40),
            ("a jump", vec![opcode, insn(JMP | JEQ, 0, 1, 7), ALLOW, insn(RET_K, 0, 0, 2)], 1),
            ("by zero", vec![opcode, insn(ALU | DIV | X, 0, 0, 0), ALLOW], 0),
            (
                "memory",
                vec![
                    opcode,
                    insn(ST, 0, 0, 3),
                    insn(LDX | MEM, 0, 0, 3),
                    insn(TXA, 0, 0, 0),
                    insn(RET_A, 0, 0, 0),
                ],
                7,
            ),
        ] {
            assert_eq!(run(&insns), Ok(want), "{what}");
        }
    }

    #[test]
    fn invalid_bpf_programs_are_refused() {
        for (what, insns) in [
            ("nothing", vec![]),
            ("no end", vec![insn(LD, 0, 0, 1)]),
            ("a byte", vec![insn(0x30, 0, 0, 8), ALLOW]),
            ("not aligned", vec![insn(LD | ABS, 0, 0, 2), ALLOW]),
            ("beyond the data", vec![insn(LD | ABS, 0, 0, 40), ALLOW]),
            ("a load by X", vec![insn(0x40, 0, 0, 0), ALLOW]),
            ("a remainder", vec![insn(0x94, 0, 0, 3), ALLOW]),
            ("by zero", vec![insn(ALU | DIV, 0, 0, 0), ALLOW]),
            ("a far shift", vec![insn(ALU | LSH, 0, 0, 32), ALLOW]),
            ("a jump behind the end", vec![insn(JMP | JEQ, 1, 0, 0), ALLOW]),
            ("a far jump", vec![insn(JMP | JA, 0, 0, u32::MAX), ALLOW]),
            ("a cell not written", vec![insn(LD | MEM, 0, 0, 0), ALLOW]),
            ("the 17th cell", vec![insn(ST, 0, 0, 16), ALLOW]),
            ("X returned", vec![insn(0x0e, 0, 0, 0)]),
        ] {
            assert_eq!(run(&insns), Err(Errno::EINVAL), "{what}");
        }
    }
}
