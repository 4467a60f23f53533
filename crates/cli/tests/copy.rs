//! Tests of `softring copy`: its copy in a folder works from there. They need libsoftring.so next
//! to the executable.

mod common;

use common::{ME, library, text};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

fn copy(to: &std::path::Path) -> Output {
    Command::new(ME).arg("copy").arg(to).output().unwrap()
}

#[test]
fn a_copy_preloads_its_own_library() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("volume");
    // An init container that is started anew copies again.
    for _ in 0..2 {
        let o = copy(&to);
        assert!(o.status.success(), "{}", text(&o.stderr));
        let library = to.join("lib/libsoftring.so");
        assert_eq!(text(&o.stdout).trim_end(), library.to_str().unwrap());
    }
    let exe = to.join("bin/softring");
    assert_eq!(exe.metadata().unwrap().permissions().mode() & 0o111, 0o111);
    let words = ["run", "--deny", "--quiet", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let o = Command::new(&exe).args(words).output().unwrap();
    assert!(text(&o.stdout).starts_with(to.to_str().unwrap()), "{}", text(&o.stdout));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    if !library() {
        return;
    }
    let o = copy("/dev/null/volume".as_ref());
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(1), "{said}");
    assert!(said.contains("/dev/null/volume") && said.contains("hint: "), "{said}");
}
