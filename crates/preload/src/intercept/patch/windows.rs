//! Proof that nothing jumps into the code that a jump replaces.

use super::frames;
use super::modules::{Module, text_bytes};
use super::site::{Found, Site};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use iced_x86::{Decoder, DecoderOptions};

/// Drops the windows that something may jump into. A function's cold part may lie far away and jump
/// back, so no 32-bit displacement in the module may lead into a window. (Outside functions with
/// frames, bytes that only resemble a displacement cost us the site.)
pub fn prove(m: &Module, found: &mut Found) {
    let inside: BTreeSet<usize> =
        found.sites.iter().filter(|s| s.dynamic).flat_map(Site::not_entered).collect();
    let (Some(low), Some(high)) = (inside.iter().min(), inside.iter().max()) else { return };
    let mut entered = BTreeSet::new();
    for t in &m.text {
        for (i, w) in text_bytes(t).windows(4).enumerate() {
            let rel = i32::from_le_bytes([w[0], w[1], w[2], w[3]]);
            let to = (t.start + i + 4).wrapping_add_signed(rel as isize);
            if (*low..=*high).contains(&to)
                && inside.contains(&to)
                && is_branch(text_bytes(t), i)
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
    for i in Decoder::with_ip(64, &bytes[from..], f.start as u64, DecoderOptions::NONE) {
        // Data among the instructions: the rest may be decoded wrongly.
        if i.is_invalid() {
            return true;
        }
        if i.next_ip() >= behind {
            return i.next_ip() == behind && i.near_branch_target() == to as u64;
        }
    }
    true
}

/// Returns whether the displacement at `i` is that of a call, a jmp or a jcc.
fn is_branch(text: &[u8], i: usize) -> bool {
    let byte = |back: usize| i.checked_sub(back).map_or(0, |i| text[i]);
    matches!((byte(2), byte(1)), (_, 0xe8 | 0xe9) | (0x0f, 0x80..=0x8f))
}
