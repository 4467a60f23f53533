//! File systems by device number: whether their files lie in memory, or on a disk of this machine.
//! fstatfs(2) is asked once for a device, and again now and then: a device number without a disk
//! may come to mean another file system.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::os::fd::BorrowedFd;
use crate::os::fs::StatFs;

use crate::fd::file_systems::{ENTRIES, KNOWN};

/// Kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    /// Memory only (tmpfs, ramfs): no call on its files waits.
    Memory,
    /// A disk of this machine: the status of an open file is in memory.
    Local,
    /// Any other, as one of a server or of a process (NFS, FUSE).
    Other,
}

/// Uses of an entry after which the kernel is asked again.
const TRUSTED: u64 = 256;

/// Remembered file systems: the device number in the upper half, below it the kind plus one, and
/// the uses in the lowest 16 bits. 0: free. A lost update costs one call.
const MOUNTS: &[AtomicU64; ENTRIES] = &KNOWN.mounts;

/// `TMPFS_MAGIC`, `RAMFS_MAGIC`.
const MEMORY_MAGICS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// `EXT4_SUPER_MAGIC` (ext2 to ext4), `XFS_SUPER_MAGIC`, `BTRFS_SUPER_MAGIC`, `F2FS_SUPER_MAGIC`,
/// `OVERLAYFS_SUPER_MAGIC`, `SQUASHFS_MAGIC`, `EROFS_SUPER_MAGIC_V1`.
const LOCAL_MAGICS: [u64; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x794c_7630, 0x7371_7368, 0xe0f5_e1e2];

const KINDS: [Mount; 3] = [Mount::Memory, Mount::Local, Mount::Other];

/// Returns whether the file system is in memory.
pub fn in_memory(s: &StatFs) -> bool {
    MEMORY_MAGICS.contains(&(s.f_type as u64))
}

/// Returns the kind of file system that the open file `fd` is on, whose device number (`st_dev`) is
/// `device`.
pub fn of(fd: BorrowedFd<'_>, device: u64) -> Mount {
    let Some(number) = u32::try_from(device).ok().filter(|&number| number != 0) else {
        return ask(fd).unwrap_or(Mount::Other);
    };
    let is_its = |entry: &&AtomicU64| (entry.load(Relaxed) >> 32) as u32 == number;
    if let Some(entry) = MOUNTS.iter().find(is_its) {
        let word = entry.load(Relaxed);
        let known = (word >> 16 & 0xff).checked_sub(1).and_then(|i| KINDS.get(i as usize));
        if let Some(&mount) = known.filter(|_| word & 0xffff < TRUSTED) {
            entry.store(word + 1, Relaxed);
            return mount;
        }
        entry.store(0, Relaxed);
    }
    let Some(mount) = ask(fd) else { return Mount::Other };
    // The first free entry, or one of the others.
    let free = MOUNTS.iter().find(|entry| entry.load(Relaxed) == 0);
    let entry = free.unwrap_or(&MOUNTS[number as usize % ENTRIES]);
    entry.store(u64::from(number) << 32 | (mount as u64 + 1) << 16, Relaxed);
    mount
}

fn ask(fd: BorrowedFd<'_>) -> Option<Mount> {
    let stat = crate::substitute::statfs(fd).ok()?;
    Some(match stat.f_type as u64 {
        _ if in_memory(&stat) => Mount::Memory,
        magic if LOCAL_MAGICS.contains(&magic) => Mount::Local,
        _ => Mount::Other,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::os::fd::{AsFd, OwnedFd};
    use crate::os::fs::{Mode, OFlags, fstat, open};

    fn file(path: &str) -> OwnedFd {
        open(path, OFlags::RDONLY, Mode::empty()).unwrap()
    }

    fn mount(path: &str) -> Mount {
        let file = file(path);
        of(file.as_fd(), fstat(&file).unwrap().st_dev)
    }

    #[test]
    fn a_file_system_is_known_by_its_device() {
        for _ in 0..3 * TRUSTED {
            assert_eq!(mount("/proc/self/status"), Mount::Other);
            assert_eq!(mount("/dev/shm"), Mount::Memory);
        }
    }

    #[test]
    fn more_file_systems_than_entries_are_told_apart() {
        let file = file("/proc/self/status");
        for device in 1..100 {
            assert_eq!(of(file.as_fd(), 1 << 20 | device), Mount::Other);
        }
        assert_eq!(of(file.as_fd(), u64::MAX), Mount::Other);
    }
}
