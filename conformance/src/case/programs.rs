//! Random filter programs: which the kernel accepts, and their verdicts, bit by bit.

use super::prelude::*;
use crate::ring::Cqe;
use super::rules::{add, insn, of, ret};

pub const CASES: &[Case] = &[
    newest!("programs", without_jumps, [Reg(IORING_REGISTER_BPF_FILTER)], "random programs without jumps"),
    newest!("programs", with_jumps, [Reg(IORING_REGISTER_BPF_FILTER)], "random programs with jumps"),
    newest!("programs", arbitrary_instruction, [Reg(IORING_REGISTER_BPF_FILTER)], "random programs with one arbitrary instruction"),
];

/// Number of programs of each kind.
const PROGRAMS: u32 = 200;

/// The generator of the programs: SplitMix64 (Steele, Lea, Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns an operand: more often than not one at an edge.
    fn number(&mut self) -> u32 {
        match self.below(3) {
            0 => self.next() as u32,
            1 => self.pick(&[0, 1, 2, 31, 32, 33, 0x7fff_ffff, 1 << 31, u32::MAX]),
            _ => self.below(40) as u32,
        }
    }

    /// Returns any instruction that a filter may have, `left` before the end of the program.
    fn insn(&mut self, jumps: bool, left: u64) -> sock_filter {
        const ALU: [u16; 8] = [0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0xa4];
        const JUMPS: [u16; 4] = [0x15, 0x25, 0x35, 0x45];
        let x = self.pick(&[0, 0x08]);
        let k = self.number();
        match self.below(if jumps { 14 } else { 11 }) {
            0 => insn(self.pick(&[0x00, 0x01]), 0, 0, k),
            1 | 2 => insn(0x20, 0, 0, 4 * self.below(10) as u32),
            3 => insn(self.pick(&[0x80, 0x81]), 0, 0, k),
            4 => insn(self.pick(&[0x02, 0x03]), 0, 0, self.below(4) as u32),
            5 => insn(self.pick(&[0x60, 0x61]), 0, 0, self.below(4) as u32),
            6 => insn(self.pick(&[0x07, 0x87, 0x84]), 0, 0, k),
            7 => insn(self.pick(&[0x64, 0x74]) | x, 0, 0, k % 32),
            8..=10 => insn(self.pick(&ALU) | x, 0, 0, k),
            11 => insn(0x05, 0, 0, self.below(left) as u32),
            12 => ret(k),
            _ => {
                let (jt, jf) = (self.below(left) as u8, self.below(left) as u8);
                insn(self.pick(&JUMPS) | x, jt, jf, k)
            }
        }
    }

    /// Returns a program whose verdict is the bit of A that the upper word of user_data selects.
    fn program(&mut self, jumps: bool, wild: bool) -> Vec<sock_filter> {
        let length = 1 + self.below(24);
        // Each cell that is loaded is written first: the kernel refuses other programs.
        let mut program: Vec<_> = (0..4).map(|cell| insn(0x02, 0, 0, cell)).collect();
        program.extend((0..length).map(|at| self.insn(jumps, length - at)));
        if wild {
            let at = self.below(program.len() as u64) as usize;
            let code = if self.below(4) == 0 { self.next() as u16 } else { self.below(256) as u16 };
            program[at] = insn(code, self.below(4) as u8, self.below(4) as u8, self.number());
        }
        let tail = [(0x02, 15), (0x20, 4), (0x07, 0), (0x60, 15), (0x7c, 0), (0x54, 1), (0x16, 0)];
        program.extend(tail.map(|(code, k)| insn(code, 0, 0, k)));
        program
    }
}

/// Returns the value that the program leaves in A, by 32 requests.
fn verdicts(ring: &mut Ring) -> Result<u32, Stop> {
    for bit in 0..32u64 {
        ring.push(sqe::nop().ud(bit << 32 | 0x0123_4567));
    }
    ring.submit();
    let allowed = |word: u32, cqe: Cqe| {
        word | u32::from(cqe.res == 0) << (cqe.user_data >> 32)
    };
    Ok(ring.take(32)?.into_iter().fold(0, allowed))
}

fn random(cx: &mut Cx, seed: u64, jumps: bool, wild: bool) -> Outcome {
    let mut random = Random(seed);
    for number in 0..PROGRAMS {
        let program = random.program(jumps, wild);
        let mut ring = cx.ring(32, IORING_SETUP_SUBMIT_ALL)?;
        let what = format!("program {number}");
        match add(&ring, &of(IORING_OP_NOP, &program)) {
            0 => cx.note(&what, format_args!("{:#010x}", verdicts(&mut ring)?)),
            refused => cx.note_answer(&what, refused),
        }
    }
    Ok(())
}

fn without_jumps(cx: &mut Cx) -> Outcome {
    random(cx, 1, false, false)
}

fn with_jumps(cx: &mut Cx) -> Outcome {
    random(cx, 2, true, false)
}

fn arbitrary_instruction(cx: &mut Cx) -> Outcome {
    random(cx, 3, true, true)
}
