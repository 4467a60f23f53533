//! Proof that nothing jumps into the code that a jump replaces.

use super::frames;
use super::ins::{Kind, Walk};
use super::modules::{Module, text_bytes};
use super::site::{Found, Site};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Drops the windows that something may jump into. A function's cold part may lie far away and jump
/// back, so no 32-bit displacement in the module may lead into a window. (Outside functions with
/// frames, bytes that only resemble a displacement cost us the site.)
pub fn prove(m: &Module, found: &mut Found) {
    let inside: BTreeSet<usize> =
        found.sites.iter().filter(|s| s.dynamic).flat_map(Site::not_entered).collect();
    let (Some(low), Some(high)) = (inside.iter().min(), inside.iter().max()) else { return };
    let mut entered = BTreeSet::new();
    for t in &m.text {
        let text = text_bytes(t);
        // Few bytes are those of a branch, and the test of one byte is quick.
        for i in (1..text.len().saturating_sub(3)).filter(|i| is_branch(text, *i)) {
            let rel = i32::from_le_bytes([text[i], text[i + 1], text[i + 2], text[i + 3]]);
            let to = (t.start + i + 4).wrapping_add_signed(rel as isize);
            if (*low..=*high).contains(&to)
                && inside.contains(&to)
                && may_branch(m, t.start + i, to)
            {
                entered.insert(to);
            }
        }
    }
    let is_bad = |s: &mut Site| s.dynamic && s.not_entered().any(|a| entered.contains(&a));
    let bad: Vec<_> = found.sites.extract_if(.., is_bad).collect();
    bad.iter().filter(|s| s.ring).for_each(|_| found.left(true));
}

/// Returns whether an instruction whose last four bytes are at `displacement` may lead `to` there.
/// Megabytes of text hold such bytes by chance: if frames tell their function, its decoded
/// instructions decide.
fn may_branch(m: &Module, displacement: usize, to: usize) -> bool {
    let Some(f) = frames::function(m, displacement) else { return true };
    let Some((bytes, from)) = m.text_at(f.start) else { return true };
    let behind = (displacement + 4) as u64;
    for i in Walk::new(&bytes[from..], f.start) {
        // Data among the instructions: the rest may be decoded wrongly.
        if i.kind == Kind::Invalid {
            return true;
        }
        if i.next_ip() >= behind {
            return i.next_ip() == behind && i.target == to as u64;
        }
    }
    true
}

/// Returns whether the displacement at `i`, behind at least one byte, is that of a call, a jmp or a
/// jcc.
fn is_branch(text: &[u8], i: usize) -> bool {
    match text[i - 1] {
        0xe8 | 0xe9 => true,
        0x80..=0x8f => i > 1 && text[i - 2] == 0x0f,
        _ => false,
    }
}
