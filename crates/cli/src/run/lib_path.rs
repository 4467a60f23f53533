//! Path of `libsoftring.so`. A library that `make build` builds with glibc serves programs of glibc
//! and of musl. If several libraries are installed, the program gets the first that its loader
//! takes.

use super::needed::{self, Libc};
use crate::{fail, files, sys};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub const NAME: &str = "libsoftring.so";

/// Folders that are tried, in order, relative to the folder of the executable.
const BESIDE: [&str; 5] = [".", "../lib/softring", "../lib64", "../lib", "deps"];

/// Returns every place that is searched, in order: SOFTRING_LIB alone if it is set, else around the
/// executable; last the place for one C library.
fn candidates(libc: Libc) -> Vec<PathBuf> {
    if let Some(lib) = env::var_os("SOFTRING_LIB").filter(|l| !l.is_empty()) {
        return vec![PathBuf::from(lib)];
    }
    let Ok(exe) = files::own_exe() else { return Vec::new() };
    let Some(dir) = exe.parent() else { return Vec::new() };
    let one_for_all = BESIDE.iter().map(|b| folder(dir, b).join(NAME));
    let own = folder(dir, "../lib/softring").join(libc.folder()).join(NAME);
    one_for_all.chain([own]).collect()
}

/// Returns the folder `name` beside `dir`, which has no links in it.
fn folder(dir: &Path, name: &str) -> PathBuf {
    match (name.strip_prefix("../"), dir.parent()) {
        (Some(name), Some(above)) => above.join(name),
        _ => dir.join(name),
    }
}

/// Returns the absolute path of the library for a program of this C library, fit for LD_PRELOAD. If
/// no library is for it, the path is that of another.
pub fn find(libc: Libc) -> anyhow::Result<PathBuf> {
    let tried = candidates(libc);
    let there = tried.iter().filter(|p| files::is_file(p));
    let there: Vec<PathBuf> = there.filter_map(|p| std::path::absolute(p).ok()).collect();
    let Some(lib) = there.iter().find(|lib| libc.takes(lib)).or(there.first()).cloned() else {
        let list: Vec<String> = tried.iter().map(|p| p.display().to_string()).collect();
        if list.is_empty() {
            return Err(fail::usage(
                format!("{NAME} cannot be found, because softring cannot find its own path"),
                "mount /proc, or name the library in SOFTRING_LIB",
            ));
        }
        return Err(fail::usage(
            format!("{NAME} was not found: tried {}", list.join(", ")),
            "build it (cargo build -p softring-preload), install it next to softring, or name it \
             in SOFTRING_LIB",
        ));
    };
    if lib.as_os_str().as_bytes().iter().any(|b| b" :\t\n$".contains(b)) {
        return Err(fail::usage(
            format!(
                "{} has a space, a colon or a '$' in its path, which LD_PRELOAD cannot hold",
                lib.display()
            ),
            "put a copy or a link of the library elsewhere and name its path in SOFTRING_LIB",
        ));
    }
    loadable(&lib)?;
    Ok(lib)
}

/// Checks that the library can be loaded: the dynamic linker only warns of one that it cannot load,
/// and starts the program alone.
fn loadable(lib: &Path) -> anyhow::Result<()> {
    let copy = "put a copy elsewhere, and name its path in SOFTRING_LIB";
    let file = File::open(lib).map_err(|e| {
        let hint = format!("let this user read the file, or {copy}");
        fail::usage(format!("{} cannot be read: {e}", lib.display()), hint)
    })?;
    if !needed::is_softring(&file) {
        let what = format!("{} is not softring's library for this machine", lib.display());
        let hint = if env::var_os("SOFTRING_LIB").is_some_and(|lib| !lib.is_empty()) {
            "set SOFTRING_LIB to the path of a libsoftring.so, or unset SOFTRING_LIB"
        } else {
            "reinstall softring"
        };
        return Err(fail::usage(what, hint));
    }
    sys::map_text(&file).map_err(|e| {
        let noexec = e.raw_os_error() == Some(libc::EPERM);
        let why = if noexec { "its mount is noexec".into() } else { e.to_string() };
        fail::usage(format!("{} cannot be mapped: {why}", lib.display()), copy)
    })
}

/// Returns LD_PRELOAD with `lib` before what was there, and `runtime` before that, each once.
pub fn preload_with(runtime: Option<&str>, lib: &Path, before: Option<&OsStr>) -> OsString {
    let first = runtime.map(OsStr::new).into_iter().chain([lib.as_os_str()]);
    let mut parts: Vec<&OsStr> = first.collect();
    let rest = before.unwrap_or_default().as_bytes().split(|b| b" :\t\n".contains(b));
    for part in rest.map(OsStr::from_bytes).filter(|part| !part.is_empty()) {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join(OsStr::new(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_is_prepended_once() {
        let lib = Path::new("/l/libsoftring.so");
        assert_eq!(preload_with(None, lib, None), "/l/libsoftring.so");
        assert_eq!(preload_with(None, lib, Some(OsStr::new(""))), "/l/libsoftring.so");
        let before = Some(OsStr::new("/a.so /b.so:/l/libsoftring.so"));
        assert_eq!(preload_with(None, lib, before), "/l/libsoftring.so:/a.so:/b.so");
        let asan = preload_with(Some("libasan.so.8"), lib, before);
        assert_eq!(asan, "libasan.so.8:/l/libsoftring.so:/a.so:/b.so");
    }
}
