//! The start in a program without a dynamic loader. `softring run` has mapped and relocated this
//! library, and has the program begin here (`crates/loader`).
//!
//! The program's thread has no thread pointer yet. It gets one of ours, so that its first calls can
//! tell their thread. A C library, or the runtime of a language, soon sets its own.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::arch::{asm, naked_asm};
use core::ffi::{CStr, c_char, c_void};
use core::mem::offset_of;
use core::ptr::{null_mut, with_exposed_provenance};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use libc::{Elf64_Ehdr, Elf64_Phdr, dl_phdr_info};
use softring_host::{initial, user};

use crate::built_in;
use crate::dynamic::Visit;
use crate::raw::{self, raw};

/// Facts from the loader; its own description of them is `softring_loader::Start`.
#[repr(C)]
struct Start {
    entry: usize,
    stack: *mut usize,
    base: usize,
    len: usize,
    own_stack: usize,
    own_stack_len: usize,
    name: *const c_char,
    helper: usize,
}

/// The program's first instruction.
static ENTRY: AtomicUsize = AtomicUsize::new(0);
/// Start of the memory that this library is mapped to.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// Path of this library.
static NAME: AtomicPtr<c_char> = AtomicPtr::new(c"".as_ptr().cast_mut());

/// Thread pointer of the first thread; begins with its own address, as the ABI has it.
static THREAD: Pointer = Pointer([const { AtomicUsize::new(0) }; 8]);

#[repr(C, align(64))]
struct Pointer([AtomicUsize; 8]);

/// Calls `visit` with `data` for the program, then for this library, unless it is built in, until
/// it answers anything but 0: what dl_iterate_phdr(3) does in a program with a loader. In such a
/// program there are none.
///
/// # Safety
/// As `visit` demands.
pub unsafe fn objects(visit: Visit, data: *mut c_void) {
    let base = BASE.load(Relaxed);
    if base == 0 && built_in::text().is_none() {
        return;
    }
    let (program, own) = (Headers::of_program(), (base != 0).then(|| own(base)));
    let program = program.as_ref().map(Headers::object);
    for mut info in [program, own].into_iter().flatten() {
        // SAFETY: the caller's.
        if unsafe { visit(&raw mut info, size_of::<dl_phdr_info>(), data) } != 0 {
            return;
        }
    }
}

/// Headers of the program that describe what is there. Its file may be damaged, and run as long as
/// nobody reads the wrong part.
struct Headers {
    base: usize,
    kept: Vec<Elf64_Phdr>,
}

impl Headers {
    /// Reads the headers. The program's first segment has them, or one names their address.
    fn of_program() -> Option<Headers> {
        let at = initial::auxiliary(libc::AT_PHDR as usize)?;
        let count = initial::auxiliary(libc::AT_PHNUM as usize)?;
        let read = |n: usize| read_header(at.checked_add(n * size_of::<Elf64_Phdr>())?);
        let all: Option<Vec<Elf64_Phdr>> = (0..count).map(read).collect();
        let all = all?;
        let named = all.iter().find(|h| h.p_type == libc::PT_PHDR).map(|h| h.p_vaddr);
        let first = || all.iter().find(|h| h.p_type == libc::PT_LOAD && h.p_offset == 0);
        let behind = size_of::<Elf64_Ehdr>() as u64;
        let linked = named.or_else(|| first().map(|h| h.p_vaddr.wrapping_add(behind)))?;
        let base = at.wrapping_sub(linked as usize);
        let loads = all.iter().filter(|h| h.p_type == libc::PT_LOAD && is_there(base, h));
        let mut kept: Vec<Elf64_Phdr> = loads.copied().collect();
        let parts =
            all.iter().filter(|h| [libc::PT_GNU_EH_FRAME, libc::PT_NOTE].contains(&h.p_type));
        let parts: Vec<_> = parts.filter(|h| kept.iter().any(|l| holds(l, h))).copied().collect();
        kept.extend(parts);
        Some(Headers { base, kept })
    }

    fn object(&self) -> dl_phdr_info {
        object(self.base, self.kept.as_ptr(), self.kept.len())
    }
}

fn read_header(at: usize) -> Option<Elf64_Phdr> {
    if built_in::text().is_some() {
        // SAFETY: a header of the program that this is a part of.
        return Some(unsafe { with_exposed_provenance::<Elf64_Phdr>(at).read() });
    }
    const WORD: usize = size_of::<u64>();
    const WORDS: usize = size_of::<Elf64_Phdr>() / WORD;
    let mut words = [0u64; WORDS];
    for (n, word) in words.iter_mut().enumerate() {
        *word = user::read::<u64>((at + n * WORD) as u64).ok()?;
    }
    // SAFETY: a header of numbers, of the same size.
    Some(unsafe { core::mem::transmute::<[u64; WORDS], Elf64_Phdr>(words) })
}

/// Returns whether the part of a segment that comes from the file can be read. What can be written
/// is not scanned.
fn is_there(base: usize, h: &Elf64_Phdr) -> bool {
    const PAGE: usize = 4096;
    const HIGHEST: usize = 1 << 47;
    let at = base.wrapping_add(h.p_vaddr as usize);
    let end = |len: u64| at.checked_add(len as usize).filter(|end| *end <= HIGHEST);
    let (Some(end), Some(_)) = (end(h.p_filesz), end(h.p_memsz)) else { return false };
    if h.p_flags & libc::PF_R == 0 || h.p_filesz > h.p_memsz {
        return false;
    }
    let mut pages = (at & !(PAGE - 1)..end).step_by(PAGE);
    let scanned = h.p_flags & libc::PF_W == 0 || h.p_flags & libc::PF_X != 0;
    // A program that this is built into has read its own file.
    !scanned
        || built_in::text().is_some()
        || pages.all(|page| user::read::<u8>(page.max(at) as u64).is_ok())
}

/// Returns whether a segment holds another part of the program.
fn holds(load: &Elf64_Phdr, part: &Elf64_Phdr) -> bool {
    let end = |h: &Elf64_Phdr| h.p_vaddr.checked_add(h.p_filesz);
    load.p_flags & libc::PF_W == 0
        && part.p_filesz == part.p_memsz
        && part.p_vaddr >= load.p_vaddr
        && end(part) <= end(load)
        && end(part).is_some()
}

/// Describes this library.
fn own(base: usize) -> dl_phdr_info {
    // SAFETY: the first segment begins with the file's header.
    let header = unsafe { &*with_exposed_provenance::<Elf64_Ehdr>(base) };
    let headers = with_exposed_provenance(base + header.e_phoff as usize);
    dl_phdr_info { dlpi_name: NAME.load(Relaxed), ..object(base, headers, header.e_phnum.into()) }
}

fn object(base: usize, headers: *const Elf64_Phdr, count: usize) -> dl_phdr_info {
    dl_phdr_info {
        dlpi_addr: base as u64,
        dlpi_name: c"".as_ptr(),
        dlpi_phdr: headers,
        dlpi_phnum: count as u16,
        dlpi_adds: 0,
        dlpi_subs: 0,
        dlpi_tls_modid: 0,
        dlpi_tls_data: null_mut(),
    }
}

/// Starts this library, then the program, with the stack and the registers that execve(2) has made.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn softring_start_static() {
    naked_asm!(
        "mov rbx, rdi",
        "call {begin}",
        "mov rdi, [rbx + {own_stack}]",
        "mov rsi, [rbx + {own_stack_len}]",
        "mov rsp, [rbx + {stack}]",
        "mov eax, {munmap}",
        "syscall",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "pxor xmm0, xmm0",
        "pxor xmm1, xmm1",
        "pxor xmm2, xmm2",
        "pxor xmm3, xmm3",
        "pxor xmm4, xmm4",
        "pxor xmm5, xmm5",
        "pxor xmm6, xmm6",
        "pxor xmm7, xmm7",
        "pxor xmm8, xmm8",
        "pxor xmm9, xmm9",
        "pxor xmm10, xmm10",
        "pxor xmm11, xmm11",
        "pxor xmm12, xmm12",
        "pxor xmm13, xmm13",
        "pxor xmm14, xmm14",
        "pxor xmm15, xmm15",
        "jmp [rip + {entry}]",
        begin = sym begin,
        stack = const offset_of!(Start, stack),
        own_stack = const offset_of!(Start, own_stack),
        own_stack_len = const offset_of!(Start, own_stack_len),
        munmap = const libc::SYS_munmap,
        entry = sym ENTRY,
    )
}

/// Does what the constructor does in a program with a loader.
unsafe extern "C" fn begin(start: &Start) {
    ENTRY.store(start.entry, Relaxed);
    // SAFETY: the loader's string, which is unmapped after the start.
    keep_name(unsafe { CStr::from_ptr(start.name) });
    // SAFETY: the loader's process, which is a child of this one; no status is asked for. The stack
    // pointer is the program's first.
    unsafe {
        raw!(libc::SYS_wait4, start.helper, 0, libc::__WALL, 0);
        initial::begins_at(start.stack);
    }
    if !has_thread_register() {
        return crate::notice::say(
            "this processor or kernel has no instruction to read a thread pointer (FSGSBASE): \
             the program gets the kernel's rings",
        );
    }
    BASE.store(start.base, Relaxed);
    // SAFETY: as has just been asked.
    unsafe { initial::by_register() };
    set_thread_pointer();
    crate::start::run();
}

fn keep_name(name: &CStr) {
    let name = name.to_bytes_with_nul();
    let to = raw::map(name.len(), libc::MAP_PRIVATE);
    if !to.is_null() {
        // SAFETY: a new mapping, with room for the string.
        unsafe { to.copy_from_nonoverlapping(name.as_ptr(), name.len()) };
        NAME.store(to.cast(), Relaxed);
    }
}

/// Returns whether a program may read and set its thread pointer without a system call
/// (`HWCAP2_FSGSBASE`).
pub fn has_thread_register() -> bool {
    const FSGSBASE: usize = 1 << 1;
    initial::auxiliary(libc::AT_HWCAP2 as usize).is_some_and(|bits| bits & FSGSBASE != 0)
}

fn set_thread_pointer() {
    let at = (&raw const THREAD).expose_provenance();
    THREAD.0[0].store(at, Relaxed);
    // SAFETY: the program has not set a thread pointer, and this library has no other.
    unsafe { asm!("wrfsbase {}", in(reg) at, options(nostack, preserves_flags)) };
}
