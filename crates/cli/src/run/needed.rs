//! The libraries that an ELF file asks for (DT_NEEDED). A program's order of them matters:
//! AddressSanitizer's runtime refuses to start behind a preloaded library. softring's library asks
//! for none, so that every loader takes it.

use std::fs::File;
use std::path::Path;

use super::elf::{self, Elf, read_up_to};

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
/// Most entries that are read: no linker writes more.
const MAX: usize = 4096;

/// Returns the shared runtime of AddressSanitizer, gcc's or clang's, that a 64-bit program of this
/// machine's byte order is linked with.
pub fn sanitizer(program: &Path) -> Option<String> {
    let file = File::open(program).ok()?;
    let is_runtime = |name: &String| {
        name.starts_with("libasan.so")
            || name.starts_with("libclang_rt.asan") && !name.ends_with(".a")
    };
    needed(&file)?.into_iter().find(is_runtime)
}

fn bytes(file: &File, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let n = read_up_to(file, &mut bytes, at).ok()?;
    bytes.truncate(n);
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

/// The dynamic section of a 64-bit file of this byte order, and its table of strings.
struct Dynamic {
    entries: Vec<u8>,
    /// Offset of the strings in the file.
    names: u64,
}

impl Dynamic {
    fn read(file: &File) -> Option<Dynamic> {
        let head = bytes(file, 0, 64)?;
        if head.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (size, count) = (half(&head, 54)? as usize, half(&head, 56)? as usize);
        if size < 56 {
            return None;
        }
        let table = bytes(file, word(&head, 32)?, size * count.min(MAX))?;
        let headers = || table.chunks_exact(size);
        let kind = |h: &&[u8], kind| word(h, 0).is_some_and(|word| word & 0xffff_ffff == kind);
        let dynamic = headers().find(|h| kind(h, PT_DYNAMIC))?;
        let len = usize::try_from(word(dynamic, 32)?).ok()?.min(16 * MAX);
        let entries = bytes(file, word(dynamic, 8)?, len)?;
        let address = values(&entries, DT_STRTAB).next()?;
        // p_offset, p_vaddr and p_filesz belong to the segment that the names are in.
        let names = headers().filter(|h| kind(h, PT_LOAD)).find_map(|h| {
            let within = address.checked_sub(word(h, 16)?)?;
            (within < word(h, 32)?).then_some(word(h, 8)? + within)
        })?;
        Some(Dynamic { entries, names })
    }

    fn name(&self, file: &File, offset: u64) -> Option<String> {
        let bytes = bytes(file, self.names.checked_add(offset)?, 256)?;
        let end = bytes.iter().position(|&b| b == 0)?;
        String::from_utf8(bytes[..end].to_vec()).ok()
    }
}

/// Returns the values of the entries of a dynamic section that have this tag.
fn values(entries: &[u8], tag: u64) -> impl Iterator<Item = u64> {
    let tagged = entries.chunks_exact(16).filter(move |e| word(e, 0) == Some(tag));
    tagged.filter_map(|e| word(e, 8))
}

/// Returns the libraries that an ELF file asks for, in order; `None` if it is not dynamic.
pub fn needed(file: &File) -> Option<Vec<String>> {
    let dynamic = Dynamic::read(file)?;
    let offsets = values(&dynamic.entries, DT_NEEDED);
    Some(offsets.filter_map(|offset| dynamic.name(file, offset)).collect())
}

/// Returns whether the file is softring's library for this machine: it has the name of a function
/// of softring.h.
pub fn is_softring(file: &File) -> bool {
    const NAME: &[u8] = b"\0softring_version\0";
    const MOST: u64 = 1 << 20;
    let ours = |elf: Elf| elf.machine == elf::OURS && elf.bits == 64;
    let names = || {
        let dynamic = Dynamic::read(file)?;
        let size = values(&dynamic.entries, DT_STRSZ).next()?.min(MOST);
        bytes(file, dynamic.names, usize::try_from(size).ok()?)
    };
    elf::read(file).is_ok_and(|elf| elf.is_some_and(ours))
        && names().is_some_and(|names| names.windows(NAME.len()).any(|w| w == NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_executable_needs_libc_and_no_sanitizer() {
        let own = File::open("/proc/self/exe").unwrap();
        let libc = |name: &String| name == "libc.so.6";
        assert_eq!(needed(&own).unwrap().iter().any(libc), !cfg!(target_env = "musl"));
        assert_eq!(sanitizer(Path::new("/proc/self/exe")), None);
        assert_eq!(sanitizer(Path::new("/etc/passwd")), None);
        assert!(!is_softring(&own) && !is_softring(&File::open("/etc/passwd").unwrap()));
    }
}
