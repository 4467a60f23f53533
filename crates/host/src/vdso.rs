//! Functions that the kernel maps into each process (vdso(7)): a clock and the processor's number,
//! without a system call. A system call does the same where there are none.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::c_library;
use crate::raw::{nr, syscall};

type ClockGettime = extern "C" fn(c_int, *mut [u64; 2]) -> c_int;
type Getcpu = extern "C" fn(*mut u32, *mut c_void, *mut c_void) -> c_int;

const CLOCK_GETTIME: &CStr = c"__vdso_clock_gettime";
const GETCPU: &CStr = c"__vdso_getcpu";

/// Addresses of the functions: 0 until they are looked up.
static FOUND: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Returns the time of a clock: seconds and nanoseconds.
#[inline]
pub(crate) fn clock_gettime(id: u32) -> [u64; 2] {
    let mut time = [0; 2];
    let function = function(0, CLOCK_GETTIME, by_call::clock_gettime as ClockGettime as usize);
    // SAFETY: a function of this name, which has this type.
    let function = unsafe { core::mem::transmute::<usize, ClockGettime>(function) };
    if function(id.cast_signed(), &raw mut time) != 0 {
        by_call::clock_gettime(id.cast_signed(), &raw mut time);
    }
    time
}

/// Returns the number of the processor that the thread runs on.
#[inline]
pub(crate) fn getcpu() -> u32 {
    let mut cpu = 0;
    let function = function(1, GETCPU, by_call::getcpu as Getcpu as usize);
    // SAFETY: as above.
    let function = unsafe { core::mem::transmute::<usize, Getcpu>(function) };
    let null = core::ptr::null_mut();
    function(&raw mut cpu, null, null);
    cpu
}

#[inline]
fn function(which: usize, name: &CStr, or: usize) -> usize {
    match FOUND[which].load(Relaxed) {
        // Relaxed: the functions are there before the process runs.
        0 => find(which, name, or),
        at => at,
    }
}

#[cold]
fn find(which: usize, name: &CStr, or: usize) -> usize {
    const AT_SYSINFO_EHDR: usize = 33;
    let base = c_library::auxiliary(AT_SYSINFO_EHDR).unwrap_or(0);
    // SAFETY: the kernel says that its object is there; 0 says that there is none.
    let found = if base == 0 { None } else { unsafe { Object::at(base) } };
    let at = found.and_then(|object| object.symbol(name)).unwrap_or(or);
    FOUND[which].store(at, Relaxed);
    at
}

/// The same by system calls.
mod by_call {
    use super::*;

    pub(super) extern "C" fn clock_gettime(id: c_int, to: *mut [u64; 2]) -> c_int {
        let a = [id as usize, to.expose_provenance(), 0, 0, 0, 0];
        // SAFETY: the caller's words.
        unsafe { syscall(nr::__NR_clock_gettime as usize, &a) as c_int }
    }

    pub(super) extern "C" fn getcpu(to: *mut u32, _: *mut c_void, _: *mut c_void) -> c_int {
        let a = [to.expose_provenance(), 0, 0, 0, 0, 0];
        // SAFETY: the caller's word.
        unsafe { syscall(nr::__NR_getcpu as usize, &a) as c_int }
    }
}

/// The kernel's object: an ELF file in memory.
struct Object {
    /// Distance from the addresses in the file to those in memory.
    distance: usize,
    symbols: usize,
    count: usize,
    names: usize,
}

/// Bytes of a symbol.
const SYMBOL: usize = 24;

/// Reads a value at an address.
///
/// # Safety
/// It is there.
unsafe fn at<T: Copy>(address: usize) -> T {
    // SAFETY: the caller's.
    unsafe { core::ptr::with_exposed_provenance::<T>(address).read_unaligned() }
}

impl Object {
    /// Reads the headers of an object.
    ///
    /// # Safety
    /// A whole object of the kernel's is there.
    unsafe fn at(base: usize) -> Option<Object> {
        const MAGIC: [u8; 6] = *b"\x7fELF\x02\x01";
        const PT_LOAD: u32 = 1;
        const PT_DYNAMIC: u32 = 2;
        const DT_HASH: usize = 4;
        const DT_STRTAB: usize = 5;
        const DT_SYMTAB: usize = 6;
        // SAFETY: the caller's. All reads are of the headers, and of what they say is there.
        unsafe {
            if at::<[u8; 6]>(base) != MAGIC {
                return None;
            }
            let (start, size, n): (usize, u16, u16) = (at(base + 32), at(base + 54), at(base + 56));
            let (mut distance, mut dynamic) = (None, None);
            for header in (0..usize::from(n)).map(|n| base + start + n * usize::from(size)) {
                let (offset, address): (usize, usize) = (at(header + 8), at(header + 16));
                match at::<u32>(header) {
                    PT_LOAD if distance.is_none() => {
                        distance = Some(base.wrapping_add(offset).wrapping_sub(address));
                    }
                    PT_DYNAMIC => dynamic = Some(base + offset),
                    _ => {}
                }
            }
            let (distance, mut entry) = (distance?, dynamic?);
            let (mut hash, mut names, mut symbols) = (None, None, None);
            loop {
                let [tag, value]: [usize; 2] = at(entry);
                let value = Some(distance.wrapping_add(value));
                match tag {
                    0 => break,
                    DT_HASH => hash = value,
                    DT_STRTAB => names = value,
                    DT_SYMTAB => symbols = value,
                    _ => {}
                }
                entry += size_of::<[usize; 2]>();
            }
            let (names, symbols) = (names?, symbols?);
            // The old table of hashes has the number of symbols. Without it, the names follow the
            // symbols.
            let count = match hash {
                Some(hash) => at::<u32>(hash + 4) as usize,
                None => names.checked_sub(symbols)? / SYMBOL,
            };
            Some(Object { distance, symbols, count, names })
        }
    }

    /// Returns the address of a function.
    fn symbol(&self, name: &CStr) -> Option<usize> {
        let mut all = (0..self.count).map(|n| self.symbols + n * SYMBOL);
        // SAFETY: as in `at`: the symbols and their names are where the headers say.
        let named = |symbol: &usize| unsafe {
            let section: u16 = at(symbol + 6);
            let text = self.names + at::<u32>(*symbol) as usize;
            section != 0 && CStr::from_ptr(core::ptr::with_exposed_provenance(text)) == name
        };
        let symbol = all.find(named)?;
        // SAFETY: as above.
        Some(self.distance.wrapping_add(unsafe { at::<usize>(symbol + 8) }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_functions_are_the_kernels() {
        for clock in [0, 1, 6, 7] {
            let (mut before, mut after) = ([0; 2], [0; 2]);
            by_call::clock_gettime(clock, &raw mut before);
            let time = clock_gettime(clock.cast_unsigned());
            by_call::clock_gettime(clock, &raw mut after);
            assert!(
                before <= time && time <= after,
                "clock {clock}: {before:?} {time:?} {after:?}"
            );
        }
        assert!(getcpu() < 8192);
        let call = by_call::clock_gettime as ClockGettime as usize;
        if c_library::auxiliary(33).is_some() {
            assert_ne!(FOUND[0].load(Relaxed), call, "there is a vDSO, and its function was found");
        }
    }
}
