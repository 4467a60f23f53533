//! Does `RWF_NOWAIT` work on this file? Asked of the kernel once per device, and remembered.
//!
//! See preadv2(2).
#![allow(unsafe_code)]

use crate::errno::{Errno, check};
use crate::limits::NOWAIT_CACHE;
use crate::sync::Mutex;
use crate::sys::sys;
use rustix::fd::BorrowedFd;
use rustix::fs::OFlags;

/// What `RWF_NOWAIT` is good for on a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NowaitSupport {
    /// Reads honour it (EAGAIN rather than waiting for the device). tmpfs says EOPNOTSUPP, yet
    /// never waits.
    pub read: bool,
    /// So do buffered writes: XFS, btrfs and block devices; ext4 answers EOPNOTSUPP to a buffered
    /// one.
    pub buffered_write: bool,
}

/// `XFS_SUPER_MAGIC`, `BTRFS_SUPER_MAGIC`, `BDEVFS_MAGIC`: those whose buffered writes take
/// `IOCB_NOWAIT`.
const NOWAIT_WRITERS: [u64; 3] = [0x5846_5342, 0x9123_683e, 0x6264_6576];

type Row = Option<(u64, NowaitSupport)>;

struct Cache {
    rows: [Row; NOWAIT_CACHE],
    next: usize,
}

static CACHE: Mutex<Cache> = Mutex::new(Cache { rows: [None; NOWAIT_CACHE], next: 0 });

/// `RWF_NOWAIT` on the file system (or device) of `fd`. Costs an fstat where that is known already.
pub fn probe_nowait(fd: BorrowedFd<'_>) -> NowaitSupport {
    let Ok(st) = rustix::fs::fstat(fd) else { return NowaitSupport::default() };
    let known = CACHE.lock().rows.iter().flatten().find(|r| r.0 == st.st_dev).map(|r| r.1);
    if let Some(known) = known {
        return known;
    }
    let Some(read) = ask(fd) else { return NowaitSupport::default() };
    let magic = rustix::fs::fstatfs(fd).map_or(0, |s| s.f_type as u64);
    let found = NowaitSupport { read, buffered_write: read && NOWAIT_WRITERS.contains(&magic) };
    let mut c = CACHE.lock();
    let at = c.next;
    c.rows[at] = Some((st.st_dev, found));
    c.next = (at + 1) % NOWAIT_CACHE;
    found
}

/// Reads one byte far beyond any end of file: nothing is read, but the flag is checked first.
/// `None` for a file not open for reading, which tells nothing.
fn ask(fd: BorrowedFd<'_>) -> Option<bool> {
    use rustix::fd::AsRawFd;
    let fl = rustix::fs::fcntl_getfl(fd).ok()?;
    if fl & OFlags::ACCMODE == OFlags::WRONLY || fl.contains(OFlags::PATH) {
        return None;
    }
    let mut byte = 0u8;
    let iov = [(&raw mut byte).expose_provenance(), 1];
    let far = i64::MAX as usize & !0xfff_ffff;
    let at = (&raw const iov).expose_provenance();
    let r = check(sys!(__NR_preadv2, fd.as_raw_fd(), at, 1, far, 0, super::RWF_NOWAIT));
    Some(!matches!(r, Err(Errno::EOPNOTSUPP | Errno::ENOSYS)))
}
