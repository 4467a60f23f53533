//! Kinds of files, as far as routing must know them.

use crate::os::fd::{AsFd, AsRawFd};
use crate::os::fs::{FileType, OFlags};

use crate::fd::mounts::{self, Mount};
use crate::fd::numbers::closes_reported;
use crate::fd::remembered;
use crate::sys::{Number, borrow};

/// Behaviour of I/O on a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// File that was not probed.
    #[default]
    Unknown,
    /// Regular file or block device, buffered: `RWF_NOWAIT` tells whether it would block.
    Buffered,
    /// File on a file system in memory, also if opened with O_DIRECT: it knows no `RWF_NOWAIT`, but
    /// plain calls do not block.
    Memory,
    /// Regular file or block device opened with O_DIRECT: kernel aio is asynchronous, or reports
    /// that it cannot be.
    Direct,
    /// Pipe, socket, tty, eventfd …: waits for readiness.
    Pollable,
    /// Everything else (directories, devices without poll): may block.
    Other,
}

/// Answer of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Code of the kind, as [`Kind::from_code`] takes it.
    pub code: u8,
    /// Device number of the file system, if the file is a buffered one on a disk of this machine,
    /// open for writes that need not reach the disk.
    pub written_on: Option<u64>,
}

/// `PROC_SUPER_MAGIC`, `SYSFS_MAGIC`, `DEBUGFS_MAGIC`, `TRACEFS_MAGIC`, `CGROUP_SUPER_MAGIC`,
/// `CGROUP2_SUPER_MAGIC`, `SECURITYFS_MAGIC`, `CONFIGFS_MAGIC`, `BPF_FS_MAGIC`.
const KERNEL_MAGICS: [u64; 9] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x27_e0eb,
    0x6367_7270,
    0x7363_6673,
    0x6265_6570,
    0xcafe_4a11,
];

/// Returns whether the file system shows the kernel's own state and stores nothing.
pub fn of_kernel(s: &crate::os::fs::StatFs) -> bool {
    KERNEL_MAGICS.contains(&(s.f_type as u64))
}

impl Kind {
    /// Kinds by code. The last two stand for files on a disk of this machine.
    const ALL: [Kind; 8] = [
        Kind::Unknown,
        Kind::Buffered,
        Kind::Memory,
        Kind::Direct,
        Kind::Pollable,
        Kind::Other,
        Kind::Buffered,
        Kind::Direct,
    ];
    const BUFFERED_LOCAL: u8 = 6;
    const DIRECT_LOCAL: u8 = 7;

    /// Returns whether the file is on a file system or is a block device: nobody waits for its end.
    pub fn is_file(self) -> bool {
        matches!(self, Kind::Buffered | Kind::Memory | Kind::Direct)
    }

    /// Returns the kind as a byte; 0: unknown.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the kind of a byte; `None` for unknown.
    pub fn from_code(code: u8) -> Option<Kind> {
        if code == 0 { None } else { Self::ALL.get(code as usize).copied() }
    }

    /// Returns whether a code says that the file's status is in this machine's memory.
    pub const fn is_local(code: u8) -> bool {
        matches!(code, Self::BUFFERED_LOCAL | Self::DIRECT_LOCAL) || code == Kind::Memory.code()
    }

    /// Probes a descriptor: two or three system calls.
    pub fn of(fd: i32) -> Kind {
        Self::from_code(Self::probe(fd).code).unwrap_or_default()
    }

    /// Probes a descriptor for its code, which tells local files, too; 0 where nothing is known.
    pub fn probe(fd: i32) -> Probed {
        let Some(fd) = borrow(fd) else { return Probed::default() };
        let Ok(stat) = crate::substitute::fstat(fd) else { return Probed::default() };
        let (mut kind, mut local, mut written_on) = (Kind::Other, false, None);
        match FileType::from_raw_mode(stat.st_mode) {
            // A device's name may be on a file system in memory; its data are not.
            FileType::RegularFile => match mounts::of(fd.as_fd(), stat.st_dev) {
                Mount::Memory => kind = Kind::Memory,
                mount => {
                    let writable;
                    (kind, writable) = Self::of_disk(fd);
                    local = mount == Mount::Local;
                    let buffered = local && writable && kind == Kind::Buffered;
                    written_on = buffered.then_some(stat.st_dev);
                }
            },
            FileType::BlockDevice => (kind, _) = Self::of_disk(fd),
            FileType::Fifo | FileType::Socket => kind = Kind::Pollable,
            FileType::CharacterDevice | FileType::Unknown => kind = Kind::Pollable,
            _ => {}
        }
        Probed { code: if local { kind.local_code() } else { kind.code() }, written_on }
    }

    const fn local_code(self) -> u8 {
        match self {
            Kind::Buffered => Self::BUFFERED_LOCAL,
            Kind::Direct => Self::DIRECT_LOCAL,
            other => other.code(),
        }
    }

    /// Returns the kind of a file that is no file in memory, and whether it is open for writes that
    /// need not reach the disk.
    fn of_disk(fd: Number) -> (Kind, bool) {
        let known = remembered::flags(fd.as_fd().as_raw_fd()).filter(|_| closes_reported());
        let Some(flags) = known.or_else(|| crate::os::fs::fcntl_getfl(fd).ok()) else {
            return (Kind::Unknown, false);
        };
        let kind = if flags.contains(OFlags::DIRECT) { Kind::Direct } else { Kind::Buffered };
        let read_only = flags & OFlags::RWMODE == OFlags::RDONLY;
        (kind, !read_only && !flags.intersects(OFlags::SYNC | OFlags::DSYNC))
    }
}

/// Returns whether the descriptor is a socket.
pub fn is_socket(fd: i32) -> bool {
    crate::substitute::file_type(fd) == Some(FileType::Socket)
}
