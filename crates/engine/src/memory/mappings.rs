//! Properties of the program's mappings, for the registration of buffers, of buffer rings and of
//! the ring's own memory.
//!
//! The kernel pins such pages for writing, for a long time. A file system that must be notified of
//! each first write to a page cannot allow that, so shared mappings of its files are refused
//! (`writable_file_mapping_allowed` in `mm/gup.c`).
#![allow(unsafe_code)]

use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

use softring_host::os::fd::AsRawFd;
use softring_host::os::fs::{Mode, OFlags, open};

use super::region::Region;
use softring_host::calls::{ioctl, memory};
use softring_host::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{PROCMAP_QUERY, procmap_query};

const PAGE: u64 = 4096;
/// File systems that need no notice of writes to shared mappings: those in memory.
const WITHOUT_NOTICE: [&str; 5] = ["tmpfs", "devtmpfs", "ramfs", "hugetlbfs", "rootfs"];

/// `VMA_WRITABLE | VMA_SHARED | COVERING_OR_NEXT_VMA | FILE_BACKED_VMA`.
const SHARED_FILES: u64 = 0x2 | 0x8 | 0x10 | 0x20;

/// One line of `/proc/self/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<u64>,
    writable: bool,
    shared: bool,
    device: (u32, u32),
}

/// Address of memory that the program brings for a ring (IORING_SETUP_NO_MMAP), or for a ring of
/// buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingMemory(u64);

impl RingMemory {
    /// No memory, of a ring in memory of its own.
    #[cfg(all(test, not(loom)))]
    pub(super) const NONE: RingMemory = RingMemory(0);

    /// Wraps an address that the program has given.
    ///
    /// # Safety
    /// The program offers the memory there until the ring ends, or the memory is unregistered, and
    /// not for one call, as of a [`UserPtr`](softring_host::calls::UserPtr).
    pub(crate) const unsafe fn of_program(addr: u64) -> RingMemory {
        RingMemory(addr)
    }
}

/// Pins memory of the program's that the ring keeps (`io_pin_pages`): page-aligned, writable, and
/// touched now, so that a bad address fails at once.
///
/// # Errors
/// `EINVAL` if it does not begin with a page, `EOVERFLOW`; those of [`populate`].
pub(crate) fn pin(RingMemory(addr): RingMemory, len: usize) -> Result<Region> {
    if addr == 0 {
        return Err(Errno::EFAULT);
    }
    if !addr.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let pages = (len as u64).next_multiple_of(PAGE);
    let end = addr.checked_add(pages).ok_or(Errno::EOVERFLOW)?;
    populate(&(addr..end))?;
    // SAFETY: just found to be there for writing, and the type says how long the program offers it.
    unsafe { Region::of_program(addr, len) }
}

/// Faults `range` in for writing, as pinning would.
///
/// # Errors
/// `EFAULT` if not all of it is memory that can be written and pinned.
pub(crate) fn populate(range: &Range<u64>) -> Result<()> {
    if shares_file(range) {
        return Err(Errno::EFAULT);
    }
    let len = (range.end - range.start) as usize;
    match memory::populate_write(range.start, len as u64) {
        Ok(()) => Ok(()),
        // Memory of a device, which the kernel would not pin.
        Err(Errno::EINVAL) if user::populates() => Err(Errno::EFAULT),
        Err(Errno::EFAULT | Errno::ENOMEM) => Err(Errno::EFAULT),
        // Not known to the kernel, or refused, perhaps by a filter of the program's.
        Err(_) => user::check_writable(range.start, len),
    }
}

/// Returns whether the range has a shared mapping of a file that needs notice of writes.
fn shares_file(range: &Range<u64>) -> bool {
    match query(range) {
        Ok(devices) => devices.into_iter().any(needs_write_notice),
        Err(_) => mappings().is_some_and(|all| {
            all.into_iter().any(|m| {
                let within = m.range.start < range.end && range.start < m.range.end;
                within && m.shared && m.writable && needs_write_notice(m.device)
            })
        }),
    }
}

/// Returns the devices of the files with shared mappings in the range. A program has few of these,
/// so that mostly one query is enough.
///
/// # Errors
/// Those of ioctl(2) on a kernel without PROCMAP_QUERY; those of open(2) without /proc.
fn query(range: &Range<u64>) -> Result<Vec<(u32, u32)>> {
    let maps = open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut found, mut addr) = (Vec::new(), range.start);
    while addr < range.end {
        let size = size_of::<procmap_query>() as u64;
        let mut q = procmap_query { size, flags: SHARED_FILES, addr, ..procmap_query::default() };
        // SAFETY: the structure asks for no name and no build id, and so names no memory.
        match unsafe { ioctl::exchange(maps.as_raw_fd(), PROCMAP_QUERY, &mut q) } {
            Ok(_) if q.vma_start < range.end => found.push((q.dev_major, q.dev_minor)),
            Ok(_) | Err(Errno::ENOENT) => break,
            Err(e) => return Err(e),
        }
        addr = q.vma_end;
    }
    Ok(found)
}

/// Returns all mappings, in the order of their addresses.
fn mappings() -> Option<Vec<Mapping>> {
    let text = softring_host::files::proc_text("/proc/self/maps")?;
    Some(text.lines().filter_map(Mapping::parse).collect())
}

impl Mapping {
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (mode, _, device) = (words.next()?.as_bytes(), words.next()?, words.next()?);
        let (major, minor) = device.split_once(':')?;
        let hex = |s| u64::from_str_radix(s, 16).ok();
        Some(Mapping {
            range: hex(start)?..hex(end)?,
            writable: mode.get(1) == Some(&b'w'),
            shared: mode.get(3) == Some(&b's'),
            device: (hex(major)? as u32, hex(minor)? as u32),
        })
    }
}

/// Returns whether the file system on a device needs notice of writes. One that is mounted nowhere
/// is the kernel's own: of memfds, of shared memory.
fn needs_write_notice(device: (u32, u32)) -> bool {
    let text = softring_host::files::proc_text("/proc/self/mountinfo").unwrap_or_default();
    let own = device.0 == 0;
    kind_of(&text, device).map_or(!own, |kind| !WITHOUT_NOTICE.contains(&kind))
}

/// Returns the type of the file system on a device, from the text of `/proc/self/mountinfo`.
fn kind_of(text: &str, device: (u32, u32)) -> Option<&str> {
    let name = format!("{}:{}", device.0, device.1);
    let line = text.lines().find(|l| l.split(' ').nth(2) == Some(&*name))?;
    line.split_once(" - ")?.1.split(' ').next()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc() {
        let line = "7f12-8000 rw-s 00001000 fe:0a 12  /a b\n";
        let want =
            Mapping { range: 0x7f12..0x8000, writable: true, shared: true, device: (0xfe, 10) };
        assert_eq!(Mapping::parse(line), Some(want));
        assert_eq!(Mapping::parse("7f12 rw-p"), None);
        let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      23 22 0:21 / /dev/shm rw - tmpfs tmpfs rw\n";
        assert_eq!(kind_of(mounts, (0, 21)), Some("tmpfs"));
        assert_eq!(kind_of(mounts, (254, 0)), Some("ext4"));
        assert_eq!(kind_of(mounts, (254, 1)), None);
    }

    #[test]
    fn both_queries_find_the_same_mappings() {
        use softring_host::os::fd::AsFd;
        // The text of the mappings has a name that is not UTF-8.
        let file = rustix::fs::memfd_create(c"f\x9b", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let number = softring_host::sys::borrow(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
        let mapped = Region::map(number.as_fd(), 0, 4096).unwrap();
        let at = mapped.addr() as u64;
        let range = at..at + 4096;
        let line = mappings().unwrap().into_iter().find(|m| m.range.contains(&at)).unwrap();
        assert!(line.shared && line.writable);
        assert!(query(&range).is_ok_and(|q| q == [line.device]) || query(&range).is_err());
        assert!(!needs_write_notice(line.device));
    }
}
