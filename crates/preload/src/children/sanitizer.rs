//! AddressSanitizer's shared runtime, which ends a program if another library is loaded before it.
//! So a program linked with the runtime gets it in front of this library, as `softring run` does
//! for the program that it starts.

use super::file::{Fd, File, Headers, Name, PT_LOAD};
use super::{after, byte};

const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
/// Bytes that are read of a library's name and of a dynamic section: more than real ones have.
const LONGEST: usize = 64;
const ENTRIES: usize = 4096;
/// Bytes of the longest LD_PRELOAD assignment that is made; a longer value stays as it is.
const ROOM: usize = 2048;

/// An assignment to LD_PRELOAD.
pub struct Preload {
    text: [u8; ROOM],
}

impl Preload {
    pub fn assignment(&self) -> *const core::ffi::c_char {
        self.text.as_ptr().cast()
    }
}

/// Returns the LD_PRELOAD for a program if it must differ from the value at `value`.
#[inline(never)]
pub fn preload(file: &File, value: u64) -> Option<Preload> {
    let runtime = runtime(file)?;
    if after(value, runtime.bytes()).is_some_and(|at| matches!(byte(at), 0 | b':' | b' ')) {
        return None;
    }
    let (mut text, mut len) = ([0; ROOM], 0);
    let before = b"LD_PRELOAD=".iter().chain(runtime.bytes()).chain(b":").copied();
    let old = (value..).map(byte).take_while(|&b| b != 0);
    for b in before.chain(old) {
        // The last byte stays 0.
        *text[..ROOM - 1].get_mut(len)? = b;
        len += 1;
    }
    Some(Preload { text })
}

/// Returns the runtime that the program is linked with: gcc's or clang's.
#[inline(never)]
fn runtime(file: &File) -> Option<Name> {
    let (fd, head) = (file.fd(), file.head());
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let headers = Headers(head);
    let dynamic = headers.iter().find(|h| h.kind == PT_DYNAMIC)?;
    let mut entries = [0; ENTRIES];
    let n = fd.read(&mut entries[..dynamic.len.min(ENTRIES as u64) as usize], dynamic.offset);
    let values = |tag| {
        let tagged = entries[..n].chunks_exact(16).filter(move |e| word(&e[..8]) == tag);
        tagged.map(|e| word(&e[8..]))
    };
    let address = values(DT_STRTAB).next()?;
    let names = headers.iter().filter(|h| h.kind == PT_LOAD).find_map(|h| {
        let within = address.checked_sub(h.address)?;
        (within < h.len).then(|| h.offset.saturating_add(within))
    })?;
    values(DT_NEEDED).find_map(|at| runtime_at(fd, names.saturating_add(at)))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

/// Returns the name at `at` if it is that of a runtime.
fn runtime_at(fd: &Fd, at: u64) -> Option<Name> {
    let mut text = [0; LONGEST];
    let n = fd.read(&mut text, at);
    let text = &text[..text[..n].iter().position(|&b| b == 0)?];
    let clangs = text.starts_with(b"libclang_rt.asan") && !text.ends_with(b".a");
    (clangs || text.starts_with(b"libasan.so")).then(|| {
        let mut name = Name::new();
        name.add(text);
        name
    })
}
