//! A decoded function, and the system calls that its `syscall` instructions may make.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use iced_x86::FlowControl;

use super::frames::Function;
use super::ins::{Ins, Kind, RAX, Value, Walk};
use super::modules::Module;

/// Instructions before `syscall` in which its number is searched in a straight line.
const REACH: usize = 48;
/// Steps back from a `syscall` on all paths together.
const STEPS: usize = 4096;

/// A decoded function.
pub struct Body {
    pub function: Function,
    pub code: Vec<Ins>,
    /// Targets of its branches, each with the branches that lead there.
    pub targets: BTreeMap<u64, Vec<usize>>,
    /// Flag, true if there is a jump through a register or a table, whose targets are not known.
    pub indirect: bool,
}

/// Numbers that eax may hold at a `syscall`.
#[derive(Debug, Default)]
pub struct Numbers {
    pub known: BTreeSet<u64>,
    /// Flag, true if there may be others: an argument of the function, a value in memory, or a
    /// computed one.
    pub unknown: bool,
}

impl Numbers {
    /// Returns whether the number may be one of these.
    pub fn may_be(&self, ours: impl Fn(u64) -> bool) -> bool {
        self.unknown || self.known.iter().any(|&nr| ours(nr))
    }

    /// Returns whether the number is one of these on each path.
    pub fn is_only(&self, ours: impl Fn(u64) -> bool) -> bool {
        !self.unknown && !self.known.is_empty() && self.known.iter().all(|&nr| ours(nr))
    }
}

impl Body {
    pub fn of(m: &Module, f: Function) -> Self {
        let (code, targets) = (Vec::new(), BTreeMap::new());
        let mut b = Self { function: f, code, targets, indirect: false };
        let Some((text, from)) = m.text_at(f.start) else { return b };
        let bytes = &text[from..text.len().min(from + f.end - f.start)];
        for i in Walk::new(bytes, f.start) {
            match i.flow {
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    b.targets.entry(i.target).or_default().push(b.code.len());
                }
                _ => b.indirect |= is_indirect(&i),
            }
            b.code.push(i);
        }
        b
    }

    /// Returns whether a branch of the function leads to this instruction.
    pub fn is_target(&self, at: usize) -> bool {
        self.targets.contains_key(&self.code[at].ip)
    }

    /// Returns the number that the instructions before `syscall` put into eax in a straight line,
    /// and the instruction that does.
    pub fn plain_number(&self, syscall: usize) -> Option<(u64, usize)> {
        for at in (syscall.saturating_sub(REACH)..syscall).rev() {
            // A branch to the instruction behind `at` brings another number.
            if self.is_target(at + 1) {
                return None;
            }
            let ins = &self.code[at];
            if !ins.is_movable() {
                return None;
            }
            if ins.writes(RAX) {
                let Value::Constant(nr) = ins.value else { return None };
                return Some((nr, at));
            }
        }
        None
    }

    /// Returns all numbers that may reach `syscall`: on each path back from there, the last one
    /// that is written to eax, or to a register that is copied into it.
    pub fn numbers(&self, syscall: usize) -> Numbers {
        let mut found = Numbers::default();
        let mut seen = BTreeSet::new();
        let mut paths = vec![(syscall, RAX)];
        while let Some((at, register)) = paths.pop() {
            if !seen.insert((at, register)) {
                continue;
            }
            let mut before = self.targets.get(&self.code[at].ip).cloned().unwrap_or_default();
            before.extend(at.checked_sub(1).filter(|_| !self.begins_behind_end(at)));
            // The function begins here, or this follows a table of jumps.
            if at == 0 || before.is_empty() || seen.len() > STEPS {
                found.unknown = true;
                return found;
            }
            for i in before {
                match written(&self.code[i], register) {
                    Written::Nothing => paths.push((i, register)),
                    Written::Constant(nr) => {
                        found.known.insert(nr);
                    }
                    Written::CopyOf(other) => paths.push((i, other)),
                    Written::Unknown => found.unknown = true,
                }
            }
        }
        found
    }

    /// Returns whether other code ends before the instruction, so that it is never next: a jump or
    /// a return is there, perhaps with padding behind it. (A table of jumps may lead to the
    /// padding.)
    fn begins_behind_end(&self, at: usize) -> bool {
        let is_padding =
            |i: &usize| !self.indirect && self.code[*i].kind == Kind::Nop && !self.is_target(*i);
        let before = (0..at).rev().find(|i| !is_padding(i));
        before.is_some_and(|i| !goes_on(&self.code[i]))
    }

    /// Returns whether a straight line leads to the instruction from the end of other code: a table
    /// of jumps may lead to the line's start, not into it.
    pub fn follows_end(&self, at: usize) -> bool {
        for i in self.code[..at].iter().rev() {
            let ends = matches!(
                i.flow,
                FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Interrupt
            );
            if ends || i.kind == Kind::Nop {
                return true;
            }
            if !i.is_movable() {
                return false;
            }
        }
        false
    }

    /// Forgets indirect jumps of other functions than that of the instruction, in a range of code
    /// that holds several.
    pub fn keep_function(&mut self, at: usize) {
        self.indirect = false;
        let begins = |i: &usize| !self.is_target(*i) && self.begins_behind_end(*i);
        let start = (0..=at).rev().find(begins).unwrap_or(0);
        let end = (at + 1..self.code.len()).find(begins).unwrap_or(self.code.len());
        self.indirect = self.code[start..end].iter().any(is_indirect);
    }
}

/// Returns whether this is a jump through a register or a table. One through a fixed slot is a tail
/// call.
fn is_indirect(i: &Ins) -> bool {
    i.flow == FlowControl::IndirectBranch && i.relative == 0
}

/// Returns whether the instruction behind this one may be next.
fn goes_on(i: &Ins) -> bool {
    use FlowControl::{Exception, IndirectBranch, Return, UnconditionalBranch};
    !matches!(i.flow, Exception | IndirectBranch | Return | UnconditionalBranch)
}

/// Effect of an instruction on a register.
enum Written {
    Nothing,
    Constant(u64),
    CopyOf(u8),
    Unknown,
}

fn written(i: &Ins, register: u8) -> Written {
    let call = matches!(i.flow, FlowControl::Call | FlowControl::IndirectCall);
    if call && i.kind != Kind::Syscall && is_lost_in_calls(register) {
        return Written::Unknown;
    }
    match i.value {
        _ if !i.writes(register) => Written::Nothing,
        Value::Constant(nr) => Written::Constant(nr),
        Value::CopyOf(other) => Written::CopyOf(other),
        Value::Unknown => Written::Unknown,
    }
}

/// rax, rcx, rdx, rsi, rdi, r8 to r11.
fn is_lost_in_calls(register: u8) -> bool {
    matches!(register, 0 | 1 | 2 | 6..=11)
}

#[cfg(test)]
mod tests {
    use super::super::modules::Text;
    use super::*;

    fn body(text: &'static [u8]) -> Body {
        let start = text.as_ptr().expose_provenance();
        let mut m = Module::default();
        m.text.push(Text { start, len: text.len(), prot: 0 });
        Body::of(&m, Function { start, end: start + text.len() })
    }

    fn syscall(b: &Body) -> usize {
        b.code.iter().position(|i| i.kind == Kind::Syscall).unwrap()
    }

    /// musl's `__lock`: the number is moved before a loop, whose start is aligned.
    #[test]
    fn padding_behind_a_jump_is_not_a_path() {
        // mov r9d, 202; jmp 1f; nop; 0: mov edx, eax; 1: mov rax, r9; syscall; jmp 0b
        static LOOP: &[u8] =
            b"\x41\xb9\xca\0\0\0\xeb\x05\x0f\x1f\0\x89\xc2\x4c\x89\xc8\x0f\x05\xeb\xf7";
        let b = body(LOOP);
        let numbers = b.numbers(syscall(&b));
        assert_eq!((numbers.known, numbers.unknown), ([202].into(), false));
    }

    #[test]
    fn only_jumps_of_the_function_itself_count() {
        // jmp rax; nop; mov rax, rdi; syscall; ret
        static BESIDE: &[u8] = b"\xff\xe0\x90\x48\x89\xf8\x0f\x05\xc3";
        // mov rax, rdi; syscall; jmp rcx
        static OWN: &[u8] = b"\x48\x89\xf8\x0f\x05\xff\xe1";
        for (text, indirect) in [(BESIDE, false), (OWN, true)] {
            let mut b = body(text);
            assert!(b.indirect);
            b.keep_function(syscall(&b));
            assert_eq!(b.indirect, indirect, "{text:x?}");
        }
    }
}
