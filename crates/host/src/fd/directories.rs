//! Directories in which files were opened, by path: the file system that each is on, if opens that
//! create a file may be quick there. An open names no file system, and to ask for one takes as long
//! as the open. A path may come to mean another directory: the next open there may wait.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::fd::file_systems::{self, KNOWN, WrittenOn};
use crate::fd::mounts::{self, Mount};
use crate::os::fd::AsFd;
use crate::os::fs::FileType;
use crate::sys::borrow;

/// Directories that are remembered, as a power of two.
const BITS: u32 = 7;

/// Remembered directories: a hash of the path, and in the lowest byte the file system. 0: free. A
/// lost update costs what another open learns.
pub(crate) type Directories = [AtomicU64; 1 << BITS];

/// Directory of a path, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory(u64);

impl Directory {
    /// Returns the directory in which a path names a file. One path may have several, and several
    /// one, which then share an entry in turns.
    pub fn of(path: &[u8]) -> Self {
        /// The hash is FNV-1a.
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let end = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let hash = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(PRIME);
        Directory(path[..end].iter().fold(BASIS, hash) & !0xff)
    }

    fn entry(self) -> &'static AtomicU64 {
        /// Spreads hashes of names that differ by a digit: 2^64 by the golden ratio.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        &KNOWN.directories[(self.0.wrapping_mul(SPREAD) >> (u64::BITS - BITS)) as usize]
    }

    /// Returns the file system, which has no record if opens there may wait for others; `None` if
    /// it is not known.
    pub fn file_system(self) -> Option<WrittenOn> {
        let entry = self.entry().load(Relaxed);
        (entry & !0xff == self.0).then(|| WrittenOn::from_code(entry as u8))
    }

    /// Learns the file system of a file that was opened there, on a disk of this machine or in
    /// memory: of a regular one, as devices have a directory of their own, and wait as they like.
    pub fn learn(self, fd: i32) {
        let Some(fd) = borrow(fd) else { return };
        let Ok(stat) = crate::substitute::fstat(fd) else { return };
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let on = match regular && mounts::of(fd.as_fd(), stat.st_dev) != Mount::Other {
            true => file_systems::find(stat.st_dev),
            false => WrittenOn::default(),
        };
        self.entry().store(self.0 | u64::from(on.code()), Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::os::fd::AsRawFd;
    use crate::os::fs::{Mode, OFlags, open};

    #[test]
    fn a_directory_is_known_by_the_file_system_of_its_files() {
        let dir = Directory::of(b"/some/where/file");
        assert_eq!(dir, Directory::of(b"/some/where/else"));
        assert_ne!(dir, Directory::of(b"/some/where/else/file"));
        assert_ne!(dir, Directory::of(b"file"));
        assert!(dir.file_system().is_none());
        let learns = |fd: i32| {
            dir.learn(fd);
            dir.file_system().unwrap().record().is_some()
        };
        let opened = |path: &str| open(path, OFlags::RDONLY, Mode::empty()).unwrap();
        assert!(!learns(opened("/proc/self/status").as_raw_fd()));
        assert!(!learns(opened("/dev/shm").as_raw_fd()));
        assert!(learns(crate::substitute::memory_file("directories").unwrap().as_raw_fd()));
    }

    #[test]
    fn names_that_differ_by_a_digit_have_entries_of_their_own() {
        let of = |n: u32| Directory::of(alloc::format!("/tmp/task{n}/file").as_bytes());
        let mut entries: alloc::vec::Vec<_> = (0..32).map(|n| of(n).entry().as_ptr()).collect();
        entries.sort();
        entries.dedup();
        assert!(entries.len() > 20, "{}", entries.len());
    }
}
