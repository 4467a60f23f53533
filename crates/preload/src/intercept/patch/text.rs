//! Writes to text.
//!
//! A jump that lies within one aligned word is written by one store: a thread that fetches there
//! gets the old instruction or the new one. A jump that straddles two words is written while no
//! thread can be there, or in steps ([`straddle`]).
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

/// Replaces the sites of a module; returns their addresses. `fresh`: the module has not run yet.
pub fn replace(m: &Module, sites: &[Site], fresh: bool) -> Vec<usize> {
    let Some(mut pool) = stub::pool_for(m, sites.len()) else { return Vec::new() };
    let quiet = fresh || is_single_threaded();
    let mut jumps = Vec::with_capacity(sites.len());
    for s in sites {
        let safe = quiet || (!s.dynamic && (in_one_word(s.at) || straddle::may(s.at)));
        if let Some(stub) = pool.stub(s).filter(|_| safe) {
            jumps.push((s.at, s.len, stub));
        }
    }
    if jumps.is_empty() || !pool.seal() {
        return Vec::new();
    }
    write(m, &jumps, quiet)
}

/// Replaces one `mov` of a jump's length before a `syscall`; the stub checks the number.
pub fn replace_move(m: &Module, at: usize, mov: [u8; JUMP]) -> bool {
    let quiet = is_single_threaded();
    if !quiet && !in_one_word(at) && !straddle::may(at) {
        return false;
    }
    let Some(mut pool) = stub::pool_for(m, 1) else { return false };
    let Some(stub) = pool.stub_of_move(mov, at + JUMP) else { return false };
    pool.seal() && !write(m, &[(at, JUMP, stub)], quiet).is_empty()
}

/// Writes jumps (address, length, target) into a module's text; returns the addresses written.
fn write(m: &Module, jumps: &[(usize, usize, usize)], quiet: bool) -> Vec<usize> {
    let mut done = Vec::new();
    for t in &m.text {
        let here: Vec<_> = jumps.iter().filter(|j| t.holds(j.0)).collect();
        if here.is_empty() {
            continue;
        }
        if !writable(t, &here) {
            let forced = here.iter().filter(|(at, _, to)| quiet && force_jump(*at, *to));
            done.extend(forced.map(|j| j.0));
            continue;
        }
        let at_once = |at: usize| quiet || in_one_word(at);
        let plain = here.iter().filter(|(at, ..)| at_once(*at));
        done.extend(plain.filter(|(at, _, to)| write_jump(*at, *to)).map(|j| j.0));
        let steps = here.iter().filter(|(at, ..)| !at_once(*at));
        let steps: Vec<_> = steps.filter_map(|&&(at, _, to)| Some((at, jump(at, to)?))).collect();
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
    let here = [&(at, JUMP, to)];
    if !in_one_word(at) && !is_single_threaded() {
        return;
    }
    if writable(&text, &here) {
        write_jump(at, to);
        protect(&text, &here);
    } else if is_single_threaded() {
        force_jump(at, to);
    }
}

fn in_one_word(at: usize) -> bool {
    at % WORD + JUMP <= WORD
}

fn jump(at: usize, to: usize) -> Option<[u8; JUMP]> {
    let d = stub::displacement(at + JUMP, to)?;
    Some([0xe9, d[0], d[1], d[2], d[3]])
}

fn write_jump(at: usize, to: usize) -> bool {
    let Some(jump) = jump(at, to) else { return false };
    if in_one_word(at) {
        store(at, &jump);
    } else {
        // SAFETY: `writable` made this page so, and no thread runs here meanwhile.
        unsafe {
            let to = core::ptr::with_exposed_provenance_mut::<[u8; JUMP]>(at);
            to.write_unaligned(jump);
        }
    }
    // The rest of a longer replacement is never reached.
    true
}

/// Writes a jump into text that must not become writable (MemoryDenyWriteExecute): by
/// `/proc/self/mem`, as a debugger does. This is no single store, so no thread may run there.
fn force_jump(at: usize, to: usize) -> bool {
    const MEMORY: &CStr = c"/proc/self/mem";
    let Some(jump) = jump(at, to) else { return false };
    // SAFETY: five bytes of loaded text, which a jump of ours replaces.
    unsafe {
        let (path, how) = (MEMORY.as_ptr().expose_provenance(), libc::O_RDWR | libc::O_CLOEXEC);
        let fd = raw!(libc::SYS_openat, libc::AT_FDCWD, path, how, 0);
        if fd < 0 {
            return false;
        }
        let from = jump.as_ptr().expose_provenance();
        let done = raw!(libc::SYS_pwrite64, fd, from, JUMP, at) == JUMP.cast_signed();
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

fn pages(sites: &[&(usize, usize, usize)]) -> (usize, usize) {
    let low = sites.iter().map(|s| s.0).min().unwrap_or(0) & !(PAGE - 1);
    let high = sites.iter().map(|s| s.0 + s.1.max(WORD)).max().unwrap_or(0);
    (low, (high - low).next_multiple_of(PAGE))
}

/// Makes the sites writable. They stay executable: other threads, or a signal handler, may run
/// there.
fn writable(t: &Text, sites: &[&(usize, usize, usize)]) -> bool {
    let (at, len) = pages(sites);
    // SAFETY: pages of loaded text; more is allowed than before.
    unsafe { raw!(libc::SYS_mprotect, at, len, t.prot | libc::PROT_WRITE) == 0 }
}

fn protect(t: &Text, sites: &[&(usize, usize, usize)]) {
    let (at, len) = pages(sites);
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
