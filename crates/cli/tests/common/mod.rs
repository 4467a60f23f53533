//! Helpers that run the command that this build made. Each test program uses a part of them.
#![allow(dead_code)]

pub mod load;
pub mod traced;

use serde_json::Value;
use softring_testing::skipped;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const ME: &str = env!("CARGO_BIN_EXE_softring");

/// Options with which musl-gcc finds the kernel's headers.
pub const KERNEL: &[&str] =
    &["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"];

/// Program that starts `./ring` with an empty environment, in one of 15 ways.
pub const STARTS: &str = include_str!("starts.c");

/// Builds a C program in `dir`; says so if it cannot be built.
pub fn build(dir: &Path, name: &str, how: &[&str], source: &str) -> Option<PathBuf> {
    build_by("cc", dir, name, how, source)
}

/// Does the same by another compiler.
pub fn build_by(
    compiler: &str,
    dir: &Path,
    name: &str,
    how: &[&str],
    source: &str,
) -> Option<PathBuf> {
    let (file, to) = (dir.join("source.c"), dir.join(name));
    fs::write(&file, source).unwrap();
    let mut cc = Command::new(compiler);
    cc.args(["-w", "-O1", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common"), "-o"]);
    match cc.arg(&to).arg(&file).args(how).output() {
        Ok(o) if o.status.success() => return Some(to),
        Ok(o) => skipped!("{compiler} {how:?}: {}", text(&o.stderr)),
        Err(e) => skipped!("{compiler}: {e}"),
    }
    None
}

pub fn softring(args: &[&str]) -> Output {
    Command::new(ME).args(args).output().expect("softring starts")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns whether the library is next to the command, where `cargo build --workspace` puts it;
/// says so if not.
pub fn library() -> bool {
    let o = softring(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&o.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let there = checks.iter().any(|c| c["name"] == "libsoftring.so" && c["state"] == "ok");
    if !there {
        skipped!("libsoftring.so is not next to {ME}");
    }
    there
}

/// Returns the program of tests that has NOPs on rings (an example of the client's crate).
pub fn nops() -> PathBuf {
    Path::new(ME).with_file_name("examples").join("nops")
}

/// Makes a folder that everybody may read, with the program and its library.
pub fn for_everybody() -> Option<tempfile::TempDir> {
    let dir = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir();
    let dir = dir.expect("a folder");
    for name in ["softring", "libsoftring.so"] {
        fs::copy(Path::new(ME).with_file_name(name), dir.path().join(name)).ok()?;
    }
    Some(dir)
}
