//! Writing into text.
//!
//! A jump that lies within one aligned word goes in by one store: a thread that fetches there
//! meanwhile gets the old instruction or the new one. One that straddles two words is written only
//! while no thread can be there.
#![allow(unsafe_code)]

use super::modules::{Module, Text};
use super::site::Site;
use super::stub;
use crate::raw::raw;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of `jmp rel32`.
pub const JUMP: usize = 5;
const PAGE: usize = 4096;
const WORD: usize = 8;

/// Replaces the sites of a module; answers which. `fresh`: the module has not run yet.
pub fn replace(m: &Module, sites: &[Site], fresh: bool) -> Vec<usize> {
    let mut done = Vec::new();
    let Some(mut pool) = stub::pool_for(m, sites.len()) else { return done };
    let quiet = fresh || alone();
    let mut jumps = Vec::with_capacity(sites.len());
    for s in sites {
        let safe = quiet || (!s.dynamic && in_one_word(s.at));
        if let Some(stub) = pool.stub(s).filter(|_| safe) {
            jumps.push((s.at, s.len, stub));
        }
    }
    if jumps.is_empty() || !pool.seal() {
        return done;
    }
    for t in &m.text {
        let here: Vec<_> = jumps.iter().filter(|j| t.holds(j.0)).collect();
        if here.is_empty() || !writable(t, &here) {
            continue;
        }
        done.extend(here.iter().filter(|(at, _, to)| write_jump(*at, *to)).map(|j| j.0));
        protect(t, &here);
    }
    if !quiet {
        synchronize();
    }
    done
}

/// Makes the function at `at` jump to `to`: by one store, or not at all.
pub fn redirect_function(at: usize, to: usize) {
    let text = Text { start: at, len: JUMP, prot: libc::PROT_READ | libc::PROT_EXEC };
    let here = [&(at, JUMP, to)];
    if (in_one_word(at) || alone()) && writable(&text, &here) {
        write_jump(at, to);
        protect(&text, &here);
    }
}

fn in_one_word(at: usize) -> bool {
    at % WORD + JUMP <= WORD
}

fn write_jump(at: usize, to: usize) -> bool {
    let Some(d) = stub::displacement(at + JUMP, to) else { return false };
    let jump = [0xe9, d[0], d[1], d[2], d[3]];
    if in_one_word(at) {
        let word = at - at % WORD;
        // SAFETY: `writable` made this page so; the word is aligned, and text is written by nobody
        // else.
        let cell = unsafe { AtomicU64::from_ptr(core::ptr::with_exposed_provenance_mut(word)) };
        let mut bytes = cell.load(Ordering::Relaxed).to_ne_bytes();
        bytes[at - word..at - word + JUMP].copy_from_slice(&jump);
        cell.store(u64::from_ne_bytes(bytes), Ordering::Release);
    } else {
        // SAFETY: as above, and no thread runs here meanwhile.
        unsafe {
            let to = core::ptr::with_exposed_provenance_mut::<[u8; JUMP]>(at);
            to.write_unaligned(jump);
        }
    }
    // What is left of a longer replacement is never reached.
    true
}

fn pages(sites: &[&(usize, usize, usize)]) -> (usize, usize) {
    let low = sites.iter().map(|s| s.0).min().unwrap_or(0) & !(PAGE - 1);
    let high = sites.iter().map(|s| s.0 + s.1.max(WORD)).max().unwrap_or(0);
    (low, (high - low).next_multiple_of(PAGE))
}

/// Stays executable meanwhile: other threads, or a signal handler, may run there.
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

/// Is the calling thread the only one? (A process without /proc is taken as having others.)
fn alone() -> bool {
    const TASKS: &CStr = c"/proc/self/task";
    // SAFETY: a NUL-terminated path and a buffer of the right type.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        let at = libc::AT_FDCWD;
        let path = TASKS.as_ptr().expose_provenance();
        let ret = raw!(libc::SYS_newfstatat, at, path, (&raw mut st).expose_provenance(), 0);
        // One link for each thread beside the directory's own two.
        ret == 0 && st.st_nlink == 3
    }
}

/// Has every thread fetch anew.
fn synchronize() {
    // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE and
    // MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE.
    const REGISTER: usize = 1 << 6;
    const SYNC: usize = 1 << 5;
    // SAFETY: numbers only. Where the kernel has none of it, fetches still see the old or the new
    // instruction.
    unsafe {
        raw!(libc::SYS_membarrier, REGISTER, 0, 0);
        raw!(libc::SYS_membarrier, SYNC, 0, 0);
    }
}
