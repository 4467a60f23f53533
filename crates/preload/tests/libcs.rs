//! libc's own `syscall()`, which programs reach past the name that the library interposes.

mod common;

use common::{count, succeed, under};
use softring_testing::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;

fn build(dir: &Path, compiler: &str) -> Option<PathBuf> {
    if Command::new(compiler).arg("--version").output().is_err() {
        skipped!("no {compiler}");
        return None;
    }
    let program = dir.join(compiler);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/libcs.c");
    succeed(Command::new(compiler).args(["-O1", "-o"]).arg(&program).args([source, "-ldl"]));
    Some(program)
}

#[test]
fn a_ring_of_a_direct_call_is_softrings() {
    let dir = tempfile::tempdir().unwrap();
    for (compiler, file) in [("cc", "libc.so.6"), ("musl-gcc", "libc.so")] {
        let Some(program) = build(dir.path(), compiler) else { continue };
        for (how, past) in [("all", 2), ("half", 1)] {
            for (intercept, patched) in [("auto", past), ("patch", past), ("sigsys", 0)] {
                let out = succeed(under(&program, "user", intercept).args([file, how]));
                assert_eq!(count(&out, "gaps"), 0, "{compiler} {how} {intercept}");
                assert_eq!(count(&out, "patched"), patched, "{compiler} {how} {intercept}");
                let trapped = if patched == 0 { past } else { 0 };
                assert_eq!(count(&out, "trapped"), trapped, "{compiler} {how} {intercept}");
            }
        }
    }
}

/// The library searches for names in its own libraries first.
#[test]
fn a_library_with_names_of_its_own_gets_our_rings() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cc = |name: &str, source: &str, how: &[&str]| {
        let (file, to) = (dir.join("source.c"), dir.join(name));
        std::fs::write(&file, source).unwrap();
        succeed(Command::new("cc").args(["-O1", "-o"]).arg(&to).arg(&file).args(how));
        to
    };
    let lib = "#include <unistd.h>\nstatic unsigned params[30];\n\
               int ring(void) { return syscall(425, 4, params) < 0; }";
    let lib = cc("ring.so", lib, &["-shared", "-fPIC"]);
    let program = "#define _GNU_SOURCE\n#include <dlfcn.h>\nint main(int argc, char **argv) {\n\
                   void *lib = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);\n\
                   return ((int (*)(void))dlsym(lib, \"ring\"))(); }";
    let program = cc("program", program, &["-w", "-ldl"]);
    let out = succeed(under(program, "user", "auto").arg(lib));
    assert_eq!((count(&out, "setups"), count(&out, "patched")), (1, 1));
}

#[test]
fn pythons_ctypes_gets_our_rings() {
    let script = "import ctypes; libc = ctypes.CDLL('libc.so.6'); p = (ctypes.c_char * 120)(); \
                  fd = libc.syscall(ctypes.c_long(425), 4, p); print(fd >= 0, \
                  libc.syscall(ctypes.c_long(426), fd, 0, 0, 0, 0, 0))";
    if Command::new("python3").arg("--version").output().is_err() {
        return skipped!("no python3");
    }
    let out = succeed(under("python3", "user", "auto").args(["-c", script]));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "True 0\n");
    assert_eq!(count(&out, "trapped"), 0);
}

#[test]
fn the_cost_of_other_calls_past_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "cc").unwrap();
    let of = |intercept| {
        let out = succeed(under(&program, "kernel", intercept).args(["libc.so.6", "cost"]));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    println!("plain: {} ns; patched: {} ns", of("none"), of("patch"));
}
