//! What to replace, decided on the decoded instructions of a function.

use super::frames::{self, Function};
use super::modules::{Module, text_bytes};
use super::text::JUMP;
use crate::door::libaio;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use std::collections::HashSet;

const RINGS: core::ops::RangeInclusive<u64> = 425..=427;
/// What else programs do inline to a ring, and to the number of any descriptor: `mmap`, `close` and
/// what duplicates. A site of these that is left alone is no gap.
const OTHERS: [u64; 7] = [
    libc::SYS_mmap as u64,
    libc::SYS_close as u64,
    libc::SYS_close_range as u64,
    libc::SYS_dup as u64,
    libc::SYS_dup2 as u64,
    libc::SYS_dup3 as u64,
    libc::SYS_fcntl as u64,
];
/// Kernel aio's. Such a site goes past us unharmed if it is left alone, too.
const AIO: [u64; 6] = [206, 207, 208, 209, 210, libaio::PGETEVENTS as u64];
/// How far before `syscall` its number is looked for.
const REACH: usize = 48;
/// A function longer than this is taken as one whose bounds are unknown.
const LONGEST: usize = 256 * 1024;
/// What is decoded where bounds are unknown.
const UNKNOWN: usize = 96;

/// A replacement: `len` bytes at `at` become a jump to a stub that runs `before`, the call, and
/// `after`, and returns to `resume`.
#[derive(Debug)]
pub struct Site {
    pub at: usize,
    pub len: usize,
    pub before: Vec<Instruction>,
    pub after: Vec<Instruction>,
    pub resume: usize,
    /// The number is not known: the stub looks at eax.
    pub dynamic: bool,
    /// May be one of the three calls: to leave it alone is a gap.
    pub ring: bool,
}

impl Site {
    /// Where the program's own `syscall` would go on.
    pub fn behind_call(&self) -> usize {
        self.after.first().map_or(self.resume, |next| next.ip() as usize)
    }
}

/// What a module holds.
#[derive(Debug, Default)]
pub struct Found {
    pub sites: Vec<Site>,
    /// Calls that may be io_uring's and cannot be replaced.
    pub gaps: usize,
}

/// What a look at the text has shown.
#[derive(Debug, Default)]
pub struct Seen {
    /// Where io_uring's numbers stand.
    pub numbers: Vec<usize>,
    /// Where `syscall` does.
    pub syscalls: Vec<usize>,
}

/// Finds the sites of io_uring's calls; where there are some, those of `mmap` and `close`, too.
pub fn find(m: &Module, Seen { numbers, syscalls }: &Seen) -> Found {
    let mut found = Found::default();
    let mut done = HashSet::new();
    for at in numbers.iter().filter_map(|n| mov_before(m, *n)) {
        let f = frames::function(m, at).filter(|f| f.end - f.start <= LONGEST);
        let known = f.is_some();
        let f = f.unwrap_or(Function { start: at, end: at + UNKNOWN });
        if done.insert(f.start) {
            body(m, f).scan(known, |nr| RINGS.contains(&nr), &mut found);
        }
    }
    if !found.sites.is_empty() {
        find_calls(m, &OTHERS, syscalls, &done, &mut found);
    }
    prove_windows(m, &mut found);
    found
}

/// Finds the plain sites of `mmap` and `close` in a module that has no others, and how many there
/// are that are not plain.
pub fn others(m: &Module, syscalls: &[usize]) -> (Vec<Site>, usize) {
    let mut found = Found::default();
    find_calls(m, &OTHERS, syscalls, &HashSet::new(), &mut found);
    plain_of(found)
}

/// The same of kernel aio's calls, in any module.
pub fn aio(m: &Module, syscalls: &[usize]) -> (Vec<Site>, usize) {
    let mut found = Found::default();
    let gaps = find_calls(m, &AIO, syscalls, &HashSet::new(), &mut found);
    let (sites, left) = plain_of(found);
    (sites, left + gaps)
}

fn plain_of(mut found: Found) -> (Vec<Site>, usize) {
    let all = found.sites.len();
    found.sites.retain(|s| !s.dynamic);
    let left = all - found.sites.len();
    (found.sites, left)
}

/// The start of the `mov $imm32, %reg` whose immediate is at `imm`.
fn mov_before(m: &Module, imm: usize) -> Option<usize> {
    let text = m.text.iter().find(|t| t.holds(imm))?;
    let bytes = text_bytes(text);
    let i = imm - text.start;
    let byte = |back: usize| i.checked_sub(back).and_then(|i| bytes.get(i)).copied().unwrap_or(0);
    match (byte(3), byte(2), byte(1)) {
        (_, 0x41, 0xb8..=0xbf) => Some(imm - 2),
        // REX.W makes it a mov of 64 bits; other REX prefixes here mean nothing and are not
        // written.
        (_, 0x40..=0x4f, 0xb8..=0xbf) => None,
        (_, _, 0xb8..=0xbf) => Some(imm - 1),
        (0x48 | 0x49, 0xc7, 0xc0..=0xc7) => Some(imm - 3),
        (_, 0xc7, 0xc0..=0xc7) => Some(imm - 2),
        _ => None,
    }
}

/// `mov $nr,%eax … syscall` for other calls than io_uring's. These numbers are small and common:
/// only where frames tell that it is code, and which function's. Answers how many cannot be
/// replaced.
fn find_calls(
    m: &Module,
    calls: &[u64],
    syscalls: &[usize],
    done: &HashSet<usize>,
    found: &mut Found,
) -> usize {
    let mut near = HashSet::new();
    let mut gaps = 0;
    for &at in syscalls {
        let Some(t) = m.text.iter().find(|t| t.holds(at)) else { continue };
        let i = at - t.start;
        let before = &text_bytes(t)[i.saturating_sub(UNKNOWN)..i];
        let number = |nr: [u8; 2]| calls.contains(&u16::from_le_bytes(nr).into());
        let named = |w: &[u8]| matches!(w, [0xb8 | 0xc0, a, b, 0, 0] if number([*a, *b]));
        if !before.windows(5).any(named) {
            continue;
        }
        let Some(f) = frames::function(m, at) else { continue };
        if f.end - f.start <= LONGEST && !done.contains(&f.start) && near.insert(f.start) {
            let mut others = Found::default();
            body(m, f).scan(true, |nr| calls.contains(&nr), &mut others);
            others.sites.retain(|s| s.ring);
            others.sites.iter_mut().for_each(|s| s.ring = false);
            found.sites.append(&mut others.sites);
            gaps += others.gaps;
        }
    }
    gaps
}

/// A function, decoded.
struct Body {
    code: Vec<Instruction>,
    /// Where its branches lead.
    targets: HashSet<u64>,
    /// A jump through a register or a table: its targets are not known.
    indirect: bool,
}

fn body(m: &Module, f: Function) -> Body {
    let mut b = Body { code: Vec::new(), targets: HashSet::new(), indirect: false };
    let Some(t) = m.text.iter().find(|t| t.holds(f.start)) else { return b };
    let from = f.start - t.start;
    let bytes = &text_bytes(t)[from..t.len.min(f.end - t.start)];
    for i in &mut Decoder::with_ip(64, bytes, f.start as u64, DecoderOptions::NONE) {
        match i.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                b.targets.insert(i.near_branch_target());
            }
            // Through a fixed slot it is a tail call.
            FlowControl::IndirectBranch if !i.is_ip_rel_memory_operand() => b.indirect = true,
            _ => {}
        }
        b.code.push(i);
    }
    b
}

/// What eax holds at a `syscall`.
enum Number {
    Known(u64, usize),
    From(Register),
    Unknown,
}

impl Body {
    /// Plans every `syscall` of the function whose number may satisfy `ours`. Where the bounds are
    /// not known, only the plain form is trusted.
    fn scan(&self, known: bool, ours: impl Fn(u64) -> bool, found: &mut Found) {
        for (i, ins) in self.code.iter().enumerate() {
            if !known && ins.is_invalid() {
                return;
            }
            if ins.mnemonic() != Mnemonic::Syscall {
                continue;
            }
            let maybe = match self.number(i) {
                Number::Known(nr, mov) if ours(nr) || OTHERS.contains(&nr) => {
                    found.sites.push(Site { ring: ours(nr), ..self.plain(mov, i) });
                    false
                }
                Number::Known(..) => false,
                Number::From(r) => self.may_hold(r, &ours),
                Number::Unknown => self.may_hold(Register::RAX, &ours),
            };
            if maybe && known {
                match self.window(i) {
                    Some(site) => found.sites.push(site),
                    None => found.gaps += 1,
                }
            }
            if !known {
                return;
            }
        }
    }

    fn number(&self, syscall: usize) -> Number {
        let mut info = InstructionInfoFactory::new();
        for at in (syscall.saturating_sub(REACH)..syscall).rev() {
            // A branch to what follows `at` brings another number.
            if self.targets.contains(&self.code[at + 1].ip()) {
                return Number::Unknown;
            }
            let ins = &self.code[at];
            if ins.flow_control() != FlowControl::Next || ins.is_invalid() {
                return Number::Unknown;
            }
            if !writes(&mut info, ins, Register::RAX) {
                continue;
            }
            if let Some(nr) = constant(ins) {
                return Number::Known(nr, at);
            }
            let copied = ins.mnemonic() == Mnemonic::Mov && ins.op1_kind() == OpKind::Register;
            return match ins.op1_register() {
                r if copied && r.is_gpr32() | r.is_gpr64() => Number::From(r.full_register()),
                _ => Number::Unknown,
            };
        }
        Number::Unknown
    }

    /// May the register hold one of our numbers in this function? Only if such a constant is moved
    /// into it.
    fn may_hold(&self, r: Register, ours: impl Fn(u64) -> bool) -> bool {
        self.code
            .iter()
            .any(|i| constant(i).is_some_and(&ours) && i.op0_register().full_register() == r)
    }

    fn plain(&self, mov: usize, syscall: usize) -> Site {
        let at = &self.code[mov];
        Site {
            at: at.ip() as usize,
            len: at.len(),
            before: self.code[mov..syscall].to_vec(),
            after: Vec::new(),
            resume: self.code[syscall].next_ip() as usize,
            dynamic: false,
            ring: true,
        }
    }

    /// The smallest run of instructions around `syscall` that a jump fits into.
    fn window(&self, syscall: usize) -> Option<Site> {
        if self.indirect {
            return None;
        }
        let movable = |i: usize| {
            let ins = &self.code[i];
            ins.flow_control() == FlowControl::Next && !ins.is_invalid()
        };
        let (mut first, mut last) = (syscall, syscall);
        let len = |first: usize, last: usize| {
            (self.code[last].next_ip() - self.code[first].ip()) as usize
        };
        while len(first, last) < JUMP {
            let entered = self.targets.contains(&self.code[first].ip());
            if first > 0 && !entered && movable(first - 1) {
                first -= 1;
            } else if last + 1 < self.code.len()
                && movable(last + 1)
                && !self.targets.contains(&self.code[last + 1].ip())
            {
                last += 1;
            } else {
                return None;
            }
        }
        Some(Site {
            at: self.code[first].ip() as usize,
            len: len(first, last),
            before: self.code[first..syscall].to_vec(),
            after: self.code[syscall + 1..=last].to_vec(),
            resume: self.code[last].next_ip() as usize,
            dynamic: true,
            ring: true,
        })
    }
}

/// The constant that `mov`, or `xor` of a register with itself, puts into a register.
fn constant(i: &Instruction) -> Option<u64> {
    let same = i.op0_kind() == OpKind::Register
        && i.op1_kind() == OpKind::Register
        && i.op0_register() == i.op1_register();
    match i.code() {
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 if same => Some(0),
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 if i.op0_kind() == OpKind::Register => {
            Some(i.immediate32().into())
        }
        Code::Mov_rm64_imm32 if i.op0_kind() == OpKind::Register => {
            Some(i.immediate32to64().cast_unsigned())
        }
        _ => None,
    }
}

fn writes(info: &mut InstructionInfoFactory, i: &Instruction, full: Register) -> bool {
    info.info(i).used_registers().iter().any(|u| {
        u.register().full_register() == full
            && matches!(
                u.access(),
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
    })
}

/// A function's cold part may lie far away and jump back: no 32-bit displacement anywhere in the
/// module may lead into a window. (What looks like one and is not only costs us the site.)
fn prove_windows(m: &Module, found: &mut Found) {
    let inside: HashSet<usize> =
        found.sites.iter().filter(|s| s.dynamic).flat_map(|s| s.at + 1..s.at + s.len).collect();
    let (Some(low), Some(high)) = (inside.iter().min(), inside.iter().max()) else { return };
    let mut entered = HashSet::new();
    for t in &m.text {
        for (i, w) in text_bytes(t).windows(4).enumerate() {
            let rel = i32::from_le_bytes([w[0], w[1], w[2], w[3]]);
            let to = (t.start + i + 4).wrapping_add_signed(rel as isize);
            if (*low..=*high).contains(&to) && inside.contains(&to) && is_branch(text_bytes(t), i) {
                entered.insert(to);
            }
        }
    }
    found.sites.retain(|s| {
        let bad = s.dynamic && (s.at + 1..s.at + s.len).any(|a| entered.contains(&a));
        found.gaps += usize::from(bad && s.ring);
        !bad
    });
}

/// Is the displacement at `i` that of a call, a jmp or a jcc?
fn is_branch(text: &[u8], i: usize) -> bool {
    let byte = |back: usize| i.checked_sub(back).map_or(0, |i| text[i]);
    matches!((byte(2), byte(1)), (_, 0xe8 | 0xe9) | (0x0f, 0x80..=0x8f))
}
