//! Files of the machine, by path: texts, the names in a folder, and the target of a path.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem::MaybeUninit;

use crate::os::fd::{BorrowedFd, OwnedFd};
use crate::os::fs::{Mode, OFlags, RawDir, open};
use softring_uapi::errno::Errno;

use crate::sys::EngineFd;

/// Links that a path may lead through, as in path_resolution(7).
const LINKS: u32 = 40;

/// Returns the bytes of a file.
///
/// # Errors
/// As open(2) and read(2).
pub fn read(path: &[u8]) -> Result<Vec<u8>, Errno> {
    const STEP: usize = 4096;
    let file = EngineFd::from(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    let (mut bytes, mut len) = (Vec::new(), 0);
    loop {
        bytes.resize(len + STEP, 0);
        match crate::os::io::read(&file, &mut bytes[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Returns the text of a file.
///
/// # Errors
/// The failure, in words.
pub fn text(path: &[u8]) -> Result<String, String> {
    let bytes = read(path).map_err(words)?;
    String::from_utf8(bytes).map_err(|e| e.utf8_error().to_string())
}

/// Opens a file to append to it, and makes it if it is not there.
///
/// # Errors
/// The failure, in words.
pub fn appends_to(path: &[u8]) -> Result<OwnedFd, String> {
    let how = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    open(path, how, Mode::from_raw_mode(0o666)).map_err(words)
}

/// Returns the path of the program's open file `fd`, as proc(5) has it; none without /proc.
pub fn path_of(fd: i32) -> Option<Vec<u8>> {
    let link = format!("/proc/thread-self/fd/{fd}");
    crate::os::fs::readlink(link).ok()
}

/// Returns the text of a file of /proc or /sys. Names and paths in it may be any bytes: those that
/// are not UTF-8 are replaced.
pub fn proc_text(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&read(path.as_bytes()).ok()?).into_owned())
}

/// Returns the names in a folder; none if it cannot be read. Bytes that are not UTF-8 are replaced.
pub fn names_in(folder: &str) -> Vec<String> {
    let mut names = Vec::new();
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = open(folder, how, Mode::empty()) else { return names };
    let folder = EngineFd::from(folder);
    let mut buffer = [const { MaybeUninit::uninit() }; 2048];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        if ![c".", c".."].contains(&name) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names
}

/// Makes a path absolute, with symbolic links followed.
///
/// # Errors
/// The failure, in words.
pub fn absolute(path: &[u8]) -> Result<Vec<u8>, String> {
    resolve(path).map_err(|e| format!("{}: {}", String::from_utf8_lossy(path), words(e)))
}

fn resolve(path: &[u8]) -> Result<Vec<u8>, Errno> {
    // The kernel tells what is wrong with the path; below no name of it can fail.
    crate::os::fs::stat(path)?;
    let parts = |path: &[u8]| path.split(|&b| b == b'/').rev().map(<[u8]>::to_owned).collect();
    let mut whole = match path {
        [b'/', ..] => Vec::new(),
        _ => crate::os::process::getcwd()?,
    };
    let (mut ahead, mut links): (Vec<Vec<u8>>, u32) = (parts(path), 0);
    while let Some(part) = ahead.pop() {
        let before = whole.len();
        match &*part {
            b"" | b"." => continue,
            b".." => {
                whole.truncate(whole.iter().rposition(|&b| b == b'/').unwrap_or(0));
                continue;
            }
            name => {
                whole.push(b'/');
                whole.extend_from_slice(name);
            }
        }
        match crate::os::fs::readlink(&*whole) {
            Ok(_) if links == LINKS => return Err(Errno::ELOOP),
            Ok(target) => {
                links += 1;
                whole.truncate(if target.starts_with(b"/") { 0 } else { before });
                ahead.extend::<Vec<Vec<u8>>>(parts(&target));
            }
            Err(Errno::EINVAL) => {}
            Err(e) => return Err(e),
        }
    }
    if whole.is_empty() {
        whole.push(b'/');
    }
    Ok(whole)
}

/// Says what is wrong with a path, as strerror(3) does.
fn words(e: Errno) -> String {
    let words = match e {
        Errno::ENOENT => "No such file or directory",
        Errno::EACCES => "Permission denied",
        Errno::ENOTDIR => "Not a directory",
        Errno::ELOOP => "Too many levels of symbolic links",
        Errno::ENAMETOOLONG => "File name too long",
        _ => return format!("error {}", e.0),
    };
    format!("{words} (os error {})", e.0)
}

/// Fills `to` with the bytes of an open file from an offset on.
///
/// # Errors
/// As pread(2); `EIO` if the file ends before.
pub fn read_exact_at(file: BorrowedFd<'_>, mut to: &mut [u8], mut at: u64) -> Result<(), Errno> {
    while !to.is_empty() {
        match crate::os::io::pread(file, &mut *to, at) {
            Ok(0) => return Err(Errno::EIO),
            Ok(n) => (to, at) = (&mut to[n..], at + n as u64),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn a_folder_has_names() {
        assert!(names_in("/proc/self").contains(&"task".to_owned()));
        let mut names = names_in("/dev");
        names.sort();
        let theirs = std::fs::read_dir("/dev").unwrap();
        let theirs = theirs.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
        let mut theirs: Vec<String> = theirs.collect();
        theirs.sort();
        assert_eq!(names, theirs);
        assert_eq!(names_in("/no/such"), [""; 0]);
    }

    #[test]
    fn a_text_may_have_any_length() {
        assert_eq!(proc_text("/proc/self/maps").unwrap().lines().next().map(|_| ()), Some(()));
        assert_eq!(read(b"/proc/self/exe").unwrap(), std::fs::read("/proc/self/exe").unwrap());
        assert_eq!(read(b"/no/such"), Err(Errno::ENOENT));
    }

    #[test]
    fn a_path_leads_where_the_c_library_says() {
        let own = format!("softring-files-{}", std::process::id());
        let dir = std::env::temp_dir().join(own).join("a/b");
        std::fs::create_dir_all(&dir).unwrap();
        let top = dir.ancestors().nth(2).unwrap().to_path_buf();
        symlink("../b/./one", dir.join("two")).unwrap();
        symlink(dir.join("nothing"), dir.join("none")).unwrap();
        symlink(&top, dir.join("top")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        std::fs::write(dir.join("one"), "").unwrap();
        let at = |tail: &str| dir.join(tail);
        let tails = ["", "two", "top/a/b/two", "../b/..//.", "none", "loop", "one/", "one/x", "?"];
        let own = [Path::new("."), Path::new(""), Path::new("/"), Path::new("/proc/../dev")];
        for path in tails.map(at).iter().map(|p| &**p).chain(own) {
            let ours = absolute(path.as_os_str().as_bytes());
            let theirs = path.canonicalize().map(|p| p.as_os_str().as_bytes().to_vec());
            assert_eq!(ours, theirs.map_err(|e| format!("{}: {e}", path.display())));
        }
        std::fs::remove_dir_all(top).unwrap();
    }
}
