//! Writes to text.
//!
//! A jump that lies within one aligned word is written by one store: a thread that fetches there
//! gets the old instruction or the new one. A jump that straddles two words is written while no
//! thread can be there, or in steps ([`straddle`]). A short jump to padding is written behind the
//! long one in the padding.
#![allow(unsafe_code)]

use super::modules::{Module, Text};
use super::site::Site;
use super::{straddle, stub};
use crate::raw::raw;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};
use softring_host::refused;

/// Bytes of `jmp rel32`.
pub const JUMP: usize = 5;
/// Length of `syscall`.
pub const SYSCALL: usize = 2;
const PAGE: usize = 4096;
pub const WORD: usize = 8;

/// A change of text.
#[derive(Clone, Copy)]
struct Patch {
    /// Address of the site that is replaced so.
    site: usize,
    at: usize,
    code: Code,
}

/// New code of a place in text.
#[derive(Clone, Copy)]
enum Code {
    Jump([u8; JUMP]),
    /// A jump in padding, to which nothing jumps yet.
    Pad([u8; JUMP]),
    Short([u8; SYSCALL]),
}

impl Patch {
    fn jump(at: usize, to: usize) -> Option<Patch> {
        Some(Patch { site: at, at, code: Code::Jump(jump(at, to)?) })
    }

    /// Returns the jump from the padding at `pad` to `to`, for the site at `site`.
    fn pad(site: usize, pad: usize, to: usize) -> Option<Patch> {
        Some(Patch { site, at: pad, code: Code::Pad(jump(pad, to)?) })
    }

    /// Returns the short jump from a `syscall` to the padding at `pad`.
    fn short(at: usize, pad: usize) -> Option<Patch> {
        let d = i8::try_from(pad.wrapping_sub(at + SYSCALL).cast_signed()).ok()?;
        Some(Patch { site: at, at, code: Code::Short([0xeb, d.cast_unsigned()]) })
    }

    fn code(&self) -> &[u8] {
        match &self.code {
            Code::Jump(code) | Code::Pad(code) => code,
            Code::Short(code) => code,
        }
    }

    /// Returns whether one store is enough, or nobody executes these bytes meanwhile.
    fn is_quick(&self) -> bool {
        matches!(self.code, Code::Pad(_)) || in_one_word(self.at, self.code().len())
    }
}

/// Replaces the sites of a module; returns their addresses. `fresh`: the module has not run yet.
pub fn replace(m: &Module, sites: &[Site], fresh: bool) -> Vec<usize> {
    let Some(mut pool) = stub::pool_for(m, sites.len()) else { return Vec::new() };
    let quiet = fresh || is_single_threaded();
    let (mut jumps, mut shorts) = (Vec::with_capacity(sites.len()), Vec::new());
    for s in sites {
        let safe = quiet
            || match s.pad {
                Some(_) => in_one_word(s.at, SYSCALL),
                None => !s.dynamic && (in_one_word(s.at, JUMP) || straddle::may(s.at)),
            };
        let Some(stub) = pool.stub(s).filter(|_| safe) else { continue };
        match s.pad {
            Some(pad) => {
                jumps.extend(Patch::pad(s.at, pad, stub));
                shorts.extend(Patch::short(s.at, pad));
            }
            None => jumps.extend(Patch::jump(s.at, stub)),
        }
    }
    if jumps.is_empty() || !pool.seal() {
        return Vec::new();
    }
    let mut done = write(m, &jumps, quiet);
    // Each is written only behind its pad.
    shorts.retain(|short| done.contains(&short.site));
    let written = write(m, &shorts, quiet);
    done.retain(|at| written.contains(at) || shorts.iter().all(|short| short.site != *at));
    done
}

/// Replaces one `mov` of a jump's length before a `syscall`; the stub checks the number.
pub fn replace_move(m: &Module, at: usize, mov: [u8; JUMP]) -> bool {
    let quiet = is_single_threaded();
    if !quiet && !in_one_word(at, JUMP) && !straddle::may(at) {
        return false;
    }
    let Some(mut pool) = stub::pool_for(m, 1) else { return false };
    let Some(stub) = pool.stub_of_move(mov, at + JUMP) else { return false };
    let Some(jump) = Patch::jump(at, stub) else { return false };
    pool.seal() && !write(m, &[jump], quiet).is_empty()
}

/// Writes changes into a module's text; returns the sites for which this was done.
fn write(m: &Module, patches: &[Patch], quiet: bool) -> Vec<usize> {
    let mut done = Vec::new();
    for t in &m.text {
        let here: Vec<_> = patches.iter().filter(|p| t.holds(p.at)).copied().collect();
        if here.is_empty() {
            continue;
        }
        if !writable(t, &here) {
            let forced = here.iter().filter(|p| quiet && force(p.at, p.code()));
            done.extend(forced.map(|p| p.site));
            continue;
        }
        let at_once = |p: &&Patch| quiet || p.is_quick();
        for p in here.iter().filter(at_once) {
            put(p.at, p.code());
            done.push(p.site);
        }
        let steps = here.iter().filter(|p| !at_once(p));
        let steps: Vec<_> = steps
            .filter_map(|p| if let Code::Jump(jump) = p.code { Some((p.at, jump)) } else { None })
            .collect();
        if !steps.is_empty() && straddle::write(&steps) {
            done.extend(steps.iter().map(|j| j.0));
        }
        protect(t, &here);
    }
    if !quiet {
        synchronize();
    }
    done
}

/// Makes the function at `at` jump to `to`, if one store is enough or no other thread runs.
pub fn redirect_function(at: usize, to: usize) {
    let text = Text { start: at, len: JUMP, prot: libc::PROT_READ | libc::PROT_EXEC };
    let Some(jump) = Patch::jump(at, to) else { return };
    if !in_one_word(at, JUMP) && !is_single_threaded() {
        return;
    }
    if writable(&text, &[jump]) {
        put(at, jump.code());
        protect(&text, &[jump]);
    } else if is_single_threaded() {
        force(at, jump.code());
    }
}

fn in_one_word(at: usize, len: usize) -> bool {
    at % WORD + len <= WORD
}

fn jump(at: usize, to: usize) -> Option<[u8; JUMP]> {
    let d = stub::displacement(at + JUMP, to)?;
    Some([0xe9, d[0], d[1], d[2], d[3]])
}

/// Writes code into writable text. The rest of a longer replacement is never reached.
fn put(at: usize, code: &[u8]) {
    if in_one_word(at, code.len()) {
        return store(at, code);
    }
    // SAFETY: `writable` made these bytes so, and no thread runs here meanwhile.
    unsafe {
        let to = core::ptr::with_exposed_provenance_mut::<u8>(at);
        core::ptr::copy_nonoverlapping(code.as_ptr(), to, code.len());
    }
}

/// Writes code into text that must not become writable (MemoryDenyWriteExecute): by
/// `/proc/self/mem`, as a debugger does. This is no single store, so no thread may run there.
fn force(at: usize, code: &[u8]) -> bool {
    const MEMORY: &CStr = c"/proc/self/mem";
    // SAFETY: bytes of loaded text, which code of ours replaces.
    unsafe {
        let (path, how) = (MEMORY.as_ptr().expose_provenance(), libc::O_RDWR | libc::O_CLOEXEC);
        let fd = raw!(libc::SYS_openat, libc::AT_FDCWD, path, how, 0);
        if fd < 0 {
            return false;
        }
        let (from, len) = (code.as_ptr().expose_provenance(), code.len());
        let done = raw!(libc::SYS_pwrite64, fd, from, len, at) == len.cast_signed();
        raw!(libc::SYS_close, fd);
        done
    }
}

/// Returns the first two bytes of an instruction that no other thread changes.
pub(super) fn load(at: usize) -> [u8; 2] {
    // SAFETY: within loaded text.
    unsafe { core::ptr::with_exposed_provenance::<[u8; 2]>(at).read_unaligned() }
}

/// Writes bytes that lie within one word of writable text, by one store.
pub(super) fn store(at: usize, new: &[u8]) {
    let word = at - at % WORD;
    // SAFETY: the caller made this page writable; the word is aligned, and text is written by
    // nobody else.
    let cell = unsafe { AtomicU64::from_ptr(core::ptr::with_exposed_provenance_mut(word)) };
    let mut bytes = cell.load(Ordering::Relaxed).to_ne_bytes();
    bytes[at - word..at - word + new.len()].copy_from_slice(new);
    cell.store(u64::from_ne_bytes(bytes), Ordering::Release);
}

fn pages(patches: &[Patch]) -> (usize, usize) {
    let low = patches.iter().map(|p| p.at).min().unwrap_or(0) & !(PAGE - 1);
    let high = patches.iter().map(|p| p.at + WORD).max().unwrap_or(0);
    (low, (high - low).next_multiple_of(PAGE))
}

/// Makes the sites writable. They stay executable: other threads, or a signal handler, may run
/// there.
fn writable(t: &Text, patches: &[Patch]) -> bool {
    let (at, len) = pages(patches);
    // SAFETY: pages of loaded text; more is allowed than before.
    unsafe { raw!(libc::SYS_mprotect, at, len, t.prot | libc::PROT_WRITE) == 0 }
}

fn protect(t: &Text, patches: &[Patch]) {
    let (at, len) = pages(patches);
    // SAFETY: pages of loaded text, back to what their segment says.
    unsafe { raw!(libc::SYS_mprotect, at, len, t.prot) };
}

/// Returns whether the calling thread is the only one. (Without /proc a process counts as having
/// others.)
fn is_single_threaded() -> bool {
    const TASKS: &CStr = c"/proc/self/task";
    // SAFETY: a NUL-terminated path and a buffer of the right type.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        let at = libc::AT_FDCWD;
        let path = TASKS.as_ptr().expose_provenance();
        let ret = raw!(libc::SYS_newfstatat, at, path, (&raw mut st).expose_provenance(), 0);
        // One link for each thread, and the directory's own two.
        ret == 0 && st.st_nlink == 3
    }
}

/// Makes every thread fetch anew; false if the kernel cannot. Then a fetch still sees the old or
/// the new instruction, if one store changed it.
pub(super) fn synchronize() -> bool {
    // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE and
    // MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE.
    const REGISTER: usize = 1 << 6;
    const SYNC: usize = 1 << 5;
    refused::learn();
    if !refused::works(libc::SYS_membarrier) {
        return false;
    }
    // SAFETY: numbers only.
    unsafe {
        raw!(libc::SYS_membarrier, REGISTER, 0, 0) == 0
            && raw!(libc::SYS_membarrier, SYNC, 0, 0) == 0
    }
}
