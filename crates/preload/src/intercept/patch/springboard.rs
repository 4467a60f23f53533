//! Sites without room for a jump to a stub: `syscall` is as long as a short jump, and padding
//! between functions within its reach takes the long one. No instruction boundary vanishes, so
//! anything may jump to the site, and no thread can be in the middle of it.

use super::frames::{self, Function};
use super::ins::{Kind, Walk};
use super::modules::Module;
use super::text::JUMP;

/// Alignment of functions, which padding fills up to.
const ALIGNED: usize = 16;
/// Reach of a short jump, from its end.
const BACK: usize = 128;
const AHEAD: usize = 127;

/// Returns padding for a long jump that a short one in front of `behind` reaches. `f` is the
/// function of the site; no address for which `taken` is true is returned.
pub fn find(
    m: &Module,
    f: Function,
    behind: usize,
    taken: impl Fn(usize) -> bool,
) -> Option<usize> {
    let low = behind.saturating_sub(BACK);
    let first = low.next_multiple_of(ALIGNED);
    let boundaries = (first..=behind + AHEAD + ALIGNED).step_by(ALIGNED);
    let pads = boundaries.filter_map(|to| Some((end_before(m, f, to)?, to)));
    let mut fits = pads.flat_map(|(end, to)| (end..=to - JUMP).step_by(JUMP).map(move |p| (p, to)));
    let near = |pad: usize| (low..=behind + AHEAD).contains(&pad);
    fits.find(|&(pad, to)| near(pad) && !taken(pad) && is_padding(m, pad, to)).map(|(pad, _)| pad)
}

/// Returns the end of the function that ends less than `ALIGNED` bytes before `boundary`, if there
/// is room for a jump between.
fn end_before(m: &Module, f: Function, boundary: usize) -> Option<usize> {
    let ends = boundary + 1 - ALIGNED..=boundary - JUMP;
    let is_end = |at: &usize| {
        f.end == *at || frames::function(m, at - 1).is_some_and(|before| before.end == *at)
    };
    ends.rev().find(is_end)
}

/// Returns whether `int3` and `nop` fill the bytes from `from` to `to`, in no function.
fn is_padding(m: &Module, from: usize, to: usize) -> bool {
    let Some((text, i)) = m.text_at(from).filter(|(text, i)| i + to - from <= text.len()) else {
        return false;
    };
    let mut code = Walk::new(&text[i..i + to - from], from);
    code.all(|i| matches!(i.kind, Kind::Int3 | Kind::Nop))
        && (from..to).all(|at| frames::function(m, at).is_none())
}

#[cfg(test)]
mod tests {
    use super::super::modules::Text;
    use super::*;

    /// A function of 4 bytes, `syscall; ret; nop`, and what follows.
    #[repr(align(16))]
    struct Code([u8; 32]);

    /// Returns where the jump goes, from the start of the code.
    fn found(code: &'static Code, end: usize, taken: &[usize]) -> Option<usize> {
        let start = code.0.as_ptr().expose_provenance();
        let mut m = Module::default();
        m.text.push(Text { start, len: code.0.len(), prot: 0 });
        let f = Function { start, end: start + end };
        find(&m, f, start + 2, |pad| taken.contains(&(pad - start))).map(|pad| pad - start)
    }

    const fn code(padding: [u8; 12]) -> Code {
        let mut bytes = [0xc3; 32];
        (bytes[0], bytes[1], bytes[3]) = (0x0f, 5, 0x90);
        let mut i = 0;
        while i < padding.len() {
            bytes[4 + i] = padding[i];
            i += 1;
        }
        Code(bytes)
    }

    #[test]
    fn only_padding_up_to_the_next_function_is_taken() {
        static INT3: Code = code([0xcc; 12]);
        assert_eq!(found(&INT3, 4, &[]), Some(4));
        assert_eq!(found(&INT3, 4, &[4]), Some(9));
        assert_eq!(found(&INT3, 4, &[4, 9]), None);
        // The function ends where the next one may begin, or there is less room than a jump has.
        assert_eq!(found(&INT3, 16, &[]), None);
        assert_eq!(found(&INT3, 12, &[]), None);
        // nopw 0(%rax,%rax), nopl 0(%rax)
        static NOP: Code = code([0x66, 0x0f, 0x1f, 0x44, 0, 0, 0x0f, 0x1f, 0x40, 0, 0x90, 0x90]);
        assert_eq!(found(&NOP, 4, &[]), Some(4));
        static OTHER: Code = code([0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 1, 0xcc, 0, 0]);
        assert_eq!(found(&OTHER, 4, &[]), None);
    }
}
