//! The fields of an ELF file that say whether a preload can reach the program in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Contents of an executable's headers.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    /// 32 or 64.
    pub bits: u8,
    /// `e_machine`.
    pub machine: u16,
    /// PT_INTERP: the dynamic linker that the file asks for; a static program has none.
    pub interp: Option<Interp>,
    /// Flag, true if there is something to be mapped (PT_LOAD).
    pub loads: bool,
    /// Flag, true if the program unpacks itself in place (UPX).
    pub packed: bool,
}

/// Name of a dynamic linker.
#[derive(Debug, PartialEq, Eq)]
pub enum Interp {
    Path(PathBuf),
    /// A name that the kernel refuses: it is empty, too long or does not end with a NUL.
    Damaged,
}

impl Interp {
    /// Most bytes of a name with its NUL: `PATH_MAX`.
    const MOST: usize = 4096;

    /// Reads the name of so many bytes at an offset.
    fn read(file: &File, offset: u64, len: u64) -> io::Result<Interp> {
        let mut name = [0; Interp::MOST];
        let room = usize::try_from(len).ok().and_then(|len| name.get_mut(..len));
        let Some(name) = room else { return Ok(Interp::Damaged) };
        let n = read_up_to(file, name, offset)?;
        Ok(match name.split(|b| *b == 0).next() {
            Some(path) if n == name.len() && name.ends_with(&[0]) && !path.is_empty() => {
                Interp::Path(PathBuf::from(OsStr::from_bytes(path)))
            }
            _ => Interp::Damaged,
        })
    }
}

const MAGIC: [u8; 4] = *b"\x7fELF";
const EM_386: u16 = 3;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const EM_RISCV: u16 = 243;
/// The mark of a packed file, in the block that UPX puts behind the program headers (`l_magic` of
/// its `struct l_info`).
const PACKED: [u8; 4] = *b"UPX!";
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
/// Length of a program header of a 64-bit file.
const HEADER_64: u16 = 56;
/// Most program headers that are read: no linker writes more, and the file would not be what it
/// says.
const MAX_HEADERS: usize = 512;

#[cfg(target_arch = "x86_64")]
pub const OURS: u16 = EM_X86_64;
#[cfg(target_arch = "aarch64")]
pub const OURS: u16 = EM_AARCH64;

/// Returns a machine's name as uname(1) prints it.
pub fn machine_name(machine: u16) -> String {
    match machine {
        EM_386 => "i386".into(),
        EM_X86_64 => "x86_64".into(),
        EM_AARCH64 => "aarch64".into(),
        EM_RISCV => "riscv".into(),
        40 => "arm".into(),
        21 => "ppc64".into(),
        22 => "s390x".into(),
        258 => "loongarch".into(),
        n => format!("ELF machine {n}"),
    }
}

/// Integers in the file's own byte order.
struct Fields<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Fields<'_> {
    fn get<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let raw: [u8; N] = self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()?;
        if self.little {
            return Some(raw);
        }
        let mut swapped = raw;
        swapped.reverse();
        Some(swapped)
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.get(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.get(at).map(u32::from_le_bytes)
    }

    /// Returns a word of the file's class: `Elf32_Off` or `Elf64_Off`.
    fn word(&self, at: usize, bits: u8) -> Option<u64> {
        if bits == 64 { self.get(at).map(u64::from_le_bytes) } else { self.u32(at).map(u64::from) }
    }
}

/// Returns whether a file calls itself ELF.
pub fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == MAGIC
}

/// The start of an ELF file.
struct Head {
    bits: u8,
    little: bool,
    machine: u16,
    /// Offset, length and number of the program headers.
    headers: (u64, usize, usize),
}

impl Head {
    /// Reads the start; `None` if it is not ELF's, or damaged.
    fn of(bytes: &[u8]) -> Option<Head> {
        if bytes.len() < 52 || !bytes.starts_with(&MAGIC) {
            return None;
        }
        // The kernel reads a file of its own machine without asking `e_ident`.
        let as_ours = Fields { bytes, little: true };
        let is_ours = as_ours.u16(18) == Some(OURS) && as_ours.u16(54) == Some(HEADER_64);
        let bits = if is_ours || bytes[4] == 2 { 64 } else { 32 };
        let little = is_ours || bytes[5] != 2;
        let h = Fields { bytes, little };
        let (at, size_at) = if bits == 64 { (32, 54) } else { (28, 42) };
        let (size, count) = (usize::from(h.u16(size_at)?), usize::from(h.u16(size_at + 2)?));
        let headers = (h.word(at, bits)?, size.min(256), count.min(MAX_HEADERS));
        Some(Head { bits, little, machine: h.u16(18)?, headers })
    }
}

/// Returns whether a file that begins with these bytes is ELF, and none of its program headers
/// among them names a dynamic linker.
pub fn begins_static(bytes: &[u8]) -> bool {
    let Some(Head { little, headers: (at, size, count), .. }) = Head::of(bytes) else {
        return false;
    };
    let table = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let mut types = table.chunks(size.max(1)).take(count);
    types.all(|bytes| Fields { bytes, little }.u32(0) != Some(PT_INTERP))
}

/// Reads the headers. Returns `None` for a file that is not ELF, or is damaged (the kernel will say
/// so).
pub fn read(file: &File) -> io::Result<Option<Elf>> {
    let mut head = [0; 64];
    let n = read_up_to(file, &mut head, 0)?;
    let Some(Head { bits, little, machine, headers: (phoff, size, count) }) = Head::of(&head[..n])
    else {
        return Ok(None);
    };
    let mut table = vec![0; size * count];
    let n = read_up_to(file, &mut table, phoff)?;
    if n < table.len() {
        return Ok(None);
    }
    let (mut interp, mut loads) = (None, false);
    for header in table.chunks_exact(size.max(1)) {
        let p = Fields { bytes: header, little };
        loads |= p.u32(0) == Some(PT_LOAD);
        if p.u32(0) != Some(PT_INTERP) {
            continue;
        }
        let (off_at, len_at) = if bits == 64 { (8, 32) } else { (4, 16) };
        if let (Some(off), Some(len)) = (p.word(off_at, bits), p.word(len_at, bits)) {
            // The kernel takes the first.
            interp = interp.or(Some(Interp::read(file, off, len)?));
        }
    }
    let (mut mark, after) = ([0; 4], phoff.saturating_add(table.len() as u64 + 4));
    let packed = read_up_to(file, &mut mark, after)? == mark.len() && mark == PACKED;
    Ok(Some(Elf { bits, machine, interp, loads, packed }))
}

/// Reads until `buf` is full or the file ends.
pub fn read_up_to(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    // No file reaches that far; the kernel would call such an offset invalid.
    if i64::try_from(offset).is_err() {
        return Ok(0);
    }
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(bytes: &[u8]) -> File {
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(bytes).unwrap();
        f
    }

    #[test]
    fn our_own_executable() {
        let elf = read(&File::open("/proc/self/exe").unwrap()).unwrap().unwrap();
        assert_eq!((elf.bits, elf.machine), (64, OURS));
        let is_static = cfg!(target_feature = "crt-static");
        let is_loader = |i| matches!(i, Interp::Path(path) if path.starts_with("/"));
        assert!(elf.interp.map_or(is_static, is_loader));
    }

    #[test]
    fn not_elf_and_damaged() {
        assert_eq!(read(&file_of(b"#!/bin/sh\n")).unwrap(), None);
        assert_eq!(read(&file_of(b"\x7fELF")).unwrap(), None);
        // The file claims 65535 headers of 65535 bytes beyond its end.
        let mut bad = [0xffu8; 64];
        bad[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(read(&file_of(&bad)).unwrap(), None);
        let mut empty = [0u8; 64];
        empty[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(read(&file_of(&empty)).unwrap().unwrap().interp, None);
    }

    #[test]
    fn big_endian_fields() {
        let mut be = [0u8; 64];
        be[..6].copy_from_slice(b"\x7fELF\x02\x02");
        be[18..20].copy_from_slice(&22u16.to_be_bytes());
        let elf = read(&file_of(&be)).unwrap().unwrap();
        assert_eq!(machine_name(elf.machine), "s390x");
    }
}
