//! C programs and libraries for the tests. Each test program uses a part of them.
#![allow(dead_code)]

use softring_loader::{Error, Library};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const LIBRARY: &str = include_str!("library.c");
pub const PROGRAM: &str = include_str!("program.c");
pub const BARE: &str = include_str!("bare.c");

/// Options for a library that needs no other.
pub const ALONE: [&str; 5] =
    ["-shared", "-nostdlib", "-fPIC", "-fno-stack-protector", "-Wl,-z,now"];

/// Builds C source in `dir`; tells why not.
pub fn build(
    compiler: &str,
    dir: &Path,
    name: &str,
    options: &[&str],
    source: &str,
) -> Result<PathBuf, String> {
    let (file, to) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&file, source).unwrap();
    let mut cc = Command::new(compiler);
    cc.args(["-O1", "-w", "-o"]).arg(&to).arg(&file).args(options);
    let o = cc.output().map_err(|e| format!("{compiler}: {e}"))?;
    match o.status.success() {
        true => Ok(to),
        false => Err(String::from_utf8_lossy(&o.stderr).into_owned()),
    }
}

pub fn library(dir: &Path) -> PathBuf {
    build("cc", dir, "library.so", &ALONE, LIBRARY).unwrap()
}

pub fn read(path: &Path) -> Result<Library, Error> {
    Library::open(path)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
