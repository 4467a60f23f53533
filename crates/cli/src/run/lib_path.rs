//! Place of `libsoftring.so`. One library serves every program of this machine.

use super::needed;
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
/// executable.
fn candidates() -> Vec<PathBuf> {
    if let Some(lib) = env::var_os("SOFTRING_LIB").filter(|l| !l.is_empty()) {
        return vec![PathBuf::from(lib)];
    }
    let Ok(exe) = files::own_exe() else { return Vec::new() };
    let Some(dir) = exe.parent() else { return Vec::new() };
    BESIDE.iter().map(|b| folder(dir, b).join(NAME)).collect()
}

/// Returns the folder `name` beside `dir`, which has no links in it.
fn folder(dir: &Path, name: &str) -> PathBuf {
    match (name.strip_prefix("../"), dir.parent()) {
        (Some(name), Some(above)) => above.join(name),
        _ => dir.join(name),
    }
}

fn is_named() -> bool {
    env::var_os("SOFTRING_LIB").is_some_and(|lib| !lib.is_empty())
}

/// Returns the absolute path of the library, fit for LD_PRELOAD.
pub fn find() -> anyhow::Result<PathBuf> {
    let tried = candidates();
    let there = tried.iter().filter(|p| files::is_file(p));
    let Some(lib) = there.filter_map(|p| std::path::absolute(p).ok()).next() else {
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
        let hint = if is_named() {
            "set SOFTRING_LIB to the path of a libsoftring.so, or unset SOFTRING_LIB"
        } else {
            "reinstall softring"
        };
        return Err(fail::usage(what, hint));
    }
    // musl's loader ends the program if a file is missing that a preloaded library asks for.
    if let Some(asked) = needed::needed(&file).filter(|asked| !asked.is_empty()) {
        let what =
            format!("{} asks for {}, which not every program has", lib.display(), asked.join(", "));
        let hint = "use the library of softring's packages, or link it without further libraries";
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
