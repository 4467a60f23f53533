//! Where the numbers 425..=427 stand in text as 32-bit immediates: `a9|aa|ab 01 00 00`.
//!
//! Every program pays for this at start, so it runs at about the speed of memory: a block is first
//! asked whether it holds the first two bytes anywhere, in a loop that the compiler turns into
//! vector instructions (with AVX2 where the processor has it). What it finds is rare, and looked at
//! closely by `site`.
#![allow(unsafe_code)]

const BLOCK: usize = 128;
/// Bytes of the immediate.
const LEN: usize = 4;

/// Calls `found` with the offset of each.
pub fn numbers(text: &[u8], mut found: impl FnMut(usize)) {
    // Blocks that another byte follows; what is left is looked at byte by byte.
    let whole = text.len().saturating_sub(1) / BLOCK * BLOCK;
    let wide = std::is_x86_feature_detected!("avx2");
    let mut at = 0;
    while at < whole {
        // SAFETY: asked for just before.
        let likely = if wide { unsafe { likely_avx2(text, at) } } else { likely(text, at) };
        let Some(block) = likely else { break };
        within(text, block, block + BLOCK, &mut found);
        at = block + BLOCK;
    }
    within(text, whole, text.len(), &mut found);
}

fn within(text: &[u8], from: usize, to: usize, found: &mut impl FnMut(usize)) {
    for at in from..to.min(text.len().saturating_sub(LEN - 1)) {
        if is_number(&text[at..at + LEN]) {
            found(at);
        }
    }
}

fn is_number(w: &[u8]) -> bool {
    matches!(w, [0xa9..=0xab, 1, 0, 0])
}

/// The next block, from `from` on in steps of `BLOCK`, that holds the first two bytes of a number.
#[inline(always)]
fn likely(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(b) = text.get(at..at + BLOCK + 1) {
        let mut hit = false;
        for i in 0..BLOCK {
            hit |= (b[i].wrapping_sub(0xa9) < 3) & (b[i + 1] == 1);
        }
        if hit {
            return Some(at);
        }
        at += BLOCK;
    }
    None
}

/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn likely_avx2(text: &[u8], from: usize) -> Option<usize> {
    likely(text, from)
}

#[cfg(test)]
mod tests {
    use super::{is_number, numbers};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(
            text in prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xa8, 0xa9, 0xaa, 0xab, 0xac]), 0..999)
        ) {
            let mut fast = Vec::new();
            numbers(&text, |at| fast.push(at));
            let plain: Vec<_> =
                text.windows(4).enumerate().filter(|(_, w)| is_number(w)).map(|(i, _)| i).collect();
            prop_assert_eq!(fast, plain);
        }
    }
}
