//! A stopped thread: its memory, its descriptors, and the paths that it names.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most bytes of a path.
const PATH_MAX: usize = 4096;
/// Most parts of a vector.
const IOV_MAX: u64 = 1024;
const WORD: usize = size_of::<u64>();

#[derive(Clone, Copy, Debug)]
pub struct Tracee(pub i32);

/// An open file of a program.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    pub at: u64,
    /// Flags as in open(2).
    pub flags: i32,
}

/// A name, and the directory that it is in.
#[derive(Debug)]
pub struct Named {
    pub dir: OwnedFd,
    pub name: OsString,
}

impl Tracee {
    fn proc(self, what: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{what}", self.0))
    }

    /// Reads memory, as much as there is.
    pub fn bytes(self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        let Ok(memory) = File::open(self.proc("mem")) else { return Vec::new() };
        while done < len {
            match memory.read_at(&mut bytes[done..], at + done as u64) {
                Ok(n @ 1..) => done += n,
                _ => break,
            }
        }
        bytes.truncate(done);
        bytes
    }

    pub fn word(self, at: u64) -> Option<u64> {
        self.bytes(at, WORD).try_into().ok().map(u64::from_ne_bytes)
    }

    /// Returns address and length of each part of a vector.
    pub fn vector(self, at: u64, count: u64) -> Vec<(u64, u64)> {
        let bytes = self.bytes(at, 2 * WORD * count.min(IOV_MAX) as usize);
        let word = |part: &[u8]| part.try_into().map_or(0, u64::from_ne_bytes);
        bytes.chunks_exact(2 * WORD).map(|p| (word(&p[..WORD]), word(&p[WORD..]))).collect()
    }

    fn text(self, at: u64) -> Option<OsString> {
        // A string may end just before memory that is not there.
        let to_page = PATH_MAX - at as usize % PATH_MAX;
        let mut bytes = self.bytes(at, to_page);
        if !bytes.contains(&0) {
            bytes.extend(self.bytes(at + to_page as u64, PATH_MAX));
        }
        bytes.truncate(bytes.iter().position(|&b| b == 0)?);
        Some(OsString::from_vec(bytes))
    }

    /// Returns the path of what a descriptor means, as the kernel tells it.
    pub fn path_of(self, fd: i32) -> Option<PathBuf> {
        fs::read_link(self.proc(&format!("fd/{fd}"))).ok()
    }

    /// Takes hold of what a descriptor means, without opening it.
    pub fn hold(self, fd: i32) -> Option<OwnedFd> {
        openat(CWD, self.proc(&format!("fd/{fd}")), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .ok()
    }

    pub fn cursor(self, fd: i32) -> Option<Cursor> {
        let text = fs::read_to_string(self.proc(&format!("fdinfo/{fd}"))).ok()?;
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let at = field("pos:")?.parse().ok()?;
        let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
        Some(Cursor { at, flags })
    }

    /// Returns the path by which this process reaches what a path of the program means.
    fn reach(self, dir: i32, path: &OsStr) -> PathBuf {
        // What a program calls itself is this process, if this process says so.
        for own in ["/proc/self/", "/proc/thread-self/"] {
            if let Some(rest) = path.as_bytes().strip_prefix(own.as_bytes()) {
                return self.proc("").join(OsStr::from_bytes(rest));
            }
        }
        let mut from = match path.as_bytes().first() {
            Some(b'/') => self.proc("root"),
            _ if dir == libc::AT_FDCWD => self.proc("cwd"),
            _ => self.proc(&format!("fd/{dir}")),
        }
        .into_os_string();
        from.push("/");
        from.push(path);
        from.into()
    }

    /// Takes hold of what a path means.
    pub fn hold_path(self, dir: i32, path: u64, follow: bool) -> Option<OwnedFd> {
        let path = self.text(path)?;
        if path.is_empty() {
            return self.hold(dir);
        }
        let how = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let how = how | OFlags::PATH | OFlags::CLOEXEC;
        openat(CWD, self.reach(dir, &path), how, Mode::empty()).ok()
    }

    /// Splits a path into a directory, which is held, and a name in it.
    pub fn named(self, dir: i32, path: u64) -> Option<Named> {
        let path = self.text(path)?;
        let mut bytes = path.as_bytes();
        while let [rest @ .., b'/'] = bytes {
            bytes = rest;
        }
        let (parent, name) = match bytes.iter().rposition(|&b| b == b'/') {
            Some(at) => (&bytes[..=at], &bytes[at + 1..]),
            None => (&b"."[..], bytes),
        };
        if matches!(name, b"" | b"." | b"..") {
            return None;
        }
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = self.reach(dir, OsStr::from_bytes(parent));
        let dir = openat(CWD, parent, how, Mode::empty()).ok()?;
        Some(Named { dir, name: OsStr::from_bytes(name).to_owned() })
    }

    /// Returns the files that are mapped in a range of memory: address, offset in the file, path.
    pub fn mapped(self, range: &std::ops::Range<u64>) -> Vec<(std::ops::Range<u64>, u64, PathBuf)> {
        let text = fs::read_to_string(self.proc("maps")).unwrap_or_default();
        let one = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let (from, to) = fields.next()?.split_once('-')?;
            let offset = fields.nth(1)?;
            let [from, to, offset] =
                [from, to, offset].map(|n| u64::from_str_radix(n, 16).unwrap_or(0));
            let path = line.find('/').map(|at| PathBuf::from(&line[at..]))?;
            (from < range.end && to > range.start).then_some((from..to, offset, path))
        };
        text.lines().filter_map(one).collect()
    }
}

impl Named {
    /// Takes hold of what the name means now; a symbolic link means itself.
    pub fn hold(&self) -> Option<OwnedFd> {
        let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.dir, &self.name, how, Mode::empty()).ok()
    }
}

/// Returns the path of a file that this process holds.
pub fn path(fd: BorrowedFd<'_>) -> Option<PathBuf> {
    let link = readlinkat(CWD, own(fd), Vec::new()).ok()?;
    Some(PathBuf::from(OsString::from_vec(link.into_bytes())))
}

/// Returns the name by which this process can open a file that it holds.
pub fn own(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

pub fn stat(fd: &OwnedFd) -> Option<Stat> {
    statat(fd.as_fd(), "", AtFlags::EMPTY_PATH).ok()
}

pub fn is_regular(fd: &OwnedFd) -> bool {
    let kind = |stat: Stat| FileType::from_raw_mode(stat.st_mode);
    stat(fd).is_some_and(|stat| kind(stat) == FileType::RegularFile)
}

/// Returns whether a path is below a directory, or the directory.
pub fn is_below(path: &Path, root: &Path) -> bool {
    path.starts_with(root)
}

/// Takes hold of a path of this process.
pub fn open(path: &Path) -> Option<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

pub fn name(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}
