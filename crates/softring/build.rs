//! Finds `libsoftring.a`, or builds it:
//!
//! 1. in the directory that `SOFTRING_LIB_DIR` names,
//! 2. from the sources around this crate, by cargo and `dist/archive.sh`, in release mode,
//! 3. where pkg-config says that softring is installed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const ARCHIVE: &str = "libsoftring.a";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SOFTRING_LIB_DIR");
    // Documents need nothing to link with.
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    let [os, machine] = ["OS", "ARCH"].map(|name| variable(&format!("CARGO_CFG_TARGET_{name}")));
    if (&*os, &*machine) != ("linux", "x86_64") {
        fail("softring knows only Linux on x86_64: leave it out for other targets");
    }
    let dir = given().or_else(built).or_else(installed).unwrap_or_else(|| {
        fail(
            "there is no libsoftring.a: install softring (`make install`), or name the directory \
             that holds the file by SOFTRING_LIB_DIR",
        )
    });
    println!("cargo::rustc-link-search=native={}", dir.display());
    println!("cargo::rustc-link-lib=static=softring");
}

/// Returns the directory that the user names.
fn given() -> Option<PathBuf> {
    let dir = PathBuf::from(env::var_os("SOFTRING_LIB_DIR")?);
    let archive = dir.join(ARCHIVE);
    println!("cargo::rerun-if-changed={}", archive.display());
    if !archive.is_file() {
        fail(&format!("SOFTRING_LIB_DIR={} holds no {ARCHIVE}", dir.display()));
    }
    Some(dir)
}

/// Builds the archive from the sources, if they are there.
fn built() -> Option<PathBuf> {
    let top = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    let script = top.join("dist/archive.sh");
    if !script.is_file() {
        return None;
    }
    for part in ["dist/archive.sh", "Cargo.lock", "crates/uapi", "crates/host", "crates/faults"] {
        println!("cargo::rerun-if-changed={}", top.join(part).display());
    }
    for part in ["crates/engine", "crates/preload"] {
        println!("cargo::rerun-if-changed={}", top.join(part).display());
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["rustc", "--release", "--locked", "--package", "softring-preload", "--lib"]);
    cargo.args(["--crate-type", "staticlib"]).arg("--target-dir").arg(out.join("build"));
    // Flags for the program are none for the archive, which is the same for every target.
    for name in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    run(cargo.current_dir(&top));
    let whole = out.join("build/release").join(ARCHIVE);
    run(Command::new("sh").arg(script).arg(whole).arg(out.join(ARCHIVE)));
    Some(out)
}

/// Returns the directory of an installed archive.
fn installed() -> Option<PathBuf> {
    let found = Command::new("pkg-config").args(["--variable=libdir", "softring"]).output().ok()?;
    let dir = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
    dir.join(ARCHIVE).is_file().then_some(dir)
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|e| fail(&format!("{name}: {e}")))
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{command:?}: {status}")),
        Err(e) => fail(&format!("{command:?}: {e}")),
    }
}

fn fail(what: &str) -> ! {
    println!("cargo::error={what}");
    exit(1)
}
