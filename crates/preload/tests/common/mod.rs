//! Running programs under the library that this build made. Each test program uses a part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// target/<profile>/deps, where cargo leaves test executables and libraries.
fn deps() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// The library; cargo builds it before it runs any test of this package.
pub fn library() -> PathBuf {
    let lib = deps().join("libsoftring.so");
    assert!(lib.exists(), "{} is missing: run cargo build -p softring-preload", lib.display());
    lib
}

/// A test program of examples/.
pub fn example(name: &str) -> PathBuf {
    deps().parent().unwrap().join("examples").join(name)
}

/// `program` under the library, with a report and no notice.
pub fn under(program: impl AsRef<Path>, engine: &str, door: &str) -> Command {
    let mut c = Command::new(program.as_ref());
    c.env("LD_PRELOAD", library());
    c.env("SOFTRING_ENGINE", engine).env("SOFTRING_DOOR", door);
    c.env("SOFTRING_REPORT", "1").env("SOFTRING_QUIET", "1");
    c
}

/// Runs it; it must exit with 0.
pub fn succeed(c: &mut Command) -> Output {
    let out = c.output().unwrap_or_else(|e| panic!("{c:?}: {e}"));
    assert!(
        out.status.success(),
        "{c:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

/// A number of the report's line: `sites 3 gaps 0 …`.
pub fn count(out: &Output, what: &str) -> u64 {
    let text = String::from_utf8_lossy(&out.stderr);
    let line = text.lines().find(|l| l.starts_with("softring: report:")).expect("a report");
    let mut words = line.split_whitespace().skip_while(|w| *w != what);
    words.nth(1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {what} in {line}"))
}

/// Links assembly into a shared library or a program, with the C linker that building Rust needs
/// anyway.
pub fn link(source: &str, to: &Path, options: &[&str]) {
    let asm = to.with_extension("s");
    std::fs::write(&asm, source).unwrap();
    let mut cc = Command::new("cc");
    succeed(cc.args(["-nostartfiles", "-o"]).arg(to).arg(&asm).args(options));
}
