//! The dynamic build of this command, which a library can be put under. A static build cannot have
//! a library; where it is installed, a dynamic build stands beside its library.

use super::elf;
use super::needed::Libc;
use crate::files;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "softring";

/// Returns the file to start under softring's library.
///
/// # Errors
/// Those of finding this program's file; `Unsupported`, with words that say what is missing, if
/// this build is static and no dynamic build that starts here is installed with it.
pub fn own_exe() -> io::Result<PathBuf> {
    let own = files::own_exe()?;
    if !cfg!(target_feature = "crt-static") {
        return Ok(own);
    }
    let beside = beside(&own);
    beside.iter().find(|path| starts(path)).cloned().ok_or_else(|| {
        let tried: Vec<String> = beside.iter().map(|p| p.display().to_string()).collect();
        let what =
            "this softring is static, and beside it there is no dynamic softring that starts here";
        io::Error::new(io::ErrorKind::Unsupported, format!("{what}: tried {}", tried.join(", ")))
    })
}

/// Returns the paths at which `make dist` puts dynamic builds, one for each C library.
fn beside(own: &Path) -> Vec<PathBuf> {
    let Some(top) = own.parent().and_then(Path::parent) else { return Vec::new() };
    [Libc::Glibc, Libc::Musl].map(|libc| top.join(relative(libc))).into()
}

fn relative(libc: Libc) -> PathBuf {
    Path::new("lib/softring").join(libc.folder()).join(NAME)
}

/// Returns the dynamic builds that are there, with their paths below the folder that this command
/// is installed in.
pub fn installed_beside(own: &Path) -> Vec<(PathBuf, PathBuf)> {
    let all = beside(own).into_iter().zip([Libc::Glibc, Libc::Musl].map(relative));
    all.filter(|(path, _)| files::is_file(path)).collect()
}

/// Returns whether the file is there, and its loader, too.
fn starts(path: &Path) -> bool {
    let elf = File::open(path).and_then(|file| elf::read(&file));
    elf.is_ok_and(|elf| {
        elf.and_then(|elf| elf.interp).is_some_and(|i| files::is_file(Path::new(&i)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_softring_uses_itself() {
        assert_eq!(own_exe().unwrap(), files::own_exe().unwrap());
    }

    #[test]
    fn a_static_softring_finds_a_dynamic_one() {
        let found = beside(Path::new("/usr/bin/softring"));
        let expected = ["/usr/lib/softring/gnu/softring", "/usr/lib/softring/musl/softring"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn programs_with_an_existing_loader_start() {
        assert!(starts(&files::own_exe().unwrap()));
        assert!(!starts(Path::new("/nowhere/softring")));
        assert!(!starts(Path::new("/dev/null")));
    }
}
