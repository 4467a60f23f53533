//! The modules in this process, and the loader's notice of new ones.
//!
//! A debugger learns about libraries through `_r_debug.r_brk`: the address of an empty function
//! that the loader calls after each change of its list, when a new library is mapped but not yet
//! relocated, let alone run. We put a jump there. Libraries in another namespace (`dlmopen`) are
//! not on the list that `dl_iterate_phdr` walks.
#![allow(unsafe_code)]

use super::{stub, text, unsorted};
use crate::{built_in, dynamic};
use alloc::vec::Vec;
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use libc::{PF_R, PF_W, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE};
use softring_host::raw::weak;
use softring_host::{c_library, initial};

/// Executable bytes of a module.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub start: usize,
    pub len: usize,
    /// Protection, as mmap(2) takes it.
    pub prot: c_int,
}

impl Text {
    /// # Safety
    /// The module is loaded, and nobody writes to the range meanwhile.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the caller's; the loader mapped the segment readable.
        unsafe {
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance(self.start), self.len)
        }
    }
    pub fn holds(&self, at: usize) -> bool {
        (self.start..self.start + self.len).contains(&at)
    }
}

/// Returns the bytes of a module on the list.
pub fn text_bytes(t: &Text) -> &[u8] {
    // SAFETY: the module is loaded while its list is read, and nothing is written before all is
    // decided.
    unsafe { t.bytes() }
}

/// A loaded object.
#[derive(Debug, Default)]
pub struct Module {
    pub base: usize,
    pub low: usize,
    pub high: usize,
    pub text: Vec<Text>,
    /// Read-only segments, of all kinds.
    pub read_only: Vec<Range<usize>>,
    /// `.eh_frame_hdr`: address and size.
    pub frames: Option<(usize, usize)>,
    /// Functions and their FDEs, in order, of a static program without `.eh_frame_hdr`.
    pub unsorted: Vec<(usize, usize)>,
    dynamic: usize,
}

impl Module {
    pub fn text_start(&self) -> usize {
        self.text.first().map_or(0, |t| t.start)
    }
    /// Returns the bytes of the text that holds `at`, and the offset of `at` in them.
    pub fn text_at(&self, at: usize) -> Option<(&[u8], usize)> {
        let text = self.text.iter().find(|t| t.holds(at))?;
        Some((text_bytes(text), at - text.start))
    }
    fn holds(&self, at: usize) -> bool {
        (self.low..self.high).contains(&at)
    }
    /// Takes the text of this library out of that of the program which it is built into.
    fn leave_out(&mut self, own: &Range<usize>) {
        let parts = self.text.iter().flat_map(|t| {
            let end = t.start + t.len;
            let (before, behind) = (own.start.clamp(t.start, end), own.end.clamp(t.start, end));
            [(t.start, before), (behind, end)].map(|(start, end)| Text {
                start,
                len: end - start,
                prot: t.prot,
            })
        });
        self.text = parts.filter(|t| t.len > 0).collect();
    }
    /// Returns the object's name for the loader (`DT_SONAME`).
    fn called(&self) -> Option<&CStr> {
        const STRTAB: usize = 5;
        const SONAME: usize = 14;
        /// Limit of the pairs that are read.
        const MOST: usize = 128;
        if self.dynamic == 0 {
            return None;
        }
        let (mut strings, mut offset) = (0, None);
        for at in (self.dynamic..).step_by(2 * size_of::<usize>()).take(MOST) {
            // SAFETY: the loader's array of pairs, read up to the one of zeroes that ends it.
            let [tag, value] = unsafe { *core::ptr::with_exposed_provenance::<[usize; 2]>(at) };
            match tag {
                0 => break,
                STRTAB => strings = value,
                SONAME => offset = Some(value),
                _ => {}
            }
        }
        // glibc's loader replaces the offset by the address, if it may write there.
        let strings = if strings < self.base { self.base + strings } else { strings };
        // gVisor's vDSO has neither: it was linked for another address.
        let text = offset.map(|offset| strings.wrapping_add(offset)).filter(|at| self.holds(*at));
        // SAFETY: a string of the object's table of strings, within the object.
        text.map(|at| unsafe { CStr::from_ptr(core::ptr::with_exposed_provenance(at)) })
    }
}

/// Returns every loaded object with text that may hold call sites: not the loader, libc (which once
/// was two libraries), the vDSO, this library, another copy of it, or libraries loaded with it that
/// make no system calls.
pub fn loaded() -> Vec<Module> {
    let vdso = c_library::auxiliary(libc::AT_SYSINFO_EHDR as usize).unwrap_or(0);
    // SAFETY: asks for addresses.
    let threads = unsafe { weak!("pthread_create") };
    let libc_text = libc_text();
    let ours = loaded as *const c_void as usize;
    let loader = debug().map_or(0, |d| d.brk);
    let built_in = built_in::text().is_some();
    let mut all = everything();
    all.retain(|m| {
        !m.text.is_empty()
            && !m.called().is_some_and(|name| QUIET.contains(&name))
            && ((built_in && m.holds(ours))
                || ![vdso, libc_text, threads, ours, loader].iter().any(|at| m.holds(*at)))
    });
    if initial::is_known() {
        for m in all.iter_mut().filter(|m| m.frames.is_none()) {
            m.unsorted = unsorted::functions(m);
        }
    }
    all
}

/// Names of this library, and of libraries that make no system calls.
const QUIET: [&CStr; 3] = [c"libsoftring.so", c"libm.so.6", c"libgcc_s.so.1"];

/// Returns the segment that holds this function; in a program that this is built into, the part of
/// its text that is ours.
pub fn own_text() -> Option<Text> {
    if let Some(own) = built_in::text() {
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        return Some(Text { start: own.start, len: own.len(), prot });
    }
    let here = own_text as *const c_void as usize;
    module_at(here)?.text.into_iter().find(|t| t.holds(here))
}

/// Returns the C library.
pub fn libc() -> Option<Module> {
    module_at(libc_text())
}

/// Returns the module that holds an address.
fn module_at(at: usize) -> Option<Module> {
    let mut search = (at, None);
    // SAFETY: `find` takes what dl_iterate_phdr gives, and the pair as its own.
    unsafe { dynamic::iterate(find, (&raw mut search).cast()) };
    search.1
}

unsafe extern "C" fn find(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: dl_iterate_phdr's contract for `info`; the pair that `module_at` passed.
    let (info, (at, found)) = unsafe { (&*info, &mut *search.cast::<(usize, Option<Module>)>()) };
    let holds = |h: &libc::Elf64_Phdr| {
        let start = (info.dlpi_addr as usize).wrapping_add(h.p_vaddr as usize);
        h.p_type == PT_LOAD && (start..start + h.p_memsz as usize).contains(at)
    };
    // SAFETY: as above.
    let headers = unsafe { headers(info) };
    if headers.iter().any(holds) {
        // SAFETY: as above.
        *found = Some(unsafe { module(info) });
    }
    c_int::from(found.is_some())
}

/// Returns the lowest address of the modules that lie near another, which the loader has mapped one
/// below the other.
pub fn lowest_near(m: &Module) -> usize {
    let mut search = (m.high, m.low);
    // SAFETY: `lower` takes what dl_iterate_phdr gives, and the pair as its own.
    unsafe { dynamic::iterate(lower, (&raw mut search).cast()) };
    search.1
}

unsafe extern "C" fn lower(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: dl_iterate_phdr's contract for `info`; the pair that `lowest_near` passed.
    let (base, (high, lowest)) =
        unsafe { ((*info).dlpi_addr as usize, &mut *search.cast::<(usize, usize)>()) };
    if base < *lowest && *high - base < stub::NEAR {
        *lowest = base;
    }
    0
}

/// Returns an address in the C library's text; 0 without a C library.
fn libc_text() -> usize {
    // SAFETY: asks for an address.
    unsafe { weak!("getauxval") }
}

/// Returns the address of `name` in the C library, even if another library's comes before it.
pub fn libcs(name: &CStr) -> Option<usize> {
    let libc = dynamic::object_of(core::ptr::with_exposed_provenance(libc_text()))?;
    libc.symbol(name)
}

fn everything() -> Vec<Module> {
    let mut all: Vec<Module> = Vec::new();
    // SAFETY: `collect` takes what dl_iterate_phdr gives, and `all` as its own.
    unsafe { dynamic::iterate(collect, (&raw mut all).cast()) };
    all
}

unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    all: *mut c_void,
) -> c_int {
    // SAFETY: dl_iterate_phdr's contract for `info`; `all` is the vector that `everything` passed.
    unsafe { (*all.cast::<Vec<Module>>()).push(module(&*info)) };
    0
}

/// # Safety
/// `info` is dl_iterate_phdr(3)'s.
unsafe fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: an array of dlpi_phnum headers.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

/// # Safety
/// `info` is dl_iterate_phdr(3)'s.
unsafe fn module(info: &libc::dl_phdr_info) -> Module {
    // SAFETY: the caller's.
    let headers = unsafe { headers(info) };
    let base = info.dlpi_addr as usize;
    let mut m = Module { base, low: usize::MAX, ..Module::default() };
    for h in headers {
        let (at, len) = (m.base.wrapping_add(h.p_vaddr as usize), h.p_memsz as usize);
        match h.p_type {
            PT_LOAD => {
                m.low = m.low.min(at);
                m.high = m.high.max(at + len);
                if h.p_flags & (PF_R | PF_W) == PF_R {
                    m.read_only.push(at..at + h.p_filesz as usize);
                }
                if h.p_flags & (PF_R | PF_X) == PF_R | PF_X && h.p_filesz > 0 {
                    let mut prot = libc::PROT_READ | libc::PROT_EXEC;
                    if h.p_flags & PF_W != 0 {
                        prot |= libc::PROT_WRITE;
                    }
                    m.text.push(Text { start: at, len: h.p_filesz as usize, prot });
                }
            }
            PT_GNU_EH_FRAME => m.frames = Some((at, len)),
            PT_DYNAMIC => m.dynamic = at,
            _ => {}
        }
    }
    for h in headers.iter().filter(|h| h.p_type == PT_NOTE) {
        let (at, len) = (m.base.wrapping_add(h.p_vaddr as usize), h.p_filesz as usize);
        let is_there = |part: &Range<usize>| part.contains(&at) && len <= part.end - at;
        if m.read_only.iter().any(is_there)
            // SAFETY: a part of a segment that the loader has mapped.
            && let Some(text) = unsafe { built_in::in_notes(at, len) }
        {
            m.leave_out(&text);
        }
    }
    m
}

fn debug() -> Option<&'static dynamic::RDebug> {
    // SAFETY: the loader's structure, there for the life of the process; null where there is none.
    // Its `state` changes only under the loader's lock, which whoever is in `changed` holds.
    unsafe { dynamic::debug().as_ref() }
}

/// Returns whether the loader's list is complete (`RT_CONSISTENT`).
pub fn consistent() -> bool {
    // SAFETY: as in `debug`; read as the loader left it before this call.
    debug().is_some_and(|d| unsafe { (&raw const d.state).read_volatile() } == 0)
}

/// Makes the loader call `super::changed` after each change of its list.
pub fn watch() {
    let Some(brk) = debug().map(|d| d.brk).filter(|b| *b != 0) else { return };
    // SAFETY: the function that the loader calls: at least its `ret` and the padding to the next
    // are there.
    let code = unsafe {
        core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(brk), text::JUMP + 11)
    };
    if !is_empty_function(code) {
        return;
    }
    let Some(stub) = stub::hook(brk) else { return };
    text::redirect_function(brk, stub);
}

/// Returns whether `code` is `[endbr64] ret`, with only padding in the bytes behind it that a jump
/// would
/// cover. Decoded by hand: the decoder's tables take longer to build than most programs take to
/// start.
fn is_empty_function(code: &[u8]) -> bool {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const RET: u8 = 0xc3;
    let mut at = if code.starts_with(ENDBR64) { ENDBR64.len() } else { 0 };
    if code[at] != RET {
        return false;
    }
    at += 1;
    while at < text::JUMP {
        match padding(&code[at..]) {
            0 => return false,
            n => at += n,
        }
    }
    true
}

/// Returns the length of the `int3` or `nop` that `code` begins with; 0 if it begins with neither.
fn padding(code: &[u8]) -> usize {
    let prefixes = code.iter().take_while(|b| matches!(b, 0x66 | 0x2e)).count();
    let operand = match &code[prefixes..] {
        [0xcc | 0x90, ..] => return prefixes + 1,
        [0x0f, 0x1f, modrm, ..] => *modrm,
        _ => return 0,
    };
    // The operand: none, a SIB byte, 8 or 32 bits of displacement.
    prefixes
        + match operand {
            0x00 => 3,
            0x04 | 0x40 => 4,
            0x44 => 5,
            0x80 => 7,
            0x84 => 8,
            _ => return 0,
        }
}

#[cfg(test)]
mod tests {
    use super::is_empty_function;

    #[test]
    fn only_an_empty_function_is_redirected() {
        let debian =
            [0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90, 0x90, 0x90, 0x90];
        let cet = [0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0, 0, 0, 0, 0, 0];
        let busy = [0x55, 0x48, 0x89, 0xe5, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0, 0, 0, 0, 0, 0];
        let short = [0xc3, 0x55, 0x48, 0x89, 0xe5, 0xc3, 0x90, 0x90, 0x90, 0x90, 0, 0, 0, 0, 0, 0];
        assert!(is_empty_function(&debian));
        assert!(is_empty_function(&cet));
        assert!(!is_empty_function(&busy));
        assert!(!is_empty_function(&short));
    }
}
