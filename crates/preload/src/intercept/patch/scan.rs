//! Search of text for the numbers 425..=427 as 32-bit immediates (`a9|aa|ab 01 00 00`), and for
//! `syscall`.
//!
//! Every program pays for the search at start, so it runs at about the speed of memory. A loop that
//! the compiler turns into vector instructions (with AVX2 where the processor has it) asks whether
//! a block holds the first two bytes anywhere. Matches are rare, and `site` checks them closely.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

const BLOCK: usize = 128;
/// Bytes of the immediate.
const LEN: usize = 4;

/// Calls `number` with the offset of each number, and `syscall` with that of each `syscall`.
pub fn text(text: &[u8], mut number: impl FnMut(usize), mut syscall: impl FnMut(usize)) {
    blocks(text, |at| {
        if text.get(at..at + LEN).is_some_and(is_number) {
            number(at);
        } else if is_syscall(&text[at..]) {
            syscall(at);
        }
    });
}

/// Calls `look` with each offset of the blocks that hold the first two bytes of a match anywhere.
fn blocks(text: &[u8], mut look: impl FnMut(usize)) {
    // Blocks that another byte follows; the rest is checked byte by byte.
    let whole = text.len().saturating_sub(1) / BLOCK * BLOCK;
    let wide = has_avx2();
    let mut at = 0;
    while at < whole {
        let likely = if wide {
            // SAFETY: the processor has AVX2.
            unsafe { likely_avx2(text, at) }
        } else {
            likely(text, at)
        };
        let Some(block) = likely else { break };
        (block..block + BLOCK).for_each(&mut look);
        at = block + BLOCK;
    }
    (whole..text.len()).for_each(look);
}

/// Returns whether processor and kernel have AVX2; asks once, as a virtual machine may emulate the
/// question.
fn has_avx2() -> bool {
    static KNOWN: AtomicU8 = AtomicU8::new(ASK);
    const ASK: u8 = 2;
    // Relaxed: all threads find the same.
    let known = KNOWN.load(Relaxed);
    if known != ASK {
        return known != 0;
    }
    let has = super::entry::has_avx2();
    KNOWN.store(has.into(), Relaxed);
    has
}

fn is_syscall(w: &[u8]) -> bool {
    w.starts_with(&[0x0f, 5])
}

fn is_number(w: &[u8]) -> bool {
    matches!(w, [0xa9..=0xab, 1, 0, 0])
}

/// Returns the next block, from `from` on in steps of `BLOCK`, that holds the two bytes.
#[inline(always)]
fn likely(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(b) = text.get(at..at + BLOCK + 1) {
        let mut hit = false;
        for i in 0..BLOCK {
            hit |= (b[i].wrapping_sub(0xa9) < 3) & (b[i + 1] == 1);
            hit |= (b[i] == 0x0f) & (b[i + 1] == 5);
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
    use super::is_number;
    use proptest::prelude::*;

    const BYTES: &[u8] = &[0, 1, 0xa8, 0xa9, 0xaa, 0xab, 0xac];

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(
            text in prop::collection::vec(prop::sample::select(BYTES), 0..999)
        ) {
            let mut fast = Vec::new();
            super::text(&text, |at| fast.push(at), |_| ());
            let plain: Vec<_> =
                text.windows(4).enumerate().filter(|(_, w)| is_number(w)).map(|(i, _)| i).collect();
            prop_assert_eq!(fast, plain);
        }

        #[test]
        fn finds_every_syscall(
            text in prop::collection::vec(
                prop::sample::select(vec![0u8, 5, 0x0e, 0x0f, 0x10, 4]), 0..999)
        ) {
            let mut fast = Vec::new();
            super::text(&text, |_| (), |at| fast.push(at));
            let pairs = text.windows(2).enumerate();
            let plain: Vec<_> = pairs.filter(|(_, w)| *w == [0x0f, 5]).map(|(i, _)| i).collect();
            prop_assert_eq!(fast, plain);
        }
    }
}
