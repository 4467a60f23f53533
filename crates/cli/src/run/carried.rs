//! The library that this command carries inside, if it was built so (`ci/build.sh`): for images
//! that have nothing else of softring. A program's loader takes it from a file, to which it is
//! unpacked once; where no folder allows that, from a file in memory.
//!
//! The folders are shared with other users, who must not be able to put a library of theirs under
//! our programs. So the file has a folder of its own, in a folder where nobody may rename what is
//! another's. Both belong to this user, and nobody else may write to them.

use super::lib_path::NAME;
use crate::{files, sys};
use flate2::read::GzDecoder;
use rustix::fs::{
    AtFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags, Stat, StatVfsMountFlags, fchmod,
    fcntl_add_seals, fstat, fstatvfs, memfd_create, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, geteuid, getrlimit};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{env, fmt};

/// A library in the form of gzip(1).
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a>(&'a [u8]);

/// Returns the library inside, if there is one.
pub fn library() -> Option<Packed<'static>> {
    const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/library.gz"));
    (!LIBRARY.is_empty()).then_some(Packed(LIBRARY))
}

/// Folders for files of all users. The first is in memory, but often does not allow programs in a
/// container.
const SHARED: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// Lack of a folder for the library: what was tried, and why it would not do.
#[derive(Debug)]
pub struct NoFolder(Vec<(PathBuf, io::Error)>);

impl fmt::Display for NoFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried = self.0.iter().map(|(folder, e)| format!("{}: {e}", folder.display()));
        f.write_str(&tried.collect::<Vec<_>>().join("; "))
    }
}

/// Sum and length of a file's bytes, as gzip(1) writes them behind the packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contents {
    sum: u32,
    len: u64,
}

impl Contents {
    fn of(file: &mut File, len: u64) -> io::Result<Contents> {
        let mut bytes = Vec::new();
        file.take(len + 1).read_to_end(&mut bytes)?;
        let mut sum = flate2::Crc::new();
        sum.update(&bytes);
        Ok(Contents { sum: sum.sum(), len: bytes.len() as u64 })
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Packed<'_> {
    /// Returns the library's bytes.
    ///
    /// # Errors
    /// This command is damaged.
    pub fn bytes(self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.0).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn contents(self) -> Contents {
        let word = |from_end| {
            let at = self.0.len().checked_sub(from_end)?;
            Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
        };
        Contents { sum: word(8).unwrap_or(0), len: word(4).unwrap_or(0).into() }
    }

    /// Returns the path of a file with the library, which is written if it is not there.
    ///
    /// # Errors
    /// No folder allows such a file.
    pub fn unpacked(self) -> Result<PathBuf, NoFolder> {
        // This folder is closed to other users, whom a program of root's may become: so it is last.
        let own = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let own = own.map(|dir| (dir, Some(geteuid().as_raw())));
        let shared = SHARED.iter().map(|dir| (PathBuf::from(dir), None));
        let mut tried = Vec::new();
        for (folder, owner) in shared.chain(own) {
            match self.unpacked_in(&folder, owner) {
                Ok(path) => return Ok(path),
                Err(e) => tried.push((folder, e)),
            }
        }
        Err(NoFolder(tried))
    }

    /// Unpacks the library in a folder, which must be `owner`'s if there is one.
    fn unpacked_in(self, folder: &Path, owner: Option<u32>) -> io::Result<PathBuf> {
        let shared = rustix::fs::open(folder, FOLDER, Mode::empty())?;
        keeps_names(&fstat(&shared)?, owner)?;
        if fstatvfs(&shared)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(refused("its mount is noexec"));
        }
        let contents = self.contents();
        let name = format!("softring-{}-{:08x}", geteuid().as_raw(), contents.sum);
        let own = own_folder(&shared, &name)?;
        let path = folder.join(&name).join(NAME);
        if has(&own, contents).unwrap_or(false) {
            return Ok(path);
        }
        let written = self.write(&own).and_then(|()| has(&own, contents));
        match written.and_then(|same| same.then_some(path).ok_or_else(|| refused(CHANGED))) {
            Err(e) => {
                // This fails while another process has a file in it.
                let _ = unlinkat(&shared, &name, AtFlags::REMOVEDIR);
                Err(e)
            }
            done => done,
        }
    }

    /// Writes the library. The file has its name once it is whole: other processes may write it at
    /// the same time.
    fn write(self, folder: &OwnedFd) -> io::Result<()> {
        let part = format!("{NAME}.{}.{:016x}", std::process::id(), files::random());
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(folder, &part, how, Mode::from_raw_mode(0o600))?);
        let mut put = || {
            file.write_all(&self.bytes()?)?;
            fchmod(&file, Mode::from_raw_mode(0o644))?;
            sys::map_text(&file)?;
            Ok(renameat(folder, &part, folder, NAME)?)
        };
        put().inspect_err(|_| {
            let _ = unlinkat(folder, &part, AtFlags::empty());
        })
    }

    /// Makes a file in memory with the library, which nobody can change.
    ///
    /// # Errors
    /// Those of memfd_create(2) and write(2); EPERM if a policy keeps programs from mapping it.
    pub fn in_memory(self) -> io::Result<OwnedFd> {
        let make =
            |more| memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | more);
        // The file is mapped, and not run: a sysctl (vm.memfd_noexec) may ask to say so. Linux
        // knows the flag since 6.3.
        let file = match make(MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => make(MemfdFlags::empty()),
            other => other,
        }?;
        let mut file = File::from(file);
        file.write_all(&self.bytes()?)?;
        let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&file, all)?;
        sys::map_text(&file)?;
        // A program takes low numbers as they come, and shells name theirs.
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(1024);
        let from = i32::try_from(limit / 4 * 3).unwrap_or(0);
        Ok(fcntl_dupfd_cloexec(&file, from)?)
    }
}

const CHANGED: &str = "the file is not as it was written";

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

const STICKY: u32 = 0o1000;
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// Checks that only its owner may rename what is in a folder.
fn keeps_names(folder: &Stat, owner: Option<u32>) -> io::Result<()> {
    if owner.is_some_and(|owner| owner != folder.st_uid) {
        return Err(refused("it is another user's"));
    }
    let open = folder.st_mode & WRITTEN_BY_OTHERS != 0 && folder.st_mode & STICKY == 0;
    if open { Err(refused("others may rename files there")) } else { Ok(()) }
}

/// Checks that a file is this user's, and that nobody else may write to it.
fn is_own(file: &Stat, kind: FileType) -> io::Result<()> {
    if FileType::from_raw_mode(file.st_mode) != kind {
        return Err(refused("something else has the name"));
    }
    if file.st_uid != geteuid().as_raw() || file.st_mode & WRITTEN_BY_OTHERS != 0 {
        return Err(refused("another user may write to the file there"));
    }
    Ok(())
}

/// Opens the folder for the library, which is made if it is not there.
fn own_folder(shared: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    const OPEN: Mode = Mode::from_raw_mode(0o755);
    let open = || openat(shared, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
    let folder = match open() {
        Err(Errno::NOENT) => match mkdirat(shared, name, OPEN) {
            Ok(()) | Err(Errno::EXIST) => open(),
            Err(e) => Err(e),
        },
        other => other,
    }?;
    let stat = fstat(&folder)?;
    is_own(&stat, FileType::Directory)?;
    // The mask of this process may have closed it to the user that a program becomes.
    if stat.st_mode & OPEN.as_raw_mode() != OPEN.as_raw_mode() {
        fchmod(&folder, OPEN)?;
    }
    Ok(folder)
}

/// Returns whether the folder has the library, in a file that programs may map.
fn has(folder: &OwnedFd, contents: Contents) -> io::Result<bool> {
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, NAME, how, Mode::empty())?);
    let stat = fstat(&file)?;
    is_own(&stat, FileType::RegularFile)?;
    if u64::try_from(stat.st_size) != Ok(contents.len)
        || Contents::of(&mut file, contents.len)? != contents
    {
        return Ok(false);
    }
    sys::map_text(&file)?;
    Ok(true)
}

#[cfg(test)]
mod tests;
