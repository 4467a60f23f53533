//! The frames of a static program, which linkers leave without a sorted table: `.eh_frame` alone.
//! No program header leads there. It is found by its first record, and read record by record.
//!
//! (See the LSB, "DWARF Extensions".)
#![allow(unsafe_code)]

use super::modules::Module;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// First words of a CIE behind its length: the id 0, version 1, an augmentation that begins `zR`.
const FIRST: [u8; 7] = [0, 0, 0, 0, 1, b'z', b'R'];
/// Alignment of records.
const ALIGNED: usize = 4;
/// Length that says that a longer one follows, which no program needs.
const LONG: usize = 0xffff_ffff;
/// Encoding `pcrel|sdata4`.
const RELATIVE: u8 = 0x1b;
/// Fewest functions of a program: fewer are a chance hit.
const LEAST: usize = 4;

/// Returns the functions of a module, in order, each with the address of its FDE.
pub fn functions(m: &Module) -> Vec<(usize, usize)> {
    for range in &m.read_only {
        // SAFETY: a read-only segment of a loaded module.
        let bytes = unsafe {
            core::slice::from_raw_parts(
                core::ptr::with_exposed_provenance::<u8>(range.start),
                range.len(),
            )
        };
        let starts = (0..bytes.len().saturating_sub(FIRST.len() + ALIGNED)).step_by(ALIGNED);
        for at in starts.filter(|at| bytes[at + ALIGNED..].starts_with(&FIRST)) {
            let found = records(bytes, at, range.start);
            if found.len() >= LEAST {
                return found;
            }
        }
    }
    Vec::new()
}

/// Reads records from `at` on, up to the one of length 0 that ends them.
fn records(bytes: &[u8], mut at: usize, base: usize) -> Vec<(usize, usize)> {
    let mut cies = BTreeMap::new();
    let mut found = Vec::new();
    while let Some(len) = word(bytes, at).filter(|len| ![0, LONG].contains(len)) {
        let Some(record) = bytes.get(at + 4..at + 4 + len) else { break };
        match word(record, 0) {
            Some(0) => _ = cies.insert(at, encoding(record) == Some(RELATIVE)),
            // The distance back to the CIE.
            Some(back) => {
                let known = (at + 4).checked_sub(back).and_then(|cie| cies.get(&cie));
                let start = word(record, 4).map(|d| (d as u32).cast_signed() as isize);
                if known == Some(&true)
                    && let Some(start) = start.and_then(|d| (base + at + 8).checked_add_signed(d))
                {
                    found.push((start, base + at));
                }
            }
            None => break,
        }
        at += 4 + len;
    }
    found.sort_unstable();
    found
}

/// Returns the encoding of the addresses in the FDEs of a CIE.
fn encoding(cie: &[u8]) -> Option<u8> {
    const AUGMENTATION: usize = 5;
    let text = cie.get(AUGMENTATION..)?;
    let end = text.iter().position(|b| *b == 0)?;
    let (text, rest) = (&text[..end], &text[end + 1..]);
    // Alignments of code and data, the return address's register, the length of what follows.
    let mut rest = (0..4).try_fold(rest, |rest, _| after_leb(rest))?;
    for kind in text.strip_prefix(b"z")? {
        match kind {
            b'R' => return rest.first().copied(),
            b'L' => rest = rest.get(1..)?,
            b'P' => rest = rest.get(1 + pointer_len(*rest.first()?)?..)?,
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    None
}

/// Returns the bytes behind a number in LEB128.
fn after_leb(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(bytes.iter().position(|b| b & 0x80 == 0)? + 1..)
}

fn pointer_len(encoding: u8) -> Option<usize> {
    match encoding & 0xf {
        0 | 4 | 12 => Some(8),
        2 | 10 => Some(2),
        3 | 11 => Some(4),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A CIE, FDEs of functions at distances from each FDE's own word, and the end.
    fn frames(distances: &[i32]) -> Vec<u8> {
        let cie = b"\x14\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0\0";
        let mut bytes = cie.to_vec();
        for distance in distances {
            let back = bytes.len() as u32 + 4;
            bytes.extend([0x10u32, back].map(u32::to_le_bytes).concat());
            bytes.extend(distance.to_le_bytes());
            bytes.extend([8, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn functions_come_in_order() {
        let bytes = frames(&[0x300, 0x100, -0x18]);
        let found = records(&bytes, 0, 0x1000);
        let [first, second, third] = [0x1018usize, 0x102c, 0x1040];
        let expected = [(0x1030, third), (0x1134, second), (0x1320, first)];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_handler_may_come_before_the_encoding() {
        let personality = b"\0\0\0\0\x01zPLR\0\x01\x78\x10\x07\x9b\x11\x22\x33\x44\x1b\x1b";
        assert_eq!(encoding(personality), Some(RELATIVE));
        assert_eq!(encoding(b"\0\0\0\0\x01eh\0\x01\x78\x10\x01\x1b"), None);
    }

    proptest! {
        #[test]
        fn damaged_frames_do_no_harm(
            at in 0usize..64, byte in any::<u8>(), len in 0usize..80,
        ) {
            let mut bytes = frames(&[0x300, 0x100, -0x18]);
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(len);
            let _ = records(&bytes, 0, 0x1000);
        }
    }
}
