//! Programs that run under the library that this build made. Each test program uses a part of this.
#![allow(dead_code, unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns target/<profile>/deps, where cargo leaves test executables and libraries.
fn deps() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Returns the library; cargo builds it before it runs any test of this package.
pub fn library() -> PathBuf {
    let lib = deps().join("libsoftring.so");
    assert!(lib.exists(), "{} is missing: run cargo build -p softring-preload", lib.display());
    lib
}

/// Returns a test program of examples/.
pub fn example(name: &str) -> PathBuf {
    deps().parent().unwrap().join("examples").join(name)
}

/// Returns a command for `program` under the library, with a report and no notice.
pub fn under(program: impl AsRef<Path>, engine: &str, intercept: &str) -> Command {
    let mut c = Command::new(program.as_ref());
    c.env("LD_PRELOAD", library());
    c.env("SOFTRING_ENGINE", engine).env("SOFTRING_INTERCEPT", intercept);
    c.env("SOFTRING_REPORT", "1").env("SOFTRING_QUIET", "1");
    c
}

/// Runs a command, which must exit with 0.
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

/// Returns a number of the report's line: `sites 3 gaps 0 …`.
pub fn count(out: &Output, what: &str) -> u64 {
    let text = String::from_utf8_lossy(&out.stderr);
    let line = text.lines().find(|l| l.starts_with("softring: report:")).expect("a report");
    let mut words = line.split_whitespace().skip_while(|w| *w != what);
    words.nth(1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {what} in {line}"))
}

/// Links assembly into a shared library or a program, with the C linker that Rust needs anyway.
pub fn link(source: &str, to: &Path, options: &[&str]) {
    let asm = to.with_extension("s");
    std::fs::write(&asm, source).unwrap();
    let mut cc = Command::new("cc");
    succeed(cc.args(["-nostartfiles", "-o"]).arg(to).arg(&asm).args(options));
}

/// Makes the kernel answer calls `from..to` with `action`, in a child that is about to exec.
pub fn deny(c: &mut Command, from: i64, to: i64, action: u32) -> &mut Command {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, answer) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_RET | libc::BPF_K);
    let at_least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    let filter = [
        op(load, 0, 0, 0),
        op(at_least, 0, 2, from as u32),
        op(at_least, 1, 0, to as u32),
        op(answer, 0, 0, action),
        op(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let (len, program) = (filter.len() as u16, filter.as_ptr().cast_mut());
        let program = libc::sock_fprog { len, filter: program };
        // SAFETY: numbers, and a filter that the kernel copies.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: system calls only.
    unsafe { std::os::unix::process::CommandExt::pre_exec(c, install) }
}

/// Does the same for the three calls of io_uring.
pub fn deny_rings(c: &mut Command, action: u32) -> &mut Command {
    deny(c, libc::SYS_io_uring_setup, libc::SYS_io_uring_register + 1, action)
}

/// Action that answers EPERM.
pub const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
