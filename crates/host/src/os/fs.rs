//! Files and folders.
#![allow(unsafe_code)]

use alloc::vec;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::mem::MaybeUninit;

use super::fd::{AsFd, AsRawFd, OwnedFd};
use super::io::made;
use super::kernel;
use super::path::Path;
use crate::raw::nr;
use softring_uapi::errno::Result;
use softring_uapi::flag_set;

pub use crate::raw::nr::{stat as Stat, statfs as StatFs, statx as Statx};

const F_GETFL: u32 = 3;
const F_ADD_SEALS: u32 = 1033;
const F_GET_SEALS: u32 = 1034;
const SEEK_SET: u32 = 0;
const SEEK_CUR: u32 = 1;
const AT_FDCWD: i32 = -100;

flag_set! {
    /// Flags of open(2).
    pub struct OFlags: u32 {
        const RDONLY = nr::O_RDONLY;
        const WRONLY = nr::O_WRONLY;
        const RDWR = nr::O_RDWR;
        /// The mask of these three.
        const RWMODE = nr::O_ACCMODE;
        /// The same, with `PATH`.
        const ACCMODE = nr::O_ACCMODE | nr::O_PATH;
        const APPEND = nr::O_APPEND;
        const CLOEXEC = nr::O_CLOEXEC;
        const CREATE = nr::O_CREAT;
        const DIRECT = nr::O_DIRECT;
        const DIRECTORY = nr::O_DIRECTORY;
        const DSYNC = nr::O_DSYNC;
        const EXCL = nr::O_EXCL;
        const NOCTTY = nr::O_NOCTTY;
        const NONBLOCK = nr::O_NONBLOCK;
        const PATH = nr::O_PATH;
        const SYNC = nr::O_SYNC;
        const TMPFILE = nr::O_TMPFILE;
        const TRUNC = nr::O_TRUNC;
    }
}

flag_set! {
    /// Permissions of a file.
    pub struct Mode: u32 {
        const RUSR = nr::S_IRUSR;
        const WUSR = nr::S_IWUSR;
    }
}

impl Mode {
    /// Returns the permissions in a file's mode.
    pub const fn from_raw_mode(mode: u32) -> Mode {
        Mode::from_bits_retain(mode & 0o7777)
    }
}

flag_set! {
    /// Flags of calls that end in `at`.
    pub struct AtFlags: u32 {
        const EMPTY_PATH = nr::AT_EMPTY_PATH;
        const SYMLINK_NOFOLLOW = nr::AT_SYMLINK_NOFOLLOW;
    }
}

flag_set! {
    /// Fields to ask statx(2) for.
    pub struct StatxFlags: u32 {
        const BASIC_STATS = nr::STATX_BASIC_STATS;
    }
}

flag_set! {
    /// Seals of a file in memory.
    pub struct SealFlags: u32 {
        const SEAL = nr::F_SEAL_SEAL;
        const SHRINK = nr::F_SEAL_SHRINK;
        const GROW = nr::F_SEAL_GROW;
        const WRITE = nr::F_SEAL_WRITE;
        const FUTURE_WRITE = nr::F_SEAL_FUTURE_WRITE;
    }
}

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileType {
    RegularFile,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    Unknown,
}

impl FileType {
    /// Returns the type in a file's mode.
    pub const fn from_raw_mode(mode: u32) -> FileType {
        match mode & nr::S_IFMT {
            nr::S_IFREG => FileType::RegularFile,
            nr::S_IFDIR => FileType::Directory,
            nr::S_IFLNK => FileType::Symlink,
            nr::S_IFIFO => FileType::Fifo,
            nr::S_IFSOCK => FileType::Socket,
            nr::S_IFCHR => FileType::CharacterDevice,
            nr::S_IFBLK => FileType::BlockDevice,
            _ => FileType::Unknown,
        }
    }
}

/// Returns the number of a device's driver.
pub const fn major(device: u64) -> u32 {
    ((device >> 32 & 0xffff_f000) | (device >> 8 & 0xfff)) as u32
}

/// Returns the number of a device among its driver's.
pub const fn minor(device: u64) -> u32 {
    ((device >> 12 & 0xffff_ff00) | (device & 0xff)) as u32
}

/// Returns the number of a device.
pub const fn makedev(major: u32, minor: u32) -> u64 {
    let (major, minor) = (major as u64, minor as u64);
    (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
}

/// Opens a file as open(2) does, by openat(2): every dynamic linker of glibc's makes this call, so
/// no policy kills for it.
///
/// # Errors
/// As the call.
pub fn open(path: impl Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    path.with(|path| {
        let (path, flags) = (path.as_ptr().expose_provenance(), flags.bits() | nr::O_LARGEFILE);
        // SAFETY: the kernel reads the path; the answer is a descriptor for us.
        unsafe { made(kernel!(__NR_openat, AT_FDCWD, path, flags, mode.bits())) }
    })
}

/// Returns the target of a symbolic link.
///
/// # Errors
/// As readlink(2).
pub fn readlink(path: impl Path) -> Result<Vec<u8>> {
    path.with(|path| {
        let mut target = vec![0; 256];
        loop {
            let to = target.as_mut_ptr().expose_provenance();
            let path = path.as_ptr().expose_provenance();
            // SAFETY: the bytes are ours, and the kernel is told how many.
            let n = unsafe { kernel!(__NR_readlinkat, AT_FDCWD, path, to, target.len()) }?;
            if n < target.len() {
                target.truncate(n);
                return Ok(target);
            }
            target.resize(2 * n, 0);
        }
    })
}

/// Removes a name: unlink(2).
///
/// # Errors
/// As the call.
pub(crate) fn unlink(path: impl Path) -> Result<()> {
    path.with(|path| {
        // SAFETY: the kernel reads the path.
        unsafe { kernel!(__NR_unlinkat, AT_FDCWD, path.as_ptr().expose_provenance(), 0) }.map(drop)
    })
}

/// Makes an empty file that only its owner may read: mknod(2).
///
/// # Errors
/// As the call.
pub(crate) fn make_file(path: impl Path) -> Result<()> {
    path.with(|path| {
        let (path, mode) = (path.as_ptr().expose_provenance(), nr::S_IFREG | nr::S_IRUSR);
        // SAFETY: the kernel reads the path.
        unsafe { kernel!(__NR_mknodat, AT_FDCWD, path, mode, 0) }.map(drop)
    })
}

/// Returns what a call has written to `to`.
///
/// # Safety
/// The call writes all of a `T`, or fails, and any bytes are one.
unsafe fn filled<T>(call: impl FnOnce(usize) -> Result<usize>) -> Result<T> {
    let mut to = MaybeUninit::<T>::uninit();
    call(to.as_mut_ptr().expose_provenance())?;
    // SAFETY: the caller's.
    Ok(unsafe { to.assume_init() })
}

/// Calls fstat(2).
///
/// # Errors
/// As the call.
pub fn fstat(fd: impl AsFd) -> Result<Stat> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel fills the structure, of numbers, which is ours.
    unsafe { filled(|to| kernel!(__NR_fstat, fd, to)) }
}

fn stat_at(folder: i32, path: &CStr, flags: AtFlags) -> Result<Stat> {
    let path = path.as_ptr().expose_provenance();
    // SAFETY: as above; the kernel reads the path.
    unsafe { filled(|to| kernel!(__NR_newfstatat, folder, path, to, flags.bits())) }
}

/// Calls stat(2).
///
/// # Errors
/// As the call.
pub fn stat(path: impl Path) -> Result<Stat> {
    path.with(|path| stat_at(AT_FDCWD, path, AtFlags::empty()))
}

/// Calls lstat(2).
///
/// # Errors
/// As the call.
pub(crate) fn lstat(path: impl Path) -> Result<Stat> {
    path.with(|path| stat_at(AT_FDCWD, path, AtFlags::SYMLINK_NOFOLLOW))
}

/// Calls newfstatat(2).
///
/// # Errors
/// As the call.
pub(crate) fn statat(folder: impl AsFd, path: &CStr, flags: AtFlags) -> Result<Stat> {
    stat_at(folder.as_fd().as_raw_fd(), path, flags)
}

/// Calls statx(2).
///
/// # Errors
/// As the call.
pub fn statx(folder: impl AsFd, path: &CStr, flags: AtFlags, mask: StatxFlags) -> Result<Statx> {
    let (folder, path) = (folder.as_fd().as_raw_fd(), path.as_ptr().expose_provenance());
    // SAFETY: as in `stat_at`; the structure has room for all that a kernel will ever report.
    unsafe { filled(|to| kernel!(__NR_statx, folder, path, flags.bits(), mask.bits(), to)) }
}

/// Calls fstatfs(2).
///
/// # Errors
/// As the call.
pub(crate) fn fstatfs(fd: impl AsFd) -> Result<StatFs> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: as in `fstat`.
    unsafe { filled(|to| kernel!(__NR_fstatfs, fd, to)) }
}

/// Returns the flags of an open file.
///
/// # Errors
/// As fcntl(2).
#[inline]
pub fn fcntl_getfl(fd: impl AsFd) -> Result<OFlags> {
    // SAFETY: numbers.
    let flags = unsafe { kernel!(__NR_fcntl, fd.as_fd().as_raw_fd(), F_GETFL) };
    flags.map(|flags| OFlags::from_bits_retain(flags as u32))
}

/// Adds seals to a file in memory.
///
/// # Errors
/// As fcntl(2).
pub fn fcntl_add_seals(fd: impl AsFd, seals: SealFlags) -> Result<()> {
    // SAFETY: numbers.
    unsafe { kernel!(__NR_fcntl, fd.as_fd().as_raw_fd(), F_ADD_SEALS, seals.bits()) }.map(drop)
}

/// Returns the seals of a file in memory.
///
/// # Errors
/// As fcntl(2).
pub fn fcntl_get_seals(fd: impl AsFd) -> Result<SealFlags> {
    // SAFETY: numbers.
    let seals = unsafe { kernel!(__NR_fcntl, fd.as_fd().as_raw_fd(), F_GET_SEALS) };
    seals.map(|seals| SealFlags::from_bits_retain(seals as u32))
}

/// Sets the position of an open file, from its start.
///
/// # Errors
/// As lseek(2).
pub fn seek_to(fd: impl AsFd, at: u64) -> Result<()> {
    // SAFETY: numbers.
    unsafe { kernel!(__NR_lseek, fd.as_fd().as_raw_fd(), at, SEEK_SET) }.map(drop)
}

/// Returns the position of an open file.
///
/// # Errors
/// As lseek(2).
pub(crate) fn tell(fd: impl AsFd) -> Result<u64> {
    // SAFETY: numbers.
    unsafe { kernel!(__NR_lseek, fd.as_fd().as_raw_fd(), 0, SEEK_CUR) }.map(|at| at as u64)
}

/// Names in an open folder, read in steps. Allocates no memory.
#[derive(Debug)]
pub struct RawDir<'a, F: AsFd> {
    folder: F,
    room: &'a mut [MaybeUninit<u8>],
    /// Next entry, and the end of those that were read.
    at: usize,
    end: usize,
}

/// Entry of a folder.
#[derive(Debug)]
pub struct Entry<'a>(&'a CStr);

impl Entry<'_> {
    pub fn file_name(&self) -> &CStr {
        self.0
    }
}

impl<'a, F: AsFd> RawDir<'a, F> {
    /// Bytes of an entry in front of its name (`struct linux_dirent64`).
    const NAME: usize = 19;
    /// Bytes in front of its length.
    const LEN: usize = 16;

    /// Reads through `room`, which takes at least the longest name.
    pub fn new(folder: F, room: &'a mut [MaybeUninit<u8>]) -> Self {
        RawDir { folder, room, at: 0, end: 0 }
    }

    /// Returns the next entry.
    ///
    /// # Errors
    /// As getdents64(2).
    #[expect(clippy::should_implement_trait, reason = "an entry borrows the room")]
    pub fn next(&mut self) -> Option<Result<Entry<'_>>> {
        if self.at == self.end {
            let (to, len) = (self.room.as_mut_ptr().expose_provenance(), self.room.len());
            let folder = self.folder.as_fd().as_raw_fd();
            // SAFETY: the room is the caller's, and the kernel is told how long it is.
            match unsafe { kernel!(__NR_getdents64, folder, to, len) } {
                Ok(0) => return None,
                Ok(n) => (self.at, self.end) = (0, n),
                Err(e) => return Some(Err(e)),
            }
        }
        // SAFETY: what the kernel has written.
        let read = unsafe {
            let start = self.room.as_ptr().cast::<u8>();
            core::slice::from_raw_parts(start.add(self.at), self.end - self.at)
        };
        let len = u16::from_ne_bytes([read[Self::LEN], read[Self::LEN + 1]]);
        self.at += usize::from(len);
        let name = CStr::from_bytes_until_nul(&read[Self::NAME..usize::from(len)]);
        Some(Ok(Entry(name.unwrap_or_default())))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_as_the_kernel_does() {
        for numbers in [(8, 1), (259, 0x12345), (0xabcde, 0xfedcb), (u32::MAX, u32::MAX)] {
            let made = makedev(numbers.0, numbers.1);
            assert_eq!((major(made), minor(made)), numbers);
        }
        let null = stat("/dev/null").unwrap();
        assert_eq!(null.st_rdev, makedev(1, 3));
        assert_eq!(FileType::from_raw_mode(null.st_mode), FileType::CharacterDevice);
    }

    #[test]
    fn a_long_link_is_read_whole() {
        let dir = std::env::temp_dir().join(format!("softring-links-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for len in [1, 255, 256, 257, 4095] {
            let (link, target) = (dir.join("link"), "t".repeat(len));
            std::os::unix::fs::symlink(&target, &link).unwrap();
            assert_eq!(readlink(link.to_str().unwrap()), Ok(target.into_bytes()));
            unlink(link.to_str().unwrap()).unwrap();
        }
        std::fs::remove_dir(&dir).unwrap();
    }
}
