//! softring where something is lacking: /proc, descriptors, threads, room on the disk. The work is
//! done, or an error says what is wrong. The tests need libsoftring.so next to the executable, as
//! `under.rs` does.

mod common;

use common::{ME, library, text};
use serde_json::Value;
use softring_testing::skipped;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `script` in a shell with mounts of its own, where `$@` is `args`; does nothing if that is
/// not permitted here.
fn in_own_mounts(script: &str, args: &[&str]) -> Option<Output> {
    let root = rustix::process::getuid().is_root();
    let new = |script: &str, args: &[&str]| {
        let mut c = Command::new("unshare");
        c.args([if root { "-m" } else { "-rm" }, "sh", "-c", script, "sh"]).args(args).output()
    };
    match new("mount -t tmpfs none /mnt", &[]) {
        Ok(o) if o.status.success() => Some(new(script, args).unwrap()),
        Ok(o) => {
            skipped!("no mounts of our own here: {}", text(&o.stderr));
            None
        }
        Err(e) => {
            skipped!("unshare(1): {e}");
            None
        }
    }
}

fn without_proc(args: &[&str]) -> Option<Output> {
    in_own_mounts("mount -t tmpfs none /proc && exec \"$@\"", args)
}

/// Returns the command line of a load of verified reads and writes of `file` through softring.
fn load(file: &str) -> Vec<&str> {
    let mut args = vec![ME, "bench", "--engines=softring", "--deny", "--verify", "--rw=randrw"];
    args.extend(["--overwrite", "--seconds=0.1", "--pairs=1", "--json", "--file", file]);
    args
}

#[track_caller]
fn verified(o: &Output) {
    assert!(o.status.success(), "{}{}", text(&o.stdout), text(&o.stderr));
    let result: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let run = &result["engines"][0]["runs"][0];
    assert!(run["verified"].as_u64().unwrap() > 0, "{run}");
}

#[test]
fn doctor_reports_a_missing_proc() {
    let Some(o) = without_proc(&[ME, "doctor", "--json"]) else { return };
    let report: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    for c in report["checks"].as_array().unwrap() {
        let name = c["name"].as_str().unwrap();
        if ["io_uring_disabled", "seccomp", "aio-nr"].contains(&name) {
            assert_eq!(c["state"], "unknown", "{c}");
        }
        assert!(c["state"] != "unknown" || c["hint"].is_null(), "{c}");
    }
}

#[test]
fn run_works_without_proc() {
    if !library() {
        return;
    }
    let Some(o) = without_proc(&[ME, "run", "--deny", "--", ME, "doctor", "--json"]) else {
        return;
    };
    let report: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert_eq!(report["verdict"]["rings"], "softring", "{report}");
    let library =
        report["checks"].as_array().unwrap().iter().find(|c| c["name"] == "libsoftring.so");
    assert_eq!(library.unwrap()["state"], "ok", "{report}");
}

#[test]
fn bench_without_proc_needs_a_file() {
    if !library() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let Some(o) = without_proc(&load(file.path().to_str().unwrap())) else { return };
    verified(&o);
    let o = without_proc(&[ME, "demo"]).unwrap();
    assert_eq!(o.status.code(), Some(2));
    assert!(text(&o.stderr).contains("/proc is not mounted here"), "{}", text(&o.stderr));
}

#[test]
fn stats_report_a_missing_proc() {
    for args in [&[ME, "stats"][..], &[ME, "top", "--once"], &[ME, "trace", "-p", "1"]] {
        let Some(o) = without_proc(args) else { return };
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert!(text(&o.stderr).contains("/proc is not mounted here"), "{}", text(&o.stderr));
    }
}

#[test]
fn an_unmappable_library_is_reported() {
    if !library() {
        return;
    }
    let lib = Path::new(ME).with_file_name("libsoftring.so");
    let script = "mount -t tmpfs -o noexec none /mnt && cp \"$0\" /mnt && \
                  SOFTRING_LIB=/mnt/libsoftring.so exec \"$@\"";
    let script = script.replace("$0", &lib.to_string_lossy());
    let Some(o) = in_own_mounts(&script, &[ME, "run", "--", "echo", "started"]) else { return };
    assert_eq!(o.status.code(), Some(2));
    assert!(text(&o.stderr).contains("noexec") && o.stdout.is_empty(), "{}", text(&o.stderr));
}

#[test]
fn a_low_file_size_limit_is_reported() {
    let bench = [ME, "bench", "--size=4m", "--engines=softring"];
    for args in [&bench[..], &[ME, "demo"]] {
        let script = "ulimit -f 1 && exec \"$0\" \"$@\"";
        let o = Command::new("sh").args(["-c", script]).args(args).output().unwrap();
        let said = text(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("RLIMIT_FSIZE"), "{args:?}: {said}");
    }
}

/// The descriptors are enough to start, and few for the rings.
#[test]
fn few_descriptors_are_enough() {
    if !library() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let args = load(file.path().to_str().unwrap());
    let script = "ulimit -n \"$0\" && exec \"$@\"";
    let o = Command::new("sh").args(["-c", script, "12"]).args(&args).output().unwrap();
    verified(&o);
}

#[test]
fn programs_run_without_free_threads() {
    if !library() {
        return;
    }
    // The test runs as a user whom limits bind and who can reach the executable: a copy in a public
    // place.
    let dir = tempfile::tempdir().unwrap();
    let place = |p: &Path| dir.path().join(p.file_name().unwrap());
    let lib = Path::new(ME).with_file_name("libsoftring.so");
    for from in [Path::new(ME), &lib] {
        std::fs::copy(from, place(from)).unwrap();
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).unwrap();
    // One process is this one; exec needs no other, a thread would.
    let mut args = vec!["prlimit", "--nproc=1", "./softring", "run", "--deny", "--quiet", "--"];
    args.extend(["./softring", "doctor", "--json"]);
    if rustix::process::getuid().is_root() {
        args.splice(0..0, ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    let mut c = Command::new(args[0]);
    c.args(&args[1..]).current_dir(dir.path());
    let o = match c.output() {
        Ok(o) => o,
        Err(e) => return skipped!("{}(1): {e}", args[0]),
    };
    // A command that starts a process of its own cannot, and says why.
    let before = args.iter().position(|a| *a == "run").unwrap();
    let mut c = Command::new(args[0]);
    let denied = c.args(&args[1..before]).args(["demo", "--seconds=0.1"]).current_dir(dir.path());
    let said = text(&denied.output().unwrap().stderr);
    assert!(said.contains("hint: the limit of processes"), "{said}");
    let report: Value = serde_json::from_slice(&o.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", text(&o.stdout), text(&o.stderr)));
    assert_eq!(report["verdict"]["rings"], "softring", "{report}");
}

#[test]
fn a_full_disk_is_reported() {
    if !library() {
        return;
    }
    let script = "mount -t tmpfs -o size=256k none /mnt && exec \"$@\"";
    let args = [ME, "bench", "--dir=/mnt", "--size=16m", "--seconds=0.1", "--engines=softring"];
    let Some(o) = in_own_mounts(script, &args) else { return };
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(2), "{said}");
    assert!(said.contains("No space left") && said.contains("--dir"), "{said}");
}

/// The error says what, why, and what to do if nothing can be written, or nobody has opened the
/// output.
#[test]
fn an_unwritable_output_is_reported() {
    for (to, code, why, hint) in [
        ("> /dev/full", 2, "No space left", "hint: free some space there"),
        (">&-", 1, "standard output is closed", "hint: keep standard output open"),
    ] {
        let help = [&["--help"][..], &["run", "--help"], &["--version"]];
        for args in [&["doctor", "--json"][..], &["metrics"]].into_iter().chain(help) {
            let script = format!("exec \"$@\" {to}");
            let mut c = Command::new("sh");
            let o = c.args(["-c", &script, "sh", ME]).args(args).output().expect("a shell");
            let said = text(&o.stderr);
            assert_eq!(o.status.code(), Some(code), "{args:?} {to}: {said}");
            assert!(said.contains(why) && said.contains(hint), "{args:?} {to}: {said}");
        }
    }
}
