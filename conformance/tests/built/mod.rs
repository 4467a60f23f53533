//! The preload library and the command, as this test was built.
#![allow(dead_code, reason = "no test needs both")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `libsoftring.so` as `exe`, a program of this package, was built; returns its path.
pub fn library(exe: &str) -> PathBuf {
    built(exe, "softring-preload", "libsoftring.so")
}

/// Same as [`library`] for `softring`.
pub fn command(exe: &str) -> PathBuf {
    built(exe, "softring-cli", "softring")
}

fn built(exe: &str, package: &str, file: &str) -> PathBuf {
    let dir = Path::new(exe).parent().expect("the program lies in a directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", package]);
    match dir.file_name().and_then(|n| n.to_str()) {
        Some("debug") | None => {}
        Some(profile) => {
            build.args(["--profile", profile]);
        }
    }
    let built = build.status().expect("cargo can be started");
    assert!(built.success(), "{package} does not build");
    dir.join(file)
}
