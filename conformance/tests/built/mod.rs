//! The preload library, as this test was built.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `libsoftring.so` as `exe`, a program of this package, was built; answers where it is.
pub fn library(exe: &str) -> PathBuf {
    let dir = Path::new(exe).parent().expect("the program lies in a directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "softring-preload"]);
    match dir.file_name().and_then(|n| n.to_str()) {
        Some("debug") | None => {}
        Some(profile) => {
            build.args(["--profile", profile]);
        }
    }
    let built = build.status().expect("cargo can be started");
    assert!(built.success(), "libsoftring.so does not build");
    dir.join("libsoftring.so")
}
