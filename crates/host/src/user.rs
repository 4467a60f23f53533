//! The program's memory. An address from the program is accessed only after the kernel has said
//! that it is good ([`check_readable`], [`check_writable`]), so a bad one is `EFAULT`, not SIGSEGV.
//! (A program whose other thread unmaps the memory at that very moment gets SIGSEGV.) Constants of
//! the program and of its libraries are known to be good without a question.
//!
//! process_vm_readv(2) on ourselves is made for this, but not used: policies refuse it, or kill for
//! it (systemd's `@system-service`, QEMU's `-sandbox`), and it takes several times as long.
#![allow(unsafe_code, non_camel_case_types)]

use alloc::vec;
use alloc::vec::Vec;
use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use crate::lock::OnceLock;
use crate::sys::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::iovec;

/// Address that the program has given for the kernel, or for us in its place, to read from or write
/// to: `void __user *` in the kernel's source.
///
/// # The invariant
/// The number came from the program: an SQE, an iocb, a structure that one of them names, or an
/// argument of a call. It is checked, and a bad one is `EFAULT`. The memory there is the program's,
/// which has offered it for this call. If the program uses that memory otherwise, or it is the
/// engine's, the program has broken itself, as it could have by read(2). Memory of the engine's
/// goes to the kernel as a slice or a reference, never by this type. The caller of
/// [`UserPtr::of_program`] upholds this; nothing else makes a `UserPtr` but of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct UserPtr(pub(crate) u64);

impl UserPtr {
    pub const NULL: UserPtr = UserPtr(0);
    /// The lowest address of the kernel's half, where no program has memory.
    pub const BAD: UserPtr = UserPtr(0xffff_8000_0000_0000);

    /// Wraps the address `addr`, which the program has given.
    ///
    /// # Safety
    /// The invariant above holds: the kernel, or softring in its place, may write at this address,
    /// and behind it as far as the program's call reaches. So it may at the addresses that a
    /// structure there names, if the call reads one.
    #[inline(always)]
    pub const unsafe fn of_program(addr: u64) -> UserPtr {
        UserPtr(addr)
    }

    /// Returns the address of a later member of the structure here, or of a later element of the
    /// array. Behind address 0, where nothing is, nothing is offered: it stays.
    #[inline(always)]
    #[must_use]
    pub const fn add(self, bytes: u64) -> UserPtr {
        if self.0 == 0 { self } else { UserPtr(self.0.saturating_add(bytes)) }
    }

    #[inline(always)]
    pub const fn addr(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

/// Address that the kernel only reads at: the program's, or that of a copy which the caller keeps.
/// Any number is sound: the kernel checks it, and changes nothing there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct ReadPtr(pub u64);

impl ReadPtr {
    pub const NULL: ReadPtr = ReadPtr(0);

    /// Wraps the address of `value`, which must live longer than the call.
    pub fn of<T: ?Sized>(value: &T) -> ReadPtr {
        ReadPtr(core::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64)
    }
}

/// Types whose every bit pattern is valid and that hold no padding to leak.
///
/// # Safety
/// The type is `repr(C)` or primitive, has no padding and no invalid bit pattern.
pub unsafe trait Plain: Copy + Default {}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {
        // SAFETY: structs of the ABI (`softring_uapi::layout` asserts the offsets) and integers: no
        // padding, every pattern valid.
        $(unsafe impl Plain for $t {})*
    };
}

// SAFETY: its elements are such, and there is nothing in between.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] where [T; N]: Default {}
use softring_uapi::*;
plain!(
    u8,
    u16,
    u32,
    u64,
    i32,
    i64,
    io_uring_params,
    io_uring_getevents_arg,
    io_uring_reg_wait,
    kernel_timespec,
    io_uring_files_update,
    io_uring_rsrc_register,
    io_uring_rsrc_update,
    io_uring_rsrc_update2,
    io_uring_probe_op,
    io_uring_probe,
    io_uring_restriction,
    io_uring_task_restriction,
    io_uring_bpf,
    sock_filter,
    io_uring_sync_cancel_reg,
    io_uring_file_index_range,
    io_uring_clock_register,
    io_uring_clone_buffers,
    io_uring_region_desc,
    io_uring_mem_region_reg,
    io_uring_query_hdr,
    io_uring_query_opcode,
    io_uring_buf,
    io_uring_buf_reg,
    io_uring_buf_status,
    io_uring_napi,
    iovec,
    msghdr,
    nvme_passthru_cmd64,
    procmap_query,
    io_uring_sqe,
    io_uring_cqe,
    aio::iocb,
    aio::io_event,
);

/// End of user addresses (x86-64, four-level page tables): `access_ok` refuses memory beyond.
pub const TASK_SIZE: u64 = 0x7fff_ffff_f000;
const PAGE: u64 = 4096;

const MADV_POPULATE_READ: usize = 22;
const MADV_POPULATE_WRITE: usize = 23;
/// Answer of the advice if nothing is mapped. [`NOT_THERE`]: if the mapping has no page.
const NOT_MAPPED: isize = Errno::ENOMEM.res() as isize;
const NOT_THERE: isize = Errno::EFAULT.res() as isize;

/// Checks, as `access_ok` does, whether a program may have memory at `[addr, addr + len)`.
///
/// # Errors
/// `EFAULT` if not.
pub fn in_user(addr: u64, len: u64) -> Result<()> {
    let end = addr.checked_add(len).ok_or(Errno::EFAULT)?;
    if end > TASK_SIZE { Err(Errno::EFAULT) } else { Ok(()) }
}

/// Knowledge about memory.
struct Known {
    /// Means by which it is checked ([`Checks`]); 0: not found yet.
    checks: AtomicU8,
    /// Read-only memory of the program that stays for as long as it runs, in order.
    constants: OnceLock<Vec<Range<usize>>>,
}

static KNOWN: Known = Known { checks: AtomicU8::new(0), constants: OnceLock::new() };

/// Notes the read-only segments of the modules that the program has started with, which nobody
/// unloads: what lies there is read unchecked. Called once, before the program runs.
pub fn constants_are(mut segments: Vec<Range<usize>>) {
    segments.sort_unstable_by_key(|segment| segment.start);
    let _ = KNOWN.constants.set(segments);
}

fn is_constant(addr: u64, len: usize) -> bool {
    KNOWN.constants.get().is_some_and(|segments| lies_in_one(segments, addr as usize, len))
}

/// Returns whether one of these ranges, which are in order, holds all `len` bytes at `first`.
fn lies_in_one(ranges: &[Range<usize>], first: usize, len: usize) -> bool {
    let at = ranges.partition_point(|range| range.end <= first);
    let holds = |range: &Range<usize>| range.contains(&first) && len <= range.end - first;
    ranges.get(at).is_some_and(holds)
}

/// Checks whether the program's memory may be read.
///
/// # Errors
/// `EFAULT` if any byte is not readable.
pub fn check_readable(addr: u64, len: usize) -> Result<()> {
    if is_constant(addr, len) {
        return Ok(());
    }
    check(addr, len, MADV_POPULATE_READ, reads_set, reads_set)
}

/// Checks whether the program's memory may be written.
///
/// # Errors
/// `EFAULT` if any byte is not writable.
pub fn check_writable(addr: u64, len: usize) -> Result<()> {
    check(addr, len, MADV_POPULATE_WRITE, ors_nothing, writes_nothing)
}

/// Pages that are asked about one by one, as that takes less time: 140 ns to read, 380 to write,
/// where the advice takes 630.
const FEW: u64 = 2;

/// Checks memory by `probe` for each page, if these are few, or by `advice`, which is one call for
/// all pages; where the kernel does not heed the advice, by `slow` for each page.
fn check(
    addr: u64,
    len: usize,
    advice: usize,
    probe: fn(u64) -> bool,
    slow: fn(u64) -> bool,
) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let last = addr.checked_add(len as u64 - 1).ok_or(Errno::EFAULT)?;
    let (first, last) = (addr / PAGE, last / PAGE);
    // An aligned address on each page, and never 0.
    let each = |probe: fn(u64) -> bool| (first..=last).all(|page| probe(page * PAGE + 8));
    let checks = checks();
    if checks == Checks::Probes && last - first < FEW && each(probe) {
        return Ok(());
    }
    if checks != Checks::Slow {
        // SAFETY: both advices change no byte.
        let done = unsafe { sys!(__NR_madvise, first * PAGE, (last - first + 1) * PAGE, advice) };
        match done {
            0 => return Ok(()),
            NOT_MAPPED | NOT_THERE => return Err(Errno::EFAULT),
            // Not permitted, or device memory, which cannot be populated.
            _ => {}
        }
    }
    if each(slow) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Means by which memory is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Checks {
    /// A probe of each page, if these are few; else the advice.
    Probes = 1,
    /// The advice.
    Advice,
    /// A slow probe of each page.
    Slow,
}

/// Returns whether the kernel knows the advice (Linux 5.14) and heeds it.
pub fn populates() -> bool {
    checks() != Checks::Slow
}

#[inline]
fn checks() -> Checks {
    let known = &KNOWN.checks;
    const PROBES: u8 = Checks::Probes as u8;
    const ADVICE: u8 = Checks::Advice as u8;
    match known.load(Relaxed) {
        PROBES => Checks::Probes,
        ADVICE => Checks::Advice,
        0 => {
            let checks = find_checks();
            known.store(checks as u8, Relaxed);
            checks
        }
        _ => Checks::Slow,
    }
}

/// Tries the advice on an address that no program has: if the advice is unknown or refused, the
/// answer is another. Valgrind reports memory that a probe reads and the program has not written.
#[cold]
fn find_checks() -> Checks {
    // SAFETY: as in `check`, and nothing is there.
    let refuses =
        |advice| unsafe { sys!(__NR_madvise, UserPtr::BAD.0, PAGE, advice) } == NOT_MAPPED;
    match refuses(MADV_POPULATE_READ) && refuses(MADV_POPULATE_WRITE) {
        false => Checks::Slow,
        true if crate::valgrind::runs() => Checks::Advice,
        true => Checks::Probes,
    }
}

/// Returns whether 8 bytes can be read: rt_sigprocmask(2) reads a set before it finds its `how`
/// bad.
fn reads_set(at: u64) -> bool {
    const NO_SUCH_HOW: usize = 0x7f;
    const SET: usize = 8;
    // SAFETY: the kernel reads there.
    let answer = unsafe { sys!(__NR_rt_sigprocmask, NO_SUCH_HOW, at, 0, SET) };
    answer != Errno::EFAULT.res() as isize
}

/// Returns whether a word can be written. The page is read first, because a futex operation fails
/// instead of waiting for a page that is served late (userfaultfd(2)).
fn writes_nothing(at: u64) -> bool {
    reads_set(at & !7) && ors_nothing(at)
}

/// Returns whether a word can be written: a futex operation that adds no bit writes it.
fn ors_nothing(at: u64) -> bool {
    /// `FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG`.
    const WAKE_OP: usize = 5 | 128;
    /// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0x7ff)`.
    const OR_NOTHING: usize = 2 << 28 | 0x7ff;
    // Nobody waits on this word.
    let own = 0u32;
    let own = (&raw const own).expose_provenance();
    // SAFETY: the word there keeps its value.
    let answer = unsafe { sys!(__NR_futex, own, WAKE_OP, 0, 0, at, OR_NOTHING) };
    answer != Errno::EFAULT.res() as isize
}

/// Copies bytes that another thread, or another process, may write meanwhile.
///
/// # Safety
/// One range may be read, and the other written.
#[inline(always)]
unsafe fn copy(from: u64, to: u64, len: usize) {
    // SAFETY: the caller's. The compiler sees no access to either. A `rep movsb` takes longer to
    // begin than these sizes, the commonest, take in all.
    unsafe {
        match len {
            8 => asm!("mov {v}, [{from}]", "mov [{to}], {v}", v = out(reg) _,
                from = in(reg) from, to = in(reg) to, options(nostack, preserves_flags)),
            16 => asm!("movups {v}, [{from}]", "movups [{to}], {v}", v = out(xmm_reg) _,
                from = in(reg) from, to = in(reg) to, options(nostack, preserves_flags)),
            _ => asm!("rep movsb", inout("rsi") from => _, inout("rdi") to => _,
                inout("rcx") len => _, options(nostack, preserves_flags)),
        }
    }
}

/// Copies `dst.len()` values in from the program.
///
/// # Errors
/// `EFAULT` if any byte is not readable.
pub fn read_slice<T: Plain>(addr: u64, dst: &mut [T]) -> Result<()> {
    let len = size_of_val(dst);
    check_readable(addr, len)?;
    // SAFETY: readable a moment ago (see the module); `dst` is ours, and takes any bytes.
    unsafe { copy(addr, dst.as_mut_ptr().expose_provenance() as u64, len) };
    Ok(())
}

/// Copies in the values that are readable from the start, `n` at most.
pub fn read_prefix<T: Plain>(addr: u64, n: usize) -> Vec<T> {
    let mut all = vec![T::default(); n];
    if read_slice(addr, &mut all).is_ok() {
        return all;
    }
    let at = |i: usize| addr.wrapping_add((i * size_of::<T>()) as u64);
    (0..n).map_while(|i| read(at(i)).ok()).collect()
}

/// Copies one value in from the program.
///
/// # Errors
/// `EFAULT` if any byte is not readable.
pub fn read<T: Plain>(addr: u64) -> Result<T> {
    let mut v = T::default();
    read_slice(addr, core::slice::from_mut(&mut v))?;
    Ok(v)
}

/// Copies one value in, unchecked.
///
/// # Safety
/// The kernel has just read the value there itself, in a call of ours that has not failed.
pub unsafe fn read_again<T: Plain>(addr: u64) -> T {
    let mut v = T::default();
    // SAFETY: the caller's (see the module); any bytes are a value.
    unsafe { copy(addr, (&raw mut v).expose_provenance() as u64, size_of::<T>()) };
    v
}

/// Copies one value in from each address, in order, until one is not readable; returns how many.
/// Values on one page cost one check.
pub fn read_each<T: Plain>(from: &[u64], to: &mut [T]) -> usize {
    let mut known = u64::MAX;
    let mut each = from.iter().zip(&mut *to);
    let bad = each.position(|(&at, v)| {
        let (page, end) = (at / PAGE, at.wrapping_add(size_of::<T>() as u64 - 1) / PAGE);
        let seen = page == known && page == end;
        known = end;
        if !seen && check_readable(at, size_of::<T>()).is_err() {
            return true;
        }
        // SAFETY: as in `read_slice`.
        unsafe { copy(at, (&raw mut *v).expose_provenance() as u64, size_of::<T>()) };
        false
    });
    bad.unwrap_or(from.len().min(to.len()))
}

/// Copies values out to the program. Bytes in front of one that is not writable are copied, too, as
/// by the kernel's `copy_to_user`.
///
/// # Errors
/// `EFAULT` if any byte is not writable.
pub fn write_slice<T: Plain>(to: UserPtr, src: &[T]) -> Result<()> {
    let addr = to.0;
    let len = size_of_val(src);
    let done = check_writable(addr, len);
    let len = if done.is_ok() { len } else { writable_prefix(addr, len) };
    // SAFETY: writable a moment ago (see the module).
    unsafe { copy(src.as_ptr().expose_provenance() as u64, addr, len) };
    done
}

/// Returns how many of these bytes are writable from the start.
#[cold]
fn writable_prefix(addr: u64, len: usize) -> usize {
    prefix(addr, len, check_writable)
}

/// Returns how many of these bytes are readable from the start.
#[cold]
pub(crate) fn readable_prefix(addr: u64, len: usize) -> usize {
    if check_readable(addr, len).is_ok() { len } else { prefix(addr, len, check_readable) }
}

/// Returns how many of these bytes lie on good pages, from the start.
fn prefix(addr: u64, len: usize, check: fn(u64, usize) -> Result<()>) -> usize {
    let mut good = 0;
    while good < len {
        let Some(at) = addr.checked_add(good as u64) else { break };
        let step = ((PAGE - at % PAGE) as usize).min(len - good);
        if check(at, step).is_err() {
            break;
        }
        good += step;
    }
    good
}

/// Copies one value out to the program.
///
/// # Errors
/// `EFAULT` if any byte is not writable.
pub fn write<T: Plain>(to: UserPtr, v: &T) -> Result<()> {
    write_slice(to, core::slice::from_ref(v))
}

/// Copies one value out to the program, or nothing of it (`put_user`).
///
/// # Errors
/// `EFAULT`.
pub fn write_whole<T: Plain>(to: UserPtr, v: &T) -> Result<()> {
    check_writable(to.0, size_of::<T>())?;
    write(to, v)
}

/// Copies a NUL-terminated string in, without its NUL; at most `max` bytes.
///
/// # Errors
/// `EFAULT` if it is not readable, `ENAMETOOLONG` if no NUL comes within `max` bytes.
pub fn read_cstr(addr: u64, max: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    while out.len() < max {
        let at = addr + out.len() as u64;
        let chunk = (4096 - (at as usize & 4095)).min(max - out.len()).min(256);
        let mut buf = [0u8; 256];
        read_slice(at, &mut buf[..chunk])?;
        if let Some(n) = buf[..chunk].iter().position(|&b| b == 0) {
            out.extend_from_slice(&buf[..n]);
            return Ok(out);
        }
        out.extend_from_slice(&buf[..chunk]);
    }
    Err(Errno::ENAMETOOLONG)
}

/// Returns a `struct stat` of zeroes.
pub(crate) fn no_stat() -> crate::os::fs::Stat {
    // SAFETY: numbers, for which zero is one.
    unsafe { core::mem::zeroed() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn constants_lie_within_one_segment() {
        let segments = [10..20, 20..30, 40..50];
        let known = |first, len| lies_in_one(&segments, first, len);
        assert!(known(10, 10) && known(19, 1) && known(20, 10) && known(49, 0));
        assert!(!known(9, 1) && !known(19, 2) && !known(35, 1) && !known(45, 6));
        assert!(!known(50, 0) && !known(usize::MAX, 1) && !known(40, usize::MAX));
    }

    #[test]
    fn each_method_reports_inaccessible_memory() {
        assert!(populates());
        // SAFETY: a fresh mapping, of which nobody knows.
        let at = unsafe {
            let at = sys!(__NR_mmap, 0, 3 * PAGE, 3, 0x22, usize::MAX, 0) as u64;
            sys!(__NR_mprotect, at + PAGE, PAGE, 1);
            sys!(__NR_munmap, at + 2 * PAGE, PAGE);
            at
        };
        let end = at + 2 * PAGE;
        let both =
            |addr, len| (check_readable(addr, len).is_ok(), check_writable(addr, len).is_ok());
        assert_eq!(both(at + 1, PAGE as usize - 1), (true, true));
        assert_eq!(both(at + 1, PAGE as usize), (true, false));
        assert_eq!(both(end - 3, 3), (true, false));
        assert_eq!(both(end - 3, 4), (false, false));
        assert_eq!(both(3, 1), (false, false));
        assert_eq!(both(u64::MAX - 1, 9), (false, false));
        for (page, readable, writable) in [(at, true, true), (at + PAGE, true, false)] {
            assert_eq!((reads_set(page + 8), writes_nothing(page + 8)), (readable, writable));
        }
        assert_eq!((reads_set(end + 8), writes_nothing(end + 8)), (false, false));
        // SAFETY: that mapping.
        let last = unsafe { UserPtr::of_program(at + PAGE - 4) };
        write(last, &7u32).unwrap();
        assert_eq!(read::<u64>(at + PAGE - 4), Ok(7));
        assert_eq!(write(last, &7u64), Err(Errno::EFAULT));
        let mut some = [0u32; 4];
        let from = [at, at + PAGE - 4, end - 4, end];
        assert_eq!((read_each(&from, &mut some), some), (3, [0, 7, 0, 0]));
        // SAFETY: that mapping.
        unsafe { sys!(__NR_munmap, at, 2 * PAGE) };
    }
}
