//! Files on modelled devices: moving their data without waiting for the real device.
//!
//! A file in memory is read and written under the program's own number. So is a buffered file; a
//! read that the page cache cannot answer goes to a worker. A file opened with O_DIRECT would wait
//! for its device, so it gets a *twin*: a second description of the same file, opened through
//! `/proc/self/fd` without O_DIRECT and otherwise with the same flags. The page cache and direct
//! I/O agree: before a direct read the kernel writes back dirty pages of the range, and after a
//! direct write it drops cached pages of the range. Transfers that direct I/O would refuse (a
//! misaligned address or offset) and those that only direct I/O can do (RWF_ATOMIC) run under the
//! program's own number on a worker. So does everything on a file for which no twin can be opened.
//!
//! A twin is found by device, inode and flags. They are queried anew in each batch, as the number
//! may have been closed and reused unseen; within a batch `host::fd::remembered::generation` tells.
//! The twin is dropped when the program closes the file, or when too many other files came.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use softring_host::os::fd::{AsFd, AsRawFd};
use softring_host::os::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};

use crate::io::kinds::modelled;
use crate::io::of_process::PROCESS;
use softring_host::calls::{Part, Parts, ReadPtr, UserPtr, files};
use softring_host::fd::kind::Kind;
use softring_host::fd::mounts::{self, Mount};
use softring_host::fd::remembered::changed;
use softring_host::fd::{InternalFd, forget_kind, make_internal_opened};
use softring_host::limits::MODELLED_FILES;
use softring_host::sync::real::{Mutex, MutexGuard};
use softring_host::sys;
use softring_uapi::RWF_NOWAIT;

/// Identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    device: u64,
    inode: u64,
    flags: OFlags,
}

/// A file on a modelled device.
#[derive(Debug)]
pub(crate) struct File {
    id: Id,
    /// The device's number.
    pub(crate) device: u8,
    /// Way in which data moves: `Memory`, `Buffered`, or `Direct` if only the file's own
    /// description can be used.
    pub(crate) kind: Kind,
    /// The twin.
    pub(crate) twin: Option<Arc<InternalFd>>,
    /// Flag, set if opened with O_DIRECT.
    pub(crate) direct: bool,
    /// Alignment of O_DIRECT: of addresses, and of offsets and lengths.
    align: [u64; 2],
    /// Size in bytes when the file was first seen; of a device, no bound. For models that move no
    /// data.
    size: u64,
}

/// The modelled file that was found last in the current batch.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) fd: i32,
    pub(crate) generation: u32,
    pub(crate) file: Option<Arc<File>>,
}

#[derive(Debug)]
pub(crate) struct Table {
    files: Vec<Arc<File>>,
    next: usize,
}

/// Table of a process's modelled files.
#[derive(Debug)]
pub(crate) struct OfProcess(Mutex<Table>);

impl OfProcess {
    pub(crate) const fn new() -> Self {
        OfProcess(Mutex::new(Table { files: Vec::new(), next: 0 }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }
}

/// Drops the twins of a modelled file whose number the program closes.
pub(crate) fn closing(fd: i32) {
    if let Some(id) = identify(fd) {
        let gone: Vec<_> = {
            let mut table = PROCESS.modelled_files.lock();
            let same = |f: &Arc<File>| (f.id.device, f.id.inode) == (id.device, id.inode);
            let all = core::mem::take(&mut table.files);
            let (gone, left) = all.into_iter().partition(same);
            table.files = left;
            gone
        };
        // Drop the twins without the lock.
        drop(gone);
    }
    changed();
}

fn identify(fd: i32) -> Option<Id> {
    let fd = sys::borrow(fd)?;
    let (stat, flags) =
        (softring_host::substitute::fstat(fd).ok()?, softring_host::os::fs::fcntl_getfl(fd).ok()?);
    Some(Id { device: stat.st_dev, inode: stat.st_ino, flags })
}

/// Returns the modelled file that the program's number means, if any.
pub(crate) fn find(fd: i32) -> Option<Arc<File>> {
    let number = modelled(fd)?;
    let id = identify(fd)?;
    if let Some(f) =
        PROCESS.modelled_files.lock().files.iter().find(|f| f.id == id && f.device == number)
    {
        return Some(f.clone());
    }
    // First use, or the number means another file by now.
    forget_kind(fd);
    let number = modelled(fd)?;
    let file = Arc::new(File::open(fd, id, number));
    let mut table = PROCESS.modelled_files.lock();
    let old = if table.files.len() < MODELLED_FILES {
        table.files.push(file.clone());
        None
    } else {
        let at = table.next % MODELLED_FILES;
        table.next = at + 1;
        Some(core::mem::replace(&mut table.files[at], file.clone()))
    };
    drop(table);
    drop(old);
    Some(file)
}

/// Returns the modelled file of a number of the engine's own in a table of registered files.
pub(crate) fn registered(fd: i32) -> Option<Arc<File>> {
    let number = super::of_fd(fd)?;
    match Kind::of(fd) {
        Kind::Buffered | Kind::Memory | Kind::Direct => {
            Some(Arc::new(File::open(fd, identify(fd)?, number)))
        }
        _ => None,
    }
}

/// A plain read or write: its memory, and its offset in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) addr: UserPtr,
    pub(crate) len: u32,
    pub(crate) offset: u64,
    pub(crate) writes: bool,
}

impl File {
    fn open(fd: i32, id: Id, device: u8) -> File {
        let borrowed = sys::borrow(fd);
        let direct = id.flags.contains(OFlags::DIRECT);
        let memory = borrowed.is_some_and(|f| mounts::of(f.as_fd(), id.device) == Mount::Memory);
        let twin = if direct && !memory { twin(fd, id.flags) } else { None };
        let kind = match (memory, direct && twin.is_none()) {
            (true, _) => Kind::Memory,
            (false, true) => Kind::Direct,
            (false, false) => Kind::Buffered,
        };
        let align = if direct && !memory { alignment(fd) } else { [1; 2] };
        let stat = borrowed.and_then(|f| softring_host::substitute::fstat(f).ok());
        let regular = stat.filter(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile);
        let size = regular.map_or(u64::MAX, |s| s.st_size.cast_unsigned());
        File { id, device, kind, twin: twin.map(Arc::new), direct, align, size }
    }

    /// Returns whether the file would take the transfer with O_DIRECT.
    pub(crate) fn fits(&self, addr: u64, offset: u64, len: u64) -> bool {
        let [memory, place] = self.align;
        addr.is_multiple_of(memory) && (offset | len).is_multiple_of(place)
    }

    /// Returns the number to move data under; `own` is the program's, or the table's.
    pub(crate) fn number(&self, own: i32) -> i32 {
        self.twin.as_ref().map_or(own, |t| t.as_raw_fd())
    }

    /// Moves the data of a plain read or write; `None` if a worker has to do it.
    #[inline]
    pub(crate) fn transfer(&self, own: i32, of: Transfer) -> Option<i32> {
        let Transfer { addr, len, offset, writes } = of;
        let (fd, len) = (self.number(own), len as usize);
        let n = match self.kind {
            Kind::Direct => return None,
            _ if writes => files::pwrite(fd, ReadPtr(addr.addr()), len, offset),
            Kind::Memory => files::pread(fd, addr, len, offset),
            _ => {
                let part = Part::new(addr, len as u64);
                let parts = Parts::one(&part);
                softring_host::substitute::transfer(false, fd, parts, offset, RWF_NOWAIT)
            }
        }
        .ok()?;
        // A write that was cut short has been made; a short read is repeated.
        let enough = if writes { n > 0 } else { n == len };
        enough.then_some(n as i32)
    }

    /// Returns the result of a transfer that moves no data: a read ends at the end of the file.
    pub(crate) fn pretend(&self, write: bool, offset: u64, len: u64) -> i32 {
        let most = if write { len } else { self.size.saturating_sub(offset) };
        len.min(most) as i32
    }
}

/// Opens a second description without O_DIRECT.
fn twin(fd: i32, flags: OFlags) -> Option<InternalFd> {
    let opening = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::DIRECT;
    let flags = (flags - opening) | OFlags::CLOEXEC | OFlags::NOCTTY;
    let path = format!("/proc/thread-self/fd/{fd}");
    let twin = softring_host::os::fs::open(path, flags, Mode::empty()).ok()?;
    Some(make_internal_opened(twin))
}

/// Returns the alignment that O_DIRECT needs, of addresses, and of offsets and lengths; a sector if
/// the kernel does not report it.
fn alignment(fd: i32) -> [u64; 2] {
    const SECTOR: u64 = 512;
    /// `STATX_DIOALIGN`.
    const DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);
    let Some(fd) = sys::borrow(fd) else { return [SECTOR; 2] };
    match softring_host::os::fs::statx(fd, c"", AtFlags::EMPTY_PATH, DIOALIGN) {
        Ok(s) if s.stx_mask & DIOALIGN.bits() != 0 && s.stx_dio_offset_align != 0 => {
            [s.stx_dio_mem_align, s.stx_dio_offset_align].map(|n| u64::from(n).max(1))
        }
        _ => [SECTOR; 2],
    }
}
