//! Files, by calls that the dynamic linker has made by the time that this program runs. If a policy
//! refuses one of these calls, or kills for it, no program starts at all. `softring run` makes as
//! few other calls as it can before it becomes its program.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Mode and owner of a file.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Status {
    pub const fn is_file(self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    pub const fn is_dir(self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Calls stat(2), by the C library's function, as its dynamic linker does: std would call statx(2).
///
/// # Errors
/// Those of stat(2).
pub fn status(path: &Path) -> io::Result<Status> {
    let path = c_path(path)?;
    // SAFETY: all-zero bytes are a valid `stat64`, which the kernel fills in; the path is a string.
    let (done, stat) = unsafe {
        let mut stat: libc::stat64 = std::mem::zeroed();
        (libc::stat64(path.as_ptr(), &raw mut stat), stat)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Status { mode: stat.st_mode, uid: stat.st_uid, gid: stat.st_gid })
}

/// Returns whether there is such a file, and it is a regular one.
pub fn is_file(path: &Path) -> bool {
    status(path).is_ok_and(Status::is_file)
}

/// Returns whether there is such a file.
pub fn exists(path: &Path) -> bool {
    status(path).is_ok()
}

/// Returns the mode of an open file, which tells its kind.
pub fn mode(fd: i32) -> Option<u32> {
    // SAFETY: as in `status`.
    unsafe {
        let mut stat: libc::stat64 = std::mem::zeroed();
        (libc::fstat64(fd, &raw mut stat) == 0).then_some(stat.st_mode)
    }
}

/// Checks that this process may use a file as `how` says. By access(2), which glibc's dynamic
/// linker calls.
///
/// # Errors
/// Those of access(2).
pub fn access(path: &Path, how: i32) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a string.
    match unsafe { libc::access(path.as_ptr(), how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads a file to its end: std would ask for its size and position first.
///
/// # Errors
/// Those of open(2) and read(2).
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    const PIECE: usize = 4096;
    let mut file = File::open(path)?;
    let (mut all, mut len) = (Vec::new(), 0);
    loop {
        all.resize(len + PIECE, 0);
        match file.read(&mut all[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    all.truncate(len);
    Ok(all)
}

/// Reads the start of a file into `to`; returns what was read. By openat(2), read(2) and close(2)
/// alone, and without memory from the heap, which a C library gives back by munmap(2).
pub fn head<'a>(path: &CStr, to: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: the path is a string; the bytes are ours; the descriptor was made here.
    unsafe {
        let how = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), how);
        if fd < 0 {
            return None;
        }
        let n = libc::syscall(libc::SYS_read, fd, to.as_mut_ptr(), to.len());
        libc::syscall(libc::SYS_close, fd);
        to.get(..usize::try_from(n).ok()?)
    }
}

/// Reads a file of /proc. It may hold a thread's name, which may be any bytes: bytes that are not
/// UTF-8 are replaced, so that the rest can be read.
///
/// # Errors
/// Those of reading the file.
pub fn proc_text(path: &str) -> io::Result<String> {
    read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the fields of a text of proc_pid_stat(5) from the third, the state, on. The second is a
/// name, which may hold any bytes.
pub fn stat_fields(stat: &str) -> std::str::SplitWhitespace<'_> {
    stat.rsplit(')').next().unwrap_or_default().split_whitespace()
}

/// Returns the user and the group of this process, as exec(2) set them.
pub fn own_ids() -> (u32, u32) {
    // SAFETY: numbers.
    unsafe { (libc::getauxval(libc::AT_UID) as u32, libc::getauxval(libc::AT_GID) as u32) }
}

/// Returns a number that no other process has: the kernel gives each program random bytes
/// (AT_RANDOM).
pub fn random() -> u64 {
    // SAFETY: 16 bytes, which stay; null where a kernel gives none.
    unsafe {
        let at = libc::getauxval(libc::AT_RANDOM) as usize;
        let at: *const [u64; 2] = std::ptr::with_exposed_provenance(at);
        // The bytes are mixed: the C library keeps secrets of this process there.
        let both = if at.is_null() { [0; 2] } else { at.read_unaligned() };
        both[0].wrapping_mul(both[1] | 1) ^ both[1].rotate_left(32)
    }
}

/// Reads a field of /proc/self/status.
pub fn proc_status(field: &str) -> Option<String> {
    let text = proc_text("/proc/self/status").ok()?;
    let value = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// Returns the file that this process runs: by its mappings in /proc or, without /proc, by the path
/// that the kernel was given.
///
/// # Errors
/// Those of getcwd(2); `NotFound` if neither tells it.
pub fn own_exe() -> io::Result<PathBuf> {
    if let Some(path) = read("/proc/self/maps").ok().and_then(|maps| mapped(&maps)) {
        return Ok(path);
    }
    let given = given_exe()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "/proc is not mounted here"))?;
    std::fs::canonicalize(given).or_else(|_| std::path::absolute(given))
}

/// Returns the path that the kernel was given (AT_EXECFN of getauxval(3)). The C library has it in
/// a static program, too; rustix finds none there without /proc.
fn given_exe() -> Option<&'static OsStr> {
    // SAFETY: null, or a C string of the kernel's, which stays as long as this process.
    let given = unsafe {
        let at = libc::getauxval(libc::AT_EXECFN) as usize;
        let at: *const std::ffi::c_char = std::ptr::with_exposed_provenance(at);
        (!at.is_null()).then(|| CStr::from_ptr(at))
    };
    given.map(|path| OsStr::from_bytes(path.to_bytes())).filter(|path| !path.is_empty())
}

/// Returns the file that this program's text is mapped from.
fn mapped(maps: &[u8]) -> Option<PathBuf> {
    let here = (own_exe as fn() -> io::Result<PathBuf>) as usize;
    maps.split(|b| *b == b'\n').find_map(|line| {
        let range = std::str::from_utf8(line.split(|b| *b == b' ').next()?).ok()?;
        let (from, to) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        (number(from)? <= here && here < number(to)?).then_some(())?;
        path_of(line)
    })
}

/// Returns whether this process has mapped a file whose name ends so; it may be a file in memory.
pub fn maps_file(name: &str) -> bool {
    let maps = read("/proc/self/maps").unwrap_or_default();
    let mut files = maps.split(|b| *b == b'\n').filter_map(path_of);
    files.any(|path| path.as_os_str().as_bytes().ends_with(name.as_bytes()))
}

/// Returns the path at the end of a line of /proc/self/maps, in which `\012` stands for a newline.
fn path_of(line: &[u8]) -> Option<PathBuf> {
    const GONE: &[u8] = b" (deleted)";
    let at = line.iter().position(|b| *b == b'/')?;
    let mut path = line[at..].strip_suffix(GONE).unwrap_or(&line[at..]).to_vec();
    while let Some(at) = path.windows(4).position(|w| w == b"\\012") {
        path.splice(at..at + 4, *b"\n");
    }
    Some(OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_exe_follows_proc() {
        assert_eq!(own_exe().unwrap(), std::env::current_exe().unwrap());
    }

    #[test]
    fn own_exe_uses_the_exec_path_without_proc() {
        let given = std::fs::canonicalize(given_exe().expect("a path")).unwrap();
        assert_eq!(given, own_exe().unwrap());
    }

    #[test]
    fn paths_of_mappings() {
        let of = |line: &str| path_of(line.as_bytes());
        let line = "55e4446cf000-55e4446d0000 r-xp 00000000 08:01 42    ";
        assert_eq!(of(&format!("{line}/a b/c")), Some("/a b/c".into()));
        assert_eq!(of(&format!("{line}/a\\012b (deleted)")), Some("/a\nb".into()));
        assert_eq!(of(line), None);
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(read(file.path()).unwrap(), bytes);
        assert!(is_file(file.path()) && !is_file(Path::new("/")) && exists(Path::new("/")));
        assert!(read("/no/such/file").is_err() && !exists(Path::new("/no/such/file")));
    }
}
