//! Resident memory of modules: the scan leaves no more of a module resident than before.
//!
//! The scan reads every page of text, and each page that it reads becomes a part of the process's
//! resident memory. `/proc/self/pagemap` says which pages were resident before. The others are
//! taken out of the page tables afterwards. They stay in the page cache, so running there costs a
//! minor fault, as it would have without us.
//!
//! Only pages that still are the file's are dropped. A page that somebody has written to (a jump of
//! ours, a relocation, a debugger's breakpoint) is anonymous memory, and dropping it would undo the
//! write. So the page map is read again just before.
//!
//! Without a page map (no `/proc`) the pages stay resident.
#![allow(unsafe_code)]

use super::modules::Module;
use crate::raw::raw;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ffi::CStr;
use core::ops::Range;

const PAGE: usize = 4096;
/// Smallest segment that is worth the system calls: a page fault maps this much of a file around it
/// (the kernel's default of `fault_around_bytes`).
const LEAST: usize = 64 * 1024;

/// A choice of pages: those that have all bits of `all`, and one of `any`.
#[derive(Clone, Copy)]
struct Want {
    all: u64,
    any: u64,
}

/// Bits of a page map's entry (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

const RESIDENT: Want = Want { all: 0, any: PRESENT | SWAPPED };
const CLEAN: Want = Want { all: PRESENT | OF_FILE, any: PRESENT };

/// The process's page map, opened at the first read.
#[derive(Default)]
pub struct PageMap {
    fd: OnceCell<isize>,
}

/// Pages of a module's text and frames that were resident before.
pub struct Before {
    segments: Vec<(Range<usize>, Vec<Range<usize>>)>,
}

impl PageMap {
    fn fd(&self) -> isize {
        const PATH: &CStr = c"/proc/self/pagemap";
        let (path, how) = (PATH.as_ptr().expose_provenance(), libc::O_RDONLY | libc::O_CLOEXEC);
        // SAFETY: a NUL-terminated path.
        *self.fd.get_or_init(|| unsafe { raw!(libc::SYS_openat, libc::AT_FDCWD, path, how) })
    }

    /// Returns the resident pages. Called before anything of the module is read.
    pub fn before(&self, m: &Module) -> Before {
        let mut segments = Vec::new();
        let read = |s: &Range<usize>| {
            m.text.iter().any(|t| s.contains(&t.start))
                || m.frames.is_some_and(|(at, _)| s.contains(&at))
        };
        for s in m.read_only.iter().filter(|s| s.len() >= LEAST && read(s)) {
            let pages = s.start & !(PAGE - 1)..s.end.next_multiple_of(PAGE);
            if let Some(resident) = self.pages(&pages, RESIDENT) {
                segments.push((pages, resident));
            }
        }
        Before { segments }
    }

    /// Drops the pages that have become resident since.
    pub fn restore(&self, before: &Before) {
        for (pages, resident) in &before.segments {
            for new in self.pages(pages, CLEAN).unwrap_or_default() {
                let mut from = new.start;
                for old in resident.iter().filter(|o| o.start < new.end && o.end > new.start) {
                    drop_pages(from..old.start);
                    from = old.end;
                }
                drop_pages(from..new.end);
            }
        }
    }

    /// Returns the runs of pages that match `want`, in order. (`ioctl(PAGEMAP_SCAN)` of kernel 6.7
    /// costs hardly less, and a seccomp filter that lets the loader work may kill for it.)
    fn pages(&self, pages: &Range<usize>, want: Want) -> Option<Vec<Range<usize>>> {
        const MANY: usize = 512;
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut entries = [0u64; MANY];
        for first in pages.clone().step_by(MANY * PAGE) {
            let n = MANY.min((pages.end - first) / PAGE);
            let (to, len) = ((&raw mut entries).expose_provenance(), n * size_of::<u64>());
            let from = first / PAGE * size_of::<u64>();
            // SAFETY: at most the whole array is written; a descriptor that is none answers EBADF.
            let got = unsafe { raw!(libc::SYS_pread64, self.fd(), to, len, from) };
            if got != len.cast_signed() {
                return None;
            }
            for (at, entry) in (first..).step_by(PAGE).zip(&entries[..n]) {
                if entry & want.all != want.all || entry & want.any == 0 {
                    continue;
                }
                match found.last_mut() {
                    Some(run) if run.end == at => run.end += PAGE,
                    _ => found.push(at..at + PAGE),
                }
            }
        }
        Some(found)
    }
}

impl Drop for PageMap {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.get().filter(|fd| **fd >= 0) {
            // SAFETY: our own descriptor, used no more.
            unsafe { raw!(libc::SYS_close, *fd) };
        }
    }
}

/// Drops pages of a file that nobody has written to.
fn drop_pages(run: Range<usize>) {
    if !run.is_empty() && softring_host::refused::works(libc::SYS_madvise) {
        // SAFETY: the pages hold what the file holds; a later reader finds the same.
        unsafe { raw!(libc::SYS_madvise, run.start, run.len(), libc::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_pages_differ_from_the_file() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (len, fd) = (8 * PAGE, std::os::fd::AsRawFd::as_raw_fd(&file));
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { raw!(libc::SYS_mmap, 0, len, prot, libc::MAP_PRIVATE, fd, 0) };
        let pages = at.cast_unsigned()..at.cast_unsigned() + len;
        let map = PageMap::default();
        assert_eq!(map.pages(&pages, RESIDENT), Some(Vec::new()));
        let byte = core::ptr::with_exposed_provenance_mut::<u8>(pages.start + 2 * PAGE);
        // SAFETY: within the mapping; a page that is written to, and another that is read.
        unsafe {
            byte.write_volatile(1);
            byte.add(2 * PAGE).read_volatile();
        }
        let written = pages.start + 2 * PAGE..pages.start + 3 * PAGE;
        let holds =
            |runs: &[Range<usize>], p: &Range<usize>| runs.iter().any(|r| r.contains(&p.start));
        assert!(holds(&map.pages(&pages, RESIDENT).unwrap(), &written));
        assert!(!holds(&map.pages(&pages, CLEAN).unwrap(), &written));
        let segments = vec![(pages.clone(), Vec::new())];
        map.restore(&Before { segments });
        assert_eq!(map.pages(&pages, RESIDENT), Some(vec![written]));
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read_volatile() }, 1);
    }
}
