//! Stubs, which patched sites jump to. They lie within 2 GB of their sites, in pages of their own.
//!
//! ```text
//!     before …                     the replaced instructions, up to `syscall`
//!     movzbl %al,%ecx              only if the number is not known: is it likely one of ours?
//!     mov    numbers(%rip),%r11    (flags stay as they are; `syscall` itself overwrites rcx, r11)
//!     movzbl (%r11,%rcx),%ecx
//!     jrcxz  1f
//!     jmp    2f
//! 1:  jmp    syscall               the program's own, or if that was replaced, too:
//!     syscall; jmp after
//! 2:  lea behind(%rip),%rcx        the address behind the program's `syscall`
//!     lea -128(%rsp),%rsp          over the red zone
//!     call *entry(%rip)
//!     lea 128(%rsp),%rsp
//! after:
//!     after …
//!     jmp resume
//! ```
#![allow(unsafe_code)]

use super::entry;
use super::ins::{Ins, RELATIVE_TO_EIP};
use super::modules::Module;
use super::site::Site;
use super::text;
use crate::intercept::thread_exit;
use crate::raw::raw;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use softring_host::{initial, refused};

const PAGE: usize = 4096;
/// Bytes for a stub, which holds up to 48 replaced instructions. A site that needs more is rare,
/// and not patched.
const ROOM: usize = 320;
/// Slots at the start of a pool: addresses of the entry, of [`NUMBERS`] and of the entry of
/// exit(2).
const SLOTS: usize = 3;
const SLOT: usize = size_of::<usize>();
/// Reach of a 32-bit displacement, less the extent of modules and stubs.
pub const NEAR: usize = 0x7000_0000;

/// Address below which the next pages are tried first: that of the last ones, or of the lowest
/// module near libc. In a program of many libraries dozens of other places are taken. 0: none.
static BELOW: AtomicUsize = AtomicUsize::new(0);

/// Has the next pages tried below this address.
pub fn begin_below(at: usize) {
    BELOW.store(at, Ordering::Relaxed);
}

/// Pages near a module that are being written.
pub struct Pool {
    start: usize,
    len: usize,
    used: usize,
}

impl Pool {
    /// Maps room for `sites` stubs near the text between `low` and `high`.
    pub fn near(low: usize, high: usize, sites: usize) -> Option<Self> {
        let len = (SLOTS * SLOT + sites * ROOM).next_multiple_of(PAGE);
        let below = BELOW.load(Ordering::Relaxed) & !(PAGE - 1);
        let first = below.checked_sub(len).filter(|at| below <= low && high - at < NEAR);
        let start = first.and_then(|at| map(at, len)).or_else(|| map_near(low, high, len))?;
        begin_below(start);
        let mut pool = Self { start, len, used: 0 };
        let entry = entry::enter as *const () as usize;
        pool.push(&entry.to_ne_bytes())?;
        pool.push(&(&raw const NUMBERS).expose_provenance().to_ne_bytes())?;
        pool.push(&(thread_exit::exit as *const () as usize).to_ne_bytes())?;
        Some(pool)
    }

    fn here(&self) -> usize {
        self.start + self.used
    }

    fn push(&mut self, code: &[u8]) -> Option<()> {
        if self.used + code.len() > self.len {
            return None;
        }
        // SAFETY: within our own pages, writable until `seal`, which no thread runs yet.
        unsafe {
            let to = core::ptr::with_exposed_provenance_mut::<u8>(self.here());
            core::ptr::copy_nonoverlapping(code.as_ptr(), to, code.len());
        }
        self.used += code.len();
        Some(())
    }

    /// Writes the stub for `site`; returns its address.
    pub fn stub(&mut self, site: &Site) -> Option<usize> {
        let mut code = Vec::with_capacity(ROOM);
        let at = self.here().next_multiple_of(16);
        relocate(&mut code, at, &site.before)?;
        if site.exit {
            jump_by(&mut code, at, self.start + 2 * SLOT)?;
            return self.put(at, &code);
        }
        if site.dynamic {
            dispatch(&mut code, at, self.start, site.syscall)?;
        }
        call_entry(&mut code, at, self.start, site.behind_call())?;
        relocate(&mut code, at, &site.after)?;
        jump(&mut code, at, site.resume)?;
        self.put(at, &code)
    }

    /// Writes the stub for a `mov` before the `syscall` at `syscall`, which stays in its place.
    pub fn stub_of_move(&mut self, mov: [u8; text::JUMP], syscall: usize) -> Option<usize> {
        let mut code = mov.to_vec();
        let at = self.here().next_multiple_of(16);
        let behind = syscall + text::SYSCALL;
        dispatch(&mut code, at, self.start, Some(syscall))?;
        call_entry(&mut code, at, self.start, behind)?;
        jump(&mut code, at, behind)?;
        self.put(at, &code)
    }

    fn put(&mut self, at: usize, code: &[u8]) -> Option<usize> {
        if code.len() > ROOM - 16 {
            return None;
        }
        self.used = at - self.start;
        self.push(code)?;
        Some(at)
    }

    /// Makes the stubs executable and no longer writable.
    pub fn seal(self) -> bool {
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: our own pages.
        let sealed = unsafe { raw!(libc::SYS_mprotect, self.start, self.len, prot) == 0 };
        sealed || self.seal_by_file()
    }

    /// Makes the stubs executable where memory that was written must not become so
    /// (MemoryDenyWriteExecute): maps the same bytes from a file in memory, which was never mapped
    /// writable.
    fn seal_by_file(&self) -> bool {
        const MFD_EXEC: u32 = 0x10;
        refused::learn();
        if !refused::works(libc::SYS_memfd_create) {
            return false;
        }
        let name = c"softring-stubs".as_ptr().expose_provenance();
        // SAFETY: a name that lives on.
        let make = |flags| unsafe { raw!(libc::SYS_memfd_create, name, libc::MFD_CLOEXEC | flags) };
        // Kernels before 6.3 do not know the flag and do not need it.
        let known = make(MFD_EXEC);
        let fd = if known < 0 { make(0) } else { known };
        if fd < 0 {
            return false;
        }
        let (prot, kind) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_FIXED);
        // SAFETY: our own pages, in which nobody runs yet; the mapping replaces just these.
        unsafe {
            let written = raw!(libc::SYS_write, fd, self.start, self.len);
            let mapped = written == self.len.cast_signed()
                && raw!(libc::SYS_mmap, self.start, self.len, prot, kind, fd, 0)
                    == self.start.cast_signed();
            raw!(libc::SYS_close, fd);
            mapped
        }
    }
}

/// Writes the stub that the loader's hook jumps to: a function that keeps every register.
pub fn hook(near: usize) -> Option<usize> {
    let mut pool = Pool::near(near, near, 1)?;
    let at = pool.here();
    // push rax; push rcx; push r11; mov $HOOK, %eax
    let mut code = vec![0x50, 0x51, 0x41, 0x53, 0xb8];
    code.extend((entry::HOOK as u32).to_le_bytes());
    // Unwinding ends here.
    call_entry(&mut code, at, pool.start, at)?;
    // pop r11; pop rcx; pop rax; ret
    code.extend([0x41, 0x5b, 0x59, 0x58, 0xc3]);
    pool.push(&code)?;
    pool.seal().then_some(at)
}

/// Maps room for `sites` stubs within reach of the whole module.
pub fn pool_for(m: &Module, sites: usize) -> Option<Pool> {
    Pool::near(m.low, m.high, sites)
}

/// Copies instructions from their text. One with an operand relative to itself gets another
/// displacement; none of them is a branch. `None` if the operand is out of reach. (An encoder would
/// write them anew, but its tables take as long to build as the decoder's.)
fn relocate(code: &mut Vec<u8>, at: usize, instructions: &[Ins]) -> Option<()> {
    for i in instructions {
        let (from, start) = (core::ptr::with_exposed_provenance(i.ip as usize), code.len());
        // SAFETY: loaded text, which is written only when all stubs are there.
        code.extend_from_slice(unsafe { core::slice::from_raw_parts(from, i.len.into()) });
        if i.relative == RELATIVE_TO_EIP {
            return None;
        }
        if i.relative != 0 {
            let field = start + usize::from(i.relative);
            let old = i32::from_le_bytes(code[field..field + 4].try_into().ok()?);
            let to = i.next_ip().wrapping_add_signed(old.into());
            let new = displacement(at + code.len(), to as usize)?;
            code[field..field + new.len()].copy_from_slice(&new);
        }
    }
    Some(())
}

/// Numbers by their low eight bits; 1 if one with these bits may concern us. Other numbers with the
/// same bits also pass through the entry, which is only slower; none of them forks.
static NUMBERS: [AtomicU8; 256] = {
    let mut numbers = [const { AtomicU8::new(0) }; 256];
    let mut i = 0;
    while i < ALWAYS.len() {
        numbers[ALWAYS[i] as u8 as usize] = AtomicU8::new(1);
        i += 1;
    }
    numbers
};
/// Numbers of io_uring and kernel aio.
const ALWAYS: [i64; 9] = [425, 426, 427, 206, 207, 208, 209, 210, 333];
/// Numbers that matter once there are rings: calls that open, close or map a descriptor, and waits.
const WATCHED: [i64; 11] = [
    libc::SYS_close,
    libc::SYS_mmap,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_fcntl,
    libc::SYS_dup3,
    libc::SYS_close_range,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];
/// Numbers that matter then, too, in a static program: calls that another program makes by names of
/// the C library.
pub const UNNAMED: [i64; 4] =
    [libc::SYS_poll, libc::SYS_ppoll, libc::SYS_select, libc::SYS_pselect6];

/// Makes stubs pass exec calls to the entry from now on.
pub fn watch_execs() {
    // Relaxed: before there are threads.
    for nr in [libc::SYS_execve, libc::SYS_execveat] {
        NUMBERS[nr as u8 as usize].store(1, Ordering::Relaxed);
    }
}

/// Makes stubs pass calls on descriptors to the entry from now on.
pub fn watch() {
    let unnamed = if initial::is_known() { &UNNAMED[..] } else { &[] };
    // Relaxed: before the ring is known to the program.
    WATCHED
        .iter()
        .chain(unnamed)
        .chain(if initial::is_known() { &[libc::SYS_exit][..] } else { &[] })
        .for_each(|&nr| NUMBERS[nr as u8 as usize].store(1, Ordering::Relaxed));
}

/// Writes a jump to the entry if eax may be one of ours, else to `syscall` or a copy of it.
fn dispatch(code: &mut Vec<u8>, at: usize, start: usize, syscall: Option<usize>) -> Option<()> {
    code.extend([0x0f, 0xb6, 0xc8]);
    let next = at + code.len() + 7;
    code.extend([0x4c, 0x8b, 0x1d]);
    code.extend(displacement(next, start + SLOT)?);
    code.extend([0x41, 0x0f, 0xb6, 0x0c, 0x0b]);
    code.extend([0xe3, 2]);
    match syscall {
        Some(there) => {
            code.extend([0xeb, 5]);
            jump(code, at, there)?;
        }
        None => code.extend([0xeb, 4, 0x0f, 0x05, 0xeb, CALL as u8]),
    }
    Some(())
}

/// Bytes that `call_entry` writes.
const CALL: usize = 7 + 5 + 6 + 8;

/// Writes the call of the entry. `behind`: the address that [`entry::enter`] takes for its
/// caller's.
fn call_entry(code: &mut Vec<u8>, at: usize, slot: usize, behind: usize) -> Option<()> {
    let next = at + code.len() + 7;
    code.extend([0x48, 0x8d, 0x0d]);
    code.extend(displacement(next, behind)?);
    code.extend([0x48, 0x8d, 0x64, 0x24, 0x80]);
    let next = at + code.len() + 6;
    code.extend([0xff, 0x15]);
    code.extend(displacement(next, slot)?);
    code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
    Some(())
}

/// Writes a jump to the address in a slot.
fn jump_by(code: &mut Vec<u8>, at: usize, slot: usize) -> Option<()> {
    let next = at + code.len() + 6;
    code.extend([0xff, 0x25]);
    code.extend(displacement(next, slot)?);
    Some(())
}

fn jump(code: &mut Vec<u8>, at: usize, to: usize) -> Option<()> {
    let next = at + code.len() + 5;
    code.push(0xe9);
    code.extend(displacement(next, to)?);
    Some(())
}

/// Returns the displacement from the end of an instruction to `to`.
pub fn displacement(next: usize, to: usize) -> Option<[u8; 4]> {
    let d = (to as i64).wrapping_sub(next as i64);
    i32::try_from(d).ok().map(i32::to_le_bytes)
}

/// Maps pages at the first free place below `low`, in growing steps.
fn map_near(low: usize, high: usize, len: usize) -> Option<usize> {
    let mut gap = 16 * PAGE;
    let mut at = (low & !(PAGE - 1)).checked_sub(len + gap)?;
    while high - at < NEAR {
        if let Some(start) = map(at, len) {
            return Some(start);
        }
        gap = (gap + gap / 8).next_multiple_of(PAGE);
        at = at.checked_sub(gap).filter(|a| *a >= 16 * PAGE)?;
    }
    None
}

fn map(at: usize, len: usize) -> Option<usize> {
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where nothing is mapped; an old kernel takes the address as a hint
    // only.
    let got = unsafe { raw!(libc::SYS_mmap, at, len, prot, how, usize::MAX, 0) };
    if got == at as isize {
        return Some(at);
    }
    if got > 0 {
        // SAFETY: the mapping just made, elsewhere.
        unsafe { raw!(libc::SYS_munmap, got, len) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::ins::Walk;
    use super::*;

    /// Returns the copies, at another address, of the instructions in `text`.
    fn copied(text: &'static [u8], by: usize) -> Option<Vec<u8>> {
        let start = text.as_ptr().expose_provenance();
        let mut code = Vec::new();
        relocate(&mut code, start + by, &Walk::new(text, start).collect::<Vec<_>>())?;
        Some(code)
    }

    #[test]
    fn copies_name_the_same_addresses() {
        // push rbx; mov eax, [rip + 0x100]; cmp dword ptr [rip + 0x200], 7; mov esi, edx
        static TEXT: &[u8] = b"\x53\x8b\x05\0\x01\0\0\x83\x3d\0\x02\0\0\x07\x89\xd6";
        let mut other = TEXT.to_vec();
        other[3..7].copy_from_slice(&(0x100 - 0x1000i32).to_le_bytes());
        other[9..13].copy_from_slice(&(0x200 - 0x1000i32).to_le_bytes());
        assert_eq!(copied(TEXT, 0x1000), Some(other));
        assert_eq!(copied(TEXT, 1 << 32), None);
        // mov eax, [eip + 0x100]
        assert_eq!(copied(b"\x67\x8b\x05\0\x01\0\0", 0), None);
    }
}
