//! Files of the machine, by path: the names in a folder, and the target of a path. For the text of
//! a file of /proc or /sys see [`crate::sys::proc_text`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fd::BorrowedFd;
use softring_uapi::errno::Errno;

/// Returns the names in a folder; none if it cannot be read. Bytes that are not UTF-8 are replaced.
pub fn names_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Makes a path absolute, with symbolic links followed.
///
/// # Errors
/// The failure, in words.
pub fn absolute(path: &[u8]) -> Result<Vec<u8>, String> {
    let path = Path::new(OsStr::from_bytes(path));
    let whole = path.canonicalize().map(OsString::from);
    whole.map(OsString::into_vec).map_err(|e| format!("{}: {e}", path.display()))
}

/// Fills `to` with the bytes of an open file from an offset on.
///
/// # Errors
/// As pread(2); `EIO` if the file ends before.
pub fn read_exact_at(file: BorrowedFd<'_>, mut to: &mut [u8], mut at: u64) -> Result<(), Errno> {
    while !to.is_empty() {
        match rustix::io::pread(file, &mut *to, at) {
            Ok(0) => return Err(Errno::EIO),
            Ok(n) => (to, at) = (&mut to[n..], at + n as u64),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_names_and_its_path_may_be_longer() {
        assert!(names_in("/proc/self").contains(&"task".to_owned()));
        assert_eq!(names_in("/no/such"), [""; 0]);
        assert_eq!(absolute(b"/proc/../proc/"), Ok(b"/proc".to_vec()));
        assert!(absolute(b"/no/such").unwrap_err().starts_with("/no/such: No such file"));
    }
}
