//! Fresh copies of a folder, one for each run.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Copies what is in `from` into `to`, which is there: files, folders and symbolic links, with
/// their modes. Other kinds of files are left out.
///
/// # Errors
/// Those of reading and writing.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut folders: Vec<(std::path::PathBuf, Permissions)> = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy(&source, &target)?;
            folders.push((target, entry.metadata()?.permissions()));
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        }
    }
    // A folder that may not be written to is filled first.
    folders.into_iter().try_for_each(|(path, mode)| fs::set_permissions(path, mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_copy_has_all_and_nothing_is_shared() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| from.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "text").unwrap();
        fs::set_permissions(at("a/b/file"), Permissions::from_mode(0o750)).unwrap();
        symlink("a/b/file", at("link")).unwrap();
        copy(from.path(), to.path()).unwrap();
        let copied = to.path().join("link");
        assert_eq!(fs::read_link(&copied).unwrap(), Path::new("a/b/file"));
        let mode = fs::metadata(&copied).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        fs::write(&copied, "other").unwrap();
        assert_eq!(fs::read_to_string(at("a/b/file")).unwrap(), "text");
    }
}
