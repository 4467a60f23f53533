//! Arguments of an open: the flags of OPENAT, and the structure of OPENAT2. Kernel counterpart:
//! `build_open_how` and `build_open_flags` in `fs/open.c`.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use softring_host::os::fd::{AsRawFd, OwnedFd};
use softring_host::os::fs::OFlags;

use crate::io::of_process::PROCESS;
use softring_host::calls::{ReadPtr, files, paths};
use softring_host::sys::EngineFd;
use softring_uapi::errno::{Errno, Result};

pub(crate) const AT_FDCWD: i32 = -100;
const O_WRONLY: u64 = 1;
const O_RDWR: u64 = 2;
const O_CREAT: u64 = 0o100;
pub(crate) const O_EXCL: u64 = 0o200;
const O_TRUNC: u64 = 0o1000;
pub(crate) const O_NONBLOCK: u64 = 0o4000;
pub(crate) const O_DIRECT: u64 = 0o40_000;
const O_DIRECTORY: u64 = 0o200_000;
const O_NOFOLLOW: u64 = 0o400_000;
pub(crate) const O_CLOEXEC: u64 = 0o2_000_000;
pub(crate) const O_PATH: u64 = 0o10_000_000;
/// `O_TMPFILE` without its O_DIRECTORY.
const TMPFILE: u64 = 0o20_000_000;
/// `VALID_OPEN_FLAGS`: every O_* flag; openat(2) ignores all other bits.
const VALID_OPEN: u64 = 0o37_777_703;
const RESOLVE_BENEATH: u64 = 0x8;
const RESOLVE_IN_ROOT: u64 = 0x10;
pub(crate) const RESOLVE_CACHED: u64 = 0x20;
/// `VALID_RESOLVE_FLAGS`
const VALID_RESOLVE: u64 = 0x3f;

/// `struct open_how`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct How {
    pub(crate) flags: u64,
    pub(crate) mode: u64,
    pub(crate) resolve: u64,
}

/// Size of [`How`] in bytes, the least that OPENAT2 takes (`OPEN_HOW_SIZE_VER0`).
const HOW_SIZE: usize = size_of::<How>();

impl How {
    /// Translates openat(2)'s flags and mode, as `build_open_how` does.
    pub(crate) fn of_openat(flags: u32, mode: u32) -> How {
        let mut flags = u64::from(flags) & VALID_OPEN;
        if flags & O_PATH != 0 {
            flags &= O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC;
        }
        let mode = if flags & (O_CREAT | TMPFILE) != 0 { u64::from(mode) & 0o7777 } else { 0 };
        How { flags, mode, resolve: 0 }
    }

    /// Copies the program's structure in; bytes beyond the known ones must be 0.
    pub(crate) fn read(addr: u64, size: u32) -> Result<How> {
        let mut words = [0u64; HOW_SIZE / 8];
        let size = u64::from(size);
        if size < HOW_SIZE as u64 {
            return Err(Errno::EINVAL);
        }
        let mut at = HOW_SIZE as u64;
        let mut rest = [0u8; 256];
        while at < size {
            let n = (size - at).min(rest.len() as u64) as usize;
            softring_host::user::read_slice(addr.wrapping_add(at), &mut rest[..n])?;
            if rest[..n].iter().any(|&b| b != 0) {
                return Err(Errno::E2BIG);
            }
            at += n as u64;
        }
        softring_host::user::read_slice(addr, &mut words)?;
        Ok(How { flags: words[0], mode: words[1], resolve: words[2] })
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.flags, self.mode, self.resolve].iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> How {
        let word = |i: usize| {
            let at = bytes.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok());
            u64::from_ne_bytes(at.unwrap_or_default())
        };
        How { flags: word(0), mode: word(1), resolve: word(2) }
    }

    /// Returns the flags of the opened file.
    pub(crate) fn open_flags(self) -> OFlags {
        OFlags::from_bits_retain(self.flags as u32)
    }

    /// Returns whether the open is sure to wait, or must not be tried twice.
    pub(crate) fn needs_worker(self) -> bool {
        self.flags & (O_TRUNC | O_CREAT | TMPFILE) != 0
    }

    /// Returns whether the file is opened for writing.
    pub(crate) fn writes(self) -> bool {
        self.flags & (O_WRONLY | O_RDWR) != 0
    }

    /// Returns whether the file has no name (O_TMPFILE): the path is the directory's.
    pub(crate) fn is_unnamed(self) -> bool {
        self.flags & TMPFILE != 0
    }

    /// Opens by `open` without waiting for the other end of a FIFO. As in the kernel, O_NONBLOCK is
    /// on only meanwhile.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn open_nonblocking(
        self,
        open: impl FnOnce(How) -> Result<OwnedFd>,
    ) -> Result<OwnedFd> {
        if self.flags & (O_PATH | O_NONBLOCK) != 0 {
            return open(self);
        }
        let fd = open(How { flags: self.flags | O_NONBLOCK, ..self })?;
        let _ = files::set_flags(fd.as_raw_fd(), self.flags);
        Ok(fd)
    }

    /// Opens without waiting for a disk, or for the other end of a FIFO.
    ///
    /// # Errors
    /// `EAGAIN` if the directory cache does not know the path, and where the kernel knows no such
    /// open (before Linux 5.12); those of openat2(2).
    pub(crate) fn open_cached(self, dir: i32, name: u64) -> Result<OwnedFd> {
        if !cached_lookup_works() {
            return Err(Errno::EAGAIN);
        }
        let cached = How { resolve: self.resolve | RESOLVE_CACHED, ..self };
        cached.open_nonblocking(|how| how.openat2(dir, name))
    }

    pub(crate) fn openat2(self, dir: i32, path: u64) -> Result<OwnedFd> {
        let how = [self.flags, self.mode, self.resolve];
        paths::openat2(dir, ReadPtr(path), how)
    }

    /// Opens by openat2(2) as the newest kernel has it, or, if there is no such call, by openat(2)
    /// when no `resolve` is needed.
    ///
    /// # Errors
    /// Those of openat2(2); `EAGAIN` for `RESOLVE_CACHED` if the kernel does not know it (before
    /// Linux 5.12), as if nothing were cached; `ENOSYS`.
    pub(crate) fn openat2_or_less(self, dir: i32, path: u64) -> Result<OwnedFd> {
        if self.resolve & RESOLVE_CACHED != 0 && !cached_lookup_works() {
            return Err(Errno::EAGAIN);
        }
        match self.openat2(dir, path) {
            Err(Errno::ENOSYS) if self.resolve == 0 => self.openat(dir, path),
            opened => opened,
        }
    }

    /// Opens by openat(2).
    ///
    /// # Errors
    /// Those of the call.
    pub(crate) fn openat(self, dir: i32, path: u64) -> Result<OwnedFd> {
        paths::openat(dir, ReadPtr(path), self.flags, self.mode)
    }

    /// Checks what is refused before the path is seen (`build_open_flags`). Kernels before 6.4 took
    /// O_DIRECTORY with O_CREAT, and made a file.
    ///
    /// # Errors
    /// `EINVAL`.
    pub(crate) fn check(self) -> Result<()> {
        let has = |flags| self.flags & flags != 0;
        let creates = has(O_CREAT | TMPFILE);
        let both = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
        let bad = self.flags & !VALID_OPEN != 0
            || self.resolve & !VALID_RESOLVE != 0
            || self.resolve & both == both
            || self.mode & if creates { !0o7777 } else { u64::MAX } != 0
            || (has(O_DIRECTORY) && has(O_CREAT))
            || (has(TMPFILE) && !(has(O_DIRECTORY) && has(O_WRONLY | O_RDWR)))
            || (has(O_PATH) && has(!(O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC)));
        if bad { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// Returns whether the kernel knows `RESOLVE_CACHED` (5.12), and lets us call openat2(2). Asks
/// once.
pub(crate) fn cached_lookup_works() -> bool {
    let known = &PROCESS.kernel.cached_lookup;
    match known.load(Relaxed) {
        0 => {
            let how = How { flags: O_PATH | O_CLOEXEC, mode: 0, resolve: RESOLVE_CACHED };
            let root = how.openat2(AT_FDCWD, c"/".as_ptr().expose_provenance() as u64);
            let works = root.map(EngineFd::from).is_ok();
            known.store(1 + u8::from(works), Relaxed);
            works
        }
        answer => answer == 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openat_ignores_flags_that_openat2_refuses() {
        let how = How::of_openat(0o2 | 1 << 30, 0o644);
        assert_eq!(how, How { flags: 2, mode: 0, resolve: 0 });
        let how = How::of_openat(0o10_000_102, 0o644);
        assert_eq!(how, How { flags: O_PATH, mode: 0, resolve: 0 });
        let how = How::of_openat(0o102, 0o170_644);
        assert_eq!(how, How { flags: 0o102, mode: 0o644, resolve: 0 });
        assert_eq!(How::of_bytes(&how.to_bytes()), how);
    }

    #[test]
    fn a_longer_how_must_end_in_zeroes() {
        let mut words = [2u64, 0, 8, 0, 0];
        let at = |w: &[u64; 5]| w.as_ptr().expose_provenance() as u64;
        assert_eq!(How::read(at(&words), 23), Err(Errno::EINVAL));
        assert_eq!(How::read(at(&words), 40), Ok(How { flags: 2, mode: 0, resolve: 8 }));
        words[4] = 1 << 40;
        assert_eq!(How::read(at(&words), 37), Ok(How { flags: 2, mode: 0, resolve: 8 }));
        assert_eq!(How::read(at(&words), 38), Err(Errno::E2BIG));
        assert_eq!(How::read(8, 24), Err(Errno::EFAULT));
    }
}
