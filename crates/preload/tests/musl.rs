//! One library for glibc and musl: built for glibc, it loads into a program of musl's, and works
//! there. Needs musl-gcc (Debian's musl-tools); without it these tests report that they were
//! skipped.

mod common;

use common::{count, library, succeed, under};
use softring_testing::skipped;
use std::path::PathBuf;
use std::process::Command;

/// Builds `tests/common/late_read.c` by musl's compiler; returns the program and its directory.
fn late_read(how: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        skipped!("no musl-gcc");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("late_read");
    let source = format!("{}/tests/common/late_read.c", env!("CARGO_MANIFEST_DIR"));
    succeed(Command::new("musl-gcc").args(how).args(["-O1", "-o"]).arg(&program).arg(source));
    Some((dir, program))
}

#[test]
fn a_program_of_musls_has_rings_through_every_entry_point() {
    let Some((_dir, program)) = late_read(&[]) else { return };
    for (intercept, patched) in [("auto", true), ("patch", true), ("sigsys", false)] {
        let out = succeed(&mut under(&program, "user", intercept));
        assert_eq!(String::from_utf8_lossy(&out.stdout), "4 late\n", "{intercept}");
        assert_eq!((count(&out, "setups"), count(&out, "gaps")), (1, 0), "{intercept}");
        assert_eq!((count(&out, "patched") > 0, count(&out, "trapped") > 0), (patched, !patched));
    }
}

#[test]
fn the_kernels_rings_are_left_alone() {
    let Some((_dir, program)) = late_read(&[]) else { return };
    let alone = Command::new(&program).output().unwrap();
    let out = under(&program, "kernel", "auto").output().unwrap();
    assert_eq!((alone.status, alone.stdout), (out.status, out.stdout));
}

/// musl's loader fails for files that it does not have, and for names that these files define.
#[test]
fn no_file_is_needed_that_musl_lacks() {
    let out = match Command::new("readelf").args(["-dW", "--dyn-syms"]).arg(library()).output() {
        Ok(out) => String::from_utf8_lossy(&out.stdout).into_owned(),
        Err(e) => return skipped!("readelf: {e}"),
    };
    let files = out.lines().filter(|line| line.contains("(NEEDED)"));
    let named = files.filter_map(|line| line.split('[').nth(1)?.strip_suffix(']'));
    let own = ["libc.", "libpthread.", "librt.", "libm.", "libdl.", "libutil."];
    for file in named {
        assert!(own.iter().any(|name| file.starts_with(name)), "{file} is needed");
    }
    for name in ["_Unwind_", "__register_atfork", "__tls_get_addr"] {
        assert!(!out.contains(name), "{name}: imported, or exported to the program");
    }
}
