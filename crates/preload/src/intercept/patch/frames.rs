//! The function around an address, found in the sorted table of `.eh_frame_hdr`, which stripped
//! binaries keep.
//!
//! Only the encodings that linkers write are read (`pcrel sdata4` pointers, `datarel sdata4`
//! table); a module with others counts as one without frames. (See the LSB, "DWARF Extensions".)
#![allow(unsafe_code)]

use super::ins::{Kind, Walk};
use super::modules::Module;
use super::text::SYSCALL;
use iced_x86::FlowControl;

/// eh_frame_ptr `pcrel|sdata4`, fde_count `udata4`, table `datarel|sdata4`, after version 1.
const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// Bytes of the header, before the table.
const HEADER: usize = 12;
/// Bytes of a table entry: function, FDE.
const ENTRY: usize = 8;

/// A function's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    pub start: usize,
    pub end: usize,
}

/// Returns the function that holds `at`, if the module's frames have one.
pub fn function(m: &Module, at: usize) -> Option<Function> {
    let (start, fde) = match m.frames {
        Some(frames) => sorted(m, frames, at)?,
        None => {
            let behind = m.unsorted.partition_point(|(start, _)| *start <= at);
            *m.unsorted.get(behind.checked_sub(1)?)?
        }
    };
    // An FDE: length, CIE, first address (pcrel sdata4), size.
    if relative(m, fde + 8, fde + 8)? != start || is_of_signal(m, fde)? {
        return None;
    }
    let size = u32::from_ne_bytes(read(m, fde + 12)?) as usize;
    let f = Function { start, end: start.checked_add(size)? };
    (f.start <= at && at < f.end && m.text.iter().any(|t| t.holds(start) && t.holds(f.end - 1)))
        .then_some(f)
}

/// Returns whether an FDE is of a signal's frame, as that of glibc's restorer. Such an FDE begins a
/// byte before the function, for unwinders that search the function of a return address less one.
fn is_of_signal(m: &Module, fde: usize) -> Option<bool> {
    // A CIE: length, id, version, the augmentation, a string.
    const AUGMENTATION: usize = 9;
    const MOST: usize = 8;
    let back = u32::from_ne_bytes(read(m, fde + 4)?) as usize;
    let at = (fde + 4).checked_sub(back)? + AUGMENTATION;
    for i in 0..MOST {
        match read::<1>(m, at + i)? {
            [0] => return Some(false),
            [b'S'] => return Some(true),
            _ => {}
        }
    }
    None
}

/// Finds the last function in the table that begins at `at` or before, and its FDE.
fn sorted(m: &Module, (header, len): (usize, usize), at: usize) -> Option<(usize, usize)> {
    if len < HEADER || read::<4>(m, header)? != ENCODINGS {
        return None;
    }
    let count = u32::from_ne_bytes(read(m, header + 8)?) as usize;
    if count > (len - HEADER) / ENTRY {
        return None;
    }
    let entry = |i: usize| {
        let e = header + HEADER + i * ENTRY;
        Some((relative(m, e, header)?, relative(m, e + 4, header)?))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if entry(middle)?.0 <= at { low = middle + 1 } else { high = middle }
    }
    entry(low.checked_sub(1)?)
}

/// Returns the function that holds the `syscall` at `at` in text that has padding between functions
/// and no frames: Go's (`int3`), Zig's own backend's (zeros). The range goes from an aligned
/// address behind padding to the next padding, and may hold more than one function.
pub fn padded(m: &Module, at: usize) -> Option<Function> {
    const ALIGNED: usize = 16;
    const FAR: usize = 1024;
    let (bytes, i) = m.text_at(at)?;
    let first = at - i;
    let begins = |j: &usize| (first + j).is_multiple_of(ALIGNED) && ends_padded(&bytes[..*j]);
    let start = (i.saturating_sub(FAR).max(1)..=i).rev().find(begins)?;
    let behind = i + SYSCALL;
    let ends = |j: &usize| {
        let next = &bytes[*j..];
        next.starts_with(&[INT3; 2]) || next.starts_with(&[0; ZEROS])
    };
    let end = (behind..bytes.len().min(i + FAR)).find(ends)?;
    let mut found = false;
    for ins in Walk::new(&bytes[start..end], 0) {
        if ins.kind == Kind::Invalid {
            return None;
        }
        found |= ins.ip as usize == i - start && ins.kind == Kind::Syscall;
    }
    found.then_some(Function { start: first + start, end: first + end })
}

/// Returns the function at `start` that makes a call in a straight line, up to its first return
/// after the call: musl's own have no frames.
pub fn straight(m: &Module, start: usize) -> Option<Function> {
    const LONGEST: usize = 512;
    let (bytes, from) = m.text_at(start)?;
    let code = &bytes[from..bytes.len().min(from + LONGEST)];
    let mut called = false;
    for i in Walk::new(code, start) {
        called |= i.kind == Kind::Syscall;
        match i.flow {
            FlowControl::Return if called => {
                return Some(Function { start, end: i.next_ip() as usize });
            }
            FlowControl::Next => {}
            _ if called => {}
            _ => return None,
        }
    }
    None
}

const INT3: u8 = 0xcc;
/// Zeros that count as padding: more than a 32-bit constant has.
const ZEROS: usize = 5;

fn ends_padded(before: &[u8]) -> bool {
    before.ends_with(&[INT3]) || before.ends_with(&[0; ZEROS])
}

/// Returns the address that the signed 32-bit number at `at` names, counted from `from`.
fn relative(m: &Module, at: usize, from: usize) -> Option<usize> {
    from.checked_add_signed(i32::from_ne_bytes(read(m, at)?) as isize)
}

fn read<const N: usize>(m: &Module, at: usize) -> Option<[u8; N]> {
    if at < m.low || at.checked_add(N)? > m.high {
        return None;
    }
    // SAFETY: within the module, in .eh_frame_hdr or an FDE that it names: both in read-only loaded
    // segments.
    Some(unsafe { core::ptr::with_exposed_provenance::<[u8; N]>(at).read_unaligned() })
}
