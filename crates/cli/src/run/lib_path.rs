//! Place of `libsoftring.so`. One library serves every program of this machine.

use super::carried::{self, Packed};
use super::needed;
use crate::{fail, files, sys};
use anyhow::Context;
use rustix::io::FdFlags;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
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

/// The library, as a program gets it.
#[derive(Debug)]
pub enum Library {
    File(PathBuf),
    /// A file in memory, which a program inherits.
    Memory(OwnedFd),
}

impl Library {
    /// Returns the library's absolute path, fit for LD_PRELOAD. A file in memory stays open in the
    /// program that this process becomes, and in its children.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn pass_on(self) -> anyhow::Result<PathBuf> {
        let path = self.path();
        if let Library::Memory(file) = self {
            let passed = rustix::io::fcntl_setfd(&file, FdFlags::empty());
            passed.context("cannot pass on a file in memory")?;
            let _ = file.into_raw_fd();
        }
        Ok(path)
    }

    /// Returns the path that this process, or one that has inherited the file, knows it by.
    pub fn path(&self) -> PathBuf {
        match self {
            Library::File(path) => path.clone(),
            Library::Memory(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
        }
    }
}

/// Returns the library: one that is installed, or else the one that this command carries.
pub fn find() -> anyhow::Result<Library> {
    match only_carried() {
        Some(library) => unpack(library),
        None => installed().map(Library::File),
    }
}

/// Returns the path of a library that stays where it is, which other files may name.
pub fn lasting() -> anyhow::Result<PathBuf> {
    if only_carried().is_none() {
        return installed();
    }
    let what = format!("{NAME} is inside softring, and not in a file that lines could name");
    let hint = "make one: softring copy DIR, then DIR/bin/softring doctor --for";
    Err(fail::usage(what, hint))
}

/// Returns the library's bytes.
pub fn bytes() -> anyhow::Result<Vec<u8>> {
    match only_carried() {
        Some(library) => library.bytes().context("the library inside softring is damaged"),
        None => Ok(std::fs::read(installed()?)?),
    }
}

/// Returns the library that this command carries, if no other one is installed.
fn only_carried() -> Option<Packed<'static>> {
    let is_installed = || candidates().iter().any(|path| files::is_file(path));
    carried::library().filter(|_| !is_named() && !is_installed())
}

/// Unpacks the library to a file or, if there is no place for one, to memory.
fn unpack(library: Packed<'_>) -> anyhow::Result<Library> {
    let no_folder = match library.unpacked() {
        Ok(path) => return Ok(Library::File(path)),
        Err(e) => e,
    };
    let memory = match files::exists(Path::new("/proc/self/fd")) {
        true => library.in_memory(),
        false => Err(io::Error::new(io::ErrorKind::NotFound, "/proc is not mounted here")),
    };
    memory.map(Library::Memory).map_err(|e| {
        fail::usage(
            format!("{NAME}, which is inside softring, has no place: {no_folder}; in memory: {e}"),
            "make one of these folders writable and executable (in a container: --tmpfs=/tmp:exec)",
        )
    })
}

fn is_named() -> bool {
    env::var_os("SOFTRING_LIB").is_some_and(|lib| !lib.is_empty())
}

/// Returns the absolute path of the library that is installed, fit for LD_PRELOAD.
fn installed() -> anyhow::Result<PathBuf> {
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
