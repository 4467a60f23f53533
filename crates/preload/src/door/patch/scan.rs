//! Where the numbers 425..=427 stand in text as 32-bit immediates: `a9|aa|ab 01 00 00`.
//!
//! Every program pays for this at start, so it runs at about the speed of memory: 16 bytes a step with SSE2, which
//! every x86_64 has. What it finds is rare (a handful per program), and looked at closely by `site`.
#![allow(unsafe_code)]

use core::arch::x86_64::*;

const STEP: usize = 16;
/// Bytes of the immediate.
const LEN: usize = 4;

/// Calls `found` with the offset of each.
pub fn numbers(text: &[u8], mut found: impl FnMut(usize)) {
    let mut at = 0;
    while at + STEP + LEN <= text.len() {
        // SAFETY: STEP + LEN bytes from `at` on are within `text`; SSE2 is part of x86_64.
        let mut hits = unsafe { hits(text.as_ptr().add(at)) };
        while hits != 0 {
            found(at + hits.trailing_zeros() as usize);
            hits &= hits - 1;
        }
        at += STEP;
    }
    for (i, w) in text.get(at..).unwrap_or(&[]).windows(LEN).enumerate() {
        if is_number(w) {
            found(at + i);
        }
    }
}

fn is_number(w: &[u8]) -> bool {
    matches!(w, [0xa9..=0xab, 1, 0, 0])
}

/// One bit for each of the 16 positions from `p` on where a number begins.
///
/// # Safety
/// `STEP + LEN` bytes from `p` on are readable.
#[inline(always)]
unsafe fn hits(p: *const u8) -> u32 {
    // SAFETY: the caller's; unaligned loads of 16 bytes at offsets 0..=3.
    unsafe {
        let at = |i: usize| _mm_loadu_si128(p.add(i).cast());
        let first = _mm_sub_epi8(at(0), _mm_set1_epi8(0xa9u8.cast_signed()));
        let in_range = _mm_cmpeq_epi8(_mm_min_epu8(first, _mm_set1_epi8(2)), first);
        let one = _mm_cmpeq_epi8(at(1), _mm_set1_epi8(1));
        let zeros = _mm_cmpeq_epi8(_mm_or_si128(at(2), at(3)), _mm_setzero_si128());
        _mm_movemask_epi8(_mm_and_si128(_mm_and_si128(in_range, one), zeros)).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::{is_number, numbers};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(
            text in prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xa8, 0xa9, 0xaa, 0xab, 0xac]), 0..99)
        ) {
            let mut fast = Vec::new();
            numbers(&text, |at| fast.push(at));
            let plain: Vec<_> =
                text.windows(4).enumerate().filter(|(_, w)| is_number(w)).map(|(i, _)| i).collect();
            prop_assert_eq!(fast, plain);
        }
    }
}
