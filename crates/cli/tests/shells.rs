//! `softring env`: programs that a shell starts after its lines are under softring, until the lines
//! are undone.

mod common;

use common::{ME, library, softring, text};
use softring_testing::skipped;
use std::process::{Command, Output};

/// Runs a script in a shell that may make no rings of the kernel's; `$0` is the command.
fn shell(name: &str, script: &str) -> Output {
    let mut c = Command::new(ME);
    c.args(["deny", "--", name, "-c", script, ME]).env_remove("LD_PRELOAD");
    c.output().expect("softring starts")
}

/// Command that succeeds if a program of the shell's gets a ring of softring's.
const RING: &str = "doctor --json | grep -q memfd:";

#[track_caller]
fn succeeds(o: &Output) -> String {
    assert!(o.status.success(), "{}{}", text(&o.stdout), text(&o.stderr));
    text(&o.stdout)
}

#[test]
fn env_applies_to_children_until_undone() {
    if !library() {
        return;
    }
    let script = format!(
        "eval \"$(\"$0\" env --quiet)\"; \"$0\" {RING} || exit 1
         eval \"$(\"$0\" env --undo)\"
         env | grep -E '^(LD_PRELOAD|SOFTRING_)' | grep -vE '^SOFTRING_(TEST_|VERSION=)'
         \"$0\" {RING} && exit 2; exit 0"
    );
    assert_eq!(succeeds(&shell("sh", &script)), "");
}

#[test]
fn other_preloads_stay_and_blanks_are_kept() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("my disk's $HOME");
    std::fs::create_dir(&disk).unwrap();
    let script = "show() { printf '%s\\n' \"$LD_PRELOAD\" \"${SOFTRING_MODEL-unset}\"; }
         export LD_PRELOAD=libm.so.6; lines=$(\"$0\" env --model \"$DISK=hdd\") || exit 1
         eval \"$lines\"; eval \"$lines\"; show
         eval \"$(\"$0\" env --undo)\"; show";
    let o = Command::new("sh").args(["-c", script, ME]).env("DISK", &disk).output().unwrap();
    let lines = succeeds(&o);
    let lines: Vec<&str> = lines.lines().collect();
    assert!(lines[0].ends_with("/libsoftring.so:libm.so.6"), "{lines:?}");
    assert_eq!(lines[1], format!("{}=hdd", disk.display()));
    assert_eq!(lines[2..], ["libm.so.6", "unset"]);
}

#[test]
fn env_supports_fish() {
    let o = softring(&["env", "--shell", "fish"]);
    if !library() {
        return;
    }
    let lines = succeeds(&o);
    assert!(lines.starts_with("set -gx LD_PRELOAD '/"), "{lines}");
    if Command::new("fish").arg("--version").output().is_err() {
        skipped!("fish is not installed: its lines were not run");
        return;
    }
    let script = format!(
        "{ME} env --quiet | source; {ME} {RING}; or exit 1
         {ME} env --undo | source; {ME} {RING}; and exit 2; exit 0"
    );
    succeeds(&shell("fish", &script));
}

#[test]
fn env_refuses_deny() {
    let o = softring(&["env", "--deny"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(text(&o.stderr).contains("--deny is not possible by variables"), "{:?}", o.stderr);
    let dir = tempfile::tempdir().unwrap();
    let lib = dir.path().join("a b").join("libsoftring.so");
    std::fs::create_dir(lib.parent().unwrap()).unwrap();
    std::fs::write(&lib, "").unwrap();
    let o = Command::new(ME).arg("env").env("SOFTRING_LIB", &lib).output().unwrap();
    assert_eq!(o.status.code(), Some(2));
    let err = text(&o.stderr);
    assert!(err.contains("has a space") && err.contains("put a copy or a link"), "{err}");
}
